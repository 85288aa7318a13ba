"""The table ``[testbed.cost]``: what a scenario says that transfers cost in a simulated world.

A key is a parameter of :mod:`venturi.cost` without its unit, which its text carries: ``start = "12 ms"`` is ``start_s``. Nothing here is
scaled: these are properties of tools and machines, as their defaults are.
"""

# ruff: noqa: ANN401 - a TOML value is of any type until it has been looked at here
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from venturi.cost import Cost as PlanCost
from venturi.cost import HostCost, MoverCost, MoverRule, ServiceCost, StorageCost
from venturi.errors import UnitError
from venturi.mover.base import Mover
from venturi.plan.header import OptionValue
from venturi.scenario.fields import (
    LONGEST_S,
    Name,
    Number,
    Part,
    Rate,
    Size,
    Text,
    Truth,
    Whole,
    _quantity,
    format_duration_exact,
    refuse,
)
from venturi.units import BITS_PER_BYTE, parse_duration
from venturi.wording import Problem, one_of, path_text

if TYPE_CHECKING:
    from venturi.scenario.testbed import Testbed

__all__ = ["Cost", "check_costs", "check_rule", "key_of", "resolve_costs", "resolve_said"]


def _time(value: Any) -> float:
    seconds = parse_duration(value)
    if not seconds < LONGEST_S:
        raise UnitError(f"expected a time below 10 years, found {value!r}")
    return seconds


Time = Annotated[
    float,
    PlainValidator(_quantity(_time)),
    PlainSerializer(format_duration_exact),
    WithJsonSchema({"type": "string", "description": "A time, with its unit", "examples": ["12 ms", "2 ns", "0 s"]}),
]
Amount = Annotated[Number, Field(ge=0)]
Many = Annotated[Whole, Field(ge=1, le=2**32 - 1)]


class MoverTable(Part):
    """What calls of a mover cost besides their bytes, in place of its defaults; what is not given stays as it is."""

    mover: Text | None = Field(None, description="Which mover; if not given, the one that the table is named after.")
    source: Text | None = Field(
        None, description="Only calls that read from this: a protocol such as gsiftp, or file; any if not given."
    )
    destination: Text | None = Field(None, description="Only calls that write to this, in the same way.")
    options: Annotated[
        dict[str, Any],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}}),
    ] = Field({}, description="Only calls with these options of the mover.")
    start: Time | None = Field(None, description="Once a call: time in which no processor works for it.")
    start_core: Time | None = Field(None, description="Once a call: processor time of the client.")
    session_round_trips: Amount | None = Field(None, description="Once a call: of connection, login and farewell.")
    file: Time | None = Field(None, description="For each file: time in which no processor works for it.")
    file_core: Time | None = Field(None, description="For each file: processor time of the client.")
    file_round_trips: Amount | None = Field(None, description="For each file.")
    byte_core: Time | None = Field(None, description="For each byte: processor time of the client.")
    pipelining: Many | None = Field(None, description="Files whose commands are under way together.")
    sessions: Many | None = Field(
        None, description="Sessions side by side of a call that is not told how many; if not given, one."
    )
    session_files: Many | None = Field(
        None, description="Files for each of these: of fewer files it opens fewer; if not given, one."
    )
    session_size: Size | None = Field(
        None, description="Bytes for each of these, where there are fewer files; if not given, only files count."
    )
    sessions_least: Many | None = Field(
        None,
        description="Sessions, no more than files, that it opens also where less is worth one; if not given, one.",
    )
    large: Size | None = Field(
        None, description="The smallest file that goes in pieces, each as a file of its own; if not given, none does."
    )
    piece: Size | None = Field(None, description="Bytes of such a piece.")
    in_flight: Size | None = Field(None, description="Bytes that it asks for ahead on a connection.")
    block: Size | None = Field(None, description="Bytes that it reads and then sends, by turns.")
    block_time: Time | None = Field(None, description="What each block costs besides.")
    keeps_connection: Truth | None = Field(None, description="Whether a data connection stays for the next file.")
    logins: Amount | None = Field(None, description="Logins of a session at each server.")
    session: Time | None = Field(
        None, description="Of a job of several calls of a tool, each call: time in which no processor works for it."
    )
    session_core: Time | None = Field(None, description="For each of these calls: processor time of the client.")
    check: Time | None = Field(
        None,
        description="Of a tool that asks both ends of a file for checksums, each question: time in which no processor works for it.",
    )
    check_core: Time | None = Field(None, description="For each question: processor time of the client.")
    check_round_trips: Amount | None = Field(None, description="For each question.")
    check_byte_core: Time | None = Field(None, description="Processor time of the server for a byte of a checksum.")
    checks: Many | None = Field(None, description="Questions under way together.")
    patience: Time | None = Field(None, description="Time without a byte after which it gives an attempt up.")
    retries: Annotated[Whole, Field(ge=0, le=1000)] | None = Field(
        None, description="Further attempts of a call that broke; if not given, those of its options."
    )
    retry_pause: Time | None = Field(
        None, description="Pause before the second attempt; before each later one twice as long."
    )
    resumes: Truth | None = Field(None, description="Whether an attempt goes on where the one before broke off.")


class ServiceTable(Part):
    """What a service costs, in place of the defaults of its kind."""

    session_core: Time | None = Field(None, description="Processor time of a session.")
    auth_core: Time | None = Field(None, description="Processor time to find out who the client is.")
    auth_scatter: Amount | None = Field(None, description="Scatter of that: standard deviation over mean.")
    file_core: Time | None = Field(None, description="Processor time of a file or request.")
    byte_core: Time | None = Field(None, description="Processor time of a byte.")
    sessions: Many | None = Field(None, description="Sessions that it serves together; others wait.")
    process_rate: Rate | None = Field(None, description="The fastest that one process of it is.")
    redirect_round_trips: Amount | None = Field(None, description="Of a client that it sends elsewhere.")
    contention: Amount | None = Field(None, description="Sigma of the universal scalability law.")
    coherency: Amount | None = Field(None, description="Kappa of the universal scalability law.")
    cache: Size | None = Field(None, description="What it keeps of other servers' files.")


class StorageTable(Part):
    """What a storage costs: a single head, an array, or the universal scalability law; one of them, or none."""

    read_rate: Rate | None = Field(None, description="The fastest that one user reads; of an array, that many do.")
    write_rate: Rate | None = Field(None, description="The same of writing.")
    seek: Time | None = Field(None, description="A single head: time to begin elsewhere.")
    read_ahead: Size | None = Field(None, description="A single head: what it reads before it goes elsewhere.")
    half_users: Amount | None = Field(None, description="An array: users at which it gives half of its rate.")
    contention: Amount | None = Field(None, description="Sigma of the universal scalability law.")
    coherency: Amount | None = Field(None, description="Kappa of the universal scalability law.")
    open: Time | None = Field(None, description="To open or to create a file.")
    block: Size | None = Field(None, description="What it reads and writes at once.")
    block_time: Time | None = Field(
        None, description="Until a block is found, for a tool that asks for one after the other."
    )

    @model_validator(mode="after")
    def _one_model(self) -> StorageTable:
        models = {
            "seek": self.seek is not None,
            "half_users": self.half_users is not None,
            "contention and coherency": self.contention is not None or self.coherency is not None,
        }
        asked = [name for name, given in models.items() if given]
        if len(asked) > 1:
            raise refuse(f"expected one model of a storage ({', '.join(models)}), found {' and '.join(asked)}")
        if (self.seek is None) != (self.read_ahead is None):
            raise refuse("expected seek and read_ahead together, found one without the other")
        if (self.block is None) != (self.block_time is None):
            raise refuse("expected block and block_time together, found one without the other")
        return self


class HostTable(Part):
    """What a machine gives."""

    cores: Annotated[Number, Field(gt=0)] | None = Field(None, description="Processors.")
    core_speed: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="Speed of a core, relative to the machine that the defaults were measured on."
    )
    page_cache: Size | None = Field(None, description="Memory that keeps files once read.")
    page_cache_rate: Rate | None = Field(None, description="The fastest that files are read from it.")
    send_buffer: Size | None = Field(None, description="Of a connection at most.")
    receive_buffer: Size | None = Field(None, description="Of a connection at most.")
    initial_window_segments: Amount | None = Field(None, description="Segments that a connection begins with.")
    rtt_exponent: Number | None = Field(None, description="a of a flow's weight, streams times RTT to the -a.")


class Cost(Part):
    """What transfers cost besides bytes on links, where a simulated world is to take something else than the defaults."""

    mover: dict[Name, MoverTable] = Field(
        {}, description="Of movers; the tables have names of one's own, later ones win."
    )
    service: dict[Name, ServiceTable] = Field({}, description="Of services, by name.")
    storage: dict[Name, StorageTable] = Field({}, description="Of storages, by name.")
    host: dict[Name, HostTable] = Field({}, description="Of hosts, by name.")
    machine_cores: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="Processors that all hosts share, as those of a lab on one machine do; if not given, none."
    )


Parameters = TypeVar("Parameters", MoverCost, ServiceCost, StorageCost, HostCost)

_OTHERWISE = {
    "block_s": "block_time",
    "session_bytes": "session_size",
    **{f"{name}_bytes_per_s": f"{name}_rate" for name in ("process", "read", "write", "page_cache")},
}
"""Parameters whose keys in a scenario are not their names without the unit."""


def check_costs(testbed: Testbed, movers: Mapping[str, Mover]) -> list[Problem]:
    """Return what is wrong with names in ``[testbed.cost]``: of hosts, storages, services, movers, their ends and options."""
    if testbed.cost is None:
        return []
    problems: list[Problem] = []
    for what, table, known in (
        ("service", testbed.cost.service, testbed.service),
        ("storage", testbed.cost.storage, testbed.storage),
        ("host", testbed.cost.host, testbed.host),
    ):
        plural = f"{what}s"
        problems += [
            (path_text(("testbed", "cost", what, name)), one_of(f"the {plural}", known, name))
            for name in table
            if name not in known
        ]
    for name, rule in testbed.cost.mover.items():
        problems += check_rule(name, rule, movers)
    return problems


def check_rule(name: str, rule: MoverTable, movers: Mapping[str, Mover]) -> list[Problem]:
    """Return what is wrong with the names in a rule: of its mover, its ends and its options."""
    where = path_text(("testbed", "cost", "mover", name))
    called = rule.mover or name
    if called not in movers:
        at = where if rule.mover is None else f"{where}.mover"
        return [(at, one_of("the movers", movers, called))]
    mover, problems = movers[called], []
    ends = (*mover.speaks, "file")
    for key in ("source", "destination"):
        end = getattr(rule, key)
        if end is not None and end not in ends:
            problems.append((f"{where}.{key}", one_of(f"the ends of {called}", ends, end)))
    known = {option.name: option for option in mover.options}
    for option, value in rule.options.items():
        at = f"{where}.options.{option}"
        if option not in known:
            problems.append((at, one_of(f"the options of {called}", known, option)))
            continue
        try:
            known[option].parse(value)
        except UnitError as error:
            problems.append((at, str(error)))
    return problems


def resolve_costs(testbed: Testbed, movers: Mapping[str, Mover]) -> PlanCost | None:
    """Return what the scenario says of costs in base units, as a plan carries it; ``None`` if it says nothing.

    Of a testbed that :func:`check_costs` has nothing against.
    """
    return None if testbed.cost is None else resolve_said(testbed.cost, movers)


def resolve_said(said: Cost, movers: Mapping[str, Mover]) -> PlanCost:
    """Return a table of costs in base units; its movers and their options are known."""
    return PlanCost(
        tuple(_rule(name, rule, movers) for name, rule in said.mover.items()),
        {name: _parameters(ServiceCost, part) for name, part in said.service.items()},
        {name: _parameters(StorageCost, part) for name, part in said.storage.items()},
        {name: _parameters(HostCost, part) for name, part in said.host.items()},
        said.machine_cores,
    )


def _rule(name: str, rule: MoverTable, movers: Mapping[str, Mover]) -> MoverRule:
    called = rule.mover or name
    known = {option.name: option for option in movers[called].options}
    options: dict[str, OptionValue] = {
        known[option].key: known[option].parse(value) for option, value in rule.options.items()
    }
    return MoverRule(called, _parameters(MoverCost, rule), rule.source, rule.destination, options)


def _parameters(kind: type[Parameters], table: Part) -> Parameters:
    """Return the parameters that a table gives; rates are bits a second there."""
    found = {}
    for part in fields(kind):
        value = getattr(table, key_of(part.name))
        is_rate = part.name.endswith("_bytes_per_s")
        found[part.name] = value / BITS_PER_BYTE if is_rate and value is not None else value
    return kind(**found)


def key_of(parameter: str) -> str:
    """Return the key of a parameter in a scenario: without its unit.

    Examples
    --------
    >>> key_of("start_core_s"), key_of("cache_bytes"), key_of("read_bytes_per_s"), key_of("half_users")
    ('start_core', 'cache', 'read_rate', 'half_users')
    """
    return _OTHERWISE.get(parameter) or parameter.removesuffix("_s").removesuffix("_bytes")
