"""Servers of closed-loop clients: their configured limit, the fraction that the clients can use, and their logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["ServerCount", "clients_of", "put_in", "server_counts", "usable_fraction"]


@dataclass(frozen=True, slots=True)
class ServerCount:
    """Requests in the log of a service over the whole run, and the bytes that clients received from it."""

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


def usable_fraction(clients: int, processes: int) -> float:
    """Return the fraction of the capacity of ``processes`` that clients can use if each fetch chooses a process at random.

    This is a closed network of equal processor-sharing stations: N / (N + M - 1) for N clients and M processes, for any
    distribution of the work (Gordon and Newell 1967; Baskett and others 1975). Pauses between fetches lower the
    fraction. Unused rate that an idle process can save up (in Squid, one second) raises it.

    Examples
    --------
    >>> usable_fraction(1, 2), usable_fraction(9000, 30) > 0.99
    (0.5, True)
    """
    return clients / max(clients + processes - 1, 1)


def clients_of(run: Run) -> dict[int, dict[str, int]]:
    """Return the number of clients of each service at each point. A call counts as its option ``clients``, or as one."""
    calls = run.header.get("calls") or {}
    counts = [int((call.get("options") or {}).get("clients") or 1) for call in calls.values()]
    rows = run.query(_CLIENTS, {"calls": list(calls), "clients": counts})
    found: dict[int, dict[str, int]] = {}
    for point, service, count in zip(rows["point"], rows["service"], rows["clients"], strict=True):
        found.setdefault(int(point), {})[str(service)] = int(count)
    return found


def put_in(run: Run, group: Mapping[str, Any], clients: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Return the configured limit of the processes of a group, and the fraction of it that their clients can use.

    ``None`` if the plan does not limit them.
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
        usable += float(rate) * BITS_PER_BYTE * processes * usable_fraction(clients.get(name, 0), processes)
    return (total, usable / total) if total else (None, None)


def server_counts(run: Run) -> list[ServerCount]:
    """Return the counts in the access logs of proxies and servers, one item for each service.

    The result is empty until the servers have stopped.
    """
    logged = run.query(
        """SELECT detail->>'service' AS service, count(*) AS requests, count(*) FILTER (detail->>'cache' = 'hit') AS hits,
                  sum((detail->>'sent_bytes')::BIGINT)::DOUBLE AS sent
           FROM events WHERE kind = 'server-transfer' AND detail->>'sent_bytes' IS NOT NULL GROUP BY 1 ORDER BY 1"""
    )
    served = run.query(
        """SELECT labels->>'service' AS service, sum(coalesce(tool_bytes, requested_bytes))::DOUBLE AS bytes
           FROM transfers WHERE outcome = 'ok' GROUP BY 1"""
    )
    clients = {str(name): float(size) for name, size in zip(served["service"], served["bytes"], strict=True)}
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
