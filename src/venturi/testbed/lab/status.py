"""Properties of a lab for the records, and its status for users."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from venturi.plan.codec import HEADER
from venturi.testbed.record_buffer import NETWORK
from venturi.testbed.service_manager import describe_service

if TYPE_CHECKING:
    from venturi.testbed.lab.lab import Lab

__all__ = ["properties", "status"]


def properties(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return host or ``network`` → properties for the table ``environment``."""
    found: dict[str, dict[str, Any]] = {}
    for name, shell in lab.shells.items():
        host_properties = {
            "address": shell.address,
            "host_name": shell.host_name,
            "congestion_control": shell.spec.lab.congestion_control,
            "limits": lab.limits(name),
            "services": {
                one.name: describe_service(one) for one in lab.services.values() if one.context.spec.host == name
            },
        }
        found[name] = {"scratch": str(lab.scratch / name), "lab": host_properties}
    found[NETWORK] = {
        "lab": {
            "id": lab.id,
            "root": lab.root,
            "took_s": lab.took_s,
            "packages": dict(lab.versions),
            "devices": dict(lab.emulator.ready.get("devices") or {}) if lab.emulator is not None else {},
            "polling_cpus": lab.emulator.ready.get("pollers", 0) if lab.emulator is not None else 0,
            "probes": len(lab.probes),
            "probes_off": sum(not probe.agrees for probe in lab.probes),
        }
    }
    return found


def status(lab: Lab) -> dict[str, Any]:
    """Return the current status of a lab as JSON."""
    return {
        "id": lab.id,
        "name": lab.spec.header.name,
        "directory": str(lab.directory),
        "scratch": str(lab.scratch),
        "daemon": os.getpid(),
        "took_s": lab.took_s,
        "network_running": lab.emulator is not None and lab.emulator.poll() is None,
        "hosts": {
            name: {
                "addresses": {nic.device: nic.address for nic in shell.spec.nics},
                "host_name": shell.host_name,
                "site": shell.spec.lab.site,
            }
            for name, shell in lab.shells.items()
        },
        "links": _links(lab),
        "services": {
            name: {
                **describe_service(one),
                "service_ports": dict(lab.spec.services[name].service_ports),
                "urls": _urls(lab, name),
            }
            for name, one in lab.services.items()
        },
        "environment": lab.client_environment,
        "probes": [probe.as_json() for probe in lab.probes],
        "records": [{"host": host, **record} for host, record in lab.records.buffered()],
    }


def _urls(lab: Lab, service: str) -> list[str]:
    """Return URLs for clients: each service port with the first port number, for each served storage."""
    spec, storages = lab.spec.services[service], lab.spec.header.storages
    port, host_name = str(spec.ports[0]) if spec.ports else "", lab.services[service].context.host_name
    paths = [str(lab.host_scratch(lab.spec.storage_host(name)) / storages[name].path) for name in spec.storages] or [
        ""
    ]
    urls = (
        service_port.replace("{host}", host_name)
        .replace("{port}", port)
        .replace("{path}", path)
        .replace("{relative}", "")
        for service_port in spec.service_ports.values()
        for path in paths
    )
    return list(dict.fromkeys(urls))


def _links(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return the links with their current settings and the counters of the last sample."""
    network = HEADER.emit(lab.spec.header).get("network") or {}
    sample: Mapping[str, Any] = (lab.emulator.sample if lab.emulator is not None else {}).get("counters") or {}
    return {
        name: {**link, **lab.changed_links.get(name, {}), "counters": _of_link(sample, name)}
        for name, link in (network.get("links") or {}).items()
    }


def _of_link(counters: Mapping[str, Any], link: str) -> dict[str, Any]:
    prefix = f"link.{link}."
    return {name.removeprefix(prefix): value for name, value in counters.items() if name.startswith(prefix)}
