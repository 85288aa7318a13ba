"""``root-read``: a job that reads a ROOT file with uproot, over ``root://`` or from a mounted file system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["RootRead"]

_DETAIL = (
    *("containers", "baskets", "container_bytes", "sum", "requests", "open_s", "read_s", "cpu_s", "compute_s"),
    "waited_s",
)


@dataclass(frozen=True, slots=True)
class RootRead:
    """``venturi-root read``, which prints a JSON report.

    With the service ``root-jobs`` on its host, the job is a fork of the service, and reports its own CPU time (``cpu_s``).
    The measured CPU time is the time of the waiting client.
    """

    name: str = "root-read"
    summary: str = (
        "A job that reads the containers of a ROOT file and sums their bytes (uproot), with optional computing."
    )
    requires: tuple[str, ...] = ("venturi-root",)
    reads: bool = True
    writes: bool = False
    partial: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("root",)
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("rate", "rate", None, "Rate limit, as a model of a slow or shared CPU."),
        Option("compute", "time", None, "Core-seconds of computing, distributed over the read."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``venturi-root read``."""
        limits = (("--rate", "{rate_bytes_per_s}"), ("--compute", "{compute_s}"))
        argv = ("venturi-root", "read", *limits, "{source}")
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of the job: fetched bytes, and its duration after the open of the file."""
        text = output_text(record, "stdout")
        try:
            output = json.loads(text)
            size, read_s = int(output["bytes"]), float(output["read_s"])
            return ToolReport(
                size,
                size / read_s if size and read_s > 0 else None,
                read_s,
                detail={key: output[key] for key in _DETAIL},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise OutputError('a line of JSON with "bytes" and "read_s"', text) from error
