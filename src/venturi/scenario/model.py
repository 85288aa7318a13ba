"""Scenario as typed, frozen data: the tables and keys of the file."""

# ruff: noqa: ANN401 - signature of pydantic
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from venturi.messages import one_of, quote_value
from venturi.mover.base import MAX_WHOLE, OPTION_KINDS
from venturi.scenario.families import FAMILY_NAMES
from venturi.scenario.fields import (
    Duration,
    Interval,
    Name,
    Number,
    Rate,
    ScenarioTable,
    Size,
    Text,
    Whole,
    validation_error,
)
from venturi.scenario.testbed import TestbedTable, _distinct
from venturi.workload.base import Workload
from venturi.workload.table import KINDS

__all__ = ["VERSION", "Analyse", "Criterion", "LimitsTable", "MeasureTable", "MoverTemplate", "Scenario"]

VERSION = 1
Counter = Literal["cpu", "disk", "memory", "nic", "pressure", "process", "tcp"]
Criterion = Literal["aicc", "r2", "adjusted_r2", "cross_validation"]
"""Criterion that ranks the fits."""


def _check_path_placeholder(value: str) -> str:
    if value.count("{path}") != 1 or set(value.replace("{path}", "")) & {"{", "}"}:
        raise validation_error(
            f'expected a text with {{path}} in it, such as "file://{{path}}", found {quote_value(value)}; write {{path}} once'
        )
    return value


class MoverTemplate(ScenarioTable):
    """A user-defined tool, without code."""

    argv: Annotated[
        tuple[Any, ...],
        WithJsonSchema(
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            }
        ),
    ] = Field(description="Command: arguments with placeholders; a list is an optional group of arguments.")
    requires: tuple[Text, ...] | None = Field(
        None, description="Required programs. Default: the first element of argv."
    )
    options: Annotated[
        dict[Name, Any],
        WithJsonSchema(
            {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [
                        {"enum": [kind for kind in OPTION_KINDS if kind != "choice"]},
                        {"type": "array", "items": {"type": "string"}},
                    ]
                },
            }
        ),
    ] = Field({}, description="Options with their kind; a list of texts is a choice.")
    protocols: tuple[Text, ...] = Field(
        (),
        description='Protocols of services that the tool can use, in order of preference, such as ["gsiftp", "ftp"].',
    )
    local: Annotated[Text, AfterValidator(_check_path_placeholder)] = Field(
        "{path}", description="Form of a path on the local host, such as file://{path}."
    )
    lists: bool | None = Field(
        None, description="Accept many files in one call. Default: if argv contains {list} or {directory}."
    )


def _families(value: object) -> Literal["all"] | tuple[str, ...]:
    if value == "all":
        return "all"
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
        raise validation_error(f'expected "all" or a list of names, found {quote_value(value)}; use one form')
    for name in value:
        if name not in FAMILY_NAMES:
            raise validation_error(one_of("the families", FAMILY_NAMES, name))
    return _distinct(tuple(value))


class MeasureTable(ScenarioTable):
    """Counters to sample during transfers."""

    interval: Interval = Field(0.1, description='Time between two samples, or "off".')
    counters: Annotated[tuple[Counter, ...], AfterValidator(_distinct)] | None = Field(
        None,
        description="Families of counters to sample. Default: all; without tcp if one host copies only local files.",
    )
    transfers: Literal["each", "routes"] = Field(
        "each",
        description="Records: one for each transfer, or counts, sums and distributions for each pair of storages (simulation only).",
    )


class Analyse(ScenarioTable):
    """Analysis and report of the run."""

    confidence: Number = Field(0.95, gt=0, lt=1, description="Level of all confidence intervals.")
    against: Annotated[tuple[Text, ...], AfterValidator(_distinct)] = Field(
        ("files", "size"),
        description="Factors on the horizontal axis, one figure for each; the other factors are the curves.",
    )
    families: Annotated[
        Literal["all"] | tuple[str, ...],
        PlainValidator(_families),
        PlainSerializer(lambda names: names if isinstance(names, str) else list(names)),
        WithJsonSchema({"anyOf": [{"const": "all"}, {"type": "array", "items": {"enum": list(FAMILY_NAMES)}}]}),
    ] = Field("all", description="Model families to fit: all, or a list of names.")
    criterion: Criterion = Field("aicc", description="Criterion that ranks the fits.")


class LimitsTable(ScenarioTable):
    """Limits of a run, to protect hosts and servers that others use."""

    bytes: Annotated[Size, Field(ge=1)] | None = Field(
        None, description="Bytes of all transfers. Venturi rejects a plan with more bytes."
    )
    time: Duration | None = Field(None, description="Duration of venturi run. Afterwards it stops in order.")
    concurrent: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="Transfers at a time. Venturi rejects a plan with more."
    )
    rate: Rate | None = Field(
        None, description="Rate of all transfers together. Each transfer gets an equal part, by its option rate."
    )


class _WorkloadUnion:
    """Select the model of the workload by its ``kind``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tagged_union_schema(
            {kind: handler.generate_schema(model) for kind, model in KINDS.items()}, discriminator="kind"
        )


class Scenario(ScenarioTable):
    """A testbed, a workload, measurements and an analysis.

    :func:`venturi.scenario.load_scenario` creates it and checks all names. The models check types only.
    """

    venturi: Literal[1] = Field(description="Version of the format.")
    name: Annotated[Text, Field(min_length=1)] = Field(description="Name of the run.")
    seed: Whole = Field(1, ge=0, le=MAX_WHOLE, description="Seed of all random numbers.")
    scale: Number = Field(1.0, gt=0, le=1000, description="Factor for all sizes (in the lab also rates).")
    include: tuple[Text, ...] = Field((), description="Files to merge; the keys of this file override them.")
    study: Text | None = Field(None, description="Study with published values to compare with.")
    testbed: TestbedTable = Field(TestbedTable(), description="Hosts, network, storages and services.")
    workload: Annotated[Workload, _WorkloadUnion()] = Field(description="Rule that defines the transfers.")
    mover: dict[Name, MoverTemplate] = Field({}, description="User-defined tools, by name.")
    limits: LimitsTable | None = Field(None, description="Limits of the run.")
    measure: MeasureTable = Field(MeasureTable(), description="Counters to sample during transfers.")
    analyse: Analyse = Field(Analyse(), description="Analysis and report of the run.")

    def document(self) -> dict[str, Any]:
        """Return the scenario as a document with all defaults; reading it returns an equal scenario."""
        written: dict[str, Any] = _drop_none(self.model_dump(mode="json", exclude={"include"}))
        return written


def _drop_none(value: Any) -> Any:
    """Remove keys without a value: TOML has no null."""
    if isinstance(value, dict):
        return {key: _drop_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_none(item) for item in value]
    return value
