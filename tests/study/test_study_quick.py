"""Every published experiment is one command: the quick variants of all studies, carried out as a user types them.

Rates are not looked at: the machine is busy with other tests, and each point is measured once. What is looked at is that it ends well, is told whole,
and leaves nothing.
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
"""Of a command: a quick variant takes about 45 s on two idle processors, and the tests beside it may have all four of them."""
UNPACKAGED = {"bbftp"}
"""The one program that no distribution has: its study says so, and is carried out where somebody has built it."""
LACKS_LAB = os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK)


@pytest.fixture
def place(monkeypatch):
    """A folder of the test's own that all users may enter, with runs, scratch and labs below it, and a token for its processes."""
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


def venturi(place, *words):
    """Carry a command out in a folder."""
    return subprocess.run([*VENTURI, *words], cwd=place, capture_output=True, text=True, timeout=TIMEOUT_S)


def header_of(name):
    """Return the header of the plan of the quick variant of a study."""
    return expand(load_scenario(study(name).scenario_path, overrides=study(name).quick)).header


def programs_of(name):
    """Return the programs that the quick variant of a study calls, or starts as servers."""
    header = header_of(name)
    called = {program for call in header.calls.values() for program in call.requires}
    return called | {one.program for spec in header.services.values() for one in SERVICES[spec.kind].packages}


def lacking(name):
    """Return those that this machine has not."""
    return sorted(program for program in programs_of(name) if shutil.which(program, path=search_path()) is None)


def left(place):
    """Return what a study has left on this machine, when what has ended had time to go."""
    deadline_s = time.monotonic() + 30
    while (found := _traces(place)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return found


def _traces(place):
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place) in line]
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return [
        *(f"process {pid}" for pid in living_processes(os.environ["VENTURI_TEST"])),
        *mounts,
        *(text for text in backing if str(place) in text),
        *(str(path) for path in (place / "labs").rglob("*")),
        *(str(lab) for lab in registered(place / "labs")),
    ]


def test_all_studies_are_tried_and_among_them_every_experiment_of_the_reports():
    assert sorted(LONGEST_FIRST) == sorted(studies())
    assert all(experiment.studies for experiment in experiments())


@pytest.mark.parametrize("name", LONGEST_FIRST)
def test_a_study_is_carried_out_and_told_by_one_command(name, place):
    if study(name).on == "lab" and LACKS_LAB:
        pytest.skip("needs root and /dev/net/tun")
    once = ["--set", "workload.repeat=1"] if header_of(name).scenario["workload"].get("repeat", 1) > 1 else []
    done = venturi(place, "study", "run", name, "--quick", *once)
    assert left(place) == []
    if missing := lacking(name):
        check_that_it_names(missing, name, done)
        return
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    (run,) = (place / "runs").glob("*/run.json")
    check_that_all_was_recorded_once(run.parent)
    check_that_all_is_told(run.parent, name, venturi(place, "report", str(run.parent), "--json", "--csv", "tables"))


def check_that_it_names(missing, name, done):
    """What cannot be carried out names the program, and what to install."""
    assert set(missing) <= UNPACKAGED, f"{name} needs {missing}: scripts/setup.sh dev installs what studies need"
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert all(f"{program} was not found" in told and f"install {program}" in told for program in missing), told[
        -3000:
    ]
    assert "Traceback" not in told


def check_that_all_was_recorded_once(run):
    assert json.loads((run / "run.json").read_text())["state"] == "complete"
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    # Some studies carry failed trials out again, with a line of its own for each attempt.
    recorded = [line["trial"] for line in lines if "trial" in line]
    done = Counter(one["trial"] for one in recorded if one.get("attempt", 1) == 1)
    planned = defaultdict(list)
    for trial in trials(run / "plan.jsonl"):
        planned[trial.actor].append(trial.trial)
    # Peers go on for a time, each in its order: how many trials there will be is not known when it is planned.
    timed = read_header(run / "plan.jsonl").scenario["workload"]["kind"] == "peers"
    whole = [own[: len(done.keys() & own)] if timed else own for own in planned.values()]
    assert all(whole) and done == Counter(trial for own in whole for trial in own)


def check_that_all_is_told(run, name, report):
    """The page and the tables are there, every claim of the study has a verdict, and no transfer failed."""
    assert report.returncode == 0, report.stderr[-3000:]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert f"Study {name}" in page
    told = json.loads(report.stdout)
    assert [claim["id"] for claim in told["claims"]] == [claim["id"] for claim in study(name).published.claims]
    assert {claim["verdict"] for claim in told["claims"]} <= {"agrees", "disagrees", "cannot tell", "not tested"}
    tables = {path.name for path in (run.parent.parent / "tables").glob("*.csv")}
    assert "claims.csv" in tables or not told["claims"]
    for table in tables:
        with (run.parent.parent / "tables" / table).open(encoding="utf-8", newline="") as rows:
            assert list(csv.DictReader(rows)), table
    assert tables
