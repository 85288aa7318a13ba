"""The commands of the jobs of a plan, as an agent would call them: placeholders replaced, groups without a value left out."""

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
from venturi.plan import Acquire, Call, DropCaches, Header, Parallel, Plan, Prepare, Release, Step, Transfer, Trial
from venturi.plan.header import OptionValue
from venturi.plan.steps import Compute, FactorValue

__all__ = ["BatchOfJobs", "SubmitError", "batches_of", "made_before", "quoted"]

_DEVICES = {"null": "/dev/null", "zero": "/dev/zero"}
_HIDDEN = ("files", "first_worker")


class SubmitError(PlanError):
    """A plan that no batch system can be handed."""


@dataclass(frozen=True, slots=True)
class BatchOfJobs:
    """A batch: jobs that are begun together.

    Attributes
    ----------
    title
        What tells it from the others, for people: ``"configuration mount, application root, jobs 32"``.
    argv
        The command of each job, in the order of their numbers.
    timeout_s
        Of each job, s.
    at_a_time
        Slots of all its workers together.
    cold
        Whether the plan drops caches before it, which a batch system does not.
    """

    title: str
    argv: tuple[tuple[str, ...], ...]
    timeout_s: int
    at_a_time: int
    cold: bool


def batches_of(plan: Plan, scratch: Path) -> tuple[BatchOfJobs, ...]:
    """Return the batches of a plan of the workload ``jobs``, in the order in which they are to run.

    Parameters
    ----------
    scratch
        Below it lie relative places of hosts.

    Raises
    ------
    SubmitError
        If the plan is of another workload, or a job of it is more than the call of a tool.
    """
    kind = (plan.header.scenario.get("workload") or {}).get("kind", "sweep")
    if kind != "jobs":
        raise SubmitError(f'expected a scenario of the workload "jobs" (batches of jobs), found "{kind}"; only these can be '
                          "handed to a batch system")  # fmt: skip
    found: dict[tuple[int, int], list[tuple[str, Trial]]] = {}
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Trial):
                found.setdefault((step.point, step.repetition), []).append((line.host, step))
    dropped = any(isinstance(step, DropCaches) for step in _all_steps(plan))
    return tuple(_batch(plan.header, parts, scratch, cold=dropped) for parts in found.values())


def made_before(plan: Plan, scratch: Path) -> tuple[str, ...]:
    """Return shell commands that make the files of the jobs; what an agent fills with seeded random bytes, they fill with others."""
    found: dict[str, None] = {}
    for line in plan.lines:
        for step in line.steps:
            if isinstance(step, Prepare):
                found |= dict.fromkeys(_random_files(plan.header, step, scratch))
            elif isinstance(step, Transfer):
                argv = _argv(plan.header, step, scratch)
                folder = Path(argv[argv.index(_path(plan.header, step.destination, scratch))]).parent
                found[f"mkdir -p {quoted([str(folder)])}"] = None
                found[quoted(argv)] = None
    return tuple(found)


def quoted(argv: Sequence[str]) -> str:
    """Return a command line for a shell."""
    return shlex.join(argv)


def _all_steps(plan: Plan) -> Iterator[Step]:
    for line in plan.lines:
        for step in line.steps:
            yield step
            if isinstance(step, Trial):
                yield from step.steps


def _batch(header: Header, parts: Sequence[tuple[str, Trial]], scratch: Path, *, cold: bool) -> BatchOfJobs:
    jobs = [transfer for _, trial in parts for transfer in _jobs(trial)]
    jobs.sort(key=lambda job: job.slot)
    factors = {name: value for name, value in parts[0][1].factors.items() if name not in _HIDDEN}
    slots = min(header.pools.values(), default=len(jobs))
    return BatchOfJobs(
        title=_title(factors, parts[0][1].repetition),
        argv=tuple(_argv(header, job, scratch) for job in jobs),
        timeout_s=math.ceil(max(header.calls[job.call].timeout_s for job in jobs)),
        at_a_time=min(len(jobs), slots * len(parts)),
        cold=cold,
    )


def _title(factors: Mapping[str, FactorValue], repetition: int) -> str:
    return ", ".join(f"{name} {value}" for name, value in {**factors, "repetition": repetition + 1}.items())


def _jobs(trial: Trial) -> Iterator[Transfer]:
    for step in trial.steps:
        for child in step.children if isinstance(step, Parallel) else ():
            for inner in child:
                if isinstance(inner, Transfer):
                    yield inner
                elif isinstance(inner, Compute):
                    raise SubmitError("expected jobs that are one command each, found one that computes after its command; "
                                      "use a mover with the option compute (root-read), or leave compute out")  # fmt: skip
                elif not isinstance(inner, Acquire | Release):
                    raise SubmitError(f"expected jobs that are one command each, found a step {type(inner).__name__}")


def _random_files(header: Header, step: Prepare, scratch: Path) -> Iterator[str]:
    dataset = header.datasets[step.dataset]
    paths = [_path(header, dataset.endpoint(index), scratch) for index in range(step.first, step.first + step.files)]
    yield f"mkdir -p {quoted([str(Path(paths[0]).parent)])}"
    for index, path in enumerate(paths):
        yield f"head -c {dataset.bytes_of(step.first + index, 1)} /dev/urandom > {quoted([path])}"


def _argv(header: Header, transfer: Transfer, scratch: Path) -> tuple[str, ...]:
    """Return the command of a transfer; the rules are those of ``crates/plan`` (``Call::argv``), and a test has the engine call the same."""
    call = header.calls[transfer.call]
    source = _end(header, call, str(transfer.source), transfer.source_via, transfer.slot, scratch)
    destination = _end(header, call, str(transfer.destination), transfer.destination_via, transfer.slot, scratch)
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
        expanded = [_expanded(text, values) for text in texts]
        known = [text for text in expanded if text is not None]
        if len(known) == len(expanded):
            argv += known
        elif isinstance(argument, str):
            raise SubmitError(
                f"call {transfer.call}: expected a value for every name in {argument}, found none for one"
            )
    return tuple(argv)


def _expanded(text: str, values: Mapping[str, OptionValue]) -> str | None:
    parts = []
    for literal, name, _, _ in Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            value = values.get(name)
            if value is None:
                return None
            parts.append(_text(value))
    return "".join(parts)


def _text(value: OptionValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # As Rust writes a number: no exponent, and no point in a whole one.
    return format(Decimal(repr(value)), "f").removesuffix(".0") if isinstance(value, float) else str(value)


def _end(header: Header, call: Call, endpoint: str, via: str | None, slot: int, scratch: Path) -> str:
    path = _path(header, endpoint, scratch)
    if via is None:
        return path if endpoint.rstrip(":") in _DEVICES else str(_expanded(call.local, {"path": path}))
    name, _, door = via.partition("/")
    service = header.services[name]
    port = service.ports[slot % len(service.ports)] if service.ports else None
    url = _expanded(service.doors[door], {"path": path, "relative": endpoint.partition(":")[2], "port": port})
    return str(url)


def _path(header: Header, endpoint: object, scratch: Path) -> str:
    place, _, relative = str(endpoint).partition(":")
    if place in _DEVICES and not relative:
        return _DEVICES[place]
    return str((scratch / header.places[place].path).absolute() / relative)


def _address(side: str, text: str) -> dict[str, OptionValue]:
    if "://" not in text:
        return {}
    parts = urlsplit(text)
    return {f"{side}_host": parts.hostname, f"{side}_port": parts.port}
