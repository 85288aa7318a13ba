"""SRM: cost of negotiating each file before its transfer (report 002, section on SRM).

If a run also has GridFTP alone, the two are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from venturi.analysis.format import format_sentences, plural
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Message, Panel, ReportSection, Series, Table
from venturi.analysis.section import Sequence as Diagram
from venturi.analysis.sections.srm_services import ServiceRow, published_rates, service_rows
from venturi.analysis.sections.srm_volumes import volume_table
from venturi.analysis.srm_requests import SrmRequest, TransferUrl, is_about_srm, negotiations
from venturi.run import Run
from venturi.units import format_bit_rate, format_duration

__all__ = ["srm_section"]

_CURVE_POINTS = 200
"""Maximum number of points of a drawn distribution; more would not be visible."""


def srm_section(run: Run, about: About) -> ReportSection | None:
    """Return the section about SRM, or None if the run has no SRM server."""
    if not is_about_srm(run):
        return None
    requests, handshakes, turls = negotiations(run)
    rows = service_rows(run, handshakes)
    categories = {row.point: row.category for row in rows}
    tables = (
        _services(rows, about),
        _turl_table(turls, categories),
        _request_table(requests, rows, categories),
        volume_table(about, rows),
    )
    figures = (_waits(turls, categories), _bars(rows, about))
    diagrams = [_diagram(requests)] if requests else []
    return ReportSection(
        "srm",
        "SRM",
        _sentence(rows, turls),
        tuple(table for table in tables if table is not None and table.rows),
        tuple(figure for figure in figures if figure is not None),
        tuple(diagram for diagram in diagrams if diagram is not None),
    )


def _sentence(rows: Sequence[ServiceRow], turls: Sequence[TransferUrl]) -> str:
    waits = [one.wait_s for one in turls if one.point is not None]
    if not waits:
        return "The SRM servers returned no transfer URL."
    middle, high = _quantiles(waits, (0.5, 0.95))
    parts = [
        f"the waiting time for a transfer URL was {format_duration(middle)} in the median, and {format_duration(high)} at the 95th percentile ({plural(len(waits), 'URL')})"
    ]
    for row in rows:
        other = next((one for one in rows if one.category == row.category and one.service == "gridftp"), None)
        if row.service == "srm" and other is not None and row.rate_bit_per_s and other.rate_bit_per_s:
            ratio = row.rate_bit_per_s / other.rate_bit_per_s
            parts.append(
                f"{row.category} files: {format_bit_rate(row.rate_bit_per_s)}, {100 * ratio:.3g} % of GridFTP alone"
            )
    return format_sentences(parts)


def _services(rows: Sequence[ServiceRow], about: About) -> Table:
    columns = (
        Column("category", "Files"),
        Column("service", "Service"),
        Column("mover", "Client"),
        Column("streams", "Streams"),
        Column("calls", "Concurrent calls"),
        Column("files", "Files moved"),
        Column("throughput_bit_per_s", "Throughput"),
        Column("throughput_published_bit_per_s", "Throughput", published=True),
        Column("file_s", "Time per file"),
        Column("moving_s", "Data transfer per file"),
        Column("connections_per_file", "SRM connections per file"),
        Column("logins_per_file", "GridFTP logins per file"),
        Column("data_channels_per_file", "Data connections per file"),
    )
    printed = published_rates(about)
    cells = tuple(
        (
            *(row.category, row.service, row.mover, row.streams, row.calls, row.files, row.rate_bit_per_s),
            *(printed.get((row.category, row.service)), row.file_s, row.moving_s),
            *(row.connections_per_file, row.logins_per_file, row.data_channels_per_file),
        )
        for row in rows
    )
    note = (
        "Throughput: bytes of all successful calls divided by the time from the first start to the last end, mean of the repetitions. Time per file: time of a "
        "call divided by its files. Data transfer: by the clock of the receiving server. A data connection counts each time that it is negotiated, once for "
        "both endpoints. Published rates are at full scale."
    )
    return Table("srm-services", "SRM and GridFTP by size of files", columns, cells, note)


def _turl_table(turls: Sequence[TransferUrl], categories: dict[int, str]) -> Table:
    columns = (
        *(Column("category", "Files"), Column("request", "Request"), Column("urls", "Transfer URLs")),
        *(
            Column("least_s", "Minimum"),
            Column("median_s", "Median"),
            Column("p95_s", "95 %"),
            Column("most_s", "Maximum"),
        ),
        Column("polls_per_file", "Status requests per file"),
    )
    cells = []
    for category, kind in _groups((categories.get(one.point), one.kind) for one in turls if one.point is not None):
        own = [
            one
            for one in turls
            if one.kind == kind and categories.get(one.point or 0) == category and one.point is not None
        ]
        waits = sorted(one.wait_s for one in own)
        middle, high = _quantiles(waits, (0.5, 0.95))
        polls = sum(one.polls for one in own) / len(own)
        cells.append((category, f"srmPrepareTo{kind.title()}", len(own), waits[0], middle, high, waits[-1], polls))
    note = "From the arrival of the request at the server to the response with the URL. Round trips and the handshake are not included."
    return Table("srm-turls", "From request to transfer URL", columns, tuple(cells), note)


def _request_table(requests: Sequence[SrmRequest], rows: Sequence[ServiceRow], categories: dict[int, str]) -> Table:
    columns = (
        *(Column("category", "Files"), Column("operation", "Operation"), Column("requests", "Requests")),
        *(Column("requests_per_file", "Requests per file"), Column("median_s", "Median"), Column("p95_s", "95 %")),
        Column("refused", "Rejected or failed"),
    )
    files = {row.category: row.files for row in rows if row.service == "srm"}
    within = [one for one in requests if one.point is not None]
    cells = []
    for category, operation in _groups((categories.get(one.point or 0), one.operation) for one in within):
        own = [one for one in within if one.operation == operation and categories.get(one.point or 0) == category]
        middle, high = _quantiles([one.end_s - one.request_s for one in own], (0.5, 0.95))
        moved = files.get(category, 0)
        per_file = len(own) / moved if moved else None
        cells.append((category, operation, len(own), per_file, middle, high, sum(not one.good for one in own)))
    return Table("srm-requests", "Requests to the SRM servers", columns, tuple(cells))


def _groups(keys: Iterable[tuple[str | None, str]]) -> list[tuple[str, str]]:
    """Return the distinct pairs without missing parts, in their order."""
    return list(dict.fromkeys((first, second) for first, second in keys if first is not None))


def _quantiles(values: Sequence[float], fractions: tuple[float, float]) -> tuple[float, float]:
    low, high = np.quantile(values, fractions)
    return float(low), float(high)


def _waits(turls: Sequence[TransferUrl], categories: dict[int, str]) -> Figure | None:
    series = []
    for category in dict.fromkeys(categories.values()):
        waits = sorted(
            one.wait_s for one in turls if categories.get(-1 if one.point is None else one.point) == category
        )
        if waits:
            step = max(1, len(waits) // _CURVE_POINTS)
            kept = sorted({*range(0, len(waits), step), len(waits) - 1})
            x = tuple(waits[index] for index in kept)
            series.append(Series(category, x, tuple((index + 1) / len(waits) for index in kept), style="steps"))
    if not series:
        return None
    panel = Panel("Transfer URLs", "wait_s", "share_ratio", tuple(series), x_log=True)
    return Figure(
        "srm-turls",
        "Waiting time for a transfer URL",
        (panel,),
        "Fraction of the URLs with at most this waiting time, by the server's clock.",
    )


def _bars(rows: Sequence[ServiceRow], about: About) -> Figure | None:
    services = list(dict.fromkeys(row.service for row in rows))
    categories = tuple(dict.fromkeys(row.category for row in rows))
    if not categories:
        return None
    known = {(row.category, row.service): row.rate_bit_per_s for row in rows}
    ours = [
        Series(name, categories, tuple(known.get((category, name)) for category in categories), style="bars")
        for name in services
    ]
    panels = [Panel("Ours", "category", "throughput_bit_per_s", tuple(ours), y_log=True)]
    printed = published_rates(about)
    names = list(dict.fromkeys(service for _, service in printed))
    if names:
        theirs = [
            Series(
                name,
                categories,
                tuple(printed.get((category, name)) for category in categories),
                style="bars",
                published=True,
            )
            for name in names
        ]
        panels.append(Panel("Published", "category", "throughput_bit_per_s", tuple(theirs), y_log=True))
    return Figure(
        "srm-services",
        "Services by size of files",
        tuple(panels),
        "The testbeds of this run and of the report have different link rates.",
        "002, figure 5",
    )


def _diagram(requests: Sequence[SrmRequest]) -> Diagram | None:
    """Return the messages of the first connection that received a transfer URL."""
    got = next((one for one in requests if one.point is not None and any(turl for _, _, turl in one.files)), None)
    if got is None:
        return None
    own = [
        one for one in requests if (one.service, one.session, one.client) == (got.service, got.session, got.client)
    ]
    messages = []
    for one in own:
        turl = next((turl for _, _, turl in one.files if turl), "")
        messages.append(Message(one.request_s, "client", one.service, one.operation))
        # The URL without its path identifies the door.
        service_port = f" · {'/'.join(turl.split('/')[:3])}" if turl else ""
        messages.append(Message(one.end_s, one.service, "client", f"{one.status}{service_port}"))
    caption = f"The connection of {got.client} to {got.service}, by the server's clock. Between the URL and its release, GridFTP transfers the data."
    return Diagram("srm-conversation", "A file negotiated by SRM", ("client", got.service), tuple(messages), caption)
