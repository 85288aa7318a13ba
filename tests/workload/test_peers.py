"""The workload `peers`: partners by weight, alternating directions, random sizes and pauses, bounds, background."""

import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path

import jsonschema
import pytest
from peerskit import MACHINES, bed_of, pause_in, peers, transfers_in, trials_of
from scipy.stats import chisquare, kstest

from venturi.errors import ScenarioError
from venturi.plan import Prepare, Signal, Wait, plan_lines
from venturi.scenario import load_scenario
from venturi.study import library, study
from venturi.workload import expand

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json").read_text())
SURE = 1e-3
"""Significance level of tests of distributions. Draws are seeded, so a test that passes once always passes."""


def by_machine(plan):
    found = defaultdict(list)
    for actor, trial in trials_of(plan):
        found[actor].append(trial)
    return found


def test_equal_seeds_give_equal_plans_and_different_seeds_give_different_plans():
    first, again, other = (list(plan_lines(expand(peers(top={"seed": seed})))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_plan_matches_the_schema():
    check = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    for text in plan_lines(expand(peers(duration="1 min", transfers=2))):
        check.validate(json.loads(text))


def test_every_transfer_is_a_trial_of_the_machine_that_starts_it():
    plan = expand(peers())
    found = by_machine(plan)
    assert {host: len(trials) for host, trials in found.items()} == dict.fromkeys(found, 10)
    assert len(found) == sum(MACHINES.values())
    ids = [trial.id for _, trial in trials_of(plan)]
    assert ids == [f"t{number:07d}" for number in range(60)]
    assert plan.header.totals.trials == plan.header.totals.transfers == 60
    assert plan.header.totals.bytes == sum(transfers_in(trial)[0].bytes for _, trial in trials_of(plan))


def test_each_machine_downloads_and_uploads_in_turn():
    for host, trials in by_machine(expand(peers())).items():
        directions = [trial.factors["direction"] for trial in trials]
        assert all(a != b for a, b in itertools.pairwise(directions))
        for trial in trials:
            (moved,) = transfers_in(trial)
            partner = moved.labels["partner"]
            own, other = (
                (moved.source, moved.destination)
                if trial.factors["direction"] == "upload"
                else (moved.destination, moved.source)
            )
            assert own.startswith(f"{host}:") and other.startswith(f"{partner}:")
            # The machine itself runs the mover: its own end is a file, and the partner's end is behind a server.
            vias = (moved.source_via, moved.destination_via)
            assert vias == (
                (None, f"{partner}/ftp") if trial.factors["direction"] == "upload" else (f"{partner}/ftp", None)
            )


def test_all_machines_can_start_with_the_same_direction():
    plan = expand(peers(first_direction="upload"))
    assert {trials[0].factors["direction"] for trials in by_machine(plan).values()} == {"upload"}
    started_transfers = Counter(trials[0].factors["direction"] for trials in by_machine(expand(peers())).values())
    assert set(started_transfers) == {"download", "upload"}


def expected_fractions(own, choice):
    """Return the probability of each site by the rule: the weights of the machines that can be chosen."""
    rates = {"Alpha": 100.0, "Beta": 300.0, "Gamma": 50.0}
    weight = {s: rates[s] * (MACHINES[s] if choice == "machine" else 1) for s in rates if s != own}
    return {site: value / sum(weight.values()) for site, value in weight.items()}


@pytest.mark.parametrize("choice", ["machine", "site"])
def test_partners_are_chosen_according_to_the_weights(choice):
    seen = defaultdict(Counter)
    within = Counter()
    for host, trials in by_machine(expand(peers(transfers=1000, choice=choice))).items():
        for trial in trials:
            labels = transfers_in(trial)[0].labels
            seen[host][labels["partner_site"]] += 1
            within[labels["partner"]] += labels["partner_site"] == "Alpha"
    for host, counts in seen.items():
        own = host.rstrip("0123456789").capitalize()
        fractions = expected_fractions(own, choice)
        assert set(counts) == set(fractions)
        assert chisquare([counts[s] for s in fractions], [1000 * p for p in fractions.values()]).pvalue > SURE
    assert (
        chisquare([within[f"alpha{n}"] for n in range(3)]).pvalue > SURE
    )  # machines of one site have equal probability


def test_partners_can_be_at_the_same_site_but_never_the_machine_itself():
    plan = expand(peers(include_own_site=True, transfers=300))
    pairs = [
        (host, transfers_in(trial)[0].labels["partner"])
        for host, trials in by_machine(plan).items()
        for trial in trials
    ]
    assert any(host != partner and host[:-1] == partner[:-1] for host, partner in pairs)
    assert all(host != partner for host, partner in pairs)


def test_pauses_and_sizes_are_drawn_uniformly():
    trials = [
        trial
        for trials in by_machine(expand(peers(transfers=1500, pause=["10 s", "70 s"]))).values()
        for trial in trials[1:]
    ]
    pauses = [pause_in(trial) for trial in trials]
    assert kstest(pauses, "uniform", args=(10, 60)).pvalue > SURE
    sizes = Counter(transfers_in(trial)[0].bytes for trial in trials)
    assert set(sizes) == {1000, 2000}
    assert chisquare(list(sizes.values())).pvalue > SURE
    assert len(set(pauses)) > 0.9 * len(pauses)


def test_the_first_transfer_of_a_machine_has_no_pause():
    assert {pause_in(trials[0]) for trials in by_machine(expand(peers(pause="1 min"))).values()} == {0.0}


def test_an_additional_machine_does_not_change_pauses_and_sizes_of_the_others():
    few = by_machine(expand(peers()))
    many = by_machine(expand(peers(bed=bed_of({"Alpha": 3, "Beta": 2, "Gamma": 2}))))
    for host in few:
        assert [pause_in(t) for t in few[host]] == [pause_in(t) for t in many[host]]
        assert [t.factors["size_bytes"] for t in few[host]] == [t.factors["size_bytes"] for t in many[host]]


def test_transfers_wait_until_all_files_are_prepared():
    plan = expand(peers())
    first = {}
    for line in plan.lines:
        first.setdefault(line.actor, line.steps)
    for host, steps in first.items():
        *prepared, signal, wait = steps
        assert {plan.header.datasets[p.dataset].storage for p in prepared if isinstance(p, Prepare)} == {host}
        assert len(prepared) == 2
        assert (signal, wait) == (Signal("peers.ready", 1), Wait("peers.ready", 6))


FAST = {"Alpha": "256 Mb/s", "Beta": "256 Mb/s", "Gamma": "64 Mb/s"}
"""With these rates, a file of 1 MB takes binary fractions of a second: at least an eighth from and to Gamma."""


def test_a_duration_plans_as_many_transfers_as_the_slowest_link_allows():
    plan = expand(peers(bed=bed_of(rates=FAST), transfers=None, duration="60 s", sizes=["1 MB"], pause="0 s"))
    found = by_machine(plan)
    assert {len(found[host]) for host in ("gamma0", "gamma1")} == {60 * 8}
    assert all(trial.until_s == 60.0 for trials in found.values() for trial in trials)
    assert plan.header.totals.transfers is None
    assert plan.header.totals.bytes is None
    assert plan.header.totals.trials == sum(map(len, found.values()))


def test_a_link_upgrade_allows_more_planned_transfers():
    bed = bed_of(rates=FAST, change=[{"at": "30 s", "link": "gamma", "rate": "128 Mb/s"}])
    plan = expand(peers(bed=bed, transfers=None, duration="60 s", sizes=["1 MB"], pause="0 s"))
    assert len(by_machine(plan)["gamma0"]) == 60 * 16


def test_background_traffic_alternates_at_a_fraction_of_the_bandwidth_and_uses_cores():
    bed = bed_of()
    bed["host"]["out"] = {}
    bed["link"]["out"] = {"between": ["out", "backbone"], "rate": "1 Gb/s"}
    bed["service"]["out"] = {"kind": "iperf3", "host": "out", "ports": 6}
    background = {"service": "out", "share": 0.1, "cores": 0.25, "round": "20 s"}
    plan = expand(peers(bed=bed, transfers=None, duration="60 s", background=background, top={"scale": 0.5}))
    found = by_machine(plan)
    turns = found["background-Beta"]
    assert [trial.factors["direction"] for trial in turns] == ["background in", "background out"] * 2
    inward, outward = transfers_in(turns[0])[0], transfers_in(turns[1])[0]
    assert (inward.source_via, outward.destination_via) == ("out/iperf3", "out/iperf3")
    # A tenth of 300 Mb/s, halved by the scale, for 20 s.
    assert inward.bytes == outward.bytes == 15e6 / 8 * 20
    assert plan.header.calls[inward.call].options["rate_bytes_per_s"] == 15e6 / 8
    # An iperf3 server accepts one client at a time and is briefly unavailable after each, so two consecutive rounds use
    # different servers.
    slots = {site: [transfers_in(trial)[0].slot for trial in found[f"background-{site}"]] for site in MACHINES}
    assert sorted({slot for own in slots.values() for slot in own}) == [0, 1, 2, 3, 4, 5]
    assert all(own[0] == own[2] != own[1] == own[3] for own in slots.values())
    busy = found["work-gamma1"][0].steps
    assert (busy[0].core_s, busy[1].duration_s) == (5.0, 15.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"transfers": None}, "workload.transfers: expected transfers, duration or both, found neither"),
        ({"site": {"Alpha": {"link": "alpha"}}}, "workload.site: expected machines at two sites or more, found no partner for alpha0"),
        ({"site": {"Alpha": {"link": "alpha"}, "Bata": {"bandwidth": "1 Gb/s"}}},
         'workload.site.Bata: expected one of the sites of hosts: Alpha, Beta, Gamma, found "Bata"'),
        ({"site": {"Alpha": {"link": "alpha"}, "Beta": {"link": "bata"}}}, "workload.site.Beta.link: expected one of the links"),
        ({"site": {"Alpha": {"link": "alpha"}, "Beta": {}}}, "workload.site.Beta.bandwidth: expected a rate"),
        ({"site": {"Alpha": {"link": "gamma"}, "Beta": {"link": "beta"}}}, "workload.site.Alpha.link: expected a link on the route from alpha0"),
        ({"mover": "cp"}, "workload.mover: expected a storage on alpha0"),
        ({"mover": "iperf3"}, "workload.mover: expected one of the movers that copy files"),
        ({"options": {"streems": 8}}, "workload.options.streems: expected one of the options of globus-url-copy"),
        ({"options": {"streams": "8"}}, "workload.options.streams: expected a whole number"),
        ({"sizes": []}, "workload.sizes: expected one or more distinct sizes above 0"),
        ({"pause": ["2 s", "1 s"]}, "workload.pause: expected an ascending range of pauses up to 1 d"),
        ({"background": {"cores": 0.1}}, "workload.duration: expected a time (end of the background load)"),
        ({"duration": "1 min", "background": {"share": 0.1}}, "workload.background.service: expected one of the services"),
        ({"duration": "1 min", "background": {"share": 0.1, "mover": "curl", "service": "beta0"}},
         "workload.background.mover: expected one of the memory-to-memory movers"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_location(changes, problem):
    with pytest.raises(ScenarioError) as caught:
        peers(**changes)
    assert problem in str(caught.value)


def test_a_machine_needs_one_storage_of_its_own():
    bed = bed_of()
    bed["storage"]["more"] = {"host": "beta0", "path": "more"}
    with pytest.raises(ScenarioError, match="expected one storage on beta0 of site Beta, found beta0, more"):
        peers(bed=bed)


def test_without_links_the_number_of_transfers_must_be_given():
    bed = {
        "host": {"a": {"site": "A"}, "b": {"site": "B"}},
        "storage": {"a": {"host": "a", "path": "d"}, "b": {"host": "b", "path": "d"}},
    }
    site = {"A": {"bandwidth": "1 Gb/s"}, "B": {"bandwidth": "1 Gb/s"}}
    with pytest.raises(ScenarioError, match="without links, duration does not limit it"):
        peers(bed=bed, site=site, transfers=None, duration="1 min", mover="scp")


@pytest.fixture(scope="module")
def flat():
    return load_scenario(study("alice/flat").scenario_path)


def test_the_study_has_the_machines_and_access_links_of_table_1(flat):
    table = library().tables["004-sites"].rows
    hosts = {row["machine"]: row for row in table}
    assert len(hosts) == 26 and len({row["site"] for row in table}) == 10
    assert {name for name, host in flat.testbed.host.items() if host.site} == set(hosts)
    for name, row in hosts.items():
        assert flat.testbed.host[name].site == row["site"]
        assert flat.testbed.link[row["site"].lower()].rate == (row["max_rate_bit_per_s"],) * 2


def test_the_study_upgrades_the_three_links_of_the_report_at_half_time(flat):
    upgrades = {row["site"].lower(): row for row in library().tables["004-upgrades"].rows}
    assert {change.link for change in flat.testbed.change} == set(upgrades)
    for change in flat.testbed.change:
        row = upgrades[change.link]
        assert flat.testbed.link[change.link].rate[0] == row["before_bit_per_s"]
        assert change.rate == (row["after_bit_per_s"],) * 2
        assert 2 * change.at == flat.workload.duration


def test_the_study_has_the_sizes_pauses_and_streams_of_the_report(flat):
    assert flat.workload.sizes == (300_000_000, 800_000_000, 1_600_000_000)
    assert flat.workload.pause == (0.0, 60.0)
    assert flat.workload.options == {"streams": 8}
