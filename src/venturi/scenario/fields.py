"""Field types of a scenario: text with a unit becomes a number in base units."""

# ruff: noqa: ANN401 - a TOML value has any type before its validation
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from venturi.errors import UnitError
from venturi.messages import QuotedValue, quote_value
from venturi.mover.base import parse_size
from venturi.plan.header import BUILT_IN_STORAGES
from venturi.units import format_bytes_exact, parse_duration, parse_rate_bit_per_s

__all__ = [
    "Delay",
    "DelayPair",
    "Duration",
    "Interval",
    "LinkQueueSize",
    "Loss",
    "LossText",
    "Moment",
    "Name",
    "Number",
    "Probability",
    "QueueText",
    "Rate",
    "RatePair",
    "ScenarioTable",
    "Size",
    "Text",
    "Truth",
    "Volume",
    "VolumeText",
    "Whole",
    "format_duration_exact",
    "validation_error",
]


MAX_DURATION_S = 10 * 365 * 86400.0
"""Ten years; prevents overflows of clocks."""

MAX_DELAY_S = 3600.001
"""One hour; the network emulator keeps delayed packets in memory."""


class ScenarioTable(BaseModel):
    """Base class of the tables of a scenario: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True)
class Volume:
    """Minimum amount of data: ``size_bytes``, or ``memories`` times the memory of the host."""

    size_bytes: int | None = None
    memories: float | None = None


@dataclass(frozen=True, slots=True)
class LinkQueueSize:
    """Size of a queue: ``size_bytes``, or ``products`` times the bandwidth-delay product of its path."""

    size_bytes: int | None = None
    products: float | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Random packet loss: independent, or in bursts with ``enter`` and ``leave`` (Gilbert–Elliott).

    ``probability`` is the loss probability of a packet; with bursts, in the bad state.
    """

    probability: float
    enter: float | None = None
    leave: float | None = None


def validation_error(problem: str) -> PydanticCustomError:
    """Return the error of a validator with the message ``problem``."""
    return PydanticCustomError("venturi", "{problem}", {"problem": problem})


def format_duration_exact(duration_s: float) -> str:
    """Return a text that :func:`venturi.units.parse_duration` parses to the same number.

    Examples
    --------
    >>> format_duration_exact(600.0), format_duration_exact(0.1)
    ('600 s', '0.1 s')
    """
    return f"{duration_s:.0f} s" if duration_s == int(duration_s) else f"{duration_s!r} s"


def _quantity(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def validate(value: Any) -> Any:
        if not isinstance(value, str) and not isinstance(value, (int, float)):
            value = QuotedValue(value)
        try:
            return parse(value)
        except UnitError as error:
            raise validation_error(
                str(error).replace("found True", "found true").replace("found False", "found false")
            ) from None
        except (OverflowError, ValueError):
            raise validation_error(
                f"expected a quantity below 1e300, found {quote_value(value)}; use a smaller number"
            ) from None

    return validate


def _interval(value: Any) -> float | None:
    if value == "off":
        return None
    try:
        seconds = parse_duration(value)
    except UnitError:
        raise UnitError(
            f'expected a time such as "100 ms", or "off", found {quote_value(value)}; add a unit'
        ) from None
    if seconds <= 0:
        raise UnitError(
            f'expected a time above 0, or "off", found {quote_value(value)}; write "off" to disable sampling'
        )
    return seconds


def _positive_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if not 0 < seconds < MAX_DURATION_S:
        raise UnitError(f"expected a time above 0 and below 10 years, found {quote_value(value)}; change the time")
    return seconds


def _positive_rate(value: Any) -> float:
    rate = parse_rate_bit_per_s(value)
    if rate <= 0:
        raise UnitError(f"expected a rate above 0, found {quote_value(value)}; use a higher rate")
    return rate


def _delay(value: Any) -> float:
    seconds = parse_duration(value)
    if not seconds < MAX_DELAY_S:
        raise UnitError(f"expected a time of 1 h at most, found {quote_value(value)}; use a shorter time")
    return seconds


def _moment(value: Any) -> float:
    seconds = parse_duration(value)
    if not seconds < MAX_DURATION_S:
        raise UnitError(f"expected a time below 10 years, found {quote_value(value)}; use a shorter time")
    return seconds


def _pair(parse: Callable[[Any], float], what: str) -> Callable[[Any], tuple[float, float]]:
    """Return a parser of one value for both directions, or of one value for each direction."""

    def parse_pair(value: Any) -> tuple[float, float]:
        found = value.value if isinstance(value, QuotedValue) else value
        if not isinstance(found, (list, tuple)):
            both = parse(value)
            return both, both
        if len(found) != 2:
            raise UnitError(
                f"expected {what}, or one for each direction, found {quote_value(found)}; write one or two values"
            )
        forward, backward = (
            parse(item if isinstance(item, (str, int, float)) else QuotedValue(item)) for item in found
        )
        return forward, backward

    return parse_pair


def _emit_pair(emit: Callable[[float], str]) -> Callable[[tuple[float, float]], str | list[str]]:
    return lambda pair: emit(pair[0]) if pair[0] == pair[1] else [emit(pair[0]), emit(pair[1])]


def _queue(value: Any) -> LinkQueueSize:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *BDP", value) if isinstance(value, str) else None
    if match and float(match[1]) > 0:
        return LinkQueueSize(products=float(match[1]))
    try:
        size = parse_size(value)
    except UnitError:
        size = 0
    if size < 1:
        raise UnitError(f'expected a size such as "1 MB", or "1 BDP", found {quote_value(value)}; add a unit')
    return LinkQueueSize(size_bytes=size)


def _emit_queue(queue: LinkQueueSize) -> str:
    return f"{queue.products:.6g} BDP" if queue.size_bytes is None else format_bytes_exact(queue.size_bytes)


def _is_probability(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _probability(value: Any) -> float:
    if not _is_probability(value):
        raise validation_error(
            f"expected a probability from 0 to 1, found {quote_value(value)}; write a number such as 0.001"
        )
    return float(value)


def _loss(value: Any) -> Loss:
    if _is_probability(value):
        return Loss(float(value))
    if not isinstance(value, dict):
        raise validation_error(
            f"expected a probability from 0 to 1, or a table with enter and leave, found {quote_value(value)}; write such a value"
        )
    for key in value:
        if key not in ("enter", "leave", "probability"):
            raise validation_error(
                f"expected the keys enter, leave and probability, found {quote_value(key)}; remove this key"
            )
    for key in ("enter", "leave"):
        if not _is_probability(value.get(key)) or not value[key]:
            raise validation_error(f"expected {key} above 0 and up to 1, found {quote_value(value.get(key))}; set it")
    if not _is_probability(value.get("probability", 1.0)):
        raise validation_error(
            f"expected probability from 0 to 1, found {quote_value(value['probability'])}; change it"
        )
    return Loss(float(value.get("probability", 1.0)), float(value["enter"]), float(value["leave"]))


def _emit_loss(loss: Loss) -> float | dict[str, float]:
    if loss.enter is None or loss.leave is None:
        return loss.probability
    return {"enter": loss.enter, "leave": loss.leave, "probability": loss.probability}


def _volume(value: Any) -> Volume:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *[x×*] *memory", value) if isinstance(value, str) else None
    if match and float(match[1]) > 0:
        return Volume(memories=float(match[1]))
    try:
        return Volume(size_bytes=parse_size(value))
    except UnitError:
        raise UnitError(
            f'expected a size such as "100 GB", or "2 x memory", found {quote_value(value)}; use one form'
        ) from None


def _emit_volume(volume: Volume) -> str:
    return f"{volume.memories:g} x memory" if volume.size_bytes is None else format_bytes_exact(volume.size_bytes)


def _name(text: str) -> str:
    if text in BUILT_IN_STORAGES or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", text):
        built_in = " or ".join(BUILT_IN_STORAGES)
        raise validation_error(
            f"expected a name of letters, digits, - and _ (and not {built_in}), found {quote_value(text)}; choose another name"
        )
    return text


def _schema(kind: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": f"{kind}, with its unit", "examples": list(examples)})


def _pair_schema(kind: str, example: str) -> WithJsonSchema:
    one = {"type": "string", "examples": [example]}
    two = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
    return WithJsonSchema(
        {"description": f"{kind}, with its unit; or a list with one for each direction", "anyOf": [one, two]}
    )


Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]
Truth = Annotated[bool, Field(strict=True)]
Name = Annotated[str, AfterValidator(_name)]

Size = Annotated[
    int, PlainValidator(_quantity(parse_size)), PlainSerializer(format_bytes_exact), _schema("A size", "16 GiB")
]
Duration = Annotated[
    float,
    PlainValidator(_quantity(_positive_duration)),
    PlainSerializer(format_duration_exact),
    _schema("A time", "10 min", "100 ms"),
]
Rate = Annotated[
    float,
    PlainValidator(_quantity(_positive_rate)),
    PlainSerializer(lambda rate: f"{rate!r} b/s"),
    _schema("A rate", "500 MB/s", "10 Gb/s"),
]
Delay = Annotated[
    float, PlainValidator(_quantity(_delay)), PlainSerializer(format_duration_exact), _schema("A time", "5 ms", "0 s")
]
Moment = Annotated[
    float,
    PlainValidator(_quantity(_moment)),
    PlainSerializer(format_duration_exact),
    _schema("A time", "10 s", "2 d"),
]
RatePair = Annotated[
    tuple[float, float],
    PlainValidator(_quantity(_pair(_positive_rate, 'a rate such as "10 Gb/s"'))),
    PlainSerializer(_emit_pair(lambda rate: f"{rate!r} b/s")),
    _pair_schema("A rate", "10 Gb/s"),
]
DelayPair = Annotated[
    tuple[float, float],
    PlainValidator(_quantity(_pair(_delay, 'a time such as "5 ms"'))),
    PlainSerializer(_emit_pair(format_duration_exact)),
    _pair_schema("A time", "5 ms"),
]
QueueText = Annotated[
    LinkQueueSize,
    PlainValidator(_quantity(_queue)),
    PlainSerializer(_emit_queue),
    _schema("A size", "1 MB", "0.25 BDP"),
]
Probability = Annotated[
    float, PlainValidator(_probability), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
]
LossText = Annotated[
    Loss,
    PlainValidator(_loss),
    PlainSerializer(_emit_loss),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {
                    "type": "object",
                    "properties": {
                        key: {"type": "number", "minimum": 0, "maximum": 1}
                        for key in ("enter", "leave", "probability")
                    },
                    "required": ["enter", "leave"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
Interval = Annotated[
    float | None,
    PlainValidator(_quantity(_interval)),
    PlainSerializer(lambda interval_s: "off" if interval_s is None else format_duration_exact(interval_s)),
    _schema('A time, or "off"', "100 ms", "off"),
]
VolumeText = Annotated[
    Volume,
    PlainValidator(_quantity(_volume)),
    PlainSerializer(_emit_volume),
    _schema("A size, or a multiple of the memory", "100 GB", "2 x memory"),
]
