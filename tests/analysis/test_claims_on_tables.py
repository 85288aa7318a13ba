"""Claims held against tables: ours, and those that the report printed."""

import dataclasses

import pytest

from venturi.analysis.chapter import Chapter, Column, Table
from venturi.analysis.claims import TABLE_CHECKS, Facts, judge_claims
from venturi.study import PublishedTable

COLUMNS = ("site", "clients", "pairing", "rate_bit_per_s", "rate_published_bit_per_s")
ROWS = tuple(
    (site, clients, pairing, rate * (0.5 if pairing == "one to one" else 1.0), 2 * rate if clients != 40 else None)
    for site in ("Bari", "Torino")
    for clients, rate in ((1, 1e9), (10, 5e9), (20, 8e9), (40, 8.2e9))
    for pairing in ("one to one", "all to all")
)
OURS = Table(
    "squid-rates", "Rates", tuple(Column(name, name, published="published" in name) for name in COLUMNS), ROWS
)
PRINTED = PublishedTable(
    "Printed", "", None, ("site", "clients", "rate_bit_per_s", "parts_bit_per_s", "rest_bit_per_s"),
    ({"site": "Bari", "clients": 1, "rate_bit_per_s": 10, "parts_bit_per_s": 7, "rest_bit_per_s": 3},
     {"site": "Bari", "clients": 10, "rate_bit_per_s": 9, "parts_bit_per_s": 5, "rest_bit_per_s": 3},
     {"site": "total", "clients": None, "rate_bit_per_s": 19, "parts_bit_per_s": None, "rest_bit_per_s": None}), "printed",
)  # fmt: skip
ONE = {"site": "Bari", "pairing": "all to all"}


def judged(claim, **facts):
    known = Facts({}, chapters=(Chapter("c", "C", "", (OURS,)),), tables=(PRINTED,), **facts)
    (found,) = judge_claims([{"id": "c", "text": "t", "of": "rate_bit_per_s", **claim}], (), 0.95, known)
    return found


def on_ours(check, **keys):
    found = judged({"table": "squid-rates", "check": check, **keys})
    return found.verdict, found.evidence


def on_printed(check, **keys):
    held = judged({"table": "printed", "check": check, **keys}).published
    return held.verdict, held.evidence


@pytest.mark.parametrize(
    ("check", "keys", "verdict", "figure"),
    [
        ("increasing", {"against": "clients", "where": ONE}, "agrees", "1 Gb/s at 1, 8.2 Gb/s at 40"),
        ("decreasing", {"against": "clients", "where": ONE}, "disagrees", "1 Gb/s at 1, 5 Gb/s at 10"),
        ("increasing", {"against": "clients", "by": ["site", "pairing"]}, "agrees", "4 of 4 agree"),
        ("flat", {"against": "clients", "where": {**ONE, "clients": [20, 40]}}, "agrees", "2.47 % from least"),
        ("flat", {"against": "clients", "where": ONE}, "disagrees", "from least to greatest"),
        ("ratio", {"numerator": {"pairing": "one to one"}, "denominator": {"pairing": "all to all"}, "high": 0.6, "by": ["site", "clients"]},
         "agrees", "8 of 8 agree; ratios from 0.5 to 0.5"),
        ("ratio", {"numerator": {"clients": 40}, "denominator": {"clients": 20}, "where": ONE, "low": 1.1}, "disagrees", "ratio 1.025"),
        ("ratio", {"numerator": {"clients": 40}, "denominator": {"clients": 20}, "where": ONE, "low": 1.1, "within": 0.1}, "agrees", "1.025"),
        ("at_most", {"limit": 9e9}, "agrees", "8.2 Gb/s"),
        ("at_least", {"limit": 2e9, "where": ONE}, "disagrees", "1 Gb/s"),
        ("at_least", {"limit": 8e9, "where": ONE, "aggregate": "max"}, "agrees", "8.2 Gb/s"),
        ("at_least", {"limit": 2e9, "where": ONE, "by": ["clients"], "share": 0.75}, "agrees", "3 of 4 agree; against it: clients 1: 1 Gb/s"),
        ("peak_at", {"against": "clients", "values": [40], "where": ONE}, "agrees", "highest at 40"),
        ("peak_at", {"against": "clients", "values": [10, 20], "where": ONE}, "disagrees", "highest at 40"),
        ("peak_at", {"against": "pairing", "values": ["all to all"], "by": ["site", "clients"]}, "agrees", "8 of 8"),
        ("saturates_at", {"against": "clients", "low": 15, "high": 30, "where": ONE}, "agrees", "from 20 on"),
        ("saturates_at", {"against": "clients", "low": 15, "high": 30, "within": 0.01, "where": ONE}, "disagrees", "from 40 on"),
        ("sum", {"equals": 22.2e9, "where": ONE}, "agrees", "22.2 Gb/s against 22.2 Gb/s, ratio 1"),
        ("equals", {"equals": 5.55e9, "where": ONE}, "agrees", "ratio 1"),
        ("equals", {"equals": 5e9, "where": ONE}, "disagrees", "5.55 Gb/s against 5 Gb/s, ratio 1.11"),
        ("equals", {"equals": 8.2e9, "aggregate": "max"}, "agrees", "ratio 1"),
    ],
)  # fmt: skip
def test_a_check_says_what_the_rows_say_and_quotes_the_figure(check, keys, verdict, figure):
    found, evidence = on_ours(check, **keys)
    assert found == verdict
    assert figure in evidence


def test_parts_add_up_across_columns_or_down_to_the_row_of_the_total():
    by_columns = {"of": ["parts_bit_per_s", "rest_bit_per_s"], "equals_column": "rate_bit_per_s"}
    assert on_printed("sum", **by_columns, where={"clients": 1})[0] == "agrees"
    assert on_printed("sum", **by_columns, by=["clients"], where={"site": "Bari"}) == (
        "disagrees", "1 of 2 agree; ratios from 0.8889 to 1; against it: clients 10: 8 b/s against 9 b/s, ratio 0.8889",
    )  # fmt: skip
    assert on_printed("sum", equals={"site": "total"})[0] == "agrees"
    assert on_printed("sum", of="parts_bit_per_s", equals=13)[0] == "disagrees"


def test_every_check_of_a_table_is_known_by_its_name():
    assert set(TABLE_CHECKS) == {
        "increasing", "decreasing", "flat", "ratio", "at_most", "at_least", "peak_at", "saturates_at", "sum", "equals",
    }  # fmt: skip


def test_ours_may_wander_a_little_where_printed_figures_may_not():
    wandering = dataclasses.replace(OURS, rows=tuple(("Bari", n, "", r, r) for n, r in ((1, 1e9), (2, 2e9), (3, 1.95e9), (4, 3e9))))  # fmt: skip
    facts = Facts({}, chapters=(Chapter("c", "C", "", (wandering,)),))
    claim = {"id": "c", "text": "t", "table": "squid-rates", "check": "increasing", "of": "rate_bit_per_s", "against": "clients"}  # fmt: skip
    (found,) = judge_claims([claim], (), 0.95, facts)
    assert (found.verdict, found.published.verdict) == ("agrees", "disagrees")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"table": "elsewhere"}, "this run has no table 'elsewhere' of its own"),
        ({"of": "goodput_bit_per_s"}, "has no column goodput_bit_per_s"),
        ({"where": {"city": "Bari"}}, "has no column city"),
        ({"where": {"site": "Padova"}}, "no row that the claim speaks of"),
        ({"where": {**ONE, "clients": 1}}, "too few measured values"),
        ({"check": "peak_below"}, "no check 'peak_below' of a table"),
        ({"check": "at_most"}, "the claim lacks limit"),
        ({"check": "ratio", "numerator": {"site": "Bari"}}, "the claim lacks denominator"),
        ({"check": "ratio"}, "the claim lacks over|numerator"),
        ({"check": "equals", "equals": 1, "aggregate": "mode"}, "lacks aggregate (one of mean, max"),
        (
            {"check": "equals", "equals": 1, "aggregate": "std", "where": {**ONE, "clients": 1}},
            "too few measured values",
        ),
    ],
)
def test_what_cannot_be_tested_says_why(keys, why):
    found = judged({"table": "squid-rates", "check": "increasing", "against": "clients", **keys})
    assert found.verdict == "not tested"
    assert why in found.evidence


def test_published_columns_beside_ours_are_the_reports_own_table_if_there_is_no_other():
    found = judged({"table": "squid-rates", "check": "at_most", "limit": 9e9, "where": ONE})
    assert (found.verdict, found.published.verdict, found.published.evidence) == ("agrees", "disagrees", "16 Gb/s")


def test_our_columns_are_never_taken_for_published_ones():
    mixed = Table("mixed", "", (*OURS.columns, Column("cpu_ratio", "Processor")), tuple((*row, 0.5) for row in ROWS))
    facts = Facts({}, chapters=(Chapter("c", "C", "", (mixed,)),))
    claim = {"id": "c", "text": "t", "table": "mixed", "check": "at_most", "of": "cpu_ratio", "limit": 0.9}
    (found,) = judge_claims([claim], (), 0.95, facts)
    assert (found.verdict, found.published) == ("agrees", None)


def test_a_ratio_over_several_rows_uses_those_that_both_sides_have():
    """A run that was stopped has the small batches of one configuration and all of another."""
    rows = (("a", 1, 10.0), ("a", 2, 20.0), ("a", 3, 90.0), ("b", 1, 5.0), ("b", 2, 10.0), ("b", 3, None))
    table = Table("batches", "", tuple(Column(n, n) for n in ("side", "jobs", "rate_bit_per_s")), rows)
    claim = {"id": "c", "text": "t", "table": "batches", "check": "ratio", "of": "rate_bit_per_s", "numerator": {"side": "a"},
             "denominator": {"side": "b"}, "low": 1.99, "high": 2.01}  # fmt: skip
    facts = Facts({}, chapters=(Chapter("c", "C", "", (table,)),))
    verdicts = [judge_claims([claim | more], (), 0.95, facts)[0].verdict for more in ({}, {"match": ["jobs"]})]
    assert verdicts == ["disagrees", "agrees"]


def test_rows_of_one_place_count_by_their_mean_and_groups_without_a_value_are_told():
    rows = (("a", 1, 5.0), ("a", 1, 1.0), ("a", 2, 3.5), ("a", 2, 4.5), ("b", 1, 2.0), ("b", 2, None))
    table = Table("repeated", "", tuple(Column(n, n) for n in ("side", "jobs", "wall_s")), rows)
    claim = {"id": "c", "text": "t", "table": "repeated", "check": "increasing", "of": "wall_s", "against": "jobs", "by": ["side"]}  # fmt: skip
    (found,) = judge_claims([claim], (), 0.95, Facts({}, chapters=(Chapter("c", "C", "", (table,)),)))
    assert (found.verdict, found.evidence) == ("agrees", "3 s at 1, 4 s at 2; 1 more not measured")


def test_each_side_may_have_keys_of_its_own():
    found = judged({
        "check": "increasing", "against": "clients", "errata": ["002-E06"],
        "ours": {"table": "squid-rates", "where": ONE}, "published": {"table": "printed", "where": {"site": "Bari"}},
    })  # fmt: skip
    assert (found.verdict, found.published.verdict, found.errata) == ("agrees", "disagrees", ("002-E06",))
    assert judged({"check": "increasing", "ours": {"table": "squid-rates"}, "against": "clients"}).published is None


def test_published_limits_and_sizes_are_scaled_as_the_run_was_and_counts_are_not():
    claim = {"table": "squid-rates", "check": "at_most", "limit": 82e9, "where": ONE}
    assert judged(claim, rates_scale=0.1).verdict == "agrees"
    assert judged(claim, rates_scale=0.05).verdict == "disagrees"
    assert judged(claim | {"scaled": False}, rates_scale=0.05).verdict == "agrees"
    counted = {"table": "squid-rates", "check": "peak_at", "against": "clients", "values": [40], "where": ONE}
    assert judged(counted, scale=0.01, rates_scale=0.01).verdict == "agrees"


def test_rows_of_a_scaled_size_are_found_by_the_published_one():
    sizes = Table("sizes", "", (Column("size_bytes", "Size"), Column("rate_bit_per_s", "Rate")), ((10**6, 5.0), (10**7, 6.0)))  # fmt: skip
    facts = Facts({}, scale=0.01, chapters=(Chapter("c", "C", "", (sizes,)),))
    claim = {"id": "c", "text": "t", "table": "sizes", "check": "equals", "of": "rate_bit_per_s", "equals": 6.0, "where": {"size_bytes": 10**9}}  # fmt: skip
    (found,) = judge_claims([claim], (), 0.95, facts)
    assert found.verdict == "agrees"


def test_what_a_run_can_say_nothing_of_is_not_tested_whatever_its_table_holds():
    claim = {"table": "squid-rates", "check": "increasing", "against": "clients", "where": ONE}
    assert judged(claim).verdict == "agrees"
    found = judged({**claim, "ours": {"untested": "the rise is put in"}})
    assert (found.verdict, found.evidence) == ("not tested", "the rise is put in")
    assert found.published is not None
