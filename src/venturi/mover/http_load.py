"""``http-load``: the engine's own closed-loop HTTP clients, thousands in one process (``venturi-engine load``)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["HttpLoad"]

_OPTIONS = (
    Option("clients", "integer", 1, "Clients, each of which fetches again as soon as it has the last byte."),
    Option("duration", "time", None, "No fetch begins after this time; those that have begun are finished."),
    Option("fetches", "integer", None, "So many fetches by each client; without it and `duration`: one."),
    Option("ramp", "time", None, "Left out of the steady rate, at the beginning."),
    Option("spread", "time", None, "Clients begin one after the other over this time."),
    Option("think", "time", None, "Each client waits so long between two fetches."),
    Option("proxy", "text", None, "Through this proxy, such as `http://squid.lab.test:3128`."),
    Option("bind", "text", None, "Of a host with several interfaces the one that is used: its address, or its name."),
    Option("http", "choice", "1.1", "Version of HTTP.", choices=("1.0", "1.1")),
    Option("keep_alive", "boolean", False, "Use a connection for more than one fetch."),
)

_DETAIL = ("fetches", "fetched_bytes", "head_bytes", "connections")
_STEADY = {"steady_start_s": "start_s", "steady_end_s": "end_s", "steady_fetches": "fetches", "steady_bytes": "bytes"}
_LATENCY = ("p50_s", "p90_s", "p99_s", "mean_s", "max_s")


@dataclass(frozen=True, slots=True)
class HttpLoad:
    """The engine's load generator: what it receives it counts and does not keep.

    One call stands for many clients, so a transfer of it is asked for no number of bytes where it has a ``duration``: what arrived
    is in ``tool_bytes``. ``tool_rate_bytes_per_s`` is that of the steady stretch, where there was one.
    """

    name: str = "http-load"
    summary: str = "HTTP download only, by many clients at once that begin again and again; nothing is kept."
    requires: tuple[str, ...] = ("venturi-engine",)
    reads: bool = True
    writes: bool = False
    null_destination: bool = True
    speaks: tuple[str, ...] = ("http",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how the engine is called.

        Raises
        ------
        OptionError
            If both ``duration`` and ``fetches`` are given.
        """
        duration_s, fetches = options["duration_s"], options["fetches"]
        if duration_s is not None and fetches is not None:
            raise OptionError(f"http-load: expected duration or fetches, found both ({duration_s} s and {fetches})")
        once = () if duration_s is not None or fetches is not None else ("--fetches-each", "1")
        argv: tuple[Argument, ...] = (
            *("venturi-engine", "load", "{source}", "--clients", "{clients}", "--http", "{http}"),
            ("--duration-s", "{duration_s}"),
            ("--fetches-each", "{fetches}"),
            *once,
            ("--ramp-s", "{ramp_s}"),
            ("--spread-s", "{spread_s}"),
            ("--think-s", "{think_s}"),
            ("--proxy", "{proxy}"),
            ("--bind", "{bind}"),
            *(("--keep-alive",) if options["keep_alive"] else ()),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what its last line says: bytes of all bodies, the steady rate, counts, errors, latencies."""
        text = output_text(record, "stdout")
        total = _total(text)
        try:
            steady, latency = total["steady"], total["latency"]
            detail: dict[str, float | int | str] = {name: int(total[name]) for name in _DETAIL}
            detail |= {f"errors_{kind}": int(count) for kind, count in total["errors"].items()}
            if steady is not None:
                detail |= {name: _finite(steady[key]) for name, key in _STEADY.items()}
            if latency is not None:
                detail |= {f"latency_{name}": _finite(latency[name]) for name in _LATENCY}
            rate = _finite(steady["rate_bytes_per_s"]) if steady is not None else None
            return ToolReport(int(total["bytes"]), rate, _finite(total["duration_s"]), detail=detail)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OutputError('a line with "record": "total", its counts and its steady stretch', text) from error


def _total(text: str) -> dict[str, Any]:
    lines = text.rstrip("\n").rsplit("\n", 1)
    try:
        total = json.loads(lines[-1])
        good = isinstance(total, dict) and total.get("record") == "total"
    except (ValueError, RecursionError):
        good = False
    if not good:
        raise OutputError('a last line with "record": "total"', text)
    return total  # type: ignore[no-any-return]


def _finite(value: Any) -> float:  # noqa: ANN401 - a JSON value
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {value}")
    return number
