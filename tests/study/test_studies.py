"""Studies agree with the reports, and their scenarios have the published parameters."""

import json
import tempfile
from functools import cache
from pathlib import Path

import pytest

from venturi.analysis.claims import CHECKS, TABLE_CHECKS
from venturi.analysis.published import VALUE_COLUMNS
from venturi.errors import ScenarioError
from venturi.plan import trials, write_plan
from venturi.scenario import load_scenario
from venturi.study import studies, study
from venturi.workload import expand


def plan_of(name, *overrides):
    return expand(load_scenario(study(name).scenario_path, overrides=list(overrides)))


@cache
def planned(name):
    """Return the trials of the scenario at full published parameters, with one repetition."""
    repeated = hasattr(load_scenario(study(name).scenario_path).workload, "repeat")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.jsonl"
        write_plan(plan_of(name, *(["workload.repeat=1"] if repeated else [])), path)
        return tuple(trials(path))


def test_cp_at_full_parameters_has_the_load_of_the_report():
    # From the grid of report 000: 66 points, 228 files over all counts, 3.81 GB over all sizes, 200 repetitions.
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
    if study(name).on == "sim":
        return  # moves nothing
    totals = plan_of(name, *study(name).quick).header.totals
    assert totals.bytes is None or totals.bytes < 30e9  # None: the bytes depend on the run
    assert max(totals.disk_bytes.values(), default=0) < 5e9


@pytest.mark.parametrize("name", studies())
def test_every_study_names_its_errata_and_claims_with_a_known_check(name):
    assert study(name).errata
    for claim in study(name).published.claims:
        known = TABLE_CHECKS if {"table", "ours"} & set(claim) else CHECKS
        assert claim["check"] in known, claim["id"]


@pytest.mark.parametrize("name", studies())
def test_published_rows_of_a_study_match_points_of_its_scenario(name):
    """A misspelt name or value would match nothing, without an error."""
    published, scenario = study(name).published, load_scenario(study(name).scenario_path)
    rows = [*published.fits, *published.totals, *published.rates]
    rows += [claim for claim in published.claims if not {"table", "ours"} & set(claim)]  # claims about columns
    comparable = [table for table in published.tables if set(table.columns) & set(VALUE_COLUMNS)]
    if not rows and not comparable:
        return
    points = {json.dumps(row.factors, sort_keys=True): row.factors for row in planned(name)}.values()
    for row in rows:
        where = row.get("where", {})
        matching = [p for p in points if all(p.get(key) == value for key, value in where.items())]
        assert matching, f"{row}: no point of the scenario is meant"
        low, high = row.get("files_min", 1), row.get("files_max", 10**6)
        assert any(low <= p["files"] <= high for p in matching), f"{row}: no number of files of the scenario is meant"
        assert row.get("storage") in {None, *(scenario.testbed.storage)}
        if "against" in row:
            assert row["against"] in scenario.analyse.against
    known = {erratum.id for erratum in study(name).errata}
    for table in comparable:
        names = [column for column in table.columns if column not in (*VALUE_COLUMNS, "errata", "note")]
        for row in table.rows:
            assert any(all(p[n] == row[n] for n in names) for p in points), (
                f"{row}: no point of the scenario is meant"
            )
            assert set(str(row["errata"] or "").split()) <= known


def test_the_table_of_group2_has_the_27_rows_of_the_poster_and_zeros_for_unused_directions():
    (table,) = study("infn-gpfs/group2").published.tables
    rows = {(r["source"], r["destination"], r["streams"], r["files"]): r for r in table.rows}
    assert len(rows) == len(table.rows) == 27
    assert (table.storage, rows["gpfs", "gpfs", 1, 1]["write_bytes_per_s"]) == ("gpfs", 275_000_000)
    for (source, destination, _, _), row in rows.items():
        assert (row["read_bytes_per_s"] == 0) == (source == "tmp")
        assert (row["write_bytes_per_s"] == 0) == (destination == "tmp")
    # Sums of the rows reconstructed from the poster (001-E01 to E03), in MB/s.
    assert sum(row["write_bytes_per_s"] for row in table.rows) == (1558 + 3832) * 1_000_000
    assert sum(row["read_bytes_per_s"] for row in table.rows) == (1531 + 950) * 1_000_000


def test_the_published_totals_of_the_three_scenarios_match_table_iv():
    names = ("cnaf/cp", "cnaf/gridftp-one-node", "cnaf/gridftp-two-nodes")
    assert [study(name).published.totals[0]["total_bytes_per_s"] for name in names] == [0.76e9, 0.38e9, 0.10e9]


def test_scenario_3_has_size_curves_for_both_readings_of_the_file_limit():
    # "Fewer than 10 files" in the table, "up to 10" in the text (000-E11).
    fits = [row for row in study("cnaf/gridftp-two-nodes").published.fits if row["against"] == "size"]
    assert [(row["files_max"], row.get("mean_r2_table"), row.get("mean_r2_text")) for row in fits] == [
        (9, 0.9, None),
        (10, None, 0.9),
    ]


def test_the_two_values_of_the_conflict_in_table_iii_are_both_kept():
    # Report 000 assigns 0.93 and 0.97 in one order in the table and in the other in the text (000-E03).
    fits = study("cnaf/cp").published.fits
    assert [(row["against"], row["mean_r2_table"], row["mean_r2_text"]) for row in fits] == [
        ("files", 0.93, 0.97),
        ("size", 0.97, 0.93),
    ]


def test_an_unknown_study_gets_a_suggestion():
    with pytest.raises(ScenarioError, match='did you mean "cnaf/cp"'):
        study("cnaf/pc")
