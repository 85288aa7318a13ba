"""Machines that exchange files with partners at random: traffic of every site, use of its link, partners against weights.

Closed form: of the n_i transfers that machine i began, a share p(T | i) goes to site T, with p ∝ (machines of T that i may
choose) × (bandwidth of T), or ∝ (bandwidth of T) where a site weighs as a whole; the sums of n_i p(T | i) are what the
weights predict. How many transfers a machine makes depends on how slow its partners are, but whether one is begun depends on those
before it alone, so that the expectation holds for what was begun (Wald).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from venturi.analysis.chapter import Band, Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.quantity import quantity_text
from venturi.analysis.result import About
from venturi.analysis.site_traffic import Site, Traffic, sites_of, traffic_of
from venturi.run import Run
from venturi.study import library
from venturi.units import parse_bytes, parse_duration

__all__ = ["Period", "peers_chapter", "periods_of", "traffic_panel"]

BINS = 240
"""Bins of a picture of traffic in time."""
FEWEST_EXPECTED = 5.0
"""Sites of which fewer choices are expected are taken together: below, chi-square does not hold."""
UNLIKELY = 0.05
SHOWN_FIRST = ("Bologna", "Cagliari", "Catania")
"""Sites of figures 3 to 5 of report 004."""


@dataclass(frozen=True)
class Period:
    """A stretch of the run in which the links were the same."""

    name: str
    low_s: float
    high_s: float


@dataclass(frozen=True)
class _Moved:
    """The transfers of machines, one array each: no background."""

    machine: Any
    site: Any
    partner_site: Any
    download: Any
    bytes: Any
    failed: Any
    start_s: Any
    end_s: Any


def peers_chapter(run: Run, about: About) -> Chapter | None:
    """Return the chapter of a run of the workload ``peers``, ``None`` for any other."""
    workload = about.scenario.get("workload") or {}
    if workload.get("kind") != "peers":
        return None
    sites = sites_of(about.scenario, run)
    moved = _moved(run)
    title = "Traffic between the sites"
    if moved is None:
        return Chapter("peers", title, "No transfer has finished yet.")
    traffic = traffic_of(run, sites)
    duration = workload.get("duration")
    last_s = min(float(moved.end_s.max()), parse_duration(duration) if duration else np.inf)
    periods = periods_of(sites, float(moved.start_s.min()), last_s)
    use = _use_table(sites, traffic, periods, about)
    partners, fit = _partners_table(workload, sites, moved, about.scale)
    upgrades = _upgrades_table(sites, traffic, periods, moved, about)
    service = _service_table(sites, traffic, periods, moved)
    tables = [use, *([upgrades] if upgrades else []), partners, service]
    sentence = _sentence(sites, moved, upgrades, use, fit)
    return Chapter("peers", title, sentence, tuple(tables), _figures(sites, traffic, periods, use, partners, about))


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


def periods_of(sites: Sequence[Site], first_s: float, last_s: float) -> tuple[Period, ...]:
    """Return the stretches of a run between changes of access links, those that it did not come to left out."""
    times = sorted({at for site in sites for at, *_ in site.changes if first_s < at < last_s})
    edges = [first_s, *times, last_s]
    names = {1: ("whole run",), 2: ("before", "after")}.get(
        len(edges) - 1, tuple(f"period {i + 1}" for i in range(len(edges) - 1))
    )
    return tuple(Period(name, low, high) for name, low, high in zip(names, edges[:-1], edges[1:], strict=True))


def _use_table(
    sites: Sequence[Site], traffic: Mapping[str, tuple[Traffic, Traffic]], periods: Sequence[Period], about: About
) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    printed = _printed(about)
    for site in sites:
        for number, period in enumerate(periods):
            if site.name in traffic:
                told = printed.get(site.name, (None, None))
                rows.append(
                    (site.name, period.name, told[1 if number else 0], *_use(site, traffic[site.name], period))
                )
    columns = (
        Column("site", "Site"), Column("period", "Period"), Column("printed_bit_per_s", "Link", published=True),
        Column("link_bit_per_s", "Link here"), Column("in_bit_per_s", "In"), Column("out_bit_per_s", "Out"),
        Column("in_use_ratio", "Link full, in"), Column("out_use_ratio", "Link full, out"),
        Column("busy_use_ratio", "Link full while busy"),
    )  # fmt: skip
    note = (
        "In and out: means over the period. Full: over the rate of the access link then; while busy: the busier direction in the 90th "
        "percentile of the sampling intervals."
    )
    return Table("site-traffic", "Traffic of the sites", columns, tuple(rows), note)


def _use(site: Site, both: tuple[Traffic, Traffic], period: Period) -> tuple[float | None, ...]:
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
    """Return site → rate as printed, before and after the upgrades; nothing where the study is of no report with sites."""
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
    sites: Sequence[Site], traffic: Mapping[str, tuple[Traffic, Traffic]], periods: Sequence[Period], moved: _Moved,
    about: About,
) -> Table | None:  # fmt: skip
    """Return the first period beside the last, of the sites whose link changed between them."""
    if len(periods) < 2:
        return None
    before, after = periods[0], periods[-1]
    printed = _printed(about)
    rows: list[tuple[Scalar, ...]] = []
    for site in sites:
        old, new = (site.capacity_bit_per_s(period.low_s) for period in (before, after))
        if old is None or new is None or site.name not in traffic:
            continue
        told = printed.get(site.name, (None, None))
        said = told[1] / told[0] if told[0] and told[1] else None
        rates = [sum(t.rate_bit_per_s(p.low_s, p.high_s) or 0.0 for t in traffic[site.name]) for p in (before, after)]
        busy = [_use(site, traffic[site.name], period)[-1] for period in (before, after)]
        own = (moved.site == site.name) | (moved.partner_site == site.name)
        done = [_per_hour(moved, own, period) for period in (before, after)]
        rows.append(
            (site.name, "upgraded" if old != new else "as before", said, max(new) / max(old), *rates,
             rates[1] / rates[0] if rates[0] else None, *busy, *done)
        )  # fmt: skip
    columns = (
        Column("site", "Site"), Column("link", "Link"), Column("printed_gain", "Link faster by", published=True),
        Column("link_gain", "Link faster by"), Column("before_bit_per_s", "In and out, before"),
        Column("after_bit_per_s", "In and out, after"), Column("traffic_gain", "More traffic by"),
        Column("before_use_ratio", "Full while busy, before"), Column("after_use_ratio", "Full while busy, after"),
        Column("before_files_per_h", "Files an hour, before"), Column("after_files_per_h", "Files an hour, after"),
    )  # fmt: skip
    note = "Gains are factors. Files: transfers that ended in the period, of the site's machines and of others with them."
    return Table("link-upgrades", "Before and after the change of links", columns, tuple(rows), note)


def _per_hour(moved: _Moved, own: Any, period: Period) -> float | None:  # noqa: ANN401 - a mask
    inside = own & ~moved.failed & (moved.end_s >= period.low_s) & (moved.end_s < period.high_s)
    span = period.high_s - period.low_s
    return 3600 * int(inside.sum()) / span if span > 0 else None


@dataclass(frozen=True)
class _Goodness:
    """Chosen partners against the weights."""

    statistic: float
    freedom: int
    probability: float


def _partners_table(
    workload: Mapping[str, Any], sites: Sequence[Site], moved: _Moved, scale: float
) -> tuple[Table, _Goodness | None]:
    shares = {site.name: _shares(site, sites, workload) for site in sites}
    mean_bytes = float(np.mean([parse_bytes(text) for text in workload["sizes"]]))
    rows: list[tuple[Scalar, ...]] = []
    chosen, expected = [], []
    for site in sites:
        chosen.append(int((moved.partner_site == site.name).sum()))
        expected.append(sum(float((moved.site == o.name).sum()) * shares[o.name].get(site.name, 0.0) for o in sites))
        received = _into(site, moved)
        rows.append(
            (site.name, len(site.machines), site.weight_bit_per_s, chosen[-1], expected[-1], chosen[-1] / len(moved.site),
             expected[-1] / len(moved.site), received, scale * mean_bytes * _expected_files(site, sites, shares, moved))
        )  # fmt: skip
    columns = (
        Column("site", "Site"), Column("machines", "Machines"), Column("weight_bit_per_s", "Weight of a machine"),
        Column("chosen", "Chosen"), Column("expected", "By the weights"), Column("chosen_ratio", "Share"),
        Column("expected_ratio", "Share by the weights"), Column("received_bytes", "Received"),
        Column("expected_bytes", "Received by the weights"),
    )  # fmt: skip
    note = (
        "By the weights: closed form for the transfers that each machine began; received: downloads of the site's machines and uploads of "
        "others to them, by the weights with files of mean size."
    )
    return Table("site-partners", "Partners chosen", columns, tuple(rows), note), _goodness(chosen, expected)


def _shares(own: Site, sites: Sequence[Site], workload: Mapping[str, Any]) -> dict[str, float]:
    """Return site → probability that a machine of ``own`` chooses a partner there."""
    weight = {}
    for site in sites:
        able = len(site.machines) - (site.name == own.name)
        if site.name == own.name and not workload.get("own_site"):
            able = 0
        counts = (1 if able else 0) if workload.get("choice") == "site" else able
        weight[site.name] = counts * site.weight_bit_per_s
    total = sum(weight.values())
    return {name: one / total for name, one in weight.items()} if total else {}


def _into(site: Site, moved: _Moved) -> int:
    own, beside = moved.site == site.name, moved.partner_site == site.name
    return int(moved.bytes[(own & moved.download) | (beside & ~moved.download)].sum())


def _expected_files(
    site: Site, sites: Sequence[Site], shares: Mapping[str, Mapping[str, float]], moved: _Moved
) -> float:
    fetched = float(((moved.site == site.name) & moved.download).sum())
    sent = sum(
        float(((moved.site == o.name) & ~moved.download).sum()) * shares[o.name].get(site.name, 0.0) for o in sites
    )
    return fetched + sent


def _goodness(chosen: Sequence[int], expected: Sequence[float]) -> _Goodness | None:
    """Return chi-square of the choices over the sites; rare ones taken together.

    Machines of different sites have different probabilities, which makes the statistic a little smaller than chi-square on average:
    the probability told is an upper bound.
    """
    often = [i for i, value in enumerate(expected) if value >= FEWEST_EXPECTED]
    cells = [(float(chosen[i]), expected[i]) for i in often]
    rest = [(float(chosen[i]), expected[i]) for i in range(len(expected)) if i not in often]
    rest_expected = sum(value for _, value in rest)
    if rest_expected >= FEWEST_EXPECTED:
        cells.append((sum(value for value, _ in rest), rest_expected))
    if len(cells) < 2:
        return None
    statistic = sum((seen - value) ** 2 / value for seen, value in cells)
    freedom = len(cells) - 1
    return _Goodness(statistic, freedom, float(chdtrc(freedom, statistic)))


def _service_table(
    sites: Sequence[Site], traffic: Mapping[str, tuple[Traffic, Traffic]], periods: Sequence[Period], moved: _Moved
) -> Table:
    rows: list[tuple[Scalar, ...]] = []
    for site in sites:
        own = (moved.site == site.name) | (moved.partner_site == site.name)
        quiet = _longest_silence(site, traffic.get(site.name), periods[0].low_s, periods[-1].high_s)
        rows.append((site.name, int(own.sum()), int((own & moved.failed).sum()), quiet))
    columns = (
        Column("site", "Site"), Column("transfers", "Transfers"), Column("failed", "Failed"),
        Column("longest_silence_s", "Longest silence"),
    )  # fmt: skip
    note = "Transfers with an end at the site. Silence: neither direction of its link carried 1 % of its rate."
    return Table("site-service", "Interruptions", columns, tuple(rows), note)


def _longest_silence(site: Site, both: tuple[Traffic, Traffic] | None, low_s: float, high_s: float) -> float | None:
    capacity = site.capacity_bit_per_s(low_s)
    if both is None or capacity is None or len(both[0].bits) != len(both[1].bits):
        return None
    longest = so_far = 0.0
    for start, end, out, back in zip(both[0].start_s, both[0].end_s, both[0].bits, both[1].bits, strict=True):
        silent = low_s <= start and end <= high_s and max(out, back) < 0.01 * min(capacity) * (end - start)
        so_far = so_far + float(end - start) if silent else 0.0
        longest = max(longest, so_far)
    return longest


def traffic_panel(
    site: Site, both: tuple[Traffic, Traffic], low_s: float, high_s: float, bands: tuple[Band, ...]
) -> Panel:
    """Return what went in and out of a site against time, with the rate of its link."""
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
    sites: Sequence[Site], traffic: Mapping[str, tuple[Traffic, Traffic]], periods: Sequence[Period], use: Table,
    partners: Table, about: About,
) -> tuple[Figure, ...]:  # fmt: skip
    low_s, high_s = periods[0].low_s, periods[-1].high_s
    bands = tuple(Band(p.low_s, p.high_s, p.name) for p in periods) if len(periods) > 1 else ()
    panels = {s.name: traffic_panel(s, traffic[s.name], low_s, high_s, bands) for s in sites if s.name in traffic}
    ours = (about.study or "").startswith("alice/")
    first = [name for name in panels if name in SHOWN_FIRST] if ours else list(panels)[:3]
    rest = [name for name in panels if name not in first]
    caption = "Traffic in and out of the site, as its router counts it, and the rate of its access link."
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
        Series("by the weights", names, tuple(_number(row[6]) for row in partners.rows), style="bars"),
    )
    panel = Panel("Partners", "site", "share_ratio", bars)
    found.append(
        Figure("site-partners", "Partners chosen, and what the weights predict", (panel,), "Share of all choices.")
    )
    return tuple(found)


def _use_figure(use: Table, periods: Sequence[Period]) -> Figure:
    series = []
    for period in periods:
        rows = [row for row in use.rows if row[1] == period.name]
        names = tuple(str(row[0]) for row in rows)
        series.append(Series(period.name, names, tuple(_number(row[8]) for row in rows), style="bars"))
    panel = Panel("Access links", "site", "busy_use_ratio", tuple(series))
    caption = "The busier direction over the rate of the link, in the 90th percentile of the sampling intervals."
    return Figure("site-use", "How full the access links were while busy", (panel,), caption)


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _sentence(sites: Sequence[Site], moved: _Moved, upgrades: Table | None, use: Table, fit: _Goodness | None) -> str:
    failed = int(moved.failed.sum())
    parts = [
        f"{len(moved.site):,} transfers between {sum(len(site.machines) for site in sites)} machines at {len(sites)} sites moved "
        f"{quantity_text('moved_bytes', float(moved.bytes.sum()))}; {f'{failed:,} of them failed' if failed else 'none failed'}."
    ]  # fmt: skip
    full = [
        row for row in use.rows if isinstance(row[8], float) and row[8] >= 0.9 and row[1] in ("before", "whole run")
    ]
    if full:
        names = ", ".join(str(row[0]) for row in full)
        parts.append(
            f"While busy, {len(full)} of {len(sites)} access links were at least 90 % full at first: {names}."
        )
    changed = [row for row in upgrades.rows if row[1] == "upgraded"] if upgrades else []
    gains = [f"{row[0]} ×{row[6]:.2g} (link ×{row[3]:.2g})" for row in changed if isinstance(row[6], float)]
    if gains:
        parts.append(f"Traffic after the upgrade over before: {', '.join(gains)}.")
    if fit is not None:
        often = f"χ² = {fit.statistic:.1f} at {fit.freedom} degrees of freedom"
        parts.append(
            f"Partners were chosen as their weights have it: {often}, and chance alone strays farther in {100 * fit.probability:.0f} % of such runs."
            if fit.probability >= UNLIKELY
            else f"Partners were chosen otherwise than their weights have it: {often}, which chance alone gives in {100 * fit.probability:.2g} % of such runs."
        )  # fmt: skip
    return " ".join(parts)
