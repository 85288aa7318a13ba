"""SRM: what it costs to have each file negotiated before it moves, beside GridFTP alone where a run has both (report 002, section on SRM)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from venturi.analysis.chapter import Chapter, Column, Figure, Message, Panel, Series, Table
from venturi.analysis.chapter import Sequence as Diagram
from venturi.analysis.chapters.srm_services import ServiceRow, published_rates, service_rows
from venturi.analysis.chapters.srm_volumes import volume_table
from venturi.analysis.negotiation import SrmRequest, Turl, is_about_srm, negotiations
from venturi.analysis.result import About
from venturi.analysis.words import bit_rate, plural
from venturi.run import Run
from venturi.units import format_duration

__all__ = ["srm_chapter"]

_CURVE_POINTS = 200
"""Of a distribution that is drawn; more would not be seen."""


def srm_chapter(run: Run, about: About) -> Chapter | None:
    """Return the chapter about SRM; None if the run has no SRM server."""
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
    return Chapter(
        "srm",
        "SRM",
        _sentence(rows, turls),
        tuple(table for table in tables if table is not None and table.rows),
        tuple(figure for figure in figures if figure is not None),
        tuple(diagram for diagram in diagrams if diagram is not None),
    )


def _sentence(rows: Sequence[ServiceRow], turls: Sequence[Turl]) -> str:
    waits = [one.wait_s for one in turls if one.point is not None]
    if not waits:
        return "The SRM servers gave out no transfer URL."
    middle, high = _quantiles(waits, (0.5, 0.95))
    told = f"A transfer URL came {format_duration(middle)} after its request in the median, {format_duration(high)} at 95 % ({plural(len(waits), 'URL')})"
    for row in rows:
        other = next((one for one in rows if one.category == row.category and one.service == "gridftp"), None)
        if row.service == "srm" and other is not None and row.rate_bit_per_s and other.rate_bit_per_s:
            ratio = row.rate_bit_per_s / other.rate_bit_per_s
            told += f"; {row.category} files: {bit_rate(row.rate_bit_per_s)}, {100 * ratio:.3g} % of GridFTP alone"
    return told + "."


def _services(rows: Sequence[ServiceRow], about: About) -> Table:
    columns = (
        Column("category", "Files"),
        Column("service", "Service"),
        Column("mover", "Client"),
        Column("streams", "Streams"),
        Column("calls", "Calls at a time"),
        Column("files", "Files moved"),
        Column("throughput_bit_per_s", "Throughput"),
        Column("throughput_published_bit_per_s", "Throughput", published=True),
        Column("file_s", "Time a file"),
        Column("moving_s", "Of it, data moves"),
        Column("connections_per_file", "SRM connections a file"),
        Column("logins_per_file", "GridFTP logins a file"),
        Column("data_channels_per_file", "Data channels a file"),
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
        "Throughput: bytes of all calls that ended well over the time from the first to the last of them, mean of the repetitions. Time a file: of a call, by its "
        "files. Data moves: by the clock of the server that received it. A data channel counts each time that one is agreed upon, once for both ends. "
        "Published rates are at full scale."
    )
    return Table("srm-services", "SRM and GridFTP by size of files", columns, cells, note)


def _turl_table(turls: Sequence[Turl], categories: dict[int, str]) -> Table:
    columns = (
        *(Column("category", "Files"), Column("request", "Request"), Column("urls", "Transfer URLs")),
        *(
            Column("least_s", "Least"),
            Column("median_s", "Median"),
            Column("p95_s", "95 %"),
            Column("most_s", "Most"),
        ),
        Column("polls_per_file", "Questions for the status a file"),
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
    note = "From the arrival of the request at the server to the answer that had the URL; round trips and the handshake come on top."
    return Table("srm-turls", "From request to transfer URL", columns, tuple(cells), note)


def _request_table(requests: Sequence[SrmRequest], rows: Sequence[ServiceRow], categories: dict[int, str]) -> Table:
    columns = (
        *(Column("category", "Files"), Column("operation", "Operation"), Column("requests", "Requests")),
        *(Column("requests_per_file", "A file"), Column("median_s", "Median"), Column("p95_s", "95 %")),
        Column("refused", "Refused or failed"),
    )
    files = {row.category: row.files for row in rows if row.service == "srm"}
    within = [one for one in requests if one.point is not None]
    cells = []
    for category, operation in _groups((categories.get(one.point or 0), one.operation) for one in within):
        own = [one for one in within if one.operation == operation and categories.get(one.point or 0) == category]
        middle, high = _quantiles([one.end_s - one.begin_s for one in own], (0.5, 0.95))
        moved = files.get(category, 0)
        per_file = len(own) / moved if moved else None
        cells.append((category, operation, len(own), per_file, middle, high, sum(not one.good for one in own)))
    return Table("srm-requests", "What the SRM servers were asked", columns, tuple(cells))


def _groups(keys: Iterable[tuple[str | None, str]]) -> list[tuple[str, str]]:
    """Return the pairs without a missing part, each once, in the order in which they come."""
    return list(dict.fromkeys((first, second) for first, second in keys if first is not None))


def _quantiles(values: Sequence[float], shares: tuple[float, float]) -> tuple[float, float]:
    low, high = np.quantile(values, shares)
    return float(low), float(high)


def _waits(turls: Sequence[Turl], categories: dict[int, str]) -> Figure | None:
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
        "How long clients wait for a transfer URL",
        (panel,),
        "Share of the URLs that had come after so long, by the server's clock.",
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
        "Rates of the links are those of each side's testbed.",
        "002, figure 5",
    )


def _diagram(requests: Sequence[SrmRequest]) -> Diagram | None:
    """Return the conversation of the first connection that got a transfer URL."""
    got = next((one for one in requests if one.point is not None and any(turl for _, _, turl in one.files)), None)
    if got is None:
        return None
    own = [
        one for one in requests if (one.service, one.session, one.client) == (got.service, got.session, got.client)
    ]
    messages = []
    for one in own:
        turl = next((turl for _, _, turl in one.files if turl), "")
        messages.append(Message(one.begin_s, "client", one.service, one.operation))
        # The URL without its path: which door it is.
        door = f" · {'/'.join(turl.split('/')[:3])}" if turl else ""
        messages.append(Message(one.end_s, one.service, "client", f"{one.status}{door}"))
    caption = f"The connection of {got.client} to {got.service}, by the server's clock; between the URL and its release the data moves elsewhere."
    return Diagram("srm-conversation", "A file negotiated by SRM", ("client", got.service), tuple(messages), caption)
