"""Kerberos: key distribution centre of the realm ``LAB.TEST``, with its own database.

Clients get a ticket of one user that is valid for the whole life of the lab. A service with its own principal requests a
keytab with :func:`issue_keytab` after the start of the centre; see :mod:`venturi.testbed.services.xrootd_access`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.host_shell import HostShell
from venturi.testbed.services.base import Package, Process, ServiceContext, ServiceSpec
from venturi.testbed.services.client_calls import run_checked, run_error
from venturi.testbed.services.programs import require

__all__ = ["REALM", "Kdc", "environment", "fetch_ticket", "issue_keytab"]

REALM = "LAB.TEST"
_DOMAIN = "lab.test"
_TIMEOUT_S = 10.0

# `udp_preference_limit`: TCP only, because it also works if the emulated network loses packets.
_CLIENT = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
 ticket_lifetime = {lifetime_s}s
 renew_lifetime = {lifetime_s}s
[realms]
 {realm} = {{
  kdc = {host_name}:{port}
 }}
[domain_realm]
 .{domain} = {realm}
 {domain} = {realm}
"""

_SERVER = """\
[kdcdefaults]
 kdc_listen = {address}:{port}
 kdc_tcp_listen = {address}:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/kadm5.acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
  max_life = {lifetime_s}s
  max_renewable_life = {lifetime_s}s
 }}
[logging]
 kdc = FILE:{directory}/kdc.log
 admin_server = FILE:{directory}/kadmin.log
 default = FILE:{directory}/default.log
"""


class Kdc:
    """Key distribution centre (MIT Kerberos)."""

    kind = "kdc"
    summary = "Kerberos key distribution centre of the realm LAB.TEST. The lab's clients have a ticket."
    packages = (
        Package("krb5kdc", "krb5-kdc"),
        Package("kdb5_util", "krb5-kdc"),
        Package("kadmin.local", "krb5-kdc"),
        Package("kinit", "krb5-user"),
    )
    options = (
        Option("user", "text", "labuser", "user of the clients' ticket"),
        Option("lifetime", "time", 30 * 86400.0, "lifetime of tickets"),
    )
    # Not 88, because the lab of an ordinary user cannot open a port below 1024.
    default_ports = (8888,)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: it transfers no data."""
        return {}

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return the reason why it runs only in a lab."""
        return f"kdc runs only in a lab, because its realm {REALM} needs the host names of a lab"

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration of server and clients, and create the database, the user and the user's keytab.

        Raises
        ------
        BackendError
            If a program is missing or fails.
        """
        require(context, self.packages)
        values = {
            "realm": REALM,
            "domain": _DOMAIN,
            "directory": context.directory,
            "address": context.address,
            "host_name": context.host_name,
            "port": _port(context),
            "lifetime_s": int(float(str(context.spec.options.get("lifetime_s", self.options[1].default)))),
        }
        context.write(_config(context), _CLIENT.format(**values))
        context.write(context.directory / "kdc.conf", _SERVER.format(**values))
        context.write(context.directory / "kadm5.acl", "")
        # The master password is never used, because the stash file has the key.
        _administer(context, "kdb5_util", "create", "-s", "-r", REALM, "-P", "throw-away")
        issue_keytab(context, _user(context), _user_keytab(context))
        context.client_environment.update(
            {"KRB5_CONFIG": str(_config(context)), "KRB5CCNAME": f"FILE:{_cache(context)}"}
        )

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server."""
        argv = ["krb5kdc", "-n", "-P", str(context.directory / "kdc.pid")]
        return [
            context.shell.start(argv, log=context.directory / "krb5kdc.out", environment=_server_environment(context))
        ]

    def ready(self, context: ServiceContext) -> str | None:
        """Fetch the ticket of the clients."""
        return run_error(context.shell, _kinit(context, _cache(context)), environment=environment(context))

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server; its other resources are in its directory."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return its output and log files."""
        return [context.directory / "krb5kdc.out", context.directory / "kdc.log"]


def issue_keytab(kdc: ServiceContext, principal: str, keytab: PurePath) -> PurePath:
    """Create a principal with a random key, unless it exists, and return a file with the key, mode 600.

    Parameters
    ----------
    kdc
        Context of a configured :class:`Kdc`.
    principal
        Principal such as ``xrootd/a.lab.test``. An existing one keeps its key, because several servers of a host can use it.
    keytab
        Destination; an existing file is replaced.

    Raises
    ------
    BackendError
        If ``kadmin.local`` is missing or fails.
    """
    kdc.remove(keytab)
    # kadmin.local returns 0 even if a query failed, so check the keytab.
    outputs = [_administer(kdc, "kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")]
    outputs.append(_administer(kdc, "kadmin.local", "-r", REALM, "-q", f"ktadd -norandkey -k {keytab} {principal}"))
    if not kdc.exists(keytab):
        text = "\n".join(outputs)
        raise BackendError(f"{kdc.spec.name}: cannot create a keytab of {principal} with kadmin.local: {text}")
    run_checked(kdc.shell, ["chmod", "600", str(keytab)], where=kdc.spec.name, package="coreutils")
    return keytab


def fetch_ticket(kdc: ServiceContext, cache: PurePath, shell: HostShell) -> PurePath:
    """Fetch a ticket of the lab's user from a running centre into a new credential cache, and return the cache.

    Raises
    ------
    BackendError
        If ``kinit`` is missing or fails.
    """
    argv = _kinit(kdc, cache)
    run_checked(shell, argv, where=kdc.spec.name, package="krb5-user", environment=environment(kdc))
    return cache


def environment(kdc: ServiceContext) -> dict[str, str]:
    """Return the environment of programs that use this centre: ``KRB5_CONFIG``."""
    return {"KRB5_CONFIG": str(_config(kdc))}


def _kinit(kdc: ServiceContext, cache: PurePath) -> list[str]:
    return ["kinit", "-k", "-t", str(_user_keytab(kdc)), "-c", f"FILE:{cache}", _user(kdc)]


def _administer(kdc: ServiceContext, *argv: str) -> str:
    environment = _server_environment(kdc)
    return run_checked(
        kdc.shell, argv, where=kdc.spec.name, package="krb5-kdc", environment=environment, timeout_s=_TIMEOUT_S
    )


def _server_environment(kdc: ServiceContext) -> dict[str, str]:
    return environment(kdc) | {"KRB5_KDC_PROFILE": str(kdc.directory / "kdc.conf")}


def _user(kdc: ServiceContext) -> str:
    return str(kdc.spec.options.get("user", Kdc.options[0].default))


def _port(kdc: ServiceContext) -> int:
    return (kdc.spec.ports or Kdc.default_ports)[0]


def _config(kdc: ServiceContext) -> PurePath:
    return kdc.directory / "krb5.conf"


def _cache(kdc: ServiceContext) -> PurePath:
    return kdc.directory / "client.cache"


def _user_keytab(kdc: ServiceContext) -> PurePath:
    return kdc.directory / "user.keytab"
