"""Cost parameters of a plan that can be estimated, and conversion of a list of numbers to costs.

Every number is a multiple of its scale and at least 0, and times grow nearly in proportion to it. Seconds, round trips
and CPU time are used directly. Rates, buffers and cores are used as their inverse, so that 0 means *without a bound*.
Calls or services with the same default share one number. Different defaults have separate numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from venturi.calibration.estimate import PRIOR
from venturi.calibration.simulator import ASSUMED
from venturi.cost import FILE, CostParameters, HostCost, MoverCost, MoverRule, ServiceCost, StorageCost, merge_cost
from venturi.cost.engine_inputs import resolve_plan_costs
from venturi.mover.table import movers
from venturi.plan import Header
from venturi.plan.header import OptionValue

__all__ = ["Parameter", "Subject", "cost_of", "ends_of", "parameters_of"]


class _Field(NamedTuple):
    """A parameter that can be estimated.

    Its scale, in base units or inverse ones, is typical of a default that is several 100 % too large.
    """

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
"""Estimated only if a default declares this part for the call."""
_OF_A_SERVICE = (
    _Field("session_core_s", 0.05),
    _Field("auth_core_s", 0.05),
    _Field("file_core_s", 0.002),
    _Field("byte_core_s", 2e-9),
    _Field("process_bytes_per_s", 1 / 100e6, inverse=True),
)
_OF_A_STORAGE = (
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
"""Relative standard deviation of defaults that do not depend on the machine.

Calibrations in the lab estimated 30 where 22 was measured, and 19 for 13.
"""

Table = Literal["mover", "service", "storage", "host", "machine"]
Member = str | MoverRule
"""Name of a service, a storage, a host or a run; or a rule without a cost."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that can be estimated.

    Attributes
    ----------
    table, field, of
        ``field`` of :mod:`venturi.cost`, and a description of its subject. The table ``machine`` is ``machine_cores``,
        the cores that all hosts share.
    members
        Services, storages, hosts, runs or rules that use the value.
    default
        In base units. None if unknown or unlimited.
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
        """Full name: ``start_s of globus-url-copy, gsiftp to file``."""
        return f"{self.field} of {self.of}"

    @property
    def start(self) -> float:
        """The number of the default."""
        if self.default is None:
            return 0.0
        return (1.0 / self.default if self.inverse else self.default) / self.scale if self.default else 0.0

    @property
    def prior(self) -> float:
        """Standard deviation of the number about :attr:`start`.

        For round trips, which are a property of the tool and not of the machine, it is :data:`KNOWN` times the default.
        """
        return KNOWN * self.start if self.field.endswith("_round_trips") and self.start else PRIOR

    def value(self, number: float) -> float | None:
        """Return the value in base units, or None for *without a bound*.

        Examples
        --------
        >>> rate = Parameter("service", "process_bytes_per_s", "origin", ("origin",), None, 1 / 100e6, True)
        >>> rate.value(2.0), rate.value(0.0)
        (50000000.0, None)
        """
        if not self.inverse:
            return number * self.scale
        if self.default is not None:
            # There is a default, so *without a bound* must be stated explicitly, as a large value.
            number = max(number, LEAST_NUMBER)
        return 1.0 / (number * self.scale) if number > 0 else None


@dataclass(frozen=True, slots=True)
class Subject:
    """The plan of a run whose parameters are estimated.

    Attributes
    ----------
    name, header
        Name of the run, and header of its plan.
    ends
        The calls in the plan: name, protocol of the source, protocol of the destination. A protocol can be :data:`FILE`.
    machine_cores
        Cores that all hosts share. None if each host has its own.
    """

    name: str
    header: Header
    ends: frozenset[tuple[str, str, str]]
    machine_cores: float | None = None


def parameters_of(subjects: Iterable[Subject]) -> list[Parameter]:
    """Return the parameters that can be estimated from these plans.

    Shared cores are included only if the plans agree on them.
    """
    found: dict[tuple[str, str, str, float | None], Parameter] = {}
    every = list(subjects)
    one_machine = len({subject.machine_cores for subject in every}) == 1
    for subject in every:
        costs = resolve_plan_costs(subject.header)
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
        relevant = {key for entry in getattr(tool, "costs", ()) for key in entry.options}
        options = {key: value for key, value in sorted(call.options.items()) if key in relevant and value is not None}
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
    for name, storage in header.storages.items():
        spec = storage.spec
        for field in _OF_A_STORAGE:
            declared = costs["storages"].get(name, {})
            given = getattr(spec, field.name, None) if spec else None
            assumed = ASSUMED.get(f"storage_{field.name}") if given is None else given
            known = declared if assumed is None or field.name in declared else {field.name: assumed}
            yield _parameter("storage", field, "storages", name, known)
    for name, host in header.hosts.items():
        declared = dict(costs["hosts"].get(name, {}))
        lab = host.lab
        if lab and lab.cpu_limit_cores is not None:
            declared.setdefault("cores", lab.cpu_limit_cores)
        declared.setdefault("core_speed", 1.0)
        for field in _OF_A_HOST:
            if field.name == "cores" and subject.machine_cores is not None and "cores" not in declared:
                continue  # the cores of the machine apply
            yield _parameter("host", field, "hosts", name, declared)


def _parameter(table: Table, field: _Field, of: str, member: Member, defaults: Mapping[str, Any]) -> Parameter:
    default = defaults.get(field.name)
    scale = field.scale
    if default:
        # A default can be tiny on a quiet machine, but larger by orders of magnitude on another.
        scale = max(scale, 1.0 / default if field.inverse else float(default))
    return Parameter(table, field.name, of, (member,), default, scale, field.inverse)


def _unique(members: Iterable[Member]) -> list[Member]:
    kept: list[Member] = []
    for member in members:
        if member not in kept:
            kept.append(member)
    return kept


def _named(parameters: list[Parameter]) -> list[Parameter]:
    """Add the options or names to ``of`` for parameters that have several defaults."""
    alike: dict[tuple[str, str, str], list[Parameter]] = {}
    for one in parameters:
        alike.setdefault((one.table, one.field, one.of), []).append(one)
    found = []
    for one in parameters:
        others = [other for other in alike[one.table, one.field, one.of] if other is not one]
        found.append(replace(one, of=f"{one.of} ({_which(one, others)})") if others else one)
    return found


def _which(parameter: Parameter, others: Sequence[Parameter]) -> str:
    """Return a description that distinguishes a parameter from the others.

    It has one option if that is enough, otherwise all options.
    """
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


def cost_of(declared: CostParameters, parameters: Sequence[Parameter], numbers: Sequence[float]) -> CostParameters:
    """Return ``declared`` with these numbers applied.

    A value *without a bound* is skipped, so that the declared value stays.
    """
    machine_cores = declared.machine_cores
    rules: dict[int, MoverRule] = {}
    order: list[MoverRule] = []
    tables: dict[str, dict[str, Any]] = {
        "service": dict(declared.services),
        "storage": dict(declared.storages),
        "host": dict(declared.hosts),
    }
    kinds: dict[str, type[Any]] = {"service": ServiceCost, "storage": StorageCost, "host": HostCost}
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
                index = order.index(member)
                known = rules.get(index, member)
                rules[index] = replace(known, cost=_with(known.cost, parameter.field, value))
            else:
                part = tables[parameter.table].get(member, kinds[parameter.table]())
                tables[parameter.table][member] = merge_cost(part, kinds[parameter.table](**{parameter.field: value}))
    # Later rules win, so rules with more options, which are more specific, come last.
    own = sorted(rules.values(), key=lambda rule: len(rule.options))
    return CostParameters(
        (*declared.movers, *own), tables["service"], tables["storage"], tables["host"], machine_cores
    )


def _with(cost: MoverCost, field: str, value: float) -> MoverCost:
    given: dict[str, Any] = {field: value}
    return replace(cost, **given)


def ends_of(header: Header, call: str, source_via: str | None, destination_via: str | None) -> tuple[str, str, str]:
    """Return a call with the protocols of its endpoints."""
    return call, _protocol(header, source_via), _protocol(header, destination_via)


def _protocol(header: Header, via: str | None) -> str:
    if via is None:
        return FILE
    name, _, service_port = via.partition("/")
    return service_port or next(iter(header.services[name].service_ports), FILE)
