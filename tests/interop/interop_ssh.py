"""Servers that ssh starts: an sshd on loopback with its own keys, and the configuration of its clients."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from testkit import make_sshd_directory

_GLOBUS_SCRIPT = "/usr/share/globus/gridftp-ssh"
"""Path of the script in which globus-url-copy calls ssh, in Debian. The only other path is in the account's home directory."""


def build_sshd_argv(directory: Path, port: int) -> list[str]:
    """Create keys, the server script in the home of the login, and both configurations; return the command line of the sshd."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    server = ["globus-gridftp-server", "-ssh", "-c", "none", "-data-interface", "127.0.0.1", "-perms", "0666"]
    server += ["-l", str(directory / "control.log"), "-d", "ALL", "-log-module", "stdio:buffer=0"]
    if os.geteuid() == 0:
        # The server treats ssh clients as "anonymous"; root must give the account.
        server += ["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]
    make_sshd_directory()
    sshftp, user = directory / "home/.globus/sshftp", directory / "bin/ssh"
    _script(sshftp, shlex.join(server))
    _script(user, f'/usr/bin/ssh -F {directory}/ssh_config "$@"')
    _script(directory / "bin/gridftp-ssh", f'{user} -p "$3" "$2" {sshftp}')
    (directory / "ssh_config").write_text(
        f"IdentityFile {directory}/user\nIdentitiesOnly yes\nUserKnownHostsFile {directory}/known\nStrictHostKeyChecking yes\n"
    )
    (directory / "known").write_text(f"[127.0.0.1]:{port} {(directory / 'host.pub').read_text()}")
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": directory / "host", "AuthorizedKeysFile": directory / "user.pub",
        "StrictModes": "no", "PidFile": "none", "UsePAM": "no", "PasswordAuthentication": "no", "SetEnv": f"HOME={directory}/home",
        "MaxStartups": 100,
    }  # fmt: skip
    (directory / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return ["/usr/sbin/sshd", "-D", "-e", "-f", str(directory / "sshd_config")]


def environment(directory: Path, path: str) -> dict[str, str]:
    """Return variables with which a client uses this sshd: `ssh` finds its keys."""
    return {"PATH": f"{directory}/bin:{path}", "GRIDFTP_SSH": f"{directory}/bin/gridftp-ssh"}


def with_script(argv: list[str]) -> list[str]:
    """Return the command line of globus-url-copy with a replaced script, in a private mount namespace."""
    return ["unshare", "-m", "sh", "-c", f'mount --bind "$GRIDFTP_SSH" {_GLOBUS_SCRIPT} && exec "$@"', "sh", *argv]


def lacks(client: str) -> str:
    """Return the reason why a client cannot run, or an empty string."""
    if not Path("/usr/sbin/sshd").exists():
        return "not installed: sshd"
    return "not root, who can give globus-url-copy a script" if client != "venturi" and os.geteuid() != 0 else ""


def _script(path: Path, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexec {command}\n")
    path.chmod(0o755)
