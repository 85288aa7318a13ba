"""A study three times side by side: what its report published, what the lab gave at its scale, and what was simulated at full size.

What stands beside each other is what a study names with ``[[published.beside]]`` (a table of a chapter, columns of it, and the columns that
tell its rows apart), what any run of it holds against published values (:mod:`venturi.analysis.published`), and its claims. Values of a
scaled run are divided by its scales, so that all three are at full size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from venturi.analysis.chapter import Chapter, Column, Scalar, Table
from venturi.analysis.claims.rows import Scales
from venturi.analysis.published import published_rows
from venturi.analysis.quantity import quantity_text
from venturi.analysis.result import Analysis
from venturi.analysis.words import plural
from venturi.errors import RunError
from venturi.study import Study, study

__all__ = ["Told", "side_by_side", "told_of"]

_PRINTED = ("published", "printed")
_OF_A_TABLE = "rate"
"""What a published column without a word of its own (``published_bit_per_s``) is beside."""
_NAMES = {"sim": "simulated", "lab": "lab", "hosts": "hosts"}


@dataclass(frozen=True, slots=True)
class Told:
    """What one run of a study says, of what may stand beside others: from its analysis, or from the tables of its report.

    Attributes
    ----------
    study, backend
        Whose run it is, and who carried it out.
    scales
        By what its sizes and rates differ from the published ones.
    tables
        Rows of its chapters' tables by the name of the table, and those of the table ``published``.
    claims
        Verdict and evidence of each claim by its id; ``text`` says it.
    """

    study: str
    backend: str
    scales: Scales
    tables: Mapping[str, Sequence[Mapping[str, Scalar]]]
    claims: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Value:
    """One quantity: its unit is the last part of ``column``."""

    name: str
    column: str
    published: float | None
    ours: float | None


def told_of(analysis: Analysis) -> Told:
    """Return what an analysis says.

    Raises
    ------
    RunError
        If its run is of no study.
    """
    if not analysis.about.study:
        raise RunError(
            f"{analysis.about.name}: expected a run of a study, found one of no study; see `venturi study list`"
        )
    tables: dict[str, Sequence[Mapping[str, Scalar]]] = {
        table.name: [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]
        for chapter in analysis.chapters
        for table in chapter.tables
    }
    tables["published"] = list(published_rows(analysis))
    rates = analysis.testbed.rates_scale if analysis.testbed else 1.0
    claims = {c.id: {"verdict": c.verdict, "evidence": c.evidence, "text": c.text} for c in analysis.claims}
    return Told(analysis.about.study, analysis.about.backend, Scales(analysis.about.scale, rates), tables, claims)


def side_by_side(runs: Sequence[Told]) -> Chapter:
    """Return published values beside those of some runs of one study, in the order of the runs.

    Raises
    ------
    RunError
        If the runs are of several studies, or there is none.
    """
    names = sorted({run.study for run in runs})
    if len(names) != 1:
        raise RunError(f"expected runs of one study, found {', '.join(names) or 'none'}; compare them study by study")
    of = study(names[0])
    heads = _heads(runs)
    values = _values_table(of, runs, heads)
    claims = _claims_table(of, runs, heads)
    tables = tuple(table for table in (values, claims) if table.rows)
    return Chapter("side-by-side", "Published, and ours", _sentence(of, values, claims, heads), tables)


def _heads(runs: Sequence[Told]) -> list[str]:
    """Return what the runs are called in the heads of columns: the lab with its scale."""
    heads = []
    for run in runs:
        name = _NAMES.get(run.backend, run.backend)
        scale = run.scales.rates if run.scales.rates != 1 else run.scales.sizes
        heads.append(name if scale == 1 else f"{name} ÷ {scale:g}")
    return [head if heads.count(head) == 1 else f"{head} ({place + 1})" for place, head in enumerate(heads)]


# ---- values


def _values_table(of: Study, runs: Sequence[Told], heads: Sequence[str]) -> Table:
    found = [{(value.name, value.column): value for value in _values(of, run)} for run in runs]
    keys = list(dict.fromkeys(key for own in found for key in own))
    rows: list[tuple[Scalar, ...]] = []
    for key in keys:
        values = [own.get(key) for own in found]
        told = next((value.published for value in values if value and value.published is not None), None)
        ours = [value.ours if value else None for value in values]
        if told is None and sum(one is not None for one in ours) < min(2, len(runs)):
            continue
        ratios = [None if one is None or not told else one / told for one in ours]
        rows.append((
            key[0], _what(key[1]), _text(key[1], told), *(_text(key[1], one) for one in ours), *ratios,
            *([_over(ours[-1], ours[0])] if len(runs) == 2 else []), key[1], told, *ours,
        ))  # fmt: skip
    columns = (
        Column("quantity", "quantity"), Column("what", "what"), Column("published", "published", published=True),
        *(Column(f"run_{place + 1}", head) for place, head in enumerate(heads)),
        *(Column(f"run_{place + 1}_to_published_ratio", f"{head}, of published") for place, head in enumerate(heads)),
        *([Column("run_2_to_run_1_ratio", f"{heads[1]}, of {heads[0]}")] if len(runs) == 2 else []),
        Column("column", "in base units"), Column("published_value", "published", published=True),
        *(Column(f"run_{place + 1}_value", head) for place, head in enumerate(heads)),
    )  # fmt: skip
    note = "All at full size: what is divided by a scale (÷) was measured so much smaller. A dash: not published, or not measured."
    return Table("beside", "Values", columns, tuple(rows), note)


def _values(of: Study, run: Told) -> Iterator[_Value]:
    yield from _published_values(run)
    for told in of.published.beside:
        table, key = str(told["table"]), [str(name) for name in told["key"]]
        rows: dict[str, Mapping[str, Scalar]] = {}
        for row in run.tables.get(table, ()):
            texts = [str(told.get("name", "")), *(_key_text(k, row.get(k), run.scales) for k in key)]
            name = ", ".join(text for text in texts if text)
            if told.get("pick") == "last" or name not in rows:
                rows[name] = row
        for name, row in rows.items():
            for column in told["of"]:
                ours = _number(row.get(column))
                yield _Value(name, column, _number(row.get(_printed(column, row))), _full(ours, column, run.scales))


def _published_values(run: Told) -> Iterator[_Value]:
    """Yield totals, rates, tables and fits of which a report printed a value; of a range the middle."""
    for row in run.tables.get("published", ()):
        kind = str(row["kind"])
        factors = [
            _key_text(key.removeprefix("factor_"), value, run.scales)
            for key, value in row.items()
            if key.startswith("factor_") and value is not None
        ]
        told, ours = _middle(row, "published"), _middle(row, "ours")
        column = kind if kind.endswith("_per_s") else "mean_r2"
        name = ", ".join([str(row["name"]), *factors])
        if kind == "fit":
            told, name = _number(row.get("published")), f"mean R² of {str(row['note']).split(';')[0]} {name}"
        yield _Value(name, column, told, _full(ours, column, run.scales))


def _middle(row: Mapping[str, Scalar], name: str) -> float | None:
    found = [number for key in (name, f"{name}_other") if (number := _number(row.get(key))) is not None]
    return sum(found) / len(found) if found else None


def _printed(column: str, row: Mapping[str, Scalar]) -> str:
    """Return the name of the published column beside one of ours; one that is not there if there is none."""
    return next((name for name in row if column in _beside(name)), "")


def _beside(name: str) -> tuple[str, ...]:
    """Return of which columns a published one may be the counterpart, by its name."""
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
    return f"{words} {quantity_text(name, full)}"


def _full(value: float | None, column: str, scales: Scales) -> float | None:
    return None if value is None else value / scales.of(column)


def _text(column: str, value: float | None) -> Scalar:
    return None if value is None else quantity_text(column, value)


def _what(column: str) -> str:
    for unit in ("_bytes_per_s", "_bit_per_s", "_bytes", "_ratio", "_s"):
        column = column.removesuffix(unit)
    return column.replace("_", " ").replace("r2", "R²")


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# ---- claims


def _claims_table(of: Study, runs: Sequence[Told], heads: Sequence[str]) -> Table:
    ids = dict.fromkeys([str(claim["id"]) for claim in of.published.claims])
    rows: list[tuple[Scalar, ...]] = []
    for id_ in ids:
        own = [run.claims.get(id_) for run in runs]
        text = next((claim["text"] for claim in own if claim), None)
        if text is not None:
            verdicts = [claim["verdict"] if claim else None for claim in own]
            rows.append((id_, text, *verdicts, *(claim["evidence"] if claim else None for claim in own)))
    columns = (
        Column("id", "claim"), Column("text", "what the report says"),
        *(Column(f"run_{place + 1}_verdict", head) for place, head in enumerate(heads)),
        *(Column(f"run_{place + 1}_evidence", f"{head}, evidence") for place, head in enumerate(heads)),
    )  # fmt: skip
    return Table("beside-claims", "Claims", columns, tuple(rows))


def _sentence(of: Study, values: Table, claims: Table, heads: Sequence[str]) -> str:
    parts = [*_said_of_values(values, heads), *_said_of_claims(claims, heads)]
    return (
        f"{of.title}: {'; '.join(parts)}."
        if parts
        else f"{of.title}: nothing that the report published was measured."
    )


def _said_of_values(values: Table, heads: Sequence[str]) -> Iterable[str]:
    for place, head in enumerate(heads):
        at = 3 + len(heads) + place
        ratios = sorted(ratio for row in values.rows if (ratio := _number(row[at])) is not None)
        if ratios:
            middle = ratios[len(ratios) // 2]
            yield (
                f"{head}: {plural(len(ratios), 'published value')}, in the median {middle:.2g} of the published one"
                f" ({ratios[0]:.2g} to {ratios[-1]:.2g})"
            )


def _said_of_claims(claims: Table, heads: Sequence[str]) -> Iterable[str]:
    for place, head in enumerate(heads):
        verdicts = [row[2 + place] for row in claims.rows]
        agrees, against = verdicts.count("agrees"), verdicts.count("disagrees")
        if agrees or against:
            yield f"{head}: {plural(agrees, 'claim')} agree{'s' if agrees == 1 else ''}, {against} disagree{'s' if against == 1 else ''}"
