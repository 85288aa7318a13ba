"""The workload `peers`: partners by weight, directions in turn, sizes and pauses at random, bounds, background."""

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
"""Draws are seeded: a test of a distribution that passes once passes always, and this is what it would miss by chance."""


def by_machine(plan):
    found = defaultdict(list)
    for actor, trial in trials_of(plan):
        found[actor].append(trial)
    return found


def test_the_same_seed_gives_the_same_plan_and_another_seed_another():
    first, again, other = (list(plan_lines(expand(peers(top={"seed": seed})))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_plan_is_one_of_the_format():
    check = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    for text in plan_lines(expand(peers(duration="1 min", transfers=2))):
        check.validate(json.loads(text))


def test_every_transfer_is_a_trial_of_the_machine_that_makes_it():
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
            # The machine itself calls the mover: its own end is a file, the partner's is behind the partner's server.
            vias = (moved.source_via, moved.destination_via)
            assert vias == (
                (None, f"{partner}/ftp") if trial.factors["direction"] == "upload" else (f"{partner}/ftp", None)
            )


def test_all_machines_may_be_told_to_begin_with_the_same_direction():
    plan = expand(peers(begin="upload"))
    assert {trials[0].factors["direction"] for trials in by_machine(plan).values()} == {"upload"}
    begun = Counter(trials[0].factors["direction"] for trials in by_machine(expand(peers())).values())
    assert set(begun) == {"download", "upload"}


def expected_shares(own, choice):
    """Return site → probability, written out from the rule: the weights of those machines that may be chosen."""
    rates = {"Alpha": 100.0, "Beta": 300.0, "Gamma": 50.0}
    weight = {s: rates[s] * (MACHINES[s] if choice == "machine" else 1) for s in rates if s != own}
    return {site: value / sum(weight.values()) for site, value in weight.items()}


@pytest.mark.parametrize("choice", ["machine", "site"])
def test_partners_are_chosen_as_often_as_the_weights_say(choice):
    seen = defaultdict(Counter)
    within = Counter()
    for host, trials in by_machine(expand(peers(transfers=1000, choice=choice))).items():
        for trial in trials:
            labels = transfers_in(trial)[0].labels
            seen[host][labels["partner_site"]] += 1
            within[labels["partner"]] += labels["partner_site"] == "Alpha"
    for host, counts in seen.items():
        own = host.rstrip("0123456789").capitalize()
        shares = expected_shares(own, choice)
        assert set(counts) == set(shares)
        assert chisquare([counts[s] for s in shares], [1000 * p for p in shares.values()]).pvalue > SURE
    assert chisquare([within[f"alpha{n}"] for n in range(3)]).pvalue > SURE  # machines of one site alike


def test_partners_may_be_of_the_own_site_but_never_the_machine_itself():
    plan = expand(peers(own_site=True, transfers=300))
    pairs = [
        (host, transfers_in(trial)[0].labels["partner"])
        for host, trials in by_machine(plan).items()
        for trial in trials
    ]
    assert any(host != partner and host[:-1] == partner[:-1] for host, partner in pairs)
    assert all(host != partner for host, partner in pairs)


def test_pauses_and_sizes_are_drawn_evenly_and_each_by_itself():
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


def test_the_first_transfer_of_a_machine_follows_no_pause():
    assert {pause_in(trials[0]) for trials in by_machine(expand(peers(pause="1 min"))).values()} == {0.0}


def test_one_machine_more_leaves_the_draws_of_the_others_alone_but_for_whom_they_can_choose():
    few = by_machine(expand(peers()))
    many = by_machine(expand(peers(bed=bed_of({"Alpha": 3, "Beta": 2, "Gamma": 2}))))
    for host in few:
        assert [pause_in(t) for t in few[host]] == [pause_in(t) for t in many[host]]
        assert [t.factors["size_bytes"] for t in few[host]] == [t.factors["size_bytes"] for t in many[host]]


def test_nobody_is_asked_for_a_file_before_all_files_are_there():
    plan = expand(peers())
    first = {}
    for line in plan.lines:
        first.setdefault(line.actor, line.steps)
    for host, steps in first.items():
        *prepared, signal, wait = steps
        assert {plan.header.datasets[p.dataset].place for p in prepared if isinstance(p, Prepare)} == {host}
        assert len(prepared) == 2
        assert (signal, wait) == (Signal("peers.ready", 1), Wait("peers.ready", 6))


FAST = {"Alpha": "256 Mb/s", "Beta": "256 Mb/s", "Gamma": "64 Mb/s"}
"""Of which a file of 1 MB takes binary fractions of a second: an eighth from and to Gamma at least."""


def test_within_a_duration_as_many_transfers_are_planned_as_the_narrowest_link_allows():
    plan = expand(peers(bed=bed_of(rates=FAST), transfers=None, duration="60 s", sizes=["1 MB"], pause="0 s"))
    found = by_machine(plan)
    assert {len(found[host]) for host in ("gamma0", "gamma1")} == {60 * 8}
    assert all(trial.until_s == 60.0 for trials in found.values() for trial in trials)
    assert plan.header.totals.transfers is None
    assert plan.header.totals.bytes is None
    assert plan.header.totals.trials == sum(map(len, found.values()))


def test_a_link_that_becomes_faster_lets_more_transfers_be_planned():
    bed = bed_of(rates=FAST, change=[{"at": "30 s", "link": "gamma", "rate": "128 Mb/s"}])
    plan = expand(peers(bed=bed, transfers=None, duration="60 s", sizes=["1 MB"], pause="0 s"))
    assert len(by_machine(plan)["gamma0"]) == 60 * 16


def test_background_takes_turns_at_a_share_of_the_bandwidth_and_keeps_cores_busy():
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
    # A server of iperf3 takes one client at a time, and is away for a moment after each: none is asked in two turns that follow each other.
    slots = {site: [transfers_in(trial)[0].slot for trial in found[f"background-{site}"]] for site in MACHINES}
    assert sorted({slot for own in slots.values() for slot in own}) == [0, 1, 2, 3, 4, 5]
    assert all(own[0] == own[2] != own[1] == own[3] for own in slots.values())
    busy = found["work-gamma1"][0].steps
    assert (busy[0].core_s, busy[1].duration_s) == (5.0, 15.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"transfers": None}, "workload.transfers: expected transfers (of each machine), duration, or both, found neither"),
        ({"site": {"Alpha": {"link": "alpha"}}}, "workload.site: expected machines at two sites or more, found no partner for alpha0"),
        ({"site": {"Alpha": {"link": "alpha"}, "Bata": {"bandwidth": "1 Gb/s"}}},
         'workload.site.Bata: expected one of the sites that hosts name: Alpha, Beta, Gamma, found "Bata"'),
        ({"site": {"Alpha": {"link": "alpha"}, "Beta": {"link": "bata"}}}, "workload.site.Beta.link: expected one of the links"),
        ({"site": {"Alpha": {"link": "alpha"}, "Beta": {}}}, "workload.site.Beta.bandwidth: expected its rate"),
        ({"site": {"Alpha": {"link": "gamma"}, "Beta": {"link": "beta"}}}, "workload.site.Alpha.link: expected a link on the way from alpha0"),
        ({"mover": "cp"}, "workload.mover: expected a storage on alpha0"),
        ({"mover": "iperf3"}, "workload.mover: expected one of the movers that copy files"),
        ({"options": {"streems": 8}}, "workload.options.streems: expected one of the options of globus-url-copy"),
        ({"options": {"streams": "8"}}, "workload.options.streams: expected a whole number"),
        ({"sizes": []}, "workload.sizes: expected distinct sizes above 0"),
        ({"pause": ["2 s", "1 s"]}, "workload.pause: expected a pause of 1 d at most, the shortest first"),
        ({"background": {"cores": 0.1}}, "workload.duration: expected a time (background goes on until then)"),
        ({"duration": "1 min", "background": {"share": 0.1}}, "workload.background.service: expected one of the services"),
        ({"duration": "1 min", "background": {"share": 0.1, "mover": "curl", "service": "beta0"}},
         "workload.background.mover: expected one of the movers from memory"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(changes, problem):
    with pytest.raises(ScenarioError) as caught:
        peers(**changes)
    assert problem in str(caught.value)


def test_a_machine_needs_one_storage_of_its_own():
    bed = bed_of()
    bed["storage"]["more"] = {"host": "beta0", "path": "more"}
    with pytest.raises(ScenarioError, match="expected one storage on beta0, a machine of Beta, found beta0, more"):
        peers(bed=bed)


def test_without_links_the_number_of_transfers_must_be_told():
    bed = {
        "host": {"a": {"site": "A"}, "b": {"site": "B"}},
        "storage": {"a": {"host": "a", "path": "d"}, "b": {"host": "b", "path": "d"}},
    }
    site = {"A": {"bandwidth": "1 Gb/s"}, "B": {"bandwidth": "1 Gb/s"}}
    with pytest.raises(ScenarioError, match="without links nothing tells how many fit"):
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


def test_the_study_upgrades_the_three_links_of_the_report_half_way(flat):
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
