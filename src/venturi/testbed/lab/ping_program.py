"""Pings between hosts of a lab, from one process with a socket in each host. Needs only the standard library.

The input is a JSON object with ``hosts`` (name → path of its network namespace) and ``pings``. Each ping has
``source_host``, ``source``, ``destination_host``, ``destination`` (addresses) and ``expected_s``. The output is a list
with ``rtts_s``, ``congestion_control`` (of both ends of a TCP connection), ``mss_bytes`` and ``connected`` for each ping.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any

CLONE_NEWNET = 0x40000000  # sched.h
COUNT = 5
ENOUGH_S = 0.5
"""Time for the pings of a pair. Long paths get fewer pings, but at least two."""

_LOST_AFTER_S = 0.3
_NUMBER = struct.Struct("!II")


class Ping:
    """One pair: sequential UDP echoes and one TCP connection."""

    def __init__(self, index: int, spec: dict[str, Any]) -> None:
        self.index = index
        self.spec = spec
        self.rtts_s: list[float] = []
        self.congestion_control: list[str] = []
        self.mss_bytes: list[int] = []
        self.number = 0
        self.sent_s = 0.0
        self.needed = max(2, min(COUNT, int(ENOUGH_S / max(spec["expected_s"], 1e-6))))
        self.lost_after_s = 2 * spec["expected_s"] + _LOST_AFTER_S
        self.connected = False

    @property
    def is_done(self) -> bool:
        """Whether all replies have arrived."""
        return len(self.rtts_s) >= self.needed and self.connected


class Pinger:
    """Concurrent pings of all pairs, in one loop."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.request = request
        self.selector = selectors.DefaultSelector()
        self.pings = [Ping(index, spec) for index, spec in enumerate(request["pings"])]
        self.clients: list[socket.socket] = []
        self.echoes: dict[str, int] = {}
        self.listeners: dict[str, int] = {}

    def _enter(self, host: str) -> None:
        namespace = os.open(self.request["hosts"][host], os.O_RDONLY)
        try:
            if self.libc.setns(namespace, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns into {host}")
        finally:
            os.close(namespace)

    def _serve(self, host: str, address: str) -> None:
        """Open the echo server and the TCP listener at an address."""
        if address in self.echoes:
            return
        self._enter(host)
        echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        echo.bind((address, 0))
        listener = socket.create_server((address, 0), backlog=64)
        for server, handler in ((echo, self._echo), (listener, self._accept)):
            server.setblocking(False)
            self.selector.register(server, selectors.EVENT_READ, handler)
        self.echoes[address], self.listeners[address] = echo.getsockname()[1], listener.getsockname()[1]

    def _open_client(self, ping: Ping) -> None:
        """Open the UDP socket and the TCP connection of a pair."""
        self._enter(ping.spec["source_host"])
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.bind((ping.spec["source"], 0))
        client.setblocking(False)
        client.connect((ping.spec["destination"], self.echoes[ping.spec["destination"]]))
        self.selector.register(client, selectors.EVENT_READ, lambda _: self._on_echo(ping, client))
        self.clients.append(client)
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((ping.spec["source"], 0))
        connection.connect_ex((ping.spec["destination"], self.listeners[ping.spec["destination"]]))
        self.selector.register(connection, selectors.EVENT_WRITE, lambda _: self._on_connect(ping, connection))

    def _send(self, ping: Ping) -> None:
        ping.number += 1
        ping.sent_s = time.monotonic()
        with suppress(OSError):  # an earlier ICMP reply reported no route; the ping counts as lost
            self.clients[ping.index].send(_NUMBER.pack(ping.index, ping.number))

    def _echo(self, server: socket.socket) -> None:
        content, sender = server.recvfrom(64)
        server.sendto(content, sender)

    def _on_echo(self, ping: Ping, client: socket.socket) -> None:
        now_s = time.monotonic()
        try:
            _, number = _NUMBER.unpack(client.recv(64))
        except OSError:
            return
        if number == ping.number:
            ping.rtts_s.append(now_s - ping.sent_s)
            if len(ping.rtts_s) < ping.needed:
                self._send(ping)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        # Send the algorithm of this end; the other end reads it and adds its own.
        connection.sendall(algorithm(connection).encode() + b"\n")
        self.selector.register(connection, selectors.EVENT_READ, self._drop)

    def _drop(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        connection.close()

    def _on_connect(self, ping: Ping, connection: socket.socket) -> None:
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            ping.congestion_control.append(algorithm(connection))
            ping.mss_bytes.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
            self.selector.modify(connection, selectors.EVENT_READ, lambda _: self._on_algorithm(ping, connection))
        else:
            self._drop(connection)

    def _on_algorithm(self, ping: Ping, connection: socket.socket) -> None:
        ping.congestion_control += connection.recv(64).decode().split()
        ping.connected = True
        self._drop(connection)

    def run(self) -> list[dict[str, Any]]:
        """Run all pings and return one result per ping."""
        for ping in self.pings:
            self._serve(ping.spec["destination_host"], ping.spec["destination"])
        for ping in self.pings:
            self._open_client(ping)
        for ping in self.pings:
            self._send(ping)
        max_rtt_s = max((ping.spec["expected_s"] for ping in self.pings), default=0.0)
        deadline_s = time.monotonic() + 2 + 8 * max_rtt_s
        while not all(ping.is_done for ping in self.pings) and time.monotonic() < deadline_s:
            for key, _ in self.selector.select(0.02):
                key.data(key.fileobj)
            for ping in self.pings:
                if len(ping.rtts_s) < ping.needed and time.monotonic() - ping.sent_s > ping.lost_after_s:
                    self._send(ping)
        return [
            {
                "rtts_s": ping.rtts_s,
                "congestion_control": ping.congestion_control,
                "mss_bytes": ping.mss_bytes[0] if ping.mss_bytes else None,
                "connected": ping.connected,
            }
            for ping in self.pings
        ]


def algorithm(connection: socket.socket) -> str:
    """Return the congestion control of a connection."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).partition(b"\0")[0].decode()


if __name__ == "__main__":
    json.dump(Pinger(json.load(sys.stdin)).run(), sys.stdout)
