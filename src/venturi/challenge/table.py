"""Table of a data challenge: the required rates between sites, as CSV or TOML.

Columns: ``from`` and ``to`` (sites, hosts or storages), ``rate``, and optionally ``start``, ``end`` and ``sizes``.
Values have units, as in scenarios. In TOML, each row is a table ``[[row]]``. Errors name the file, the line and the
column.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import ScenarioError, UnitError
from venturi.messages import Problem, quote_value, suggestion
from venturi.scenario.document import read_document
from venturi.units import parse_bytes, parse_duration, parse_rate_bit_per_s

__all__ = ["COLUMNS", "MAX_TABLE_ROWS", "ChallengeRow", "ChallengeTable", "read_table"]

COLUMNS = ("from", "to", "rate", "start", "end", "sizes")
"""Columns of a table; the first three are required."""

REQUIRED = COLUMNS[:3]

MAX_TABLE_ROWS = 200_000
"""Maximum number of rows: all pairs of 450 sites."""

ROW = "row"
"""Name of the tables of a TOML file."""

_TABLE_LINE = re.compile(r"\s*\[\[\s*row\s*\]\]\s*(#.*)?")
_OTHER_LINE = re.compile(r"\s*\[")
_KEY_LINE = re.compile(r"\s*\"?(\w+)\"?\s*=")


@dataclass(frozen=True, slots=True)
class ChallengeRow:
    """Required rate between two sites, hosts or storages.

    Attributes
    ----------
    where
        Location in the table, such as ``line 3``.
    rate_bit_per_s
        Required rate of file data, for all storages of the two names together.
    start_s, end_s
        Period since the start of the challenge. ``end_s`` is infinite without an end.
    sizes_bytes
        File sizes, with equal frequencies; empty if the table has none.
    """

    where: str
    source: str
    destination: str
    rate_bit_per_s: float
    start_s: float = 0.0
    end_s: float = math.inf
    sizes_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChallengeTable:
    """Rows of a table, in their order, and the name of the table for messages."""

    rows: tuple[ChallengeRow, ...]
    source: str

    @property
    def has_end(self) -> bool:
        """True if the challenge has an end. Without an end, all rates are for an unlimited time."""
        return all(math.isfinite(row.end_s) for row in self.rows)


def read_table(path: Path) -> ChallengeTable:
    """Return the table of a CSV or TOML file. The names of the rows are not checked.

    Raises
    ------
    ScenarioError
        With all problems: line, column, expected and found value, next step.
    """
    problems: list[Problem] = []
    reader = _toml_cells if path.suffix.lower() == ".toml" else _csv_cells
    rows = [_row(where, cells, lines, problems) for where, cells, lines in reader(path, problems)]
    table = ChallengeTable(tuple(row for row in rows if row is not None), str(path))
    if not problems and not rows:
        problems.append(("", f"expected one row or more, found none; add a row with {', '.join(REQUIRED)}"))
    if not problems:
        _check_ends(table, problems)
    if problems:
        raise ScenarioError(problems, str(path))
    return table


def _check_ends(table: ChallengeTable, problems: list[Problem]) -> None:
    """Reject a table where only some rows have a period."""
    if table.has_end or all(math.isinf(row.end_s) and row.start_s == 0 for row in table.rows):
        return
    problems += [
        (f"{row.where}: end", 'expected a time such as "2 h" (because other rows have times), found nothing; add it')
        for row in table.rows
        if math.isinf(row.end_s)
    ]  # fmt: skip


_Cells = tuple[str, Mapping[str, Any], Mapping[str, str]]
"""Location of a row, its values by column, and the locations of its columns."""


def _csv_cells(path: Path, problems: list[Problem]) -> Iterator[_Cells]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problems.append(("", f"expected a readable file, found none ({error.strerror}); check the path"))
        return
    except UnicodeDecodeError as error:
        problems.append(
            ("", f"expected UTF-8 text, found byte {error.object[error.start]:#04x}; save the file as UTF-8")
        )
        return
    reader = csv.reader(io.StringIO(text, newline=""))
    names: list[str] = []
    number = 0
    try:
        for written in reader:
            line, cells = f"line {reader.line_num}", [cell.strip() for cell in written]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if not names:
                names = [cell.lower() for cell in cells]
                if not _check_columns(line, names, problems):
                    return
                continue
            number += 1
            if len(cells) > len(names):
                problems.append(
                    (line, f"expected {len(names)} columns, found {len(cells)}; quote values with commas")
                )
            elif number > MAX_TABLE_ROWS:
                problems.append((line, f"expected at most {MAX_TABLE_ROWS} rows, found more; split the table"))
                return
            else:
                values = {name: cell for name, cell in zip(names, cells, strict=False) if cell}
                yield line, values, {}
    except csv.Error as error:
        problems.append((f"line {reader.line_num}", f"expected CSV, found an error ({error}); correct the line"))
        return
    if not names:
        problems.append(
            ("line 1", f"expected the columns {', '.join(COLUMNS)}, found nothing; write them in the first line")
        )


def _check_columns(line: str, names: list[str], problems: list[Problem]) -> bool:
    before = len(problems)
    for name in dict.fromkeys(names):
        if name not in COLUMNS:
            hint = suggestion(name, COLUMNS) or "; remove the column"
            problems.append((line, f"expected the columns {', '.join(COLUMNS)}, found {quote_value(name)}{hint}"))
        elif names.count(name) > 1:
            problems.append(
                (f"{line}: {name}", f"expected one column {name}, found {names.count(name)}; remove the others")
            )
    problems += [
        (line, f"expected the column {name}, found {', '.join(names)}; add the column") for name in REQUIRED if name not in names
    ]  # fmt: skip
    return len(problems) == before


def _toml_cells(path: Path, problems: list[Problem]) -> Iterator[_Cells]:
    document = read_document(path, ())
    problems += document.problems
    if document.problems:
        return
    written = document.data.get(ROW, [])
    others = [key for key in document.data if key != ROW]
    for key in others:
        problems.append(
            (key, f"expected only tables [[{ROW}]], found {key}{suggestion(key, [ROW]) or '; remove it'}")
        )
    if not isinstance(written, list) or not all(isinstance(row, dict) for row in written):
        problems.append(
            (ROW, f"expected tables [[{ROW}]], found {quote_value(written)}; write [[{ROW}]] above each row")
        )
        return
    lines = _table_lines(path.read_text(encoding="utf-8-sig"))
    for number, row in enumerate(written):
        known = lines[number] if len(lines) == len(written) else {}
        where = known.get("", f"{ROW}[{number}]")
        for key in row:
            if key not in COLUMNS:
                hint = suggestion(key, COLUMNS) or "; remove this key"
                problems.append(
                    (known.get(key, where), f"expected one of the keys {', '.join(COLUMNS)}, found {key}{hint}")
                )
        yield where, row, known


def _table_lines(text: str) -> list[dict[str, str]]:
    """Return for each table ``[[row]]`` its line (key ``""``) and the lines of its keys."""
    found: list[dict[str, str]] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if _TABLE_LINE.fullmatch(line):
            found.append({"": f"line {number}"})
            inside = True
        elif _OTHER_LINE.match(line):
            inside = False
        elif inside and (match := _KEY_LINE.match(line)):
            found[-1].setdefault(match[1], f"line {number}")
    return found


def _row(
    where: str, cells: Mapping[str, Any], lines: Mapping[str, str], problems: list[Problem]
) -> ChallengeRow | None:
    """Return a row, or ``None`` after an error."""
    before = len(problems)

    def at(column: str) -> str:
        return f"{lines.get(column, where)}: {column}"

    def parsed(column: str, parse: Any, default: Any) -> Any:  # noqa: ANN401 - a parser of any type
        if column not in cells:
            return default
        try:
            return parse(cells[column])
        except UnitError as error:
            problems.append((at(column), _with_next_step(str(error))))
            return default

    for column in REQUIRED:
        if column not in cells:
            example = '"10 Gb/s"' if column == "rate" else "a site, host or storage"
            problems.append((at(column), f"expected {example}, found nothing; add the {column}"))
        elif column != "rate" and not isinstance(cells[column], str):
            problems.append((at(column), f"expected a name, found {quote_value(cells[column])}; write a text"))
    rate = parsed("rate", parse_rate_bit_per_s, 1.0)
    start_s, end_s = parsed("start", parse_duration, 0.0), parsed("end", parse_duration, math.inf)
    sizes = parsed("sizes", _sizes, ())
    if len(problems) > before:
        return None
    if not 0 < rate < math.inf:
        problems.append(
            (
                at("rate"),
                f"expected a rate above 0, found {quote_value(cells['rate'])}; correct it, or remove the row",
            )
        )
    if end_s <= start_s:
        problems.append(
            (
                at("end"),
                f"expected an end after the start ({start_s:g} s), found {quote_value(cells['end'])}; use a later end",
            )
        )
    if len(problems) > before:
        return None
    return ChallengeRow(where, cells["from"], cells["to"], rate, start_s, end_s, sizes)


def _with_next_step(message: str) -> str:
    return message if ";" in message else f"{message}; correct the value"


def _sizes(value: object) -> tuple[int, ...]:
    """Return the sizes of a list, or of a text such as ``1 GB; 2 GB``."""
    parts = value if isinstance(value, list) else [part for part in str(value).split(";") if part.strip()]
    sizes = tuple(parse_bytes(part) for part in parts)
    if not sizes or 0 in sizes or len(set(sizes)) < len(sizes):
        raise UnitError(
            f'expected distinct sizes above 0 such as "1 GB; 2 GB", found {quote_value(value)}; change the sizes'
        )
    return sizes
