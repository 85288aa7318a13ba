"""Services that Venturi adds to a plan, so that copies between two hosts need no service in the scenario.

``mover = "venturi"`` uses ``venturi serve`` with certificates of the run. Movers over ssh use the ssh server of the host. The
services of a host are one service with the storages that transfers need; it does not serve other storages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from venturi.mover import Mover
from venturi.plan import PlanService
from venturi.plan.header import OptionValue
from venturi.testbed.service_ports import HOST_PLACEHOLDER, LOOPBACK, default_ports, first_interface
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.table import SERVICES

if TYPE_CHECKING:
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["SUGGESTIONS", "ImplicitServices", "suggested_services"]

SSH = "ssh"
"""Kind of the ssh server that a host has."""

_VENTURI_SERVE: tuple[str, Mapping[str, OptionValue]] = ("venturi-serve", {"auth": "gsi"})
_SSH: tuple[str, Mapping[str, OptionValue]] = (SSH, {})
_KINDS = {"venturi": _VENTURI_SERVE, "scp": _SSH, "sftp": _SSH, "rsync": _SSH, "rclone": _SSH}
"""Kind and options of the service that a mover needs, by mover."""

_GSI: Mapping[str, OptionValue] = {"auth": "gsi"}
_NO_OPTIONS: Mapping[str, OptionValue] = {}
_HTTP: Mapping[str, OptionValue] = {"http": True}
_HTTPS: Mapping[str, OptionValue] = {"http": True, "tls": True}

SUGGESTIONS: Mapping[str, tuple[tuple[str, ...], Mapping[str, OptionValue]]] = {
    "gsiftp": (("venturi-serve", "gridftp"), _GSI),
    "ftp": (("venturi-serve", "gridftp"), _NO_OPTIONS),
    "root": (("xrootd",), _NO_OPTIONS),
    "roots": (("xrootd",), {"tls": True}),
    "davs": (("venturi-serve", "xrootd"), _HTTPS),
    "https": (("venturi-serve", "xrootd"), _HTTPS),
    "http": (("venturi-serve", "xrootd"), _HTTP),
    "ssh": (("sshd",), _NO_OPTIONS),
    "sftp": (("sshd",), _NO_OPTIONS),
    "srm": (("srm",), _NO_OPTIONS),
    "iperf3": (("iperf3",), _NO_OPTIONS),
    "nuttcp": (("nuttcp",), _NO_OPTIONS),
}
"""Kinds of services with their options by protocol, for messages."""


def suggested_services(mover: Mover) -> str | None:
    """Return the kinds of services that a mover can use, for messages; ``None`` if they are unknown."""
    found = next((SUGGESTIONS[protocol] for protocol in mover.protocols if protocol in SUGGESTIONS), None)
    if found is None:
        return None
    kinds, options = found
    values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    return " or ".join(kinds) + (f" with options = {{ {values} }}" if values else "")


class ImplicitServices:
    """Adds services to the services of a resolved testbed."""

    def __init__(self, parts: ResolvedTestbed, written: Mapping[str, object]) -> None:
        self._parts = parts
        self._written = written

    def is_implicit(self, name: str) -> bool:
        """Return whether a service is not in the scenario."""
        return name not in self._written

    def kind(self, mover: Mover) -> str | None:
        """Return the kind of the services that a mover can get, or ``None``."""
        found = _KINDS.get(mover.name)
        return None if found is None else found[0]

    def movers(self) -> tuple[str, ...]:
        """Return the movers that copy between two hosts without a service in the scenario."""
        return tuple(_KINDS)

    def restore(self, before: Mapping[str, PlanService]) -> None:
        """Undo additions after an error; ``before`` is a copy of the services of the testbed."""
        self._parts.services.clear()
        self._parts.services.update(before)

    def add(self, mover: Mover, storage: str) -> str | None:
        """Return the name of the implicit service of a mover that exports a storage, and add it to the testbed.

        Return ``None`` if the mover has no implicit services, or if the scenario has an ssh server on that host: its
        storages are those of the scenario.
        """
        kind = self.kind(mover)
        host = self._parts.storages[storage].host
        if kind is None or host is None:
            return None
        services = self._parts.services
        name = next(
            (
                name
                for name, service in services.items()
                if self.is_implicit(name) and (service.kind, service.host) == (kind, host)
            ),
            None,
        )
        if name is not None:
            order = [*self._parts.storages]
            storages = sorted({*services[name].storages, storage}, key=order.index)
            services[name] = replace(services[name], storages=tuple(storages))
            return name
        if kind == SSH and any(
            service.host == host and service.kind in (SSH, "sshd") for service in services.values()
        ):
            return None
        name = self._free_name(f"{kind}-{host}")
        services[name] = self._service(name, kind, host, storage, _KINDS[mover.name][1])
        return name

    def _free_name(self, name: str) -> str:
        number, found = 1, name
        while found in self._parts.services:
            number += 1
            found = f"{name}-{number}"
        return found

    def _service(
        self, name: str, kind_name: str, host: str, storage: str, options: Mapping[str, OptionValue]
    ) -> PlanService:
        kind = SERVICES[kind_name]
        interfaces = self._parts.network.interfaces if self._parts.network is not None else {}
        interface = first_interface(interfaces, host)
        used = {port for service in self._parts.services.values() if service.host == host for port in service.ports}
        spec = ServiceSpec(
            name=name,
            kind=kind_name,
            host=host,
            interface=interface or f"{host}.{LOOPBACK}",
            storages=(storage,),
            options={**{option.key: option.default for option in kind.options}, **options},
            ports=default_ports(kind, 1, used),
        )
        return PlanService(
            kind=kind_name,
            host=host,
            interface=interface,
            storages=spec.storages,
            options=spec.options,
            ports=spec.ports,
            service_ports=dict(kind.service_ports(spec, HOST_PLACEHOLDER)),
        )
