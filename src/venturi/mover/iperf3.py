"""``iperf3``: from memory to memory over TCP, the network without any storage."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, Measured, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue
from venturi.units import BITS_PER_BYTE

__all__ = ["Iperf3"]

_MAX_STREAMS = 128
"""What ``iperf3`` 3.12 admits (MAX_STREAMS)."""

_OPTIONS = (
    Option("streams", "integer", None, f"TCP connections that share the bytes (-P), {_MAX_STREAMS} at most."),
    Option("window", "size", None, "Socket buffers of both ends (-w), within the kernels' limits."),
    Option("length", "size", 128 << 10, "Bytes a read or write (-l)."),
    Option("congestion_control", "text", None, "Of both ends (-C), such as `cubic`; otherwise what the hosts have."),
    Option(
        "reverse", "boolean", False, "The server sends (-R). It does so by itself where it is named as the source."
    ),
    Option("time", "time", None, "For so many whole seconds (-t), and not for a number of bytes."),
    Option("rate", "rate", None, "At most so fast in each stream (-b)."),
)
_ERROR = re.compile(r'"error":\s*"((?:[^"\\]|\\.)*)"\s*}\s*$')
"""Stands last in the report of a test that did not come to its end, and the exit code is 0."""

_CPU = {"client": "host_total", "server": "remote_total"}

_COSTS = (Measured((FILE,), ("iperf3",), MoverCost.of((0.0, 0.0041, 7.0)), f"{LAB}; to the server, one test a call"),)


@dataclass(frozen=True, slots=True)
class Iperf3:
    """``iperf3``. It moves whole blocks of ``length``, so a little more than it was asked for.

    With an amount to move, its receiver stops counting when the sender is done: what was on its way then is missing in
    ``received_bytes``.

    Its exit code is 0 even where it could not connect: what went wrong stands in its report.
    """

    name: str = "iperf3"
    summary: str = "From memory to memory with an iperf3 server."
    requires: tuple[str, ...] = ("iperf3",)
    reads: bool = False
    writes: bool = False
    null_destination: bool = True
    speaks: tuple[str, ...] = ("iperf3",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``iperf3`` is called; the server is the end that has a door."""
        _check(options)
        time_s = options["time_s"]
        argv: tuple[Argument, ...] = (
            *("iperf3", "-J", "-i", "0"),
            ("-c", "{destination_host}"),
            ("-p", "{destination_port}"),
            ("-R", "-c", "{source_host}"),
            ("-p", "{source_port}"),
            *(("-R",) if options["reverse"] else ()),
            *(("-n", "{bytes}") if time_s is None else ("-t", f"{time_s:.0f}")),
            ("-P", "{streams}"),
            ("-w", "{window_bytes}"),
            ("-l", "{length_bytes}"),
            ("-C", "{congestion_control}"),
            *(
                ()
                if options["rate_bytes_per_s"] is None
                else ("-b", str(_whole(options["rate_bytes_per_s"]) * BITS_PER_BYTE))
            ),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what the end of the report says: rate and time are those of the receiver."""
        text = output_text(record, "stdout")
        end = _end(text)
        try:
            sent, received = end["sum_sent"], end["sum_received"]
            rate, duration_s = float(received["bits_per_second"]) / BITS_PER_BYTE, float(received["seconds"])
            detail = {f"{side}_cpu_percent": float(end["cpu_utilization_percent"][key]) for side, key in _CPU.items()}
            if not all(math.isfinite(number) for number in (rate, duration_s, *detail.values())):
                raise ValueError("no number")
            return ToolReport(
                int(sent["bytes"]),
                rate or None,
                duration_s,
                received_bytes=int(received["bytes"]),
                retransmits=int(sent["retransmits"]) if "retransmits" in sent else None,
                detail={**detail, "congestion_control": str(end.get("sender_tcp_congestion", ""))},
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise OutputError(
                '"sum_sent", "sum_received" and "cpu_utilization_percent" with numbers', text
            ) from error


def _end(text: str) -> dict[str, Any]:
    """Return the sums, which stand last: of many streams only head and tail of the report are kept.

    Raises
    ------
    OutputError
        If they are not there, or an error is.
    """
    if told := _ERROR.search(text):
        raise OutputError("a report without an error", text, shown=told[1])
    found = text.rfind('"sum_sent"')
    try:
        if found < 0:
            raise ValueError("no sums")
        end, _ = json.JSONDecoder().raw_decode("{" + text[found:])
    except (ValueError, RecursionError) as error:
        raise OutputError('a report of JSON with "sum_sent"', text) from error
    return end  # type: ignore[no-any-return]


def _whole(value: OptionValue) -> int:
    assert isinstance(value, int)
    return value


def _check(options: Mapping[str, OptionValue]) -> None:
    streams, time_s = options["streams"], options["time_s"]
    if isinstance(streams, int) and streams > _MAX_STREAMS:
        raise OptionError(f"iperf3: expected {_MAX_STREAMS} streams at most, found {streams}")
    if isinstance(time_s, float) and (time_s < 1 or not time_s.is_integer()):
        raise OptionError(f"iperf3: expected a time of whole seconds, 1 s or more, found {time_s} s")
