"""Feasibility: required rates, expected rates, limits and intervals agree with results by hand."""

import dataclasses

import numpy as np
import pytest
from challengekit import PAYLOAD, star, star_testbed, table

from venturi.challenge import ChallengeOptions, build_testbed, check_feasibility
from venturi.challenge.generate import generate_table
from venturi.challenge.sections import challenge_sentence
from venturi.errors import ScenarioError
from venturi.testbed.wlcg import wlcg

BED = {"Alpha": "200 Mb/s", "Beta": "100 Mb/s", "Gamma": "100 Mb/s"}


def expected(result):
    """Return the expected rates of the rows, in Mb/s."""
    return [row.expected_bit_per_s / 1e6 for row in result.rows]


def use_of(result, title):
    return next(use for use in result.resources if use.resource.title == title)


def test_a_feasible_table_reaches_its_rates_and_has_no_limits():
    result = check_feasibility(table(("Alpha", "Beta", 80), ("Alpha", "Gamma", 60)), star_testbed(BED))
    assert result.verdict == "feasible"
    assert expected(result) == [80, 60]
    assert result.limiting == result.missing == ()
    assert all(row.low_bit_per_s == row.high_bit_per_s == row.expected_bit_per_s for row in result.rows)
    # The links carry headers, too: 140 Mb/s of file data over 200 Mb/s.
    assert use_of(result, "link alpha>core").ratio == pytest.approx(140 / PAYLOAD / 200)
    assert result.resources[0].resource.title == "link core>beta"


def test_rows_on_a_full_link_reach_equal_fractions_or_equal_rates():
    rows = table(("Alpha", "Gamma", 90), ("Beta", "Gamma", 40))
    result = check_feasibility(rows, star_testbed(BED))
    assert result.verdict == "not feasible"
    assert expected(result) == pytest.approx([PAYLOAD * 100 * 90 / 130, PAYLOAD * 100 * 40 / 130])
    assert {row.limit.title for row in result.rows} == {"link core>gamma"}
    assert use_of(result, "link core>gamma").ratio == pytest.approx(130 / PAYLOAD / 100)
    equal = check_feasibility(rows, star_testbed(BED), ChallengeOptions(weights="equal"))
    assert expected(equal) == pytest.approx([PAYLOAD * 100 - 40, 40])
    assert [row.misses for row in equal.rows] == [True, False]


def test_a_rate_within_the_efficiency_of_a_link_is_feasible_without_margin():
    # A link carries between 95 and 100 % of its payload rate.
    for ratio, verdict in (
        (0.949, "feasible"),
        (0.951, "without margin"),
        (0.999, "without margin"),
        (1.001, "not feasible"),
    ):
        result = check_feasibility(table(("Alpha", "Beta", 100 * PAYLOAD * ratio)), star_testbed(BED))
        assert result.verdict == verdict
        (row,) = result.rows
        assert (
            row.low_bit_per_s <= row.expected_bit_per_s <= row.high_bit_per_s <= row.row.rate_bit_per_s * (1 + 1e-12)
        )


def test_the_interval_has_the_quantiles_of_uniform_capacities():
    # One storage without link efficiency: its capacity is uniform in 50 Mb/s ± 20 %.
    bed = star_testbed(BED, storage={"kind": "disk", "size": "1 TB", "write_rate": "50 Mb/s"})
    result = check_feasibility(table(("Alpha", "Beta", 80)), bed, ChallengeOptions(uncertainty=0.2))
    (row,) = result.rows
    assert row.limit.title == "storage beta (writes)"
    assert row.expected_bit_per_s == pytest.approx(50e6)
    # The 5 % and 95 % quantiles are 41 and 59 Mb/s; 100 draws have a standard error of 0.44 Mb/s there.
    assert row.low_bit_per_s == pytest.approx(41e6, abs=1.8e6)
    assert row.high_bit_per_s == pytest.approx(59e6, abs=1.8e6)
    again = check_feasibility(table(("Alpha", "Beta", 80)), bed, ChallengeOptions(uncertainty=0.2))
    assert again == result
    other = check_feasibility(table(("Alpha", "Beta", 80)), bed, ChallengeOptions(uncertainty=0.2, seed=2))
    assert other.rows[0].low_bit_per_s != row.low_bit_per_s


def test_headers_follow_from_mtu_and_link_overhead():
    bed = star_testbed(BED, link={"mtu": 9000, "overhead": "38 B"})
    result = check_feasibility(table(("Alpha", "Beta", 80)), bed)
    assert use_of(result, "link core>beta").required_bit_per_s == pytest.approx(80e6 * 9038 / 8948)


def test_reads_and_writes_of_a_storage_are_separate():
    bed = star_testbed(BED, storage={"kind": "disk", "size": "1 TB", "read_rate": "10 MB/s", "write_rate": "5 MB/s"})
    result = check_feasibility(table(("Alpha", "Beta", 50), ("Beta", "Alpha", 50)), bed)
    assert expected(result) == pytest.approx([40, 40])
    assert use_of(result, "storage beta (writes)").ratio == pytest.approx(50 / 40)
    assert use_of(result, "storage beta (reads)").ratio == pytest.approx(50 / 80)


def test_rates_change_with_rows_and_with_links():
    # The link of Beta has 100 Mb/s, then 50 Mb/s from 20 s, and is down from 40 s to 60 s.
    changes = [{"at": "20 s", "link": "beta", "rate": "50 Mb/s"}, {"at": "40 s", "link": "beta", "up": False}]
    bed = star_testbed(BED, change=[*changes, {"at": "60 s", "link": "beta", "up": True}])
    result = check_feasibility(table(("Alpha", "Beta", 80, 0, 80), ("Alpha", "Gamma", 60, 10, 30)), bed)
    assert result.intervals == 6
    half = 50 * PAYLOAD
    assert expected(result) == pytest.approx([(20 * 80 + 20 * half + 20 * half) / 80, 60])
    row = result.rows[0]
    assert (row.worst_ratio, row.worst_start_s) == (0.0, 40.0)
    use = use_of(result, "link core>beta")
    assert use.ratio is None
    assert (use.start_s, use.end_s, use.overload_s) == (40.0, 60.0, 60.0)
    assert challenge_sentence(result) == "Not feasible: 1 of 2 rows misses its rate; link core>beta is down."
    with pytest.raises(ScenarioError, match="line 2: end"):
        check_feasibility(table(("Alpha", "Beta", 80)), bed)


def test_a_site_with_two_storages_splits_its_rate_as_inject_does():
    document = star(BED)
    document["testbed"]["storage"]["beta2"] = {
        "host": "beta",
        "path": "disk2",
        "kind": "disk",
        "size": "1 TB",
        "write_rate": "20 Mb/s",
    }
    result = check_feasibility(table(("Alpha", "Beta", 60)), build_testbed(document, "t"))
    assert expected(result) == pytest.approx([30 + 20])
    assert use_of(result, "storage beta2 (writes)").required_bit_per_s == pytest.approx(30e6)
    named = check_feasibility(table(("Alpha", "beta2", 60)), build_testbed(document, "t"))
    assert expected(named) == pytest.approx([20])


def test_sites_have_their_rates_and_the_most_used_resource_of_their_routes():
    result = check_feasibility(table(("Alpha", "Gamma", 90, 0, 10), ("Beta", "Gamma", 40, 0, 10), ("Alpha", "Beta", 10, 10, 20)), star_testbed(BED))  # fmt: skip
    sites = {site.site: site for site in result.sites}
    assert (sites["Alpha"].sent_bit_per_s, sites["Alpha"].received_bit_per_s) == (90e6, 0)
    assert (sites["Gamma"].received_bit_per_s, sites["Gamma"].missing, sites["Gamma"].rows) == (130e6, 2, 2)
    assert (sites["Beta"].received_bit_per_s, sites["Beta"].missing, sites["Beta"].rows) == (10e6, 1, 2)
    assert {site.use.resource.title for site in result.sites} == {"link core>gamma"}


@pytest.mark.parametrize("uncertainty", [0.0, 0.1])
def test_the_needed_capacities_make_a_challenge_feasible(uncertainty):
    document = wlcg(20, seed=3)
    options = ChallengeOptions(uncertainty=uncertainty)
    bed = build_testbed(document, "wlcg")
    rows = generate_table(bed, 6e12, 3600.0, (10**9,))
    result = check_feasibility(rows, bed, options)
    assert result.verdict == "not feasible"
    assert len(result.limiting) > 5
    for use in result.limiting:
        parts = document["testbed"]
        if use.resource.kind != "link":
            parts["storage"][use.resource.name][f"{use.resource.kind}_rate"] = f"{use.needed_bit_per_s!r} b/s"
            continue
        name = next(
            name
            for name, link in parts["link"].items()
            if sorted(link["between"]) == sorted(use.resource.name.split(">"))
        )
        link, back = parts["link"][name], parts["link"][name]["between"] != use.resource.name.split(">")
        rates = link["rate"] if isinstance(link["rate"], list) else [link["rate"]] * 2
        rates[back] = f"{use.needed_bit_per_s!r} b/s"
        link["rate"] = rates
    bought = check_feasibility(rows, build_testbed(document, "wlcg"), options)
    assert bought.verdict == "feasible"
    assert expected(bought) == [row.rate_bit_per_s / 1e6 for row in rows.rows]


def test_the_result_does_not_depend_on_the_order_of_rows():
    bed = build_testbed(wlcg(8, seed=5), "wlcg")
    rows = generate_table(bed, 3e12, 3600.0, ())
    order = np.random.default_rng(1).permutation(len(rows.rows))
    mixed = dataclasses.replace(rows, rows=tuple(rows.rows[number] for number in order))
    one, other = check_feasibility(rows, bed), check_feasibility(mixed, bed)
    by_pair = {(row.row.source, row.row.destination): row.expected_bit_per_s for row in one.rows}
    assert {(row.row.source, row.row.destination): row.expected_bit_per_s for row in other.rows} == pytest.approx(
        by_pair
    )
    assert sum(row.rate_bit_per_s for row in rows.rows) == pytest.approx(3e12)


def test_the_sentence_has_at_most_25_words():
    beds = star_testbed(BED), star_testbed(BED, storage={"kind": "disk", "size": "1 TB", "write_rate": "1 Mb/s"})
    for bed in beds:
        for rate in (50, 0.97 * 100 * PAYLOAD, 300):
            rows = table(("Alpha", "Beta", rate), ("Beta", "Gamma", 1))
            assert len(challenge_sentence(check_feasibility(rows, bed)).split()) <= 25


def test_too_many_intervals_of_time_are_rejected():
    rows = table(*(("Alpha", "Beta", 1, number, number + 1) for number in range(3000)))
    with pytest.raises(ScenarioError, match="intervals of time, found 3000"):
        check_feasibility(rows, star_testbed(BED))
