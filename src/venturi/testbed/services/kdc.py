"""Kerberos: a key distribution centre of the realm ``LAB.TEST``, with a database of its own.

Clients get a ticket of one user, valid for the whole life of the lab. A service that wants a principal of its own asks
for it with :func:`issue_keytab`, once the centre is up; see :mod:`venturi.testbed.services.xrootd_access`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services.base import Machine, Package, Process, Room, ServiceSpec
from venturi.testbed.services.calls import complaint, must
from venturi.testbed.services.programs import require

__all__ = ["REALM", "Kdc", "environment", "fetch_ticket", "issue_keytab"]

REALM = "LAB.TEST"
_DOMAIN = "lab.test"
_TIMEOUT_S = 10.0

# `udp_preference_limit`: TCP only, which the emulated network also carries when it loses packets.
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
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/kadm5.acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
  max_life = {lifetime_s}s
  max_renewable_life = {lifetime_s}s
 }}
[logging]
 kdc = FILE:{folder}/kdc.log
 admin_server = FILE:{folder}/kadmin.log
 default = FILE:{folder}/default.log
"""


class Kdc:
    """A key distribution centre (MIT Kerberos)."""

    kind = "kdc"
    summary = "Kerberos key distribution centre of the realm LAB.TEST, with a ticket for the lab's clients."
    packages = (
        Package("krb5kdc", "krb5-kdc"),
        Package("kdb5_util", "krb5-kdc"),
        Package("kadmin.local", "krb5-kdc"),
        Package("kinit", "krb5-user"),
    )
    options = (
        Option("user", "text", "labuser", "the user whose ticket the lab's clients have"),
        Option("lifetime", "time", 30 * 86400.0, "how long tickets are valid"),
    )
    # Not 88: an ordinary user's lab cannot open a port below 1024.
    default_ports = (8888,)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: it moves no data."""
        return {}

    def configure(self, room: Room) -> None:
        """Write the configuration of server and clients, make the database, the user and his keytab.

        Raises
        ------
        BackendError
            If a program is missing or refuses.
        """
        require(room, self.packages)
        known = {
            "realm": REALM,
            "domain": _DOMAIN,
            "folder": room.folder,
            "address": room.address,
            "host_name": room.host_name,
            "port": _port(room),
            "lifetime_s": int(float(str(room.spec.options.get("lifetime_s", self.options[1].default)))),
        }
        _config(room).write_text(_CLIENT.format(**known), encoding="utf-8")
        _config(room).chmod(0o644)
        (room.folder / "kdc.conf").write_text(_SERVER.format(**known), encoding="utf-8")
        (room.folder / "kadm5.acl").touch()
        # The master password is used by no one: the stash file holds the key.
        _administer(room, "kdb5_util", "create", "-s", "-r", REALM, "-P", "throw-away")
        issue_keytab(room, _user(room), _user_keytab(room))
        room.client_environment.update({"KRB5_CONFIG": str(_config(room)), "KRB5CCNAME": f"FILE:{_cache(room)}"})

    def start(self, room: Room) -> Sequence[Process]:
        """Start the server."""
        argv = ["krb5kdc", "-n", "-P", str(room.folder / "kdc.pid")]
        return [room.machine.start(argv, log=room.folder / "krb5kdc.out", environment=_server_environment(room))]

    def ready(self, room: Room) -> str | None:
        """Get the clients' ticket."""
        return complaint(room.machine, _kinit(room, _cache(room)), environment=environment(room))

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server; all else is in its folder."""
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return its output and its log."""
        return [room.folder / "krb5kdc.out", room.folder / "kdc.log"]


def issue_keytab(kdc: Room, principal: str, keytab: Path) -> Path:
    """Make a principal with a random key, if there is none yet, and return a file that holds the key, mode 600.

    Parameters
    ----------
    kdc
        The room of the :class:`Kdc`, configured.
    principal
        Such as ``xrootd/a.lab.test``; one that exists keeps its key: a host may have several servers of that name.
    keytab
        Where to write it; what is there is replaced.

    Raises
    ------
    BackendError
        If ``kadmin.local`` is missing or refuses.
    """
    keytab.unlink(missing_ok=True)
    # kadmin.local ends with 0 also when a query has failed: what counts is the keytab.
    said = [_administer(kdc, "kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")]
    said.append(_administer(kdc, "kadmin.local", "-r", REALM, "-q", f"ktadd -norandkey -k {keytab} {principal}"))
    if not keytab.exists():
        text = "\n".join(said)
        raise BackendError(
            f"{kdc.spec.name}: expected kadmin.local to make a keytab of {principal}, found none: {text}"
        )
    keytab.chmod(0o600)
    return keytab


def fetch_ticket(kdc: Room, cache: Path, machine: Machine) -> Path:
    """Get a ticket of the lab's user from a running centre into a new credential cache, and return that.

    Raises
    ------
    BackendError
        If ``kinit`` is missing, or gets none.
    """
    argv = _kinit(kdc, cache)
    must(machine, argv, where=kdc.spec.name, package="krb5-user", environment=environment(kdc))
    return cache


def environment(kdc: Room) -> dict[str, str]:
    """Return what a program needs to speak with this centre: ``KRB5_CONFIG``."""
    return {"KRB5_CONFIG": str(_config(kdc))}


def _kinit(kdc: Room, cache: Path) -> list[str]:
    return ["kinit", "-k", "-t", str(_user_keytab(kdc)), "-c", f"FILE:{cache}", _user(kdc)]


def _administer(kdc: Room, *argv: str) -> str:
    environment = _server_environment(kdc)
    return must(
        kdc.machine, argv, where=kdc.spec.name, package="krb5-kdc", environment=environment, timeout_s=_TIMEOUT_S
    )


def _server_environment(kdc: Room) -> dict[str, str]:
    return environment(kdc) | {"KRB5_KDC_PROFILE": str(kdc.folder / "kdc.conf")}


def _user(kdc: Room) -> str:
    return str(kdc.spec.options.get("user", Kdc.options[0].default))


def _port(kdc: Room) -> int:
    return (kdc.spec.ports or Kdc.default_ports)[0]


def _config(kdc: Room) -> Path:
    return kdc.folder / "krb5.conf"


def _cache(kdc: Room) -> Path:
    return kdc.folder / "client.cache"


def _user_keytab(kdc: Room) -> Path:
    return kdc.folder / "user.keytab"
