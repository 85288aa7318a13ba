"""``nuttcp``: memory-to-memory transfer over TCP, with retransmits and round-trip time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue
from venturi.units import BITS_PER_BYTE

__all__ = ["DATA_PORTS_VARIABLE", "NuttcpMover"]

_MAX_STREAMS = 128
"""Limit of ``nuttcp`` 6.1.2."""

_DEFAULT_LENGTH = 64 << 10
_KIBIBYTE = 1 << 10
_MEBIBYTE = 1 << 20
_PAIR = re.compile(r"\b([A-Za-z_]+)=([0-9]+(?:\.[0-9]+)?)\b")

_OPTIONS = (
    Option("streams", "integer", None, f"TCP connections (-N), {_MAX_STREAMS} at most."),
    Option("window", "size", None, "Socket buffers of both hosts, in whole KiB, within kernel limits (-w -ws)."),
    Option("length", "size", _DEFAULT_LENGTH, "Size of a read or write (-l)."),
    Option("reverse", "boolean", False, "The server sends (-r). A server as source always sends."),
    Option("time", "time", None, "Duration (-T), instead of a number of bytes."),
)

DATA_PORTS_VARIABLE = "VENTURI_NUTTCP_DATA_PORTS"
"""Environment variable with the first data port and the number of data ports, for hosts with few open ports."""

_DATA_PORTS = "10000 22768"
"""Default of this variable: above the ports of servers, below the ephemeral ports of the kernel."""

_MAX_RETRIES = 5

# nuttcp 6.1.2 waits 20 ms and then connects to the data port. If a busy server has not opened it yet, the client exits
# before it moves a byte, and the server process keeps waiting on that port. So each retry uses other ports.
_SCRIPT = """\
ports=${VARIABLE:-DEFAULT}
first=${ports% *} count=${ports#* } offset=$(( $1 * STREAMS )) span=$(( ${ports#* } - STREAMS )) tries=0
shift
test $span -gt 0 || span=1
PREPARE
while
  data=$(( first + (offset + tries * count / (RETRIES + 1)) % span ))
  { errors=$(TOOL -p$data "$@" 2>&1 >&3 3>&-); status=$?; } 3>&1
  case $status,$tries,$errors in
    0,*|*,RETRIES,*) false;;
    *"connect: Connection refused"*) tries=$((tries + 1));;
    *) false;;
  esac
do :; done
test -z "$errors" || printf '%s\\n' "$errors" >&2
exit $status
"""

_COUNT = 'blocks=$(( ($1 + $2 - 1) / $2 )); shift 2; set -- "-n$(( blocks > 0 ? blocks : 1 ))" "$@"'

_COSTS = (
    MeasuredCost(
        (FILE,), ("nuttcp",), MoverCost.of((0.0526, 0.0024, 8.0)), f"{LAB}; to the server, one test per call"
    ),
)


@dataclass(frozen=True, slots=True)
class NuttcpMover:
    """``nuttcp -fparse``. It moves whole blocks of ``length``, at least one.

    It prints MiB with four decimals, so the error of its bytes is at most 53. A client whose connection is refused moves
    nothing and starts again, at most five times: it waits only 20 ms for the data ports of the server.
    """

    name: str = "nuttcp"
    summary: str = "Memory-to-memory transfer with a nuttcp server."
    requires: tuple[str, ...] = ("sh", "nuttcp")
    reads: bool = False
    writes: bool = False
    null_destination: bool = True
    protocols: tuple[str, ...] = ("nuttcp",)
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``nuttcp``: the server is the endpoint with a service port, the port of the control connection.

        The client selects the data ports; concurrent transfers need different ones. ``sh`` computes them, and the number
        of blocks, because ``nuttcp`` accepts no number of bytes. It also tries again if the server has not opened a data
        port in time.
        """
        _check(options)
        window, time_s = options["window_bytes"], options["time_s"]
        tool: tuple[Argument, ...] = ("nuttcp", "-fparse", "-l{length_bytes}", ("-N{streams}",))
        if isinstance(window, int):
            tool = (*tool, f"-w{window // _KIBIBYTE}", f"-ws{window // _KIBIBYTE}")
        if time_s is not None:
            tool = (*tool, f"-T{time_s:g}")
        words = {
            "VARIABLE": DATA_PORTS_VARIABLE,
            "DEFAULT": _DATA_PORTS,
            "STREAMS": str(options["streams"] or 1),
            "RETRIES": str(_MAX_RETRIES),
            "PREPARE": _COUNT if time_s is None else "",
            "TOOL": format_shell_command(tool, options),
        }
        script = re.sub("|".join(words), lambda match: words[match[0]], _SCRIPT)
        counted = ("{bytes}", "{length_bytes}") if time_s is None else ()
        start = shell(script, "{slot}", *counted)
        argv: tuple[Argument, ...] = (
            *start,
            ("-P{destination_port}",),
            ("-P{source_port}",),
            ("-r" if options["reverse"] else "-t", "{destination_host}"),
            ("-r", "{source_host}"),
        )
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``-fparse``, from the counters of the receiver. Its "megabytes" are MiB."""
        text = output_text(record, "stdout")
        values = {name: float(number) for name, number in _PAIR.findall(text)}
        if not {"megabytes", "real_seconds", "rate_Mbps"} <= values.keys():
            raise OutputError('a line such as "megabytes=1.0 real_seconds=1.00 rate_Mbps=8.4"', text)
        size = round(values["megabytes"] * _MEBIBYTE)
        detail: dict[str, float | int | str] = {
            f"{end}_cpu_percent": values[f"{end}_cpu"] for end in ("tx", "rx") if f"{end}_cpu" in values
        }
        if "rtt_ms" in values:
            detail["rtt_s"] = values["rtt_ms"] * 1e-3
        return ToolReport(
            size,
            values["rate_Mbps"] * 1e6 / BITS_PER_BYTE or None,
            values["real_seconds"] or None,
            received_bytes=size,
            retransmits=int(values["retrans"]) if "retrans" in values else None,
            detail=detail,
        )


def _check(options: Mapping[str, OptionValue]) -> None:
    streams, window = options["streams"], options["window_bytes"]
    if isinstance(streams, int) and streams > _MAX_STREAMS:
        raise OptionError(f"nuttcp: expected {_MAX_STREAMS} streams at most, found {streams}; reduce streams")
    if isinstance(window, int) and window % _KIBIBYTE:
        raise OptionError(f"nuttcp: expected a window of whole KiB, found {window} B; round the size")
    if options["time_s"] == 0:
        raise OptionError("nuttcp: expected a time longer than 0 s, found 0 s; increase time")
