"""Transfers of datasets between many interfaces: measured and published rates of each dataset, as a table and as grouped bars.

The rate covers a whole dataset: bytes of all calls of a repetition, from the first start to the last end, including
logins. Repetitions have no rate if a call failed or if a resumed run split them in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from venturi.analysis.format import format_factor_name, format_factor_value, format_sentences
from venturi.analysis.intervals import trial_interval
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.run import Run
from venturi.study import study
from venturi.units import BITS_PER_BYTE, format_bit_rate, format_bit_rate_ends

__all__ = ["datasets_section"]

_RATE = "rate_bit_per_s"
_UNIT = "_bit_per_s"
ALIKE = 1e-6
"""Relative width of an interval below which repetitions count as equal."""


@dataclass(frozen=True, slots=True)
class _DatasetRow:
    """Design point with its factors, the size of one repetition, and the rate of each repetition."""

    factors: Mapping[str, Scalar]
    set: str
    pairs: int
    calls: int
    files: int
    volume_bytes: int
    left_out: int
    rates_bit_per_s: tuple[float, ...]

    @property
    def rate_bit_per_s(self) -> float | None:
        return fmean(self.rates_bit_per_s) if self.rates_bit_per_s else None

    def files_per_s(self) -> float | None:
        rate = self.rate_bit_per_s
        return (
            None if rate is None or not self.volume_bytes else rate / BITS_PER_BYTE * self.files / self.volume_bytes
        )


def datasets_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of the workload ``dataset``, or ``None`` for another workload or before the first point is done."""
    workload = about.scenario.get("workload")
    if not isinstance(workload, Mapping) or workload.get("kind") != "dataset":
        return None
    rows = _rows(run, workload)
    if not rows:
        return None
    published = _published(about)
    return ReportSection(
        "datasets",
        "Datasets",
        _sentence(rows, published, about.scale),
        (_table(rows, published, about.scale),),
        (_figure(rows, published, about),),
        headline=_headline(rows, about),
    )


def _rows(run: Run, workload: Mapping[str, Any]) -> list[_DatasetRow]:
    factors = run.factors
    chosen = "".join(f', any_value("factor_{name}") AS "factor_{name}"' for name in factors)
    found = run.query(
        f"""WITH rounds AS (
                SELECT point, repetition, count(*) AS calls, sum(files) AS files, sum(requested_bytes) AS bytes,
                       count(DISTINCT labels::JSON->>'pair') AS pairs, count(DISTINCT session) = 1 AND bool_and(outcome = 'ok') AS whole,
                       max(end_s) - min(start_s) AS time_s {chosen}
                FROM transfers WHERE point IS NOT NULL GROUP BY point, repetition)
            SELECT point, max(calls) AS calls, max(files) AS files, max(bytes) AS bytes, max(pairs) AS pairs, count(*) FILTER (NOT whole) AS left_out,
                   coalesce(list(bytes / time_s ORDER BY repetition) FILTER (whole AND time_s > 0), []) AS rates {chosen}
            FROM rounds GROUP BY point ORDER BY point"""
    )
    return [
        _DatasetRow(
            factors={name: _to_scalar(found[f"factor_{name}"][index]) for name in factors},
            set=str(found["factor_set"][index] if "set" in factors else workload.get("set", "")),
            pairs=int(found["pairs"][index]),
            calls=int(found["calls"][index]),
            files=int(found["files"][index]),
            volume_bytes=int(found["bytes"][index]),
            left_out=int(found["left_out"][index]),
            rates_bit_per_s=tuple(float(rate) * BITS_PER_BYTE for rate in found["rates"][index]),
        )
        for index in range(len(found["point"]))
    ]


def _to_scalar(value: Any) -> Scalar:  # noqa: ANN401 - a cell of any column
    scalar = value.item() if hasattr(value, "item") else value
    return None if scalar != scalar else scalar


def _published(about: About) -> dict[str, dict[str, float]]:
    """Return published rates by column and dataset, from the tables with one row for each dataset."""
    if about.study is None:
        return {}
    found: dict[str, dict[str, float]] = {}
    for table in study(about.study).published.tables:
        sets = [row.get("set") for row in table.rows]
        if "set" not in table.columns or len(set(sets)) < len(sets):
            continue
        for column in (column for column in table.columns if column.endswith(_UNIT)):
            rates = {
                str(row["set"]): float(rate) for row in table.rows if isinstance(rate := row[column], int | float)
            }
            found.setdefault(column, {}).update(rates)
    return found


def _table(rows: Sequence[_DatasetRow], published: Mapping[str, Mapping[str, float]], scale: float) -> Table:
    varied = [name for name in rows[0].factors if name != "set" and len({row.factors[name] for row in rows}) > 1]
    ours = published.get(_RATE, {})
    columns = [
        Column("set", "Files"),
        *(Column(name, format_factor_name(name).capitalize()) for name in varied),
        Column("pairs", "Pairs"),
        Column("calls", "Calls"),
        Column("files", "Files moved"),
        Column("volume_bytes", "Volume"),
        Column("repetitions", "Repetitions"),
        Column(_RATE, "Rate"),
        Column("low_bit_per_s", "Lowest"),
        Column("high_bit_per_s", "Highest"),
        Column("files_per_s", "Files per second"),
        Column("full_bit_per_s", "Rate ÷ scale"),
        *(Column(_published_name(name), f"{_tool_columns(name)}, published", published=True) for name in published),
        *([Column("to_published_ratio", "Ratio to published")] if ours else []),
    ]
    cells = []
    for row in rows:
        rate = row.rate_bit_per_s
        full = None if rate is None else rate / scale
        printed = ours.get(row.set)
        ends = (min(row.rates_bit_per_s), max(row.rates_bit_per_s)) if row.rates_bit_per_s else (None, None)
        cells.append((
            row.set, *(row.factors[name] for name in varied), row.pairs, row.calls, row.files, row.volume_bytes,
            len(row.rates_bit_per_s), rate, *ends, row.files_per_s(), full, *(rates.get(row.set) for rates in published.values()),
            *([None if full is None or not printed else full / printed] if ours else []),
        ))  # fmt: skip
    left_out = sum(row.left_out for row in rows)
    note = "Bytes of all calls of a repetition, divided by the time from the first start to the last end, including logins."
    if left_out:
        note += f" Excluded: {left_out} repetitions with a failed call, or interrupted and resumed."
    return Table("dataset-rates", "Datasets: this run and published", tuple(columns), tuple(cells), note)


def _published_name(column: str) -> str:
    return f"{column.removesuffix(_UNIT)}_published{_UNIT}"


def _tool_columns(column: str) -> str:
    return column.removesuffix(_UNIT).replace("_", " ").capitalize()


def _figure(rows: Sequence[_DatasetRow], published: Mapping[str, Mapping[str, float]], about: About) -> Figure:
    sets = tuple(
        dict.fromkeys((*(name for rates in published.values() for name in rates), *(row.set for row in rows)))
    )
    series = []
    for label, own in _by_kind(rows).items():
        rates = {row.set: row.rates_bit_per_s for row in own if row.rates_bit_per_s}

        def bars(of: Any, rates: dict[str, tuple[float, ...]] = rates) -> tuple[float | None, ...]:  # noqa: ANN401
            return tuple(of(rates[name]) / about.scale if name in rates else None for name in sets)

        series.append(Series(label, sets, bars(fmean), bars(min), bars(max), style="bars"))
    for column, values in published.items():
        published_bars = tuple(values.get(name) for name in sets)
        series.append(
            Series(f"{_tool_columns(column)}, published", sets, published_bars, style="bars", published=True)
        )
    panel = Panel("Rate by dataset", "set", _RATE, tuple(series), y_log=_wide(rows))
    scaled = f" Rates of this run are divided by the scale ({about.scale:g})." if about.scale != 1 else ""
    caption = f"Mean over repetitions; error bars from the lowest to the highest.{scaled}"
    return Figure("dataset-rates", "Datasets", (panel,), caption, "002, figure 5" if about.study else "")


def _by_kind(rows: Sequence[_DatasetRow]) -> dict[str, list[_DatasetRow]]:
    """Return the rows in groups with at most one row for each dataset, named by the factors that vary within a dataset."""
    names = [name for name in rows[0].factors if name != "set"]
    distinguishing = [
        name
        for name in names
        if any(
            one.set == other.set and one.factors[name] != other.factors[name] for one in rows for other in rows
        )
    ]  # fmt: skip
    found: dict[str, list[_DatasetRow]] = {}
    for row in rows:
        rates_text = ", ".join(
            f"{format_factor_name(name)} {format_factor_value(name, row.factors[name])}" for name in distinguishing
        )
        found.setdefault(rates_text or "ours", []).append(row)
    return found


def _wide(rows: Sequence[_DatasetRow]) -> bool:
    rates = [rate for row in rows if (rate := row.rate_bit_per_s)]
    return bool(rates) and max(rates) > 20 * min(rates)


def _headline(rows: Sequence[_DatasetRow], about: About) -> str:
    """Return the range of the rates at full size, as in the figure, and the interval of the highest one."""
    known = sorted((row for row in rows if row.rate_bit_per_s), key=lambda row: row.rate_bit_per_s or 0.0)
    if not known:
        return "No complete dataset has been transferred yet"
    best = known[-1]
    rates = format_bit_rate_ends(*((row.rate_bit_per_s or 0.0) / about.scale for row in (known[0], best)))
    rates += "" if about.scale == 1 else " at full size"
    interval = trial_interval(np.array(best.rates_bit_per_s) / about.scale, level=about.confidence)
    bound = ""
    if interval is not None and interval.high - interval.low > ALIKE * interval.estimate:
        bound = f" [{format_bit_rate(interval.low)}, {format_bit_rate(interval.high)}]"
    most = f"; highest with the dataset {best.set}" if len({row.set for row in rows}) > 1 else ""
    return f"{rates}{bound}{most}"


def _sentence(rows: Sequence[_DatasetRow], published: Mapping[str, Mapping[str, float]], scale: float) -> str:
    printed = published.get(_RATE, {})
    texts = []
    for name in dict.fromkeys(row.set for row in rows):
        rates = [rate / scale for row in rows if row.set == name and (rate := row.rate_bit_per_s) is not None]
        if not rates:
            continue
        rates_text = [format_bit_rate(rate) for rate in sorted({min(rates), max(rates)})]
        published_text = f" (published {format_bit_rate(printed[name])})" if name in printed else ""
        texts.append(f"dataset {name}: {' to '.join(rates_text)}{published_text}")
    if not texts:
        return "No complete dataset has been transferred yet."
    return format_sentences([*texts, "" if scale == 1 else f"rates are divided by the scale, {scale:g}"])
