"""Published values, the lab and virtual time side by side: at full size, row by row, with the verdict of each."""

from pathlib import Path

import pytest

from venturi.analysis.beside import Told, side_by_side
from venturi.analysis.beside_files import told_in
from venturi.analysis.claims.rows import Scales
from venturi.errors import RunError
from venturi.study import studies

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
RECORDED = [name for name in studies() if (STUDIES / name / "about.json").exists()]


def rows_of(chapter, name):
    table = next(table for table in chapter.tables if table.name == name)
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def squid(backend, scale, rate_bit_per_s):
    """One published set-up of Squid: 50 Gb/s (002, table of ANL to NERSC)."""
    row = {
        "direction": "ANL to NERSC", "processes": 30, "affinity": "off", "pairing": "all to all", "clients_per_machine": 3000,
        "rate_bit_per_s": rate_bit_per_s, "published_bit_per_s": 50e9,
    }  # fmt: skip
    claims = {"002-squid-near-the-link": {"verdict": "agrees", "evidence": backend, "text": "near the link"}}
    return Told("ani/squid", backend, Scales(scale, scale), {"clients-rates": [row]}, claims)


def test_a_scaled_run_counts_at_full_size_and_ratios_are_to_what_was_published_and_to_each_other():
    chapter = side_by_side([squid("lab", 0.002, 80e6), squid("sim", 1.0, 60e9)])
    (row,) = rows_of(chapter, "beside")
    assert (row["published"], row["run_1"], row["run_2"]) == ("50 Gb/s", "40 Gb/s", "60 Gb/s")
    assert (row["run_1_to_published_ratio"], row["run_2_to_published_ratio"]) == pytest.approx((0.8, 1.2))
    assert row["run_2_to_run_1_ratio"] == pytest.approx(1.5)
    assert (row["column"], row["published_value"], row["run_1_value"]) == (
        "rate_bit_per_s",
        50e9,
        pytest.approx(40e9),
    )
    (claim,) = rows_of(chapter, "beside-claims")
    assert (claim["run_1_verdict"], claim["run_1_evidence"], claim["run_2_evidence"]) == ("agrees", "lab", "sim")
    heads = [column.title for column in chapter.tables[0].columns]
    assert heads[3:5] == ["lab ÷ 0.002", "simulated"]


def test_what_one_run_alone_measured_and_nobody_published_is_left_out():
    lab, other = squid("lab", 1.0, 1e9), squid("sim", 1.0, 1e9)
    lab.tables["clients-rates"][0]["published_bit_per_s"] = None
    other.tables["clients-rates"][0] |= {"published_bit_per_s": None, "processes": 36}
    chapter = side_by_side([lab, other])
    assert [table.name for table in chapter.tables] == ["beside-claims"]


@pytest.mark.parametrize("name", RECORDED)
def test_every_committed_report_has_values_or_claims_to_stand_beside_others(name):
    chapter = side_by_side([told_in(STUDIES / name)])
    assert chapter.tables
    beside = studies()[name].published.beside
    assert bool(beside) <= ("beside" in {table.name for table in chapter.tables}), "keys or columns that no table has"


def test_published_values_of_a_committed_report_are_those_of_the_paper():
    rows = rows_of(side_by_side([told_in(STUDIES / "fiu/iperf")]), "beside")
    # Report 003, table 2-1, the first and the last group.
    assert (rows[0]["published"], len(rows)) == ("8.54 Gb/s", 16)


def test_runs_of_two_studies_and_folders_without_scales_are_refused(tmp_path):
    other = Told("cnaf/cp", "sim", Scales(), {}, {})
    with pytest.raises(RunError, match="expected runs of one study, found ani/squid, cnaf/cp"):
        side_by_side([squid("lab", 1.0, 1.0), other])
    (tmp_path / "about.json").write_text('{"study": "cnaf/cp", "backend": "lab"}')
    with pytest.raises(RunError, match="expected study, backend, scale and rates_scale, found no 'scale'"):
        told_in(tmp_path)
