"""Requested and reached rates of the workloads ``inject`` and ``replay``, with predictions and causes of shortfalls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from venturi.advice import Advice, Verdict, advise
from venturi.analysis.byte_times import EVENLY
from venturi.analysis.format import plural
from venturi.analysis.predicted_load import PredictedLoad, predicted_load
from venturi.analysis.quantity import format_quantity
from venturi.analysis.requested_load import (
    MINUTE_S,
    SHORT,
    LoadFlow,
    RatioInterval,
    RequestedLoad,
    format_flow,
    ratio_interval,
    requested_load,
)
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, HeatMap, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.values import FloatArray
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bit_rate, format_duration

__all__ = ["INJECTED", "injected_section"]

INJECTED = "injected"

MAX_SHOWN = 200
"""Maximum number of rows of a table on the page, those with the largest shortfall first."""
MAX_FLOW_ROWS = 20_000
"""Maximum number of flows in CSV and JSON."""
MAX_INTERVAL_ROWS = 50_000
"""Maximum number of rows of the table of intervals in CSV and JSON."""
NOT_DECIDED = "not decided"
RANDOM = "the arrivals of the plan"
FAILED = "failed transfers"
ALL = "all"


@dataclass(frozen=True, slots=True)
class _Cause:
    """Cause of a shortfall: its name, and the confidence of its verdict."""

    text: str
    confidence: float | None = None
    is_limit: bool = False


def injected_section(
    run: Run, about: About, advice: Advice | None = None, load: RequestedLoad | None = None
) -> ReportSection | None:
    """Return the section of the workloads ``inject`` and ``replay``, or None for other runs and without transfers.

    Parameters
    ----------
    advice, load
        Verdicts and load of the run, if they are known already.
    """
    load = load or requested_load(run, about)
    if load is None or not any(flow.reached_bytes > 0 or flow.requested_bytes > 0 for flow in load.flows):
        return None
    predicted = predicted_load(run, load)
    short = load.short
    causes = _causes(short, advice or advise(run)) if short else {}
    rows = _Rows(load, predicted, causes)
    tables = (rows.flows(), rows.intervals())
    return ReportSection(
        INJECTED,
        "Requested and reached rates",
        _sentence(load, short, causes, predicted),
        tables,
        tuple(_figures(load, predicted)),
        note=_note(load, predicted),
        headline=_headline(load, short, causes),
        heat_maps=_heat_maps(load),
    )


# --- causes


def _causes(short: Sequence[LoadFlow], advice: Advice) -> dict[int, _Cause]:
    """Return the cause of the shortfall of each flow, by its identity."""
    by_point = {verdict.point: verdict for verdict in advice.points if verdict.point is not None}
    return {id(flow): _cause(flow, [by_point[point] for point in flow.points if point in by_point]) for flow in short}


def _cause(flow: LoadFlow, verdicts: Sequence[Verdict]) -> _Cause:
    if flow.is_underscheduled:
        return _Cause(RANDOM)
    if flow.failed and 2 * flow.failed > flow.transfers:
        return _Cause(FAILED)
    decided = [verdict for verdict in verdicts if verdict.cause is not None]
    if not decided:
        return _Cause(NOT_DECIDED)
    # Sizes of one flow are separate points: the most frequent limit, then the one with the highest confidence.
    number = Counter(verdict.resource for verdict in decided)
    best = max(decided, key=lambda verdict: (number[verdict.resource], verdict.confidence))
    return _Cause(best.resource, best.confidence, is_limit=True)


def _phrase(short: Sequence[LoadFlow], causes: Mapping[int, _Cause]) -> str:
    """Return the most frequent cause as a phrase."""
    number = Counter((causes[id(flow)].text, causes[id(flow)].is_limit) for flow in short)
    (text, is_limit), count = number.most_common(1)[0]
    if text == NOT_DECIDED:
        return "the limit is not decided"
    mostly = "mostly " if count < len(short) else ""
    if is_limit:
        return f"{mostly}limited by {text}"
    return f"{mostly}because of {'its arrivals' if text == RANDOM else text}: no limit"


# --- tables


def _storages(flow: LoadFlow) -> tuple[str, str]:
    return flow.source_storage, flow.destination_storage


def _sites(flow: LoadFlow) -> tuple[str, str]:
    return flow.source, flow.destination


class _Rows:
    """Rows of the tables, with the flows that miss the most bytes first."""

    def __init__(self, load: RequestedLoad, predicted: PredictedLoad | None, causes: Mapping[int, _Cause]) -> None:
        self._load, self._predicted, self._causes = load, predicted, causes
        sites: dict[str, set[str]] = {}
        for flow in load.flows:
            for site, storage in zip(_sites(flow), _storages(flow), strict=True):
                sites.setdefault(site, set()).add(storage)
        self._several = {site for site, storages in sites.items() if len(storages) > 1}
        self._order = sorted(
            range(len(load.flows)),
            key=lambda n: (
                not load.flows[n].falls_short,
                load.flows[n].reached_bytes - load.flows[n].requested_bytes,
            ),
        )

    def flows(self) -> Table:
        """Return the table with a row for all flows and for each flow."""
        columns = (
            Column("from", "From"), Column("to", "To"), Column("requested_bit_per_s", "Requested"),
            Column("reached_bit_per_s", "Reached"), Column("reached_ratio", "Reached / requested"), Column("limit", "Cause"),
            Column("predicted_bit_per_s", "Predicted"), Column("flow", "Flow"), Column("low_ratio", "Low"), Column("high_ratio", "High"),
            Column("lowest_ratio", "Lowest interval"), Column("predicted_low_bit_per_s", "Predicted, low"),
            Column("predicted_limit", "Predicted limit"), Column("backlog_bytes", "Backlog at the end"),
            Column("late_s", "Lateness, mean"), Column("max_late_s", "Lateness, maximum"), Column("scheduled_bit_per_s", "Scheduled"),
            Column("transfers", "Transfers"), Column("failed", "Failed"), Column("confidence_ratio", "Confidence"),
            Column("period_s", "Period"), Column("intervals", "Intervals"),
        )  # fmt: skip
        order = self._order[:MAX_FLOW_ROWS]
        hidden = len(self._order) - len(order)
        note = (
            f"Period: compared time, without the first transfers. Low and high: 95 % of the mean of the {_unit(self._load)}s."
            if self._load.in_minutes
            else f"One interval, because the load is shorter than {format_duration(2 * MINUTE_S)}."
        )
        more = f" {plural(hidden, 'more flow')} with smaller shortfalls." if hidden else ""
        rows = tuple(self._flow(number) for number in order)
        if len(self._load.flows) > 1:
            rows = (self._all(), *rows)
        return Table("injected-flows", "Requested and reached rates", columns, rows, note + more, MAX_SHOWN)

    def _names(self, flow: LoadFlow) -> tuple[str, str]:
        """Return source and destination: storages if a site has several."""
        source, destination = (
            storage if site in self._several else site
            for site, storage in zip(_sites(flow), _storages(flow), strict=True)
        )
        return source, destination

    def _flow(self, number: int) -> tuple[Scalar, ...]:
        flow, predicted = self._load.flows[number], self._predicted
        cause = self._causes.get(id(flow))
        bits = BITS_PER_BYTE / flow.period_s
        expected = (float(predicted.flow_bytes[number]) * bits, float(predicted.low_bytes[number]) * bits) if predicted else (None, None)  # fmt: skip
        return (
            *self._names(flow), flow.requested_bit_per_s, flow.reached_bit_per_s, flow.ratio, cause.text if cause else None, expected[0],
            flow.flow or None, *_ends(flow.interval), min(flow.minutes, default=None), expected[1],
            predicted.limits[number] if predicted else None, flow.backlog_bytes, flow.late_s, flow.max_late_s, flow.scheduled_bytes * bits,
            flow.transfers, flow.failed, cause.confidence if cause else None, flow.period_s, len(flow.minutes) or 1,
        )  # fmt: skip

    def _all(self) -> tuple[Scalar, ...]:
        """Return the row of all flows: the mean request of the whole time, and fractions of the compared periods."""
        load, predicted = self._load, self._predicted
        flows, minutes = load.flows, load.minutes
        requested_rate, bytes_ = load.requested_bit_per_s, sum(flow.requested_bytes for flow in flows)
        expected = (float(predicted.flow_bytes.sum()) / bytes_ * requested_rate, float(predicted.low_bytes.sum()) / bytes_ * requested_rate) if predicted else (None, None)  # fmt: skip
        transfers = sum(flow.transfers for flow in flows)
        return (
            ALL, ALL, requested_rate, load.ratio * requested_rate, load.ratio, None, expected[0], None, *_ends(ratio_interval(minutes)),
            min(minutes, default=None), expected[1], None, sum(flow.backlog_bytes for flow in flows),
            sum(flow.late_s * flow.transfers for flow in flows) / transfers, max(flow.max_late_s for flow in flows),
            sum(flow.scheduled_bytes for flow in flows) / bytes_ * requested_rate, transfers, sum(flow.failed for flow in flows), None,
            load.end_s - load.start_s, len(minutes) or 1,
        )  # fmt: skip

    def intervals(self) -> Table:
        """Return the table of intervals: all flows together, then the flows with the largest shortfalls."""
        load, predicted = self._load, self._predicted
        columns = (
            Column("from", "From"), Column("to", "To"), Column("flow", "Flow"), Column("start_s", "Start"), Column("end_s", "End"),
            Column("requested_bit_per_s", "Requested"), Column("reached_bit_per_s", "Reached"), Column("reached_ratio", "Reached / requested"),
            Column("predicted_bit_per_s", "Predicted"), Column("backlog_bytes", "Backlog at the end"),
            Column("late_s", "Lateness, mean"), Column("max_late_s", "Lateness, maximum"),
        )  # fmt: skip
        rows: list[tuple[Scalar, ...]] = []
        listed = max(0, MAX_INTERVAL_ROWS // (len(load.edges_s) - 1) - 1)
        late = list(zip(_plain(load.late_s), _plain(load.max_late_s), strict=True))
        totals = [one.sum(axis=0) if one is not None else None for one in (load.requested, load.reached, predicted.bytes if predicted else None)]  # fmt: skip
        rows += self._series((ALL, ALL, None), totals[0], totals[1], totals[2], late)
        if len(load.flows) > 1:
            for number in self._order[:listed]:
                flow = load.flows[number]
                names = (*self._names(flow), flow.flow or None)
                own = predicted.bytes[number] if predicted else None
                rows += self._series(names, load.requested[number], load.reached[number], own, [(None, None)] * len(late))  # fmt: skip
        hidden = len(load.flows) - listed
        more = f"{plural(hidden, 'more flow')} with smaller shortfalls." if hidden > 0 else ""
        return Table("injected-intervals", f"Rates in {_unit(load)}s", columns, tuple(rows), more, MAX_SHOWN)

    def _series(
        self, names: tuple[Scalar, ...], requested: FloatArray | None, reached: FloatArray | None, predicted: FloatArray | None,
        late: Sequence[tuple[float | None, float | None]],
    ) -> list[tuple[Scalar, ...]]:  # fmt: skip
        assert requested is not None and reached is not None
        edges = self._load.edges_s.tolist()
        requested_rate, found = _rates(requested, self._load), _rates(reached, self._load)
        expected = _rates(predicted, self._load) if predicted is not None else [None] * len(requested_rate)
        backlog = (requested - reached).tolist()
        return [
            (*names, edges[n], edges[n + 1], requested_rate[n], found[n], found[n] / requested_rate[n] if requested_rate[n] else None, expected[n], backlog[n + 1], *late[n])
            for n in range(len(requested_rate))
        ]  # fmt: skip


def _ends(interval: RatioInterval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low, interval.high)


def _rates(cumulative: FloatArray, load: RequestedLoad) -> list[float]:
    return [float(rate) for rate in np.diff(cumulative) * BITS_PER_BYTE / np.diff(load.edges_s)]


def _plain(values: FloatArray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _unit(load: RequestedLoad) -> str:
    """Return the name of an interval."""
    width_s = float(load.edges_s[1] - load.edges_s[0])
    if load.in_minutes and round(width_s) == round(MINUTE_S):
        return "minute"
    return f"{format_duration(width_s)} interval"


# --- figures


def _figures(load: RequestedLoad, predicted: PredictedLoad | None) -> list[Figure]:
    middle = tuple(((load.edges_s[1:] + load.edges_s[:-1]) / 2).tolist())
    edges = tuple(load.edges_s.tolist())
    requested, reached = load.requested.sum(axis=0), load.reached.sum(axis=0)
    requested_rate = _rates(requested, load)
    series = [Series("requested", edges, (*requested_rate, 0.0), style="steps")]
    if predicted is not None:
        expected = _rates(predicted.bytes.sum(axis=0), load)
        during = tuple(rate if want > 0 else None for rate, want in zip(expected, requested_rate, strict=True))
        series.append(Series("predicted", middle, during, style="dashes"))
    series.append(Series("reached", middle, tuple(_rates(reached, load))))
    found = [
        Figure(
            "rates", "Requested and reached rates", (Panel("Rates", "time_s", "rate_bit_per_s", tuple(series), round_x=True),),
            f"All flows. Steps: requested. Line: reached, in {_unit(load)}s."
            + (" Dashes: predicted from the rates of links and storages." if predicted else ""),
        )
    ]  # fmt: skip
    backlog = Series("backlog", edges, tuple((requested - reached).tolist()))
    panels = [Panel("Backlog", "time_s", "backlog_bytes", (backlog,), round_x=True)]
    caption = "Backlog: requested minus delivered bytes, with the transfers in flight."
    late, most = _plain(load.late_s), _plain(load.max_late_s)
    if any(most):
        lateness = (
            Series("mean lateness", middle, tuple(late)),
            Series("largest lateness", middle, tuple(most), style="dashes"),
        )
        panels.append(Panel("Lateness", "time_s", "lateness_s", lateness, round_x=True))
        caption += " Lateness: actual minus scheduled start."
    found.append(Figure("backlog", "Backlog and lateness" if any(most) else "Backlog", tuple(panels), caption))
    return found


def _heat_maps(load: RequestedLoad) -> tuple[HeatMap, ...]:
    """Return the map of sources and destinations; none for a single pair."""
    requested: dict[tuple[str, str], float] = {}
    reached: dict[tuple[str, str], float] = {}
    for flow in load.flows:
        pair = _sites(flow)
        requested[pair] = requested.get(pair, 0.0) + flow.requested_bytes
        reached[pair] = reached.get(pair, 0.0) + flow.reached_bytes
    pairs = {pair: reached[pair] / bytes_ for pair, bytes_ in requested.items() if bytes_ > 0}
    if len(pairs) < 2:
        return ()
    return (
        HeatMap(
            "reached", "Reached bytes as a fraction of the requested bytes",
            tuple(sorted({source for source, _ in pairs})), tuple(sorted({destination for _, destination in pairs})),
            tuple((*pair, ratio) for pair, ratio in pairs.items()),
            "Sources are rows, destinations are columns. The lightest colour is 100 %.",
        ),
    )  # fmt: skip


# --- texts


def _percent(ratio: float) -> str:
    return format_quantity("reached_ratio", ratio)


def _headline(load: RequestedLoad, short: Sequence[LoadFlow], causes: Mapping[int, _Cause]) -> str:
    interval = ratio_interval(load.minutes)
    ratio = _percent(load.ratio)
    if interval is not None:
        low, high = (f"{100 * end:.3g}" for end in (interval.low, interval.high))
        ratio += f" [{low}, {high}]" if low != high else ""
    text = f"Reached {ratio} of the requested {format_bit_rate(load.requested_bit_per_s)}"
    count = len(load.flows)
    if not short:
        reach = f"all {count} flows reach their rate" if count > 1 else "the flow reaches its rate"
        return f"{text}; {reach}: no limit"
    which = f"{len(short)} of {count} flows fall{'s' if len(short) == 1 else ''} short" if count > 1 else "the flow falls short"  # fmt: skip
    return f"{text}; {which}, {_phrase(short, causes)}"


def _sentence(
    load: RequestedLoad, short: Sequence[LoadFlow], causes: Mapping[int, _Cause], predicted: PredictedLoad | None
) -> str:
    bound = f"{100 * (1 - SHORT):.0f} %"
    texts = [f"The run reached {_percent(load.ratio)} of the requested {format_bit_rate(load.requested_bit_per_s)}."]
    count = plural(len(load.flows), "flow")
    if not short:
        texts.append(f"No flow of {count} falls below {bound} of its rate.")
    else:
        worst = min(short, key=lambda flow: flow.ratio or 0.0)
        which = f"{len(short)} of {count} {'falls' if len(short) == 1 else 'fall'} below {bound} of {'its' if len(short) == 1 else 'their'} rate"  # fmt: skip
        low = f"{format_flow(worst)} with {_percent(worst.ratio or 0.0)} of {format_bit_rate(worst.requested_bit_per_s)}"
        texts.append(f"{which}; the lowest is {low}.")
        texts += _cause_texts(short, causes)
    minutes = load.minutes
    if minutes:
        texts.append(f"The lowest {_unit(load)} has {_percent(min(minutes))}.")
    if predicted is not None:
        expected = float(predicted.flow_bytes.sum()) / sum(flow.requested_bytes for flow in load.flows)
        texts.append(f"The links and storages allow {_percent(expected)}.")
    worst_late_s = max(flow.max_late_s for flow in load.flows)
    backlog = max(0.0, sum(flow.backlog_bytes for flow in load.flows))
    texts.append(f"The backlog at the end is {format_quantity('backlog_bytes', backlog)}; transfers start at most {format_duration(max(0.0, worst_late_s))} late.")  # fmt: skip
    return " ".join(texts)


def _cause_texts(short: Sequence[LoadFlow], causes: Mapping[int, _Cause]) -> list[str]:
    number = Counter(causes[id(flow)].text for flow in short)
    known = [f"{text} ({plural(count, 'flow')})" for text, count in number.most_common() if text != NOT_DECIDED]
    texts = (
        [f"Cause: {', '.join(known[:3])}{f' and {len(known) - 3} more' if len(known) > 3 else ''}."] if known else []
    )
    if number[NOT_DECIDED]:
        texts.append(f"No verdict decides the cause for {plural(number[NOT_DECIDED], 'flow')}.")
    return texts


def _note(load: RequestedLoad, predicted: PredictedLoad | None) -> str:
    texts = [f"Reached: bytes of successful transfers, {load.times}."]
    if load.times == EVENLY:
        texts.append("In overload, this shifts bytes of long transfers between intervals.")
    if load.kind == "replay":
        texts.append(
            "Requested: each transfer with its recorded duration, or at the pace of the fastest tenth of its flow."
        )
    if predicted is not None:
        texts.append(
            "Predicted: links and full storages are shared in proportion to the requests, as in venturi challenge."
        )
    elif load.kind == "inject":
        texts.append("No prediction: the run does not contain the links of all flows.")
    return " ".join(texts)
