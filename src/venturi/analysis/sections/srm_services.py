"""Points of a run with SRM servers, by size of files and by the service that the client used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.control import ControlSession, control_sessions
from venturi.analysis.result import About
from venturi.analysis.sections.jobs_curves import published_table
from venturi.analysis.srm_requests import Handshake, srm_services
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bytes

__all__ = ["PUBLISHED", "ServiceRow", "published_rates", "service_rows"]

PUBLISHED = "002-services"
_LOG_S = 1.0
"""Resolution of the logs of GridFTP servers."""


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """Result of one design point.

    Attributes
    ----------
    category
        Its dataset, or the size of its files.
    service
        ``"srm"`` if one endpoint belongs to an SRM server. Otherwise, the kind of the service at the source or, without
        one there, at the destination.
    calls
        Maximum number of concurrent transfers.
    files, bytes
        Moved files and bytes, over all repetitions.
    rate_bit_per_s
        Mean of the repetitions; None if nothing was moved.
    file_s
        Mean time of a file: time of the calls over their files.
    moving_s
        Mean time of a file in the log of the receiving server.
    connections_per_file
        Connections to SRM servers.
    logins_per_file, data_channels_per_file
        Counts of the GridFTP servers; None if no server logs them. A data connection between two servers counts once.
    logged_bytes
        Bytes that the servers logged as received, or as sent if the receiver has no log; None without a log.
    """

    point: int
    category: str
    service: str
    mover: str
    streams: int | None
    calls: int
    files: int
    bytes: int
    rate_bit_per_s: float | None
    file_s: float | None
    moving_s: float | None
    connections_per_file: float | None
    logins_per_file: float | None
    data_channels_per_file: float | None
    logged_bytes: int | None


def service_rows(run: Run, handshakes: Sequence[Handshake]) -> list[ServiceRow]:
    """Return the points of a run, in their order."""
    services = run.header.get("services") or {}
    kinds = {name: str(service["kind"]) for name, service in services.items()}
    sessions = _sessions(run)
    moved = _moved(run)
    scale = float(run.header.get("scale") or 1.0)
    rows = []
    for about in _points(run):
        point = int(about["point"])
        files = int(about["files"])
        ends = [
            str(about[key]).partition("/")[0] for key in ("source_via", "destination_via") if about[key] is not None
        ]
        service = next(
            (kinds[end] for end in ends if kinds.get(end) == "srm"), kinds.get(ends[0], "") if ends else ""
        )
        own = sessions.get(point, [])
        known = files > 0 and bool(own)
        connections = sum(one.point == point for one in handshakes)
        rows.append(
            ServiceRow(
                point=point,
                category=_category(about["factors"], scale),
                service=service,
                mover=str(about["mover"]),
                streams=about["factors"].get("streams"),
                calls=_max_concurrent(run, point),
                files=files,
                bytes=int(about["bytes"] or 0),
                rate_bit_per_s=_rate(run, point),
                file_s=about["file_s"],
                moving_s=moved.get(point, (None, None))[0],
                connections_per_file=connections / files if files and service == "srm" else None,
                logins_per_file=sum(one.logins for one in own) / files if known else None,
                data_channels_per_file=sum(one.data_channels for one in own) / max(1, len(ends)) / files
                if known
                else None,
                logged_bytes=moved.get(point, (None, None))[1],
            )
        )
    return rows


def published_rates(about: About) -> dict[tuple[str, str], float]:
    """Return the published rate in bit/s by category and service; empty without a study that has such rates."""
    table = published_table(about, PUBLISHED)
    rows = table.rows if table is not None else ()
    return {
        (str(row["category"]), str(row["service"])): float(row["throughput_bit_per_s"] or 0)
        for row in rows
        if row["throughput_bit_per_s"] is not None
    }


def _points(run: Run) -> list[dict[str, Any]]:
    columns = run.query("SELECT * FROM transfers LIMIT 0")
    factors = [name for name in columns if name.startswith("factor_")]
    listed = "".join(f', any_value("{name}") AS "{name}"' for name in factors)
    rows = run.query(
        f"""SELECT point, any_value(mover) AS mover, any_value(source_via) AS source_via, any_value(destination_via) AS destination_via,
                   coalesce(sum(files) FILTER (outcome = 'ok'), 0) AS files, sum(coalesce(received_bytes, requested_bytes)) FILTER (outcome = 'ok') AS bytes,
                   sum(duration_s) FILTER (outcome = 'ok') / sum(files) FILTER (outcome = 'ok') AS file_s{listed}
            FROM transfers WHERE point IS NOT NULL GROUP BY point ORDER BY point"""
    )
    found = []
    for values in zip(*rows.values(), strict=True):
        row = {name: _to_scalar(value) for name, value in zip(rows, values, strict=True)}
        known = {name.removeprefix("factor_"): row.pop(name) for name in factors}
        found.append(row | {"factors": {name: value for name, value in known.items() if value is not None}})
    return found


def _rate(run: Run, point: int) -> float | None:
    """Return the mean over the repetitions of bytes over the time from the first to the last call, in bit/s."""
    rows = run.query(
        f"""SELECT sum(coalesce(received_bytes, requested_bytes)) AS bytes, max(end_s) - min(start_s) AS time_s
            FROM transfers WHERE point = {point} AND outcome = 'ok' GROUP BY repetition HAVING max(end_s) > min(start_s)"""
    )
    rates = rows["bytes"] / rows["time_s"]
    return BITS_PER_BYTE * float(np.mean(rates.astype(float))) if len(rates) else None


def _max_concurrent(run: Run, point: int) -> int:
    rows = run.query(f"SELECT count(DISTINCT (actor, slot)) AS n FROM transfers WHERE point = {point}")
    return int(rows["n"][0])


def _moved(run: Run) -> dict[int, tuple[float | None, int | None]]:
    """Return point → mean time that a server needed to receive a file, and the total bytes that servers received.

    For downloads, where no server receives files, the sending servers count.
    """
    rows = run.query(
        """WITH spans AS (SELECT point, min(start_s) AS start_s, max(end_s) AS end_s FROM trials WHERE point IS NOT NULL GROUP BY point, repetition),
           seen AS (SELECT (detail->>'start_s')::DOUBLE AS start_s, time_s AS end_s, (detail->>'file_bytes')::BIGINT AS bytes,
                           detail->>'command' IN ('STOR', 'ESTO') AS stores
                    FROM events WHERE kind = 'server-transfer' AND detail->>'kind' = 'gridftp' AND left(detail->>'code', 1) = '2')
           SELECT point, stores, avg(seen.end_s - seen.start_s) AS time_s, sum(bytes)::BIGINT AS bytes
           FROM spans JOIN seen ON seen.start_s >= spans.start_s AND seen.end_s <= spans.end_s GROUP BY ALL ORDER BY point, stores DESC"""
    )
    found: dict[int, tuple[float | None, int | None]] = {}
    for point, _, time_s, count in zip(*rows.values(), strict=True):
        found.setdefault(int(point), (float(time_s), int(count)))
    return found


def _sessions(run: Run) -> dict[int, list[ControlSession]]:
    """Return the control connections of GridFTP servers by point.

    A connection from the second before a trial belongs to the trial, because logs have whole seconds.
    """
    rows = run.query(
        "SELECT start_s, end_s, point FROM trials WHERE point IS NOT NULL AND start_s IS NOT NULL AND end_s IS NOT NULL ORDER BY start_s"
    )
    spans = list(zip(*rows.values(), strict=True))
    others = srm_services(run)
    found: dict[int, list[ControlSession]] = {}
    for session in control_sessions(run):
        slack_s = _LOG_S if session.seen == "log" else 0.0
        started = [span for span in spans if span[0] - slack_s <= session.start_s <= span[1]]
        if started and session.service not in others:
            # If two trials match, the session belongs to the trial that contains its end.
            own = next((span for span in started if session.end_s <= span[1]), started[-1])
            found.setdefault(int(own[2]), []).append(session)
    return found


def _category(factors: dict[str, Any], scale: float) -> str:
    if "set" in factors:
        return str(factors["set"])
    size = factors.get("size_bytes")
    return "all" if size is None else format_bytes(float(size) / scale)


def _to_scalar(value: Any) -> Any:  # noqa: ANN401 - a cell
    """Return a cell as a Python value, None if missing."""
    scalar = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(scalar, float) and np.isnan(scalar) else scalar
