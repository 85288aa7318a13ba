"""Contexts of the services of a lab: see :class:`venturi.testbed.services.base.ServiceContext`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from venturi.testbed.lab.host_shell import LabHostShell
from venturi.testbed.lab.spec import LabSpec
from venturi.testbed.pki import Pki
from venturi.testbed.service_context import SharedServices, ShellServiceContext
from venturi.testbed.services.base import ServiceSpec

__all__ = ["lab_contexts", "storage_paths"]


def storage_paths(spec: LabSpec, directory: Path) -> dict[str, Path]:
    """Return storage → path in the lab with this directory. Absolute paths of a plan are also below the host's directory."""
    return {
        name: directory / "hosts" / spec.storage_host(name) / storage.path for name, storage in spec.storages.items()
    }


def lab_contexts(
    spec: LabSpec, directory: Path, shells: Mapping[str, LabHostShell], pki: Pki, environment: dict[str, str]
) -> dict[str, ShellServiceContext]:
    """Return the contexts of all services of a lab.

    Parameters
    ----------
    directory
        Directory of the lab.
    environment
        Receives the environment variables of clients from the services.
    """
    shared = SharedServices(
        shells, storage_paths(spec, directory), str(directory / "clients"), client_environment=environment
    )
    contexts = {}
    for name, service in spec.services.items():
        if service.host is None:
            continue
        host = spec.hosts[service.host]
        nic = spec.nic(service.interface)[1] if service.interface is not None else None
        contexts[name] = ShellServiceContext(
            ServiceSpec(
                name,
                service.kind,
                service.host,
                service.interface or (host.nics[0].name if host.nics else ""),
                service.storages,
                service.options,
                service.after,
                service.ports,
            ),
            shared,
            address=nic.address if nic is not None else host.address,
            host_name=host.interface_name(nic) if nic is not None else host.host_name,
            directory=directory / "services" / name,
            pki=pki,
        )
    shared.contexts.update(contexts)
    return contexts
