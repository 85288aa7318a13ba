"""Batches of jobs resolved: on which host each job runs, what it reads and by which way, and how its files come to be there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from venturi.errors import UnitError
from venturi.mover import Mover, resolve_options
from venturi.mover.base import OptionError
from venturi.mover.root_write import RootWrite
from venturi.plan import Call, Dataset
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.tools import movers_of
from venturi.scenario.words import Problem, one_of, path_text
from venturi.testbed.network import scaled_bytes
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload.ends import Asked, EndsError, Router
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.jobs import Application, Configuration, Jobs

__all__ = ["WORKER", "Batch", "Job", "Layout", "Made", "lay_out"]

WORKER = "{worker}"
"""In the name of a storage: the worker that the job runs on."""

_WRITER = RootWrite()


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a batch: its number, and what it reads by which way (``None``: nothing, or as a file of its host)."""

    number: int
    source: str | None
    source_via: str | None
    destination_via: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """A point: all that its trials share.

    Attributes
    ----------
    hosts
        Worker → its jobs, in the order of the workers.
    drops
        Data sets that are to leave the caches before, by the host that sees them.
    compute_core_s
        Of each job, after it has read.
    """

    application: str
    call: str
    size_bytes: int
    compute_core_s: float
    hosts: Mapping[str, tuple[Job, ...]]
    drops: Mapping[str, str]
    factors: Mapping[str, FactorValue]

    @property
    def jobs(self) -> int:
        """How many there are."""
        return sum(map(len, self.hosts.values()))


@dataclass(frozen=True, slots=True)
class Made:
    """Files that are made before the first batch, on a host: by a call of ``root-write``, or (``None``) by the agent, at random."""

    host: str
    dataset: str
    call: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The batches by number of point, and what they refer to."""

    batches: tuple[Batch, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]
    made: tuple[Made, ...]


def lay_out(scenario: Scenario, jobs: Jobs, parts: ResolvedTestbed, problems: list[Problem]) -> Layout | None:
    """Return the batches, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    _check_names(scenario, jobs, problems)
    if len(problems) > before:
        return None
    maker = _Maker(scenario, jobs, parts, problems)
    batches = tuple(maker.batches())
    if len(problems) > before:
        return None
    return Layout(batches, maker.calls, maker.datasets, tuple(maker.made.values()))


def _check_names(scenario: Scenario, jobs: Jobs, problems: list[Problem]) -> None:
    testbed = scenario.testbed
    for key in ("workers", "observe"):
        for index, name in enumerate(getattr(jobs, key) or ()):
            if name not in testbed.host:
                problems.append((f"workload.{key}[{index}]", one_of("the hosts", testbed.host, name)))
    for key, tables in (("configuration", jobs.configuration), ("application", jobs.application)):
        if not tables:
            problems.append((f"workload.{key}", f"expected a table [workload.{key}.NAME] or more, found none"))
    for name, told in jobs.configuration.items():
        where = path_text(("workload", "configuration", name))
        for index, service in enumerate(told.service or ()):
            if service not in testbed.service:
                problems.append((f"{where}.service[{index}]", one_of("the services", testbed.service, service)))
        for key in ("storage", "made_in"):
            for index, storage in enumerate(getattr(told, key) or ()):
                _check_storage(scenario, jobs, storage, f"{where}.{key}[{index}]", problems)
        if told.service and len(told.service) not in (1, max(1, len(told.storage))):
            found = f"{len(told.service)} for {len(told.storage)} storages"
            problems.append((f"{where}.service", f"expected one service, or one a storage, found {found}"))
    if jobs.window and jobs.window.workers + jobs.window.positions - 1 > len(jobs.workers):
        found = f"{jobs.window.workers} of them at {jobs.window.positions} positions"
        problems.append(
            ("workload.window", f"expected a window within the {len(jobs.workers)} workers, found {found}")
        )
    for index, name in enumerate(scenario.analyse.against):
        if name not in ("files", "size", "jobs", "configuration", "application"):
            known = ("jobs", "configuration", "application")
            problems.append((f"analyse.against[{index}]", one_of("the factors", known, name)))


def _check_storage(scenario: Scenario, jobs: Jobs, storage: str, where: str, problems: list[Problem]) -> None:
    for worker in jobs.workers if WORKER in storage else ("",):
        name = storage.replace(WORKER, worker)
        if name not in scenario.testbed.storage:
            problems.append((where, one_of("the storages", scenario.testbed.storage, name)))
            return


@dataclass
class _Maker:
    """Makes the batches; what is wrong is noted once."""

    scenario: Scenario
    jobs: Jobs
    parts: ResolvedTestbed
    problems: list[Problem]
    calls: dict[str, Call] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._router = Router(self.scenario, (), self.parts)
        self._tools = movers_of(self.scenario)[0]

    def batches(self) -> Iterator[Batch]:
        """Yield the batches: configurations, in each of them applications, sizes, positions of the window."""
        for name, application in self.jobs.application.items():
            self._application(name, application)
        if self.problems:
            return
        for configuration, told in self.jobs.configuration.items():
            for name, application in self.jobs.application.items():
                mover = self._tools[application.mover]
                if mover.reads and not self._prepare(configuration, told, name, application):
                    continue
                for count in self.jobs.jobs:
                    for position, workers in self._windows():
                        yield self._batch(configuration, told, name, application, count, position, workers)

    def _windows(self) -> Iterator[tuple[int | None, tuple[str, ...]]]:
        window = self.jobs.window
        if window is None:
            yield None, self.jobs.workers
            return
        for first in range(window.positions):
            yield first + 1, self.jobs.workers[first : first + window.workers]

    def _batch(
        self, configuration: str, told: Configuration, name: str, application: Application, count: int, position: int | None,
        workers: tuple[str, ...],
    ) -> Batch:  # fmt: skip
        hosts: dict[str, list[Job]] = {}
        drops: dict[str, str] = {}
        mover = self._tools[application.mover]
        for number in range(count):
            worker = workers[number % len(workers)]
            # Storages alternate along the workers and on each of them: counted by the number of the job alone, a worker might have one only.
            turn = sum(divmod(number, len(workers)))
            job = self._job(configuration, told, name, mover, number, worker, turn, drops)
            if job is not None:
                hosts.setdefault(worker, []).append(job)
        size = scaled_bytes(application.size, self.scenario.scale)
        has_compute = any(option.name == "compute" for option in mover.options)
        return Batch(
            application=name,
            call=name,
            size_bytes=size,
            compute_core_s=0.0 if has_compute else application.compute,
            hosts={worker: tuple(own) for worker, own in hosts.items()},
            drops=drops,
            factors={
                "configuration": configuration,
                "application": name,
                "jobs": count,
                **({} if position is None else {"first_worker": position}),
                "files": count,
                "size_bytes": size,
            },
        )

    def _job(
        self, configuration: str, told: Configuration, name: str, mover: Mover, number: int, worker: str, turn: int,
        drops: dict[str, str],
    ) -> Job | None:  # fmt: skip
        where = path_text(("workload", "configuration", configuration))
        services = told.service or ()
        service = services[turn % len(services)] if services else None
        storage = told.storage[turn % len(told.storage)].replace(WORKER, worker) if mover.reads else None
        asked = Asked(
            source=storage,
            destination="null" if mover.writes else None,
            client=worker,
            source_service=service if mover.reads else None,
            destination_service=None if mover.reads else service,
        )
        try:
            ends = self._router.ends(mover, asked)
        except EndsError as error:
            keys = {"source": "storage", "source_service": "service", "destination_service": "service"}
            self._note(f"{where}.{keys.get(error.key, 'service')}", str(error))
            return None
        self._check_ports(where, mover, service)
        if storage is None:
            return Job(number, None, None, ends.destination_via)
        made_in = (told.made_in or told.storage)[turn % len(told.made_in or told.storage)].replace(WORKER, worker)
        made = self.datasets[_dataset_name(name, made_in)]
        if self.jobs.cache == "cold":
            self._drop(name, made, made_in, storage, worker, ends.source_via, drops)
        return Job(number, f"{storage}:{made.path}/{number:06d}", ends.source_via, None)

    def _drop(
        self,
        name: str,
        made: Dataset,
        made_in: str,
        storage: str,
        worker: str,
        via: str | None,
        drops: dict[str, str],
    ) -> None:
        """Note which files leave which caches: in a lab, whose hosts have one kernel, those of all at once; else those of each worker."""
        if self.scenario.testbed.is_lab:
            drops[self.scenario.testbed.storage[made_in].host] = _dataset_name(name, made_in)
        elif via is None:
            seen = _dataset_name(name, storage)
            self.datasets.setdefault(seen, dataclasses.replace(made, place=storage))
            drops[worker] = seen

    def _check_ports(self, where: str, mover: Mover, service: str | None) -> None:
        ports = None if service is None else self._router.single_ports(service)
        if ports is not None and max(self.jobs.jobs) > ports:
            self._note(f"{where}.service", f"expected {max(self.jobs.jobs)} ports or more of {service} (it serves one {mover.name} a port), "
                       f"found {ports}; testbed.service.{service}.ports says how many it has")  # fmt: skip

    def _application(self, name: str, application: Application) -> None:
        """Check an application, and make its call."""
        where = path_text(("workload", "application", name))
        mover = self._tools.get(application.mover)
        if mover is None:
            self._note(f"{where}.mover", one_of("the movers", self._tools, application.mover))
            return
        if mover.writes and not (mover.reads and mover.null_destination):
            self._note(
                f"{where}.mover", f"expected a mover that only reads (a job keeps nothing), found {mover.name}"
            )
        if application.format == "random" and (application.unique is not None or application.shape):
            key = "unique" if application.unique is not None else "shape"
            self._note(f"{where}.{key}", 'expected format = "root" beside it, found format = "random"')
        given = self._options(where, mover, application)
        options = resolve_options(mover, given)
        try:
            call = mover.call(options)
        except OptionError as error:
            self._note(f"{where}.options", str(error))
            return
        self.calls[name] = dataclasses.replace(call, timeout_s=self.jobs.timeout, expect="nothing")

    def _options(self, where: str, mover: Mover, application: Application) -> dict[str, OptionValue]:
        given = self._parsed(f"{where}.options", mover, application.options)
        known = {option.name for option in mover.options}
        if application.rate is not None:
            if "rate" not in known:
                self._note(f"{where}.rate", f"expected a mover with the option rate, found {mover.name}")
            # Rounded as an option is; a job of less than a byte a second is none.
            given["rate"] = max(1, round(application.rate / BITS_PER_BYTE * self.scenario.scale))
        if application.compute and "compute" in known:
            given["compute"] = application.compute
        return given

    def _parsed(self, where: str, mover: Mover, written: Mapping[str, object]) -> dict[str, OptionValue]:
        given: dict[str, OptionValue] = {}
        options = {option.name: option for option in mover.options}
        for key, value in written.items():
            if key not in options:
                self._note(
                    path_text((where, key)).replace('"', ""), one_of(f"the options of {mover.name}", options, key)
                )
                continue
            try:
                given[key] = options[key].parse(value)
            except UnitError as error:
                self._note(f"{where}.{key}", str(error))
        return given

    def _prepare(self, configuration: str, told: Configuration, name: str, application: Application) -> bool:
        """Make the data sets of an application in the storages of a configuration; return whether it has any."""
        if not told.storage:
            where = f"{path_text(('workload', 'configuration', configuration))}.storage"
            self._note(
                where, f"expected storages that {application.mover} reads from (for {name}), one or more, found none"
            )
            return False
        size = scaled_bytes(application.size, self.scenario.scale)
        for made_in in told.made_in or told.storage:
            for worker in self.jobs.workers if WORKER in made_in else ("",):
                self._make(name, application, made_in.replace(WORKER, worker), size)
        return True

    def _make(self, name: str, application: Application, storage: str, size: int) -> None:
        dataset = _dataset_name(name, storage)
        if dataset in self.datasets:
            return
        seed = draw_bits(self.scenario.seed, "jobs", name, bits=53)
        unique = application.unique or max(self.jobs.jobs)
        shape = "".join(f"-{key}{value}" for key, value in application.shape.items())
        kind = f"root-{unique}{shape}" if application.format == "root" else "random"
        path = f"jobs/seed{self.scenario.seed}/{name}-{format_bytes_exact(size).replace(' ', '')}-{kind}"
        self.datasets[dataset] = Dataset(storage, path, max(self.jobs.jobs), size, seed)
        call = None
        if application.format == "root":
            call = f"make-{name}"
            where = f"{path_text(('workload', 'application', name))}.shape"
            given = {"unique": unique, "seed": seed, **self._parsed(where, _WRITER, application.shape)}
            made = _WRITER.call(resolve_options(_WRITER, given))
            self.calls[call] = dataclasses.replace(made, timeout_s=self.jobs.timeout)
        self.made[dataset] = Made(self.scenario.testbed.storage[storage].host, dataset, call)

    def _note(self, where: str, problem: str) -> None:
        if (where, problem) not in self.problems:
            self.problems.append((where, problem))


def _dataset_name(application: str, storage: str) -> str:
    return f"{application}@{storage}"
