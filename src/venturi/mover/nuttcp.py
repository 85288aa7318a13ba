"""``nuttcp``: from memory to memory over TCP, with the sender's retransmits and the time of a round trip."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, Measured, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue
from venturi.units import BITS_PER_BYTE

__all__ = ["Nuttcp"]

_MAX_STREAMS = 128
"""What ``nuttcp`` 6.1.2 admits."""

_DEFAULT_LENGTH = 64 << 10
_KIBIBYTE = 1 << 10
_MEBIBYTE = 1 << 20
_PAIR = re.compile(r"\b([A-Za-z_]+)=([0-9]+(?:\.[0-9]+)?)\b")

_OPTIONS = (
    Option("streams", "integer", None, f"TCP connections that share the bytes (-N), {_MAX_STREAMS} at most."),
    Option("window", "size", None, "Socket buffers of both ends (-w -ws), whole KiB, within the kernels' limits."),
    Option("length", "size", _DEFAULT_LENGTH, "Bytes a read or write (-l)."),
    Option(
        "reverse", "boolean", False, "The server sends (-r). It does so by itself where it is named as the source."
    ),
    Option("time", "time", None, "For so long (-T), and not for a number of bytes."),
)

_DATA_PORT = 10_000
"""Of the first transfer's first stream; above what servers have, below what the kernel gives out by itself."""

_COUNT = 'blocks=$(( ($1 + $2 - 1) / $2 )); shift 2; set -- "-n$(( blocks > 0 ? blocks : 1 ))" "$@"; '

_COSTS = (
    Measured((FILE,), ("nuttcp",), MoverCost.of((0.0526, 0.0024, 8.0)), f"{LAB}; to the server, one test a call"),
)


@dataclass(frozen=True, slots=True)
class Nuttcp:
    """``nuttcp -fparse``. It moves whole blocks of ``length``, one at least.

    It tells MiB with four decimals, so its bytes are 53 off at most.
    """

    name: str = "nuttcp"
    summary: str = "From memory to memory with a nuttcp server."
    requires: tuple[str, ...] = ("sh", "nuttcp")
    reads: bool = False
    writes: bool = False
    null_destination: bool = True
    speaks: tuple[str, ...] = ("nuttcp",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``nuttcp`` is called: the server is the end that has a door, whose port is that of the control connection.

        Each stream has a data port, which the client chooses: transfers at the same time must not choose the same. ``sh`` counts them, and the
        blocks of an amount, which ``nuttcp`` knows in no other way.
        """
        _check(options)
        window, time_s = options["window_bytes"], options["time_s"]
        tool: tuple[Argument, ...] = ("nuttcp", "-fparse", "-l{length_bytes}", ("-N{streams}",))
        if isinstance(window, int):
            tool = (*tool, f"-w{window // _KIBIBYTE}", f"-ws{window // _KIBIBYTE}")
        if time_s is not None:
            tool = (*tool, f"-T{time_s:g}")
        data = f"data=$(( {_DATA_PORT} + $1 * {options['streams'] or 1} )); shift; "
        run = f'exec {filled(tool, options)} -p$data "$@"'
        if time_s is not None:
            start = shell(data + run, "{slot}")
        else:
            start = shell(data + _COUNT + run, "{slot}", "{bytes}", "{length_bytes}")
        argv: tuple[Argument, ...] = (
            *start,
            ("-P{destination_port}",),
            ("-P{source_port}",),
            ("-r" if options["reverse"] else "-t", "{destination_host}"),
            ("-r", "{source_host}"),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``-fparse`` says, which is what the receiver counted. Its "megabytes" are MiB."""
        text = output_text(record, "stdout")
        said = {name: float(number) for name, number in _PAIR.findall(text)}
        if not {"megabytes", "real_seconds", "rate_Mbps"} <= said.keys():
            raise OutputError('a line such as "megabytes=1.0 real_seconds=1.00 rate_Mbps=8.4"', text)
        size = round(said["megabytes"] * _MEBIBYTE)
        detail: dict[str, float | int | str] = {
            f"{end}_cpu_percent": said[f"{end}_cpu"] for end in ("tx", "rx") if f"{end}_cpu" in said
        }
        if "rtt_ms" in said:
            detail["rtt_s"] = said["rtt_ms"] * 1e-3
        return ToolReport(
            size,
            said["rate_Mbps"] * 1e6 / BITS_PER_BYTE or None,
            said["real_seconds"] or None,
            received_bytes=size,
            retransmits=int(said["retrans"]) if "retrans" in said else None,
            detail=detail,
        )


def _check(options: Mapping[str, OptionValue]) -> None:
    streams, window = options["streams"], options["window_bytes"]
    if isinstance(streams, int) and streams > _MAX_STREAMS:
        raise OptionError(f"nuttcp: expected {_MAX_STREAMS} streams at most, found {streams}")
    if isinstance(window, int) and window % _KIBIBYTE:
        raise OptionError(f"nuttcp: expected a window of whole KiB, found {window} B")
    if options["time_s"] == 0:
        raise OptionError("nuttcp: expected a time longer than 0 s, found 0 s")
