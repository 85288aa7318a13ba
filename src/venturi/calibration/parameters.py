"""Which parameters of a plan's costs can be looked for, and how a list of numbers becomes costs.

Every number is a multiple of its scale, 0 or more, and times grow nearly in proportion to it: seconds, round trips, processor time as they
are; rates, buffers and cores as their inverse, so that 0 is *without a bound*. A parameter that has one default for several calls or
services is one number for all of them; where defaults differ, each has its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from venturi.calibration.estimate import PRIOR
from venturi.calibration.simulator import ASSUMED
from venturi.cost import FILE, Cost, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost, over
from venturi.cost.world import costs_of
from venturi.mover.table import movers
from venturi.plan import Header
from venturi.plan.header import OptionValue

__all__ = ["Parameter", "Subject", "cost_of", "ends_of", "parameters_of"]


class _Field(NamedTuple):
    """A parameter that may be looked for: its scale in base units, or in inverse ones, what a default of several 100 % would be."""

    name: str
    scale: float
    inverse: bool = False


_OF_A_CALL = (
    _Field("start_s", 0.05),
    _Field("session_round_trips", 5.0),
    _Field("file_s", 0.002),
    _Field("file_round_trips", 1.0),
    _Field("start_core_s", 0.05),
    _Field("file_core_s", 0.002),
    _Field("byte_core_s", 2e-9),
    _Field("in_flight_bytes", 1 / 1e6, inverse=True),
)
_OF_A_JOB = (
    _Field("session_s", 0.05),
    _Field("session_core_s", 0.05),
    _Field("check_s", 0.05),
    _Field("check_core_s", 0.05),
    _Field("check_round_trips", 5.0),
    _Field("check_byte_core_s", 2e-9),
    _Field("logins", 1.0),
)
"""Looked for only where a default says that calls have such a part."""
_OF_A_SERVICE = (
    _Field("session_core_s", 0.05),
    _Field("auth_core_s", 0.05),
    _Field("file_core_s", 0.002),
    _Field("byte_core_s", 2e-9),
    _Field("process_bytes_per_s", 1 / 100e6, inverse=True),
)
_OF_A_PLACE = (
    _Field("read_bytes_per_s", 1 / 500e6, inverse=True),
    _Field("write_bytes_per_s", 1 / 500e6, inverse=True),
    _Field("open_s", 0.002),
)
_OF_A_HOST = (_Field("cores", 1 / 4.0, inverse=True), _Field("core_speed", 1.0, inverse=True))

_OF_A_MACHINE = _Field("cores", 1.0, inverse=True)
_MACHINE = "the machine of all hosts"

MOST_NAMED = 2
LEAST_NUMBER = 1e-6
KNOWN = 0.5
"""Relative standard deviation of defaults that do not depend on the machine: calibrations in the lab found 30 where 22 was measured, and 19 for 13."""

Table = Literal["mover", "service", "place", "host", "machine"]
Member = str | MoverRule
"""Name of a service, a place, a host or a run; or a rule whose cost is not given yet."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that may be looked for.

    Attributes
    ----------
    table, field, of
        ``field`` of :mod:`venturi.cost`, and in words what it is of. The table ``machine`` is ``machine_cores``: what all hosts share.
    members
        What takes it.
    default
        In base units; None: nobody knows, or no bound.
    scale, inverse
        The number times ``scale`` is the value, or its inverse.
    """

    table: Table
    field: str
    of: str
    members: tuple[Member, ...]
    default: float | None
    scale: float
    inverse: bool

    @property
    def name(self) -> str:
        """In words: ``start_s of globus-url-copy, gsiftp to file``."""
        return f"{self.field} of {self.of}"

    @property
    def start(self) -> float:
        """The number that stands for the default."""
        if self.default is None:
            return 0.0
        return (1.0 / self.default if self.inverse else self.default) / self.scale if self.default else 0.0

    @property
    def prior(self) -> float:
        """Standard deviation of the number about that of the default: of round trips, which are a tool's own wherever it is, :data:`KNOWN` of it."""
        return KNOWN * self.start if self.field.endswith("_round_trips") and self.start else PRIOR

    def value(self, number: float) -> float | None:
        """Return the value in base units; None for one without a bound.

        Examples
        --------
        >>> rate = Parameter("service", "process_bytes_per_s", "origin", ("origin",), None, 1 / 100e6, True)
        >>> rate.value(2.0), rate.value(0.0)
        (50000000.0, None)
        """
        if not self.inverse:
            return number * self.scale
        if self.default is not None:
            # Where something holds if nothing is said, *without a bound* must be said.
            number = max(number, LEAST_NUMBER)
        return 1.0 / (number * self.scale) if number > 0 else None


@dataclass(frozen=True, slots=True)
class Subject:
    """What parameters are looked for in: a run's plan.

    Attributes
    ----------
    name, header
        Of the run, and of its plan.
    ends
        Which calls are made: name, protocol of the source, protocol of the destination, or :data:`FILE`.
    machine_cores
        Cores that all of its hosts share; None: each has its own.
    """

    name: str
    header: Header
    ends: frozenset[tuple[str, str, str]]
    machine_cores: float | None = None


def parameters_of(subjects: Iterable[Subject]) -> list[Parameter]:
    """Return all that can be looked for in the transfers of these plans; cores that all hosts share only where the plans agree on them."""
    found: dict[tuple[str, str, str, float | None], Parameter] = {}
    every = list(subjects)
    one_machine = len({subject.machine_cores for subject in every}) == 1
    for subject in every:
        costs = costs_of(subject.header)
        parts = (
            *_of_calls(subject.header, costs, set(subject.ends)),
            *(_of_the_machine(subject) if one_machine else ()),
            *_of_parts(subject, costs),
        )
        for parameter in parts:
            key = (parameter.table, parameter.field, parameter.of, parameter.default)
            known = found.get(key)
            members = parameter.members if known is None else (*known.members, *parameter.members)
            found[key] = replace(parameter, members=tuple(_unique(members)))
    return _named(list(found.values()))


def _of_calls(header: Header, costs: Mapping[str, Any], made: set[tuple[str, str, str]]) -> Iterable[Parameter]:
    tools = movers()
    for name, source, destination in sorted(made):
        call = header.calls[name]
        defaults: Mapping[str, Any] = next(
            (
                e["cost"]
                for e in costs["calls"].get(name, ())
                if (e["source"], e["destination"]) == (source, destination)
            ),
            {},
        )
        tool = tools.get(call.mover)
        telling = {key for entry in getattr(tool, "costs", ()) for key in entry.options}
        options = {key: value for key, value in sorted(call.options.items()) if key in telling and value is not None}
        rule = MoverRule(call.mover, MoverCost(), source, destination, options)
        for field in (*_OF_A_CALL, *(part for part in _OF_A_JOB if part.name in defaults)):
            yield _parameter("mover", field, f"{call.mover}, {source} to {destination}", rule, defaults)


def _of_the_machine(subject: Subject) -> Iterable[Parameter]:
    if subject.machine_cores is not None:
        yield _parameter("machine", _OF_A_MACHINE, _MACHINE, subject.name, {"cores": subject.machine_cores})


def _of_parts(subject: Subject, costs: Mapping[str, Any]) -> Iterable[Parameter]:
    header = subject.header
    for name, service in header.services.items():
        for field in _OF_A_SERVICE:
            yield _parameter(
                "service", field, f"services of kind {service.kind}", name, costs["services"].get(name, {})
            )
    for name, place in header.places.items():
        storage = place.storage
        for field in _OF_A_PLACE:
            said = costs["places"].get(name, {})
            given = getattr(storage, field.name, None) if storage else None
            assumed = ASSUMED.get(f"storage_{field.name}") if given is None else given
            known = said if assumed is None or field.name in said else {field.name: assumed}
            yield _parameter("place", field, "storages", name, known)
    for name, host in header.hosts.items():
        said = dict(costs["hosts"].get(name, {}))
        lab = host.lab
        if lab and lab.cpu_limit_cores is not None:
            said.setdefault("cores", lab.cpu_limit_cores)
        said.setdefault("core_speed", 1.0)
        for field in _OF_A_HOST:
            if field.name == "cores" and subject.machine_cores is not None and "cores" not in said:
                continue  # these are the machine's
            yield _parameter("host", field, "hosts", name, said)


def _parameter(table: Table, field: _Field, of: str, member: Member, defaults: Mapping[str, Any]) -> Parameter:
    default = defaults.get(field.name)
    scale = field.scale
    if default:
        # A default may be tiny on a quiet machine, and no measure of what it can be on another.
        scale = max(scale, 1.0 / default if field.inverse else float(default))
    return Parameter(table, field.name, of, (member,), default, scale, field.inverse)


def _unique(members: Iterable[Member]) -> list[Member]:
    kept: list[Member] = []
    for member in members:
        if member not in kept:
            kept.append(member)
    return kept


def _named(parameters: list[Parameter]) -> list[Parameter]:
    """Where a parameter has several defaults, say which options or names each is for."""
    alike: dict[tuple[str, str, str], list[Parameter]] = {}
    for one in parameters:
        alike.setdefault((one.table, one.field, one.of), []).append(one)
    found = []
    for one in parameters:
        others = [other for other in alike[one.table, one.field, one.of] if other is not one]
        found.append(replace(one, of=f"{one.of} ({_which(one, others)})") if others else one)
    return found


def _which(parameter: Parameter, others: Sequence[Parameter]) -> str:
    """Return in words what a parameter is for and the others are not: by one option if that tells, else by all."""
    own = _options(parameter)
    if not own:
        return _some([str(member) for member in parameter.members])
    theirs = [options for other in others for options in _options(other)]
    for key in own[0]:
        values = list(dict.fromkeys(options.get(key) for options in own))
        if not any(options.get(key) in values for options in theirs):
            return _some([f"{key}={_word(value)}" for value in values])
    return _some([" ".join(f"{key}={_word(value)}" for key, value in options.items()) for options in own])


def _options(parameter: Parameter) -> list[Mapping[str, OptionValue]]:
    return [member.options for member in parameter.members if isinstance(member, MoverRule)]


def _some(words: list[str]) -> str:
    return "; ".join(words[:MOST_NAMED]) + (" …" if len(words) > MOST_NAMED else "")


def _word(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


Part = TypeVar("Part", ServiceCost, StorageCost, HostCost)


def cost_of(said: Cost, parameters: Sequence[Parameter], numbers: Sequence[float]) -> Cost:
    """Return costs with these numbers above what was said before.

    What comes out *without a bound* is left as it was where that has no bound either.
    """
    machine_cores = said.machine_cores
    rules: dict[int, MoverRule] = {}
    order: list[MoverRule] = []
    tables: dict[str, dict[str, Any]] = {
        "service": dict(said.services),
        "place": dict(said.places),
        "host": dict(said.hosts),
    }
    kinds: dict[str, type[Any]] = {"service": ServiceCost, "place": StorageCost, "host": HostCost}
    for parameter, number in zip(parameters, numbers, strict=True):
        value = parameter.value(number)
        if value is None or not math.isfinite(value):
            continue
        if parameter.table == "machine":
            machine_cores = value
            continue
        for member in parameter.members:
            if isinstance(member, MoverRule):
                if member not in order:
                    order.append(member)
                place = order.index(member)
                known = rules.get(place, member)
                rules[place] = replace(known, cost=_with(known.cost, parameter.field, value))
            else:
                part = tables[parameter.table].get(member, kinds[parameter.table]())
                tables[parameter.table][member] = over(part, kinds[parameter.table](**{parameter.field: value}))
    # Later rules win: those with more options are the more special ones.
    own = sorted(rules.values(), key=lambda rule: len(rule.options))
    return Cost((*said.movers, *own), tables["service"], tables["place"], tables["host"], machine_cores)


def _with(cost: MoverCost, field: str, value: float) -> MoverCost:
    given: dict[str, Any] = {field: value}
    return replace(cost, **given)


def ends_of(header: Header, call: str, source_via: str | None, destination_via: str | None) -> tuple[str, str, str]:
    """Return a call with the protocols of its ends."""
    return call, _protocol(header, source_via), _protocol(header, destination_via)


def _protocol(header: Header, via: str | None) -> str:
    if via is None:
        return FILE
    name, _, door = via.partition("/")
    return door or next(iter(header.services[name].doors), FILE)
