"""``iperf3``: memory-to-memory transfer over TCP, without storage."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue
from venturi.units import BITS_PER_BYTE

__all__ = ["Iperf3Mover"]

_MAX_STREAMS = 128
"""Limit of ``iperf3`` 3.12 (MAX_STREAMS)."""

_OPTIONS = (
    Option("streams", "integer", None, f"TCP connections (-P), {_MAX_STREAMS} at most."),
    Option("window", "size", None, "Socket buffers of both hosts, within kernel limits (-w)."),
    Option("length", "size", 128 << 10, "Size of a read or write (-l)."),
    Option(
        "congestion_control",
        "text",
        None,
        "Congestion control of both hosts (-C), such as `cubic`. Default: the setting of the hosts.",
    ),
    Option("reverse", "boolean", False, "The server sends (-R). A server as source always sends."),
    Option("time", "time", None, "Duration in whole seconds (-t), instead of a number of bytes."),
    Option("rate", "rate", None, "Rate limit of each stream (-b).", each="streams"),
)
_ERROR = re.compile(r'"error":\s*"((?:[^"\\]|\\.)*)"\s*}\s*$')
"""Last entry in the report of a failed test, with exit code 0."""

_MAX_RETRIES = 50

# A server accepts the next test some milliseconds after the end of the last one, on a busy host later. Until then it
# rejects clients before any data flows.
_SCRIPT = """\
tries=0
while
  report=$(iperf3 "$@"); status=$?
  case $tries,$report in
    RETRIES,*) false;;
    *"the server is busy"*) tries=$((tries + 1)); sleep 0.1;;
    *) false;;
  esac
do :; done
printf '%s\\n' "$report"
exit $status
""".replace("RETRIES", str(_MAX_RETRIES))

_CPU = {"client": "host_total", "server": "remote_total"}

_COSTS = (
    MeasuredCost((FILE,), ("iperf3",), MoverCost.of((0.0, 0.0041, 7.0)), f"{LAB}; to the server, one test per call"),
)


@dataclass(frozen=True, slots=True)
class Iperf3Mover:
    """``iperf3``. It moves whole blocks of ``length``, so slightly more than the requested bytes.

    With a number of bytes, the receiver stops counting at the end of the sender; bytes in flight are missing in
    ``received_bytes``.

    The exit code is 0 even after a connection failure; the report contains the error. A client that is rejected because
    the server is busy starts again, at most 50 times, 0.1 s later each time.
    """

    name: str = "iperf3"
    summary: str = "Memory-to-memory transfer with an iperf3 server."
    requires: tuple[str, ...] = ("sh", "iperf3")
    reads: bool = False
    writes: bool = False
    null_destination: bool = True
    protocols: tuple[str, ...] = ("iperf3",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``iperf3``; the server is the endpoint with a service port. ``sh`` repeats rejected calls."""
        _check(options)
        time_s = options["time_s"]
        argv: tuple[Argument, ...] = (
            *shell(_SCRIPT, "-J", "-i", "0"),
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
                else ("-b", str(_require_int(options["rate_bytes_per_s"]) * BITS_PER_BYTE))
            ),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report: rate and duration of the receiver."""
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
    """Return the sums at the end of the report, because long reports are truncated in the middle.

    Raises
    ------
    OutputError
        If they are missing, or if the report contains an error.
    """
    if match := _ERROR.search(text):
        raise OutputError("a report without an error", text, excerpt=match[1])
    found = text.rfind('"sum_sent"')
    try:
        if found < 0:
            raise ValueError("no sums")
        end, _ = json.JSONDecoder().raw_decode("{" + text[found:])
    except (ValueError, RecursionError) as error:
        raise OutputError('a report of JSON with "sum_sent"', text) from error
    return end  # type: ignore[no-any-return]


def _require_int(value: OptionValue) -> int:
    assert isinstance(value, int)
    return value


def _check(options: Mapping[str, OptionValue]) -> None:
    streams, time_s = options["streams"], options["time_s"]
    if isinstance(streams, int) and streams > _MAX_STREAMS:
        raise OptionError(f"iperf3: expected {_MAX_STREAMS} streams at most, found {streams}; reduce streams")
    if isinstance(time_s, float) and (time_s < 1 or not time_s.is_integer()):
        raise OptionError(f"iperf3: expected a time of whole seconds, 1 s or more, found {time_s} s; round it")
