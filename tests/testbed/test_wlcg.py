"""A testbed like the WLCG: the same bytes for a seed, tiers and their shares, routes between all sites, and workloads on it."""

import itertools
import math
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from venturi.errors import ScenarioError
from venturi.plan import Trial, plan_lines
from venturi.report.toml import as_toml
from venturi.scenario import load_scenario, scenario_from
from venturi.scenario import testbed as written
from venturi.testbed.plan import resolve_testbed
from venturi.testbed.wlcg import _HUBS, _great_circle_km, wlcg
from venturi.units import parse_bytes, parse_rate_bit_per_s
from venturi.workload import expand


@pytest.fixture(scope="module")
def large():
    """Return a resolved testbed of 200 sites."""
    problems = []
    document = wlcg(200, 1)
    parts = resolve_testbed(written.TestbedTable.model_validate(document["testbed"]), 1.0, problems)
    assert not problems
    return document["testbed"], parts


def test_equal_seeds_give_equal_testbeds_and_different_seeds_differ():
    texts = [as_toml(wlcg(30, seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert tomllib.loads(texts[0]) == wlcg(30, 1)


def test_an_additional_site_does_not_change_existing_links():
    few, many = wlcg(100, 1)["testbed"]["link"], wlcg(101, 1)["testbed"]["link"]
    assert all(many[name] == link for name, link in few.items())


def test_tiers_have_the_expected_number_of_sites_and_share_of_disk(large):
    bed, _ = large
    tiers = Counter(host[:2] for host in bed["host"])
    assert tiers == {"t0": 1, "t1": 15, "t2": 184}  # the WLCG has 13 tiers 1 of 174 sites
    disk = Counter()
    for name, storage in bed["storage"].items():
        disk[name[:2]] += parse_bytes(storage["size"])
    whole = sum(disk.values())
    assert {tier: disk[tier] / whole for tier in disk} == pytest.approx({"t0": 0.2, "t1": 0.4, "t2": 0.4}, rel=1e-3)


def test_links_have_at_least_10_gigabits_and_larger_sites_have_faster_links(large):
    bed, _ = large
    rates = {name: parse_rate_bit_per_s(bed["link"][name]["rate"]) for name in bed["host"]}
    assert min(rates.values()) == 10e9
    assert rates["t0"] == max(rates.values()) >= 400e9
    for tier in ("t1", "t2"):
        sites = sorted(
            (name for name in rates if name.startswith(tier)), key=lambda n: parse_bytes(bed["storage"][n]["size"])
        )
        assert all(rates[a] <= rates[b] for a, b in itertools.pairwise(sites))


def test_round_trip_times_between_sites_are_not_below_the_speed_of_light_in_fibre(large):
    bed, parts = large
    hosts = list(bed["host"])
    hubs = {hub.name: hub for hub in _HUBS}
    seen = 0
    for one, other in itertools.permutations(hosts, 2):
        rtt_s = parts.paths.rtt_s(one, other)
        ends = [hubs[bed["link"][name]["between"][1]] for name in (one, other)]
        # The minimum is the round trip between the hubs at 200,000 km/s. No pair is further apart than once around the
        # earth over three hubs.
        assert 2 * _great_circle_km(*ends) / 2e5 <= rtt_s < 0.6
        seen += 1
    assert seen == 200 * 199


def test_distances_between_hubs_match_maps():
    hubs = {hub.name: hub for hub in _HUBS}
    # Geneva to Amsterdam 690 km, Geneva to Singapore 10,500 km, Chicago to Tokyo 10,140 km, each within some per cent.
    assert _great_circle_km(hubs["eu-west"], hubs["eu-north"]) == pytest.approx(690, rel=0.03)
    assert _great_circle_km(hubs["eu-west"], hubs["asia-south"]) == pytest.approx(10_500, rel=0.03)
    assert _great_circle_km(hubs["na-east"], hubs["asia"]) == pytest.approx(10_140, rel=0.03)
    assert math.fsum(hub.fraction for hub in _HUBS) == pytest.approx(1)


def test_the_network_of_forty_thousand_pairs_is_small(large):
    _, parts = large
    network = parts.network
    assert len(network.links) == 2 * (200 + 10)
    assert sum(map(len, network.routes.values())) == 8 * 200
    assert all(not host.lab.routes for host in parts.hosts.values())


def workload(document, kind, **more):
    sites = document.get("workload", {}).get("site")
    given = {"kind": kind, "mover": "xrdcp", **({"site": sites} if sites else {}), **more}
    return expand(scenario_from({"venturi": 1, "name": "w", "testbed": document["testbed"], "workload": given}))


def test_peers_and_tiers_workloads_expand_on_the_testbed():
    plan = workload(wlcg(20, 1, "peers"), "peers", sizes=["1 GB"], transfers=2)
    assert plan.header.totals.transfers == 40
    jobs = {"count": 1, "upload": "1 MB", "download": "1 MB", "wait_tier1": "1 s", "wait_tier2": "1 s"}
    plan = workload(wlcg(20, 1, "tiers"), "tiers", events=10_000, event_size="1 GB", jobs=jobs)
    # Nine of the eighteen sites of tier 2 produce all data, and the other nine submit one job each: 10,000 files, two
    # transfers per job.
    assert plan.header.totals.transfers == 10_000 + 2 * 9


def test_a_year_of_a_hundred_million_transfers_has_a_small_plan():
    flow = {
        "source": "t*",
        "destination": "t*",
        "of": "capacity",
        "rate": "100000000 /year",
        "end": "365 d",
        "size": "2 GB",
    }
    plan = workload(wlcg(40, 1), "inject", flow={"all": flow})
    lines = list(plan_lines(plan))
    assert len(lines) == 1 + 40 + 40 * 39
    assert sum(map(len, lines)) < 1_000 * len(lines)


@pytest.mark.parametrize("sites", [3, 451])
def test_a_number_of_sites_out_of_range_is_rejected(sites):
    with pytest.raises(ScenarioError, match=f"expected 4 to 450 sites, found {sites}"):
        wlcg(sites, 1)


def test_the_year_scenario_of_the_howto_expands_to_the_documented_transfers(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "data-challenge.md").read_text()
    year = page.split("# file: year.toml\n")[1].partition("```")[0]
    (tmp_path / "year.toml").write_text(year)
    (tmp_path / "testbed.toml").write_text(as_toml(wlcg(40, 1)))
    plan = expand(load_scenario(tmp_path / "year.toml"))
    trials = [step for line in plan.lines for step in line.steps if isinstance(step, Trial)]
    transfers = 0.0
    for (loop,) in (trial.steps for trial in trials):
        (start, rate), (end, _) = loop.rate_per_s
        transfers += rate * (end - start)
    assert transfers == pytest.approx(1e8)
    # From tier 0, among tier 1, between tier 1 and tier 2 (down, up, read), among tier 2.
    firsts, seconds = 3, 36
    routes = firsts + firsts * (firsts - 1) + 3 * firsts * seconds + seconds * (seconds - 1)
    assert plan.header.totals.trials == len(trials) == routes
