"""What a lab says of itself: for the record, and for people who ask."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from venturi.plan.codec import HEADER
from venturi.testbed.lab.journal import NETWORK
from venturi.testbed.lab.running import describe

if TYPE_CHECKING:
    from venturi.testbed.lab.lab import Lab

__all__ = ["facts", "status"]


def facts(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return host, or ``network``, → facts for the table `environment`."""
    found: dict[str, dict[str, Any]] = {}
    for name, machine in lab.machines.items():
        of_host = {
            "address": machine.address,
            "host_name": machine.host_name,
            "congestion_control": machine.asked.lab.congestion_control,
            "limits": lab.limits(name),
            "services": {one.name: describe(one) for one in lab.services.values() if one.room.spec.host == name},
        }
        found[name] = {"scratch": str(lab.scratch / name), "lab": of_host}
    found[NETWORK] = {
        "lab": {
            "id": lab.id,
            "root": lab.root,
            "took_s": lab.took_s,
            "packages": dict(lab.versions),
            "devices": dict(lab.wire.ready.get("devices") or {}) if lab.wire is not None else {},
            "awake_processors": lab.wire.ready.get("pollers", 0) if lab.wire is not None else 0,
            "probes": len(lab.probes),
            "probes_off": sum(not probe.agrees for probe in lab.probes),
        }
    }
    return found


def status(lab: Lab) -> dict[str, Any]:
    """Return how a lab is now, as JSON."""
    return {
        "id": lab.id,
        "name": lab.asked.header.name,
        "folder": str(lab.folder),
        "scratch": str(lab.scratch),
        "keeper": os.getpid(),
        "took_s": lab.took_s,
        "network_running": lab.wire is not None and lab.wire.poll() is None,
        "hosts": {
            name: {
                "addresses": {nic.device: nic.address for nic in machine.asked.nics},
                "host_name": machine.host_name,
                "site": machine.asked.lab.site,
            }
            for name, machine in lab.machines.items()
        },
        "links": _links(lab),
        "services": {
            name: {**describe(one), "doors": dict(lab.asked.services[name].doors), "urls": _urls(lab, name)}
            for name, one in lab.services.items()
        },
        "environment": lab.client_environment,
        "probes": [probe.as_json() for probe in lab.probes],
        "records": [{"host": host, **record} for host, record in lab.journal.kept()],
    }


def _urls(lab: Lab, service: str) -> list[str]:
    """Return what to give a client by hand: each door with the first port, for each storage that it serves."""
    asked, places = lab.asked.services[service], lab.asked.header.places
    port = str(asked.ports[0]) if asked.ports else ""
    paths = [str(lab.host_scratch(places[name].host) / places[name].path) for name in asked.places] or [""]
    urls = (
        door.replace("{port}", port).replace("{path}", path).replace("{relative}", "")
        for door in asked.doors.values()
        for path in paths
    )
    return list(dict.fromkeys(urls))


def _links(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return the links as they were asked for, with the counters of the last sample."""
    network = HEADER.emit(lab.asked.header).get("network") or {}
    sample: Mapping[str, Any] = (lab.wire.sample if lab.wire is not None else {}).get("counters") or {}
    return {
        name: {**link, **lab.changed_links.get(name, {}), "counters": _of_link(sample, name)}
        for name, link in (network.get("links") or {}).items()
    }


def _of_link(counters: Mapping[str, Any], link: str) -> dict[str, Any]:
    prefix = f"link.{link}."
    return {name.removeprefix(prefix): value for name, value in counters.items() if name.startswith(prefix)}
