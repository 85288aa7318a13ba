"""Columns of all tables with their types, so that DuckDB does not infer types from the first lines."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "COLUMNS",
    "DERIVED_TABLES",
    "HEAD_COLUMNS",
    "LATER_TABLES",
    "SAMPLE_COLUMNS",
    "SOCKETS_COLUMNS",
    "TABLES",
    "TRANSFER_COLUMNS",
    "as_struct",
]

_OF_A_TRANSFER = {
    "trial": "VARCHAR",
    "actor": "VARCHAR",
    "slot": "BIGINT",
    "mover": "VARCHAR",
    "call": "VARCHAR",
    "source": "VARCHAR",
    "source_via": "VARCHAR",
    "destination": "VARCHAR",
    "destination_via": "VARCHAR",
    "files": "BIGINT",
    "requested_bytes": "BIGINT",
    "received_bytes": "BIGINT",
    "checked_by": "VARCHAR",
    "checksum": "VARCHAR",
    "tool_bytes": "BIGINT",
    "tool_received_bytes": "BIGINT",
    "tool_retransmits": "BIGINT",
    "tool_duration_s": "DOUBLE",
    "tool_rate_bytes_per_s": "DOUBLE",
    "tool_first_byte_s": "DOUBLE",
    "tool": "JSON",
    "intended_s": "DOUBLE",
    "start_s": "DOUBLE",
    "end_s": "DOUBLE",
    "duration_s": "DOUBLE",
    "outcome": "VARCHAR",
    "exit_code": "BIGINT",
    "signal": "BIGINT",
    "error": "VARCHAR",
    "user_s": "DOUBLE",
    "system_s": "DOUBLE",
    "max_rss_bytes": "BIGINT",
    "minor_faults": "BIGINT",
    "major_faults": "BIGINT",
    "voluntary_switches": "BIGINT",
    "involuntary_switches": "BIGINT",
    "read_call_bytes": "BIGINT",
    "write_call_bytes": "BIGINT",
    "read_disk_bytes": "BIGINT",
    "write_disk_bytes": "BIGINT",
    "labels": "JSON",
    "bottleneck": "JSON",
}
"""Columns of a transfer in the journal: the record of the agent, and the mover and tool report added by the controller."""

_OF_A_ROUTE = {
    "mover": "VARCHAR",
    "call": "VARCHAR",
    "source": "VARCHAR",
    "source_via": "VARCHAR",
    "destination": "VARCHAR",
    "destination_via": "VARCHAR",
    "files": "BIGINT",
    "size_bytes": "BIGINT",
    "transfers": "BIGINT",
    "outcomes": "JSON",
    "requested_bytes": "BIGINT",
    "received_bytes": "BIGINT",
    "start_s": "DOUBLE",
    "end_s": "DOUBLE",
    "wait_s": "DOUBLE",
    "duration_s": "DOUBLE",
    "min_duration_s": "DOUBLE",
    "max_duration_s": "DOUBLE",
    "unloaded_s": "DOUBLE",
    "p50_s": "DOUBLE",
    "p90_s": "DOUBLE",
    "p95_s": "DOUBLE",
    "p99_s": "DOUBLE",
    "sketch_first": "BIGINT",
    "sketch_counts": "BIGINT[]",
    "bottleneck": "JSON",
}
"""Columns of a summary of all transfers of a trial between two storages, for runs without a record per transfer."""

_OF_A_TRIAL = {
    "point": "BIGINT",
    "repetition": "BIGINT",
    "block": "BIGINT",
    "position": "BIGINT",
    "session": "BIGINT",
    "host": "VARCHAR",
}
_OF_A_FINDING = {"code": "VARCHAR", "subject": "VARCHAR", "evidence": "VARCHAR", "advice": "VARCHAR"}
_OF_A_CACHE = {"state": "VARCHAR", "method": "VARCHAR", "resident_ratio": "DOUBLE"}


def as_struct(columns: Mapping[str, str]) -> str:
    """Return the columns as the text of a DuckDB struct type."""
    return "STRUCT(" + ", ".join(f'"{name}" {kind}' for name, kind in columns.items()) + ")"


HEAD_COLUMNS = {
    "session": "JSON",
    "trial": as_struct(
        {
            "trial": "VARCHAR",
            "actor": "VARCHAR",
            "start_s": "DOUBLE",
            "end_s": "DOUBLE",
            "outcome": "VARCHAR",
            **_OF_A_TRIAL,
            "attempt": "BIGINT",
            "factors": "JSON",
            "cache": as_struct(_OF_A_CACHE),
            "findings": as_struct(_OF_A_FINDING) + "[]",
            "routes": as_struct(_OF_A_ROUTE) + "[]",
        }
    ),
    "finding": as_struct({**_OF_A_FINDING, "trial": "VARCHAR", "host": "VARCHAR", "session": "BIGINT"}),
}
"""Columns of the journal except its transfers."""

_WITH_STORAGE = as_struct({**_OF_A_TRANSFER, "session": "BIGINT", "host": "VARCHAR"})
TRANSFER_COLUMNS = {
    "trial": as_struct(
        {**_OF_A_TRIAL, "factors": "JSON", "cache": as_struct(_OF_A_CACHE), "transfers": _WITH_STORAGE + "[]"}
    ),
    "transfer": _WITH_STORAGE,
}
"""Columns of the transfers in the journal, with properties of their trials. Session and host are properties of the trial,
or of a transfer outside a trial. Both kinds of transfers have the same type, so that one pass can read them."""

SAMPLE_COLUMNS = {"host": "VARCHAR", "time_s": "DOUBLE", "set": "VARCHAR", "counters": "JSON", "values": "DOUBLE[]"}

_OF_A_SOCKET = {
    "local": "VARCHAR",
    "remote": "VARCHAR",
    "state": "VARCHAR",
    "closed": "BOOLEAN",
    "congestion_control": "VARCHAR",
    "mss_bytes": "BIGINT",
    "cwnd_bytes": "BIGINT",
    "ssthresh_bytes": "BIGINT",
    "send_window_bytes": "BIGINT",
    "receive_window_bytes": "BIGINT",
    "send_buffer_bytes": "BIGINT",
    "receive_buffer_bytes": "BIGINT",
    "send_queue_bytes": "BIGINT",
    "unsent_bytes": "BIGINT",
    "receive_queue_bytes": "BIGINT",
    "rtt_s": "DOUBLE",
    "rtt_var_s": "DOUBLE",
    "min_rtt_s": "DOUBLE",
    "receiver_rtt_s": "DOUBLE",
    "sent_bytes": "BIGINT",
    "acked_bytes": "BIGINT",
    "received_bytes": "BIGINT",
    "sent_segments": "BIGINT",
    "unacked": "BIGINT",
    "retransmitted_bytes": "BIGINT",
    "retransmits": "BIGINT",
    "lost": "BIGINT",
    "reordering": "BIGINT",
    "reordered": "BIGINT",
    "duplicates": "BIGINT",
    "out_of_order": "BIGINT",
    "drops": "BIGINT",
    "delivery_bytes_per_s": "DOUBLE",
    "app_limited": "BOOLEAN",
    "pacing_bytes_per_s": "DOUBLE",
    "busy_s": "DOUBLE",
    "receive_window_limited_s": "DOUBLE",
    "send_buffer_limited_s": "DOUBLE",
}
SOCKETS_COLUMNS = {"host": "VARCHAR", "time_s": "DOUBLE", "sockets": as_struct(_OF_A_SOCKET) + "[]"}
"""Columns of ``sockets.jsonl``; a line has all sockets of a host at one time."""

COLUMNS: dict[str, dict[str, str]] = {
    "transfers": {
        "trial": "VARCHAR",
        **{name: kind for name, kind in _OF_A_TRIAL.items() if name != "host"},
        "backend": "VARCHAR",
        "host": "VARCHAR",
        **{name: kind for name, kind in _OF_A_TRANSFER.items() if name != "trial"},
        "cache_state": "VARCHAR",
    },
    "routes": {
        "trial": "VARCHAR",
        **{name: kind for name, kind in _OF_A_TRIAL.items() if name != "host"},
        "backend": "VARCHAR",
        "host": "VARCHAR",
        "actor": "VARCHAR",
        **_OF_A_ROUTE,
    },
    "trials": {
        "trial": "VARCHAR",
        **_OF_A_TRIAL,
        "attempts": "BIGINT",
        "actor": "VARCHAR",
        "start_s": "DOUBLE",
        "end_s": "DOUBLE",
        "outcome": "VARCHAR",
        "cache_state": "VARCHAR",
        "cache_method": "VARCHAR",
        "cache_resident_ratio": "DOUBLE",
    },
    "samples": {"host": "VARCHAR", "time_s": "DOUBLE", "counter": "VARCHAR", "value": "DOUBLE"},
    "sockets": {"host": "VARCHAR", "time_s": "DOUBLE", **_OF_A_SOCKET},
    "events": {"host": "VARCHAR", "time_s": "DOUBLE", "kind": "VARCHAR", "detail": "JSON"},
    "findings": {
        "code": "VARCHAR",
        "subject": "VARCHAR",
        "trial": "VARCHAR",
        "host": "VARCHAR",
        "evidence": "VARCHAR",
        "advice": "VARCHAR",
    },
    "environment": {"session": "BIGINT", "host": "VARCHAR", "key": "VARCHAR", "value": "VARCHAR"},
    "verdicts": {
        "version": "VARCHAR",
        "point": "BIGINT",
        "rate_bytes_per_s": "DOUBLE",
        "cause": "VARCHAR",
        "resource": "VARCHAR",
        "fraction": "DOUBLE",
        "runner_up": "VARCHAR",
        "confidence": "DOUBLE",
        "detail": "JSON",
    },
}
"""Table → column → DuckDB type. ``transfers``, ``routes`` and ``trials`` also have one column ``factor_NAME`` per factor."""

TABLES = tuple(COLUMNS)

DERIVED_TABLES = frozenset({"verdicts"})
"""Tables that the analysis writes (:mod:`venturi.run.verdicts`); they are not created from the journal."""

LATER_TABLES = frozenset({"sockets", "routes", "verdicts"})
"""Tables that the first version did not create; a missing table counts as empty."""
