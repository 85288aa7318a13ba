"""All probes of a lab, side by side where they do not disturb each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from venturi.testbed.lab.asked import Asked
from venturi.testbed.lab.ground import Ground
from venturi.testbed.lab.hosting import Disk, Groups, in_parallel
from venturi.testbed.lab.interfaces import Found
from venturi.testbed.lab.journal import NETWORK, Journal
from venturi.testbed.lab.machine import LabMachine
from venturi.testbed.lab.paths import covering_pings
from venturi.testbed.lab.probes import (
    Probe,
    probe_cores,
    probe_cpu,
    probe_disk,
    probe_memory,
    probe_network,
    probe_settings,
)

__all__ = ["tell", "try_all"]


def try_all(
    asked: Asked,
    ground: Ground,
    machines: Mapping[str, LabMachine],
    groups: Groups,
    disks: Sequence[Disk],
    found: Mapping[str, Found],
    settings: Mapping[str, Mapping[str, str]],
) -> list[Probe]:
    """Try everything that was asked for, and return what came of it."""
    probes = [
        probe for name, host in asked.hosts.items() for probe in probe_settings(host, settings[name], found[name])
    ]
    # The links first and alone: a processor that is kept busy on purpose would lengthen their round trips.
    probes += probe_network(ground, covering_pings(asked), asked.hosts)
    work: list[Callable[[], list[Probe]]] = [
        partial(_try_host, machine, groups[name], [disk for disk in disks if disk.place.host == name])
        for name, machine in machines.items()
    ]
    for more in in_parallel(lambda one: one(), work):
        probes += more
    return probes


def tell(probes: Sequence[Probe], journal: Journal) -> None:
    """Record the probes: one that does not agree is a finding."""
    for probe in probes:
        host = probe.host or NETWORK
        if probe.kind != "sysctl" or not probe.agrees:
            journal.event(host, "probe", probe.as_json())
        if not probe.agrees:
            journal.finding(
                host,
                "limit-not-as-asked",
                f"{probe.kind} {probe.subject}",
                f"expected {probe.expected}, found {probe.found}",
                "the testbed is not what the scenario says: see what else runs on this machine",
            )


def _try_host(machine: LabMachine, groups: Mapping[str, Path], disks: Sequence[Disk]) -> list[Probe]:
    """Try the limits of a host one after the other: a disk looks slow, or fast in bursts, from a host whose cores are taken."""
    probes = probe_cores(machine)
    if "cpu" in groups:
        probes += probe_cpu(machine, groups["cpuacct"])
    if "memory" in groups:
        probes += probe_memory(machine, groups["memory"])
    for disk in disks:
        probes += probe_disk(machine, disk.name, disk.place, disk.folder, disk.device)
    return probes
