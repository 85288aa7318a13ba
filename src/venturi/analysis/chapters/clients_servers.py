"""What the servers of closed-loop clients may send, what so few clients can have of it, and what they logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["ServerCount", "busy_share", "clients_of", "put_in", "server_counts"]


@dataclass(frozen=True, slots=True)
class ServerCount:
    """Requests in a server's log, over the whole run, and what clients hold of the same service."""

    service: str
    requests: int
    hits: int
    sent_bytes: int
    client_bytes: int | None


_CLIENTS = """
    SELECT point, service, sum(each)::BIGINT AS clients FROM (
        SELECT point, host, slot, any_value(labels->>'service') AS service,
               any_value(coalesce(list_extract($clients::BIGINT[], list_position($calls::VARCHAR[], call)), 1)) AS each
        FROM transfers WHERE point IS NOT NULL GROUP BY point, host, slot)
    GROUP BY ALL
"""


def busy_share(clients: int, processes: int) -> float:
    """Return the share of what processes can do together that clients get who choose one at random for each fetch.

    A closed network of equal stations that divide themselves among their clients: N / (N + M - 1) for N clients and M processes,
    whatever the distribution of the work (Gordon and Newell 1967; Baskett and others 1975). Pauses between fetches make it less, what an idle
    process saves up of its rate (Squid: a second) makes it more.

    Examples
    --------
    >>> busy_share(1, 2), busy_share(9000, 30) > 0.99
    (0.5, True)
    """
    return clients / max(clients + processes - 1, 1)


def clients_of(run: Run) -> dict[int, dict[str, int]]:
    """Return how many clients each service has at each point; a call is as many as its option says, or one."""
    calls = run.header.get("calls") or {}
    counts = [int((call.get("options") or {}).get("clients") or 1) for call in calls.values()]
    rows = run.query(_CLIENTS, {"calls": list(calls), "clients": counts})
    found: dict[int, dict[str, int]] = {}
    for point, service, count in zip(rows["point"], rows["service"], rows["clients"], strict=True):
        found.setdefault(int(point), {})[str(service)] = int(count)
    return found


def put_in(run: Run, group: Mapping[str, Any], clients: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Return what the processes of a group may send together, and the share that their clients can use.

    ``None`` where the plan does not limit them.
    """
    services = run.header.get("services") or {}
    total = usable = 0.0
    for name in group.get("services", ()):
        options = (services.get(name) or {}).get("options") or {}
        rate = options.get("process_rate_bytes_per_s")
        if rate is None:
            return None, None
        processes = int(options.get("instances") or 1) * int(options.get("workers") or 1)
        total += float(rate) * BITS_PER_BYTE * processes
        usable += float(rate) * BITS_PER_BYTE * processes * busy_share(clients.get(name, 0), processes)
    return (total, usable / total) if total else (None, None)


def server_counts(run: Run) -> list[ServerCount]:
    """Return what the access logs of proxies and servers hold, service by service; empty while these run."""
    logged = run.query(
        """SELECT detail->>'service' AS service, count(*) AS requests, count(*) FILTER (detail->>'cache' = 'hit') AS hits,
                  sum((detail->>'sent_bytes')::BIGINT)::DOUBLE AS sent
           FROM events WHERE kind = 'server-transfer' AND detail->>'sent_bytes' IS NOT NULL GROUP BY 1 ORDER BY 1"""
    )
    held = run.query(
        """SELECT labels->>'service' AS service, sum(coalesce(tool_bytes, asked_bytes))::DOUBLE AS bytes
           FROM transfers WHERE outcome = 'ok' GROUP BY 1"""
    )
    clients = {str(name): float(size) for name, size in zip(held["service"], held["bytes"], strict=True)}
    return [
        ServerCount(
            str(name),
            int(logged["requests"][i]),
            int(logged["hits"][i]),
            int(logged["sent"][i]),
            round(clients[str(name)]) if str(name) in clients else None,
        )
        for i, name in enumerate(logged["service"])
    ]
