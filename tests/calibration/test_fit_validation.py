"""``venturi fit -o`` and ``venturi validate FIT RUN``: a fit of one simulated run is judged against other runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrationkit import planted, scenario, simulated_run
from typer.testing import CliRunner

from venturi.calibration.fit_document import read_fit, saved_values
from venturi.calibration.fit_validation import validate_fit
from venturi.calibration.fit_validation_section import fit_validation_section
from venturi.cli.root import app
from venturi.errors import FitError, SampleError
from venturi.model import FAMILIES, Curve, fit
from venturi.run import Run

COST = planted({"start_s": 0.3}, {"process_bytes_per_s": 30e6})
SIZES = ["1 MB", "3 MB", "10 MB", "20 MB", "40 MB", "100 MB"]
OTHER_SIZES = ["2 MB", "5 MB", "8 MB", "15 MB", "30 MB", "60 MB", "200 MB"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fits")


def run_of(base: Path, name: str, sizes: list[str], process: float = 30e6, seed: int = 1, **factors: Any) -> Run:
    document = scenario("20 ms", **{"files": [1], "size": sizes, **factors})
    document["name"] = name
    cost = planted({"start_s": 0.3}, {"process_bytes_per_s": process})
    return simulated_run(base / name, document, cost, scatter=0.03, seed=seed)


@pytest.fixture(scope="module")
def fitted(base: Path) -> Run:
    return run_of(base, "fitted", SIZES)


@pytest.fixture(scope="module")
def same(base: Path) -> Run:
    return run_of(base, "same", OTHER_SIZES, seed=2)


@pytest.fixture(scope="module")
def saved(base: Path, fitted: Run) -> Path:
    done = CliRunner().invoke(
        app, ["fit", str(fitted.path), "--against", "size", "--family", "setup", "-o", str(base / "fit.json")]
    )
    assert done.exit_code == 0, done.output
    return base / "fit.json"


def changed(saved: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    document = copy.deepcopy(json.loads(saved.read_text()))
    change(document)
    path.write_text(json.dumps(document))
    return path


def test_a_fit_holds_on_another_run_of_the_same_path(saved: Path, same: Run, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", str(saved), str(same.path), "--json", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["format"], found["holds"]) == ("venturi-fit-validation", "yes")
    # 200 MB is outside of the fitted range.
    assert found["errors"]["n"] == 6 and found["errors_extrapolated"]["n"] == 1
    # Times scatter by 3 %; the median of 6 trials by 1.5 %.
    assert found["errors"]["median"] < 0.03 and abs(found["errors"]["bias"]) < 0.03
    (outside,) = [one for one in found["points"] if one["extrapolated"]]
    assert outside["x"] == 200e6
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"fit-validation.html", "fit-validation-points.csv", "fit-validation-extrapolated.csv"} <= names
    assert any(name.endswith(".png") for name in names)
    page = (tmp_path / "out" / "fit-validation.html").read_text(encoding="utf-8")
    assert "The model holds on this run" in page and "<svg" in page


def test_a_fit_does_not_hold_on_a_slower_server(saved: Path, base: Path) -> None:
    slower = run_of(base, "slower", OTHER_SIZES, process=15e6, seed=3)
    result = validate_fit(read_fit(saved), slower)
    assert result.holds == "no" and result.errors.bias is not None and result.errors.bias > 0.2
    assert result.errors.coverage is not None and result.errors.coverage < 0.5
    # Closed form of the simulated time: a fixed time t0 and size / rate. The predicted rate is that of 30 MB/s.
    (large,) = [one for one in result.points if one.x == 60e6]
    assert large.error_ratio == pytest.approx((large.x / 15e6 + 0.5) / (large.x / 30e6 + 0.5) - 1, abs=0.08)


def test_the_fitted_run_itself_gives_no_verdict(saved: Path, fitted: Run) -> None:
    result = validate_fit(read_fit(saved), fitted)
    assert result.holds == "unknown" and "fitted to this run" in fit_validation_section(result).sentence
    assert result.errors.n == 6


def test_few_points_give_no_verdict(saved: Path, base: Path) -> None:
    result = validate_fit(read_fit(saved), run_of(base, "few", ["5 MB", "50 MB"]))
    assert result.holds == "unknown" and "at least 5" in result.rule


def test_a_saved_fit_predicts_like_the_fit(tmp_path: Path) -> None:
    x = np.array([1e6, 5e6, 2e7, 5e7, 1e8])
    made = fit(Curve(x, x / (0.4 + x / 3e7) * (1 + 0.02 * (-1.0) ** np.arange(5)), 0.02 * x), FAMILIES["setup"])
    curve = {"against": "size_bytes", "others": {"files": 1}, "fits": [saved_values(made)]}
    document = {
        "format": "venturi-fit", "version": 1, "run": "a", "simulated": False, "movers": ["cp"],
        "factors": ["size_bytes", "files"], "curves": [curve],
    }  # fmt: skip
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(document, sort_keys=True))
    again = read_fit(path).curves[0].fit
    at = [2e6, 3e7]
    assert again.predict(at).value.tolist() == made.predict(at).value.tolist()
    assert again.covariance.tolist() == made.covariance.tolist()


def drop(*where: str | int) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for part in where[:-1]:
            inner = inner[part]
        del inner[where[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.update(movers=["xrdcp"]), "expected the mover xrdcp of .*, found globus-url-copy; choose another run"),
        (lambda d: d["factors"].append("streams"), "expected the factors .*streams of .*, found "),
        (lambda d: d.update(factors=["files", "size_kB"]), "size_bytes: expected the unit of size_kB in .*, found another unit"),
        (lambda d: d.update(version=2), "version: expected 1, found 2"),
        (lambda d: d.update(format="venturi-calibration"), 'format: expected "venturi-fit", found "venturi-calibration"'),
        (drop("curves", 0, "fits", 0, "parameters", "t0"), r"curves\[0\].fits\[0\].parameters.t0: expected a number, found nothing"),
        (drop("curves", 0, "fits", 0, "covariance"), r"curves\[0\].fits\[0\].covariance: expected a list, found nothing"),
        (lambda d: d["curves"][0]["fits"][0].update(family="setpu"), "family: expected one of the families: .*; did you mean setup"),
        (lambda d: d.update(curves=[]), "curves: expected at least one curve, found none"),
    ],
)  # fmt: skip
def test_a_fit_of_something_else_is_rejected_with_the_location(
    saved: Path, same: Run, tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    path = changed(saved, tmp_path / "other.json", change)
    with pytest.raises(FitError, match=problem):
        validate_fit(read_fit(path), same)


def test_a_run_without_common_points_is_rejected_with_both_ranges(saved: Path, base: Path, tmp_path: Path) -> None:
    large = run_of(base, "large", ["300 MB", "400 MB"])
    with pytest.raises(
        SampleError,
        match=r"expected points with size_bytes from 1 MB to 100 MB.* found size_bytes from 300 MB to 400 MB",
    ):
        validate_fit(read_fit(saved), large)
    path = changed(saved, tmp_path / "four.json", lambda d: d["curves"][0]["others"].update(files=4))
    with pytest.raises(SampleError, match=r"expected points with files 4 as in .*, found files 1"):
        validate_fit(read_fit(path), large)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected a file of fitted curves, found"),
        ("[]", "format: expected"),
        ("x = ", "expected a cost file"),
        (None, "expected a file of fitted curves or a cost file, found no file"),
    ],
)
def test_another_file_is_named_with_the_command_that_creates_a_model(
    same: Run, tmp_path: Path, text: str | None, problem: str
) -> None:
    path = tmp_path / "model.json"
    if text is not None:
        path.write_text(text)
    done = CliRunner().invoke(app, ["validate", str(path), str(same.path)])
    assert done.exit_code == 1 and problem in str(done.exception or done.output)


def test_costs_have_a_verdict_and_none_for_their_own_run(base: Path, fitted: Run, same: Run) -> None:
    costs = base / "costs.toml"
    done = CliRunner().invoke(app, ["calibrate", str(fitted.path), "--hold-out", "0", "-o", str(costs)])
    assert done.exit_code == 0, done.output
    for run, holds in ((same, "yes"), (fitted, "unknown")):
        done = CliRunner().invoke(app, ["validate", str(costs), str(run.path), "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["holds"] == holds
        assert found["errors"]["n"] == len(found["points"]) and found["errors"]["coverage"] >= 0.8
