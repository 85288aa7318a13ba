"""The shape of every record of a plan, in one table, with the writer and the reader that go by it.

A :class:`Kind` turns one value into JSON and back. Reading checks as it goes and raises :class:`Malformed` with the
place in the line; keys are always written in the order of the table, and a value equal to its default is left out of
a step, so that equal plans are equal bytes.
"""

# ruff: noqa: ANN401 - what JSON holds is of any type until this module has looked at it
from __future__ import annotations

import dataclasses
import functools
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import parameters as c
from venturi.plan import header as h
from venturi.plan import network as n
from venturi.plan import steps as s
from venturi.plan.words import shown, suggestion

__all__ = ["ACTOR_LINE", "HEADER", "Malformed", "Record", "check_keys"]

MAX_DEPTH = 50
"""How deep steps may be nested; a deeper plan is refused rather than overflowing a stack."""


class Malformed(Exception):
    """A value that is not what the format asks for; the reader adds file and line and raises a ``PlanError``."""

    def __init__(self, where: str, expected: str, found: object, hint: str = "") -> None:
        super().__init__(f"{where}: expected {expected}, found {shown(found)}{hint}")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is written and read."""

    emit: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A JSON object: its class and the kind of each key, in the order of writing.

    A key is the name of its attribute, unless ``names`` says another (``from`` is none in Python). Keys of ``spare`` are left out at
    their default even where others are kept: plans had none of them before.
    """

    cls: type
    fields: Mapping[str, Kind | Record]
    tag: str | None = None
    keep_defaults: bool = False
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spare: tuple[str, ...] = ()

    def emit(self, value: Any) -> dict[str, Any]:
        """Return the JSON object of ``value``."""
        out: dict[str, Any] = {} if self.tag is None else {"step": self.tag}
        for key, name, emit, default in _writers(self):
            item = getattr(value, name)
            if item != default:
                out[key] = item if emit is None else emit(item)
        return out

    def read(self, value: Any, where: str) -> Any:
        """Return the record that the JSON object ``value`` stands for."""
        if not isinstance(value, dict):
            raise Malformed(where, "an object", value)
        defaults = _DEFAULTS[self.cls]
        check_keys(value, self.fields, where, ignore={"step"} if self.tag else set())
        found = {}
        for key, kind in self.fields.items():
            name = self.names.get(key, key)
            if key in value:
                found[name] = kind.read(value[key], f"{where}.{key}" if where else key)
            elif name not in defaults:
                raise Malformed(f"{where}.{key}" if where else key, "a value", None)
        return self.cls(**found)


@functools.cache
def _writers(record: Record) -> tuple[tuple[str, str, Callable[[Any], Any] | None, object], ...]:
    """Return for each field its key, its name, its writer (``None``: as it is) and the default that is left out.

    Kept by record: a plan of a million transfers writes a million records.
    """
    defaults = _DEFAULTS[record.cls]
    if record.keep_defaults:
        defaults = {name: defaults[name] for name in record.spare}
    never = object()
    named = ((key, record.names.get(key, key), kind.emit) for key, kind in record.fields.items())
    return tuple(
        (key, name, None if emit is _as_is else emit, defaults.get(name, never)) for key, name, emit in named
    )


def check_keys(value: Mapping[str, Any], known: Mapping[str, Any], where: str, ignore: set[str]) -> None:
    """Refuse a key that this version does not know: a plan only half understood would be carried out wrongly."""
    for key in value:
        if key not in known and key not in ignore:
            raise Malformed(where or "line", f"only the keys {', '.join(known)}", key, suggestion(key, known))


def _as_is(value: Any) -> Any:
    return value


def _plain(expected: str, accept: Callable[[Any], bool]) -> Kind:
    def read(value: Any, where: str) -> Any:
        if not accept(value):
            raise Malformed(where, expected, value)
        return value

    return Kind(_as_is, read)


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool)) or _is_number(value)


def _number(expected: str = "a finite number", accept: Callable[[Any], bool] = _is_number) -> Kind:
    inner = _plain(expected, accept)
    return Kind(float, lambda value, where: float(inner.read(value, where)))


def _one_of(*words: str) -> Kind:
    return _plain(" or ".join(f'"{w}"' for w in words), lambda value: value in words)


def _or_none(kind: Kind | Record) -> Kind:
    return Kind(
        lambda value: None if value is None else kind.emit(value),
        lambda value, where: None if value is None else kind.read(value, where),
    )


def _or_draw(kind: Kind) -> Kind:
    def read(value: Any, where: str) -> Any:
        if isinstance(value, dict):
            check_keys(value, {"draw": TEXT}, where, set())
            return s.Draw(TEXT.read(value.get("draw"), f"{where}.draw"))
        return kind.read(value, where)

    return Kind(lambda value: {"draw": value.name} if isinstance(value, s.Draw) else kind.emit(value), read)


def _list(kind: Kind | Record, what: str = "a list") -> Kind:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Malformed(where, what, value)
        return tuple(kind.read(item, f"{where}[{i}]") for i, item in enumerate(value))

    return Kind(lambda value: [kind.emit(item) for item in value], read)


def _map(kind: Kind | Record) -> Kind:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Malformed(where, "an object", value)
        return {key: kind.read(item, f"{where}.{key}") for key, item in value.items()}

    return Kind(lambda value: {key: kind.emit(item) for key, item in value.items()}, read)


def _read_argument(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return tuple(TEXT.read(item, f"{where}[{i}]") for i, item in enumerate(value))
    if not isinstance(value, str):
        raise Malformed(where, "a text or a list of texts", value)
    return value


def _emit_step(step: Any) -> dict[str, Any]:
    if type(step) is s.Transfer and type(step.source) is type(step.destination) is str and type(step.bytes) is int:
        return _emit_plain_transfer(step)
    return _STEP_OF_CLASS[type(step)].emit(step)


def _emit_plain_transfer(step: s.Transfer) -> dict[str, Any]:
    """Return what the table gives for a transfer without draws, in a third of the time: plans are full of them."""
    out: dict[str, Any] = {
        "step": "transfer", "call": step.call, "slot": step.slot, "source": step.source,
    }  # fmt: skip
    if step.source_via is not None:
        out["source_via"] = step.source_via
    out["destination"] = step.destination
    if step.destination_via is not None:
        out["destination_via"] = step.destination_via
    out["files"] = step.files
    out["bytes"] = step.bytes
    if step.keep:
        out["keep"] = True
    if step.labels:
        out["labels"] = dict(step.labels)
    return out


def _read_step(value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise Malformed(where, "a step (an object)", value)
    if where.count("steps[") + where.count("children[") > MAX_DEPTH:
        raise Malformed(where, f"at most {MAX_DEPTH} levels of steps", MAX_DEPTH + 1)
    tag = value.get("step")
    if not isinstance(tag, str) or tag not in STEPS:
        raise Malformed(f"{where}.step", f"one of {', '.join(STEPS)}", tag)
    step = STEPS[tag].read(value, where)
    if isinstance(step, s.Repeat) and [step.count, step.until_s, step.for_s].count(None) != 2:
        raise Malformed(where, "one of count, until_s and for_s", value)
    return step


def _read_point(value: Any, where: str) -> tuple[float, float]:
    point = _list(NUMBER).read(value, where)
    if len(point) != 2:
        raise Malformed(where, "a time and a rate", value)
    return point[0], point[1]


def _is_endpoint(value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    place, colon, path = value.partition(":")
    if place in h.BUILT_IN_PLACES:
        return value == f"{place}:"
    if not (place and colon and path) or "/" in place or path[0] == "/":
        return False
    parts = path.split("/")
    return "." not in parts and ".." not in parts


def _read_draw(value: Any, where: str) -> Any:
    table = ANY_TABLE.read(value, where)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _DRAWS:
        raise Malformed(f"{where}.kind", f"one of {', '.join(_DRAWS)}", kind)
    check_keys(table, _DRAWS[kind], where, ignore={"kind"})
    for name, field in _DRAWS[kind].items():
        if name not in table:
            raise Malformed(f"{where}.{name}", "a value", None)
        field.read(table[name], f"{where}.{name}")
    return table


def _is_via(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[^/]+/[^/]+", value) is not None


def _is_address(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(ipaddress.IPv4Address(value)) == value
    except ValueError:
        return False


def _emit_loss(loss: n.Loss) -> dict[str, Any]:
    kind = next(kind for kind, record in _LOSSES.items() if isinstance(loss, record.cls))
    return {"kind": kind, **_LOSSES[kind].emit(loss)}


def _read_loss(value: Any, where: str) -> Any:
    table = dict(ANY_TABLE.read(value, where))
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in _LOSSES:
        raise Malformed(f"{where}.kind", f"one of {', '.join(_LOSSES)}", kind)
    return _LOSSES[kind].read(table, where)


def _emit_settings(settings: Mapping[str, n.LinkSetting]) -> dict[str, Any]:
    return {name: kind.emit(settings[name]) for name, kind in _SETTINGS.items() if name in settings}


def _read_settings(value: Any, where: str) -> dict[str, Any]:
    table = ANY_TABLE.read(value, where)
    check_keys(table, _SETTINGS, where, set())
    return {name: _SETTINGS[name].read(item, f"{where}.{name}") for name, item in table.items()}


TEXT = _plain("a text", lambda value: isinstance(value, str))
ENDPOINT = _plain('an endpoint such as "place:path/below", "null:" or "zero:"', _is_endpoint)
VIA = _plain('a service and its door such as "gridftp-a/gsiftp"', _is_via)
ADDRESS = _plain('an IPv4 address such as "10.77.0.1"', _is_address)
PORT = _plain("a port, 0 to 65535", lambda value: _is_whole(value) and value < 1 << 16)
TRIAL_ID = _plain(
    "t and seven digits or more",
    lambda value: isinstance(value, str) and re.fullmatch(r"t([0-9]{7}|[1-9][0-9]{7,9})", value) is not None,
)
WHOLE = _plain("a whole number, 0 or more", _is_whole)
FLAG = _plain("true or false", lambda value: isinstance(value, bool))
ANY_TABLE = _plain("an object", lambda value: isinstance(value, dict))
SCALAR = _plain("a text, a number, true, false or null", _is_scalar)
NUMBER = _number()
AMOUNT = _number("a finite number, 0 or more", lambda value: _is_number(value) and value >= 0)
_DRAWS: dict[str, dict[str, Kind]] = {
    "uniform": {"low": NUMBER, "high": NUMBER},
    "exponential": {"mean": NUMBER},
    "choice": {"values": _list(SCALAR)},
    "weighted": {"values": _list(SCALAR), "weights": _list(NUMBER)},
}
_STEP = Kind(_emit_step, _read_step)
_STEPS = _list(_STEP, "a list of steps")

_TARGET = {"call": TEXT, "slot": WHOLE, "source": _or_draw(ENDPOINT), "source_via": _or_none(VIA)}
_FILES = {"dataset": TEXT, "first": WHOLE, "files": WHOLE}

STEPS: dict[str, Record] = {
    record.tag: record
    for record in (
        Record(
            s.Trial,
            {
                "id": TRIAL_ID, "point": WHOLE, "repetition": WHOLE, "block": WHOLE, "factors": _map(SCALAR),
                "until_s": NUMBER, "counts": _map(WHOLE), "steps": _STEPS,
            },
            "trial",
        ),
        Record(
            s.Transfer,
            _TARGET
            | {
                "destination": _or_draw(ENDPOINT), "destination_via": _or_none(VIA), "files": WHOLE,
                "bytes": _or_draw(WHOLE), "keep": FLAG, "labels": _map(SCALAR),
            },
            "transfer",
        ),
        Record(s.Parallel, {"children": _list(_STEPS, "a list of lists of steps")}, "parallel"),
        Record(s.Repeat, {"count": WHOLE, "until_s": NUMBER, "for_s": NUMBER, "steps": _STEPS}, "repeat"),
        Record(
            s.Arrivals,
            {
                "rate_per_s": _list(Kind(list, _read_point)), "gap": _or_draw(NUMBER), "first": _or_none(_or_draw(NUMBER)),
                "steps": _STEPS,
            },
            "arrivals",
        ),
        Record(s.At, {"time_s": _or_draw(NUMBER)}, "at"),
        Record(s.Compute, {"core_s": _or_draw(NUMBER)}, "compute"),
        Record(s.Read, _TARGET | {"offset_bytes": _or_draw(WHOLE), "bytes": _or_draw(WHOLE)}, "read"),
        Record(s.Pause, {"duration_s": _or_draw(NUMBER)}, "pause"),
        Record(s.Signal, {"counter": TEXT, "add": WHOLE}, "signal"),
        Record(s.Wait, {"counter": TEXT, "until": WHOLE}, "wait"),
        Record(s.Acquire, {"pool": TEXT, "count": WHOLE}, "acquire"),
        Record(s.Release, {"pool": TEXT, "count": WHOLE}, "release"),
        Record(s.Prepare, _FILES | {"cache": _one_of("as_is", "warm")}, "prepare"),
        Record(s.DropCaches, _FILES, "drop_caches"),
    )
    if record.tag is not None
}  # fmt: skip
_STEP_OF_CLASS = {record.cls: record for record in STEPS.values()}

ACTOR_LINE = Record(s.ActorLine, {"actor": TEXT, "host": TEXT, "steps": _STEPS})

_LAB_HOST = Record(
    h.LabHost,
    {
        "site": _or_none(TEXT), "cpus": _or_none(_list(WHOLE)), "cpu_limit_cores": _or_none(NUMBER),
        "memory_limit_bytes": _or_none(WHOLE), "congestion_control": TEXT, "sysctls": _map(TEXT), "nat": _list(TEXT),
        "routes": _map(TEXT), "default_device": _or_none(TEXT),
    },
    keep_defaults=True,
)  # fmt: skip
_HOST = Record(
    h.Host, {"ssh": _or_none(TEXT), "memory_bytes": _or_none(WHOLE), "lab": _or_none(_LAB_HOST)}, keep_defaults=True
)
_STORAGE = Record(
    h.Storage,
    {
        "kind": _one_of("directory", "tmpfs", "disk"), "size_bytes": _or_none(WHOLE), "read_bytes_per_s": _or_none(NUMBER),
        "write_bytes_per_s": _or_none(NUMBER),
    },
    keep_defaults=True,
)  # fmt: skip
_PLACE = Record(h.Place, {"host": TEXT, "path": TEXT, "storage": _or_none(_STORAGE)}, keep_defaults=True)
_SERVICE = Record(
    h.Service,
    {
        "kind": TEXT, "host": TEXT, "interface": _or_none(TEXT), "places": _list(TEXT), "options": _map(SCALAR),
        "after": _list(TEXT), "ports": _list(PORT), "doors": _map(TEXT),
    },
    keep_defaults=True,
)  # fmt: skip
_INTERFACE = Record(
    n.Interface,
    {"host": TEXT, "device": TEXT, "address": ADDRESS, "mtu": WHOLE, "offload": FLAG},
    keep_defaults=True,
)
_LOSSES: dict[str, Record] = {
    "independent": Record(n.IndependentLoss, {"probability": NUMBER}),
    "bursty": Record(n.BurstyLoss, {"enter": NUMBER, "leave": NUMBER, "probability": NUMBER}),
}
_SETTINGS: dict[str, Kind] = {
    "rate_bit_per_s": NUMBER, "delay_s": NUMBER, "jitter_s": NUMBER, "queue_bytes": WHOLE,
    "loss": _or_none(Kind(_emit_loss, _read_loss)), "reorder_probability": NUMBER, "up": FLAG,
}  # fmt: skip
_LINK = Record(
    n.Link,
    {
        "from": TEXT, "to": TEXT, "rate_bit_per_s": NUMBER, "delay_s": NUMBER, "jitter_s": NUMBER, "queue_bytes": WHOLE,
        "loss": _SETTINGS["loss"], "reorder_probability": NUMBER, "overhead_bytes": WHOLE, "up": FLAG,
    },
    keep_defaults=True,
    names={"from": "origin"},
)  # fmt: skip
_CHANGE = Record(n.Change, {"time_s": NUMBER, "link": TEXT, "set": Kind(_emit_settings, _read_settings)})
_NETWORK = Record(
    n.Network,
    {
        "interfaces": _map(_INTERFACE), "routers": _list(TEXT), "links": _map(_LINK), "routes": _map(_map(TEXT)),
        "changes": _list(_CHANGE),
    },
    keep_defaults=True,
)  # fmt: skip
_PORTION = Record(
    h.Portion,
    {"files": _plain("a whole number, 1 or more", lambda value: _is_whole(value) and value > 0), "size_bytes": WHOLE},
)
_DATASET = Record(
    h.Dataset,
    {"place": TEXT, "path": TEXT, "files": WHOLE, "size_bytes": WHOLE, "seed": WHOLE, "mix": _list(_PORTION)},
)
_CALL = Record(
    h.Call,
    {
        "mover": TEXT, "options": _map(SCALAR),
        "argv": _list(Kind(lambda value: value if isinstance(value, str) else list(value), _read_argument)),
        "requires": _list(TEXT), "timeout_s": NUMBER, "capture": FLAG, "expect": _one_of("destination", "nothing"),
        "local": TEXT,
    },
    keep_defaults=True,
)  # fmt: skip
_MEASURE = Record(
    h.Measure,
    {
        "interval_s": _or_none(NUMBER), "counters": _list(_one_of("cpu", "disk", "memory", "nic", "tcp")),
        "transfers": _one_of("each", "routes"),
    },
)  # fmt: skip
_TOTALS = Record(
    h.Totals, {"trials": WHOLE, "transfers": _or_none(WHOLE), "bytes": _or_none(WHOLE), "disk_bytes": _map(WHOLE)}
)
_UNLIKE_AMOUNTS = {
    "pipelining": WHOLE,
    "checks": WHOLE,
    "retries": WHOLE,
    "resumes": FLAG,
    "sessions": WHOLE,
    "session_files": WHOLE,
    "sessions_least": WHOLE,
    "keeps_connection": FLAG,
    "rtt_exponent": NUMBER,
}


def _parameters(cls: Any) -> Record:
    """Return the shape of cost parameters: all of them amounts but a few, and each may be absent."""
    return Record(
        cls, {part.name: _or_none(_UNLIKE_AMOUNTS.get(part.name, AMOUNT)) for part in dataclasses.fields(cls)}
    )


_MOVER_COST, _SERVICE_COST, _STORAGE_COST, _HOST_COST = map(
    _parameters, (c.MoverCost, c.ServiceCost, c.StorageCost, c.HostCost)
)
_MOVER_RULE = Record(
    c.MoverRule,
    {
        "mover": TEXT, "cost": _MOVER_COST, "source": _or_none(TEXT), "destination": _or_none(TEXT),
        "options": _map(SCALAR),
    },
)  # fmt: skip
_COST = Record(
    c.Cost,
    {
        "movers": _list(_MOVER_RULE), "services": _map(_SERVICE_COST), "places": _map(_STORAGE_COST),
        "hosts": _map(_HOST_COST), "machine_cores": _or_none(AMOUNT),
    },
)  # fmt: skip

HEADER = Record(
    h.Header,
    {
        "version": WHOLE, "name": TEXT, "seed": WHOLE, "scale": NUMBER, "scenario": ANY_TABLE, "hosts": _map(_HOST),
        "places": _map(_PLACE), "services": _map(_SERVICE), "network": _or_none(_NETWORK), "datasets": _map(_DATASET), "calls": _map(_CALL), "draws": _map(Kind(_as_is, _read_draw)),
        "pools": _map(WHOLE), "measure": _MEASURE, "totals": _TOTALS, "cost": _or_none(_COST),
    },
    keep_defaults=True,
    spare=("cost",),
)  # fmt: skip


def _defaults(cls: Any) -> dict[str, Any]:
    if issubclass(cls, tuple):
        return dict(cls._field_defaults)
    found = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


_DEFAULTS: dict[type, dict[str, Any]] = {
    record.cls: _defaults(record.cls)
    for record in (
        *STEPS.values(), ACTOR_LINE, HEADER, _LAB_HOST, _HOST, _STORAGE, _PLACE, _SERVICE, _INTERFACE, *_LOSSES.values(),
        _LINK, _CHANGE, _NETWORK, _PORTION, _DATASET, _CALL, _MEASURE, _TOTALS, _MOVER_COST, _SERVICE_COST, _STORAGE_COST,
        _HOST_COST, _MOVER_RULE, _COST,
    )
}  # fmt: skip
