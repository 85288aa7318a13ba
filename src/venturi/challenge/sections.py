"""Report of a feasibility check: the sentence, tables and values for JSON."""

from __future__ import annotations

import math
from typing import Any

from venturi.advice.ceilings import TCP_USE
from venturi.analysis.format import plural
from venturi.analysis.section import Column, ReportSection, Scalar, Table
from venturi.challenge.feasibility import DRAWS, LEVEL
from venturi.challenge.result import Feasibility, ResourceUse, RowResult, SiteUse

__all__ = ["challenge_section", "challenge_sentence", "feasibility_json", "full_tables"]

MAX_LISTED = 200
"""Maximum rows of a table on the page. The CSV files have all."""

_ROW_COLUMNS = (
    Column("from", "From"),
    Column("to", "To"),
    Column("required_bit_per_s", "Required"),
    Column("expected_bit_per_s", "Expected"),
    Column("limit", "Limited by"),
    Column("low_bit_per_s", "Low"),
    Column("high_bit_per_s", "High"),
    Column("reached_ratio", "Reached"),
    Column("worst_ratio", "Reached at the worst time"),
    Column("start_s", "Start"),
    Column("end_s", "End"),
)

_USE_COLUMNS = (
    Column("resource", "Link or storage"),
    Column("required_bit_per_s", "Required"),
    Column("capacity_bit_per_s", "Capacity"),
    Column("use_ratio", "Use"),
    Column("needed_bit_per_s", "Needed"),
    Column("rows", "Rows"),
    Column("site", "Site"),
    Column("start_s", "From"),
    Column("end_s", "Until"),
    Column("overload_s", "Overloaded for"),
)

_NEEDED = (
    "Rows: number of rows that it limits. Needed: capacity that carries all required rates with margin. If each of them"
    " has this capacity, the challenge is feasible."
)

_SITE_COLUMNS = (
    Column("site", "Site"),
    Column("sent_bit_per_s", "Sends"),
    Column("received_bit_per_s", "Receives"),
    Column("missing", "Miss"),
    Column("rows", "Rows"),
    Column("limit", "Most used"),
    Column("use_ratio", "Use"),
)


def challenge_sentence(result: Feasibility) -> str:
    """Return the result in at most 25 words."""
    worst = result.resources[0] if result.resources else None
    count = plural(len(result.rows), "row")
    reach = f"all {count} reach their rate" if len(result.rows) > 1 else "the row reaches its rate"
    if result.verdict == "not feasible":
        assert worst is not None
        missing = len(result.missing)
        head = f"Not feasible: {missing} of {count} {'misses its' if missing == 1 else 'miss their'} rate"
        state = "is down" if worst.ratio is None else f"needs {_percent(worst.ratio)} of its capacity"
        return f"{head}; {worst.resource.title} {state}."
    if worst is None or worst.ratio is None:
        return f"Feasible: {reach}; no link or storage has a known capacity."
    use = f"{worst.resource.title} needs {_percent(worst.ratio)} of its capacity"
    if result.verdict == "without margin":
        tight = result.limiting[0]
        return f"Feasible without margin: {reach}, but {tight.resource.title} needs {_percent(tight.ratio or 0.0)} of its capacity."
    return f"Feasible: {reach}; {use}."


def _percent(ratio: float) -> str:
    """Return a ratio with three digits, or more near 100 %, so that an excess is visible."""
    text = f"{100 * ratio:.3g}" if ratio < 9.995 else f"{100 * ratio:.0f}"
    if text == "100" and abs(ratio - 1) > 1e-6:
        text = f"{100 * ratio:.6g}"
    return f"{text} %"


def challenge_section(result: Feasibility) -> ReportSection:
    """Return the section for the terminal and the page: the limits, the rows that miss and the sites."""
    missing = result.missing
    tables = [
        Table(
            "challenge-resources",
            "Limiting links and storages",
            _USE_COLUMNS,
            tuple(_use_row(use) for use in result.limiting),
            note=_NEEDED if result.limiting else "",
        ),
        Table(
            "challenge-rows",
            "Rows that miss their rate",
            _ROW_COLUMNS,
            tuple(_row(row) for row in missing[:MAX_LISTED]),
            note=_more(len(missing), "challenge-rows.csv"),
        ),
        Table(
            "challenge-sites",
            "Sites",
            _SITE_COLUMNS,
            tuple(_site_row(site) for site in _ordered(result)[:MAX_LISTED]),
            note=f"Miss: number of rows below their rate. Most used: on the routes of the site. {_more(len(result.sites), 'challenge-sites.csv')}".strip(),
        ),
    ]
    return ReportSection(
        "challenge", "Data challenge", challenge_sentence(result), tuple(tables), note=_assumptions(result)
    )


def full_tables(result: Feasibility) -> ReportSection:
    """Return a section with complete tables for CSV files: all rows, resources and sites."""
    tables = (
        Table("challenge-rows", "Rows", _ROW_COLUMNS, tuple(_row(row) for row in result.rows)),
        Table("challenge-resources", "Links and storages", _USE_COLUMNS, tuple(map(_use_row, result.resources))),
        Table("challenge-sites", "Sites", _SITE_COLUMNS, tuple(_site_row(site) for site in _ordered(result))),
    )
    return ReportSection("challenge", "Data challenge", challenge_sentence(result), tables)


def _more(count: int, file: str) -> str:
    return f"{count - MAX_LISTED} more in {file}." if count > MAX_LISTED else ""


def _assumptions(result: Feasibility) -> str:
    rule = "in proportion to their required rates" if result.options.weights == "requested" else "equally"
    sure = f", and ±{100 * result.options.uncertainty:g} % of each capacity" if result.options.uncertainty else ""
    return (
        "Rates of rows and sites are file data. The required rate of a link includes headers; its use is required /"
        f" capacity. Rows share full links and storages {rule}. Low and high: {100 * LEVEL:g} % of {DRAWS} draws of the"
        f" capacities, with {100 * TCP_USE:g} to 100 % of each link{sure}. Storages without read_rate and write_rate do"
        " not limit."
    )


def _ordered(result: Feasibility) -> list[SiteUse]:
    """Return the sites, those with the most rows that miss first."""
    return sorted(result.sites, key=lambda one: (-one.missing, -_use(one.use), one.site))


def _use(use: ResourceUse | None) -> float:
    return 0.0 if use is None else math.inf if use.ratio is None else use.ratio


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _row(result: RowResult) -> tuple[Scalar, ...]:
    row = result.row
    return (
        row.source, row.destination, row.rate_bit_per_s, result.expected_bit_per_s,
        result.limit.title if result.limit else None, result.low_bit_per_s, result.high_bit_per_s, result.reached_ratio,
        result.worst_ratio, row.start_s, _finite(row.end_s),
    )  # fmt: skip


def _use_row(use: ResourceUse) -> tuple[Scalar, ...]:
    return (
        use.resource.title, use.required_bit_per_s, use.capacity_bit_per_s, use.ratio, use.needed_bit_per_s, use.rows,
        use.resource.site, use.start_s, _finite(use.end_s), _finite(use.overload_s),
    )  # fmt: skip


def _site_row(site: SiteUse) -> tuple[Scalar, ...]:
    limit = (site.use.resource.title, site.use.ratio) if site.use else (None, None)
    return (site.site, site.sent_bit_per_s, site.received_bit_per_s, site.missing, site.rows, *limit)


def feasibility_json(result: Feasibility) -> dict[str, Any]:
    """Return a result as plain values for JSON. Infinite times are ``null``."""
    return {
        "verdict": result.verdict,
        "feasible": result.verdict == "feasible",
        "sentence": challenge_sentence(result),
        "table": result.table,
        "testbed": result.testbed,
        "intervals": result.intervals,
        "missing_rows": len(result.missing),
        "weights": result.options.weights,
        "capacity_range": {
            "link_efficiency_low": TCP_USE, "link_efficiency_high": 1.0, "uncertainty": result.options.uncertainty,
            "level": LEVEL, "draws": DRAWS, "seed": result.options.seed,
        },
        "rows": _objects(_ROW_COLUMNS, map(_row, result.rows)),
        "resources": _objects(_USE_COLUMNS, map(_use_row, result.resources)),
        "limiting": [use.resource.title for use in result.limiting],
        "sites": _objects(_SITE_COLUMNS, map(_site_row, _ordered(result))),
    }  # fmt: skip


def _objects(columns: tuple[Column, ...], rows: Any) -> list[dict[str, Scalar]]:  # noqa: ANN401 - an iterable of rows
    return [{column.name: cell for column, cell in zip(columns, row, strict=True)} for row in rows]
