"""Comparison of a study in up to three forms: published, measured in the lab at its scale, and simulated at full size.

The comparison has three parts:

- The values that a study names with ``[[published.comparison]]``: a table of a section, its value columns, and the key
  columns of its rows.
- The published values that any run of the study is compared with (:mod:`venturi.analysis.published`).
- The claims of the study.

Values of a scaled run are divided by its scales, so that all values are at full size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from venturi.analysis.claims.rows import Scales
from venturi.analysis.format import plural
from venturi.analysis.published import published_rows
from venturi.analysis.quantity import format_quantity
from venturi.analysis.result import Analysis
from venturi.analysis.section import Column, ReportSection, Scalar, Table
from venturi.errors import RunError
from venturi.study import Study, study

__all__ = ["StudyResult", "compare_study_results", "study_result"]

_PRINTED = ("published", "printed")
_OF_A_TABLE = "rate"
"""Prefix of our column for a published column with only a unit: ``published_bit_per_s`` → ``rate_bit_per_s``."""
_NAMES = {"sim": "simulated", "lab": "lab", "hosts": "hosts"}


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Results of one run of a study that can be compared, from its analysis or from the tables of its report.

    Attributes
    ----------
    study, backend
        Study of the run, and the backend that executed it.
    scales
        Ratios of its sizes and rates to the published ones.
    tables
        Rows of the tables of its sections by table name, and the rows of the table ``published``.
    claims
        Verdict, evidence and text of each claim by its id.
    """

    study: str
    backend: str
    scales: Scales
    tables: Mapping[str, Sequence[Mapping[str, Scalar]]]
    claims: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Value:
    """One quantity, whose unit is the last part of ``column``."""

    name: str
    column: str
    published: float | None
    ours: float | None


def study_result(analysis: Analysis) -> StudyResult:
    """Return the study result of an analysis.

    Raises
    ------
    RunError
        If the run belongs to no study.
    """
    if not analysis.about.study:
        raise RunError(
            f"{analysis.about.name}: expected a run of a study, found a run without a study; see `venturi study list`"
        )
    tables: dict[str, Sequence[Mapping[str, Scalar]]] = {
        table.name: [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]
        for section in analysis.sections
        for table in section.tables
    }
    tables["published"] = list(published_rows(analysis))
    rates = analysis.testbed.rates_scale if analysis.testbed else 1.0
    claims = {c.id: {"verdict": c.verdict, "evidence": c.evidence, "text": c.text} for c in analysis.claims}
    return StudyResult(
        analysis.about.study, analysis.about.backend, Scales(analysis.about.scale, rates), tables, claims
    )


def compare_study_results(runs: Sequence[StudyResult]) -> ReportSection:
    """Return published values and the values of several runs of one study, in the order of the runs.

    Raises
    ------
    RunError
        If the runs belong to several studies, or the sequence is empty.
    """
    names = sorted({run.study for run in runs})
    if len(names) != 1:
        raise RunError(
            f"expected runs of one study, found {', '.join(names) or 'none'}; compare the runs of each study separately"
        )
    of = study(names[0])
    heads = _heads(runs)
    values = _values_table(of, runs, heads)
    claims = _claims_table(of, runs, heads)
    tables = tuple(table for table in (values, claims) if table.rows)
    return ReportSection(
        "side-by-side", "Comparison with published values", _sentence(of, values, claims, heads), tables
    )


def _heads(runs: Sequence[StudyResult]) -> list[str]:
    """Return the column heads of the runs. The head of a scaled run includes its scale."""
    heads = []
    for run in runs:
        name = _NAMES.get(run.backend, run.backend)
        scale = run.scales.rates if run.scales.rates != 1 else run.scales.sizes
        heads.append(name if scale == 1 else f"{name} ÷ {scale:g}")
    return [head if heads.count(head) == 1 else f"{head} ({index + 1})" for index, head in enumerate(heads)]


# ---- values


def _values_table(of: Study, runs: Sequence[StudyResult], heads: Sequence[str]) -> Table:
    found = [{(value.name, value.column): value for value in _values(of, run)} for run in runs]
    keys = list(dict.fromkeys(key for own in found for key in own))
    rows: list[tuple[Scalar, ...]] = []
    for key in keys:
        values = [own.get(key) for own in found]
        published_value = next((value.published for value in values if value and value.published is not None), None)
        ours = [value.ours if value else None for value in values]
        if published_value is None and sum(one is not None for one in ours) < min(2, len(runs)):
            continue
        ratios = [None if one is None or not published_value else one / published_value for one in ours]
        rows.append((
            key[0], _what(key[1]), _text(key[1], published_value), *(_text(key[1], one) for one in ours), *ratios,
            *([_over(ours[-1], ours[0])] if len(runs) == 2 else []), key[1], published_value, *ours,
        ))  # fmt: skip
    columns = (
        Column("quantity", "quantity"), Column("what", "what"), Column("published", "published", published=True),
        *(Column(f"run_{index + 1}", head) for index, head in enumerate(heads)),
        *(Column(f"run_{index + 1}_to_published_ratio", f"{head}, ratio to published") for index, head in enumerate(heads)),
        *([Column("run_2_to_run_1_ratio", f"{heads[1]}, ratio to {heads[0]}")] if len(runs) == 2 else []),
        Column("column", "column (base unit)"), Column("published_value", "published", published=True),
        *(Column(f"run_{index + 1}_value", head) for index, head in enumerate(heads)),
    )  # fmt: skip
    note = "All values are at full size: the values of a scaled run are divided by its scale (÷). A dash means not published or not measured."
    return Table("comparison", "Values", columns, tuple(rows), note)


def _values(of: Study, run: StudyResult) -> Iterator[_Value]:
    yield from _published_values(run)
    for published_value in of.published.comparison:
        table, key = str(published_value["table"]), [str(name) for name in published_value["key"]]
        rows: dict[str, Mapping[str, Scalar]] = {}
        for row in run.tables.get(table, ()):
            texts = [str(published_value.get("name", "")), *(_key_text(k, row.get(k), run.scales) for k in key)]
            name = ", ".join(text for text in texts if text)
            if published_value.get("pick") == "last" or name not in rows:
                rows[name] = row
        for name, row in rows.items():
            for column in published_value["of"]:
                ours = _number(row.get(column))
                yield _Value(name, column, _number(row.get(_printed(column, row))), _full(ours, column, run.scales))


def _published_values(run: StudyResult) -> Iterator[_Value]:
    """Yield totals, rates, tables and fits with a published value. The value of a range is its middle."""
    for row in run.tables.get("published", ()):
        kind = str(row["kind"])
        factors = [
            _key_text(key.removeprefix("factor_"), value, run.scales)
            for key, value in row.items()
            if key.startswith("factor_") and value is not None
        ]
        published_value, ours = _middle(row, "published"), _middle(row, "ours")
        column = kind if kind.endswith("_per_s") else "mean_r2"
        name = ", ".join([str(row["name"]), *factors])
        if kind == "fit":
            published_value, name = (
                _number(row.get("published")),
                f"mean R² of {str(row['note']).split(';')[0]} {name}",
            )
        yield _Value(name, column, published_value, _full(ours, column, run.scales))


def _middle(row: Mapping[str, Scalar], name: str) -> float | None:
    found = [number for key in (name, f"{name}_other") if (number := _number(row.get(key))) is not None]
    return sum(found) / len(found) if found else None


def _printed(column: str, row: Mapping[str, Scalar]) -> str:
    """Return the name of the published column for one of our columns, or an empty string without a match."""
    return next((name for name in row if column in _selected_values(name)), "")


def _selected_values(name: str) -> tuple[str, ...]:
    """Return the names of our columns that a published column can correspond to."""
    parts = name.split("_")
    if not set(parts) & set(_PRINTED):
        return ()
    rest = "_".join(part for part in parts if part not in _PRINTED)
    return rest, f"{_OF_A_TABLE}_{rest}"


def _key_text(name: str, cell: Scalar, scales: Scales) -> str:
    if cell is None or cell == "":
        return ""
    if isinstance(cell, str):
        return cell
    full = _full(float(cell), name, scales) if not isinstance(cell, bool) else cell
    words = name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")
    return f"{words} {format_quantity(name, full)}"


def _full(value: float | None, column: str, scales: Scales) -> float | None:
    return None if value is None else value / scales.of(column)


def _text(column: str, value: float | None) -> Scalar:
    return None if value is None else format_quantity(column, value)


def _what(column: str) -> str:
    for unit in ("_bytes_per_s", "_bit_per_s", "_bytes", "_ratio", "_s"):
        column = column.removesuffix(unit)
    return column.replace("_", " ").replace("r2", "R²")


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# ---- claims


def _claims_table(of: Study, runs: Sequence[StudyResult], heads: Sequence[str]) -> Table:
    ids = dict.fromkeys([str(claim["id"]) for claim in of.published.claims])
    rows: list[tuple[Scalar, ...]] = []
    for id_ in ids:
        own = [run.claims.get(id_) for run in runs]
        text = next((claim["text"] for claim in own if claim), None)
        if text is not None:
            verdicts = [claim["verdict"] if claim else None for claim in own]
            rows.append((id_, text, *verdicts, *(claim["evidence"] if claim else None for claim in own)))
    columns = (
        Column("id", "claim"), Column("text", "published statement"),
        *(Column(f"run_{index + 1}_verdict", head) for index, head in enumerate(heads)),
        *(Column(f"run_{index + 1}_evidence", f"{head}, evidence") for index, head in enumerate(heads)),
    )  # fmt: skip
    return Table("comparison-claims", "Claims", columns, tuple(rows))


def _sentence(of: Study, values: Table, claims: Table, heads: Sequence[str]) -> str:
    parts = [*_values_text(values, heads), *_claims_text(claims, heads)]
    return f"{of.title}: {'; '.join(parts)}." if parts else f"{of.title}: no published value was measured."


def _values_text(values: Table, heads: Sequence[str]) -> Iterable[str]:
    for index, head in enumerate(heads):
        at = 3 + len(heads) + index
        ratios = sorted(ratio for row in values.rows if (ratio := _number(row[at])) is not None)
        if ratios:
            middle = ratios[len(ratios) // 2]
            yield (
                f"{head}: {plural(len(ratios), 'published value')}, median ratio to published {middle:.2g}"
                f" ({ratios[0]:.2g} to {ratios[-1]:.2g})"
            )


def _claims_text(claims: Table, heads: Sequence[str]) -> Iterable[str]:
    for index, head in enumerate(heads):
        verdicts = [row[2 + index] for row in claims.rows]
        agrees, against = verdicts.count("agrees"), verdicts.count("disagrees")
        if agrees or against:
            yield f"{head}: {plural(agrees, 'claim')} agree{'s' if agrees == 1 else ''}, {against} disagree{'s' if against == 1 else ''}"
