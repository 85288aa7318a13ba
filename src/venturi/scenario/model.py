"""A scenario as typed, frozen data: what each table of the file may hold."""

# ruff: noqa: ANN401 - the signature is pydantic's
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from venturi.mover.base import MAX_WHOLE, OPTION_KINDS
from venturi.plan.words import shown
from venturi.scenario.families import FAMILY_NAMES
from venturi.scenario.fields import Interval, Name, Number, Part, Text, Whole, refuse
from venturi.scenario.testbed import Testbed, _distinct
from venturi.scenario.words import one_of
from venturi.workload.base import Workload
from venturi.workload.table import KINDS

__all__ = ["VERSION", "Analyse", "Criterion", "Measure", "MoverTemplate", "Scenario"]

VERSION = 1
Counter = Literal["cpu", "disk", "memory", "nic", "tcp"]
Criterion = Literal["aicc", "r2", "adjusted_r2", "cross_validation"]
"""What ranks fits."""


def _with_path(value: str) -> str:
    if value.count("{path}") != 1 or set(value.replace("{path}", "")) & {"{", "}"}:
        raise refuse(f'expected a text with {{path}} in it, such as "file://{{path}}", found {shown(value)}')
    return value


class MoverTemplate(Part):
    """A tool of one's own, without code."""

    argv: Annotated[
        tuple[Any, ...],
        WithJsonSchema(
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            }
        ),
    ] = Field(description="The command: texts with placeholders, and lists of them that may be left out.")
    requires: tuple[Text, ...] | None = Field(
        None, description="Programs that must be there; by default argv's first."
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
    ] = Field({}, description="Name and kind of what can be set; a list of texts is a choice.")
    speaks: tuple[Text, ...] = Field(
        (), description='Protocols of doors that it can use, the preferred one first, such as ["gsiftp", "ftp"].'
    )
    local: Annotated[Text, AfterValidator(_with_path)] = Field(
        "{path}", description="How it writes a file of its own host, such as file://{path}."
    )
    lists: bool | None = Field(
        None, description="Whether one call takes many files; by default if argv names {list} or {folder}."
    )


def _families(value: object) -> Literal["all"] | tuple[str, ...]:
    if value == "all":
        return "all"
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
        raise refuse(f'expected "all" or a list of names, found {shown(value)}')
    for name in value:
        if name not in FAMILY_NAMES:
            raise refuse(one_of("the families", FAMILY_NAMES, name))
    return _distinct(tuple(value))


class Measure(Part):
    """What is sampled while transfers run."""

    interval: Interval = Field(0.1, description='Between two samples, or "off".')
    counters: Annotated[tuple[Counter, ...], AfterValidator(_distinct)] = Field(
        ("cpu", "disk", "memory", "nic"), description="Which counters."
    )
    transfers: Literal["each", "routes"] = Field(
        "each",
        description="A record of each transfer, or counts, sums and distributions of those between two places; the latter in virtual time only.",
    )


class Analyse(Part):
    """How the run is summarised."""

    confidence: Number = Field(0.95, gt=0, lt=1, description="Level of all intervals.")
    against: Annotated[tuple[Text, ...], AfterValidator(_distinct)] = Field(
        ("files", "size"), description="One figure each; the other factors make the curves."
    )
    families: Annotated[
        Literal["all"] | tuple[str, ...],
        PlainValidator(_families),
        PlainSerializer(lambda names: names if isinstance(names, str) else list(names)),
        WithJsonSchema({"anyOf": [{"const": "all"}, {"type": "array", "items": {"enum": list(FAMILY_NAMES)}}]}),
    ] = Field("all", description="Families of functions to fit: all, or a list of names.")
    criterion: Criterion = Field("aicc", description="What ranks the fits.")


class _OneOfKinds:
    """The workload is the model that the table has for its ``kind``; one kind is enough for this to work."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tagged_union_schema(
            {kind: handler.generate_schema(model) for kind, model in KINDS.items()}, discriminator="kind"
        )


class Scenario(Part):
    """What a user wrote: a testbed, a workload, what to measure and how to analyse it.

    Made by :func:`venturi.scenario.load_scenario`, which has checked all names in it; the models alone check forms only.
    """

    venturi: Literal[1] = Field(description="Version of this format.")
    name: Annotated[Text, Field(min_length=1)] = Field(description="Names the run.")
    seed: Whole = Field(1, ge=0, le=MAX_WHOLE, description="Of every random draw.")
    scale: Number = Field(1.0, gt=0, le=1000, description="Multiplies sizes (in the lab also rates).")
    include: tuple[Text, ...] = Field((), description="Files to be merged first; this file wins.")
    study: Text | None = Field(None, description="Published values to show beside ours.")
    testbed: Testbed = Field(Testbed(), description="Where things are.")
    workload: Annotated[Workload, _OneOfKinds()] = Field(description="The rule that yields transfers.")
    mover: dict[Name, MoverTemplate] = Field({}, description="Tools of one's own, by name.")
    measure: Measure = Field(Measure(), description="What is sampled while transfers run.")
    analyse: Analyse = Field(Analyse(), description="How the run is summarised.")

    def document(self) -> dict[str, Any]:
        """Return the scenario as a document, all defaults filled in; reading it gives this scenario again."""
        written: dict[str, Any] = _without_nothing(self.model_dump(mode="json", exclude={"include"}))
        return written


def _without_nothing(value: Any) -> Any:
    """Leave out what is not set: TOML has no word for it."""
    if isinstance(value, dict):
        return {key: _without_nothing(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nothing(item) for item in value]
    return value
