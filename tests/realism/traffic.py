"""Programs for the hosts of a lab: datagrams with numbers and times in them, and a stream of so many bytes.

    python traffic.py take ADDRESS PORT FILE                            datagrams, until nothing has come for a while
    python traffic.py send ADDRESS PORT COUNT INTERVAL_S BYTES
    python traffic.py echo ADDRESS PORT                                 datagrams, until killed
    python traffic.py ask ADDRESS PORT COUNT INTERVAL_S FILE
    python traffic.py drain ADDRESS PORT                                one connection, to its end; prints how many bytes came
    python traffic.py pour ADDRESS PORT BYTES

All hosts of a lab have one clock, so the time from host to host can be read directly. When a datagram came is asked of the kernel, which notes it
as the packet reaches the host: how soon Python gets a core does not matter.
"""

import array
import socket
import struct
import sys
import time
from pathlib import Path

STAMP = struct.Struct("!IQ")
"""Number, and when it was sent: nanoseconds since 1970."""

RECORD = struct.Struct("=IQQ")
"""Of a file: number, when it was sent, when it came."""

# asm-generic/socket.h: the time of reception as a `struct timespec`, in nanoseconds; Python has no name for it.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")

FIRST_S = 20.0
"""How long to wait for the first datagram."""

QUIET_S = 1.5
"""After so long without one there are no more; ways here are shorter."""

_BUFFER_BYTES = 1 << 22
_TOP_UP_S = 0.000_2
"""Shorter waits are not worth a sleep: what is due then is sent with what follows."""


def take(address: str, port: int, path: Path) -> None:
    """Write a record of every datagram that comes."""
    with _bound(address, port) as sock:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        sock.settimeout(FIRST_S)
        records = []
        while (came := _next(sock)) is not None:
            records.append(came)
            sock.settimeout(QUIET_S)
    path.write_bytes(b"".join(records))


def _next(sock: socket.socket) -> bytes | None:
    try:
        data, ancillary, _, _ = sock.recvmsg(65536, 64)
    except TimeoutError:
        return None
    seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2][: _TIMESPEC.size])
    return RECORD.pack(*STAMP.unpack_from(data), seconds * 1_000_000_000 + nanoseconds)


def send(address: str, port: int, count: int, interval_s: float, size_bytes: int) -> None:
    """Send so many datagrams of so many IP bytes, one every interval."""
    rest = bytes(size_bytes - 28 - STAMP.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        sock.connect((address, port))
        start_s = time.monotonic()
        for number in range(count):
            wait_s = start_s + number * interval_s - time.monotonic()
            if wait_s > _TOP_UP_S:
                time.sleep(wait_s)
            sock.send(STAMP.pack(number, time.time_ns()) + rest)


def echo(address: str, port: int) -> None:
    """Send back all that comes, until killed."""
    with _bound(address, port) as sock:
        while True:
            data, peer = sock.recvfrom(65536)
            sock.sendto(data, peer)


def ask(address: str, port: int, count: int, interval_s: float, path: Path) -> None:
    """Send a datagram every interval, and write the round-trip times in seconds of those that come back within one."""
    rtts_s = array.array("d")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, port))
        for number in range(count):
            start_s = time.monotonic()
            sock.send(STAMP.pack(number, 0))
            while (left_s := start_s + interval_s - time.monotonic()) > 0:
                sock.settimeout(left_s)
                try:
                    data = sock.recv(65536)
                except (TimeoutError, ConnectionRefusedError):
                    continue
                if STAMP.unpack_from(data)[0] == number:
                    rtts_s.append(time.monotonic() - start_s)
    path.write_bytes(rtts_s.tobytes())


def drain(address: str, port: int) -> None:
    """Take one connection to its end and print how many bytes came."""
    with socket.create_server((address, port)) as listener:
        connection, _ = listener.accept()
        with connection:
            buffer, total = bytearray(1 << 16), 0
            while count := connection.recv_into(buffer):
                total += count
    sys.stdout.write(f"{total}\n")


def pour(address: str, port: int, size_bytes: int) -> None:
    """Send so many bytes and close the connection."""
    with socket.create_connection((address, port), FIRST_S) as sock:
        sock.sendall(bytes(size_bytes))


def read_records(path: Path) -> list[tuple[int, int, int]]:
    """Return what was taken: number, when it was sent, when it came, in the order in which it came."""
    return list(RECORD.iter_unpack(path.read_bytes()))


def read_rtts_s(path: Path) -> list[float]:
    """Return what was asked."""
    rtts_s = array.array("d")
    rtts_s.frombytes(path.read_bytes())
    return list(rtts_s)


def _bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    return sock


if __name__ == "__main__":
    role, to, at, *more = sys.argv[1:]
    match role:
        case "take":
            take(to, int(at), Path(more[0]))
        case "send":
            send(to, int(at), int(more[0]), float(more[1]), int(more[2]))
        case "echo":
            echo(to, int(at))
        case "ask":
            ask(to, int(at), int(more[0]), float(more[1]), Path(more[2]))
        case "drain":
            drain(to, int(at))
        case "pour":
            pour(to, int(at), int(more[0]))
