"""Published values, lab and simulation compared row by row at full size, with a verdict for each."""

from pathlib import Path

import pytest

from venturi.analysis.claims.rows import Scales
from venturi.analysis.study_comparison import StudyResult, compare_study_results
from venturi.analysis.study_files import load_study_result
from venturi.errors import RunError
from venturi.study import studies

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
RECORDED = [name for name in studies() if (STUDIES / name / "about.json").exists()]


def rows_of(section, name):
    table = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def squid(backend, scale, rate_bit_per_s):
    """Return one published setup of Squid: 50 Gb/s (002, table of ANL to NERSC)."""
    row = {
        "direction": "ANL to NERSC", "processes": 30, "affinity": "off", "pairing": "all to all", "clients_per_machine": 3000,
        "rate_bit_per_s": rate_bit_per_s, "published_bit_per_s": 50e9,
    }  # fmt: skip
    claims = {"002-squid-near-the-link": {"verdict": "agrees", "evidence": backend, "text": "near the link"}}
    return StudyResult("ani/squid", backend, Scales(scale, scale), {"clients-rates": [row]}, claims)


def test_a_scaled_run_is_compared_at_full_size_with_the_report_and_other_runs():
    section = compare_study_results([squid("lab", 0.002, 80e6), squid("sim", 1.0, 60e9)])
    (row,) = rows_of(section, "comparison")
    assert (row["published"], row["run_1"], row["run_2"]) == ("50 Gb/s", "40 Gb/s", "60 Gb/s")
    assert (row["run_1_to_published_ratio"], row["run_2_to_published_ratio"]) == pytest.approx((0.8, 1.2))
    assert row["run_2_to_run_1_ratio"] == pytest.approx(1.5)
    assert (row["column"], row["published_value"], row["run_1_value"]) == (
        "rate_bit_per_s",
        50e9,
        pytest.approx(40e9),
    )
    (claim,) = rows_of(section, "comparison-claims")
    assert (claim["run_1_verdict"], claim["run_1_evidence"], claim["run_2_evidence"]) == ("agrees", "lab", "sim")
    heads = [column.title for column in section.tables[0].columns]
    assert heads[3:5] == ["lab ÷ 0.002", "simulated"]


def test_unpublished_values_of_only_one_run_are_left_out():
    lab, other = squid("lab", 1.0, 1e9), squid("sim", 1.0, 1e9)
    lab.tables["clients-rates"][0]["published_bit_per_s"] = None
    other.tables["clients-rates"][0] |= {"published_bit_per_s": None, "processes": 36}
    section = compare_study_results([lab, other])
    assert [table.name for table in section.tables] == ["comparison-claims"]


@pytest.mark.parametrize("name", RECORDED)
def test_every_committed_report_has_values_or_claims_to_compare_with_others(name):
    section = compare_study_results([load_study_result(STUDIES / name)])
    assert section.tables
    comparison = studies()[name].published.comparison
    assert bool(comparison) <= ("comparison" in {table.name for table in section.tables}), (
        "keys or columns that no table has"
    )


def test_published_values_of_a_committed_report_match_the_paper():
    rows = rows_of(compare_study_results([load_study_result(STUDIES / "fiu/iperf")]), "comparison")
    # Report 003, table 2-1, first and last group.
    assert (rows[0]["published"], len(rows)) == ("8.54 Gb/s", 16)


def test_runs_of_two_studies_and_directories_without_scales_are_rejected(tmp_path):
    other = StudyResult("cnaf/cp", "sim", Scales(), {}, {})
    with pytest.raises(RunError, match="expected runs of one study, found ani/squid, cnaf/cp"):
        compare_study_results([squid("lab", 1.0, 1.0), other])
    (tmp_path / "about.json").write_text('{"study": "cnaf/cp", "backend": "lab"}')
    with pytest.raises(RunError, match="expected study, backend, scale and rates_scale, found no 'scale'"):
        load_study_result(tmp_path)
