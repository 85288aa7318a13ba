"""Claims of the reports, compared with the tables of the same reports."""

import csv
from pathlib import Path

import pytest

import venturi.study
from venturi.analysis.claims import TABLE_CHECKS, check_against_report
from venturi.analysis.claims.table_checks import missing_keys
from venturi.errors import ScenarioError
from venturi.study import experiments, library, studies
from venturi.study.library import complete_claims

HOME = Path(venturi.study.__file__).parent
CLAIMS = library().claims

CONTRADICTED = {
    "000-E03", "000-E06", "000-E07", "001-E01", "001-E08", "001-E09", "002-E01", "002-E03", "002-E04", "002-E05", "002-E06",
    "003-E01", "003-E02", "003-E04", "003-E05", "003-E06", "003-E07", "003-E08", "003-E12", "003-E13", "003-E23", "003-E24",
    "003-E25", "003-E26", "004-E01", "004-E02", "004-E03", "004-E04", "004-E05", "004-E06",
}  # fmt: skip
"""Errata in which a sentence or a cell contradicts a table of the same report."""
EXPLAINED = {"003-direct-spread-of-batches"}
"""Claims that cite an erratum and are true, because they state the corrected text."""


def held(id_):
    return check_against_report(CLAIMS[id_], tuple(library().tables.values()))


def errata():
    with (HOME / "errata.csv").open(encoding="utf-8", newline="") as lines:
        return {row["id"]: row for row in csv.DictReader(lines)}


@pytest.mark.parametrize("id_", CLAIMS)
def test_a_table_contradicts_a_claim_of_its_report_exactly_if_an_erratum_exists(id_):
    found = held(id_)
    assert found.verdict == ("disagrees" if "errata" in CLAIMS[id_] and id_ not in EXPLAINED else "agrees"), (
        found.evidence
    )


def test_every_erratum_between_text_and_table_is_reproduced():
    found = {erratum_id for id_ in CLAIMS if held(id_).verdict == "disagrees" for erratum_id in CLAIMS[id_]["errata"]}
    assert found == CONTRADICTED
    assert set(errata()) >= CONTRADICTED


@pytest.mark.parametrize(
    ("id_", "figure"),
    [
        # Figures from the list of errata.
        ("002-srm-volumes-add-up", "medium: 1.47 TB against 4.13 TB"),
        ("002-anl-affinity-raises", "8 of 12 agree"),
        ("002-nersc-affinity-raises", "12 of 12 agree"),
        ("002-nersc-rises-with-processes", "99 Gb/s at 28, 98 Gb/s at 32"),
        ("003-deviation-often-40-to-50-percent", "2 of 24 agree"),
        ("003-jobs-above-5.5-gbps", "WAN xrootd: 4.7 Gb/s"),
        ("003-lan-mean-of-1-gbps", "ratio 0.8905"),
        ("003-direct-beats-wan", "ratio 1.273"),
        ("003-slicing-lowers-deviation", "direct Lustre, jobs 32: ratio 1.065; direct Lustre, jobs 64: ratio 1.109"),
        ("003-shares-as-printed", "47 of 48 agree"),
        ("004-bdp-catania", "ratio 0.1024"),
        ("004-bdp-prague", "ratio 9.6"),
    ],
)
def test_the_evidence_of_a_claim_has_the_figure_of_the_errata_list(id_, figure):
    assert figure in held(id_).evidence


@pytest.mark.parametrize("id_", CLAIMS)
def test_a_claim_of_the_library_is_well_formed(id_):
    claim = CLAIMS[id_]
    assert id_.startswith(tuple(f"{n:03d}-" for n in range(5)))
    assert claim["table"] in library().tables
    assert claim["table"][:3] == id_[:3]
    assert claim["check"] in TABLE_CHECKS
    assert set(claim.get("errata", ())) <= set(errata())
    assert set(claim) <= {
        "id", "text", "table", "check", "of", "over", "against", "by", "where", "numerator", "denominator", "low", "high", "within",
        "tolerance", "limit", "values", "match", "equals", "equals_column", "aggregate", "share", "errata",
    }  # fmt: skip


def test_the_derived_limits_of_004_follow_from_its_tables():
    tables = library().tables
    network = tables["004-network"].rows
    access = {row["site"]: row["max_rate_bit_per_s"] for row in tables["004-sites"].rows}
    upgraded = {row["site"]: row["after_bit_per_s"] for row in tables["004-upgrades"].rows}
    disks = {row["machine"]: row for row in tables["004-disk"].rows}
    for row in tables["004-limits"].rows:
        disk = disks[row["machine"]]
        assert row["disk_read_bit_per_s"] == 8 * disk["bonnie_read_bytes_per_s"]
        assert row["disk_write_bit_per_s"] == 8 * disk["bonnie_write_bytes_per_s"]
        assert row["network_bit_per_s"] == max(r["rate_bit_per_s"] for r in network if r["machine"] == row["machine"])
        assert row["access_printed_bit_per_s"] == access[row["site"]]
        assert row["access_upgraded_bit_per_s"] == upgraded.get(row["site"], access[row["site"]])


def test_the_srm_services_of_002_match_the_totals_of_its_srm_table():
    totals = {
        row["category"]: row["throughput_bit_per_s"]
        for row in library().tables["002-srm"].rows
        if row["host"] == "total"
    }
    services = {
        (r["category"], r["service"]): r["throughput_bit_per_s"] for r in library().tables["002-services"].rows
    }
    assert {category: rate for (category, service), rate in services.items() if service == "srm"} == totals
    assert len(services) == 9


def test_published_tables_have_the_printed_sizes_and_sums():
    rows = {id_: len(table.rows) for id_, table in library().tables.items()}
    assert (rows["002-squid"], rows["002-srm"], rows["003-root"], rows["003-iperf"], rows["001-group2"]) == (
        48,
        12,
        48,
        16,
        27,
    )
    # Sums of the published cells: table 2-1 of 003 in Mb/s, tables 3 and 4 of 004 in Mb/s, both Squid tables in Gb/s.
    sums = {id_: sum(r[column] for r in library().tables[id_].rows)
            for id_, column in (("003-iperf", "total_bit_per_s"), ("004-network", "rate_bit_per_s"), ("002-squid", "rate_bit_per_s"))}  # fmt: skip
    assert sums == {"003-iperf": 137_870e6, "004-network": 3043e6, "002-squid": 3784e9}


def test_a_study_imports_claims_by_id_and_can_name_its_own_table():
    own = {"id": "002-srm-large", "ours": {"table": "srm-rates"}}
    claims, tables = complete_claims(["002-small-files-weak", "002-srm-large"], [own], "a study")
    assert [claim["id"] for claim in claims] == ["002-srm-large", "002-small-files-weak"]
    assert claims[0]["ours"] == {"table": "srm-rates"}
    assert claims[0]["equals"] == CLAIMS["002-srm-large"]["equals"]
    assert [table.id for table in tables] == ["002-srm", "002-services"]


def test_a_claim_that_is_not_in_the_library_gets_a_suggestion():
    with pytest.raises(ScenarioError, match=r'a study.*claims.*found "002-srm-larg"; did you mean "002-srm-large"'):
        complete_claims(["002-srm-larg"], [], "a study")


def test_every_experiment_of_a_study_is_one_of_the_reports():
    known = {experiment.id: experiment for experiment in experiments()}
    assert len(known) == len(experiments()) == 26
    for study in studies().values():
        for id_ in study.experiments:
            assert study.name in known[id_].studies
            assert known[id_].document == study.document


def test_every_experiment_has_a_section_and_a_description():
    for experiment in experiments():
        assert experiment.id.startswith(f"{experiment.document}-")
        assert experiment.section
        assert experiment.about


@pytest.mark.parametrize("name", studies())
def test_no_claim_of_a_study_is_misspelt(name):
    """A column, value or key that does not exist would make a claim untestable without an error."""
    published = studies()[name].published
    for claim in published.claims:
        verdict = check_against_report(claim, (*published.tables, *published.evidence))
        assert verdict is None or verdict.verdict != "not tested", f"{claim['id']}: {verdict.evidence}"
        if {"table", "ours"} & set(claim):
            assert not missing_keys({**claim, **claim.get("ours", {})}), claim["id"]
        assert set(claim.get("errata", ())) <= {erratum.id for erratum in studies()[name].errata}, claim["id"]
