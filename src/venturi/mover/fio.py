"""``fio-read`` and ``fio-write``: what a storage gives to and takes from memory, by ``fio`` (table 2 of document 004)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from venturi.mover.base import Option, OutputError, ToolReport, output_text
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import OptionValue

__all__ = ["FioRead", "FioWrite"]

_COMMON = (
    Option("block", "size", 1 << 20, "Bytes a read or write (--bs)."),
    Option(
        "engine",
        "choice",
        "psync",
        "How they are asked for (--ioengine): one after the other (`psync`), or up to `depth` at the same time.",
        choices=("psync", "libaio", "io_uring"),
    ),
    Option("depth", "integer", 1, "Reads or writes in flight (--iodepth); counts for `libaio` and `io_uring`."),
    Option("direct", "boolean", False, "Past the page cache (--direct=1); not every file system can."),
)


@dataclass(frozen=True, slots=True)
class FioRead:
    """Read a file from its first byte to its last, with its pages thrown out of the cache beforehand (fio's ``invalidate``).

    A file that is not larger than memory may come back into the cache by read-ahead, but each byte is read once.
    """

    name: str = "fio-read"
    summary: str = "Read one file into memory (fio), its pages thrown out of the cache beforehand."
    requires: tuple[str, ...] = ("sh", "fio")
    reads: bool = True
    writes: bool = False
    null_destination: bool = True
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = _COMMON

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``fio`` is called."""
        argv = _argv("read", ("--readonly",), options, "{source}")
        return Call(self.name, dict(options), argv, self.requires, capture=True, expect="nothing")

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``fio`` says of its reads."""
        return _parse(record, "read")


@dataclass(frozen=True, slots=True)
class FioWrite:
    """Write a file of random data, and wait until it is on stable storage: that is in fio's time, and in ours.

    Blocks are not laid out beforehand (``fallocate=none``): a copy does not do that either.
    """

    name: str = "fio-write"
    summary: str = "Write one file of random data from memory (fio), until it is on stable storage."
    requires: tuple[str, ...] = ("sh", "fio")
    reads: bool = False
    writes: bool = True
    # It would lay a file out in place of the device.
    null_destination: bool = False
    speaks: tuple[str, ...] = ()
    lists: bool = False
    options: tuple[Option, ...] = (
        *_COMMON,
        Option(
            "fsync", "boolean", True, "Wait until the file is on stable storage (--end_fsync=1), inside the timing."
        ),
    )

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``fio`` is called."""
        sync = ("--end_fsync=1",) if options["fsync"] else ()
        argv = _argv("write", ("--fallocate=none", *sync), options, "{destination}")
        return Call(self.name, dict(options), argv, self.requires, capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``fio`` says of its writes."""
        return _parse(record, "write")


def _argv(
    way: Literal["read", "write"], more: tuple[str, ...], options: Mapping[str, OptionValue], end: str
) -> tuple[str, ...]:
    """Return the command line. What is left of a size after its last whole block fio does not move, and does not say so."""
    tool = (
        *("fio", f"--name={way}", f"--rw={way}", "--eta=never", "--output-format=json", "--bs={block_bytes}"),
        *("--ioengine={engine}", "--iodepth={depth}", f"--direct={int(bool(options['direct']))}", *more),
    )
    block = options["block_bytes"]
    script = (
        f'[ $(( $2 % {block} )) = 0 ] || {{ echo "fio: expected a size of whole blocks of {block} B, found $2 B" >&2; exit 2; }}; '
        f'exec {filled(tool, options)} --filename="$1" --size="$2"'
    )
    return shell(script, end, "{bytes}")


def _parse(record: Mapping[str, Any], way: Literal["read", "write"]) -> ToolReport:
    """Return the bytes of the one job, and its time in whole milliseconds; notes of fio may stand before the JSON."""
    text = output_text(record, "stdout")
    try:
        said, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        (job,) = said["jobs"]
        done = job[way]
        size, duration_s = int(done["io_bytes"]), float(done["runtime"]) * 1e-3
        detail = {"user_cpu_percent": float(job["usr_cpu"]), "system_cpu_percent": float(job["sys_cpu"]),
                  "mean_latency_s": float(done["lat_ns"]["mean"]) * 1e-9}  # fmt: skip
        if job["error"] or not all(math.isfinite(number) for number in (duration_s, *detail.values())):
            raise ValueError("an error, or no number")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise OutputError(f'a report of JSON with one job, its "{way}" and no error', text) from error
    rate = size / duration_s if duration_s > 0 and size else None
    return ToolReport(size, rate, duration_s, detail=detail)
