"""Probe program of 127 bytes of machine code that prints the time of its first instruction.

Other programs would print a later time, because a C library, a language runtime and their page faults precede ``main``. On
4 cores, 45 such programs wait for each other there. This module writes the file byte by byte, so no compiler is required.
The probe reads the monotonic clock, sleeps 30 ms and prints the time in nanoseconds. The sleep is similar to a transfer;
without it, the probe would free its core for the others before they start.
"""

from __future__ import annotations

import platform
import struct
from pathlib import Path

HOLD_MS = 30
"""Time that the probe sleeps after it has read the clock."""

_X86_64 = bytes.fromhex(
    "4883ec40"  # sub    rsp, 64
    "bf01000000 4889e6 b8e4000000 0f05"  # clock_gettime(CLOCK_MONOTONIC, rsp)
    "48c744241000000000 48c744241880c3c901"  # rsp[16:32] = 0 s, 30 000 000 ns
    "488d7c2410 31f6 b823000000 0f05"  # nanosleep(rsp + 16, NULL)
    "48690424 00ca9a3b 4803442408"  # rax = seconds * 10^9 + nanoseconds
    "488d7c243f c6070a b90a000000"  # newline; the decimal digits precede it:
    "31d2 48f7f1 80c230 48ffcf 8817 4885c0 75ee"  # divide by ten until nothing is left
    "4889fe 488d542440 4829f2"  # start and length of the text
    "bf01000000 b801000000 0f05"  # write(1, text, length)
    "31ff b83c000000 0f05"  # exit(0)
)


def write(path: Path) -> bool:
    """Write the probe as an executable file; return False on other machines than x86-64."""
    if platform.machine() != "x86_64":
        return False
    path.write_bytes(_elf(_X86_64))
    path.chmod(0o755)
    return True


def _elf(code: bytes) -> bytes:
    """Return a static executable with one segment for the headers and the code (ELF-64, System V ABI)."""
    base, header_size, segment_size = 0x400000, 64, 56
    entry = base + header_size + segment_size
    size = header_size + segment_size + len(code)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    executable, x86_64, readable_executable, load = 2, 62, 5, 1
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", executable, x86_64, 1, entry, header_size, 0, 0, header_size, segment_size, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", load, readable_executable, 0, base, base, size, size, 0x1000)
    return header + segment + code
