"""Commands of the jobs of a plan, with the placeholder rules of an agent."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from string import Formatter
from urllib.parse import urlsplit

from venturi.errors import PlanError
from venturi.plan import (
    Acquire,
    Call,
    DropCaches,
    Header,
    Parallel,
    Plan,
    Prepare,
    Release,
    Step,
    TransferStep,
    Trial,
)
from venturi.plan.header import OptionValue
from venturi.plan.steps import Compute, FactorValue
from venturi.testbed.network import host_name

__all__ = ["CommandBatch", "SubmitError", "list_batches", "prepare_commands", "quote_command"]

_DEVICES = {"null": "/dev/null", "zero": "/dev/zero"}
_HIDDEN = ("files", "first_worker")


class SubmitError(PlanError):
    """Plan without submit files for batch systems."""


@dataclass(frozen=True, slots=True)
class CommandBatch:
    """A batch: jobs that start together.

    Attributes
    ----------
    title
        Description of the batch: ``"configuration mount, application root, jobs 32"``.
    argv
        The command of each job, in the order of their numbers.
    timeout_s
        Timeout of each job in seconds.
    at_a_time
        Total slots of its workers.
    cold
        Whether the plan drops caches before the batch; a batch system does not.
    """

    title: str
    argv: tuple[tuple[str, ...], ...]
    timeout_s: int
    at_a_time: int
    cold: bool


def list_batches(plan: Plan, scratch: Path) -> tuple[CommandBatch, ...]:
    """Return the batches of a plan of the workload ``jobs``, in their order.

    Parameters
    ----------
    scratch
        Base directory of relative storages.

    Raises
    ------
    SubmitError
        If the plan has another workload, or a job with more than one command.
    """
    kind = (plan.header.scenario.get("workload") or {}).get("kind", "sweep")
    if kind != "jobs":
        raise SubmitError(f'expected the workload "jobs", found "{kind}"; submit files need batches of jobs')  # fmt: skip
    on_servers = next((name for name, storage in plan.header.storages.items() if storage.url is not None), None)
    if on_servers is not None:
        raise SubmitError(
            f"testbed.storage.{on_servers}: expected a directory, found url (jobs of a batch system record no files on"
            " servers); use venturi run"
        )
    found: dict[tuple[int, int], list[tuple[str, Trial]]] = {}
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Trial):
                found.setdefault((step.point, step.repetition), []).append((line.host, step))
    dropped = any(isinstance(step, DropCaches) for step in _all_steps(plan))
    return tuple(_batch(plan.header, host_trials, scratch, cold=dropped) for host_trials in found.values())


def prepare_commands(plan: Plan, scratch: Path) -> tuple[str, ...]:
    """Return shell commands that create the files of the jobs, with unseeded random bytes instead of those of an agent."""
    found: dict[str, None] = {}
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Prepare):
                found |= dict.fromkeys(_random_files(plan.header, step, scratch))
            elif isinstance(step, TransferStep):
                argv = _argv(plan.header, step, scratch)
                directory = Path(argv[argv.index(_path(plan.header, step.destination, scratch))]).parent
                found[f"mkdir -p {quote_command([str(directory)])}"] = None
                found[quote_command(argv)] = None
    return tuple(found)


def quote_command(argv: Sequence[str]) -> str:
    """Return a command line for a shell."""
    return shlex.join(argv)


def _all_steps(plan: Plan) -> Iterator[Step]:
    for line in plan.lines:
        for step in line.steps:
            yield step
            if isinstance(step, Trial):
                yield from step.steps


def _batch(header: Header, host_trials: Sequence[tuple[str, Trial]], scratch: Path, *, cold: bool) -> CommandBatch:
    jobs = [transfer for _, trial in host_trials for transfer in _jobs(trial)]
    jobs.sort(key=lambda job: job.slot)
    factors = {name: value for name, value in host_trials[0][1].factors.items() if name not in _HIDDEN}
    slots = min(header.pools.values(), default=len(jobs))
    return CommandBatch(
        title=_title(factors, host_trials[0][1].repetition),
        argv=tuple(_argv(header, job, scratch) for job in jobs),
        timeout_s=math.ceil(max(header.calls[job.call].timeout_s for job in jobs)),
        at_a_time=min(len(jobs), slots * len(host_trials)),
        cold=cold,
    )


def _title(factors: Mapping[str, FactorValue], repetition: int) -> str:
    return ", ".join(f"{name} {value}" for name, value in {**factors, "repetition": repetition + 1}.items())


def _jobs(trial: Trial) -> Iterator[TransferStep]:
    for step in trial.steps:
        for child in step.children if isinstance(step, Parallel) else ():
            for inner in child:
                if isinstance(inner, TransferStep):
                    yield inner
                elif isinstance(inner, Compute):
                    raise SubmitError("expected jobs of one command, found a job with later computing; use a mover with compute")  # fmt: skip
                elif not isinstance(inner, Acquire | Release):
                    raise SubmitError(f"expected jobs of one command, found a step {type(inner).__name__}; remove it")


def _random_files(header: Header, step: Prepare, scratch: Path) -> Iterator[str]:
    dataset = header.datasets[step.dataset]
    paths = [_path(header, dataset.endpoint(index), scratch) for index in range(step.first, step.first + step.files)]
    yield f"mkdir -p {quote_command([str(Path(paths[0]).parent)])}"
    for index, path in enumerate(paths):
        yield f"head -c {dataset.range_bytes(step.first + index, 1)} /dev/urandom > {quote_command([path])}"


def _argv(header: Header, transfer: TransferStep, scratch: Path) -> tuple[str, ...]:
    """Return the command of a transfer, by the rules of ``Call::argv`` in ``crates/plan``; a test compares both."""
    call = header.calls[transfer.call]
    source = _endpoint_text(header, call, str(transfer.source), transfer.source_via, transfer.slot, scratch)
    destination = _endpoint_text(
        header, call, str(transfer.destination), transfer.destination_via, transfer.slot, scratch
    )
    values: dict[str, OptionValue] = {
        **call.options,
        **_address("source", source),
        **_address("destination", destination),
        "source": source,
        "destination": destination,
        "scratch": str(scratch.absolute()),
        "bytes": int(str(transfer.bytes)),
        "files": transfer.files,
        "slot": transfer.slot,
    }
    argv: list[str] = []
    for argument in call.argv:
        texts = (argument,) if isinstance(argument, str) else argument
        expanded = [_expand(text, values) for text in texts]
        known = [text for text in expanded if text is not None]
        if len(known) == len(expanded):
            argv += known
        elif isinstance(argument, str):
            raise SubmitError(
                f"call {transfer.call}: expected a value for every name in {argument}, found none for one; set the option"
            )
    return tuple(argv)


def _expand(text: str, values: Mapping[str, OptionValue]) -> str | None:
    host_trials = []
    for literal, name, _, _ in Formatter().parse(text):
        host_trials.append(literal)
        if name is not None:
            value = values.get(name)
            if value is None:
                return None
            host_trials.append(_format_value(value))
    return "".join(host_trials)


def _format_value(value: OptionValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Number format of Rust: no exponent, and no decimal point for integers.
    return format(Decimal(repr(value)), "f").removesuffix(".0") if isinstance(value, float) else str(value)


def _endpoint_text(header: Header, call: Call, endpoint: str, via: str | None, slot: int, scratch: Path) -> str:
    path = _path(header, endpoint, scratch)
    if via is None:
        return path if endpoint.rstrip(":") in _DEVICES else str(_expand(call.local, {"path": path}))
    name, _, service_port = via.partition("/")
    service = header.services[name]
    port = service.ports[slot % len(service.ports)] if service.ports else None
    values: dict[str, OptionValue] = {
        "path": path,
        "relative": endpoint.partition(":")[2],
        "port": port,
        "host": None if service.host is None else _server_name(header, service.host),
    }
    return str(_expand(service.service_ports[service_port], values))


def _server_name(header: Header, name: str) -> str:
    """Return the name of a host for URLs: its address, the host name of ``ssh``, or its name in the lab."""
    host = header.hosts[name]
    if host.address is not None:
        return f"[{host.address}]" if ":" in host.address else host.address
    if host.ssh is not None:
        return host.ssh.removeprefix("ssh://").rpartition("@")[2].partition(":")[0]
    return host_name(name)


def _path(header: Header, endpoint: object, scratch: Path) -> str:
    storage, _, relative = str(endpoint).partition(":")
    if storage in _DEVICES and not relative:
        return _DEVICES[storage]
    return str((scratch / header.storages[storage].path).absolute() / relative)


def _address(side: str, text: str) -> dict[str, OptionValue]:
    if "://" not in text:
        return {}
    host_trials = urlsplit(text)
    return {f"{side}_host": host_trials.hostname, f"{side}_port": host_trials.port}
