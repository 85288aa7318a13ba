"""An HTTP and WebDAV server with one fault at one step, counted over all its connections; later steps are correct."""

import base64
import contextlib
import re
import zlib

from fakepeer import Left, Misdoer

_TIMEOUT_S = 5
_BLOCK_BYTES = 1 << 20
_LARGEST_HEAD = 1 << 16


class FakeWeb(Misdoer):
    """HTTP server with one fault.

    Every directory of a file is a collection. If `has_body`, the server reports the Adler-32 of all files, so that a
    client detects changes in transit. It pulls files from the peer `beyond`.
    """

    scheme = "dav"

    def __init__(self, files, step=None, misdeed="", *, has_body=True, beyond=None):
        self.directories = {path[: cut + 1] for path in files for cut, letter in enumerate(path) if letter == "/"} | {
            "/"
        }
        self.has_body, self.beyond = has_body, beyond
        super().__init__(files, step, misdeed)

    def _serve(self, connection):
        connection.settimeout(_TIMEOUT_S)
        with connection, contextlib.suppress(Left, OSError, ValueError):
            stream = connection.makefile("rb")
            while _Request(self, connection, stream).respond():
                pass


def adler(content):
    """Return a checksum in the format of `Digest`."""
    return f"adler32={zlib.adler32(content):08x}"


class _Request:
    def __init__(self, peer, connection, stream):
        self.peer = peer
        self._connection = connection
        self._stream = stream
        first = stream.readline(_LARGEST_HEAD)
        if not first:
            raise Left
        self.method, self.path, _ = first.decode().split(" ")
        self.fields = {}
        while line := stream.readline(_LARGEST_HEAD).strip():
            name, _, value = line.decode().partition(":")
            self.fields[name.lower()] = value.strip()

    def respond(self):
        """Send the response. Return whether the connection stays open."""
        match self.peer.step(f"do {self.method}"):
            case "hang up":
                raise Left
            case "refuse":
                return self.reply(403, b"No.")
            case "busy":
                return self.reply(503, b"Later.", Retry_After="0")
            case "redirect":
                return self.reply(307, Location=self.path)
        return getattr(self, f"do_{self.method.lower()}")()

    def reply(self, status, body=b"", **fields):
        """Send a response, correct or with a fault. A response to HEAD has no body."""
        fields = {"Content-Length": len(body), **{name.replace("_", "-"): value for name, value in fields.items()}}
        again = 1
        match self.peer.step(f"say {self.method} {status}"):
            case "hang up":
                raise Left
            case "garbage":
                self._connection.sendall(bytes(range(256)) * 4)
                raise Left
            case "endless":
                with contextlib.suppress(OSError):
                    for _ in range(300):
                        self._connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000)
                raise Left
            case "interim":
                self._connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 50)
            case "twice":
                again = 2
            case "longer":
                fields["Content-Length"] += 1
            case "shorter":
                fields["Content-Length"] = max(fields["Content-Length"] - 1, 0)
            case "shifted":
                fields |= {name: _shifted(value) for name, value in fields.items() if name == "Content-Range"}
            case "another":
                fields["ETag"] = '"another"'
            case "status":
                status = 200 if status != 200 else 206
            case "lie":
                fields["Digest"] = "adler32=00000001"
            case "cut":
                head = _head(status, fields)
                self._connection.sendall(head[: len(head) // 2])
                raise Left
        for _ in range(again):
            self._connection.sendall(_head(status, fields))
            if self.method != "HEAD":
                self._send(body)
        # If the length was wrong, the client would read the next response as the rest of this one.
        return fields["Content-Length"] == len(body) and again == 1

    def _send(self, body):
        for start in range(0, len(body), _BLOCK_BYTES):
            block = body[start : start + _BLOCK_BYTES]
            match self.peer.step(f"send {start}"):
                case "close":
                    raise Left
                case "skip":
                    continue
                case "noise":
                    self._connection.sendall(b"\xff" * 40)
                case "change":
                    block = bytes([block[0] ^ 1]) + block[1:]
                case "cut":
                    self._connection.sendall(block[: len(block) // 2])
                    raise Left
            self._connection.sendall(block)

    def _body(self):
        """Return the body of the request."""
        remaining, content = int(self.fields.get("content-length", 0)), bytearray()
        if self.fields.get("expect"):
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while remaining > 0:
            chunk = self._stream.read(min(remaining, _BLOCK_BYTES))
            if not chunk or self.peer.step("take") == "close":
                raise Left
            content += chunk
            remaining -= len(chunk)
        return bytes(content)

    def _found(self):
        return self.peer.files.get(self.path)

    def _output(self, content):
        """Return the response fields of a file."""
        output = {"ETag": f'"{zlib.crc32(content)}"', "Accept-Ranges": "bytes"}
        return output | ({"Digest": adler(content)} if self.peer.has_body else {})

    def do_head(self):
        content = self._found()
        if content is None:
            return self.reply(404 if self.path not in self.peer.directories else 200)
        return self.reply(200, content, **self._output(content))

    def do_get(self):
        content = self._found()
        if content is None:
            return self.reply(404, b"None.")
        requests = re.fullmatch(r"bytes=(\d+)-(\d*)", self.fields.get("range", ""))
        output = self._output(content)
        if requests is None or self.fields.get("if-range", output["ETag"]) != output["ETag"]:
            return self.reply(200, content, **output)
        first, last = int(requests[1]), min(int(requests[2] or len(content)), len(content) - 1)
        if first > last:
            return self.reply(416, Content_Range=f"bytes */{len(content)}")
        location = f"bytes {first}-{last}/{len(content)}"
        return self.reply(206, content[first : last + 1], **output, Content_Range=location)

    def do_put(self):
        content = self._body()
        self.peer.files[self.path] = content
        return self.reply(201, **self._output(content))

    def do_mkcol(self):
        path = self.path.rstrip("/") + "/"
        known = path in self.peer.directories
        self.peer.directories.add(path)
        return self.reply(405 if known else 201)

    def do_delete(self):
        return self.reply(204 if self.peer.files.pop(self.path, None) is not None else 404)

    def do_copy(self):
        """Pull a file from another fake server; the last line of the response is the result."""
        source = self.fields.get("source")
        if source is None:
            return self.reply(501, b"It pushes to nobody.")
        content = self.peer.beyond.files.get("/" + source.partition("://")[2].partition("/")[2])
        text = f"Perf Marker\nStripe Index: 0\nStripe Bytes Transferred: {len(content or b'')}\nEnd\n"
        lines = {"lines": f"{text}success: Created\n"}
        match self.peer.step("tell"):
            case "nothing":
                lines["lines"] = text
            case "failure":
                lines["lines"] = text + "failure: disk is full\n"
            case "silence":
                raise Left
        if content is not None and "success" in lines["lines"]:
            self.peer.files[self.path] = content
        return self.reply(202, lines["lines"].encode())

    def do_propfind(self):
        self._body()
        own = self.path.rstrip("/") + "/"
        if self._found() is not None:
            return self.reply(207, _listing([(self.path, self._found())]))
        if own not in self.peer.directories:
            return self.reply(404, b"None.")
        inside = [
            (name, content) for name, content in self.peer.files.items() if name.rpartition("/")[0] + "/" == own
        ]
        deeper = [(name, None) for name in self.peer.directories if name.rstrip("/").rpartition("/")[0] + "/" == own]
        entries = [(own, None), *inside, *(entry for entry in deeper if entry[0] != own)]
        if self.fields.get("depth") == "0":
            entries = entries[:1]
        text = _listing(entries)
        match self.peer.step("list"):
            case "half":
                text = text[: len(text) // 2]
            case "elsewhere":
                text = _listing([*entries, (own + "%2e%2e%2fevil", b"")])
            case "sizes":
                text = re.sub(rb"length>\d", b"length>7", text)
            case "loop":
                text = _listing([*entries, (own + "./", None)])
            case "page":
                text = base64.b64encode(text)
        return self.reply(207, text)


def _head(status, fields):
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _shifted(value):
    return re.sub(r"(\d+)-", lambda first: f"{max(int(first[1]) - 1, 0)}-", value)


def _listing(entries):
    text = '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">'
    for path, content in entries:
        metadata = "<D:resourcetype><D:collection/></D:resourcetype>"
        if content is not None:
            metadata = f"<D:resourcetype/><D:getcontentlength>{len(content)}</D:getcontentlength>"
        text += f"<D:response><D:href>{path}</D:href><D:propstat><D:prop>{metadata}</D:prop>"
        text += "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    return f"{text}</D:multistatus>".encode()
