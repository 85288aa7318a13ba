"""Servers that ssh starts: an sshd with keys of its own on loopback, and what clients need to reach it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from testkit import make_room_for_sshd

_GLOBUS_SCRIPT = "/usr/share/globus/gridftp-ssh"
"""Where globus-url-copy has the script that calls ssh, in Debian; besides it looks only in the home that the system knows."""


def argv_of_sshd(folder: Path, port: int) -> list[str]:
    """Make keys, a server script in the home of whoever logs in, and configurations of both ends; return the command of the sshd."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    server = ["globus-gridftp-server", "-ssh", "-c", "none", "-data-interface", "127.0.0.1", "-perms", "0666"]
    server += ["-l", str(folder / "control.log"), "-d", "ALL", "-log-module", "stdio:buffer=0"]
    if os.geteuid() == 0:
        # Whom ssh has let in is "anonymous" to the server, which root must name.
        server += ["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]
    make_room_for_sshd()
    sshftp, caller = folder / "home/.globus/sshftp", folder / "bin/ssh"
    _script(sshftp, shlex.join(server))
    _script(caller, f'/usr/bin/ssh -F {folder}/ssh_config "$@"')
    _script(folder / "bin/gridftp-ssh", f'{caller} -p "$3" "$2" {sshftp}')
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder}/user\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\nStrictHostKeyChecking yes\n"
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "AuthorizedKeysFile": folder / "user.pub",
        "StrictModes": "no", "PidFile": "none", "UsePAM": "no", "PasswordAuthentication": "no", "SetEnv": f"HOME={folder}/home",
        "MaxStartups": 100,
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")]


def environment(folder: Path, path: str) -> dict[str, str]:
    """Return what has a client call this sshd: `ssh` is found with its keys."""
    return {"PATH": f"{folder}/bin:{path}", "GRIDFTP_SSH": f"{folder}/bin/gridftp-ssh"}


def with_script(argv: list[str]) -> list[str]:
    """Return how globus-url-copy is called with a script of its own, in a mount namespace that nobody else sees."""
    return ["unshare", "-m", "sh", "-c", f'mount --bind "$GRIDFTP_SSH" {_GLOBUS_SCRIPT} && exec "$@"', "sh", *argv]


def lacks(client: str) -> str:
    """Return what keeps a client from being called, if something does."""
    if not Path("/usr/sbin/sshd").exists():
        return "not installed: sshd"
    return "not root, who can give globus-url-copy a script" if client != "venturi" and os.geteuid() != 0 else ""


def _script(path: Path, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexec {command}\n")
    path.chmod(0o755)
