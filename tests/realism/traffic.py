"""Programs for lab hosts: numbered and timestamped datagrams, and a stream of a given size.

    python traffic.py take ADDRESS PORT FILE                            receive datagrams until none arrives for a while
    python traffic.py send ADDRESS PORT COUNT INTERVAL_S BYTES [FILE]   send datagrams; write their times to FILE, in ns since 1970
    python traffic.py echo ADDRESS PORT                                 echo datagrams until killed
    python traffic.py rtt ADDRESS PORT COUNT INTERVAL_S FILE            send datagrams; write round-trip times to FILE
    python traffic.py drain ADDRESS PORT                                read one connection; print the number of bytes
    python traffic.py pour ADDRESS PORT BYTES                           send bytes over one connection

All hosts of a lab share one clock, so one-way delays can be measured directly. The kernel records the arrival time when
the packet reaches the host, so scheduling delays of Python have no effect.
"""

import array
import socket
import struct
import sys
import time
from pathlib import Path

STAMP = struct.Struct("!IQ")
"""Number and send time, in nanoseconds since 1970."""

RECORD = struct.Struct("=IQQ")
"""Record of a file: number, send time, arrival time."""

# asm-generic/socket.h: arrival time as a `struct timespec`, in nanoseconds; Python has no name for it.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")

FIRST_S = 20.0
"""Maximum wait for the first datagram."""

QUIET_S = 1.5
"""Time without a datagram after which the stream has ended; delays here are shorter."""

_BUFFER_BYTES = 1 << 22
_TOP_UP_S = 0.000_2
"""Minimum sleep; packets that are due earlier are sent together with the next."""


def take(address: str, port: int, path: Path) -> None:
    """Write a record of every received datagram."""
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


def send(address: str, port: int, count: int, interval_s: float, size_bytes: int, path: Path | None) -> None:
    """Send ``count`` datagrams of ``size_bytes`` IP bytes, one per interval."""
    rest = bytes(size_bytes - 28 - STAMP.size)
    times_ns = array.array("Q")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        sock.connect((address, port))
        start_s = time.monotonic()
        for number in range(count):
            wait_s = start_s + number * interval_s - time.monotonic()
            if wait_s > _TOP_UP_S:
                time.sleep(wait_s)
            times_ns.append(time.time_ns())
            sock.send(STAMP.pack(number, times_ns[-1]) + rest)
    if path is not None:
        path.write_bytes(times_ns.tobytes())


def echo(address: str, port: int) -> None:
    """Echo all datagrams until killed."""
    with _bound(address, port) as sock:
        while True:
            data, peer = sock.recvfrom(65536)
            sock.sendto(data, peer)


def measure_rtts(address: str, port: int, count: int, interval_s: float, path: Path) -> None:
    """Send one datagram per interval, and write the round-trip times in seconds of replies within one interval."""
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
    """Read one connection to its end and print the number of bytes."""
    with socket.create_server((address, port)) as listener:
        connection, _ = listener.accept()
        with connection:
            buffer, total = bytearray(1 << 16), 0
            while count := connection.recv_into(buffer):
                total += count
    sys.stdout.write(f"{total}\n")


def pour(address: str, port: int, size_bytes: int) -> None:
    """Send ``size_bytes`` and close the connection."""
    with socket.create_connection((address, port), FIRST_S) as sock:
        sock.sendall(bytes(size_bytes))


def read_records(path: Path) -> list[tuple[int, int, int]]:
    """Return number, send time and arrival time of the received datagrams, by arrival."""
    return list(RECORD.iter_unpack(path.read_bytes()))


def read_sent_ns(path: Path) -> list[int]:
    """Return the send times of the datagrams, in ns since 1970."""
    times_ns = array.array("Q")
    times_ns.frombytes(path.read_bytes())
    return list(times_ns)


def read_rtts_s(path: Path) -> list[float]:
    """Return the recorded round-trip times."""
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
            send(to, int(at), int(more[0]), float(more[1]), int(more[2]), Path(more[3]) if more[3:] else None)
        case "echo":
            echo(to, int(at))
        case "rtt":
            measure_rtts(to, int(at), int(more[0]), float(more[1]), Path(more[2]))
        case "drain":
            drain(to, int(at))
        case "pour":
            pour(to, int(at), int(more[0]))
