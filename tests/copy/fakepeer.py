"""An FTP server with one fault at one step, counted over all its connections; later steps are correct."""

import contextlib
import re
import socket
import struct
import threading

_TIMEOUT_S = 5
_BLOCK_BYTES = 4096
_MOST_BYTES = 1 << 24


class Left(Exception):
    """The session has ended."""


class Misdoer:
    """Files in memory behind a port of loopback. `misdeed` happens at `step`; `steps` records all steps."""

    scheme = ""

    def __init__(self, files, step, misdeed):
        self.files = dict(files)
        self.steps = []
        self._wrong = (step, misdeed)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = []
        self._start(self._accept)

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def url(self, path):
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def stop(self):
        """Stop the server and all its connections, which a finished client has closed on its side."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept(), which close() alone does not
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def step(self, what):
        """Return the fault of this step, or an empty string."""
        with self._lock:
            self.steps.append(what)
            at, misdeed = self._wrong
            return misdeed if at == len(self.steps) - 1 else ""

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection):
        raise NotImplementedError


class FakePeer(Misdoer):
    """FTP server with one fault.

    `directories` exist in addition to the root. The listing of a `broken` one ends half-way with a failure. The
    first listing of a `lost` one ends the session. `rejected` commands always fail.
    """

    scheme = "ftp"

    def __init__(self, files, step=None, misdeed="", *, directories=(), broken=(), lost=(), rejected=()):
        self.directories = {"/", *directories}
        self.broken = frozenset(broken)
        self.lost = set(lost)
        self.rejected = frozenset(rejected)
        super().__init__(files, step, misdeed)

    def metadata(self, path):
        """Return the facts of a file or directory."""
        if path in self.directories:
            return "Type=dir;Modify=20200101000000;"
        return f"Type=file;Size={len(self.files[path])};Modify=20200101000000;"

    def sending(self, path, offset):
        """Return a reply that ends the transfer before this block of the file, or an empty string."""
        return ""

    def _serve(self, control):
        control.settimeout(_TIMEOUT_S)
        session = _Session(self, control)
        with contextlib.suppress(Left, OSError):
            session.run()
        session.close()


class _Session:
    def __init__(self, peer, control):
        self.peer = peer
        self.control = control
        self.extended = False
        self.passive = None
        self.active = None
        self.data = None
        self.rest = 0
        self.rename = None

    def close(self):
        self.forget()
        self.control.close()

    def run(self):
        self.send_line("220 Fake GridFTP Server [Globus Toolkit 6.0] ready.")
        with self.control.makefile("rb") as lines:
            for line in lines:
                name, _, argument = line.decode().rstrip("\r\n").partition(" ")
                if self.peer.step(f"do {name}") == "fail" or name in self.peer.rejected:
                    self.control.sendall(b"550 No.\r\n")
                    continue
                getattr(self, f"do_{name.lower()}", self.do_noop)(argument)

    def send_line(self, text):
        data = text.encode() + b"\r\n"
        match self.peer.step(f"say {text[:20]}"):
            case "hang up":
                raise Left
            case "cut":
                self.control.sendall(data[: len(data) // 2])
                raise Left
            case "garbage":
                data = bytes(range(256)) + b"\r\n" + data
            case "flood":
                data = b"what is this\r\n" * 20_000
            case "endless":
                self.control.sendall(b"2" * 200_000)
                raise Left
            case "number":
                data = data[:3] + re.sub(rb"\d", lambda digit: b"%d" % ((int(digit[0]) + 1) % 10), data[3:])
            case "done":
                data = b"226 Done.\r\n"
            case "twice":
                data *= 2
        self.control.sendall(data)

    def do_noop(self, _):
        self.send_line("200 OK.")

    def do_user(self, _):
        self.send_line("331 Password.")

    def do_pass(self, _):
        self.send_line("230 In.")

    def do_feat(self, _):
        self.send_line("211-Extensions\r\n PARALLEL\r\n SIZE\r\n MLST Type*;Size*;\r\n MLSC\r\n211 End.")

    def do_mode(self, letter):
        self.extended = letter == "E"
        self.send_line("200 OK.")

    def do_mlst(self, path):
        if path in self.peer.files or path in self.peer.directories or path == "":
            self.send_line(f"250-status\r\n {self.peer.metadata(path or '/')} {path}\r\n250 End.")
        else:
            self.send_line("550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550 End.")

    def do_mlsc(self, path):
        below = path.rstrip("/") + "/"
        inside = sorted(
            name
            for name in {*self.peer.files, *self.peer.directories}
            if name != "/" and name.startswith(below) and "/" not in name[len(below) :]
        )
        lost = path in self.peer.lost
        if lost or path in self.peer.broken:
            inside = inside[: len(inside) // 2]
        lines = "".join(f" {self.peer.metadata(name)} {name[len(below) :]}\r\n" for name in inside)
        if lost:
            self.peer.lost.discard(path)
            self.control.sendall(f"250-Contents of {path}\r\n{lines}".encode())
            raise Left
        code = 550 if path in self.peer.broken else 250
        self.send_line(f"{code}-Contents of {path}\r\n{lines}{code} End.")

    def do_mkd(self, path):
        if path in self.peer.directories or path.rpartition("/")[0] + "/" not in {
            directory.rstrip("/") + "/" for directory in self.peer.directories
        }:
            return self.send_line("553 No.")
        self.peer.directories.add(path)
        return self.send_line("257 Made.")

    def do_rmd(self, path):
        self.peer.directories.discard(path)
        self.send_line("250 Gone.")

    def do_size(self, path):
        self.send_line(f"213 {len(self.peer.files[path])}" if path in self.peer.files else "550 No such file.")

    def do_rest(self, argument):
        self.rest = int(re.findall(r"\d+", argument)[-1])
        self.send_line("350 Go on.")

    def do_rnfr(self, path):
        self.rename = path
        self.send_line("350 Go on.")

    def do_rnto(self, path):
        if self.rename in self.peer.files:
            self.peer.files[path] = self.peer.files.pop(self.rename)
        self.send_line("250 Done.")

    def do_dele(self, path):
        self.send_line("250 Done." if self.peer.files.pop(path, None) is not None else "550 No such file.")

    def do_quit(self, _):
        self.send_line("221 Goodbye.")
        raise Left

    def drop(self):
        if self.data is not None:
            self.data.close()
        self.data = None

    def forget(self):
        self.drop()
        if self.passive is not None:
            self.passive.close()
        self.passive = self.active = None

    def do_pasv(self, _):
        self.forget()
        self.passive = socket.create_server(("127.0.0.1", 0))
        self.passive.settimeout(_TIMEOUT_S)
        port = self.passive.getsockname()[1]
        self.send_line(f"227 Entering Passive Mode (127,0,0,1,{port // 256},{port % 256})")

    def do_port(self, argument):
        self.forget()
        numbers = argument.split(",")
        self.active = ("127.0.0.1", int(numbers[4]) * 256 + int(numbers[5]))
        self.send_line("200 OK.")

    def connect(self):
        if self.data is None and self.passive is not None:
            self.data, _ = self.passive.accept()
        elif self.data is None and self.active is not None:
            self.data = socket.create_connection(self.active, timeout=_TIMEOUT_S)
        elif self.data is None:
            raise Left  # the server rejected the address, but the client requests data anyway
        self.data.settimeout(_TIMEOUT_S)

    def do_retr(self, path):
        if path not in self.peer.files:
            return self.send_line("550 No such file.")
        self.send_line("150 Begin.")
        self.connect()
        length = len(self.peer.files[path])
        try:
            for offset in range(self.rest, length, _BLOCK_BYTES):
                if reply := self.peer.sending(path, offset):
                    self.drop()
                    return self.send_line(reply)
                self.send(self.peer.files[path][offset : min(offset + _BLOCK_BYTES, length)], offset)
            if self.extended:
                self.data.sendall(struct.pack(">BQQ", 0x48, 0, 1))
            else:
                self.drop()
        except (OSError, EOFError):
            self.drop()
            self.rest = 0
            return self.send_line("426 Closed.")
        self.rest = 0
        return self.send_line("226 Done.")

    def send(self, block, offset):
        header = struct.pack(">BQQ", 0, len(block), offset) if self.extended else b""
        match self.peer.step(f"send {offset}"):
            case "close data":
                raise EOFError
            case "skip":
                return
            case "noise":
                self.data.sendall(b"\xff" * 40)
            case "cut":
                self.data.sendall((header + block)[: len(block) // 2])
                raise EOFError
        self.data.sendall(header + block)

    def do_stor(self, path):
        self.peer.files[path] = b""
        self.send_line("150 Begin.")
        self.connect()
        try:
            self.peer.files[path] = self.receive_blocks() if self.extended else self.receive()
        except (OSError, EOFError):
            self.drop()
            return self.send_line("426 Closed.")
        return self.send_line("226 Done.")

    def receive(self):
        content = b""
        while chunk := self.data.recv(_BLOCK_BYTES):
            if self.peer.step("take") == "close data":
                raise EOFError
            content += chunk
        self.drop()
        return content

    def receive_blocks(self):
        content, ends, expected = bytearray(), 0, None
        while ends != expected:
            descriptor, count, offset = struct.unpack(">BQQ", self.exactly(17))
            if self.peer.step(f"take {count}") == "close data":
                raise EOFError
            if descriptor & 0x40:
                expected = offset
            elif offset + count > _MOST_BYTES:
                raise EOFError  # the other side of a third-party copy sent an invalid block
            else:
                content.extend(bytes(max(0, offset + count - len(content))))
                content[offset : offset + count] = self.exactly(count)
            ends += bool(descriptor & 0x08)
        return bytes(content)

    def exactly(self, count):
        content = b""
        while len(content) < count:
            chunk = self.data.recv(count - len(content))
            if not chunk:
                raise EOFError
            content += chunk
        return content
