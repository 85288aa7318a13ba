"""The workload `tiers`: shares, replication, threshold, jobs, multi-tier and flat models, and the volumes of report 004."""

import json
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from peerskit import bed_of, pause_in, transfers_in, trials_of
from scipy.stats import chisquare

from venturi.errors import ScenarioError
from venturi.plan import Prepare, Signal, Wait, plan_lines
from venturi.scenario import load_scenario, scenario_from
from venturi.study import study
from venturi.workload import expand

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json").read_text())
JOBS = {"count": 4, "upload": "1 kB", "download": "2 kB", "wait_tier1": "15 s", "wait_tier2": "5 s"}
SITES = {
    "Alpha": {"tier": 1, "share": 0.6, "link": "alpha"}, "Beta": {"tier": 2, "share": 0.4, "link": "beta"}, "Gamma": {"link": "gamma"},
}  # fmt: skip


def tiers(*, top=None, **workload):
    """Return a scenario with 20 events: 12 at tier 1, 8 at tier 2."""
    given = {
        "mover": "globus-url-copy",
        "events": 20,
        "event_size": "10 kB",
        "production": {"batch": 5},
        "jobs": JOBS,
        "site": SITES,
    }
    return scenario_from(
        {
            "venturi": 1,
            "name": "t",
            **(top or {}),
            "testbed": bed_of(),
            "workload": {"kind": "tiers", **given, **workload},
        }
    )


def in_phase(plan, phase, model=None):
    return [
        (actor, trial) for actor, trial in trials_of(plan)
        if trial.factors["phase"] == phase and model in (None, trial.factors.get("model"))
    ]  # fmt: skip


def first_steps(plan):
    found = {}
    for line in plan.lines:
        found.setdefault(line.actor, line.steps)
    return found


def test_the_plan_is_reproducible_and_matches_the_schema():
    first, again = (list(plan_lines(expand(tiers(models=["multi-tier", "flat"], events=10)))) for _ in range(2))
    assert first == again
    check = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    for text in first:
        check.validate(json.loads(text))


def test_sites_create_their_events_in_batches_divided_among_their_machines():
    made = Counter()
    for actor, trial in in_phase(expand(tiers()), "production"):
        (prepare,) = [step for step in trial.steps if isinstance(step, Prepare)]
        assert prepare.files == trial.factors["events"] <= 5
        made[actor] += prepare.files
    assert made == {"alpha0": 4, "alpha1": 4, "alpha2": 4, "beta0": 8}


def test_every_file_of_tier_2_is_sent_to_tier_1_once():
    sent = [transfers_in(trial)[0] for _, trial in in_phase(expand(tiers(parallel=3)), "replication")]
    assert sorted(moved.source for moved in sent) == [f"beta0:sets/seed1/10kB/{n:06d}" for n in range(8)]
    assert {moved.destination.partition(":")[0] for moved in sent} == {"alpha0", "alpha1", "alpha2"}
    assert len({moved.destination for moved in sent}) == 8


def test_analysis_waits_for_the_threshold_of_all_or_of_each_site():
    whole = first_steps(expand(tiers()))["gamma0-jobs0"]
    assert whole[-1] == Wait("tiers.multi-tier.arrived", 7)  # 80 % of 8, rounded up
    each = first_steps(expand(tiers(threshold_of="each site", threshold=0.5)))["gamma0-jobs0"]
    assert each[-1] == Wait("tiers.multi-tier.arrived.Beta", 4)


def test_a_file_counts_for_the_threshold_when_it_has_arrived_without_a_signal():
    files = [trial for _, trial in in_phase(expand(tiers()), "replication")]
    assert [trial.counts for trial in files] == [
        {"tiers.multi-tier.arrived": 1, "tiers.multi-tier.arrived.Beta": 1}
    ] * 8
    assert not [step for trial in files for step in trial.steps if isinstance(step, Signal)]


def test_jobs_start_after_all_files_have_been_tried_even_below_the_threshold():
    steps = first_steps(expand(tiers(parallel=3)))["beta0-multi-tier-tried"]
    assert steps == (Wait("tiers.multi-tier.tried", 3), Signal("tiers.multi-tier.arrived", 7))
    tried = [
        step for line in expand(tiers(parallel=3)).lines for step in line.steps
        if step == Signal("tiers.multi-tier.tried", 1)
    ]  # fmt: skip
    assert len(tried) == 3


def test_a_job_uploads_waits_for_the_time_of_its_centre_and_downloads():
    jobs = in_phase(expand(tiers(jobs=JOBS | {"count": 200})), "analysis")
    assert Counter(actor for actor, _ in jobs) == {"gamma0-jobs0": 200, "gamma1-jobs0": 200}
    to = Counter()
    for _, trial in jobs:
        up, down = transfers_in(trial)
        assert (up.labels["part"], down.labels["part"], up.bytes, down.bytes) == ("upload", "download", 1000, 2000)
        assert (
            up.labels["partner"]
            == down.labels["partner"]
            == up.destination.partition(":")[0]
            == down.source.partition(":")[0]
        )
        assert trial.steps[1].duration_s == pause_in(trial) == (15 if trial.factors["centre_tier"] == 1 else 5)
        to[trial.factors["centre_tier"]] += 1
    assert chisquare([to[1], to[2]], [240, 160]).pvalue > 1e-3  # by share of the events: 60 and 40 %


def test_jobs_are_divided_evenly_among_sites_if_requested():
    jobs = in_phase(expand(tiers(jobs=JOBS | {"count": 200, "to": "sites"})), "analysis")
    to = Counter(trial.factors["centre_tier"] for _, trial in jobs)
    assert chisquare([to[1], to[2]]).pvalue > 1e-3


def test_the_flat_model_moves_the_same_bytes_by_bandwidth_after_the_tiers_have_ended():
    plan = expand(tiers(models=["multi-tier", "flat"], jobs=JOBS | {"count": 200}))
    volumes = [
        sum(
            m.bytes
            for phase in ("replication", "analysis")
            for _, t in in_phase(plan, phase, model)
            for m in transfers_in(t)
        )
        for model in ("multi-tier", "flat")
    ]
    assert volumes[0] == volumes[1] == plan.header.totals.bytes / 2 == 8 * 10_000 + 400 * 3000
    # From Gamma: Alpha has three machines at 100 Mb/s, Beta one at 300.
    to = Counter(transfers_in(t)[0].labels["partner_site"] for _, t in in_phase(plan, "analysis", "flat"))
    assert set(to) == {"Alpha", "Beta"}
    assert chisquare([to["Alpha"], to["Beta"]]).pvalue > 1e-3
    over = [step for line in plan.lines for step in line.steps if step == Signal("tiers.multi-tier.over", 1)]
    assert Wait("tiers.multi-tier.over", len(over)) in [step for line in plan.lines for step in line.steps]
    assert len(over) == 3


def test_totals_count_batches_files_and_jobs():
    plan = expand(tiers(models=["multi-tier", "flat"]))
    assert plan.header.totals.trials == len(trials_of(plan)) == 5 + 2 * (8 + 8)
    assert plan.header.totals.transfers == 2 * (8 + 16)
    assert [trial.id for _, trial in trials_of(plan)] == [f"t{n:07d}" for n in range(37)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"site": {**SITES, "Beta": {"tier": 2, "share": 0.2, "link": "beta"}}}, "workload.site: expected shares with sum 1, found 0.8"),
        ({"site": {**SITES, "Gamma": {"tier": 2, "link": "gamma"}}}, "workload.site.Gamma.share: expected a share above 0"),
        ({"site": {**SITES, "Gamma": {"tier": 2, "link": "gamma"}}}, "workload.site: expected one or more sites of tier 3, found none"),
        ({"events": 21}, "workload.site.Alpha.share: expected a whole number of events, found 0.6 × 21 = 12.6"),
        ({"models": ["flat", "flat"]}, "workload.models: expected one or more distinct models"),
        ({"mover": "cp"}, "workload.mover: expected a storage on beta0"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_location(changes, problem):
    with pytest.raises(ScenarioError) as caught:
        tiers(**changes)
    assert problem in str(caught.value)


@pytest.fixture(scope="module")
def published():
    return expand(load_scenario(study("alice/tiers").scenario_path))


def test_the_study_creates_5000_events_of_9_terabytes_in_the_fractions_of_the_report(published):
    header = published.header
    site = {name: host.lab.site for name, host in header.hosts.items()}
    made = Counter()
    for name, dataset in header.datasets.items():
        if name.startswith("events-"):
            assert dataset.size_bytes == 1_800_000_000
            made[site[dataset.storage]] += dataset.files
    assert made == {"CNAF": 3000, "Catania": 1000, "Torino": 1000}  # 20 % at each of the two (004-E06)
    assert sum(made.values()) * 1_800_000_000 == 9_000_000_000_000


def test_the_study_sends_1000_files_from_each_tier_2_centre_and_starts_jobs_at_1600(published):
    sent = Counter()
    for _, trial in in_phase(published, "replication", "multi-tier"):
        (moved,) = transfers_in(trial)
        assert moved.bytes == 1_800_000_000 and moved.labels["partner_site"] == "CNAF"
        sent[trial.factors["site"]] += 1
    assert sent == {"Catania": 1000, "Torino": 1000}
    assert first_steps(published)["goliath-jobs0"][-1] == Wait("tiers.multi-tier.arrived", 1600)
    job = in_phase(published, "analysis", "multi-tier")[0][1]
    assert [moved.bytes for moved in transfers_in(job)] == [1_000_000, 50_000_000]
    waits = {(t.factors["centre_tier"], pause_in(t)) for _, t in in_phase(published, "analysis", "multi-tier")}
    assert waits == {(1, 900.0), (2, 300.0)}
