"""Observations of a run: for each trial, its transfers, and the connections, links and counters of its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from venturi.advice.flows import DataFlow, SocketSeries, flows_in, load_connections
from venturi.advice.series import CounterSeries, load_counters
from venturi.run import Run
from venturi.run.route_links import forward_links

__all__ = ["NO_STORAGE", "LinkTraffic", "Observation", "covered_s", "observe"]

NO_STORAGE = ("zero", "null")


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """Counters of one link on the route of the data in a window of time.

    Attributes
    ----------
    busy
        Sending time of the link as a fraction of the time with open data connections.
    bytes, packets, queue_drops, loss_drops
        Sent bytes and packets, and packets dropped by its queue or its random loss.
    rate_bytes_per_s
        Rate of the link. None if it sent nothing.
    queue_s
        Longest time to drain its queue.
    """

    name: str
    busy: float
    bytes: float
    packets: float
    queue_drops: float
    loss_drops: float
    rate_bytes_per_s: float | None
    queue_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """Input of a verdict about one trial.

    Attributes
    ----------
    trial
        Name of the trial. Empty for a run without trials.
    point, factors
        Design point.
    start_s, end_s
        First start and last end of its transfers.
    bytes, files, transfers, transfer_s
        Sums over its successful transfers.
    failed
        Number of failed transfers.
    movers, options
        Names of the movers, and options of the call.
    client, source, destination
        Hosts. None for a host outside the run.
    source_storage, destination_storage
        Names of the storages. None without a storage.
    services
        Service → host, for the services of the transfers.
    cpu_s
        CPU time of the movers.
    flows
        Data connections.
    links
        Links on the route of the data. Empty on existing hosts.
    counters
        (host, counter) → series.
    header, environment
        Header and environment of the run.
    """

    trial: str
    point: int | None
    factors: Mapping[str, object]
    start_s: float
    end_s: float
    bytes: float
    files: int
    transfers: int
    transfer_s: float
    failed: int
    movers: tuple[str, ...]
    options: Mapping[str, Any]
    client: str
    source: str | None
    destination: str | None
    source_storage: str | None
    destination_storage: str | None
    services: Mapping[str, str]
    cpu_s: float | None
    flows: tuple[DataFlow, ...]
    links: tuple[LinkTraffic, ...]
    counters: Mapping[tuple[str, str], CounterSeries] = field(repr=False)
    header: Mapping[str, Any] = field(repr=False)
    environment: Mapping[str, Mapping[str, str]] = field(repr=False)

    @property
    def duration_s(self) -> float:
        """Duration of the trial."""
        return self.end_s - self.start_s

    @property
    def data_s(self) -> float:
        """Time with an open data connection. Without connections, the duration of the trial."""
        return covered_s(self.flows) or self.duration_s

    @property
    def rate_bytes_per_s(self) -> float:
        """Throughput of all transfers together."""
        return self.bytes / self.duration_s

    @property
    def concurrency(self) -> int:
        """Mean number of simultaneous transfers."""
        return max(1, round(self.transfer_s / self.duration_s))

    def growth(self, host: str | None, counter: str) -> float | None:
        """Return the growth of a counter in the trial, or None without samples."""
        found = self.counters.get((host or "", counter))
        return None if found is None else found.growth(self.start_s, self.end_s)

    def ratio(self, host: str | None, counter: str) -> float | None:
        """Return the growth of a counter in seconds as a fraction of the duration of the trial."""
        found = self.growth(host, counter)
        return None if found is None else found / self.duration_s

    def spec(self, storage: str | None) -> Mapping[str, Any]:
        """Return the declared properties of a storage of a lab or simulation."""
        return (self.header.get("storages") or {}).get(storage or "", {}).get("spec") or {}

    def device(self, host: str | None, storage: str | None) -> str | None:
        """Return the name of the disk behind a storage in `disk.NAME` counters, or None if unknown."""
        own = self.environment.get(host or "", {})
        found = own.get(f"storages.{storage}.disk") or own.get(f"storages.{storage}.device", "").rpartition("/")[2]
        return found or None

    def lab(self, host: str | None) -> Mapping[str, Any]:
        """Return the lab properties of a host, which are empty on existing hosts."""
        return (self.header.get("hosts") or {}).get(host or "", {}).get("lab") or {}

    def sysctl(self, host: str | None, name: str) -> str | None:
        """Return a kernel setting of a host."""
        declared = self.lab(host).get("sysctls") or {}
        return declared.get(name) or self.environment.get(host or "", {}).get(f"sysctl.{name}")


_TRIALS = """
    WITH all_of AS (
        SELECT trial, point, start_s, end_s, outcome, files, duration_s, user_s + system_s AS cpu_s, host, call, mover, source,
               destination, source_via, destination_via, 1 AS number,
               coalesce(received_bytes, nullif(tool_bytes, 0), requested_bytes) AS bytes {factors} FROM transfers
        UNION ALL
        SELECT trial, point, start_s, end_s, 'ok', files * transfers, duration_s, NULL, host, call, mover, source,
               destination, source_via, destination_via, transfers, coalesce(received_bytes, requested_bytes) {factors} FROM routes)
    SELECT coalesce(trial, '') AS trial, any_value(point) AS point, min(start_s) AS start_s, max(end_s) AS end_s,
           sum(bytes) FILTER (outcome = 'ok')::DOUBLE AS bytes, sum(files) FILTER (outcome = 'ok')::BIGINT AS files,
           coalesce(sum(number) FILTER (outcome = 'ok'), 0)::BIGINT AS transfers,
           count(*) FILTER (outcome <> 'ok') AS failed, sum(duration_s) FILTER (outcome = 'ok') AS transfer_s,
           sum(cpu_s) FILTER (outcome = 'ok') AS cpu_s, mode(host) AS client, mode(call) AS call,
           list(DISTINCT mover) AS movers, mode(split_part(source, ':', 1)) AS source,
           mode(split_part(destination, ':', 1)) AS destination,
           mode(split_part(coalesce(source_via, ''), '/', 1)) AS source_via,
           mode(split_part(coalesce(destination_via, ''), '/', 1)) AS destination_via {chosen}
    FROM all_of WHERE start_s IS NOT NULL AND end_s > start_s AND ({condition})
    GROUP BY coalesce(trial, '') HAVING count(*) FILTER (outcome = 'ok') > 0 ORDER BY min(start_s)"""


def observe(run: Run, *, limit: int) -> tuple[Observation, ...]:
    """Return the observations of a run, one per trial. Without trials, all transfers are one observation.

    Parameters
    ----------
    run
        Run of any backend.
    limit
        Maximum number of trials. The longest trials of each design point are selected in turn.
    """
    factors = "".join(f', "factor_{name}"' for name in run.factors)
    chosen = "".join(f', any_value("factor_{name}") AS "factor_{name}"' for name in run.factors)
    # Transfers that create files for the trials are not part of the experiment.
    inside = bool(run.query("SELECT count(*) AS n FROM trials")["n"][0])
    condition = "trial IS NOT NULL" if inside else "true"
    rows = run.query(_TRIALS.format(factors=factors, chosen=chosen, condition=condition))
    indices = _choose(rows, limit)
    connections = load_connections(run)
    counters = load_counters(run)
    environment = run.environment()
    return tuple(
        _observation(run, {name: values[index] for name, values in rows.items()}, connections, counters, environment)
        for index in indices
    )


def _choose(rows: Mapping[str, Any], limit: int) -> list[int]:
    indices = range(len(rows["trial"]))
    if len(rows["trial"]) <= limit:
        return list(indices)
    by_point: dict[object, list[int]] = {}
    for index in sorted(indices, key=lambda i: -float(rows["transfer_s"][i])):
        by_point.setdefault(rows["point"][index], []).append(index)
    turns = [
        own[turn] for turn in range(max(map(len, by_point.values()))) for own in by_point.values() if turn < len(own)
    ]
    return sorted(turns[: max(limit, len(by_point))])


def _observation(
    run: Run,
    row: Mapping[str, Any],
    connections: Sequence[SocketSeries],
    counters: Mapping[tuple[str, str], CounterSeries],
    environment: Mapping[str, Mapping[str, str]],
) -> Observation:
    header = run.header
    client = str(row["client"])
    start_s, end_s = float(row["start_s"]), float(row["end_s"])
    services = header.get("services") or {}
    used = {name: str(services[name].get("host") or "") for side in ("source_via", "destination_via")
            if (name := str(row[side])) in services}  # fmt: skip
    storages = header.get("storages") or {}

    def endpoint(side: str) -> tuple[str | None, str | None]:
        storage, service = str(row[side] or ""), str(row[f"{side}_via"])
        name = storage if storage in storages else None
        if service in services:
            return services[service].get("host"), name
        # The client reads and writes a storage that several hosts share.
        return client, name

    (source, source_storage), (destination, destination_storage) = endpoint("source"), endpoint("destination")
    flows = _own_flows(flows_in(connections, start_s, end_s), source, destination)
    data_s = covered_s(flows) or end_s - start_s
    call = (header.get("calls") or {}).get(str(row["call"])) or {}
    cpu_s = float(row["cpu_s"]) if row["cpu_s"] is not None else float("nan")
    return Observation(
        trial=str(row["trial"]),
        point=None if row["point"] is None or np.isnan(float(row["point"])) else int(row["point"]),
        factors={name.removeprefix("factor_"): _scalar(value) for name, value in row.items() if name.startswith("factor_")},
        start_s=start_s,
        end_s=end_s,
        bytes=float(np.nan_to_num(float(row["bytes"]))),
        files=max(1, int(np.nan_to_num(float(row["files"])))),
        transfers=int(row["transfers"]),
        transfer_s=float(row["transfer_s"]),
        failed=int(row["failed"]),
        movers=tuple(sorted(str(mover) for mover in row["movers"] if mover is not None)),
        options={key: value for key, value in (call.get("options") or {}).items() if value is not None},
        client=client,
        source=source,
        destination=destination,
        source_storage=source_storage,
        destination_storage=destination_storage,
        services=used,
        cpu_s=None if np.isnan(cpu_s) else cpu_s,
        flows=flows,
        links=_links(header, counters, source, destination, start_s, end_s, data_s),
        counters=counters,
        header=header,
        environment=environment,
    )  # fmt: skip


def _own_flows(flows: tuple[DataFlow, ...], source: str | None, destination: str | None) -> tuple[DataFlow, ...]:
    """Return the flows between the hosts of the trial.

    If there are no such flows, because of a proxy, return all flows.
    """
    own = tuple(flow for flow in flows if flow.sender in (source, None) and flow.receiver in (destination, None))
    return own or flows


def _scalar(value: Any) -> object:  # noqa: ANN401 - a cell of any column
    return value.item() if hasattr(value, "item") else value


def covered_s(flows: Sequence[DataFlow]) -> float:
    """Return the time with at least one open flow."""
    total, until = 0.0, -np.inf
    for flow in sorted(flows, key=lambda one: one.start_s):
        total += max(0.0, flow.end_s - max(flow.start_s, until))
        until = max(until, flow.end_s)
    return float(total)


def _links(
    header: Mapping[str, Any],
    counters: Mapping[tuple[str, str], CounterSeries],
    source: str | None,
    destination: str | None,
    start_s: float,
    end_s: float,
    data_s: float,
) -> tuple[LinkTraffic, ...]:
    network = header.get("network")
    if network is None or source is None or destination is None or source == destination:
        return ()
    found = []
    for name in forward_links(network, source, destination):

        def grown(counter: str, name: str = name) -> float | None:
            series = counters.get(("network", f"link.{name}.{counter}"))
            return None if series is None else series.growth(start_s, end_s)

        busy_s, carried = grown("busy_s"), grown("bytes")
        if busy_s is None or carried is None:
            continue
        declared = (network["links"].get(name) or {}).get("rate_bit_per_s")
        rate = float(declared) / 8 if declared else carried / busy_s if busy_s > 0 else None
        queue = counters.get(("network", f"link.{name}.queue_high_bytes"))
        longest = queue.maximum(start_s, end_s) if queue is not None else None
        found.append(LinkTraffic(
            name, min(1.0, busy_s / data_s), carried, grown("packets") or 0.0, grown("queue_drops") or 0.0,
            grown("loss_drops") or 0.0, rate, (longest or 0.0) / rate if rate else 0.0,
        ))  # fmt: skip
    return tuple(found)
