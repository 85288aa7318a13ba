"""The types that fields of a scenario have: text that carries a unit becomes a number in base units, once, here."""

# ruff: noqa: ANN401 - a TOML value is of any type until it has been looked at here
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from venturi.errors import UnitError
from venturi.mover.base import parse_size
from venturi.plan.header import BUILT_IN_PLACES
from venturi.plan.words import shown
from venturi.units import format_bytes_exact, parse_duration, parse_rate_bit_per_s

__all__ = [
    "Delay",
    "DelayPair",
    "Duration",
    "Interval",
    "Loss",
    "LossText",
    "Moment",
    "Name",
    "Number",
    "Part",
    "Probability",
    "Queue",
    "QueueText",
    "Rate",
    "RatePair",
    "Size",
    "Text",
    "Truth",
    "Volume",
    "VolumeText",
    "Whole",
    "format_duration_exact",
    "refuse",
]


LONGEST_S = 10 * 365 * 86400.0
"""No limit of a real measurement; keeps clocks of all kinds from overflowing."""

LONGEST_DELAY_S = 3600.001
"""No delay of a link on this planet; an emulator that holds packets for longer holds too many."""


class Part(BaseModel):
    """A table of a scenario: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True)
class Volume:
    """At least so much data: ``size_bytes``, or ``memories`` times the memory of the host."""

    size_bytes: int | None = None
    memories: float | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """What a queue holds: ``size_bytes``, or ``products`` times the bandwidth-delay product of its path."""

    size_bytes: int | None = None
    products: float | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Random loss of packets: each by itself, or in bursts where ``enter`` and ``leave`` are given (Gilbert–Elliott).

    ``probability`` is that of a packet, in bursts that of a packet in the bad state.
    """

    probability: float
    enter: float | None = None
    leave: float | None = None


def refuse(problem: str) -> PydanticCustomError:
    """Return the error that a validator raises to say ``problem``, in our words, at its place."""
    return PydanticCustomError("venturi", "{problem}", {"problem": problem})


def format_duration_exact(duration_s: float) -> str:
    """Return a text from which :func:`venturi.units.parse_duration` makes the same number.

    Examples
    --------
    >>> format_duration_exact(600.0), format_duration_exact(0.1)
    ('600 s', '0.1 s')
    """
    return f"{duration_s:.0f} s" if duration_s == int(duration_s) else f"{duration_s!r} s"


def _quantity(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def validate(value: Any) -> Any:
        if not isinstance(value, str) and not isinstance(value, (int, float)):
            value = _Shown(value)
        try:
            return parse(value)
        except UnitError as error:
            raise refuse(
                str(error).replace("found True", "found true").replace("found False", "found false")
            ) from None
        except (OverflowError, ValueError):
            raise refuse(f"expected a quantity of a size that can be, found {shown(value)}") from None

    return validate


class _Shown:
    """A value that the parsers of units refuse with our wording of it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return shown(self.value)


def _interval(value: Any) -> float | None:
    if value == "off":
        return None
    try:
        seconds = parse_duration(value)
    except UnitError:
        raise UnitError(f'expected a time such as "100 ms", or "off", found {shown(value)}') from None
    if seconds <= 0:
        raise UnitError(f'expected a time above 0, or "off", found {shown(value)}')
    return seconds


def _positive_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if not 0 < seconds < LONGEST_S:
        raise UnitError(f"expected a time above 0 and below 10 years, found {shown(value)}")
    return seconds


def _positive_rate(value: Any) -> float:
    rate = parse_rate_bit_per_s(value)
    if rate <= 0:
        raise UnitError(f"expected a rate above 0, found {shown(value)}")
    return rate


def _delay(value: Any) -> float:
    seconds = parse_duration(value)
    if not seconds < LONGEST_DELAY_S:
        raise UnitError(f"expected a time of 1 h at most, found {shown(value)}")
    return seconds


def _moment(value: Any) -> float:
    seconds = parse_duration(value)
    if not seconds < LONGEST_S:
        raise UnitError(f"expected a time below 10 years, found {shown(value)}")
    return seconds


def _pair(parse: Callable[[Any], float], what: str) -> Callable[[Any], tuple[float, float]]:
    """Return a parser of one value for both directions, or of two: there, back."""

    def parse_pair(value: Any) -> tuple[float, float]:
        found = value.value if isinstance(value, _Shown) else value
        if not isinstance(found, (list, tuple)):
            both = parse(value)
            return both, both
        if len(found) != 2:
            raise UnitError(f"expected {what}, or two of them (there, back), found {shown(found)}")
        there, back = (parse(item if isinstance(item, (str, int, float)) else _Shown(item)) for item in found)
        return there, back

    return parse_pair


def _emit_pair(emit: Callable[[float], str]) -> Callable[[tuple[float, float]], str | list[str]]:
    return lambda pair: emit(pair[0]) if pair[0] == pair[1] else [emit(pair[0]), emit(pair[1])]


def _queue(value: Any) -> Queue:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *BDP", value) if isinstance(value, str) else None
    if match and float(match[1]) > 0:
        return Queue(products=float(match[1]))
    try:
        size = parse_size(value)
    except UnitError:
        size = 0
    if size < 1:
        raise UnitError(f'expected a size such as "1 MB", or "1 BDP", found {shown(value)}')
    return Queue(size_bytes=size)


def _emit_queue(queue: Queue) -> str:
    return f"{queue.products:.6g} BDP" if queue.size_bytes is None else format_bytes_exact(queue.size_bytes)


def _is_probability(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _probability(value: Any) -> float:
    if not _is_probability(value):
        raise refuse(f"expected a probability from 0 to 1, found {shown(value)}")
    return float(value)


def _loss(value: Any) -> Loss:
    if _is_probability(value):
        return Loss(float(value))
    if not isinstance(value, dict):
        raise refuse(
            f"expected a probability from 0 to 1, or a table with enter, leave and probability, found {shown(value)}"
        )
    for key in value:
        if key not in ("enter", "leave", "probability"):
            raise refuse(f"expected the keys enter, leave and probability, found {shown(key)}")
    for key in ("enter", "leave"):
        if not _is_probability(value.get(key)) or not value[key]:
            raise refuse(f"expected a probability above 0 and up to 1 under {key}, found {shown(value.get(key))}")
    if not _is_probability(value.get("probability", 1.0)):
        raise refuse(f"expected a probability from 0 to 1 under probability, found {shown(value['probability'])}")
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
        raise UnitError(f'expected a size such as "100 GB", or "2 x memory", found {shown(value)}') from None


def _emit_volume(volume: Volume) -> str:
    return f"{volume.memories:g} x memory" if volume.size_bytes is None else format_bytes_exact(volume.size_bytes)


def _name(text: str) -> str:
    if text in BUILT_IN_PLACES or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", text):
        built_in = " or ".join(BUILT_IN_PLACES)
        raise refuse(f"expected a name of letters, digits, - and _ (and not {built_in}), found {shown(text)}")
    return text


def _schema(kind: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": f"{kind}, with its unit", "examples": list(examples)})


def _pair_schema(kind: str, example: str) -> WithJsonSchema:
    one = {"type": "string", "examples": [example]}
    two = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
    return WithJsonSchema({"description": f"{kind}, with its unit; or two: there, back", "anyOf": [one, two]})


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
    Queue, PlainValidator(_quantity(_queue)), PlainSerializer(_emit_queue), _schema("A size", "1 MB", "0.25 BDP")
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
