"""``root-read``: a job that reads a file of ROOT with uproot, over ``root://`` or from a mounted file system."""

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
    """``venturi-root read``, which says in a line of JSON what it read.

    Where the service ``root-jobs`` runs on its host, the job is a fork of that, and its processor time is what it says itself
    (``cpu_s``): what was measured is that of the client which waited for it.
    """

    name: str = "root-read"
    summary: str = (
        "A job: goes through the containers of a file of ROOT and sums their bytes (uproot); may compute, too."
    )
    requires: tuple[str, ...] = ("venturi-root",)
    reads: bool = True
    writes: bool = False
    partial: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("root",)
    lists: bool = False
    options: tuple[Option, ...] = (
        Option("rate", "rate", None, "At most so fast: a processor of so much speed, or a share of one."),
        Option("compute", "time", None, "Core-seconds of computing, spread over what is read."),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``venturi-root read`` is called."""
        limits = (("--rate", "{rate_bytes_per_s}"), ("--compute", "{compute_s}"))
        argv = ("venturi-root", "read", *limits, "{source}")
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what the job says: the bytes that it fetched, by its own clock from the open file to the end."""
        text = output_text(record, "stdout")
        try:
            told = json.loads(text)
            size, read_s = int(told["bytes"]), float(told["read_s"])
            return ToolReport(
                size,
                size / read_s if size and read_s > 0 else None,
                read_s,
                detail={key: told[key] for key in _DETAIL},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise OutputError('a line of JSON with "bytes" and "read_s"', text) from error
