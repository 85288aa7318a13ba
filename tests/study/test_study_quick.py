"""The quick variants of all studies run with one command each.

The tests ignore rates, because other tests use the machine and each point is measured once. They check that each run
succeeds, is reported completely, and leaves no remains.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from uuid import uuid4

import pytest

from testkit import living_processes
from venturi.plan import read_header, trials
from venturi.scenario import load_scenario
from venturi.study import experiments, studies, study
from venturi.testbed.lab import registered
from venturi.testbed.lab.programs import search_path
from venturi.testbed.services.table import SERVICES
from venturi.workload import expand

LONGEST_FIRST = (
    "infn-gpfs/group3", "cnaf/gridftp-two-nodes", "infn-gpfs/group2", "cnaf/gridftp-one-node", "alice/tiers", "alice/flat", "fiu/xrootd",
    "alice/characterise", "alice/matrix", "ani/squid", "ani/managed", "ani/srm", "ani/gridftp", "fiu/dgt", "ani/gridftp-protocol",
    "cnaf/cp", "fiu/iperf", "infn-gpfs/group1", "alice/matrix-bbftp", "what-if/processes", "what-if/upgrade", "what-if/place",
    "what-if/data-to-jobs", "what-if/pipelining", "what-if/window", "what-if/blocks",
)  # fmt: skip
VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
TIMEOUT_S = 400
"""Time limit of a command. A quick variant takes about 45 s on two idle cores, but other tests can use all four."""
UNPACKAGED = {"bbftp"}
"""The only program without a package. Its study states this, and runs only if the program was built from source."""
LACKS_LAB = os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK)


@pytest.fixture
def base_directory(monkeypatch):
    """A directory that all users can enter, with runs, scratch and labs, and a token for its processes."""
    base = Path(tempfile.mkdtemp(prefix="venturi-quick-"))
    base.chmod(0o755)
    (base / "labs").mkdir()
    changes = {
        "VENTURI_LAB": base / "labs",
        "VENTURI_SCRATCH": base / "scratch",
        "VENTURI_TEST": uuid4().hex,
        "COLUMNS": 200,
    }
    for name, value in changes.items():
        monkeypatch.setenv(name, str(value))
    yield base
    shutil.rmtree(base)


def venturi(base_directory, *words):
    """Run a command in a directory."""
    return subprocess.run([*VENTURI, *words], cwd=base_directory, capture_output=True, text=True, timeout=TIMEOUT_S)


def header_of(name):
    """Return the header of the plan of the quick variant of a study."""
    return expand(load_scenario(study(name).scenario_path, overrides=study(name).quick)).header


def programs_of(name):
    """Return the programs that the quick variant of a study calls, or starts as servers."""
    header = header_of(name)
    called = {program for call in header.calls.values() for program in call.requires}
    return called | {one.program for spec in header.services.values() for one in SERVICES[spec.kind].packages}


def lacking(name):
    """Return the programs that are missing on this machine."""
    return sorted(program for program in programs_of(name) if shutil.which(program, path=search_path()) is None)


def left(base_directory):
    """Return the remains of a study on this machine, after a grace time for ending processes."""
    deadline_s = time.monotonic() + 30
    while (found := _traces(base_directory)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return found


def _traces(base_directory):
    mounts = [
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(base_directory) in line
    ]
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [
        *(f"process {pid}" for pid in living_processes(os.environ["VENTURI_TEST"])),
        *mounts,
        *(text for text in backing if str(base_directory) in text),
        *(str(path) for path in (base_directory / "labs").rglob("*")),
        *(str(lab) for lab in registered(base_directory / "labs")),
    ]


def test_all_studies_are_run_and_every_experiment_has_a_study():
    assert sorted(LONGEST_FIRST) == sorted(studies())
    assert all(experiment.studies for experiment in experiments())


@pytest.mark.parametrize("name", LONGEST_FIRST)
def test_a_study_is_run_and_reported_by_one_command(name, base_directory):
    if study(name).on == "lab" and LACKS_LAB:
        pytest.skip("needs root and /dev/net/tun")
    once = ["--set", "workload.repeat=1"] if header_of(name).scenario["workload"].get("repeat", 1) > 1 else []
    done = venturi(base_directory, "study", "run", name, "--quick", *once)
    assert left(base_directory) == []
    if missing := lacking(name):
        (run,) = (base_directory / "runs").glob("*/run.json")
        check_that_it_names(missing, name, done, venturi(base_directory, "report", str(run.parent), "--full"))
        return
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    (run,) = (base_directory / "runs").glob("*/run.json")
    check_that_all_was_recorded_once(run.parent)
    check_that_all_is_reported(
        run.parent, name, venturi(base_directory, "report", str(run.parent), "--json", "--csv", "tables")
    )


def check_that_it_names(missing, name, done, report):
    """Check that the error names the missing program, and the report the package to install."""
    assert set(missing) <= UNPACKAGED, f"{name} needs {missing}: scripts/setup.sh dev installs what studies need"
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert all(f"a program `{program}`" in output for program in missing), output[-3000:]
    assert "Traceback" not in output
    full = report.stdout
    assert all(f"{program} was not found" in full and f"install {program}" in full for program in missing), full


def check_that_all_was_recorded_once(run):
    assert json.loads((run / "run.json").read_text())["state"] == "complete"
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    # Some studies repeat failed trials, and each attempt has its own line.
    recorded = [line["trial"] for line in lines if "trial" in line]
    done = Counter(one["trial"] for one in recorded if one.get("attempt", 1) == 1)
    planned = defaultdict(list)
    for trial in trials(run / "plan.jsonl"):
        planned[trial.actor].append(trial.trial)
    # Peers run for a fixed time, each in its own order, so the plan does not determine the number of trials.
    timed = read_header(run / "plan.jsonl").scenario["workload"]["kind"] == "peers"
    whole = [own[: len(done.keys() & own)] if timed else own for own in planned.values()]
    assert all(whole) and done == Counter(trial for own in whole for trial in own)


def check_that_all_is_reported(run, name, report):
    """Check that the page and the tables exist, every claim of the study has a verdict, and no transfer failed."""
    assert report.returncode == 0, report.stderr[-3000:]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert f"Study {name}" in page
    output = json.loads(report.stdout)
    assert [claim["id"] for claim in output["claims"]] == [claim["id"] for claim in study(name).published.claims]
    assert {claim["verdict"] for claim in output["claims"]} <= {"agrees", "disagrees", "cannot tell", "not tested"}
    tables = {path.name for path in (run.parent.parent / "tables").glob("*.csv")}
    assert "claims.csv" in tables or not output["claims"]
    for table in tables:
        with (run.parent.parent / "tables" / table).open(encoding="utf-8", newline="") as rows:
            assert list(csv.DictReader(rows)), table
    assert tables
