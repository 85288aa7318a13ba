"""sshd: logins, scp and sftp, with keys of its own; nothing of the machine's SSH is read or changed.

Clients find all that they need in one configuration file, whose path is in the environment variable
``VENTURI_SSH_CONFIG``: ``ssh -F "$VENTURI_SSH_CONFIG" a.lab.test``. ``rsync`` finds it by itself, by ``RSYNC_RSH``.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from venturi.mover.base import Option
from venturi.testbed.services.base import Package, Process, Room, ServiceSpec
from venturi.testbed.services.calls import must
from venturi.testbed.services.conversation import hear
from venturi.testbed.services.programs import account, require

__all__ = ["CLIENT_CONFIGURATION", "Sshd"]

CLIENT_CONFIGURATION = "VENTURI_SSH_CONFIG"
"""Variable of the clients' environment with the path of a file for ``-F`` of ssh, scp and sftp."""

_SHARED_LOCK = threading.Lock()
"""Servers of a lab are configured side by side, and all write to the one file of the clients."""

_PROGRAM = "/usr/sbin/sshd"  # it starts itself again for each connection and insists on an absolute path

# MaxStartups: by default logins beyond ten at the same time are refused at random.
_SERVER = """\
{listen}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
X11Forwarding no
MaxStartups 1000
MaxSessions 100
LogLevel VERBOSE
Subsystem sftp internal-sftp
{ciphers}
"""

_CLIENT = """\
Host {host_name}
  HostName {host_name}
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  PasswordAuthentication no
  BatchMode yes
  LogLevel ERROR
{ciphers}
"""


class Sshd:
    """An SSH server."""

    kind = "sshd"
    summary = "SSH server (OpenSSH) with keys of its own, for scp, sftp and rsync."
    packages = (Package("sshd", "openssh-server"), Package("ssh-keygen", "openssh-client"))
    options = (Option("cipher", "text", None, "The one cipher that it offers, such as aes128-gcm@openssh.com."),)
    # Not 22: an ordinary user's lab cannot open a port below 1024.
    default_ports = tuple(range(2222, 2238))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``ssh``, and ``sftp`` as its client writes it: a path below the home folder unless it has a slash more."""
        return {"ssh": f"ssh://{host_name}:{{port}}{{path}}", "sftp": f"sftp://{host_name}:{{port}}/{{path}}"}

    def configure(self, room: Room) -> None:
        """Make keys, the server's configuration, and the clients' entry for this host.

        Raises
        ------
        BackendError
            If a program is missing or refuses, a cipher that it does not know, say.
        """
        require(room, self.packages)
        folder = room.folder
        for name in ("host_key", "user_key"):
            self._make_key(room, folder / name)
        listen = "\n".join(f"ListenAddress {room.address}:{port}" for port in room.spec.ports)
        cipher = room.spec.options["cipher"]
        ciphers = f"Ciphers {cipher}" if cipher else ""
        server = _SERVER.format(listen=listen, folder=folder, ciphers=ciphers)
        (folder / "sshd_config").write_text(server, encoding="utf-8")
        public = (folder / "user_key.pub").read_text(encoding="utf-8")
        (folder / "authorized_keys").write_text(public, encoding="utf-8")
        self._introduce(room, ciphers)
        # Its separated processes live here; it must belong to who starts it and nobody else may write there.
        must(room.machine, ["install", "-d", "-m", "755", "/run/sshd"], where=room.spec.name, package="coreutils")
        check = [_PROGRAM, "-t", "-f", str(folder / "sshd_config")]
        must(room.machine, check, where=room.spec.name, package="openssh-server")

    def start(self, room: Room) -> Sequence[Process]:
        """Start the server."""
        argv = [_PROGRAM, "-D", "-e", "-f", str(room.folder / "sshd_config")]
        return [room.machine.start(argv, log=room.folder / "sshd.out")]

    def ready(self, room: Room) -> str | None:
        """Hear its banner on each port."""
        lacks = (hear(room.machine, room.address, port, [(None, "SSH-2.0-")]) for port in room.spec.ports)
        return next((lack for lack in lacks if lack is not None), None)

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server and its sessions, which have process groups of their own and would go on."""
        for process in reversed(processes):
            with ExitStack() as opened:
                sessions = _hold_descendants(process.pid, opened)
                process.stop()
                for session in sessions:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(session, signal.SIGKILL)

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what it printed."""
        return [room.folder / "sshd.out"]

    def _make_key(self, room: Room, path: Path) -> None:
        for old in (path, path.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", room.spec.name, "-f", str(path)]
        must(room.machine, argv, where=room.spec.name, package="openssh-client")

    def _introduce(self, room: Room, ciphers: str) -> None:
        """Tell clients of this host: one file for all services of this kind, which each adds its hosts to."""
        key = (room.folder / "host_key.pub").read_text(encoding="utf-8")
        known = "".join(f"[{room.host_name}]:{port} {key}" for port in room.spec.ports)
        (room.folder / "known_hosts").write_text(known, encoding="utf-8")
        entry = _CLIENT.format(
            host_name=room.host_name,
            port=room.spec.ports[0],
            user=account(room),
            folder=room.folder,
            ciphers=f"  {ciphers}" if ciphers else "",
        )
        with _SHARED_LOCK:
            shared = Path(room.client_environment.setdefault(CLIENT_CONFIGURATION, str(room.folder / "ssh_config")))
            room.client_environment["RSYNC_RSH"] = f"ssh -F {shared}"
            # Of several entries for a host the first counts: one that was configured before must go.
            written = shared.read_text(encoding="utf-8") if shared.exists() else ""
            kept = [
                text for text in written.split("\n\n") if text and not text.startswith(f"Host {room.host_name}\n")
            ]
            shared.write_text("\n\n".join([*kept, entry.strip(), ""]), encoding="utf-8")
            shared.chmod(0o644)


def _hold_descendants(pid: int, opened: ExitStack) -> list[int]:
    """Return file descriptors of all processes below one: unlike PIDs, they cannot come to mean another process."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text(encoding="ascii").split()):
                held = os.pidfd_open(child)
                opened.callback(os.close, held)
                found += [held, *_hold_descendants(child, opened)]
    return found
