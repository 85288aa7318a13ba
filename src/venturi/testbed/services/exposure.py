"""Access control of services on real hosts, whose network contains other hosts.

On a real host, a service requires credentials of the run, or accepts only the addresses of the testbed. The option
``open`` (:data:`OPEN`) disables the address check. In a lab, no restriction applies, because its network has no other
hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.plan.header import OptionValue
from venturi.testbed.services.base import ServiceContext, ServiceKind

__all__ = [
    "OPEN",
    "admitted_addresses",
    "is_open_to_all",
    "listen_address",
    "local_address",
    "require_ordinary_user",
    "socket_address",
]

OPEN = Option(
    "open",
    "boolean",
    False,
    "On real hosts, accept clients from all addresses even without authentication. By default only the hosts of the testbed can connect.",
)


def admitted_addresses(context: ServiceContext) -> tuple[str, ...] | None:
    """Return the accepted addresses of clients without credentials; ``None`` for all.

    Raises
    ------
    BackendError
        If the addresses of the testbed are unknown.
    """
    if context.access is None or context.spec.options.get("open"):
        return None
    if not context.access.client_addresses:
        raise BackendError(
            f"{context.spec.name}: expected addresses of the hosts, to accept only these, found none; set `address` of the hosts,"
            " use a service with authentication, or set open = true"
        )
    return tuple(dict.fromkeys(context.access.client_addresses))


def is_open_to_all(service: ServiceKind, options: Mapping[str, OptionValue]) -> bool:
    """Return whether a service on a real host accepts clients from all addresses without authentication."""
    # HTTP clients of xrootd do not authenticate.
    is_anonymous = options.get("auth", "none") == "none" or bool(options.get("http"))
    return (bool(options.get("open")) and is_anonymous) or getattr(service, "open_to_all", False)


def listen_address(context: ServiceContext, everywhere: str = "0.0.0.0") -> str:
    """Return the numeric listening address of a service; ``everywhere`` denotes all addresses of a real host."""
    if context.access is None:
        return context.address
    return context.access.bind_address or everywhere


def local_address(context: ServiceContext) -> str:
    """Return the numeric address of the service for clients on the same host."""
    if context.access is None:
        return context.address
    return context.access.bind_address or "127.0.0.1"


def socket_address(address: str, port: int) -> str:
    """Return ``address:port``, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def require_ordinary_user(context: ServiceContext, program: str) -> None:
    """Reject a server on a real host whose account is root.

    Raises
    ------
    BackendError
        If the account is root.
    """
    if context.exposed and context.shell.privileged:
        raise BackendError(
            f"{context.spec.name}: expected an ordinary account on {context.shell.name}, because {program} changes its account if root"
            " starts it, found root; connect with another account"
        )
