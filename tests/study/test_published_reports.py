"""Reports in docs/studies belong to studies, are complete, and agree with the index."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from venturi.analysis import analyse
from venturi.analysis.study_comparison import compare_study_results, study_result
from venturi.analysis.study_files import load_study_result
from venturi.run import Run
from venturi.study import studies

ROOT = Path(__file__).parents[2]
HOME = ROOT / "docs" / "studies"
DIRECTORIES = sorted(path.parent.relative_to(HOME).as_posix() for path in HOME.rglob("about.json"))
COMMITTED = [name for name in DIRECTORIES if not name.endswith("/simulated")]
SIMULATED = [name for name in DIRECTORIES if name.endswith("/simulated")]
ON_HOSTS = sorted(path.parent.relative_to(HOME).as_posix() for path in HOME.rglob("hosts-and-lab.html"))
"""Comparisons of a study on hosts with the lab, which have no report."""
TOO_LARGE_BYTES = 1_500_000
"""Maximum size of a page.

The target is 500 kB, but pages with 26 machines or 192 jobs in their figures are two or three times larger.
"""
VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
SCRIPT = ROOT / "scripts" / "publish-study.py"

spec = importlib.util.spec_from_file_location("publish_study", SCRIPT)
publish_study = importlib.util.module_from_spec(spec)
spec.loader.exec_module(publish_study)


def test_the_index_is_up_to_date_and_links_all_committed_reports():
    page = (HOME / "index.md").read_text(encoding="utf-8")
    assert page == publish_study.index(HOME), "the index is out of date: scripts/publish-study.py writes it again"
    assert all(f"]({name}/report.html)" in page for name in COMMITTED)
    assert all(f"]({name}/side-by-side.html)" in page for name in SIMULATED)


def test_the_studies_directory_has_only_known_reports():
    directories = {path.parent.relative_to(HOME).as_posix() for path in HOME.rglob("*") if path.is_file()}
    assert directories == {".", *DIRECTORIES, *ON_HOSTS}
    guide = (HOME.parent / "howto" / "studies-on-your-hosts.md").read_text(encoding="utf-8")
    assert all(f"studies/{name}/comparison.md)" in guide for name in ON_HOSTS)


@pytest.mark.parametrize("name", ON_HOSTS)
def test_a_comparison_of_backends_has_machine_commit_and_date(name):
    page = (HOME / name / "comparison.md").read_text(encoding="utf-8")
    for line in (
        r"\| machine \| \d+ × .+ \|",
        r"\| commit \| `[0-9a-f]{10}`.* \|",
        r"\| started \| \d{4}-\d\d-\d\d .+ UTC \|",
    ):
        assert re.search(line, page), line
    for file in ("side-by-side.html", "hosts-and-lab.html"):
        assert f"]({file})" in page
        assert (HOME / name / file).exists()


def test_every_committed_report_belongs_to_a_study_and_is_complete():
    assert set(COMMITTED) <= set(studies())
    for name in COMMITTED:
        about = json.loads((HOME / name / "about.json").read_text(encoding="utf-8"))
        page = HOME / name / "report.html"
        assert about["study"] == name
        assert f"Study {name}" in page.read_text(encoding="utf-8")
        assert page.stat().st_size < TOO_LARGE_BYTES
        assert (HOME / name / "points.csv").exists() or list((HOME / name).glob("*.csv"))


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_study_is_compared_with_the_published_results_at_full_scale(name):
    about = json.loads((HOME / name / "about.json").read_text(encoding="utf-8"))
    assert (about["study"], about["backend"], about["scale"]) == (name.removesuffix("/simulated"), "sim", 1.0)
    page = HOME / name / "side-by-side.html"
    assert f"Study {about['study']}" in page.read_text(encoding="utf-8")
    assert page.stat().st_size < 300_000
    with (HOME / name / "claims.csv").open(encoding="utf-8", newline="") as rows:
        assert [row["id"] for row in csv.DictReader(rows)] == [
            claim["id"] for claim in studies()[about["study"]].published.claims
        ]


def test_the_index_explains_simulation_differences_with_counts_that_match_the_tables():
    page = " ".join((HOME / "index.md").read_text(encoding="utf-8").split())
    for name, study in studies().items():
        if study.sim_differs:
            assert publish_study._escape(study.sim_differs) in page, name
    assert "Of these twenty contradicted claims, ten are also contradicted by" in studies()["fiu/xrootd"].sim_differs
    published, simulated = (
        {row["id"]: row for row in publish_study.claims(HOME / name)}
        for name in ("fiu/xrootd", "fiu/xrootd/simulated")
    )
    not_so = [id_ for id_, row in simulated.items() if row["verdict"] == "disagrees"]
    assert len(not_so) == 20
    assert sum(published[id_]["published_verdict"] == "disagrees" for id_ in not_so) == 10


@pytest.fixture(scope="module")
def executed(tmp_path_factory, engine):
    """A directory with one small run of a study and one other run."""
    home = tmp_path_factory.mktemp("study")
    few = [
        "--set",
        "workload.repeat=1",
        "--set",
        "workload.factors.files=[1, 2]",
        "--set",
        'workload.factors.size=["100 kB"]',
    ]
    environment = os.environ | {"VENTURI_SCRATCH": str(home / "scratch")}
    for words in (
        ["study", "run", "cnaf/cp", "--quick", *few],
        ["run", "cnaf/cp", "--set", "name=mine", "--set", "study=", *few],
        ["study", "run", "cnaf/cp", "--on", "sim", "--set", "name=simulated", *few],
    ):
        done = subprocess.run(
            [*VENTURI, *words], cwd=home, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    return home


def publish(home, *words):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--into", str(home / "out")],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_publishing_a_run_creates_a_directory_with_its_tables_and_an_index_row(executed):
    done = publish(executed, *map(str, (executed / "runs").glob("cnaf-cp-*")))
    assert done.returncode == 0, done.stderr
    directory = executed / "out" / "cnaf" / "cp"
    assert {"about.json", "report.html", "points.csv", "claims.csv"} <= {path.name for path in directory.iterdir()}
    about = json.loads((directory / "about.json").read_text())
    assert about["trials"] == 2
    assert about["variant"].startswith("full, with ")
    assert "workload.repeat=1" in about["variant"]
    assert not [path for path in directory.iterdir() if f"{executed}/" in path.read_text(encoding="utf-8")]
    page = (executed / "out" / "index.md").read_text(encoding="utf-8")
    assert "[cnaf/cp](cnaf/cp/report.html) | [000](../reference/bibliography.md#report-000) | 000-S1 |" in page
    assert "[points.csv](cnaf/cp/points.csv)" in page


def test_publishing_a_simulated_run_adds_a_comparison_and_keeps_the_report(executed):
    recorded, simulated = (next((executed / "runs").glob(f"{name}-*")) for name in ("cnaf-cp", "simulated"))
    assert publish(executed, str(recorded)).returncode == 0
    done = publish(executed, str(simulated))
    assert done.returncode == 0, done.stderr
    directory = executed / "out" / "cnaf" / "cp"
    names = {path.name for path in (directory / "simulated").iterdir()}
    assert names == {"about.json", "comparison.csv", "comparison-claims.csv", "claims.csv", "side-by-side.html"}
    with (directory / "simulated" / "comparison.csv").open(encoding="utf-8", newline="") as table:
        rows = {row["quantity"]: row for row in csv.DictReader(table)}
    total = rows["scenario 1 (cp)"]
    assert total["published"] == "760 MB/s"
    assert float(total["run_1_to_published_ratio"]) > 0
    assert float(total["run_2_to_published_ratio"]) > 0
    page = (executed / "out" / "index.md").read_text(encoding="utf-8")
    assert "](cnaf/cp/report.html) | [000](../reference/bibliography.md#report-000) | 000-S1 |" in page
    assert (
        "](cnaf/cp/simulated/side-by-side.html) | [000](../reference/bibliography.md#report-000) | 000-S1 |" in page
    )
    # A second publication replaces only the report.
    assert publish(executed, str(recorded)).returncode == 0
    assert (directory / "simulated" / "side-by-side.html").exists()


def test_a_published_report_loads_with_the_claims_of_its_run(executed):
    (recorded,) = (executed / "runs").glob("cnaf-cp-*")
    assert publish(executed, str(recorded)).returncode == 0
    of_files, of_run = (
        load_study_result(executed / "out" / "cnaf" / "cp"),
        study_result(analyse(Run.open(recorded))),
    )
    assert of_files.claims == of_run.claims
    assert compare_study_results([of_files]) == compare_study_results([of_run])


def test_the_command_compares_runs_and_directories_and_prints_them_as_json(executed):
    (simulated,) = (executed / "runs").glob("simulated-*")
    done = subprocess.run(
        [*VENTURI, "study", "compare", str(simulated), "--json"],
        cwd=executed, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    comparison = json.loads(done.stdout)
    assert [table["name"] for table in comparison["tables"]] == ["comparison", "comparison-claims"]
    assert "falls-with-files" in {row[0] for row in comparison["tables"][1]["rows"]}


def test_a_run_without_a_study_is_rejected(executed):
    done = publish(executed, *map(str, (executed / "runs").glob("mine-*")))
    assert done.returncode == 1
    assert "expected a complete run of a study, found a run of no study, complete" in done.stderr


def test_local_paths_are_rejected_and_paths_below_the_runs_become_relative(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    table = tmp_path / "table.csv"
    table.write_text(f"scratch,engine\n{tmp_path}/scratch/data,/home/somebody/bin/venturi-engine\n", encoding="utf-8")
    publish_study.without_paths(table, tmp_path, {"/home/somebody/bin/venturi-engine"})
    assert table.read_text(encoding="utf-8") == "scratch,engine\nscratch/data,venturi-engine\n"
    table.write_text("scratch\n/home/somebody/data\n", encoding="utf-8")
    with pytest.raises(ValueError, match="expected no path of this machine, found '/home/somebody/data"):
        publish_study.without_paths(table, tmp_path, ())
