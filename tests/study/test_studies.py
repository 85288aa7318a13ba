"""The studies say what the reports say, and their scenarios are the published parameters."""

import pytest

from venturi.errors import ScenarioError
from venturi.plan import trials, write_plan
from venturi.scenario import load_scenario
from venturi.study import studies, study
from venturi.workload import expand


def plan_of(name, *overrides):
    return expand(load_scenario(study(name).scenario_path, overrides=list(overrides)))


def test_cp_at_full_parameters_has_the_load_of_the_report():
    # Derived from the grid of report 000: 66 points, 228 files over all counts, 3.81 GB over all sizes, 200 repetitions.
    totals = plan_of("cnaf/cp").header.totals
    assert totals.trials == 66 * 200
    assert totals.bytes == 228 * 3_810_000_000 * 200


def test_group1_varies_the_direction_and_one_to_five_files(tmp_path):
    path = tmp_path / "plan.jsonl"
    write_plan(plan_of("infn-gpfs/group1", "workload.repeat=1"), path)
    points = {(row.factors["mover"], row.factors["files"]) for row in trials(path)}
    assert points == {(mover, files) for mover in ("read", "write", "read+write") for files in range(1, 6)}


@pytest.mark.parametrize("name", studies())
def test_every_quick_variant_is_valid_and_small(name):
    totals = plan_of(name, *study(name).quick).header.totals
    assert totals.bytes < 30e9
    assert max(totals.disk_bytes.values()) < 5e9


@pytest.mark.parametrize("name", studies())
def test_every_study_names_its_errata_and_claims_with_a_known_check(name):
    known = {"decreasing", "increasing", "most_of_fall_below", "flat"}
    assert study(name).errata
    assert {claim["check"] for claim in study(name).published.claims} <= known


def test_the_two_values_of_the_conflict_in_table_iii_are_both_kept():
    # Report 000 prints 0.93 and 0.97 one way in the table and the other way in the text (000-E03).
    fits = study("cnaf/cp").published.fits
    assert [(row["against"], row["mean_r2_table"], row["mean_r2_text"]) for row in fits] == [
        ("files", 0.93, 0.97),
        ("size", 0.97, 0.93),
    ]


def test_an_unknown_study_is_answered_with_the_nearest_name():
    with pytest.raises(ScenarioError, match='did you mean "cnaf/cp"'):
        study("cnaf/pc")
