"""Format the status of a transfer job as a sentence and as a table."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from venturi.transfer_jobs import JobStatus
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["counted", "progress_line", "summary", "table"]


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "retry", "retries"), counted(0, "call")
    ('1 retry', '0 calls')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def summary(status: JobStatus) -> str:
    """Return the status of a job as one line.

    Examples
    --------
    >>> # job 1: 198 of 201 transfers done, 2.0 GB in 27 s (73.0 MB/s); 3 failed (no-such-file 3)
    """
    counts = status.transfers
    parts = [
        f"job {status.job}: {counts.get('done', 0)} of {counted(status.total, 'transfer')} done, {format_bytes(status.done_bytes)} in"
        f" {format_duration(status.elapsed_s)} ({format_rate(status.done_bytes / status.elapsed_s if status.elapsed_s else 0.0)})"
    ]
    if counts.get("failed"):
        parts.append(f"{counts['failed']} failed ({_format_counts(status.causes)})")
    if counts.get("cancelled"):
        parts.append(f"{counts['cancelled']} cancelled")
    unfinished = counts.get("queued", 0) + counts.get("active", 0)
    if unfinished:
        parts.append(f"{unfinished} left")
    if status.retries:
        parts.append(counted(status.retries, "retry", "retries"))
    if status.unsized:
        parts.append(f"{status.unsized} of unknown size")
    unverified = {reason: count for reason, count in status.unverified.items() if reason != "not asked for"}
    if unverified:
        parts.append(f"{sum(unverified.values())} not verified: {next(iter(unverified))}")
    return "; ".join(parts)


def progress_line(status: JobStatus) -> str:
    """Return the progress of a job, for a line that is redrawn."""
    counts = status.transfers
    remaining_s = _remaining_s(status)
    parts = [
        f"{counts.get('done', 0)}/{status.total}",
        format_bytes(status.done_bytes)
        + (f" of {format_bytes(status.requested_bytes)}" if status.requested_bytes else ""),
        format_rate(status.rate_bytes_per_s),
        f"{counts['active']} active" if counts.get("active") else "",
        f"{format_duration(remaining_s)} left" if remaining_s is not None else "",
        f"{counts['failed']} failed" if counts.get("failed") else "",
        counted(status.retries, "retry", "retries") if status.retries else "",
    ]
    return " · ".join(part for part in parts if part)


def table(status: JobStatus) -> Table:
    """Return the full status of a job."""
    counts = status.transfers
    rows = {
        "job": f"{status.job} ({status.name})",
        "state": status.state,
        "transfers": f"{status.total}: {_format_counts(counts)}",
        "bytes done": format_bytes(status.done_bytes)
        + (f" of {format_bytes(status.requested_bytes)}" if status.requested_bytes else ""),
        "rate": format_rate(status.rate_bytes_per_s),
        "elapsed": format_duration(status.elapsed_s),
        "attempts": f"{status.attempts}, including {counted(status.retries, 'retry', 'retries')}",
        "verified": str(status.verified),
        "not verified": "; ".join(f"{count}: {reason}" for reason, count in status.unverified.items()),
        "permanent failures": _format_counts(status.causes),
        "failed attempts": _format_counts(status.passing),
        "wait in queue": "" if status.wait_s is None else f"{format_duration(status.wait_s)} (mean)",
        "time in mover": f"{format_duration(status.move_s)} in {counted(status.calls, 'call')}",
        "time to verify": format_duration(status.verify_s),
        "overhead": format_duration(status.overhead_s),
    }
    drawn = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows.items():
        if value:
            drawn.add_row(name, value)
    return drawn


def _remaining_s(status: JobStatus) -> float | None:
    done = status.transfers.get("done", 0)
    left = status.transfers.get("queued", 0) + status.transfers.get("active", 0)
    if not done or not left:
        return None
    if status.requested_bytes and status.rate_bytes_per_s:
        return max(status.requested_bytes - status.done_bytes, 0) / status.rate_bytes_per_s
    return status.elapsed_s / done * left


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
