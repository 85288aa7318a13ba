"""Table ``[testbed.cost]``: costs of transfers in a simulation.

A key is a parameter of :mod:`venturi.cost` without its unit, because the text contains the unit: ``start = "12 ms"`` is
``start_s``. ``scale`` does not change costs: they are properties of tools and hosts.
"""

# ruff: noqa: ANN401 - a TOML value has any type before its validation
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from venturi.cost import CostParameters as PlanCost
from venturi.cost import HostCost, MoverCost, MoverRule, ServiceCost, StorageCost
from venturi.errors import UnitError
from venturi.messages import Problem, one_of, path_text
from venturi.mover.base import Mover
from venturi.plan.header import OptionValue
from venturi.scenario.fields import (
    MAX_DURATION_S,
    Name,
    Number,
    Rate,
    ScenarioTable,
    Size,
    Text,
    Truth,
    Whole,
    _quantity,
    format_duration_exact,
    validation_error,
)
from venturi.units import BITS_PER_BYTE, parse_duration

if TYPE_CHECKING:
    from venturi.scenario.testbed import TestbedTable

__all__ = ["CostTable", "check_costs", "check_rule", "resolve_cost_table", "resolve_costs", "scenario_key"]


def _time(value: Any) -> float:
    seconds = parse_duration(value)
    if not seconds < MAX_DURATION_S:
        raise UnitError(f"expected a time below 10 years, found {value!r}; use a shorter time")
    return seconds


Time = Annotated[
    float,
    PlainValidator(_quantity(_time)),
    PlainSerializer(format_duration_exact),
    WithJsonSchema({"type": "string", "description": "A time, with its unit", "examples": ["12 ms", "2 ns", "0 s"]}),
]
Amount = Annotated[Number, Field(ge=0)]
Many = Annotated[Whole, Field(ge=1, le=2**32 - 1)]


class MoverCostTable(ScenarioTable):
    """Costs of the calls of a mover, in addition to the bytes; keys that are not set keep the default of the mover."""

    mover: Text | None = Field(None, description="Mover. Default: the name of the table.")
    source: Text | None = Field(
        None, description="Only calls with this source: a protocol such as gsiftp, or file. Default: any source."
    )
    destination: Text | None = Field(
        None, description="Only calls with this destination: a protocol, or file. Default: any destination."
    )
    options: Annotated[
        dict[str, Any],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}}),
    ] = Field({}, description="Only calls with these options.")
    start: Time | None = Field(None, description="Waiting time of a call, without CPU time.")
    start_core: Time | None = Field(None, description="CPU time of the client for a call.")
    session_round_trips: Amount | None = Field(
        None, description="Round trips of a call: connection, login and logout."
    )
    file: Time | None = Field(None, description="Waiting time of a file, without CPU time.")
    file_core: Time | None = Field(None, description="CPU time of the client for a file.")
    file_round_trips: Amount | None = Field(None, description="Round trips of a file.")
    byte_core: Time | None = Field(None, description="CPU time of the client for a byte.")
    pipelining: Many | None = Field(None, description="Files with commands in flight at the same time.")
    sessions: Many | None = Field(
        None, description="Concurrent sessions of a call without an option for their number. Default: one."
    )
    session_files: Many | None = Field(
        None,
        description="Minimum number of files for each session; a call with fewer files opens fewer sessions. Default: one.",
    )
    session_size: Size | None = Field(
        None,
        description="Minimum number of bytes for each session, if there are fewer files. Default: only files count.",
    )
    min_sessions: Many | None = Field(
        None,
        description="Minimum number of sessions, at most the number of files. Default: one.",
    )
    large: Size | None = Field(None, description="Smallest file that is transferred in chunks. Default: no file.")
    chunk: Size | None = Field(None, description="Size of a chunk.")
    in_flight: Size | None = Field(None, description="Requested bytes in flight on a connection.")
    block: Size | None = Field(
        None, description="Size of a block; the mover alternates between reading and sending a block."
    )
    block_time: Time | None = Field(None, description="Additional time of a block.")
    keeps_connection: Truth | None = Field(None, description="Reuse of a data connection for the next file.")
    logins: Amount | None = Field(None, description="Logins of a session at each server.")
    session: Time | None = Field(
        None, description="For a job with several calls of a tool: waiting time of each call, without CPU time."
    )
    session_core: Time | None = Field(None, description="CPU time of the client for each of these calls.")
    check: Time | None = Field(
        None,
        description="For a tool that requests checksums from both endpoints: waiting time of a request, without CPU time.",
    )
    check_core: Time | None = Field(None, description="CPU time of the client for a checksum request.")
    check_round_trips: Amount | None = Field(None, description="Round trips of a checksum request.")
    check_byte_core: Time | None = Field(None, description="CPU time of the server for a byte of a checksum.")
    checks: Many | None = Field(None, description="Checksum requests in flight at the same time.")
    stall_timeout: Time | None = Field(None, description="Maximum time without a byte; then the attempt fails.")
    retries: Annotated[Whole, Field(ge=0, le=1000)] | None = Field(
        None, description="Retries of a failed call. Default: from the options of the call."
    )
    retry_pause: Time | None = Field(
        None, description="Pause before the second attempt; it doubles before each further attempt."
    )
    resumes: Truth | None = Field(None, description="Resume after the bytes of the previous attempt.")


class ServiceCostTable(ScenarioTable):
    """Costs of a service, instead of the defaults of its kind."""

    session_core: Time | None = Field(None, description="CPU time of a session.")
    auth_core: Time | None = Field(None, description="CPU time of the authentication of a client.")
    auth_scatter: Amount | None = Field(
        None, description="Coefficient of variation of the authentication time (standard deviation over mean)."
    )
    file_core: Time | None = Field(None, description="CPU time of a file or request.")
    byte_core: Time | None = Field(None, description="CPU time of a byte.")
    sessions: Many | None = Field(None, description="Maximum number of concurrent sessions; further sessions wait.")
    process_rate: Rate | None = Field(None, description="Maximum rate of one process.")
    redirect_round_trips: Amount | None = Field(None, description="Round trips of a redirected client.")
    contention: Amount | None = Field(None, description="Sigma of the universal scalability law.")
    coherency: Amount | None = Field(None, description="Kappa of the universal scalability law.")
    cache: Size | None = Field(None, description="Cache for the files of other servers.")


class StorageCostTable(ScenarioTable):
    """Costs of a storage: a single head, an array or the universal scalability law; at most one of these models."""

    read_rate: Rate | None = Field(None, description="Maximum read rate of one user; for an array, of many users.")
    write_rate: Rate | None = Field(None, description="Maximum write rate of one user; for an array, of many users.")
    seek: Time | None = Field(None, description="Single head: time of a seek.")
    read_ahead: Size | None = Field(None, description="Single head: bytes read between two seeks.")
    half_users: Amount | None = Field(None, description="Array: number of users at half of the maximum rate.")
    contention: Amount | None = Field(None, description="Sigma of the universal scalability law.")
    coherency: Amount | None = Field(None, description="Kappa of the universal scalability law.")
    open: Time | None = Field(None, description="Time to open or create a file.")
    block: Size | None = Field(None, description="Size of a read or write.")
    block_time: Time | None = Field(
        None, description="Latency of a block, for a tool that requests one block after the other."
    )

    @model_validator(mode="after")
    def _check_one_model(self) -> StorageCostTable:
        models = {
            "seek": self.seek is not None,
            "half_users": self.half_users is not None,
            "contention and coherency": self.contention is not None or self.coherency is not None,
        }
        chosen = [name for name, given in models.items() if given]
        if len(chosen) > 1:
            raise validation_error(
                f"expected one model of a storage ({', '.join(models)}), found {' and '.join(chosen)}; remove the keys of the other models"
            )
        if (self.seek is None) != (self.read_ahead is None):
            raise validation_error("expected seek and read_ahead together, found one of them; add the other key")
        if (self.block is None) != (self.block_time is None):
            raise validation_error("expected block and block_time together, found one of them; add the other key")
        return self


class HostCostTable(ScenarioTable):
    """Resources of a host in a simulation."""

    cores: Annotated[Number, Field(gt=0)] | None = Field(None, description="Number of CPU cores.")
    core_speed: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="Speed of a core, relative to the host of the default measurements."
    )
    page_cache: Size | None = Field(None, description="Memory for files that were read before (page cache).")
    page_cache_rate: Rate | None = Field(None, description="Maximum read rate from the page cache.")
    send_buffer: Size | None = Field(None, description="Maximum send buffer of a connection.")
    receive_buffer: Size | None = Field(None, description="Maximum receive buffer of a connection.")
    initial_window_segments: Amount | None = Field(
        None, description="Initial congestion window of a connection, in segments."
    )
    rtt_exponent: Number | None = Field(None, description="Exponent a in the weight of a flow: streams × RTT^-a.")


class CostTable(ScenarioTable):
    """Costs of transfers in a simulation, in addition to bytes on links, instead of the defaults."""

    mover: dict[Name, MoverCostTable] = Field(
        {}, description="Costs of movers; table names are free, and later tables override earlier ones."
    )
    service: dict[Name, ServiceCostTable] = Field({}, description="Costs of services, by name.")
    storage: dict[Name, StorageCostTable] = Field({}, description="Costs of storages, by name.")
    host: dict[Name, HostCostTable] = Field({}, description="Resources of hosts, by name.")
    machine_cores: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="CPU cores of all hosts together, as in a lab on one machine. Default: none."
    )


Parameters = TypeVar("Parameters", MoverCost, ServiceCost, StorageCost, HostCost)

_SCENARIO_KEYS = {
    "block_s": "block_time",
    "session_bytes": "session_size",
    **{f"{name}_bytes_per_s": f"{name}_rate" for name in ("process", "read", "write", "page_cache")},
}
"""Scenario keys that differ from the parameter name without its unit."""


def check_costs(testbed: TestbedTable, movers: Mapping[str, Mover]) -> list[Problem]:
    """Return the errors of names in ``[testbed.cost]``: hosts, storages, services, movers, endpoints and options."""
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


def check_rule(name: str, rule: MoverCostTable, movers: Mapping[str, Mover]) -> list[Problem]:
    """Return the errors of names in a rule: mover, endpoints and options."""
    where = path_text(("testbed", "cost", "mover", name))
    mover_name = rule.mover or name
    if mover_name not in movers:
        at = where if rule.mover is None else f"{where}.mover"
        return [(at, one_of("the movers", movers, mover_name))]
    mover, problems = movers[mover_name], []
    endpoints = (*mover.protocols, "file")
    for key in ("source", "destination"):
        endpoint = getattr(rule, key)
        if endpoint is not None and endpoint not in endpoints:
            problems.append((f"{where}.{key}", one_of(f"the endpoints of {mover_name}", endpoints, endpoint)))
    known = {option.name: option for option in mover.options}
    for option, value in rule.options.items():
        at = f"{where}.options.{option}"
        if option not in known:
            problems.append((at, one_of(f"the options of {mover_name}", known, option)))
            continue
        try:
            known[option].parse(value)
        except UnitError as error:
            problems.append((at, str(error)))
    return problems


def resolve_costs(testbed: TestbedTable, movers: Mapping[str, Mover]) -> PlanCost | None:
    """Return the costs of a scenario in base units for a plan, ``None`` if there are none.

    :func:`check_costs` must have returned no errors.
    """
    return None if testbed.cost is None else resolve_cost_table(testbed.cost, movers)


def resolve_cost_table(table: CostTable, movers: Mapping[str, Mover]) -> PlanCost:
    """Return a table of costs in base units; its movers and options must be known."""
    return PlanCost(
        tuple(_rule(name, rule, movers) for name, rule in table.mover.items()),
        {name: _parameters(ServiceCost, part) for name, part in table.service.items()},
        {name: _parameters(StorageCost, part) for name, part in table.storage.items()},
        {name: _parameters(HostCost, part) for name, part in table.host.items()},
        table.machine_cores,
    )


def _rule(name: str, rule: MoverCostTable, movers: Mapping[str, Mover]) -> MoverRule:
    mover_name = rule.mover or name
    known = {option.name: option for option in movers[mover_name].options}
    options: dict[str, OptionValue] = {
        known[option].key: known[option].parse(value) for option, value in rule.options.items()
    }
    return MoverRule(mover_name, _parameters(MoverCost, rule), rule.source, rule.destination, options)


def _parameters(kind: type[Parameters], table: ScenarioTable) -> Parameters:
    """Return the parameters of a table, with rates converted from bit/s to bytes/s."""
    found = {}
    for part in fields(kind):
        value = getattr(table, scenario_key(part.name))
        is_rate = part.name.endswith("_bytes_per_s")
        found[part.name] = value / BITS_PER_BYTE if is_rate and value is not None else value
    return kind(**found)


def scenario_key(parameter: str) -> str:
    """Return the scenario key of a parameter: its name without the unit.

    Examples
    --------
    >>> [scenario_key(name) for name in ("start_core_s", "cache_bytes", "read_bytes_per_s", "half_users")]
    ['start_core', 'cache', 'read_rate', 'half_users']
    """
    return _SCENARIO_KEYS.get(parameter) or parameter.removesuffix("_s").removesuffix("_bytes")
