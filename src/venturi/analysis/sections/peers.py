"""Machines that exchange files with random partners: traffic of each site, use of its link, and partners against weights.

Closed form: of the n_i transfers that machine i started, a fraction p(T | i) goes to site T. This fraction is
proportional to (machines of T that i can choose) × (bandwidth of T), or to the bandwidth of T if sites are chosen as a
whole. The sums of n_i p(T | i) are the expected counts. The number of transfers of a machine depends on how slow its
partners are. However, the start of a transfer depends only on earlier transfers, so the expectation holds for the
started transfers (Wald).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from venturi.analysis.quantity import format_quantity
from venturi.analysis.result import About
from venturi.analysis.section import Band, Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.site_traffic import Traffic, TrafficSite, sites_of, traffic_of
from venturi.analysis.totals import failure_text
from venturi.run import Run
from venturi.study import library
from venturi.units import BITS_PER_BYTE, format_bit_rate, parse_bytes, parse_duration

__all__ = ["Period", "peers_section", "periods_of", "traffic_panel"]

BINS = 240
"""Time bins of a traffic figure."""
MIN_EXPECTED = 5.0
"""Minimum expected count of a site. Sites below it are combined, because chi-square does not hold for them."""
UNLIKELY = 0.05
SHOWN_FIRST = ("Bologna", "Cagliari", "Catania")
"""Sites in figures 3 to 5 of report 004."""


@dataclass(frozen=True)
class Period:
    """Part of the run with constant links."""

    name: str
    low_s: float
    high_s: float


@dataclass(frozen=True)
class _Moved:
    """Transfers of machines without background load, one array for each column."""

    machine: Any
    site: Any
    partner_site: Any
    download: Any
    bytes: Any
    failed: Any
    start_s: Any
    end_s: Any


def peers_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of the workload ``peers``, or ``None`` for another workload."""
    workload = about.scenario.get("workload") or {}
    if workload.get("kind") != "peers":
        return None
    sites = sites_of(about.scenario, run)
    moved = _moved(run)
    title = "Traffic between the sites"
    if moved is None:
        return ReportSection("peers", title, "No transfer has finished yet.")
    traffic = traffic_of(run, sites)
    duration = workload.get("duration")
    last_s = min(float(moved.end_s.max()), parse_duration(duration) if duration else np.inf)
    periods = periods_of(sites, float(moved.start_s.min()), last_s)
    use = _use_table(sites, traffic, periods, about)
    partners, fit = _partners_table(workload, sites, moved, about.scale)
    upgrades = _upgrades_table(sites, traffic, periods, moved, about)
    service = _service_table(sites, traffic, periods, moved)
    tables = [use, *([upgrades] if upgrades else []), partners, service]
    sentence = _sentence(run, sites, moved, upgrades, use, fit)
    return ReportSection(
        "peers",
        title,
        sentence,
        tuple(tables),
        _figures(sites, traffic, periods, use, partners, about),
        headline=_headline(sites, moved),
    )


def _moved(run: Run) -> _Moved | None:
    if not {"direction", "site"} <= set(run.factors):
        return None
    rows = run.query(
        """SELECT labels->>'machine' AS machine, factor_site AS site, labels->>'partner_site' AS partner_site,
                  factor_direction = 'download' AS download, coalesce(received_bytes, 0) AS bytes, outcome <> 'ok' AS failed,
                  start_s, end_s
           FROM transfers WHERE factor_direction IN ('download', 'upload') AND start_s IS NOT NULL ORDER BY start_s"""
    )
    return _Moved(**rows) if len(rows["site"]) else None


def periods_of(sites: Sequence[TrafficSite], first_s: float, last_s: float) -> tuple[Period, ...]:
    """Return the parts of a run between changes of access links, without parts that the run did not reach."""
    times = sorted({at for site in sites for at, *_ in site.changes if first_s < at < last_s})
    edges = [first_s, *times, last_s]
    names = {1: ("whole run",), 2: ("before", "after")}.get(
        len(edges) - 1, tuple(f"period {i + 1}" for i in range(len(edges) - 1))
    )
    return tuple(Period(name, low, high) for name, low, high in zip(names, edges[:-1], edges[1:], strict=True))


def _use_table(
    sites: Sequence[TrafficSite],
    traffic: Mapping[str, tuple[Traffic, Traffic]],
    periods: Sequence[Period],
    about: About,
) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    printed = _printed(about)
    for site in sites:
        for number, period in enumerate(periods):
            if site.name in traffic:
                printed_rates = printed.get(site.name, (None, None))
                rows.append(
                    (
                        site.name,
                        period.name,
                        printed_rates[1 if number else 0],
                        *_use(site, traffic[site.name], period),
                    )
                )
    columns = (
        Column("site", "Site"), Column("period", "Period"), Column("printed_bit_per_s", "Link", published=True),
        Column("link_bit_per_s", "Link in this run"), Column("in_bit_per_s", "In"), Column("out_bit_per_s", "Out"),
        Column("in_use_ratio", "Use, in"), Column("out_use_ratio", "Use, out"),
        Column("busy_use_ratio", "Use while busy"),
    )  # fmt: skip
    note = (
        "In and out: means over the period. Use: traffic divided by the rate of the access link. While busy: the busier direction, 90th "
        "percentile of the sampling intervals."
    )
    return Table("site-traffic", "Traffic of the sites", columns, tuple(rows), note)


def _use(site: TrafficSite, both: tuple[Traffic, Traffic], period: Period) -> tuple[float | None, ...]:
    window = period.low_s, period.high_s
    out, back = (traffic.rate_bit_per_s(*window) for traffic in both)
    capacity = site.capacity_bit_per_s(period.low_s)
    high_out, high_in = (traffic.high_bit_per_s(*window) for traffic in both)
    full_out, full_in, busy_out, busy_in = (
        rate / most if rate is not None and most else None
        for rate, most in zip((out, back, high_out, high_in), (*(capacity or (None, None)),) * 2, strict=True)
    )
    busy = max((ratio for ratio in (busy_out, busy_in) if ratio is not None), default=None)
    return (max(capacity) if capacity else None), back, out, full_in, full_out, busy


def _printed(about: About) -> dict[str, tuple[float | None, float | None]]:
    """Return site → printed rates before and after the upgrades; empty if the study's report has no sites."""
    found: dict[str, tuple[float | None, float | None]] = {}
    if not (about.study or "").startswith("alice/"):
        return found
    tables = library().tables
    for row in tables["004-sites"].rows if "004-sites" in tables else ():
        rate = float(row["max_rate_bit_per_s"] or 0)
        found[str(row["site"])] = rate, rate
    for row in tables["004-upgrades"].rows if "004-upgrades" in tables else ():
        found[str(row["site"])] = float(row["before_bit_per_s"] or 0), float(row["after_bit_per_s"] or 0)
    return found


def _upgrades_table(
    sites: Sequence[TrafficSite], traffic: Mapping[str, tuple[Traffic, Traffic]], periods: Sequence[Period], moved: _Moved,
    about: About,
) -> Table | None:  # fmt: skip
    """Return the comparison of the first and the last period for the sites with a link; None if there is only one period."""
    if len(periods) < 2:
        return None
    before, after = periods[0], periods[-1]
    printed = _printed(about)
    rows: list[tuple[Scalar, ...]] = []
    for site in sites:
        old, new = (site.capacity_bit_per_s(period.low_s) for period in (before, after))
        if old is None or new is None or site.name not in traffic:
            continue
        printed_rates = printed.get(site.name, (None, None))
        printed_gain = printed_rates[1] / printed_rates[0] if printed_rates[0] and printed_rates[1] else None
        rates = [sum(t.rate_bit_per_s(p.low_s, p.high_s) or 0.0 for t in traffic[site.name]) for p in (before, after)]
        busy = [_use(site, traffic[site.name], period)[-1] for period in (before, after)]
        own = (moved.site == site.name) | (moved.partner_site == site.name)
        done = [_per_hour(moved, own, period) for period in (before, after)]
        rows.append(
            (site.name, "upgraded" if old != new else "unchanged", printed_gain, max(new) / max(old), *rates,
             rates[1] / rates[0] if rates[0] else None, *busy, *done)
        )  # fmt: skip
    columns = (
        Column("site", "Site"), Column("link", "Link"), Column("printed_gain", "Rate of the link, after ÷ before", published=True),
        Column("link_gain", "Rate of the link, after ÷ before"), Column("before_bit_per_s", "In and out, before"),
        Column("after_bit_per_s", "In and out, after"), Column("traffic_gain", "Traffic, after ÷ before"),
        Column("before_use_ratio", "Use while busy, before"), Column("after_use_ratio", "Use while busy, after"),
        Column("before_files_per_h", "Files per hour, before"), Column("after_files_per_h", "Files per hour, after"),
    )  # fmt: skip
    note = "Files: transfers from or to the site that ended in the period."
    return Table("link-upgrades", "Before and after the change of links", columns, tuple(rows), note)


def _per_hour(moved: _Moved, own: Any, period: Period) -> float | None:  # noqa: ANN401 - a mask
    inside = own & ~moved.failed & (moved.end_s >= period.low_s) & (moved.end_s < period.high_s)
    span = period.high_s - period.low_s
    return 3600 * int(inside.sum()) / span if span > 0 else None


@dataclass(frozen=True)
class _Goodness:
    """Chi-square test of the chosen partners against the weights."""

    statistic: float
    freedom: int
    probability: float


def _partners_table(
    workload: Mapping[str, Any], sites: Sequence[TrafficSite], moved: _Moved, scale: float
) -> tuple[Table, _Goodness | None]:
    fractions = {site.name: _site_fractions(site, sites, workload) for site in sites}
    mean_bytes = float(np.mean([parse_bytes(text) for text in workload["sizes"]]))
    rows: list[tuple[Scalar, ...]] = []
    chosen, expected = [], []
    for site in sites:
        chosen.append(int((moved.partner_site == site.name).sum()))
        expected.append(
            sum(float((moved.site == o.name).sum()) * fractions[o.name].get(site.name, 0.0) for o in sites)
        )
        received = _into(site, moved)
        rows.append(
            (site.name, len(site.machines), site.weight_bit_per_s, chosen[-1], expected[-1], chosen[-1] / len(moved.site),
             expected[-1] / len(moved.site), received, scale * mean_bytes * _expected_files(site, sites, fractions, moved))
        )  # fmt: skip
    columns = (
        Column("site", "Site"), Column("machines", "Machines"), Column("weight_bit_per_s", "Weight of each machine"),
        Column("chosen", "Chosen"), Column("expected", "Expected"), Column("chosen_ratio", "Fraction chosen"),
        Column("expected_ratio", "Fraction expected"), Column("received_bytes", "Received"),
        Column("expected_bytes", "Received, expected"),
    )  # fmt: skip
    note = (
        "Expected: computed from the weights and the number of transfers that each machine started. Received: downloads of the site's machines and "
        "uploads of other machines to them; its expected value assumes files of mean size."
    )
    return Table("site-partners", "Chosen partners", columns, tuple(rows), note), _goodness(chosen, expected)


def _site_fractions(own: TrafficSite, sites: Sequence[TrafficSite], workload: Mapping[str, Any]) -> dict[str, float]:
    """Return site → probability that a machine of ``own`` chooses a partner there."""
    weight = {}
    for site in sites:
        able = len(site.machines) - (site.name == own.name)
        if site.name == own.name and not workload.get("include_own_site"):
            able = 0
        counts = (1 if able else 0) if workload.get("choice") == "site" else able
        weight[site.name] = counts * site.weight_bit_per_s
    total = sum(weight.values())
    return {name: one / total for name, one in weight.items()} if total else {}


def _into(site: TrafficSite, moved: _Moved) -> int:
    own, partner = moved.site == site.name, moved.partner_site == site.name
    return int(moved.bytes[(own & moved.download) | (partner & ~moved.download)].sum())


def _expected_files(
    site: TrafficSite, sites: Sequence[TrafficSite], fractions: Mapping[str, Mapping[str, float]], moved: _Moved
) -> float:
    fetched = float(((moved.site == site.name) & moved.download).sum())
    sent = sum(
        float(((moved.site == o.name) & ~moved.download).sum()) * fractions[o.name].get(site.name, 0.0) for o in sites
    )
    return fetched + sent


def _goodness(chosen: Sequence[int], expected: Sequence[float]) -> _Goodness | None:
    """Return chi-square of the choices over the sites, with rare sites combined.

    Machines of different sites have different probabilities, so on average the statistic is slightly smaller than
    chi-square. The returned probability is an upper bound.
    """
    often = [i for i, value in enumerate(expected) if value >= MIN_EXPECTED]
    cells = [(float(chosen[i]), expected[i]) for i in often]
    rest = [(float(chosen[i]), expected[i]) for i in range(len(expected)) if i not in often]
    rest_expected = sum(value for _, value in rest)
    if rest_expected >= MIN_EXPECTED:
        cells.append((sum(value for value, _ in rest), rest_expected))
    if len(cells) < 2:
        return None
    statistic = sum((seen - value) ** 2 / value for seen, value in cells)
    freedom = len(cells) - 1
    return _Goodness(statistic, freedom, float(chdtrc(freedom, statistic)))


def _service_table(
    sites: Sequence[TrafficSite],
    traffic: Mapping[str, tuple[Traffic, Traffic]],
    periods: Sequence[Period],
    moved: _Moved,
) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    for site in sites:
        own = (moved.site == site.name) | (moved.partner_site == site.name)
        quiet = _longest_pause(site, traffic.get(site.name), periods[0].low_s, periods[-1].high_s)
        rows.append((site.name, int(own.sum()), int((own & moved.failed).sum()), quiet))
    columns = (
        Column("site", "Site"), Column("transfers", "Transfers"), Column("failed", "Failed"),
        Column("longest_silence_s", "Longest interruption"),
    )  # fmt: skip
    note = (
        "Transfers from or to the site. Interruption: both directions of its link carried less than 1 % of its rate."
    )
    return Table("site-service", "Interruptions", columns, tuple(rows), note)


def _longest_pause(
    site: TrafficSite, both: tuple[Traffic, Traffic] | None, low_s: float, high_s: float
) -> float | None:
    capacity = site.capacity_bit_per_s(low_s)
    if both is None or capacity is None or len(both[0].bits) != len(both[1].bits):
        return None
    longest = total_so_far = 0.0
    for start, end, out, back in zip(both[0].start_s, both[0].end_s, both[0].bits, both[1].bits, strict=True):
        silent = low_s <= start and end <= high_s and max(out, back) < 0.01 * min(capacity) * (end - start)
        total_so_far = total_so_far + float(end - start) if silent else 0.0
        longest = max(longest, total_so_far)
    return longest


def traffic_panel(
    site: TrafficSite, both: tuple[Traffic, Traffic], low_s: float, high_s: float, bands: tuple[Band, ...]
) -> Panel:
    """Return the traffic in and out of a site against time, with the rate of its link."""
    series = []
    for name, traffic in (("in", both[1]), ("out", both[0])):
        time_s, rate = traffic.binned(low_s, high_s, BINS)
        series.append(Series(name, time_s, rate))
    if site.changes:
        steps = [(max(low_s, at), max(out, back)) for at, out, back in site.changes if at < high_s]
        steps.append((high_s, steps[-1][1]))
        series.append(Series("link", tuple(at for at, _ in steps), tuple(rate for _, rate in steps), style="steps"))
    return Panel(site.name, "time_s", "rate_bit_per_s", tuple(series), bands=bands)


def _figures(
    sites: Sequence[TrafficSite], traffic: Mapping[str, tuple[Traffic, Traffic]], periods: Sequence[Period], use: Table,
    partners: Table, about: About,
) -> tuple[Figure, ...]:  # fmt: skip
    low_s, high_s = periods[0].low_s, periods[-1].high_s
    bands = tuple(Band(p.low_s, p.high_s, p.name) for p in periods) if len(periods) > 1 else ()
    panels = {s.name: traffic_panel(s, traffic[s.name], low_s, high_s, bands) for s in sites if s.name in traffic}
    ours = (about.study or "").startswith("alice/")
    first = [name for name in panels if name in SHOWN_FIRST] if ours else list(panels)[:3]
    rest = [name for name in panels if name not in first]
    caption = "Traffic in and out of the site, counted by its router, and the rate of its access link."
    groups = [first, *(rest[i : i + 3] for i in range(0, len(rest), 3))]
    found = [
        Figure(f"site-traffic-{number}", "Traffic through the routers of " + ", ".join(names), tuple(panels[n] for n in names),
               caption, "004, figures 3 to 5" if ours and not number else "")
        for number, names in enumerate(groups) if names
    ]  # fmt: skip
    if use.rows:
        found.append(_use_figure(use, periods))
    names = tuple(str(row[0]) for row in partners.rows)
    bars = (
        Series("chosen", names, tuple(_number(row[5]) for row in partners.rows), style="bars"),
        Series("expected", names, tuple(_number(row[6]) for row in partners.rows), style="bars"),
    )
    panel = Panel("Partners", "site", "share_ratio", bars)
    found.append(
        Figure("site-partners", "Partners: chosen and expected fractions", (panel,), "Fraction of all choices.")
    )
    return tuple(found)


def _use_figure(use: Table, periods: Sequence[Period]) -> Figure:
    series = []
    for period in periods:
        rows = [row for row in use.rows if row[1] == period.name]
        names = tuple(str(row[0]) for row in rows)
        series.append(Series(period.name, names, tuple(_number(row[8]) for row in rows), style="bars"))
    panel = Panel("Access links", "site", "busy_use_ratio", tuple(series))
    caption = (
        "Rate of the busier direction divided by the rate of the link, 90th percentile of the sampling intervals."
    )
    return Figure("site-use", "Use of the access links while busy", (panel,), caption)


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _headline(sites: Sequence[TrafficSite], moved: _Moved) -> str:
    bytes_, span_s = float(moved.bytes.sum()), float(moved.end_s.max() - moved.start_s.min())
    rate = f"{format_bit_rate(bytes_ * BITS_PER_BYTE / span_s)} between {len(sites)} sites; " if span_s > 0 else ""
    return f"{rate}{len(moved.site):,} transfers moved {format_quantity('moved_bytes', bytes_)}"


def _sentence(
    run: Run, sites: Sequence[TrafficSite], moved: _Moved, upgrades: Table | None, use: Table, fit: _Goodness | None
) -> str:
    parts = [
        f"{len(moved.site):,} transfers between {sum(len(site.machines) for site in sites)} machines at {len(sites)} sites moved "
        f"{format_quantity('moved_bytes', float(moved.bytes.sum()))}; {failure_text(run, int(moved.failed.sum()), 'of them')}."
    ]  # fmt: skip
    full = [
        row for row in use.rows if isinstance(row[8], float) and row[8] >= 0.9 and row[1] in ("before", "whole run")
    ]
    if full:
        names = ", ".join(str(row[0]) for row in full)
        parts.append(
            f"While busy, {len(full)} of {len(sites)} access links had a use of at least 90 % in the first period: {names}."
        )
    changed = [row for row in upgrades.rows if row[1] == "upgraded"] if upgrades else []
    gains = [f"{row[0]} ×{row[6]:.2g} (link ×{row[3]:.2g})" for row in changed if isinstance(row[6], float)]
    if gains:
        parts.append(f"Traffic after the upgrade divided by traffic before: {', '.join(gains)}.")
    if fit is not None:
        often = f"(χ² = {fit.statistic:.1f} at {fit.freedom} degrees of freedom)"
        parts += (
            [f"Partners were chosen according to their weights {often}.", f"Chance alone deviates more in {100 * fit.probability:.0f} % of such runs."]
            if fit.probability >= UNLIKELY
            else [f"Partners were not chosen according to their weights {often}.", f"Chance alone deviates as much in {100 * fit.probability:.2g} % of such runs."]
        )  # fmt: skip
    return " ".join(parts)
