"""The columns of every table, with their types: nothing is ever guessed from what the first lines happen to hold."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "COLUMNS",
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
    "asked_bytes": "BIGINT",
    "received_bytes": "BIGINT",
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
    "bound": "JSON",
}
"""Of one transfer in the journal: the agent's record, and what the controller adds (mover, and what the tool said)."""

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
    "asked_bytes": "BIGINT",
    "received_bytes": "BIGINT",
    "start_s": "DOUBLE",
    "end_s": "DOUBLE",
    "waited_s": "DOUBLE",
    "duration_s": "DOUBLE",
    "shortest_s": "DOUBLE",
    "longest_s": "DOUBLE",
    "alone_s": "DOUBLE",
    "p50_s": "DOUBLE",
    "p90_s": "DOUBLE",
    "p95_s": "DOUBLE",
    "p99_s": "DOUBLE",
    "sketch_first": "BIGINT",
    "sketch_counts": "BIGINT[]",
    "bound": "JSON",
}
"""Of all transfers of a trial between two places, where they are not recorded each."""

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
"""Of the journal, all but its transfers."""

_WITH_PLACE = as_struct({**_OF_A_TRANSFER, "session": "BIGINT", "host": "VARCHAR"})
TRANSFER_COLUMNS = {
    "trial": as_struct(
        {**_OF_A_TRIAL, "factors": "JSON", "cache": as_struct(_OF_A_CACHE), "transfers": _WITH_PLACE + "[]"}
    ),
    "transfer": _WITH_PLACE,
}
"""Of the journal, its transfers and what is known of each from its trial. Inside a trial it is the trial that has
session and host, outside the transfer itself; one type for both lets one pass read both."""

SAMPLE_COLUMNS = {"host": "VARCHAR", "time_s": "DOUBLE", "set": "VARCHAR", "counters": "JSON", "values": "DOUBLE[]"}

_OF_A_SOCKET = {
    "local": "VARCHAR",
    "remote": "VARCHAR",
    "state": "VARCHAR",
    "closed": "BOOLEAN",
    "congestion_control": "VARCHAR",
    "mss_bytes": "BIGINT",
    "cwnd_bytes": "BIGINT",
    "send_window_bytes": "BIGINT",
    "receive_window_bytes": "BIGINT",
    "send_buffer_bytes": "BIGINT",
    "receive_buffer_bytes": "BIGINT",
    "rtt_s": "DOUBLE",
    "rtt_var_s": "DOUBLE",
    "min_rtt_s": "DOUBLE",
    "sent_bytes": "BIGINT",
    "acked_bytes": "BIGINT",
    "received_bytes": "BIGINT",
    "retransmitted_bytes": "BIGINT",
    "retransmits": "BIGINT",
    "lost": "BIGINT",
    "delivery_bytes_per_s": "DOUBLE",
    "pacing_bytes_per_s": "DOUBLE",
    "busy_s": "DOUBLE",
    "receive_window_limited_s": "DOUBLE",
    "send_buffer_limited_s": "DOUBLE",
}
SOCKETS_COLUMNS = {"host": "VARCHAR", "time_s": "DOUBLE", "sockets": as_struct(_OF_A_SOCKET) + "[]"}
"""Of `sockets.jsonl`: all sockets of a host at one moment a line."""

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
}
"""Table → column → DuckDB type. ``transfers``, ``routes`` and ``trials`` have a column ``factor_NAME`` a factor besides."""

TABLES = tuple(COLUMNS)

LATER_TABLES = frozenset({"sockets", "routes"})
"""Tables that the first version did not make: where they are absent, they are empty."""
