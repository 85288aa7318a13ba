"""``fio-read`` and ``fio-write``: read and write rates of a storage with ``fio`` (table 2 of document 004)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["FioRead", "FioWrite"]

_COMMON = (
    Option("block", "size", 1 << 20, "Size of a read or write (--bs)."),
    Option(
        "engine",
        "choice",
        "psync",
        "I/O engine (--ioengine): sequential (`psync`), or up to `depth` concurrent requests.",
        choices=("psync", "libaio", "io_uring"),
    ),
    Option("depth", "integer", 1, "Requests in flight (--iodepth), for `libaio` and `io_uring`."),
    Option("direct", "boolean", False, "Bypass the page cache (--direct=1); not on every file system."),
)


@dataclass(frozen=True, slots=True)
class FioRead:
    """Read a file sequentially after removing its pages from the cache (``invalidate`` of fio).

    Read-ahead can refill the cache, but each byte is read once.
    """

    name: str = "fio-read"
    summary: str = "Read one file (fio) after removing its pages from the cache."
    requires: tuple[str, ...] = ("sh", "fio")
    reads: bool = True
    writes: bool = False
    null_destination: bool = True
    protocols: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = _COMMON

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``fio``."""
        argv = _argv("read", ("--readonly",), options, "{source}")
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the read report of ``fio``."""
        return _parse(record, "read")


@dataclass(frozen=True, slots=True)
class FioWrite:
    """Write a file of random data to stable storage; the sync is part of both durations.

    Blocks are not allocated in advance (``fallocate=none``), like in a copy.
    """

    name: str = "fio-write"
    summary: str = "Write one file of random data to stable storage (fio)."
    requires: tuple[str, ...] = ("sh", "fio")
    reads: bool = False
    writes: bool = True
    # fio would replace the device by a file.
    null_destination: bool = False
    protocols: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        *_COMMON,
        Option(
            "fsync",
            "boolean",
            True,
            "Wait until the file is on stable storage (--end_fsync=1, part of the duration).",
        ),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``fio``."""
        sync = ("--end_fsync=1",) if options["fsync"] else ()
        argv = _argv("write", ("--fallocate=none", *sync), options, "{destination}")
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the write report of ``fio``."""
        return _parse(record, "write")


def _argv(
    direction: Literal["read", "write"], more: tuple[str, ...], options: Mapping[str, OptionValue], end: str
) -> tuple[str, ...]:
    """Return the command line. The script rejects sizes of partial blocks, which fio would truncate silently."""
    tool = (
        *(
            "fio",
            f"--name={direction}",
            f"--rw={direction}",
            "--eta=never",
            "--output-format=json",
            "--bs={block_bytes}",
        ),
        *("--ioengine={engine}", "--iodepth={depth}", f"--direct={int(bool(options['direct']))}", *more),
    )
    block = options["block_bytes"]
    script = (
        f'[ $(( $2 % {block} )) = 0 ] || {{ echo "fio: expected a size of whole blocks of {block} B, found $2 B" >&2; exit 2; }}; '
        f'exec {format_shell_command(tool, options)} --filename="$1" --size="$2"'
    )
    return shell(script, end, "{bytes}")


def _parse(record: Mapping[str, Any], direction: Literal["read", "write"]) -> ToolReport:
    """Return bytes and duration (whole milliseconds) of the job; fio can print notes before the JSON."""
    text = output_text(record, "stdout")
    try:
        report, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        (job,) = report["jobs"]
        statistics = job[direction]
        size, duration_s = int(statistics["io_bytes"]), float(statistics["runtime"]) * 1e-3
        detail = {"user_cpu_percent": float(job["usr_cpu"]), "system_cpu_percent": float(job["sys_cpu"]),
                  "mean_latency_s": float(statistics["lat_ns"]["mean"]) * 1e-9}  # fmt: skip
        if job["error"] or not all(math.isfinite(number) for number in (duration_s, *detail.values())):
            raise ValueError("an error, or no number")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise OutputError(f'a report of JSON with one job, its "{direction}" and no error', text) from error
    rate = size / duration_s if duration_s > 0 and size else None
    return ToolReport(size, rate, duration_s, detail=detail)
