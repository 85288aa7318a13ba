"""SSH server of a host. A real host has it already; in a lab it is an :class:`~venturi.testbed.services.sshd.Sshd`.

Clients use the user's own keys. Their configuration file includes the user's configuration. It adds the account, the port and
the host key, which the controller reads over its own connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from venturi.errors import BackendError
from venturi.testbed.services.base import Process, ServiceContext, ServiceSpec, SshTarget
from venturi.testbed.services.client_calls import run_error
from venturi.testbed.services.programs import account
from venturi.testbed.services.sshd import (
    CLIENT_CONFIGURATION,
    Sshd,
    client_names,
    known_hosts_lines,
    set_client_configuration,
)

__all__ = ["HostSsh"]

_TIMEOUT_S = 10.0
_READ_KEYS = "cat /etc/ssh/ssh_host_*_key.pub 2>/dev/null || true"

# The known hosts of the user have priority.
_CLIENT = """\
Host {names}
  Port {port}
  User {user}
  UserKnownHostsFile ~/.ssh/known_hosts {known_hosts}
  BatchMode yes
  ConnectTimeout 10
"""
_INCLUDE = """\
Match all
  Include ~/.ssh/config
  Include /etc/ssh/ssh_config
"""
_LAST = "~"
"""Section name that sorts after all names of services."""


class HostSsh(Sshd):
    """SSH server of a host."""

    kind = "ssh"
    summary = "The host's own SSH server, with the keys of its users, for scp, sftp and rsync. In a lab, the same as `sshd`."

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return why it runs only in a lab: options have no effect on an existing server."""
        if spec.options.get("cipher"):
            return '`cipher` works only in a lab, because ssh uses the existing server of the host; use kind = "sshd"'
        return None

    def configure(self, context: ServiceContext) -> None:
        """Write the entry of this server for clients; in a lab also the configuration of the server.

        Raises
        ------
        BackendError
            If a client host has no ``ssh``, or for the reasons of ``sshd``.
        """
        if context.access is None:
            super().configure(context)
            return
        for shell in context.clients():
            if shell.which("ssh") is None:
                raise BackendError(
                    f"{context.spec.name}: expected the program ssh on {shell.name}, found none; install openssh-client"
                )
        target = _target(context)
        keys = context.shell.run(["sh", "-c", _READ_KEYS], timeout_s=_TIMEOUT_S).stdout
        names = client_names(context)
        known_hosts = "".join(
            known_hosts_lines(names, [target.port], line) for line in keys.splitlines() if line.strip()
        )
        entry = _CLIENT.format(
            names=" ".join(names),
            port=target.port,
            user=target.user,
            known_hosts=context.client_file(f"{context.spec.name}-known_hosts", known_hosts),
        )
        context.client_section("ssh_config", _LAST, _INCLUDE)
        set_client_configuration(context, entry)

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server in a lab; a real host has it already."""
        return super().start(context) if context.access is None else ()

    def ready(self, context: ServiceContext) -> str | None:
        """Log in from each client host, without a prompt."""
        if context.access is None:
            return super().ready(context)
        for shell in context.clients():
            configuration = context.client_variables(shell)[CLIENT_CONFIGURATION]
            argv = ["ssh", "-F", configuration, "-o", "BatchMode=yes", "--", context.address, "true"]
            lack = run_error(shell, argv)
            if lack is not None:
                advice = (
                    f'let {shell.name} log in to {context.address} without a password, or add a service of kind "sshd", which has keys'
                    " of its own"
                )
                return f"from {shell.name}: {lack}; {advice}"
        return None

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return its output file in a lab; a real host has no log of the run."""
        return super().logs(context) if context.access is None else ()


def _target(context: ServiceContext) -> SshTarget:
    if context.access is not None and context.access.ssh is not None:
        return context.access.ssh
    return SshTarget(account(context), context.host_name, context.spec.ports[0])
