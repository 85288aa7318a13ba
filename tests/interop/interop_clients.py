"""How each client is called for a cell, as its users call it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

from interop_cells import GET, PUT, THIRD, Cell
from interop_ssh import with_script

USER, PASSWORD = "ann", "pass word?"
TOKEN = "open-sesame"

_FTPLIB = """
import ftplib, os, sys
host, port, user, password, channel, way, local, remote, resume = sys.argv[1:]
local, remote = os.fsencode(local), os.fsencode(remote).decode("latin-1")
ftp = ftplib.FTP(encoding="latin-1", timeout=30)
ftp.connect(host, int(port))
ftp.login(user, password)
ftp.set_pasv(channel != "S active")
if channel == "S extended":
    ftp.makepasv = lambda: (ftp.host, ftplib.parse229(ftp.sendcmd("EPSV"), ftp.sock.getpeername())[1])
ftp.voidcmd("TYPE I")
if way == "get":
    start = os.path.getsize(local) if resume and os.path.exists(local) else 0
    with open(local, "ab" if start else "wb") as file:
        ftp.retrbinary(f"RETR {remote}", file.write, 1 << 20, start or None)
else:
    start = 0
    if resume:
        try:
            start = ftp.size(remote)
        except ftplib.error_perm:
            pass  # nothing of it was kept
    with open(local, "rb") as file:
        file.seek(start)
        ftp.storbinary(f"STOR {remote}", file, 1 << 20, rest=start or None)
ftp.quit()
"""
"""Names are bytes for us, and Latin-1 is bytes for it."""


@dataclass(frozen=True)
class Ends:
    """Where a cell's file is and where it goes.

    Attributes
    ----------
    remote
        URL of the file on the server.
    local
        Path of the file here; none of a third-party transfer.
    target
        URL at the second server of a third-party transfer.
    host, port, path
        Of `remote`, where a client wants them apart.
    trust
        The certificate of the authority, and the directory with it.
    """

    remote: str
    local: Path | None
    target: str
    host: str
    port: int
    path: str
    trust: tuple[Path, Path]

    def order(self, cell: Cell, local: str) -> list[str]:
        """Return source and destination."""
        if self.target:
            return [self.remote, self.target]
        return [self.remote, local] if cell.way == GET else [local, self.remote]


def argv_of(cell: Cell, ends: Ends, engine: Path, *, again: bool = False) -> list[str]:
    """Return the command line; ``again`` after it was killed."""
    return _CLIENTS[cell.client](cell, ends, engine, again)


def program_of(client: str) -> str:
    """Return the program that must be there."""
    return {"ftplib": sys.executable, "venturi": sys.executable}.get(client, client)


def _venturi(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    words = [] if cell.channel == "auto" or cell.is_web else ["--fixed", "--streams", cell.channel.split()[1]]
    data_channel = {"gsi nodcau": "open", "gsi safe": "safe", "gsi private": "private"}
    words += ["--data-channel", data_channel[cell.security]] if cell.security in data_channel else []
    return [str(engine), "copy", "-q", *words, *ends.order(cell, str(ends.local))]


def _globus(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    mode, _, streams = cell.channel.partition(" ")
    words = ["-fast", "-p", streams] if mode == "E" else []
    protection = {"nodcau": ["-nodcau"], "safe": ["-dcsafe"], "private": ["-dcpriv"]}
    words += protection.get(cell.security.rpartition(" ")[2], [])
    local = f"file://{_quoted(ends.local)}" if ends.local else ""
    argv = ["globus-url-copy", *words, *ends.order(cell, local)]
    return with_script(argv) if cell.security == "ssh" else argv


def _gfal(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    words = ["-n", cell.channel.split()[1]] if cell.channel.startswith("E") else []
    words += ["-D", "GRIDFTP PLUGIN:DCAU=true"] if cell.security == "gsi dcau" else []
    words += ["--copy-mode", cell.channel.split()[1]] if cell.is_web and cell.way == THIRD else []
    local = f"file://{_quoted(ends.local)}" if ends.local else ""
    return ["gfal-copy", "-f", "-t", "60", *words, *ends.order(cell, local)]


def _curl(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    if cell.is_web and cell.way == THIRD:
        return _curl_copy(cell, ends)
    words = {"S passive": ["--disable-epsv"], "S active": ["--ftp-port", "-", "--disable-eprt"]}.get(cell.channel, [])
    # The server may have the file of the killed one open for a moment: 450, which means: again, later.
    words += ["-C", "-", "--retry", "3"] if again else []
    moved = ["-o", str(ends.local)] if cell.way == GET else ["-T", str(ends.local)]
    words += ["--fail", "--cacert", str(ends.trust[0]), *_field(cell)] if cell.is_web else []
    return ["curl", "-sS", "--globoff", "--path-as-is", *words, *moved, ends.remote]


def _curl_copy(cell: Cell, ends: Ends) -> list[str]:
    """HTTP-TPC by hand: what counts is the last line of the answer."""
    pull = cell.channel.endswith("pull")
    asked, field, other = (ends.target, "Source", ends.remote) if pull else (ends.remote, "Destination", ends.target)
    fields = [f"{field}: {other}", "Credential: none", f"TransferHeaderAuthorization: Bearer {TOKEN}"]
    call = ["curl", "-sS", "--fail", "--cacert", str(ends.trust[0]), *_field(cell), "-X", "COPY"]
    call += [word for one in fields for word in ("-H", one)]
    return ["sh", "-c", '"$@" | tee /dev/stderr | tail -n 1 | grep -q "^success"', "sh", *call, asked]


def _field(cell: Cell) -> list[str]:
    return ["-H", f"Authorization: Bearer {TOKEN}"] if cell.security == "token" else []


def _davix(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    program = "davix-put" if cell.way == PUT else "davix-get"
    return [program, "--capath", str(ends.trust[1]), *_field(cell), *ends.order(cell, str(ends.local))]


def _rclone(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    base = f"{cell.channel}://{ends.host}:{ends.port}"
    words = ["--webdav-bearer-token", TOKEN] if cell.security == "token" else []
    far = f":webdav:{ends.path}"
    order = [far, str(ends.local)] if cell.way == GET else [str(ends.local), far]
    return [
        "rclone",
        "copyto",
        "--config=",
        "--retries=1",
        "--ca-cert",
        str(ends.trust[0]),
        "--webdav-url",
        base,
        *words,
        *order,
    ]


def _xrdcp(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    return ["xrdcp", "-A", "-s", "-f", "-N", *ends.order(cell, str(ends.local))]


def _ftplib(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    login = [USER, PASSWORD] if cell.security == "password" else ["anonymous", "interop@test"]
    words = [ends.host, str(ends.port), *login, cell.channel, cell.way, str(ends.local), ends.path]
    return [sys.executable, "-c", _FTPLIB, *words, "again" if again else ""]


def _lftp(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    login = f"-u {shlex.quote(f'{USER},{PASSWORD}')} " if cell.security == "password" else ""
    passive = "no" if cell.channel == "S active" else "yes"
    settings = f"set ftp:passive-mode {passive}; set net:timeout 20; set net:max-retries 1"
    words = ["-c"] if again else []
    moved = (["get", *words, ends.path, "-o", str(ends.local)] if cell.way == GET
             else ["put", *words, str(ends.local), "-o", ends.path])  # fmt: skip
    script = f"{settings}; open {login}ftp://{ends.host}:{ends.port}; {' '.join(map(_lftp_word, moved))}"
    return ["lftp", "--norc", "-c", script]


def _wget(cell: Cell, ends: Ends, engine: Path, again: bool) -> list[str]:
    words = ["--no-passive-ftp"] if cell.channel == "S active" else []
    words += ["-c"] if again else []
    if cell.is_web:
        words += ["--ca-certificate", str(ends.trust[0]), *(f"--header={field}" for field in _field(cell)[1:])]
    return ["wget", "-q", "--no-glob", "--tries=1", "--timeout=20", *words, "-O", str(ends.local), ends.remote]


def _lftp_word(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quoted(path: Path) -> str:
    return quote_from_bytes(bytes(path))


_CLIENTS = {
    "venturi": _venturi,
    "globus-url-copy": _globus,
    "gfal-copy": _gfal,
    "curl": _curl,
    "ftplib": _ftplib,
    "lftp": _lftp,
    "wget": _wget,
    "davix-get": _davix,
    "davix-put": _davix,
    "rclone": _rclone,
    "xrdcp": _xrdcp,
}
