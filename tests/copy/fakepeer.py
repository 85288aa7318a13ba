"""A server of FTP that does one thing wrong at one step, counted over all its connections; what comes after is as it should be."""

import contextlib
import re
import socket
import struct
import threading

_PATIENCE_S = 5
_BLOCK_BYTES = 4096
_MOST_BYTES = 1 << 24


class Left(Exception):
    """The session is over."""


class Misdoer:
    """Files in memory behind a port of loopback. `misdeed` happens at `step`; `steps` are told as they come."""

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
        """End it, with all its connections: a client that has ended has closed its side of them."""
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who accepts
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def step(self, what):
        """Return what is to be done wrong at this step, or nothing."""
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
    """One of FTP.

    `folders` are directories besides the root; `broken` ones end their listing, after half of it, with a failure, and the session of
    who lists a `lost` one for the first time ends there. Commands that are `refused` are each time.
    """

    scheme = "ftp"

    def __init__(self, files, step=None, misdeed="", *, folders=(), broken=(), lost=(), refused=()):
        self.folders = {"/", *folders}
        self.broken = frozenset(broken)
        self.lost = set(lost)
        self.refused = frozenset(refused)
        super().__init__(files, step, misdeed)

    def facts(self, path):
        """Return what is told of a file or folder."""
        if path in self.folders:
            return "Type=dir;Modify=20200101000000;"
        return f"Type=file;Size={len(self.files[path])};Modify=20200101000000;"

    def sending(self, path, offset):
        """See that a block of a file is about to be sent; a reply that is returned ends its transfer."""
        return ""

    def _serve(self, control):
        control.settimeout(_PATIENCE_S)
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
        self.say("220 Fake GridFTP Server [Globus Toolkit 6.0] ready.")
        with self.control.makefile("rb") as lines:
            for line in lines:
                name, _, argument = line.decode().rstrip("\r\n").partition(" ")
                if self.peer.step(f"do {name}") == "fail" or name in self.peer.refused:
                    self.control.sendall(b"550 No.\r\n")
                    continue
                getattr(self, f"do_{name.lower()}", self.do_noop)(argument)

    def say(self, text):
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
        self.say("200 OK.")

    def do_user(self, _):
        self.say("331 Password.")

    def do_pass(self, _):
        self.say("230 In.")

    def do_feat(self, _):
        self.say("211-Extensions\r\n PARALLEL\r\n SIZE\r\n MLST Type*;Size*;\r\n MLSC\r\n211 End.")

    def do_mode(self, letter):
        self.extended = letter == "E"
        self.say("200 OK.")

    def do_mlst(self, path):
        if path in self.peer.files or path in self.peer.folders or path == "":
            self.say(f"250-status\r\n {self.peer.facts(path or '/')} {path}\r\n250 End.")
        else:
            self.say("550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550 End.")

    def do_mlsc(self, path):
        below = path.rstrip("/") + "/"
        inside = sorted(
            name
            for name in {*self.peer.files, *self.peer.folders}
            if name != "/" and name.startswith(below) and "/" not in name[len(below) :]
        )
        lost = path in self.peer.lost
        if lost or path in self.peer.broken:
            inside = inside[: len(inside) // 2]
        lines = "".join(f" {self.peer.facts(name)} {name[len(below) :]}\r\n" for name in inside)
        if lost:
            self.peer.lost.discard(path)
            self.control.sendall(f"250-Contents of {path}\r\n{lines}".encode())
            raise Left
        code = 550 if path in self.peer.broken else 250
        self.say(f"{code}-Contents of {path}\r\n{lines}{code} End.")

    def do_mkd(self, path):
        if path in self.peer.folders or path.rpartition("/")[0] + "/" not in {
            folder.rstrip("/") + "/" for folder in self.peer.folders
        }:
            return self.say("553 No.")
        self.peer.folders.add(path)
        return self.say("257 Made.")

    def do_rmd(self, path):
        self.peer.folders.discard(path)
        self.say("250 Gone.")

    def do_size(self, path):
        self.say(f"213 {len(self.peer.files[path])}" if path in self.peer.files else "550 No such file.")

    def do_rest(self, argument):
        self.rest = int(re.findall(r"\d+", argument)[-1])
        self.say("350 Go on.")

    def do_rnfr(self, path):
        self.rename = path
        self.say("350 Go on.")

    def do_rnto(self, path):
        if self.rename in self.peer.files:
            self.peer.files[path] = self.peer.files.pop(self.rename)
        self.say("250 Done.")

    def do_dele(self, path):
        self.say("250 Done." if self.peer.files.pop(path, None) is not None else "550 No such file.")

    def do_quit(self, _):
        self.say("221 Goodbye.")
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
        self.passive.settimeout(_PATIENCE_S)
        port = self.passive.getsockname()[1]
        self.say(f"227 Entering Passive Mode (127,0,0,1,{port // 256},{port % 256})")

    def do_port(self, argument):
        self.forget()
        numbers = argument.split(",")
        self.active = ("127.0.0.1", int(numbers[4]) * 256 + int(numbers[5]))
        self.say("200 OK.")

    def connect(self):
        if self.data is None and self.passive is not None:
            self.data, _ = self.passive.accept()
        elif self.data is None and self.active is not None:
            self.data = socket.create_connection(self.active, timeout=_PATIENCE_S)
        elif self.data is None:
            raise Left  # it refused to be told where to, and is asked for data all the same
        self.data.settimeout(_PATIENCE_S)

    def do_retr(self, path):
        if path not in self.peer.files:
            return self.say("550 No such file.")
        self.say("150 Begin.")
        self.connect()
        length = len(self.peer.files[path])
        try:
            for offset in range(self.rest, length, _BLOCK_BYTES):
                if answer := self.peer.sending(path, offset):
                    self.drop()
                    return self.say(answer)
                self.send(self.peer.files[path][offset : min(offset + _BLOCK_BYTES, length)], offset)
            if self.extended:
                self.data.sendall(struct.pack(">BQQ", 0x48, 0, 1))
            else:
                self.drop()
        except (OSError, EOFError):
            self.drop()
            self.rest = 0
            return self.say("426 Closed.")
        self.rest = 0
        return self.say("226 Done.")

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
        self.say("150 Begin.")
        self.connect()
        try:
            self.peer.files[path] = self.receive_blocks() if self.extended else self.receive()
        except (OSError, EOFError):
            self.drop()
            return self.say("426 Closed.")
        return self.say("226 Done.")

    def receive(self):
        content = b""
        while piece := self.data.recv(_BLOCK_BYTES):
            if self.peer.step("take") == "close data":
                raise EOFError
            content += piece
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
                raise EOFError  # what the other end of a third-party copy sends is no block
            else:
                content.extend(bytes(max(0, offset + count - len(content))))
                content[offset : offset + count] = self.exactly(count)
            ends += bool(descriptor & 0x08)
        return bytes(content)

    def exactly(self, count):
        content = b""
        while len(content) < count:
            piece = self.data.recv(count - len(content))
            if not piece:
                raise EOFError
            content += piece
        return content
