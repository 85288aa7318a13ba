"""How a job of transfers is told: in a sentence, and as a table."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from venturi.managed import JobStatus
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["counted", "progress_words", "summary", "table"]


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its word.

    Examples
    --------
    >>> counted(1, "retry", "retries"), counted(0, "call")
    ('1 retry', '0 calls')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def summary(status: JobStatus) -> str:
    """Return in a sentence or two how a job stands.

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
        parts.append(f"{counts['failed']} failed ({_counted(status.causes)})")
    if counts.get("cancelled"):
        parts.append(f"{counts['cancelled']} cancelled")
    left = counts.get("queued", 0) + counts.get("active", 0)
    if left:
        parts.append(f"{left} left")
    if status.retries:
        parts.append(counted(status.retries, "retry", "retries"))
    if status.unsized:
        parts.append(f"{status.unsized} of a size that nobody has told")
    asked = {why: count for why, count in status.unverified.items() if why != "not asked for"}
    if asked:
        parts.append(f"{sum(asked.values())} not verified: {next(iter(asked))}")
    return "; ".join(parts)


def progress_words(status: JobStatus) -> str:
    """Return how far a job is, short enough for a line that is drawn again and again."""
    counts = status.transfers
    left_s = _left_s(status)
    parts = [
        f"{counts.get('done', 0)}/{status.total}",
        format_bytes(status.done_bytes) + (f" of {format_bytes(status.asked_bytes)}" if status.asked_bytes else ""),
        format_rate(status.rate_bytes_per_s),
        f"{counts['active']} under way" if counts.get("active") else "",
        f"{format_duration(left_s)} left" if left_s is not None else "",
        f"{counts['failed']} failed" if counts.get("failed") else "",
        counted(status.retries, "retry", "retries") if status.retries else "",
    ]
    return " · ".join(part for part in parts if part)


def table(status: JobStatus) -> Table:
    """Return all that is known of a job."""
    counts = status.transfers
    rows = {
        "job": f"{status.job} ({status.name})",
        "state": status.state,
        "transfers": f"{status.total}: {_counted(counts)}",
        "bytes done": format_bytes(status.done_bytes)
        + (f" of {format_bytes(status.asked_bytes)}" if status.asked_bytes else ""),
        "rate": format_rate(status.rate_bytes_per_s),
        "elapsed": format_duration(status.elapsed_s),
        "attempts": f"{status.attempts}, {counted(status.retries, 'retry', 'retries')} among them",
        "verified": str(status.verified),
        "not verified": "; ".join(f"{count}: {why}" for why, count in status.unverified.items()),
        "failed for good": _counted(status.causes),
        "failed in an attempt": _counted(status.passing),
        "wait in the queue": "" if status.wait_s is None else f"{format_duration(status.wait_s)} (mean)",
        "in the mover": f"{format_duration(status.move_s)} in {counted(status.calls, 'call')}",
        "comparing": format_duration(status.verify_s),
        "overhead": format_duration(status.overhead_s),
    }
    drawn = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows.items():
        if value:
            drawn.add_row(name, value)
    return drawn


def _left_s(status: JobStatus) -> float | None:
    done = status.transfers.get("done", 0)
    left = status.transfers.get("queued", 0) + status.transfers.get("active", 0)
    if not done or not left:
        return None
    if status.asked_bytes and status.rate_bytes_per_s:
        return max(status.asked_bytes - status.done_bytes, 0) / status.rate_bytes_per_s
    return status.elapsed_s / done * left


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
