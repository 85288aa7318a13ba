"""Results of a study run from the files of its published report. The run itself is not needed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from venturi.analysis.claims.rows import Scales
from venturi.analysis.section import Scalar
from venturi.analysis.study_comparison import StudyResult
from venturi.errors import RunError

__all__ = ["ABOUT", "load_study_result"]

ABOUT = "about.json"


def load_study_result(directory: Path) -> StudyResult:
    """Return the results of a report directory: ``about.json`` and CSV tables.

    The script ``scripts/publish-study.py`` writes these files.

    Raises
    ------
    RunError
        If the directory has no report, or a report without its scale.
    """
    try:
        about = json.loads((directory / ABOUT).read_text(encoding="utf-8"))
        tables = {path.stem: _rows(path) for path in sorted(directory.glob("*.csv"))}
        scales = Scales(float(about["scale"]), float(about["rates_scale"]))
        name, backend = str(about["study"]), str(about["backend"])
    except OSError as error:
        raise RunError(f"{error.filename}: expected the report of a study, found {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{directory / ABOUT}: expected study, backend, scale and rates_scale, found no {error}; publish the run again"
        ) from error
    claims = {
        str(row["id"]): {key: str(row[key] or "") for key in ("verdict", "evidence", "text")}
        for row in tables.get("claims", ())
    }
    return StudyResult(name, backend, scales, tables, claims)


def _rows(path: Path) -> list[dict[str, Scalar]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return [{name: _cell(text) for name, text in row.items()} for row in csv.DictReader(lines)]


def _cell(text: str) -> Scalar:
    """Return the original value of a CSV cell. An empty cell was not measured."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
