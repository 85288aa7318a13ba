"""Collector for the monitoring of an XRootD server: writes each UDP datagram to a file, after its time and length.

It runs as a separate program next to the server (``python xrootd_collector.py ADDRESS PORT FILE READY``), and needs only
Python. It creates the file READY as soon as it listens. :mod:`venturi.testbed.xrootd_trace` reads the output.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

__all__ = ["PREFIX"]

PREFIX = struct.Struct(">QI")
"""Arrival time of a datagram in Unix nanoseconds, and its length in bytes."""

_LARGEST = 65536


def _collect(address: str, port: int, path: str, ready: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link, open(path, "ab", buffering=0) as file:  # noqa: PTH123
        link.bind((address, port))
        with open(ready, "wb"):  # noqa: PTH123
            pass
        while True:
            data = link.recv(_LARGEST)
            file.write(PREFIX.pack(time.time_ns(), len(data)) + data)


if __name__ == "__main__":
    _collect(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
