"""Access to an XRootD server: keys and certificates, configuration lines, and the environment of clients.

A server that reads from another one (a proxy, or the destination of a third-party copy) is also a client, under its own
account. It gets a credential of the lab's user that it can read.
"""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterable
from pathlib import PurePath

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.pki import Credential
from venturi.testbed.services import kdc, programs
from venturi.testbed.services.base import Peers, ServiceContext, ServiceSpec
from venturi.testbed.services.client_calls import run_checked
from venturi.testbed.services.exposure import OPEN, admitted_addresses

__all__ = [
    "ACCESS_OPTIONS",
    "ACCOUNT",
    "account",
    "admission",
    "configure_access",
    "environment",
    "find_kdc",
    "hand_over",
    "host_credential",
]

ACCOUNT = "xrootd"
"""Account of a server that root starts, because xrootd does not run as root."""

ACCESS_OPTIONS = (
    Option("auth", "choice", "none", "client authentication", choices=("none", "sss", "krb5", "gsi")),
    Option("kdc", "text", None, "its service of kind kdc, for auth = krb5"),
    Option("tls", "boolean", False, "serve roots:// and https:// with a temporary certificate"),
    OPEN,
)

_SSS_CLIENT = "XrdSecSSSKT"
_SSS_LOCK = threading.Lock()
"""The servers of a lab are configured in parallel, and one of them creates the shared key."""
_GRID_USER = "labuser"


def find_kdc(spec: ServiceSpec) -> tuple[str, ...]:
    """Return the name of the Kerberos service that a server needs, if any."""
    name = spec.options.get("kdc")
    return (str(name),) if spec.options.get("auth") == "krb5" and name else ()


def validation_error(spec: ServiceSpec, peers: Peers) -> str | None:
    """Return the error of a server with Kerberos but without a KDC."""
    if spec.options.get("auth") != "krb5":
        return None
    found = [peers(name) for name in find_kdc(spec)]
    if not found:
        return 'expected the option kdc with auth = "krb5", found none; name a kdc service'
    (centre,) = found
    return (
        None
        if centre.kind == kdc.Kdc.kind
        else f"expected {centre.name} to be a service of kind kdc, found {centre.kind}"
    )


def account(context: ServiceContext) -> str | None:
    """Return the account of the server; None for the account of the commands on its host.

    Raises
    ------
    BackendError
        If the account does not exist.
    """
    if context.exposed:
        return None
    if not context.shell.privileged:
        name = programs.account(context)
        return None if name == pwd.getpwuid(os.geteuid()).pw_name else name
    try:
        return pwd.getpwnam(ACCOUNT).pw_name
    except KeyError as error:
        raise BackendError(
            f"{context.spec.name}: expected an account {ACCOUNT} for the server, found none; install xrootd-server"
        ) from error


def hand_over(context: ServiceContext, path: PurePath, owner: str | None) -> PurePath:
    """Change the owner of a file or directory on the host to the account of the server, and return the path."""
    if owner is not None:
        run_checked(context.shell, ["chown", owner, str(path)], where=context.spec.name, package="coreutils")
    return path


def host_credential(context: ServiceContext) -> Credential:
    """Return the certificate of the server's host, with a key that its account can read, and make clients trust it."""
    context.client_environment.update(context.pki.trust())
    made: Credential = context.pki.host(context.host_name, [context.address], owner=account(context))
    return made


def configure_access(context: ServiceContext, peers: Iterable[ServiceContext] = ()) -> list[str]:
    """Create the credentials of a server for its clients and ``peers``, and return the configuration lines.

    Raises
    ------
    BackendError
        If a program is missing or fails, or a krb5 server has no KDC.
    """
    lines = _tls(context) if context.spec.options.get("tls") else []
    auth = _auth(context)
    if auth != "none":
        protocol = {"sss": _sss, "krb5": _krb5, "gsi": _gsi}[auth](context)
        lines += ["xrootd.seclib libXrdSec.so", f"sec.protocol {protocol}", f"sec.protbind * only {auth}"]
    for other in (context, *peers):
        _make_own_credential(context, other)
    return lines


def admission(context: ServiceContext, *, clustered: bool) -> list[str]:
    """Return configuration lines with the hosts that can connect.

    Parameters
    ----------
    clustered
        Whether the server is a member of a cluster. Cluster members do not authenticate to each other, and neither do HTTP
        clients.
    """
    if _auth(context) != "none" and not context.spec.options.get("http") and not clustered:
        return []
    addresses = admitted_addresses(context) or ()
    return [f"xrd.allow host {f'[{address}]' if ':' in address else address}" for address in addresses]


def environment(context: ServiceContext, peers: Iterable[ServiceContext] = ()) -> dict[str, str]:
    """Return the environment variables of the server's processes; third-party copies inherit them."""
    variables: dict[str, str] = {}
    for other in (context, *peers):
        match _auth(other):
            case "sss":
                variables[_SSS_CLIENT] = str(_sss_keytab(context))
            case "krb5":
                centre = other.peer(find_kdc(other.spec)[0])
                variables |= kdc.environment(centre) | {"KRB5CCNAME": f"FILE:{context.directory / 'own.cache'}"}
                # The default is in /var/tmp, where the file would remain.
                variables["KRB5RCACHENAME"] = f"file2:{context.directory / 'replay'}"
            case "gsi":
                variables |= {"X509_CERT_DIR": str(context.pki.certificates), "X509_USER_PROXY": str(_proxy(context))}
    return variables


def _auth(context: ServiceContext) -> str:
    return str(context.spec.options.get("auth") or "none")


def _tls(context: ServiceContext) -> list[str]:
    host = host_credential(context)
    return [f"xrd.tls {host.certificate} {host.key}", f"xrd.tlsca certdir {context.pki.certificates}"]


def _gsi(context: ServiceContext) -> str:
    host = host_credential(context)
    accounts = context.pki.grid_mapfile(context.directory / "grid-mapfile", {"Lab User": _GRID_USER})
    context.client_environment.update(context.pki.client_environment())
    # gmapopt 10: an unknown subject keeps its hashed name. crl 0: the lab's CA has no revocation list.
    return (
        f"gsi -certdir:{context.pki.certificates} -cert:{host.certificate} -key:{host.key}"
        f" -gridmap:{accounts} -gmapopt:10 -crl:0"
    )


def _krb5(context: ServiceContext) -> str:
    (name,) = find_kdc(context.spec)
    principal = f"xrootd/{context.host_name}"
    keytab = kdc.issue_keytab(context.peer(name), principal, context.directory / "krb5.keytab")
    hand_over(context, keytab, account(context))
    return f"krb5 {keytab} {principal}@{kdc.REALM}"


def _sss(context: ServiceContext) -> str:
    """Return the protocol line for the key of the lab's clients; the first server creates the key."""
    with _SSS_LOCK:
        client_keytab = context.client_environment.get(_SSS_CLIENT)
        if client_keytab is None:
            made = context.directory / "clients.keytab"
            script = f"echo y | xrdsssadmin -k lab -u {_GRID_USER} -g {_GRID_USER} add {made}"
            run_checked(context.shell, ["sh", "-c", script], where=context.spec.name, package="xrootd-server")
            client_keytab = context.client_file("sss.keytab", context.read_bytes(made), 0o600)
            context.client_environment[_SSS_CLIENT] = client_keytab
    _copy_client_keytab(context)
    return f"sss -s {_sss_keytab(context)}"


def _make_own_credential(context: ServiceContext, other: ServiceContext) -> None:
    """Create the credential of ``context`` as a client of ``other``."""
    match _auth(other):
        case "sss":
            _copy_client_keytab(context)
        case "krb5":
            centre = other.peer(find_kdc(other.spec)[0])
            cache = context.directory / "own.cache"
            kdc.fetch_ticket(centre, cache, context.shell)
            hand_over(context, cache, account(context))
        case "gsi":
            context.pki.proxy(path=_proxy(context), owner=account(context))


def _copy_client_keytab(context: ServiceContext) -> None:
    """Copy the key of the clients to the directory of the server, which has a different account."""
    content = context.read_bytes(PurePath(context.client_variables()[_SSS_CLIENT]))
    context.write(_sss_keytab(context), content, 0o600)
    hand_over(context, _sss_keytab(context), account(context))


def _sss_keytab(context: ServiceContext) -> PurePath:
    return context.directory / "sss.keytab"


def _proxy(context: ServiceContext) -> PurePath:
    return context.directory / "own.proxy"
