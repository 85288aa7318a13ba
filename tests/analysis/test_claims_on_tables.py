"""Claims compared with measured tables and with published tables."""

import dataclasses

import pytest

from venturi.analysis.claims import TABLE_CHECKS, ClaimContext, check_claims
from venturi.analysis.section import Column, ReportSection, Table
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


def checked(claim, **fields):
    known = ClaimContext({}, sections=(ReportSection("c", "C", "", (OURS,)),), tables=(PRINTED,), **fields)
    (found,) = check_claims([{"id": "c", "text": "t", "of": "rate_bit_per_s", **claim}], (), 0.95, known)
    return found


def on_ours(check, **keys):
    found = checked({"table": "squid-rates", "check": check, **keys})
    return found.verdict, found.evidence


def on_printed(check, **keys):
    held = checked({"table": "printed", "check": check, **keys}).published
    return held.verdict, held.evidence


@pytest.mark.parametrize(
    ("check", "keys", "verdict", "figure"),
    [
        ("increasing", {"against": "clients", "where": ONE}, "agrees", "1 Gb/s at 1, 8.2 Gb/s at 40"),
        ("decreasing", {"against": "clients", "where": ONE}, "disagrees", "1 Gb/s at 1, 5 Gb/s at 10"),
        ("increasing", {"against": "clients", "by": ["site", "pairing"]}, "agrees", "4 of 4 agree"),
        ("flat", {"against": "clients", "where": {**ONE, "clients": [20, 40]}}, "agrees", "2.47 % from lowest"),
        ("flat", {"against": "clients", "where": ONE}, "disagrees", "from lowest to highest"),
        ("ratio", {"numerator": {"pairing": "one to one"}, "denominator": {"pairing": "all to all"}, "high": 0.6, "by": ["site", "clients"]},
         "agrees", "8 of 8 agree; ratios from 0.5 to 0.5"),
        ("ratio", {"numerator": {"clients": 40}, "denominator": {"clients": 20}, "where": ONE, "low": 1.1}, "disagrees", "ratio 1.025"),
        ("ratio", {"numerator": {"clients": 40}, "denominator": {"clients": 20}, "where": ONE, "low": 1.1, "within": 0.1}, "agrees", "1.025"),
        ("at_most", {"limit": 9e9}, "agrees", "8.2 Gb/s"),
        ("at_least", {"limit": 2e9, "where": ONE}, "disagrees", "1 Gb/s"),
        ("at_least", {"limit": 8e9, "where": ONE, "aggregate": "max"}, "agrees", "8.2 Gb/s"),
        ("at_least", {"limit": 2e9, "where": ONE, "by": ["clients"], "share": 0.75}, "agrees", "3 of 4 agree; contradicted by: clients 1: 1 Gb/s"),
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
def test_a_table_check_gives_the_verdict_of_the_rows_and_quotes_the_value(check, keys, verdict, figure):
    found, evidence = on_ours(check, **keys)
    assert found == verdict
    assert figure in evidence


def test_the_sum_check_adds_columns_or_rows_and_compares_the_total():
    by_columns = {"of": ["parts_bit_per_s", "rest_bit_per_s"], "equals_column": "rate_bit_per_s"}
    assert on_printed("sum", **by_columns, where={"clients": 1})[0] == "agrees"
    assert on_printed("sum", **by_columns, by=["clients"], where={"site": "Bari"}) == (
        "disagrees", "1 of 2 agree; ratios from 0.8889 to 1; contradicted by: clients 10: 8 b/s against 9 b/s, ratio 0.8889",
    )  # fmt: skip
    assert on_printed("sum", equals={"site": "total"})[0] == "agrees"
    assert on_printed("sum", of="parts_bit_per_s", equals=13)[0] == "disagrees"


def test_table_checks_have_the_expected_names():
    assert set(TABLE_CHECKS) == {
        "increasing", "decreasing", "flat", "ratio", "at_most", "at_least", "peak_at", "saturates_at", "sum", "equals",
    }  # fmt: skip


def test_measured_values_can_fluctuate_slightly_and_published_values_cannot():
    wandering = dataclasses.replace(OURS, rows=tuple(("Bari", n, "", r, r) for n, r in ((1, 1e9), (2, 2e9), (3, 1.95e9), (4, 3e9))))  # fmt: skip
    context = ClaimContext({}, sections=(ReportSection("c", "C", "", (wandering,)),))
    claim = {"id": "c", "text": "t", "table": "squid-rates", "check": "increasing", "of": "rate_bit_per_s", "against": "clients"}  # fmt: skip
    (found,) = check_claims([claim], (), 0.95, context)
    assert (found.verdict, found.published.verdict) == ("agrees", "disagrees")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"table": "elsewhere"}, "this run has no table 'elsewhere'"),
        ({"of": "goodput_bit_per_s"}, "has no column goodput_bit_per_s"),
        ({"where": {"city": "Bari"}}, "has no column city"),
        ({"where": {"site": "Padova"}}, "no row that the claim selects"),
        ({"where": {**ONE, "clients": 1}}, "too few measured values"),
        ({"check": "peak_below"}, "no check 'peak_below' for tables"),
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
def test_an_untestable_claim_gives_the_reason(keys, why):
    found = checked({"table": "squid-rates", "check": "increasing", "against": "clients", **keys})
    assert found.verdict == "not tested"
    assert why in found.evidence


def test_published_columns_of_our_table_are_used_if_the_report_has_no_table():
    found = checked({"table": "squid-rates", "check": "at_most", "limit": 9e9, "where": ONE})
    assert (found.verdict, found.published.verdict, found.published.evidence) == ("agrees", "disagrees", "16 Gb/s")


def test_our_columns_are_never_used_as_published_ones():
    mixed = Table("mixed", "", (*OURS.columns, Column("cpu_ratio", "Processor")), tuple((*row, 0.5) for row in ROWS))
    context = ClaimContext({}, sections=(ReportSection("c", "C", "", (mixed,)),))
    claim = {"id": "c", "text": "t", "table": "mixed", "check": "at_most", "of": "cpu_ratio", "limit": 0.9}
    (found,) = check_claims([claim], (), 0.95, context)
    assert (found.verdict, found.published) == ("agrees", None)


def test_a_ratio_with_match_uses_only_rows_present_on_both_sides():
    """An interrupted run has the small batches of one configuration and all batches of another."""
    rows = (("a", 1, 10.0), ("a", 2, 20.0), ("a", 3, 90.0), ("b", 1, 5.0), ("b", 2, 10.0), ("b", 3, None))
    table = Table("batches", "", tuple(Column(n, n) for n in ("side", "jobs", "rate_bit_per_s")), rows)
    claim = {"id": "c", "text": "t", "table": "batches", "check": "ratio", "of": "rate_bit_per_s", "numerator": {"side": "a"},
             "denominator": {"side": "b"}, "low": 1.99, "high": 2.01}  # fmt: skip
    context = ClaimContext({}, sections=(ReportSection("c", "C", "", (table,)),))
    verdicts = [check_claims([claim | more], (), 0.95, context)[0].verdict for more in ({}, {"match": ["jobs"]})]
    assert verdicts == ["disagrees", "agrees"]


def test_repeated_rows_count_by_their_mean_and_missing_values_are_reported():
    rows = (("a", 1, 5.0), ("a", 1, 1.0), ("a", 2, 3.5), ("a", 2, 4.5), ("b", 1, 2.0), ("b", 2, None))
    table = Table("repeated", "", tuple(Column(n, n) for n in ("side", "jobs", "wall_s")), rows)
    claim = {"id": "c", "text": "t", "table": "repeated", "check": "increasing", "of": "wall_s", "against": "jobs", "by": ["side"]}  # fmt: skip
    (found,) = check_claims([claim], (), 0.95, ClaimContext({}, sections=(ReportSection("c", "C", "", (table,)),)))
    assert (found.verdict, found.evidence) == ("agrees", "3 s at 1, 4 s at 2; 1 more not measured")


def test_a_claim_can_have_separate_keys_for_ours_and_published():
    found = checked({
        "check": "increasing", "against": "clients", "errata": ["002-E06"],
        "ours": {"table": "squid-rates", "where": ONE}, "published": {"table": "printed", "where": {"site": "Bari"}},
    })  # fmt: skip
    assert (found.verdict, found.published.verdict, found.errata) == ("agrees", "disagrees", ("002-E06",))
    assert checked({"check": "increasing", "ours": {"table": "squid-rates"}, "against": "clients"}).published is None


def test_published_limits_are_scaled_like_the_run_and_counts_are_not():
    claim = {"table": "squid-rates", "check": "at_most", "limit": 82e9, "where": ONE}
    assert checked(claim, rates_scale=0.1).verdict == "agrees"
    assert checked(claim, rates_scale=0.05).verdict == "disagrees"
    assert checked(claim | {"scaled": False}, rates_scale=0.05).verdict == "agrees"
    counted = {"table": "squid-rates", "check": "peak_at", "against": "clients", "values": [40], "where": ONE}
    assert checked(counted, scale=0.01, rates_scale=0.01).verdict == "agrees"


def test_rows_of_a_scaled_size_are_selected_by_the_published_size():
    sizes = Table("sizes", "", (Column("size_bytes", "Size"), Column("rate_bit_per_s", "Rate")), ((10**6, 5.0), (10**7, 6.0)))  # fmt: skip
    context = ClaimContext({}, scale=0.01, sections=(ReportSection("c", "C", "", (sizes,)),))
    claim = {"id": "c", "text": "t", "table": "sizes", "check": "equals", "of": "rate_bit_per_s", "equals": 6.0, "where": {"size_bytes": 10**9}}  # fmt: skip
    (found,) = check_claims([claim], (), 0.95, context)
    assert found.verdict == "agrees"


def test_a_claim_marked_as_untested_is_not_tested_even_if_the_table_supports_it():
    claim = {"table": "squid-rates", "check": "increasing", "against": "clients", "where": ONE}
    assert checked(claim).verdict == "agrees"
    found = checked({**claim, "ours": {"untested": "the rise is put in"}})
    assert (found.verdict, found.evidence) == ("not tested", "the rise is put in")
    assert found.published is not None
