"""Command lines of each client for a case, as its users write them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_from_bytes

from interop_cases import GET, PUT, THIRD, InteropCase
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
"""Client that uses ftplib. Names are bytes in the tests, and ftplib decodes them as Latin-1."""


@dataclass(frozen=True)
class Endpoints:
    """Source and destination of a case.

    Attributes
    ----------
    remote
        URL of the file on the server.
    local
        Path of the local file; None for a third-party transfer.
    target
        URL on the second server of a third-party transfer.
    host, port, path
        Parts of `remote`, for clients that take them separately.
    trust
        The certificate of the CA, and the directory with it.
    """

    remote: str
    local: Path | None
    target: str
    host: str
    port: int
    path: str
    trust: tuple[Path, Path]

    def order(self, case: InteropCase, local: str) -> list[str]:
        """Return source and destination."""
        if self.target:
            return [self.remote, self.target]
        return [self.remote, local] if case.direction == GET else [local, self.remote]


def build_argv(case: InteropCase, endpoints: Endpoints, engine: Path, *, again: bool = False) -> list[str]:
    """Return the command line; ``again`` is for the call after a kill."""
    return _CLIENTS[case.client](case, endpoints, engine, again)


def find_program(client: str) -> str:
    """Return the program that must be installed."""
    return {"ftplib": sys.executable, "venturi": sys.executable}.get(client, client)


def _venturi(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    arguments = [] if case.channel == "auto" or case.is_web else ["--fixed", "--streams", case.channel.split()[1]]
    data_channel = {"gsi nodcau": "open", "gsi safe": "safe", "gsi private": "private"}
    arguments += ["--data-channel", data_channel[case.security]] if case.security in data_channel else []
    return [str(engine), "copy", "-q", *arguments, *endpoints.order(case, str(endpoints.local))]


def _globus(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    mode, _, streams = case.channel.partition(" ")
    arguments = ["-fast", "-p", streams] if mode == "E" else []
    protection = {"nodcau": ["-nodcau"], "safe": ["-dcsafe"], "private": ["-dcpriv"]}
    arguments += protection.get(case.security.rpartition(" ")[2], [])
    local = f"file://{_quoted(endpoints.local)}" if endpoints.local else ""
    argv = ["globus-url-copy", *arguments, *endpoints.order(case, local)]
    return with_script(argv) if case.security == "ssh" else argv


def _gfal(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    arguments = ["-n", case.channel.split()[1]] if case.channel.startswith("E") else []
    arguments += ["-D", "GRIDFTP PLUGIN:DCAU=true"] if case.security == "gsi dcau" else []
    arguments += ["--copy-mode", case.channel.split()[1]] if case.is_web and case.direction == THIRD else []
    local = f"file://{_quoted(endpoints.local)}" if endpoints.local else ""
    return ["gfal-copy", "-f", "-t", "60", *arguments, *endpoints.order(case, local)]


def _curl(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    if case.is_web and case.direction == THIRD:
        return _curl_copy(case, endpoints)
    arguments = {"S passive": ["--disable-epsv"], "S active": ["--ftp-port", "-", "--disable-eprt"]}.get(
        case.channel, []
    )
    # The server can still have the file of the killed client open for a moment: 450, a transient error.
    arguments += ["-C", "-", "--retry", "3"] if again else []
    moved = ["-o", str(endpoints.local)] if case.direction == GET else ["-T", str(endpoints.local)]
    arguments += ["--fail", "--cacert", str(endpoints.trust[0]), *_field(case)] if case.is_web else []
    return ["curl", "-sS", "--globoff", "--path-as-is", *arguments, *moved, endpoints.remote]


def _curl_copy(case: InteropCase, endpoints: Endpoints) -> list[str]:
    """Return the command line of a manual HTTP-TPC request; the last line of the response has the result."""
    pull = case.channel.endswith("pull")
    target, field, other = (
        (endpoints.target, "Source", endpoints.remote)
        if pull
        else (endpoints.remote, "Destination", endpoints.target)
    )
    fields = [f"{field}: {other}", "Credential: none", f"TransferHeaderAuthorization: Bearer {TOKEN}"]
    call = ["curl", "-sS", "--fail", "--cacert", str(endpoints.trust[0]), *_field(case), "-X", "COPY"]
    call += [word for one in fields for word in ("-H", one)]
    return ["sh", "-c", '"$@" | tee /dev/stderr | tail -n 1 | grep -q "^success"', "sh", *call, target]


def _field(case: InteropCase) -> list[str]:
    return ["-H", f"Authorization: Bearer {TOKEN}"] if case.security == "token" else []


def _davix(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    program = "davix-put" if case.direction == PUT else "davix-get"
    return [program, "--capath", str(endpoints.trust[1]), *_field(case), *endpoints.order(case, str(endpoints.local))]


def _rclone(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    base = f"{case.channel}://{endpoints.host}:{endpoints.port}"
    arguments = ["--webdav-bearer-token", TOKEN] if case.security == "token" else []
    far = f":webdav:{endpoints.path}"
    order = [far, str(endpoints.local)] if case.direction == GET else [str(endpoints.local), far]
    return [
        "rclone",
        "copyto",
        "--config=",
        "--retries=1",
        "--ca-cert",
        str(endpoints.trust[0]),
        "--webdav-url",
        base,
        *arguments,
        *order,
    ]


def _xrdcp(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    return ["xrdcp", "-A", "-s", "-f", "-N", *endpoints.order(case, str(endpoints.local))]


def _ftplib(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    login = [USER, PASSWORD] if case.security == "password" else ["anonymous", "interop@test"]
    arguments = [
        endpoints.host,
        str(endpoints.port),
        *login,
        case.channel,
        case.direction,
        str(endpoints.local),
        endpoints.path,
    ]
    return [sys.executable, "-c", _FTPLIB, *arguments, "again" if again else ""]


def _lftp(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    login = f"-u {shlex.quote(f'{USER},{PASSWORD}')} " if case.security == "password" else ""
    passive = "no" if case.channel == "S active" else "yes"
    settings = f"set ftp:passive-mode {passive}; set net:timeout 20; set net:max-retries 1"
    arguments = ["-c"] if again else []
    moved = (["get", *arguments, endpoints.path, "-o", str(endpoints.local)] if case.direction == GET
             else ["put", *arguments, str(endpoints.local), "-o", endpoints.path])  # fmt: skip
    script = f"{settings}; open {login}ftp://{endpoints.host}:{endpoints.port}; {' '.join(map(_lftp_word, moved))}"
    return ["lftp", "--norc", "-c", script]


def _wget(case: InteropCase, endpoints: Endpoints, engine: Path, again: bool) -> list[str]:
    arguments = ["--no-passive-ftp"] if case.channel == "S active" else []
    arguments += ["-c"] if again else []
    if case.is_web:
        arguments += [
            "--ca-certificate",
            str(endpoints.trust[0]),
            *(f"--header={field}" for field in _field(case)[1:]),
        ]
    return [
        "wget",
        "-q",
        "--no-glob",
        "--tries=1",
        "--timeout=20",
        *arguments,
        "-O",
        str(endpoints.local),
        endpoints.remote,
    ]


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
