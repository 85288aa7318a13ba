"""``http-load``: closed-loop HTTP clients of the engine, thousands in one process (``venturi-engine http-load``)."""

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
    Option("clients", "integer", 1, "Number of clients; each one starts its next fetch after the last byte."),
    Option("duration", "time", None, "Time after which no fetch starts; running fetches finish."),
    Option("fetches", "integer", None, "Fetches of each client. Default without `duration`: one."),
    Option("ramp", "time", None, "Ramp-up time, excluded from the steady rate."),
    Option("spread", "time", None, "Interval over which the clients start."),
    Option("think", "time", None, "Pause of a client between two fetches."),
    Option("proxy", "text", None, "Proxy, such as `http://squid.lab.test:3128`."),
    Option("bind", "text", None, "Local interface, by address or name."),
    Option("http", "choice", "1.1", "Version of HTTP.", choices=("1.0", "1.1")),
    Option("keep_alive", "boolean", False, "Reuse connections for further fetches."),
)

_DETAIL = ("fetches", "fetched_bytes", "head_bytes", "connections")
_STEADY = {"steady_start_s": "start_s", "steady_end_s": "end_s", "steady_fetches": "fetches", "steady_bytes": "bytes"}
_LATENCY = ("p50_s", "p90_s", "p99_s", "mean_s", "max_s")


@dataclass(frozen=True, slots=True)
class HttpLoad:
    """Load generator of the engine: it counts and discards the received data.

    One call is many clients. With ``duration``, a transfer has no requested bytes; ``tool_bytes`` are the received bytes.
    ``tool_rate_bytes_per_s`` is the rate of the steady state, if there was one.
    """

    name: str = "http-load"
    summary: str = "HTTP downloads by many concurrent closed-loop clients; the data are discarded."
    requires: tuple[str, ...] = ("venturi-engine",)
    reads: bool = True
    writes: bool = False
    null_destination: bool = True
    protocols: tuple[str, ...] = ("http",)
    needs_server: str = "source"
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    lacks_token: bool = True

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of the engine.

        Raises
        ------
        OptionError
            If both ``duration`` and ``fetches`` are set.
        """
        duration_s, fetches = options["duration_s"], options["fetches"]
        if duration_s is not None and fetches is not None:
            raise OptionError(
                f"http-load: expected duration or fetches, found both ({duration_s} s and {fetches}); remove one"
            )
        once = () if duration_s is not None or fetches is not None else ("--fetches-each", "1")
        argv: tuple[Argument, ...] = (
            *("venturi-engine", "http-load", "{source}", "--clients", "{clients}", "--http", "{http}"),
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
        """Return the report of the last line: bytes of all bodies, steady rate, counts, errors, latencies."""
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
            raise OutputError('a line with "record": "total", its counts and its steady state', text) from error


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
