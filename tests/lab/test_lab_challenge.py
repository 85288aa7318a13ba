"""A data challenge in the lab: real servers get the planned bytes at the planned times.

It runs as sequences, as an open loop, and in a replay.
"""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from testkit import needs_root
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [needs_root, pytest.mark.skipif(shutil.which("xrootd") is None, reason="xrootd is not installed")]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "data-challenge.md"


def challenge(**workload):
    """Return the scenario of the how-to with six seconds of arrivals, or with another workload."""
    document = tomllib.loads(PAGE.read_text().split("```toml\n")[1].partition("```")[0])
    document["measure"] = {"interval": "off"}
    document["workload"]["flow"]["export"] |= {"end": "6 s", "ramp_up": "2 s"}
    if "kind" in workload:
        document["workload"] = {}
    document["workload"] |= workload
    return scenario_from(document)


def executed(scenario, directory, engine):
    """Run a scenario in the lab, and return its plan header and its run."""
    directory.mkdir()
    plan = expand(scenario)
    write_plan(plan, directory / "plan.jsonl")
    run = RunWriter.create(directory / "runs", directory / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=directory / "scratch", engine=engine).execute(run)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    return plan.header, Run.open(run.path)


COLUMNS = "SELECT intended_s, start_s, requested_bytes, received_bytes, trial, destination FROM transfers ORDER BY intended_s"


def test_a_challenge_runs_at_its_planned_times_and_can_be_replayed(tmp_path, parent, engine):
    header, run = executed(challenge(), tmp_path / "challenge", engine)
    first = run.query(COLUMNS)
    assert len(first["trial"]) == header.totals.transfers == len(set(first["trial"])) > 0
    assert first["received_bytes"].sum() == first["requested_bytes"].sum() == header.totals.bytes
    # Transfers never start early. The delay depends on the machine, but the lead time is long enough to create the
    # files.
    assert np.all(first["start_s"] >= first["intended_s"])
    assert np.median(first["start_s"] - first["intended_s"]) < 1
    again = challenge(kind="replay", mover="xrdcp", trace=str(run.path), speed=2.0, size_factor=0.5, lead="1 s")
    header, run = executed(again, tmp_path / "again", engine)
    second = run.query(COLUMNS)
    assert second["intended_s"] == pytest.approx(1 + (first["intended_s"] - first["intended_s"][0]) / 2, abs=2e-6)
    assert list(second["received_bytes"]) == list(first["requested_bytes"] // 2)


def test_concurrent_transfers_of_an_open_loop_have_separate_destination_files(tmp_path, parent, engine):
    header, run = executed(challenge(form="arrivals", arrivals="even"), tmp_path / "loop", engine)
    found = run.query(COLUMNS)
    # The mean of two equally frequent sizes is 750 kB. 16 Mb/s are 2.67 transfers per second to each of two sites, for
    # the equivalent of five of six seconds.
    assert len(found["trial"]) == pytest.approx(2 * 2.667 * 5, abs=4)
    assert header.totals.trials == len(set(found["trial"])) == 2
    assert len(set(found["destination"])) == len(found["destination"])
    assert np.all(found["start_s"] >= found["intended_s"])
    assert list(found["received_bytes"]) == list(found["requested_bytes"])
