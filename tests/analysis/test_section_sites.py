"""Report sections of `peers` and `tiers`, for runs with planted traffic, partners and phases."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workload"))
from peerskit import MACHINES, bed_of, peers, transfers_in, trials_of

from testkit import transfer_record, trial_record
from venturi.analysis import analyse
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

CHANGE_S, END_S = 50.0, 100.0
RATES_BIT_PER_S = {"alpha": (40e6, 40e6), "beta": (3e6, 3e6), "gamma": (45e6, 90e6)}
"""Inbound rates of each site, before and after the change. Outbound rates are half of them."""


@pytest.fixture
def write_run(tmp_path):
    """Return a function that writes a run of a scenario from `record` (trial, number → record), with counters."""
    opened = []

    def write(scenario, record, samples=(), done=None, state="complete", backend="lab", events=()):
        plan = expand(scenario)
        write_plan(plan, tmp_path / "plan.jsonl")
        with RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend=backend) as run:
            run.start_session({"alpha0": {}})
            for number, (actor, trial) in enumerate(trials_of(plan)):
                if done is None or number < done:
                    run.trial(record(actor, trial, number), actor.partition("-")[0])
            for host, sample in samples:
                run.sample(sample, host)
            for event in events:
                run.event(event, "wire")
            run.finish(state)
        opened.append(Run.open(run.path))
        return opened[-1]

    yield write
    for run in opened:
        run.close()


def one_a_second(actor, trial, number):
    """Return the record of a trial with transfers of one second each. Trials run in sequence."""
    start_s = 1.0 + number
    moved = [
        transfer_record(trial.id, actor=actor, call=t.call, source=t.source, destination=t.destination, requested_bytes=t.bytes,
                        received_bytes=t.bytes, labels=dict(t.labels), start_s=start_s + k / 4, end_s=start_s + k / 4 + 0.25,
                        duration_s=0.25)
        for k, t in enumerate(transfers_in(trial))
    ]  # fmt: skip
    return trial_record(trial.id, actor=actor, transfers=moved, start_s=start_s, end_s=start_s + 1)


def link_samples(until_s=END_S):
    """Yield counters of links that grow at known rates."""
    total = dict.fromkeys([name for s in RATES_BIT_PER_S for name in (f"{s}>backbone", f"backbone>{s}")], 0.0)
    for second in range(int(until_s) + 1):
        yield (
            "wire",
            {"time_s": float(second), "counters": {f"link.{name}.bytes": value for name, value in total.items()}},
        )
        for site, rates in RATES_BIT_PER_S.items():
            rate = rates[second >= CHANGE_S] / 8
            total[f"backbone>{site}"] += rate
            total[f"{site}>backbone"] += rate / 2


def upgraded():
    """Return a scenario of 60 transfers in which the link of Gamma doubles half-way."""
    return peers(bed=bed_of(change=[{"at": f"{CHANGE_S:g} s", "link": "gamma", "rate": "100 Mb/s"}]), pause="0 s")


def section_of(run, name):
    return next(section for section in analyse(run).sections if section.name == name)


def rows_of(section, name):
    """Return the rows of a table as dictionaries."""
    table = next(table for table in section.tables if table.name == name)
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def test_site_traffic_before_and_after_an_upgrade_comes_from_link_counters(write_run):
    section = section_of(write_run(upgraded(), one_a_second, link_samples()), "peers")
    rows = {(row["site"], row["period"]): row for row in rows_of(section, "site-traffic")}
    assert set(rows) == {(site, period) for site in MACHINES for period in ("before", "after")}
    for site, rates in RATES_BIT_PER_S.items():
        for period, rate in zip(("before", "after"), rates, strict=True):
            row = rows[site.capitalize(), period]
            assert (row["in_bit_per_s"], row["out_bit_per_s"]) == pytest.approx((rate, rate / 2))
    # 45 of 50 Mb/s, and then 90 of 100 Mb/s.
    assert [rows["Gamma", period]["busy_use_ratio"] for period in ("before", "after")] == pytest.approx([0.9, 0.9])
    assert rows["Beta", "after"]["in_use_ratio"] == pytest.approx(0.01)
    gains = {row["site"]: row for row in rows_of(section, "link-upgrades")}
    assert (gains["Gamma"]["link"], gains["Gamma"]["link_gain"]) == ("upgraded", 2)
    assert gains["Gamma"]["traffic_gain"] == pytest.approx(2)
    assert (gains["Beta"]["link"], gains["Beta"]["traffic_gain"]) == ("unchanged", pytest.approx(1))
    assert "Gamma ×2 (link ×2)" in section.sentence
    assert [band.text for band in section.figures[0].panels[0].bands] == ["before", "after"]


def test_link_changes_have_the_reported_time_instead_of_the_planned_time(write_run):
    events = [
        {"time_s": 53.0, "kind": "network-change", "detail": {"link": link, "set": {"rate_bit_per_s": 100e6}}}
        for link in ("gamma>backbone", "backbone>gamma")
    ]
    section = section_of(write_run(upgraded(), one_a_second, link_samples(), events=events), "peers")
    assert section.figures[0].panels[0].bands[0].high == 53.0


def test_partner_choices_are_compared_with_the_counts_expected_from_the_weights(write_run):
    run = write_run(upgraded(), one_a_second, link_samples())
    rows = {row["site"]: row for row in rows_of(section_of(run, "peers"), "site-partners")}
    # Ten transfers per machine. From Alpha: Beta 300 against Gamma 2 × 50. From Beta: Alpha 3 × 100 against 100. From
    # Gamma: 300 against 300.
    expected = {"Alpha": 10 * 0.75 + 20 * 0.5, "Beta": 30 * 0.75 + 20 * 0.5, "Gamma": 30 * 0.25 + 10 * 0.25}
    assert {site: row["expected"] for site, row in rows.items()} == pytest.approx(expected)
    assert sum(row["chosen"] for row in rows.values()) == 60
    assert sum(row["expected_ratio"] for row in rows.values()) == pytest.approx(1)
    assert (
        sum(row["received_bytes"] for row in rows.values())
        == run.query("SELECT sum(received_bytes) AS b FROM transfers")["b"][0]
    )
    assert sum(row["expected_bytes"] for row in rows.values()) == pytest.approx(60 * 1500)


def test_partners_that_were_not_chosen_by_weight_are_detected(write_run):
    def always_beta(actor, trial, number):
        record = one_a_second(actor, trial, number)
        site = "Alpha" if trial.factors["site"] == "Beta" else "Beta"
        record["transfers"][0]["labels"]["partner_site"] = site
        return record

    run = write_run(upgraded(), always_beta, link_samples())
    assert "not chosen according to their weights" in section_of(run, "peers").sentence


def test_failures_and_silence_of_each_site_are_reported(write_run):
    def gamma_fails(actor, trial, number):
        record = one_a_second(actor, trial, number)
        if trial.factors["site"] == "Gamma":
            record["outcome"] = "failed"
            record["transfers"][0] |= {"outcome": "failed", "received_bytes": 0}
        return record

    def silent(samples):
        # Between 20 s and 30 s, Beta's counters do not change.
        held = {}
        for host, sample in samples:
            for name, value in list(sample["counters"].items()):
                if "beta" in name and 20 <= sample["time_s"] <= 30:
                    sample["counters"][name] = held.setdefault(name, value)
                elif "beta" in name and sample["time_s"] > 30:
                    sample["counters"][name] = held[name] + 3e6 / 8 / 2 * (sample["time_s"] - 30) * (
                        1 + name.startswith("link.backbone")
                    )
            yield host, sample

    run = write_run(upgraded(), gamma_fails, silent(link_samples()))
    rows = {row["site"]: row for row in rows_of(section_of(run, "peers"), "site-service")}
    assert rows["Beta"]["longest_silence_s"] == pytest.approx(10)
    assert rows["Alpha"]["longest_silence_s"] == 0
    own = run.query("SELECT count(*) AS n FROM transfers WHERE outcome = 'failed'")["n"][0]
    assert rows["Gamma"]["failed"] == own == 20


def test_an_unfinished_run_has_traffic_of_the_whole_run_and_no_upgrade_table(write_run, tmp_path):
    half = section_of(write_run(upgraded(), one_a_second, link_samples(20), done=10, state="stopped"), "peers")
    assert {row["period"] for row in rows_of(half, "site-traffic")} == {"whole run"}
    assert "link-upgrades" not in {table.name for table in half.tables}


def test_a_run_without_finished_transfers_has_one_sentence_and_no_tables(write_run):
    section = section_of(write_run(upgraded(), one_a_second, done=0, state="stopped"), "peers")
    assert (section.sentence, section.tables) == ("No transfer has finished yet.", ())


def test_without_links_traffic_comes_from_network_interface_counters(write_run):
    bed = {
        "host": {h: {"site": s} for h, s in (("a0", "A"), ("a1", "A"), ("b0", "B"))},
        "storage": {
            h: {"host": h, "path": "d", "shared": [o for o in ("a0", "a1", "b0") if o != h]}
            for h in ("a0", "a1", "b0")
        },
    }
    site = {name: {"bandwidth": "1 Gb/s"} for name in "AB"}
    scenario = peers(bed=bed, site=site, mover="cp")
    samples = [
        (host, {"time_s": float(t), "counters": {"nic.eth0.rx_bytes": 1e6 * t * (1 + n), "nic.eth0.tx_bytes": 5e5 * t, "nic.lo.rx_bytes": 9e9 * t}})
        for t in range(40) for n, host in enumerate(("a0", "a1", "b0"))
    ]  # fmt: skip
    rows = {
        row["site"]: row
        for row in rows_of(
            section_of(write_run(scenario, one_a_second, samples, backend="hosts"), "peers"), "site-traffic"
        )
    }
    assert rows["A"]["in_bit_per_s"] == pytest.approx(8 * 3e6)
    assert rows["A"]["out_bit_per_s"] == pytest.approx(8 * 1e6)
    assert rows["B"]["in_bit_per_s"] == pytest.approx(8 * 3e6)
    assert rows["A"]["in_use_ratio"] is None


SITES = {
    "Alpha": {"tier": 1, "share": 0.6, "link": "alpha"}, "Beta": {"tier": 2, "share": 0.4, "link": "beta"}, "Gamma": {"link": "gamma"},
}  # fmt: skip


def tiers(**workload):
    jobs = {"count": 2, "upload": "1 kB", "download": "2 kB", "wait_tier1": "1 s", "wait_tier2": "1 s"}
    given = {
        "mover": "globus-url-copy",
        "events": 20,
        "event_size": "10 kB",
        "jobs": jobs,
        "site": SITES,
        "production": {"batch": 4},
    }
    return scenario_from(
        {"venturi": 1, "name": "t", "testbed": bed_of(), "workload": {"kind": "tiers", **given, **workload}}
    )


def test_phases_production_and_threshold_match_the_recorded_trials(write_run):
    run = write_run(tiers(), one_a_second, link_samples())
    section = section_of(run, "tiers")
    phases = {row["phase"]: row for row in rows_of(section, "tier-phases")}
    # Trials in the order of the plan, one second each from 1 s on: 5 batches, 8 files, 4 jobs.
    assert {name: (row["begin_s"], row["end_s"], row["trials"]) for name, row in phases.items()} == {
        "production": (1, 6, 5), "replication": (6, 14, 8), "analysis": (14, 18, 4),
    }  # fmt: skip
    assert phases["replication"]["arrived_bytes"] == 80_000
    made = {row["centres"]: (row["events"], row["share_ratio"]) for row in rows_of(section, "tier-production")}
    assert made == {"Alpha": (12, 0.6), "Beta": (8, 0.4)}
    whole, beta = rows_of(section, "tier-threshold")
    # Seven of eight files are at least 80 %. The seventh ends 6.25 s after the start of the first.
    assert (whole["files"], whole["enough"], whole["reached_s"], whole["complete_s"], whole["first_job_s"]) == (
        8,
        7,
        6.25,
        7.25,
        8,
    )
    assert (beta["of"], beta["reached_s"]) == ("Beta", 6.25)
    assert [band.text for band in section.figures[0].panels[0].bands] == [
        "production",
        "replication, multi-tier",
        "analysis, multi-tier",
    ]


def test_traffic_of_each_tier_is_the_traffic_of_its_sites_while_the_model_ran(write_run):
    run = write_run(tiers(models=["multi-tier", "flat"]), one_a_second, link_samples())
    rows = {(row["model"], row["tier"]): row for row in rows_of(section_of(run, "tiers"), "tier-traffic")}
    assert set(rows) == {(model, tier) for model in ("multi-tier", "flat") for tier in (1, 2, 3)}
    for (_, tier), row in rows.items():
        rate = RATES_BIT_PER_S[{1: "alpha", 2: "beta", 3: "gamma"}[tier]][0]
        assert row["traffic_bit_per_s"] == pytest.approx(1.5 * rate)
    assert rows["flat", 1]["mean_use_ratio"] == pytest.approx(0.4)


def test_tiers_are_compared_with_the_flat_model(write_run):
    run = write_run(tiers(models=["multi-tier", "flat"]), one_a_second, link_samples())
    section = section_of(run, "tiers")
    loads = {(row["model"], row["tier"]): row for row in rows_of(section, "tier-traffic")}
    rows = {row["tier"]: row for row in rows_of(section, "tier-comparison")}
    assert set(rows) == {1, 2, 3}
    for tier, row in rows.items():
        for side, model in (("first", "multi-tier"), ("other", "flat")):
            load = loads[model, tier]
            assert row[f"{side}_bytes"] == load["in_bytes"] + load["out_bytes"]
            assert row[f"{side}_use_ratio"] == load["mean_use_ratio"]
        # Links have constant rates here, one second for each of the 12 trials of either model.
        assert row["time_ratio"] == pytest.approx(1) == row["traffic_ratio"]
    alone = section_of(write_run(tiers(), one_a_second, link_samples()), "tiers")
    assert "tier-comparison" not in {table.name for table in alone.tables}


def test_jobs_that_started_without_enough_files_are_reported(write_run):
    def nothing_arrives(actor, trial, number):
        record = one_a_second(actor, trial, number)
        if trial.factors["phase"] == "replication":
            record["outcome"] = "failed"
            record["transfers"][0] |= {"outcome": "failed", "received_bytes": 0}
        return record

    section = section_of(write_run(tiers(), nothing_arrives, link_samples()), "tiers")
    whole = rows_of(section, "tier-threshold")[0]
    # Eight files of one second each, and then the first job.
    assert (whole["reached_s"], whole["complete_s"], whole["first_job_s"]) == (None, None, 8)
    assert "fewer than 7 of 8 files arrived" in section.sentence
    assert "after 8 s" in section.sentence


def test_a_threshold_that_was_not_reached_is_absent(write_run):
    section = section_of(write_run(tiers(), one_a_second, link_samples(), done=8, state="stopped"), "tiers")
    whole = rows_of(section, "tier-threshold")[0]
    assert (whole["reached_s"], whole["complete_s"], whole["first_job_s"]) == (None, None, None)
