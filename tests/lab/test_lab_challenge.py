"""A data challenge in the lab: real servers get what is asked for, when it is asked for, as lines and as an open loop; and again."""

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


def carried_out(scenario, folder, engine):
    """Carry a scenario out in the lab, and return its plan's header and its run."""
    folder.mkdir()
    plan = expand(scenario)
    write_plan(plan, folder / "plan.jsonl")
    run = RunWriter.create(folder / "runs", folder / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=folder / "scratch", engine=engine).carry_out(run)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    return plan.header, Run.open(run.path)


COLUMNS = (
    "SELECT intended_s, start_s, asked_bytes, received_bytes, trial, destination FROM transfers ORDER BY intended_s"
)


def test_a_challenge_is_carried_out_at_its_times_and_a_run_of_it_is_replayed(tmp_path, parent, engine):
    header, run = carried_out(challenge(), tmp_path / "challenge", engine)
    first = run.query(COLUMNS)
    assert len(first["trial"]) == header.totals.transfers == len(set(first["trial"])) > 0
    assert first["received_bytes"].sum() == first["asked_bytes"].sum() == header.totals.bytes
    # Never early; how late, the machine decides, but the lead has been enough to make the files.
    assert np.all(first["start_s"] >= first["intended_s"])
    assert np.median(first["start_s"] - first["intended_s"]) < 1
    again = challenge(kind="replay", mover="xrdcp", trace=str(run.path), speed=2.0, size_factor=0.5, lead="1 s")
    header, run = carried_out(again, tmp_path / "again", engine)
    second = run.query(COLUMNS)
    assert second["intended_s"] == pytest.approx(1 + (first["intended_s"] - first["intended_s"][0]) / 2, abs=2e-6)
    assert list(second["received_bytes"]) == list(first["asked_bytes"] // 2)


def test_an_open_loop_of_many_transfers_side_by_side_leaves_each_its_own_file(tmp_path, parent, engine):
    header, run = carried_out(challenge(form="arrivals", arrivals="even"), tmp_path / "loop", engine)
    found = run.query(COLUMNS)
    # Two sizes as often as each other are 750 kB on average: 16 Mb/s are 2.67 /s to each of two sites, for five of six seconds' worth.
    assert len(found["trial"]) == pytest.approx(2 * 2.667 * 5, abs=4)
    assert header.totals.trials == len(set(found["trial"])) == 2
    assert len(set(found["destination"])) == len(found["destination"])
    assert np.all(found["start_s"] >= found["intended_s"])
    assert list(found["received_bytes"]) == list(found["asked_bytes"])
