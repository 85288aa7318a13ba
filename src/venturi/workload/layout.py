"""Resolution of a sweep: calls, datasets, hosts and disk space."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from venturi.messages import Problem, path_text
from venturi.mover import Mover, resolve_options
from venturi.mover.base import MAX_WHOLE, OptionError
from venturi.plan import Call, Dataset
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.testbed.existing_files import read_names
from venturi.units import format_bytes, format_bytes_exact
from venturi.workload.design import Design, DesignPoint, scale_clashes, scaled_bytes
from venturi.workload.endpoints import EndpointError, EndpointRequest, EndpointResolver, TransferEndpoints
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.sweep import Sweep

__all__ = ["MAX_DATASET_FILES", "ResolvedPoint", "Role", "SweepLayout", "resolve_points"]

MAX_DATASET_FILES = 10**6
"""Maximum number of files in a dataset: six digits."""

_NO_LABELS: Mapping[str, FactorValue] = MappingProxyType({})
_DIRECTION_LABELS: Mapping[bool, Mapping[str, FactorValue]] = {
    False: {"direction": "forward"},
    True: {"direction": "reverse"},
}
"""Labels of transfers in two directions."""


@dataclass(frozen=True, slots=True)
class Role:
    """One mover in a slot of a trial, in one direction.

    Attributes
    ----------
    dataset, reader
        Dataset, ``None`` without a source, and index among the readers of the dataset in the slot.
    destination
        Destination storage, ``None`` for ``null``.
    source_via, destination_via
        ``service/port`` of each endpoint, ``None`` for a file of the host.
    suffix
        Suffix of the destination name, distinct in the slot.
    """

    call: str
    dataset: str | None
    reader: int
    destination: str | None
    source_via: str | None
    destination_via: str | None
    suffix: str
    labels: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True)
class ResolvedPoint:
    """Resolved design point: common values of its trials.

    ``reads`` are the datasets of a trial and the number of files of each.
    """

    host: str
    files: int
    files_per_call: int
    size_bytes: int
    cache: str
    roles: tuple[Role, ...]
    reads: tuple[tuple[str, int], ...]
    factors: Mapping[str, FactorValue]

    @property
    def call_bytes(self) -> int:
        """Bytes of a call."""
        return self.files_per_call * self.size_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes of a trial."""
        return self.files * len(self.roles) * self.call_bytes

    def written_bytes(self) -> dict[str, int]:
        """Return the bytes that a trial leaves on each storage."""
        found: dict[str, int] = {}
        for role in self.roles:
            if role.destination is not None:
                found[role.destination] = found.get(role.destination, 0) + self.files * self.call_bytes
        return found


@dataclass(frozen=True, slots=True)
class SweepLayout:
    """Resolved points by number, with their calls and datasets."""

    resolved_points: tuple[ResolvedPoint, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]


def resolve_points(
    scenario: Scenario, sweep: Sweep, design: Design, parts: ResolvedTestbed, problems: list[Problem]
) -> SweepLayout:
    """Return the resolved points of a sweep; errors are appended to ``problems``."""
    sizes = {point.size_bytes: scaled_bytes(point.size_bytes, scenario.scale) for point in design.points}
    clash = scale_clashes(sizes)
    if clash:
        problems.append(("scale", clash))
    resolver = _SweepPointResolver(scenario, sweep, design, parts, problems)
    resolved_points = tuple(resolver.resolve(point) for point in design.points)
    moved = sweep.repeat * sum(resolved.moved_bytes for resolved in resolved_points)
    if moved > MAX_WHOLE:
        problems.append(
            (
                "workload.factors.size",
                f"expected at most 8 EiB in total, found {format_bytes(moved)}; reduce repeat or the sizes",
            )
        )
    return SweepLayout(
        resolved_points, resolver.calls, _datasets(scenario, sweep, resolved_points, resolver.storages, problems)
    )


class _CallNames:
    """One call for each mover and set of options; its name contains the options that differ within the plan."""

    def __init__(self, design: Design, timeout_s: float) -> None:
        self.calls: dict[str, Call] = {}
        self._timeout_s = timeout_s
        self._varied: dict[str, dict[str, set[OptionValue]]] = {}
        self._sinks: dict[str, set[bool]] = {}
        for point in design.points:
            for mover in point.movers:
                values = self._varied.setdefault(mover.name, {})
                for key, value in resolve_options(mover, point.options).items():
                    values.setdefault(key, set()).add(value)
                self._sinks.setdefault(mover.name, set()).add(point.destination == "null")

    def name(self, mover: Mover, point: DesignPoint, *, bearer: bool) -> str:
        """Return the name of the call of ``mover`` at this point, and create the call if necessary.

        With ``bearer``, this option is set if it is not set in the scenario.
        """
        options = resolve_options(mover, point.options)
        varied = self._varied[mover.name]
        parts = [f"{key}={_format_value(value)}" for key, value in options.items() if len(varied[key]) > 1]
        if bearer and options.get("bearer", True) is None:
            options["bearer"] = True
            parts.append("bearer")
        sink = mover.writes and point.destination == "null"
        if sink and len(self._sinks[mover.name]) > 1:
            parts.append("null")
        name = ",".join([mover.name, *parts])
        if name not in self.calls:
            call = dataclasses.replace(mover.call(options), timeout_s=self._timeout_s)
            self.calls[name] = dataclasses.replace(call, expect="nothing") if sink else call
        return name


class _SweepPointResolver:
    """Resolves the points."""

    def __init__(
        self, scenario: Scenario, sweep: Sweep, design: Design, parts: ResolvedTestbed, problems: list[Problem]
    ) -> None:
        self._scenario, self._sweep, self._keys = scenario, sweep, design.keys
        self._problems = problems
        self._names = _CallNames(design, sweep.timeout)
        self._resolver = EndpointResolver(scenario, sweep.factors, parts)
        self.storages: dict[str, str] = {}
        """Storage of each dataset."""

    @property
    def calls(self) -> Mapping[str, Call]:
        """Calls of the points that are resolved."""
        return self._names.calls

    def resolve(self, point: DesignPoint) -> ResolvedPoint:
        """Return the resolved point; errors are appended to the problems."""
        size = scaled_bytes(point.size_bytes, self._scenario.scale)
        roles: list[Role] = []
        readers: dict[str, int] = {}
        client = point.client
        for back in (False, True) if point.bidirectional else (False,):
            for mover in point.movers:
                endpoints = self._resolve_endpoints(mover, point, client, back)
                client = client or (endpoints.client if endpoints else None)
                roles.append(self._role(mover, point, size, endpoints, back, readers))
        factors = {self._keys[name]: value for name, value in point.varied.items()}
        return ResolvedPoint(
            host=client or "",
            files=point.files,
            files_per_call=point.files_per_call,
            size_bytes=size,
            cache=point.cache,
            roles=tuple(roles),
            reads=tuple((name, point.files * point.files_per_call * count) for name, count in readers.items()),
            factors={**factors, "size_bytes": size},
        )

    def _resolve_endpoints(
        self, mover: Mover, point: DesignPoint, client: str | None, back: bool
    ) -> TransferEndpoints | None:
        request = EndpointRequest(
            source=point.source if mover.reads else None,
            destination=point.destination if mover.writes else None,
            client=client,
            source_service=point.source_service,
            destination_service=point.destination_service,
        )
        self._check_point(mover, point)
        try:
            endpoints = self._resolver.resolve(mover, request.back if back else request)
        except EndpointError as error:
            self._add_problem(self._resolver.to_problem(error))
            return None
        self._check_ports(mover, point, endpoints)
        if self._resolver.sends_token(mover, endpoints) and getattr(mover, "lacks_token", False):
            self._add_key_problem(
                "mover",
                f"expected a mover that can send the bearer token of {endpoints.client} without showing it on its command"
                f" line, found {mover.name}; use curl, wget, gfal-copy or venturi",
            )
        if conflict := self._resolver.option_conflict(mover, point.options, endpoints):
            self._add_problem(conflict)
        if (
            point.destination == "null"
            and mover.writes
            and not mover.null_destination
            and not endpoints.destination_via
        ):
            self._add_key_problem(
                "destination",
                f'expected a storage ({mover.name} could replace the device /dev/null), found "null"; name a storage',
            )
        return endpoints

    def _check_ports(self, mover: Mover, point: DesignPoint, endpoints: TransferEndpoints) -> None:
        """Reject more concurrent clients than ports of a server with one client per port."""
        for via in (endpoints.source_via, endpoints.destination_via):
            name = via.partition("/")[0] if via else ""
            ports = self._resolver.single_ports(name)
            if ports is not None and point.files > ports:
                self._add_key_problem("files", f"expected {ports} at most ({name}: one {mover.name} per port), found {point.files}; "
                            f"increase testbed.service.{name}.ports")  # fmt: skip

    def _check_point(self, mover: Mover, point: DesignPoint) -> None:
        if point.files_per_call > 1 and not mover.lists:
            self._add_key_problem(
                "files_per_call",
                f"expected 1 ({mover.name} accepts one file per call), found {point.files_per_call}; remove files_per_call",
            )
        source = self._scenario.testbed.storage.get(point.source or "")
        if point.files_per_call > 1 and source is not None and source.existing is not None:
            self._add_key_problem(
                "files_per_call",
                f"expected 1 ({point.source} has existing files), found {point.files_per_call}; remove files_per_call",
            )
        if point.files_per_call > 1 and point.destination == "null" and not getattr(mover, "null_lists", True):
            self._add_key_problem(
                "destination",
                f'expected a storage ({mover.name} copies a list to a directory only), found "null"; name a storage',
            )
        if point.bidirectional and not (
            mover.reads and mover.writes and point.destination != "null" and point.source != "zero"
        ):
            self._add_key_problem("direction", f'expected "one way" ({mover.name} at this point does not copy between storages), '
                        'found "two ways"; use a mover that copies files')  # fmt: skip
        if not (mover.reads or mover.writes or point.size_bytes) and point.options.get("time") is None:
            self._add_key_problem("size", f"expected 1 B or more (for {mover.name}, 0 B is no limit, or it sends a block), found 0 B; "
                        "remove this size, or set the option time")  # fmt: skip
        if mover.reads and point.source == "zero" and not point.options.get("length"):
            self._add_key_problem("source", f"expected a storage, or the option length = true ({mover.name} would never reach the "
                        'end of the zeros), found "zero"; set length = true')  # fmt: skip

    def _role(
        self,
        mover: Mover,
        point: DesignPoint,
        size: int,
        endpoints: TransferEndpoints | None,
        back: bool,
        readers: dict[str, int],
    ) -> Role:
        source, destination = (point.destination, point.source) if back else (point.source, point.destination)
        dataset, reader = None, 0
        if mover.reads and source is not None and source != "zero":
            dataset = f"{source}-{_size_text(size)}"
            self.storages[dataset] = source
            reader = readers.get(dataset, 0)
            readers[dataset] = reader + 1
        suffix = (f"-{mover.name}" if len(point.movers) > 1 else "") + ("-back" if back else "")
        try:
            bearer = endpoints is not None and self._resolver.sends_token(mover, endpoints)
            call = self._names.name(mover, point, bearer=bearer)
        except OptionError as error:
            call = mover.name
            self._add_problem(("workload.options", str(error)))
        return Role(
            call=call,
            dataset=dataset,
            reader=reader,
            destination=destination if mover.writes and destination != "null" else None,
            source_via=endpoints.source_via if endpoints else None,
            destination_via=endpoints.destination_via if endpoints else None,
            suffix=suffix,
            labels=_DIRECTION_LABELS[back] if point.bidirectional else _NO_LABELS,
        )

    def _add_key_problem(self, key: str, problem: str) -> None:
        self._add_problem(self._resolver.to_problem(EndpointError(key, problem)))

    def _add_problem(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def _datasets(
    scenario: Scenario,
    sweep: Sweep,
    resolved_points: tuple[ResolvedPoint, ...],
    storages: Mapping[str, str],
    problems: list[Problem],
) -> dict[str, Dataset]:
    largest: dict[str, int] = {}
    used: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for resolved in resolved_points:
        for name, read in resolved.reads:
            largest[name] = max(largest.get(name, 0), read)
            used[name] = used.get(name, 0) + read * sweep.repeat
            sizes[name] = resolved.size_bytes
    found = {}
    for name, size in sizes.items():
        storage = storages[name]
        files = largest[name]
        written = scenario.testbed.storage.get(storage)
        if written is not None and written.existing is True:
            # Files with other maximum sizes are other files.
            found[name] = Dataset(storage, f"existing/{_size_text(size)}", files, size, 0, listed=True)
            continue
        if written is not None and written.existing is not None:
            names = read_names(storage, written, problems)
            if names and len(names) < files:
                where = path_text(("testbed", "storage", storage, "existing"))
                problems.append(
                    (
                        where,
                        f"expected {files} files or more (for a trial), found {len(names)} in the list; add files",
                    )
                )
            found[name] = Dataset(storage, "", len(names), size, 0, names=names)
            continue
        volume = _volume_bytes(scenario, sweep, storage, problems)
        if volume and size:
            # Ranges of up to m files rotate over F files without splits. So between two reads of a file there are at least
            # F - 3 m + 2 other files (m - 1 skipped at the end, up to m - 1 in the same range each time).
            files = -(-volume // size) + 3 * files - 2
        files = min(files, used[name])
        if files > MAX_DATASET_FILES:
            where = "workload.data_at_least" if volume else "workload.factors.files"
            what = f"{files} files of {format_bytes(size)}"
            problems.append(
                (where, f"expected at most {MAX_DATASET_FILES} files in a dataset, found {what}; use larger files")
            )
        seed = draw_bits(scenario.seed, "dataset", _size_text(size), bits=53)
        found[name] = Dataset(storage, f"sets/seed{scenario.seed}/{_size_text(size)}", files, size, seed)
    return found


def _volume_bytes(scenario: Scenario, sweep: Sweep, storage: str, problems: list[Problem]) -> int:
    volume = sweep.data_at_least
    if volume is None:
        return 0
    if volume.size_bytes is not None:
        return scaled_bytes(volume.size_bytes, scenario.scale)
    host = scenario.testbed.storage[storage].host
    machine = scenario.testbed.host.get(host)
    if machine is None or machine.memory is None:
        where = path_text(("testbed", "host", host, "memory"))
        problem = (where, 'expected its memory, such as "16 GiB" (for workload.data_at_least), found nothing; add it')
        if machine is not None and problem not in problems:
            problems.append(problem)
        return 0
    # The memory of a real host does not scale.
    return round(machine.memory * (volume.memories or 0))


def _size_text(size_bytes: int) -> str:
    return format_bytes_exact(size_bytes).replace(" ", "")


def _format_value(value: OptionValue) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else "default" if value is None else str(value)
