"""A relay between an FTP client and a server, which delays data as a test requires."""

import contextlib
import socket
import threading

_DRIP_S = 0.5


class Middle:
    """Relay that forwards everything, but delays the data of downloads in MODE E.

    Attributes
    ----------
    sessions
        One for each control connection, in order.
    held
        The session whose data only trickles.
    start_event
        No data moves until it is set.
    again
        While it is not set, requests of other sessions for files of the held session wait.
    """

    def __init__(self, port):
        self.server = ("127.0.0.1", port)
        self.sessions, self.held = [], None
        self.start_event, self.again, self.over = threading.Event(), threading.Event(), threading.Event()
        self.again.set()
        self.repeated = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        _start(self._accept)

    def hold(self, session):
        """Release the data of all sessions; the data of `session` only trickles."""
        self.held = session
        self.start_event.set()

    def stop(self):
        """Stop all connections."""
        for event in (self.over, self.start_event, self.again):
            event.set()
        _end(self._listener)
        for session in self.sessions:
            session.end()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.sessions.append(_Session(self, client))


class _Session:
    def __init__(self, middle, client):
        self.middle, self.requested, self.connections = middle, [], 0
        self.gone = threading.Event()
        self._client, self._server = client, socket.create_connection(middle.server)
        self._data = None
        _start(self._commands)
        _start(self._replies)

    def end(self):
        for one in (self._client, self._server, self._data):
            _end(one)

    def _commands(self):
        with contextlib.suppress(OSError), self._client.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"PORT "):
                    line = self._port(line)
                elif line.startswith(b"RETR "):
                    self._see(line)
                self._server.sendall(line)
        self.gone.set()
        _end(self._server)

    def _replies(self):
        with contextlib.suppress(OSError):
            while came := self._server.recv(65_536):
                self._client.sendall(came)
        _end(self._client)

    def _see(self, line):
        held = self.middle.held
        if held not in (None, self) and line in held.requested:
            self.middle.repeated.add(line)
            self.middle.again.wait()
        self.requested.append(line)

    def _port(self, line):
        """Redirect the data connections of the server to the relay, which connects to the client."""
        fields = [int(field) for field in line[5:].split(b",")]
        client = (".".join(map(str, fields[:4])), fields[4] * 256 + fields[5])
        self._data = socket.create_server(("127.0.0.1", 0))
        port = self._data.getsockname()[1]
        _start(lambda: self._open(self._data, client))
        return f"PORT 127,0,0,1,{port // 256},{port % 256}\r\n".encode()

    def _open(self, listener, client):
        with contextlib.suppress(OSError):
            while True:
                server, _ = listener.accept()
                self.connections += 1
                _start(lambda server=server: self._bytes(server, client))

    def _bytes(self, server, client):
        """Forward the bytes of a data connection to the client."""
        with contextlib.suppress(OSError), server, socket.create_connection(client) as to:
            self.middle.start_event.wait()
            drips = self.middle.held is self
            while came := server.recv(1 if drips else 65_536):
                to.sendall(came)
                if drips:
                    self.middle.over.wait(_DRIP_S)


def _start(work):
    threading.Thread(target=work, daemon=True).start()


def _end(one):
    if one is not None:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
