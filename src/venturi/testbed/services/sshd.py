"""sshd: logins, scp and sftp with its own keys. It neither reads nor changes the SSH configuration of the machine.

Clients have one configuration file for all servers, with its path in the environment variable ``VENTURI_SSH_CONFIG``:
``ssh -F "$VENTURI_SSH_CONFIG" a.lab.test``. ``rsync`` gets it from ``RSYNC_RSH``. All servers of a host accept each other's
keys, because a client offers the first key of the host to all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from venturi.cost import MeasuredService, ServiceCost
from venturi.mover.base import Option
from venturi.testbed.service_context import SESSION
from venturi.testbed.services.base import Package, Process, ServiceContext, ServiceSpec
from venturi.testbed.services.client_calls import run_checked
from venturi.testbed.services.exposure import listen_address, local_address
from venturi.testbed.services.line_protocol import expect_replies
from venturi.testbed.services.programs import account, require

__all__ = [
    "CLIENT_CONFIGURATION",
    "SSH_PORT",
    "Sshd",
    "client_names",
    "known_hosts_lines",
    "set_client_configuration",
]

CLIENT_CONFIGURATION = "VENTURI_SSH_CONFIG"
"""Environment variable of clients with the path of a configuration file for ``-F`` of ssh, scp and sftp."""

SSH_PORT = 22
"""Default port of SSH servers."""

_PROGRAM = "/usr/sbin/sshd"

# MaxStartups: with the default, more than ten simultaneous logins are rejected at random.
_SERVER = """\
{listen}
HostKey {directory}/host_key
AuthorizedKeysFile {authorized_keys}
PidFile {directory}/sshd.pid
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
Host {names}
  Port {port}
  User {user}
  IdentityFile {user_key}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  PasswordAuthentication no
  BatchMode yes
  LogLevel ERROR
{ciphers}
"""


class Sshd:
    """SSH server."""

    kind = "sshd"
    summary = "SSH server (OpenSSH) with its own keys, for scp, sftp and rsync."
    packages = (Package("sshd", "openssh-server"), Package("ssh-keygen", "openssh-client"))
    options = (Option("cipher", "text", None, "Its only cipher, such as aes128-gcm@openssh.com."),)
    # Not 22, because the lab of an ordinary user cannot open a port below 1024.
    default_ports = tuple(range(2222, 2238))
    costs = (
        MeasuredService(
            ServiceCost(byte_core_s=2.5e-9),
            "measured in the lab, November 2026: one file of 256 MB from or to the server by scp over 10 Gb/s at a round trip of 0.1 ms, CPU "
            "time of the server's host, minimum of 3 calls, minus that of a file of 1 kB; 2.6 ns sent, 2.4 ns received",
        ),
    )

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``ssh`` and ``sftp``. ``sftp`` needs a second slash: after one, its path is relative to the home directory."""
        return {"ssh": f"ssh://{host_name}:{{port}}{{path}}", "sftp": f"sftp://{host_name}:{{port}}/{{path}}"}

    def configure(self, context: ServiceContext) -> None:
        """Create the keys and the configurations of the server and of its clients.

        Raises
        ------
        BackendError
            If a program is missing or fails, for example because of an unknown cipher.
        """
        require(context, self.packages)
        directory = context.directory
        for name in ("host_key", "user_key"):
            self._make_key(context, directory / name)
        address = listen_address(context)
        listen = "\n".join(
            f"ListenAddress {f'[{address}]' if ':' in address else address}:{port}" for port in context.spec.ports
        )
        cipher = context.spec.options["cipher"]
        ciphers = f"Ciphers {cipher}" if cipher else ""
        server = _SERVER.format(
            listen=listen, directory=directory, authorized_keys=self._authorize(context), ciphers=ciphers
        )
        context.write(directory / "sshd_config", server)
        self._add_client_configuration(context)
        if not context.exposed or context.shell.privileged:
            # Directory of sshd's separated processes. Only root can write there.
            run_checked(
                context.shell,
                ["install", "-d", "-m", "755", "/run/sshd"],
                where=context.spec.name,
                package="coreutils",
            )
        check = [_program(context), "-t", "-f", str(directory / "sshd_config")]
        run_checked(context.shell, check, where=context.spec.name, package="openssh-server")

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server."""
        argv = [_program(context), "-D", "-e", "-f", str(context.directory / "sshd_config")]
        return [context.shell.start(argv, log=context.directory / "sshd.out")]

    def ready(self, context: ServiceContext) -> str | None:
        """Read the banner on each port."""
        lacks = (
            expect_replies(context.shell, local_address(context), port, [(None, "SSH-2.0-")])
            for port in context.spec.ports
        )
        return next((lack for lack in lacks if lack is not None), None)

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server and its sessions. The host shell kills the sessions, which have their own process groups."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output file."""
        return [context.directory / "sshd.out"]

    def _make_key(self, context: ServiceContext, path: PurePath) -> None:
        for old in (path, path.with_suffix(".pub")):
            context.remove(old)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", context.spec.name, "-f", str(path)]
        run_checked(context.shell, argv, where=context.spec.name, package="openssh-client")

    def _authorize(self, context: ServiceContext) -> str:
        """Authorize the key for all servers of the host, and return the path of the authorized keys."""
        public_key = context.read(context.directory / "user_key.pub")
        path = context.client_section(f"{context.spec.host}-authorized_keys", context.spec.name, public_key)
        return path.replace(SESSION, str(context.shell.session))

    def _add_client_configuration(self, context: ServiceContext) -> None:
        """Write the keys and the entry of this server for clients."""
        name, directory = context.spec.name, context.directory
        key = context.read(directory / "host_key.pub")
        names = client_names(context)
        cipher = context.spec.options["cipher"]
        known_hosts = known_hosts_lines(names, context.spec.ports, key)
        entry = _CLIENT.format(
            names=" ".join(names),
            port=context.spec.ports[0],
            user=account(context),
            user_key=context.client_file(f"{name}-user_key", context.read(directory / "user_key"), 0o600),
            known_hosts=context.client_section("known_hosts", name, known_hosts),
            # The server decides; the client also accepts a cipher outside of its defaults.
            ciphers=f"  Ciphers +{cipher}" if cipher else "",
        )
        set_client_configuration(context, entry)


def client_names(context: ServiceContext) -> tuple[str, ...]:
    """Return the names and addresses of the host for commands of clients."""
    return tuple(dict.fromkeys((context.host_name, context.address)))


def known_hosts_lines(names: Iterable[str], ports: Iterable[int], key: str) -> str:
    """Return the lines of a public host key in a file of known hosts (sshd(8)). The default port needs no brackets."""
    kind, encoded = key.split()[:2]
    return "".join(
        f"{name if port == SSH_PORT else f'[{name}]:{port}'} {kind} {encoded}\n" for name in names for port in ports
    )


def set_client_configuration(context: ServiceContext, entry: str) -> None:
    """Set the entry of a service in the configuration file of clients, which all services with ``ssh`` share."""
    shared = context.client_section("ssh_config", context.spec.name, entry)
    context.client_environment[CLIENT_CONFIGURATION] = shared
    context.client_environment["RSYNC_RSH"] = f"ssh -F {shared}"


def _program(context: ServiceContext) -> str:
    """Return the absolute path, because sshd starts itself again for each connection."""
    return context.shell.which("sshd") or _PROGRAM
