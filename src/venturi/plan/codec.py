"""Table of the records of a plan, with their encoder and decoder.

A :class:`FieldCodec` converts one value to JSON and back. Decoding checks values and raises :class:`DecodeError` with the
location in the line. Keys are written in the order of the table, and steps omit default values, so equal plans have
equal bytes.
"""

# ruff: noqa: ANN401 - JSON values have any type before their validation
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
from venturi.messages import quote_value, suggestion
from venturi.plan import header as h
from venturi.plan import network as n
from venturi.plan import steps as s

__all__ = ["ACTOR_LINE", "HEADER", "DecodeError", "RecordCodec", "check_keys"]

MAX_DEPTH = 50
"""Maximum nesting of steps; prevents a stack overflow."""


class DecodeError(Exception):
    """Invalid value; the reader adds file and line and raises a ``PlanError``."""

    def __init__(self, where: str, expected: str, found: object, hint: str = "") -> None:
        super().__init__(f"{where}: expected {expected}, found {quote_value(found)}{hint}")


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """Encoder and decoder of a value."""

    emit: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True, eq=False)
class RecordCodec:
    """JSON object: its class and the codec of each key, in the order of writing.

    A key is the name of its attribute, unless ``names`` defines another name (``from`` is a keyword of Python). Keys in
    ``late_keys`` are always omitted at their default, because older plans do not have them.
    """

    cls: type
    fields: Mapping[str, FieldCodec | RecordCodec]
    tag: str | None = None
    keep_defaults: bool = False
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    late_keys: tuple[str, ...] = ()

    def emit(self, value: Any) -> dict[str, Any]:
        """Return the JSON object of ``value``."""
        out: dict[str, Any] = {} if self.tag is None else {"step": self.tag}
        for key, name, emit, default in _writers(self):
            item = getattr(value, name)
            if item != default:
                out[key] = item if emit is None else emit(item)
        return out

    def read(self, value: Any, where: str) -> Any:
        """Return the record of the JSON object ``value``."""
        if not isinstance(value, dict):
            raise DecodeError(where, "an object", value)
        defaults = _DEFAULTS[self.cls]
        check_keys(value, self.fields, where, ignore={"step"} if self.tag else set())
        found = {}
        for key, kind in self.fields.items():
            name = self.names.get(key, key)
            if key in value:
                found[name] = kind.read(value[key], f"{where}.{key}" if where else key)
            elif name not in defaults:
                raise DecodeError(f"{where}.{key}" if where else key, "a value", None)
        return self.cls(**found)


@functools.cache
def _writers(record: RecordCodec) -> tuple[tuple[str, str, Callable[[Any], Any] | None, object], ...]:
    """Return key, name, encoder (``None``: unchanged) and omitted default of each field.

    It is cached, because a plan of a million transfers has a million records.
    """
    defaults = _DEFAULTS[record.cls]
    if record.keep_defaults:
        defaults = {name: defaults[name] for name in record.late_keys}
    no_default = object()
    named = ((key, record.names.get(key, key), kind.emit) for key, kind in record.fields.items())
    return tuple(
        (key, name, None if emit is _as_is else emit, defaults.get(name, no_default)) for key, name, emit in named
    )


def check_keys(value: Mapping[str, Any], known: Mapping[str, Any], where: str, ignore: set[str]) -> None:
    """Reject unknown keys, because a backend would run such a plan incorrectly."""
    for key in value:
        if key not in known and key not in ignore:
            raise DecodeError(where or "line", f"only the keys {', '.join(known)}", key, suggestion(key, known))


def _as_is(value: Any) -> Any:
    return value


def _value_codec(expected: str, accept: Callable[[Any], bool]) -> FieldCodec:
    def read(value: Any, where: str) -> Any:
        if not accept(value):
            raise DecodeError(where, expected, value)
        return value

    return FieldCodec(_as_is, read)


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool)) or _is_number(value)


def _number(expected: str = "a finite number", accept: Callable[[Any], bool] = _is_number) -> FieldCodec:
    inner = _value_codec(expected, accept)
    return FieldCodec(float, lambda value, where: float(inner.read(value, where)))


def _one_of(*words: str) -> FieldCodec:
    return _value_codec(" or ".join(f'"{w}"' for w in words), lambda value: value in words)


def _or_none(kind: FieldCodec | RecordCodec) -> FieldCodec:
    return FieldCodec(
        lambda value: None if value is None else kind.emit(value),
        lambda value, where: None if value is None else kind.read(value, where),
    )


def _or_draw(kind: FieldCodec) -> FieldCodec:
    def read(value: Any, where: str) -> Any:
        if isinstance(value, dict):
            check_keys(value, {"draw": TEXT}, where, set())
            return s.Draw(TEXT.read(value.get("draw"), f"{where}.draw"))
        return kind.read(value, where)

    return FieldCodec(lambda value: {"draw": value.name} if isinstance(value, s.Draw) else kind.emit(value), read)


def _list(kind: FieldCodec | RecordCodec, what: str = "a list") -> FieldCodec:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise DecodeError(where, what, value)
        return tuple(kind.read(item, f"{where}[{i}]") for i, item in enumerate(value))

    return FieldCodec(lambda value: [kind.emit(item) for item in value], read)


def _map(kind: FieldCodec | RecordCodec) -> FieldCodec:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DecodeError(where, "an object", value)
        return {key: kind.read(item, f"{where}.{key}") for key, item in value.items()}

    return FieldCodec(lambda value: {key: kind.emit(item) for key, item in value.items()}, read)


def _read_argument(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return tuple(TEXT.read(item, f"{where}[{i}]") for i, item in enumerate(value))
    if not isinstance(value, str):
        raise DecodeError(where, "a text or a list of texts", value)
    return value


def _emit_step(step: Any) -> dict[str, Any]:
    if (
        type(step) is s.TransferStep
        and type(step.source) is type(step.destination) is str
        and type(step.bytes) is int
    ):
        return _emit_simple_transfer(step)
    return _STEP_BY_CLASS[type(step)].emit(step)


def _emit_simple_transfer(step: s.TransferStep) -> dict[str, Any]:
    """Return the JSON object of a transfer without random values, in a third of the time of the table."""
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
        raise DecodeError(where, "a step (an object)", value)
    if where.count("steps[") + where.count("children[") > MAX_DEPTH:
        raise DecodeError(where, f"at most {MAX_DEPTH} levels of steps", MAX_DEPTH + 1)
    tag = value.get("step")
    if not isinstance(tag, str) or tag not in STEPS:
        raise DecodeError(f"{where}.step", f"one of {', '.join(STEPS)}", tag)
    step = STEPS[tag].read(value, where)
    if isinstance(step, s.Repeat) and [step.count, step.until_s, step.for_s].count(None) != 2:
        raise DecodeError(where, "one of count, until_s and for_s", value)
    return step


def _read_point(value: Any, where: str) -> tuple[float, float]:
    point = _list(NUMBER).read(value, where)
    if len(point) != 2:
        raise DecodeError(where, "a time and a rate", value)
    return point[0], point[1]


def _read_port_range(value: Any, where: str) -> tuple[int, int]:
    ports = _list(PORT).read(value, where)
    if len(ports) != 2 or ports[0] > ports[1]:
        raise DecodeError(where, "the first and the last port", value)
    return ports[0], ports[1]


def _is_endpoint(value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    storage, colon, path = value.partition(":")
    if storage in h.BUILT_IN_STORAGES:
        return value == f"{storage}:"
    if not (storage and colon and path) or "/" in storage or path[0] == "/":
        return False
    parts = path.split("/")
    return "." not in parts and ".." not in parts


def _read_draw(value: Any, where: str) -> Any:
    table = ANY_TABLE.read(value, where)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _DRAWS:
        raise DecodeError(f"{where}.kind", f"one of {', '.join(_DRAWS)}", kind)
    check_keys(table, _DRAWS[kind], where, ignore={"kind"})
    for name, field in _DRAWS[kind].items():
        if name not in table:
            raise DecodeError(f"{where}.{name}", "a value", None)
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
        raise DecodeError(f"{where}.kind", f"one of {', '.join(_LOSSES)}", kind)
    return _LOSSES[kind].read(table, where)


def _emit_settings(settings: Mapping[str, n.LinkSetting]) -> dict[str, Any]:
    return {name: kind.emit(settings[name]) for name, kind in _SETTINGS.items() if name in settings}


def _read_settings(value: Any, where: str) -> dict[str, Any]:
    table = ANY_TABLE.read(value, where)
    check_keys(table, _SETTINGS, where, set())
    return {name: _SETTINGS[name].read(item, f"{where}.{name}") for name, item in table.items()}


TEXT = _value_codec("a text", lambda value: isinstance(value, str))
ENDPOINT = _value_codec('an endpoint such as "disk:path/below", "null:" or "zero:"', _is_endpoint)
VIA = _value_codec('a service and its port such as "gridftp-a/gsiftp"', _is_via)
ADDRESS = _value_codec('an IPv4 address such as "10.77.0.1"', _is_address)
PORT = _value_codec("a port, 0 to 65535", lambda value: _is_whole(value) and value < 1 << 16)
TRIAL_ID = _value_codec(
    "t and seven digits or more",
    lambda value: isinstance(value, str) and re.fullmatch(r"t([0-9]{7}|[1-9][0-9]{7,9})", value) is not None,
)
WHOLE = _value_codec("a whole number, 0 or more", _is_whole)
FLAG = _value_codec("true or false", lambda value: isinstance(value, bool))
ANY_TABLE = _value_codec("an object", lambda value: isinstance(value, dict))
SCALAR = _value_codec("a text, a number, true, false or null", _is_scalar)
NUMBER = _number()
AMOUNT = _number("a finite number, 0 or more", lambda value: _is_number(value) and value >= 0)
_DRAWS: dict[str, dict[str, FieldCodec]] = {
    "uniform": {"low": NUMBER, "high": NUMBER},
    "exponential": {"mean": NUMBER},
    "choice": {"values": _list(SCALAR)},
    "weighted": {"values": _list(SCALAR), "weights": _list(NUMBER)},
}
_STEP = FieldCodec(_emit_step, _read_step)
_STEPS = _list(_STEP, "a list of steps")

_TARGET = {"call": TEXT, "slot": WHOLE, "source": _or_draw(ENDPOINT), "source_via": _or_none(VIA)}
_FILES = {"dataset": TEXT, "first": WHOLE, "files": WHOLE}

STEPS: dict[str, RecordCodec] = {
    record.tag: record
    for record in (
        RecordCodec(
            s.Trial,
            {
                "id": TRIAL_ID, "point": WHOLE, "repetition": WHOLE, "block": WHOLE, "factors": _map(SCALAR),
                "until_s": NUMBER, "counts": _map(WHOLE), "steps": _STEPS,
            },
            "trial",
        ),
        RecordCodec(
            s.TransferStep,
            _TARGET
            | {
                "destination": _or_draw(ENDPOINT), "destination_via": _or_none(VIA), "files": WHOLE,
                "bytes": _or_draw(WHOLE), "keep": FLAG, "labels": _map(SCALAR),
            },
            "transfer",
        ),
        RecordCodec(s.Parallel, {"children": _list(_STEPS, "a list of lists of steps")}, "parallel"),
        RecordCodec(s.Repeat, {"count": WHOLE, "until_s": NUMBER, "for_s": NUMBER, "steps": _STEPS}, "repeat"),
        RecordCodec(
            s.Arrivals,
            {
                "rate_per_s": _list(FieldCodec(list, _read_point)), "gap": _or_draw(NUMBER), "first": _or_none(_or_draw(NUMBER)),
                "steps": _STEPS,
            },
            "arrivals",
        ),
        RecordCodec(s.At, {"time_s": _or_draw(NUMBER)}, "at"),
        RecordCodec(s.Compute, {"core_s": _or_draw(NUMBER)}, "compute"),
        RecordCodec(s.ReadStep, _TARGET | {"offset_bytes": _or_draw(WHOLE), "bytes": _or_draw(WHOLE)}, "read"),
        RecordCodec(s.Pause, {"duration_s": _or_draw(NUMBER)}, "pause"),
        RecordCodec(s.Signal, {"counter": TEXT, "add": WHOLE}, "signal"),
        RecordCodec(s.Wait, {"counter": TEXT, "until": WHOLE}, "wait"),
        RecordCodec(s.Acquire, {"pool": TEXT, "count": WHOLE}, "acquire"),
        RecordCodec(s.Release, {"pool": TEXT, "count": WHOLE}, "release"),
        RecordCodec(s.Prepare, _FILES | {"cache": _one_of("as_is", "warm")}, "prepare"),
        RecordCodec(s.DropCaches, _FILES, "drop_caches"),
    )
    if record.tag is not None
}  # fmt: skip
_STEP_BY_CLASS = {record.cls: record for record in STEPS.values()}

ACTOR_LINE = RecordCodec(s.ActorLine, {"actor": TEXT, "host": TEXT, "steps": _STEPS})

_LAB_HOST = RecordCodec(
    h.LabHost,
    {
        "site": _or_none(TEXT), "cpus": _or_none(_list(WHOLE)), "cpu_limit_cores": _or_none(NUMBER),
        "memory_limit_bytes": _or_none(WHOLE), "congestion_control": TEXT, "sysctls": _map(TEXT), "nat": _list(TEXT),
        "routes": _map(TEXT), "default_device": _or_none(TEXT),
    },
    keep_defaults=True,
)  # fmt: skip
_HOST = RecordCodec(
    h.Host,
    {
        "ssh": _or_none(TEXT), "memory_bytes": _or_none(WHOLE), "lab": _or_none(_LAB_HOST), "connect": _or_none(_list(TEXT)),
        "address": _or_none(TEXT), "open_ports": _or_none(FieldCodec(list, _read_port_range)), "cache": _or_none(TEXT),
        "environment": _map(TEXT),
    },
    keep_defaults=True,
    late_keys=("connect", "address", "open_ports", "cache", "environment"),
)  # fmt: skip
_STORAGE_SPEC = RecordCodec(
    h.StorageSpec,
    {
        "kind": _one_of("directory", "tmpfs", "disk"), "size_bytes": _or_none(WHOLE), "read_bytes_per_s": _or_none(NUMBER),
        "write_bytes_per_s": _or_none(NUMBER),
    },
    keep_defaults=True,
)  # fmt: skip
_STORAGE = RecordCodec(
    h.Storage,
    {
        "host": _or_none(TEXT), "path": TEXT, "spec": _or_none(_STORAGE_SPEC), "url": _or_none(TEXT),
        "checksum": _or_none(TEXT), "existing": FLAG,
    },
    keep_defaults=True,
    late_keys=("url", "checksum", "existing"),
)  # fmt: skip
_SERVICE = RecordCodec(
    h.PlanService,
    {
        "kind": TEXT, "host": _or_none(TEXT), "interface": _or_none(TEXT), "storages": _list(TEXT), "options": _map(SCALAR),
        "after": _list(TEXT), "ports": _list(PORT), "service_ports": _map(TEXT),
    },
    keep_defaults=True,
)  # fmt: skip
_INTERFACE = RecordCodec(
    n.Interface,
    {"host": TEXT, "device": TEXT, "address": ADDRESS, "mtu": WHOLE, "offload": FLAG},
    keep_defaults=True,
)
_LOSSES: dict[str, RecordCodec] = {
    "independent": RecordCodec(n.IndependentLoss, {"probability": NUMBER}),
    "bursty": RecordCodec(n.BurstyLoss, {"enter": NUMBER, "leave": NUMBER, "probability": NUMBER}),
}
_SETTINGS: dict[str, FieldCodec] = {
    "rate_bit_per_s": NUMBER, "delay_s": NUMBER, "jitter_s": NUMBER, "queue_bytes": WHOLE,
    "loss": _or_none(FieldCodec(_emit_loss, _read_loss)), "reorder_probability": NUMBER, "up": FLAG,
}  # fmt: skip
_LINK = RecordCodec(
    n.PlanLink,
    {
        "from": TEXT, "to": TEXT, "rate_bit_per_s": NUMBER, "delay_s": NUMBER, "jitter_s": NUMBER, "queue_bytes": WHOLE,
        "loss": _SETTINGS["loss"], "reorder_probability": NUMBER, "overhead_bytes": WHOLE, "up": FLAG,
    },
    keep_defaults=True,
    names={"from": "origin"},
)  # fmt: skip
_CHANGE = RecordCodec(
    n.LinkChange, {"time_s": NUMBER, "link": TEXT, "set": FieldCodec(_emit_settings, _read_settings)}
)
_NETWORK = RecordCodec(
    n.Network,
    {
        "interfaces": _map(_INTERFACE), "routers": _list(TEXT), "links": _map(_LINK), "routes": _map(_map(TEXT)),
        "changes": _list(_CHANGE),
    },
    keep_defaults=True,
)  # fmt: skip
_SIZE_GROUP = RecordCodec(
    h.SizeGroup,
    {
        "files": _value_codec("a whole number, 1 or more", lambda value: _is_whole(value) and value > 0),
        "size_bytes": WHOLE,
    },
)
_DATASET = RecordCodec(
    h.Dataset,
    {
        "storage": TEXT,
        "path": TEXT,
        "files": WHOLE,
        "size_bytes": WHOLE,
        "seed": WHOLE,
        "mix": _list(_SIZE_GROUP),
        "names": _list(TEXT),
        "listed": FLAG,
    },
)
_CALL = RecordCodec(
    h.Call,
    {
        "mover": TEXT, "options": _map(SCALAR),
        "argv": _list(FieldCodec(lambda value: value if isinstance(value, str) else list(value), _read_argument)),
        "requires": _list(TEXT), "timeout_s": NUMBER, "capture": FLAG, "expect": _one_of("destination", "nothing"),
        "local": TEXT, "urls": _map(VIA),
    },
    keep_defaults=True,
    late_keys=("urls",),
)  # fmt: skip
_MEASURE = RecordCodec(
    h.Measure,
    {
        "interval_s": _or_none(NUMBER), "counters": _list(_one_of("cpu", "disk", "memory", "nic", "pressure", "process", "tcp")),
        "transfers": _one_of("each", "routes"),
    },
)  # fmt: skip
_TOTALS = RecordCodec(
    h.Totals, {"trials": WHOLE, "transfers": _or_none(WHOLE), "bytes": _or_none(WHOLE), "disk_bytes": _map(WHOLE)}
)
_OTHER_KINDS = {
    "pipelining": WHOLE,
    "checks": WHOLE,
    "retries": WHOLE,
    "resumes": FLAG,
    "sessions": WHOLE,
    "session_files": WHOLE,
    "min_sessions": WHOLE,
    "keeps_connection": FLAG,
    "rtt_exponent": NUMBER,
}


def _parameters(cls: Any) -> RecordCodec:
    """Return the codec of cost parameters; all are optional."""
    return RecordCodec(
        cls, {part.name: _or_none(_OTHER_KINDS.get(part.name, AMOUNT)) for part in dataclasses.fields(cls)}
    )


_MOVER_COST, _SERVICE_COST, _STORAGE_COST, _HOST_COST = map(
    _parameters, (c.MoverCost, c.ServiceCost, c.StorageCost, c.HostCost)
)
_MOVER_RULE = RecordCodec(
    c.MoverRule,
    {
        "mover": TEXT, "cost": _MOVER_COST, "source": _or_none(TEXT), "destination": _or_none(TEXT),
        "options": _map(SCALAR),
    },
)  # fmt: skip
_COST = RecordCodec(
    c.CostParameters,
    {
        "movers": _list(_MOVER_RULE), "services": _map(_SERVICE_COST), "storages": _map(_STORAGE_COST),
        "hosts": _map(_HOST_COST), "machine_cores": _or_none(AMOUNT),
    },
)  # fmt: skip

HEADER = RecordCodec(
    h.Header,
    {
        "version": WHOLE, "name": TEXT, "seed": WHOLE, "scale": NUMBER, "scenario": ANY_TABLE, "hosts": _map(_HOST),
        "storages": _map(_STORAGE), "services": _map(_SERVICE), "network": _or_none(_NETWORK), "datasets": _map(_DATASET), "calls": _map(_CALL), "draws": _map(FieldCodec(_as_is, _read_draw)),
        "pools": _map(WHOLE), "measure": _MEASURE, "totals": _TOTALS, "cost": _or_none(_COST),
    },
    keep_defaults=True,
    late_keys=("cost",),
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
        *STEPS.values(), ACTOR_LINE, HEADER, _LAB_HOST, _HOST, _STORAGE_SPEC, _STORAGE, _SERVICE, _INTERFACE, *_LOSSES.values(),
        _LINK, _CHANGE, _NETWORK, _SIZE_GROUP, _DATASET, _CALL, _MEASURE, _TOTALS, _MOVER_COST, _SERVICE_COST, _STORAGE_COST,
        _HOST_COST, _MOVER_RULE, _COST,
    )
}  # fmt: skip
