"""Resolution of the workload ``jobs``: host, file and service of each job, and creation of the files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from venturi.errors import UnitError
from venturi.messages import Problem, one_of, path_text
from venturi.mover import Mover, resolve_options
from venturi.mover.base import OptionError
from venturi.mover.root_write import RootWrite
from venturi.plan import Call, Dataset
from venturi.plan.header import OptionValue
from venturi.plan.steps import FactorValue
from venturi.scenario.tools import resolve_movers
from venturi.testbed.network import scaled_bytes
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload.endpoints import EndpointError, EndpointRequest, EndpointResolver
from venturi.workload.streams import draw_bits

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.jobs import Application, Configuration, JobsWorkload

__all__ = ["WORKER", "GeneratedFiles", "Job", "JobBatch", "JobsLayout", "resolve_jobs"]

WORKER = "{worker}"
"""Placeholder in the name of a storage for the worker of the job; in ``observe``, all workers."""

_WRITER = RootWrite()


@dataclass(frozen=True, slots=True)
class Job:
    """Job of a batch: its number, its source and service ports (``None``: no file, or a local file)."""

    number: int
    source: str | None
    source_via: str | None
    destination_via: str | None


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Design point: common values of its trials.

    Attributes
    ----------
    hosts
        Jobs of each worker, in the order of the workers.
    drops
        Datasets to drop from the caches before the batch, by host.
    compute_core_s
        CPU time of each job after the read.
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
        """Number of jobs."""
        return sum(map(len, self.hosts.values()))


@dataclass(frozen=True, slots=True)
class GeneratedFiles:
    """Files created before the first batch: by a call of ``root-write``, or by the agent (``None``, random bytes)."""

    host: str
    dataset: str
    call: str | None


@dataclass(frozen=True, slots=True)
class JobsLayout:
    """Batches by number, with their calls and datasets."""

    batches: tuple[JobBatch, ...]
    calls: Mapping[str, Call]
    datasets: Mapping[str, Dataset]
    generated: tuple[GeneratedFiles, ...]


def resolve_jobs(
    scenario: Scenario, jobs: JobsWorkload, parts: ResolvedTestbed, problems: list[Problem]
) -> JobsLayout | None:
    """Return the batches, or ``None`` after errors, which are appended to ``problems``."""
    before = len(problems)
    _check_names(scenario, jobs, problems)
    if len(problems) > before:
        return None
    resolver = _JobsResolver(scenario, jobs, parts, problems)
    batches = tuple(resolver.batches())
    if len(problems) > before:
        return None
    return JobsLayout(batches, resolver.calls, resolver.datasets, tuple(resolver.generated.values()))


def _check_names(scenario: Scenario, jobs: JobsWorkload, problems: list[Problem]) -> None:
    testbed = scenario.testbed
    for key in ("workers", "observe"):
        for index, name in enumerate(getattr(jobs, key) or ()):
            if name not in testbed.host and (key, name) != ("observe", WORKER):
                problems.append((f"workload.{key}[{index}]", one_of("the hosts", testbed.host, name)))
    for key, tables in (("configuration", jobs.configuration), ("application", jobs.application)):
        if not tables:
            problems.append(
                (f"workload.{key}", f"expected one or more tables [workload.{key}.NAME], found none; add one")
            )
    for name, config in jobs.configuration.items():
        where = path_text(("workload", "configuration", name))
        for index, service in enumerate(config.service or ()):
            if service not in testbed.service:
                problems.append((f"{where}.service[{index}]", one_of("the services", testbed.service, service)))
        for key in ("storage", "create_through"):
            for index, storage in enumerate(getattr(config, key) or ()):
                _check_storage(scenario, jobs, storage, f"{where}.{key}[{index}]", problems)
        if config.service and len(config.service) not in (1, max(1, len(config.storage))):
            found = f"{len(config.service)} for {len(config.storage)} storages"
            problems.append(
                (f"{where}.service", f"expected one service, or one for each storage, found {found}; change the list")
            )
    if jobs.window and jobs.window.workers + jobs.window.positions - 1 > len(jobs.workers):
        found = f"{jobs.window.workers} of them at {jobs.window.positions} positions"
        problems.append(
            (
                "workload.window",
                f"expected a window within the {len(jobs.workers)} workers, found {found}; reduce workers or positions",
            )
        )
    for index, name in enumerate(scenario.analyse.against):
        if name not in ("files", "size", "jobs", "configuration", "application"):
            known = ("jobs", "configuration", "application")
            problems.append((f"analyse.against[{index}]", one_of("the factors", known, name)))


def _check_storage(scenario: Scenario, jobs: JobsWorkload, storage: str, where: str, problems: list[Problem]) -> None:
    for worker in jobs.workers if WORKER in storage else ("",):
        name = storage.replace(WORKER, worker)
        if name not in scenario.testbed.storage:
            problems.append((where, one_of("the storages", scenario.testbed.storage, name)))
            return


@dataclass
class _JobsResolver:
    """Resolves the batches and collects errors."""

    scenario: Scenario
    jobs: JobsWorkload
    parts: ResolvedTestbed
    problems: list[Problem]
    calls: dict[str, Call] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    generated: dict[str, GeneratedFiles] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._resolver = EndpointResolver(self.scenario, (), self.parts)
        self._tools = resolve_movers(self.scenario)[0]

    def batches(self) -> Iterator[JobBatch]:
        """Yield the batches: for each configuration its applications, sizes and window positions."""
        for name, application in self.jobs.application.items():
            self._application(name, application)
        if self.problems:
            return
        for configuration, config in self.jobs.configuration.items():
            for name, application in self.jobs.application.items():
                mover = self._tools[application.mover]
                if mover.reads and not self._prepare(configuration, config, name, application):
                    continue
                for count in self.jobs.jobs:
                    for position, workers in self._windows():
                        yield self._batch(configuration, config, name, application, count, position, workers)

    def _windows(self) -> Iterator[tuple[int | None, tuple[str, ...]]]:
        window = self.jobs.window
        if window is None:
            yield None, self.jobs.workers
            return
        for first in range(window.positions):
            yield first + 1, self.jobs.workers[first : first + window.workers]

    def _batch(
        self, configuration: str, config: Configuration, name: str, application: Application, count: int, position: int | None,
        workers: tuple[str, ...],
    ) -> JobBatch:  # fmt: skip
        hosts: dict[str, list[Job]] = {}
        drops: dict[str, str] = {}
        mover = self._tools[application.mover]
        for number in range(count):
            worker = workers[number % len(workers)]
            # Rotate the storages over workers and over the jobs of each worker.
            turn = sum(divmod(number, len(workers)))
            job = self._job(configuration, config, name, mover, number, worker, turn, drops)
            if job is not None:
                hosts.setdefault(worker, []).append(job)
        size = scaled_bytes(application.size, self.scenario.scale)
        has_compute = any(option.name == "compute" for option in mover.options)
        return JobBatch(
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
        self, configuration: str, config: Configuration, name: str, mover: Mover, number: int, worker: str, turn: int,
        drops: dict[str, str],
    ) -> Job | None:  # fmt: skip
        where = path_text(("workload", "configuration", configuration))
        services = config.service or ()
        service = services[turn % len(services)] if services else None
        storage = config.storage[turn % len(config.storage)].replace(WORKER, worker) if mover.reads else None
        request = EndpointRequest(
            source=storage,
            destination="null" if mover.writes else None,
            client=worker,
            source_service=service if mover.reads else None,
            destination_service=None if mover.reads else service,
        )
        try:
            endpoints = self._resolver.resolve(mover, request)
        except EndpointError as error:
            keys = {"source": "storage", "source_service": "service", "destination_service": "service"}
            self._add_problem(f"{where}.{keys.get(error.key, 'service')}", str(error))
            return None
        self._check_ports(where, mover, service)
        if storage is None:
            return Job(number, None, None, endpoints.destination_via)
        create_through = (config.create_through or config.storage)[
            turn % len(config.create_through or config.storage)
        ].replace(WORKER, worker)
        generated = self.datasets[_dataset_name(name, create_through)]
        if self.jobs.cache == "cold":
            self._drop(name, generated, create_through, storage, worker, endpoints.source_via, drops)
        return Job(number, f"{storage}:{generated.path}/{number:06d}", endpoints.source_via, None)

    def _drop(
        self,
        name: str,
        generated: Dataset,
        create_through: str,
        storage: str,
        worker: str,
        via: str | None,
        drops: dict[str, str],
    ) -> None:
        """Record the datasets to drop from caches: once if all hosts share a kernel (a lab); otherwise for each worker."""
        testbed = self.scenario.testbed
        if (testbed.needs_lab or testbed.service) and not testbed.has_remote_hosts:
            drops[self.scenario.testbed.storage[create_through].host] = _dataset_name(name, create_through)
        elif via is None:
            seen = _dataset_name(name, storage)
            self.datasets.setdefault(seen, dataclasses.replace(generated, storage=storage))
            drops[worker] = seen

    def _check_ports(self, where: str, mover: Mover, service: str | None) -> None:
        ports = None if service is None else self._resolver.single_ports(service)
        if ports is not None and max(self.jobs.jobs) > ports:
            self._add_problem(f"{where}.service", f"expected at least {max(self.jobs.jobs)} ports of {service} (one {mover.name} per port), "
                       f"found {ports}; increase testbed.service.{service}.ports")  # fmt: skip

    def _application(self, name: str, application: Application) -> None:
        """Check an application and create its call."""
        where = path_text(("workload", "application", name))
        mover = self._tools.get(application.mover)
        if mover is None:
            self._add_problem(f"{where}.mover", one_of("the movers", self._tools, application.mover))
            return
        if mover.writes and not (mover.reads and mover.null_destination):
            self._add_problem(
                f"{where}.mover", f"expected a mover that only reads, found {mover.name}; use another mover"
            )
        if application.format == "random" and (application.unique is not None or application.shape):
            key = "unique" if application.unique is not None else "shape"
            self._add_problem(
                f"{where}.{key}",
                'expected it with format = "root" only, found format = "random"; set format = "root"',
            )
        values = self._options(where, mover, application)
        options = resolve_options(mover, values)
        try:
            call = mover.call(options)
        except OptionError as error:
            self._add_problem(f"{where}.options", str(error))
            return
        self.calls[name] = dataclasses.replace(call, timeout_s=self.jobs.timeout, expect="nothing")

    def _options(self, where: str, mover: Mover, application: Application) -> dict[str, OptionValue]:
        values = self._parsed(f"{where}.options", mover, application.options)
        known = {option.name for option in mover.options}
        if application.rate is not None:
            if "rate" not in known:
                self._add_problem(
                    f"{where}.rate", f"expected a mover with the option rate, found {mover.name}; remove rate"
                )
            # Rounded like an option, at least 1 B/s.
            values["rate"] = max(1, round(application.rate / BITS_PER_BYTE * self.scenario.scale))
        if application.compute and "compute" in known:
            values["compute"] = application.compute
        return values

    def _parsed(self, where: str, mover: Mover, written: Mapping[str, object]) -> dict[str, OptionValue]:
        values: dict[str, OptionValue] = {}
        options = {option.name: option for option in mover.options}
        for key, value in written.items():
            if key not in options:
                self._add_problem(
                    path_text((where, key)).replace('"', ""), one_of(f"the options of {mover.name}", options, key)
                )
                continue
            try:
                values[key] = options[key].parse(value)
            except UnitError as error:
                self._add_problem(f"{where}.{key}", str(error))
        return values

    def _prepare(self, configuration: str, config: Configuration, name: str, application: Application) -> bool:
        """Create the datasets of an application in the storages of a configuration; return whether it has storages."""
        if not config.storage:
            where = f"{path_text(('workload', 'configuration', configuration))}.storage"
            self._add_problem(
                where, f"expected one or more storages for {application.mover} ({name}), found none; add storage"
            )
            return False
        size = scaled_bytes(application.size, self.scenario.scale)
        for create_through in config.create_through or config.storage:
            for worker in self.jobs.workers if WORKER in create_through else ("",):
                self._make(name, application, create_through.replace(WORKER, worker), size)
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
            values = {"unique": unique, "seed": seed, **self._parsed(where, _WRITER, application.shape)}
            generated = _WRITER.call(resolve_options(_WRITER, values))
            self.calls[call] = dataclasses.replace(generated, timeout_s=self.jobs.timeout)
        self.generated[dataset] = GeneratedFiles(self.scenario.testbed.storage[storage].host, dataset, call)

    def _add_problem(self, where: str, problem: str) -> None:
        if (where, problem) not in self.problems:
            self.problems.append((where, problem))


def _dataset_name(application: str, storage: str) -> str:
    return f"{application}@{storage}"
