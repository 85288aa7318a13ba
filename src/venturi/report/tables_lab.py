"""CSV tables of runs with servers, storages and emulated links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from venturi.analysis import Analysis
from venturi.stats import Interval

__all__ = ["factors", "lab_tables"]

Row = Mapping[str, object]


def lab_tables(analysis: Analysis) -> dict[str, Iterable[Row]]:
    """Return the rows of each table by table name, such as ``storages``."""
    bed = analysis.testbed
    return {
        "storages": (
            {"point": r.point, **factors(r.factors), "storage": r.storage, "direction": r.direction, "trials": r.trials,
             "read_requested": r.read_requested, "read_bytes_per_s": r.read_bytes_per_s, **_interval("read", r.read_interval),
             "write_requested": r.write_requested, "write_bytes_per_s": r.write_bytes_per_s, **_interval("write", r.write_interval)}
            for r in analysis.storage_rates
        ),
        "fixed_costs": (
            {"point": c.point, **factors(c.factors), "transfers": c.transfers, "trials": c.trials, "mean_s": c.mean_s,
             "least_s": c.least_s, "lower_quartile_s": c.lower_quartile_s, "median_s": c.median_s,
             "upper_quartile_s": c.upper_quartile_s, "greatest_s": c.greatest_s}
            for c in analysis.fixed_costs
        ),
        "fixed_cost_ratios": (
            {"factor": r.factor, "value": r.value, "reference": r.reference, **factors(r.others), "ratio": r.ratio.estimate,
             "ratio_low": r.ratio.low, "ratio_high": r.ratio.high, "interval_method": r.ratio.method}
            for r in analysis.fixed_cost_ratios
        ),
        "links": (
            {"link": link.name, "from": link.start_node, "to": link.end, "rate_bit_per_s": link.rate_bit_per_s, "delay_s": link.delay_s,
             "jitter_s": link.jitter_s, "queue_bytes": link.queue_bytes, "loss": link.loss, "bytes": link.bytes, "packets": link.packets,
             "queue_drops": link.queue_drops, "loss_drops": link.loss_drops, "queue_high_bytes": link.queue_high_bytes}
            for link in (bed.links if bed else ())
        ),
        "link_use": (
            {"point": u.point, **factors(u.factors), "link": u.link, "trials": u.trials, "mean_bit_per_s": u.mean_bit_per_s,
             "full_bit_per_s": u.full_bit_per_s, "full_error_bit_per_s": u.full_error_bit_per_s,
             "rate_bit_per_s": u.rate_bit_per_s, "drops": u.drops}
            for u in analysis.link_use
        ),
        "sockets": (
            {"point": s.point, **factors(s.factors), "trials": s.trials, "connections": s.connections,
             "congestion_control": s.congestion_control, "requested_window_bytes": s.requested_window_bytes,
             "window_bytes": s.window_bytes, "greatest_window_bytes": s.greatest_window_bytes,
             "greatest_congestion_window_bytes": s.greatest_congestion_window_bytes, "rtt_s": s.rtt_s, "least_rtt_s": s.least_rtt_s,
             "retransmitted_ratio": s.retransmitted_ratio, "receive_window_limited_ratio": s.receive_window_limited_ratio,
             "send_buffer_limited_ratio": s.send_buffer_limited_ratio, "delivery_bytes_per_s": s.delivery_bytes_per_s}
            for s in analysis.sockets
        ),
        "sessions": (
            {"service": s.service, "point": s.point, **factors(s.factors), "seen": s.seen, "sessions": s.sessions, "logins": s.logins,
             "commands": s.commands, "transfers": s.transfers, "data_channels": s.data_channels,
             "most_outstanding": s.most_outstanding}
            for s in analysis.sessions
        ),
        "byte_accounts": (
            {"party": b.party, "counted_bytes": b.counted_bytes, "requested_bytes": b.requested_bytes, "ratio": b.ratio,
             "least_bytes": b.least, "most_bytes": b.most, "agrees": b.agrees, "note": b.note}
            for b in analysis.accounts
        ),
    }  # fmt: skip


def factors(values: Mapping[str, object]) -> dict[str, object]:
    """Return factors by column name."""
    return {f"factor_{name}": value for name, value in values.items()}


def _interval(name: str, interval: Interval | None) -> dict[str, object]:
    return {
        f"{name}_low_bytes_per_s": interval.low if interval else None,
        f"{name}_high_bytes_per_s": interval.high if interval else None,
    }
