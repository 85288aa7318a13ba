"""Plan of a sweep: header and trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan import (
    ActorLine,
    DropCaches,
    Parallel,
    Pause,
    Plan,
    Prepare,
    Signal,
    Step,
    Totals,
    TransferStep,
    Trial,
    Wait,
)
from venturi.plan.steps import CacheBefore
from venturi.testbed.services.table import SERVICES
from venturi.workload.header import plan_header
from venturi.workload.layout import ResolvedPoint, Role, SweepLayout
from venturi.workload.streams import shuffled

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.sweep import Sweep

__all__ = ["sweep_plan"]

ACTOR = "sweep"
TURN = "sweep.turn"
"""Counter of finished trials: trials of several hosts must not overlap."""
REST_S = 0.5
"""Pause before a trial with servers that accept one client at a time: after a client they are briefly busy or do not listen.

Measured: 5 of 72 consecutive calls of iperf3 to hosts at 7 to 44 ms failed without a pause."""


def sweep_plan(scenario: Scenario, sweep: Sweep, layout: SweepLayout, parts: ResolvedTestbed) -> Plan:
    """Return the plan of a resolved sweep."""
    header = plan_header(
        scenario,
        parts,
        datasets=layout.datasets,
        calls=layout.calls,
        totals=_totals(sweep, layout),
    )
    resting = frozenset(
        name
        for name, service in parts.services.items()
        if getattr(SERVICES.get(service.kind), "single_client_per_port", False)
    )
    return Plan(header, _SweepActorLines(scenario.seed, sweep.repeat, sweep.order == "random", layout, resting))


@dataclass(frozen=True)
class _SweepActorLines:
    """Actor lines; each iteration yields the same lines."""

    seed: int
    repeat: int
    random: bool
    layout: SweepLayout
    resting: frozenset[str]

    def __iter__(self) -> Iterator[ActorLine]:
        resolved_points = self.layout.resolved_points
        hosts = {resolved.host for resolved in resolved_points}
        positions = dict.fromkeys(self.layout.datasets, 0)
        number = 0
        for block in range(self.repeat):
            order = (
                shuffled(len(resolved_points), self.seed, "order", block)
                if self.random
                else range(len(resolved_points))
            )
            for index in order:
                resolved = resolved_points[index]
                first = {name: self._first_file(name, read, positions) for name, read in resolved.reads}
                # A block contains every point once, so the block number is the repetition.
                trial = self._trial(f"t{number:07d}", index, block, first)
                steps: tuple[Step, ...] = (trial,)
                if len(hosts) > 1:
                    steps = (Wait(TURN, number), trial, Signal(TURN, 1)) if number else (trial, Signal(TURN, 1))
                yield ActorLine(ACTOR if len(hosts) == 1 else f"{ACTOR}-{resolved.host}", resolved.host, steps)
                number += 1

    def _first_file(self, dataset: str, read: int, positions: dict[str, int]) -> int:
        """Return the first file of the trial, and advance, so that consecutive trials read different files."""
        first = positions[dataset]
        if first + read > self.layout.datasets[dataset].files:
            first = 0
        positions[dataset] = first + read
        return first

    def _trial(self, trial: str, point: int, block: int, first: Mapping[str, int]) -> Trial:
        resolved = self.layout.resolved_points[point]
        warm: CacheBefore = "warm" if resolved.cache == "warm" else "as_is"
        steps: list[Step] = [Prepare(name, first[name], read, warm) for name, read in resolved.reads]
        if resolved.cache == "cold":
            steps += [DropCaches(name, first[name], read) for name, read in resolved.reads]
        if any(via.partition("/")[0] in self.resting for role in resolved.roles for via in _service_ports(role)):
            steps.append(Pause(REST_S))
        steps.append(Parallel(tuple((transfer,) for transfer in _transfers(trial, resolved, first, self.layout))))
        return Trial(trial, point, block, block, resolved.factors, tuple(steps))


def _service_ports(role: Role) -> list[str]:
    return [via for via in (role.source_via, role.destination_via) if via is not None]


def _transfers(
    trial: str, resolved: ResolvedPoint, first: Mapping[str, int], layout: SweepLayout
) -> Iterator[TransferStep]:
    files, size = resolved.files_per_call, resolved.call_bytes
    prefixes = [_endpoint_prefixes(trial, role, resolved, first, layout) for role in resolved.roles]
    for slot in range(resolved.files):
        for role, (source, index, target) in zip(resolved.roles, prefixes, strict=True):
            yield TransferStep(
                role.call,
                slot,
                source(index + slot * files) if source else "zero:",
                f"{target}{slot:06d}{role.suffix}" if target else "null:",
                files,
                size,
                False,
                role.labels,
                role.source_via,
                role.destination_via,
            )


def _endpoint_prefixes(
    trial: str, role: Role, resolved: ResolvedPoint, first: Mapping[str, int], layout: SweepLayout
) -> tuple[Callable[[int], str] | None, int, str]:
    """Return the source of a role by number (none for a device), its first number, and the prefix of its destination."""
    source: Callable[[int], str] | None = None
    index = 0
    if role.dataset is not None:
        dataset = layout.datasets[role.dataset]
        source = dataset.endpoint
        index = first[role.dataset] + role.reader * resolved.files * resolved.files_per_call
    # One directory for all trials: separate directories would leave many empty ones.
    return source, index, "" if role.destination is None else f"{role.destination}:out/{trial}-"


def _totals(sweep: Sweep, layout: SweepLayout) -> Totals:
    transfers = sum(resolved.files * len(resolved.roles) for resolved in layout.resolved_points)
    moved = sum(resolved.moved_bytes for resolved in layout.resolved_points)
    disk: dict[str, int] = {}
    for dataset in layout.datasets.values():
        if dataset.is_existing:
            continue
        disk[dataset.storage] = disk.get(dataset.storage, 0) + dataset.bytes
    written: dict[str, int] = {}
    for resolved in layout.resolved_points:
        for storage, size in resolved.written_bytes().items():
            if size:
                written[storage] = max(written.get(storage, 0), size)
    for storage, size in written.items():
        disk[storage] = disk.get(storage, 0) + size
    return Totals(len(layout.resolved_points) * sweep.repeat, transfers * sweep.repeat, moved * sweep.repeat, disk)
