"""Execution of all probes of a lab, in parallel if they do not disturb each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from venturi.testbed.lab.groups import HostGroups
from venturi.testbed.lab.host_setup import Disk, Groups, in_parallel
from venturi.testbed.lab.host_shell import LabHostShell
from venturi.testbed.lab.interfaces import FoundSettings
from venturi.testbed.lab.namespaces import LabNamespaces
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
from venturi.testbed.lab.spec import LabSpec
from venturi.testbed.record_buffer import NETWORK, RecordBuffer

__all__ = ["record_probes", "run_probes"]


def run_probes(
    spec: LabSpec,
    namespaces: LabNamespaces,
    shells: Mapping[str, LabHostShell],
    groups: Groups,
    disks: Sequence[Disk],
    found: Mapping[str, FoundSettings],
    settings: Mapping[str, Mapping[str, str]],
) -> list[Probe]:
    """Run all probes of the lab and return their results."""
    probes = [
        probe for name, host in spec.hosts.items() for probe in probe_settings(host, settings[name], found[name])
    ]
    # Links first and alone: the CPU probes load a core, which increases round-trip times.
    probes += probe_network(namespaces, covering_pings(spec), spec.hosts)
    work: list[Callable[[], list[Probe]]] = [
        partial(_probe_host, shell, groups[name], [disk for disk in disks if disk.storage.host == name])
        for name, shell in shells.items()
    ]
    for more in in_parallel(lambda one: one(), work):
        probes += more
    return probes


def record_probes(probes: Sequence[Probe], records: RecordBuffer) -> None:
    """Record the probes; a mismatch is a finding."""
    for probe in probes:
        host = probe.host or NETWORK
        if probe.kind != "sysctl" or not probe.agrees:
            records.event(host, "probe", probe.as_json())
        if not probe.agrees:
            records.finding(
                host,
                "limit-mismatch",
                f"{probe.kind} {probe.subject}",
                f"expected {probe.expected}, found {probe.found}",
                "The testbed differs from the scenario. Check for other programs on this machine.",
            )


def _probe_host(shell: LabHostShell, groups: HostGroups, disks: Sequence[Disk]) -> list[Probe]:
    """Run the probes of a host sequentially, because busy cores distort the rate of its disks."""
    probes = probe_cores(shell)
    probes += probe_cpu(shell, groups)
    probes += probe_memory(shell, groups)
    for disk in disks:
        probes += probe_disk(shell, disk.name, disk.storage, disk.directory, disk.device)
    return probes
