"""What a published report says, from its files alone: the run itself need not be there any more."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from venturi.analysis.beside import Told
from venturi.analysis.chapter import Scalar
from venturi.analysis.claims.rows import Scales
from venturi.errors import RunError

__all__ = ["ABOUT", "told_in"]

ABOUT = "about.json"


def told_in(folder: Path) -> Told:
    """Return what the report in a folder says, as ``scripts/publish-study.py`` writes it: ``about.json`` and tables as CSV.

    Raises
    ------
    RunError
        If the folder has no such report, or one that does not say at which scale it was carried out.
    """
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        tables = {path.stem: _rows(path) for path in sorted(folder.glob("*.csv"))}
        scales = Scales(float(about["scale"]), float(about["rates_scale"]))
        name, backend = str(about["study"]), str(about["backend"])
    except OSError as error:
        raise RunError(f"{error.filename}: expected the report of a study, found {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{folder / ABOUT}: expected study, backend, scale and rates_scale, found no {error}; publish the run again"
        ) from error
    claims = {
        str(row["id"]): {key: str(row[key] or "") for key in ("verdict", "evidence", "text")}
        for row in tables.get("claims", ())
    }
    return Told(name, backend, scales, tables, claims)


def _rows(path: Path) -> list[dict[str, Scalar]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return [{name: _cell(text) for name, text in row.items()} for row in csv.DictReader(lines)]


def _cell(text: str) -> Scalar:
    """Return a cell as it was before it was written: an empty one was not measured."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
