"""Who may use an XRootD server: its keys and certificates, its configuration lines, and what its clients are given.

A server that reads from another one (a proxy; the destination of a third-party copy) is a client too, under its own
account: it gets a credential of the lab's user that it may read.
"""

from __future__ import annotations

import os
import pwd
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.pki import Credential
from venturi.testbed.services import kdc, programs
from venturi.testbed.services.base import Peers, Room, ServiceSpec
from venturi.testbed.services.calls import must

__all__ = [
    "ACCESS_OPTIONS",
    "ACCOUNT",
    "account",
    "configure_access",
    "environment",
    "hand_over",
    "host_credential",
    "kdc_of",
]

ACCOUNT = "xrootd"
"""The account of a server that root starts: xrootd refuses to run as root."""

ACCESS_OPTIONS = (
    Option("auth", "choice", "none", "how clients prove who they are", choices=("none", "sss", "krb5", "gsi")),
    Option("kdc", "text", None, "the service of kind kdc, for auth = krb5"),
    Option("tls", "boolean", False, "roots:// and https:// with a certificate of the lab"),
)

_SSS_CLIENT = "XrdSecSSSKT"
_SSS_LOCK = threading.Lock()
"""Servers of a lab are configured side by side, and one of them makes the key of all."""
_GRID_USER = "labuser"


def kdc_of(spec: ServiceSpec) -> tuple[str, ...]:
    """Return the name of the Kerberos service that a server needs, if any."""
    name = spec.options.get("kdc")
    return (str(name),) if spec.options.get("auth") == "krb5" and name else ()


def mistake(spec: ServiceSpec, peers: Peers) -> str | None:
    """Return that a server with Kerberos has no service of Kerberos."""
    if spec.options.get("auth") != "krb5":
        return None
    found = [peers(name) for name in kdc_of(spec)]
    if not found:
        return 'expected the option kdc with auth = "krb5", found none; name a kdc service'
    (centre,) = found
    return (
        None
        if centre.kind == kdc.Kdc.kind
        else f"expected {centre.name} to be a service of kind kdc, found {centre.kind}"
    )


def account(room: Room) -> str | None:
    """Return the account under which the server runs, None for the one that runs this process.

    Raises
    ------
    BackendError
        If there is no such account.
    """
    if not room.machine.privileged:
        name = programs.account(room)
        return None if name == pwd.getpwuid(os.geteuid()).pw_name else name
    try:
        return pwd.getpwnam(ACCOUNT).pw_name
    except KeyError as error:
        raise BackendError(
            f"{room.spec.name}: expected an account {ACCOUNT} for the server, found none; install xrootd-server"
        ) from error


def hand_over(path: Path, owner: str | None) -> Path:
    """Give a file or folder to the server's account and return it."""
    if owner is not None:
        shutil.chown(path, owner)
    return path


def host_credential(room: Room) -> Credential:
    """Return the certificate of the server's host, with a key that its account may read; clients come to trust it."""
    room.client_environment.update(room.pki.trust())
    made: Credential = room.pki.host(room.host_name, [room.address], owner=account(room))
    return made


def configure_access(room: Room, peers: Iterable[Room] = ()) -> list[str]:
    """Make what a server needs to know its clients and to be known by its ``peers``; return configuration lines.

    Raises
    ------
    BackendError
        If a program is missing or refuses, or a krb5 server has no KDC.
    """
    lines = _tls(room) if room.spec.options.get("tls") else []
    auth = _auth(room)
    if auth != "none":
        protocol = {"sss": _sss, "krb5": _krb5, "gsi": _gsi}[auth](room)
        lines += ["xrootd.seclib libXrdSec.so", f"sec.protocol {protocol}", f"sec.protbind * only {auth}"]
    for other in (room, *peers):
        _make_own_credential(room, other)
    return lines


def environment(room: Room, peers: Iterable[Room] = ()) -> dict[str, str]:
    """Return the variables of the server's processes, which its third-party copies inherit."""
    known: dict[str, str] = {}
    for other in (room, *peers):
        match _auth(other):
            case "sss":
                known[_SSS_CLIENT] = str(_sss_keytab(room))
            case "krb5":
                centre = other.peer(kdc_of(other.spec)[0])
                known |= kdc.environment(centre) | {"KRB5CCNAME": f"FILE:{room.folder / 'own.cache'}"}
                # By default it is in /var/tmp, and stays there.
                known["KRB5RCACHENAME"] = f"file2:{room.folder / 'replay'}"
            case "gsi":
                known |= {"X509_CERT_DIR": str(room.pki.certificates), "X509_USER_PROXY": str(_proxy(room))}
    return known


def _auth(room: Room) -> str:
    return str(room.spec.options.get("auth") or "none")


def _tls(room: Room) -> list[str]:
    host = host_credential(room)
    return [f"xrd.tls {host.certificate} {host.key}", f"xrd.tlsca certdir {room.pki.certificates}"]


def _gsi(room: Room) -> str:
    host = host_credential(room)
    accounts = room.pki.grid_mapfile(room.folder / "grid-mapfile", {"Lab User": _GRID_USER})
    room.client_environment.update(room.pki.client_environment())
    # gmapopt 10: an unknown subject keeps its hashed name. crl 0: the lab's authority has no revocation list.
    return (
        f"gsi -certdir:{room.pki.certificates} -cert:{host.certificate} -key:{host.key}"
        f" -gridmap:{accounts} -gmapopt:10 -crl:0"
    )


def _krb5(room: Room) -> str:
    (name,) = kdc_of(room.spec)
    principal = f"xrootd/{room.host_name}"
    keytab = kdc.issue_keytab(room.peer(name), principal, room.folder / "krb5.keytab")
    hand_over(keytab, account(room))
    return f"krb5 {keytab} {principal}@{kdc.REALM}"


def _sss(room: Room) -> str:
    """Use the key that the lab's clients have; the first server makes it."""
    with _SSS_LOCK:
        theirs = room.client_environment.get(_SSS_CLIENT)
        if theirs is None:
            theirs = str(room.folder / "clients.keytab")
            make = f"echo y | xrdsssadmin -k lab -u {_GRID_USER} -g {_GRID_USER} add {theirs}"
            must(room.machine, ["sh", "-c", make], where=room.spec.name, package="xrootd-server")
            Path(theirs).chmod(0o600)
            room.client_environment[_SSS_CLIENT] = theirs
    _copy_secret(Path(theirs), _sss_keytab(room), account(room))
    return f"sss -s {_sss_keytab(room)}"


def _make_own_credential(room: Room, other: Room) -> None:
    """Make the credential with which ``room`` is a client of ``other``."""
    match _auth(other):
        case "sss":
            _copy_secret(Path(room.client_environment[_SSS_CLIENT]), _sss_keytab(room), account(room))
        case "krb5":
            centre = other.peer(kdc_of(other.spec)[0])
            cache = room.folder / "own.cache"
            kdc.fetch_ticket(centre, cache, room.machine)
            hand_over(cache, account(room))
        case "gsi":
            room.pki.proxy(path=_proxy(room), owner=account(room))


def _copy_secret(source: Path, copy: Path, owner: str | None) -> None:
    copy.unlink(missing_ok=True)
    copy.touch(mode=0o600)
    copy.chmod(0o600)
    copy.write_bytes(source.read_bytes())
    hand_over(copy, owner)


def _sss_keytab(room: Room) -> Path:
    return room.folder / "sss.keytab"


def _proxy(room: Room) -> Path:
    return room.folder / "own.proxy"
