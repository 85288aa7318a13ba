"""Batches of jobs with planted results: rates from counters, steady parts, spreads, published tables, and limits."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

from venturi.analysis.batches import batches
from venturi.analysis.sections.groups import groups_section
from venturi.analysis.sections.jobs import jobs_section
from venturi.run import Run, RunWriter
from venturi.stats import summarise
from venturi.study import study

SIZE, STEP_S = 1_000_000, 0.1
PATHS = {"direct Lustre": ("oss>core",), "LAN xrootd": ("oss>core", "dgt>lan")}


class About:
    study, scale = "fiu/xrootd", 0.01


def planted(
    base,
    *,
    sizes=(32, 64),
    second=lambda jobs: 2e4 * jobs,
    fails=(),
    sessions=None,
    window=False,
    waits=0.0,
    fraction=None,
    last_s=2.0,
    early_s=0.0,
    idle=True,
):
    """Write a run in which each batch lasts 8 s, with half the rate in its first and last second.

    ``second(jobs)`` is the rate in B/s of a batch, which its jobs share equally. ``sessions`` maps a batch to the
    session of its second half. ``fraction`` maps a configuration to the fraction of their files that its jobs read.
    ``last_s`` is the time from the end of the last batch to the last sample. ``early_s`` is the time that jobs run
    before their first byte. ``idle`` adds samples while nothing moves. Batches of LAN xrootd also use the link dgt>lan.
    """
    base.mkdir(parents=True)
    points = [
        {"configuration": c, "application": "root", "jobs": j, **({"first_worker": n + 1} if window else {}), "files": j, "size_bytes": SIZE}
        for n, (c, j) in enumerate((c, j) for c in PATHS for j in sizes)
    ]  # fmt: skip
    workload = {
        "kind": "jobs", "observe": ["oss"], "observed": "sent", "interval": "0.2 s",
        "configuration": {c: {"storage": ["x"], "service": [c.split()[0]]} for c in PATHS},
    }  # fmt: skip
    rest = {
        "jitter_s": 0.0,
        "queue_bytes": 125_000,
        "loss": None,
        "reorder_probability": 0.0,
        "overhead_bytes": 0,
        "up": True,
    }
    links = {
        name: {"from": "a", "to": "b", "rate_bit_per_s": rate, "delay_s": 0.0, **rest}
        for name, rate in (("oss>core", 1e8), ("dgt>lan", 16e6))
    }
    header = {
        "format": "venturi-plan", "version": 2, "name": "b", "seed": 1, "scale": 0.01, "scenario": {"name": "b", "study": "fiu/xrootd", "workload": workload},
        "hosts": {h: {"ssh": None, "memory_bytes": None, "lab": {"cpus": [0]}} for h in ("oss", "w1", "w2")}, "storages": {}, "services": {},
        "network": {"interfaces": {}, "routers": [], "links": links, "routes": {}, "changes": []}, "datasets": {}, "draws": {}, "pools": {},
        "calls": {"root": {"mover": "root-read", "argv": ["x"], "options": {}, "requires": [], "timeout_s": 60.0, "capture": True, "expect": "nothing"}},
        "measure": {"interval_s": STEP_S, "counters": ["nic"]}, "totals": {"trials": 2 * len(points), "transfers": 0, "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip
    lines, trials = [json.dumps(header)], []
    for point, factors in enumerate(points):
        for part, host in enumerate(("w1", "w2")):
            trials.append((2 * point + part, point, host, factors))
            step = {
                "step": "trial",
                "id": f"t{2 * point + part:07d}",
                "point": point,
                "repetition": 0,
                "block": 0,
                "factors": factors,
                "steps": [],
            }
            lines.append(json.dumps({"actor": f"jobs-{host}", "host": host, "steps": [step]}))
    plan = base / "plan.jsonl"
    plan.write_text("\n".join(lines) + "\n")
    writer = RunWriter.create(base / "runs", plan, backend="lab")
    with writer:
        for session in (1, 2) if sessions else (1,):
            writer.start_session({host: {} for host in header["hosts"]})
            for number, point, host, factors in trials:
                if (sessions or {}).get(point, 1) * (number % 2) + (1 - number % 2) != session:
                    continue
                record = _record(
                    number,
                    point,
                    host,
                    factors,
                    fails,
                    waits,
                    (fraction or {}).get(factors["configuration"], 1.0),
                    early_s,
                )
                writer.trial(record, host)
        time_s = np.arange(0, 1.0 + 10 * len(points) - 2 + last_s, STEP_S)
        flow = sum(_shape(time_s, 1.0 + 10 * p) * second(f["jobs"]) for p, f in enumerate(points))
        sent = np.concatenate(([0.0], np.cumsum(flow[:-1] * STEP_S)))
        lan = np.where(time_s < 10.0 * len(sizes), 0.0, sent - np.interp(10.0 * len(sizes), time_s, sent))
        moves = (flow > 0) | (np.concatenate((flow[1:], [0.0])) > 0) | (np.concatenate(([0.0], flow[:-1])) > 0)
        kept = moves | idle | (time_s == 0)
        for moment, value, through in zip(
            time_s[kept].tolist(), sent[kept].tolist(), lan[kept].tolist(), strict=True
        ):
            writer.sample(
                {"time_s": moment, "counters": {"nic.eth0.tx_bytes": value, "nic.lo.tx_bytes": 9e9 * moment}}, "oss"
            )
            links = {"link.oss>core.bytes": value, "link.dgt>lan.bytes": through}
            writer.sample({"time_s": moment, "counters": links}, "network")
        writer.finish("complete")
    return Run.open(writer.path)


def _shape(time_s, start):
    inside = (time_s >= start - 1e-9) & (time_s < start + 8 - 1e-9)
    ramp = inside & ((time_s < start + 1 - 1e-9) | (time_s >= start + 7 - 1e-9))
    return np.where(ramp, 0.5, np.where(inside, 1.0, 0.0))


def _record(number, point, host, factors, fails, waits, fraction, early_s):
    start, trial = 1.0 + 10 * point - early_s, f"t{number:07d}"
    transfers = []
    counts = ("containers", "baskets", "container_bytes", "sum", "requests", "open_s", "compute_s")
    texts = {"bytes": SIZE, "read_s": 7.0, "cpu_s": 0.05, **dict.fromkeys(counts, 0)}
    for job in range(number % 2, factors["jobs"], 2):
        end = start + early_s + (8 if job < 2 else 7.5)
        bad = (point, job) in fails
        transfers.append({
            "trial": trial, "actor": f"jobs-{host}", "slot": job, "call": "root", "source": "x:f", "destination": "null:", "files": 1,
            "requested_bytes": int(fraction * SIZE), "received_bytes": None, "start_s": start, "end_s": end, "duration_s": end - start, "outcome": "failed" if bad else "ok",
            "exit_code": int(bad), "labels": {}, "mover": "root-read",
            **({} if bad else {"stdout": json.dumps({**texts, "waited_s": waits})}),
        })  # fmt: skip
    return {"trial": trial, "actor": f"jobs-{host}", "start_s": start, "end_s": start + 8, "outcome": "ok", "cache": None,
            "transfers": transfers, "findings": []}  # fmt: skip


def table(section, name):
    (found,) = (one for one in section.tables if one.name == name)
    names = [column.name for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def test_the_batch_rate_comes_from_server_counters_without_the_loopback_device(tmp_path):
    first, *_ = batches(planted(tmp_path / "run"))
    assert (first.jobs, first.failed, first.split, first.wall_s) == (32, 0, False, pytest.approx(8.0))
    assert len(first.rate_bit_per_s) == 40
    assert first.rate_bit_per_s[20] == pytest.approx(8 * 2e4 * 32)
    assert first.slice.whole.mean == pytest.approx(8 * 2e4 * 32 * 7 / 8)


def test_missing_samples_of_idle_periods_do_not_change_batch_rates(tmp_path):
    """A simulation leaves out samples while nothing moves. The jobs of a batch start a round trip before its bytes."""
    run = planted(tmp_path / "run", early_s=0.3, idle=False)
    whole = planted(tmp_path / "whole", early_s=0.3)
    found = batches(run)
    assert [len(batch.rate_bit_per_s) for batch in found] == [41] * 4
    for one, other in zip(found, batches(whole), strict=True):
        assert one.rate_bit_per_s == pytest.approx(other.rate_bit_per_s)


def test_rows_have_rates_of_the_whole_batch_and_the_steady_state_next_to_published_ones(tmp_path):
    rows = table(jobs_section(planted(tmp_path / "run"), About), "003-root")
    whole, steady = (
        next(r for r in rows if (r["part"], r["configuration"], r["jobs"]) == (part, "direct Lustre", 64))
        for part in ("whole", "steady")
    )
    assert whole["mean_bit_per_s"] == pytest.approx(8 * 2e4 * 64 * 7 / 8)
    assert steady["mean_bit_per_s"] > whole["mean_bit_per_s"]
    assert (whole["mean_published_bit_per_s"], whole["std_published_bit_per_s"]) == (3270e6, 2053e6)
    assert (whole["step_ratio"], whole["linear_ratio"]) == (pytest.approx(2.0), 2.0)
    assert whole["full_size_of_published_ratio"] == pytest.approx(whole["mean_bit_per_s"] / 0.01 / 3270e6)


def test_batches_without_bytes_at_observed_hosts_have_zero_rate_and_no_relative_deviation(tmp_path):
    """Jobs that read a directory of their own host move no bytes over its interfaces."""
    rates = table(jobs_section(planted(tmp_path / "run", second=lambda jobs: 0.0), About), "003-root")
    assert rates
    assert {(row["mean_bit_per_s"], row["std_ratio"]) for row in rates} == {(0.0, None)}


def test_the_spread_between_batches_is_the_population_deviation_as_in_the_report(tmp_path):
    output = study("fiu/xrootd").published.table("003-root")
    printed = {"direct Lustre": 1526.0, "WAN xrootd": 941.3, "WAN xrootd, public workers": 294.9}
    for configuration, volatility in printed.items():
        means = [
            r["mean_bit_per_s"] for r in output.rows if (r["part"], r["configuration"]) == ("whole", configuration)
        ]
        assert summarise(means).std_population / 1e6 == pytest.approx(volatility, abs=0.05)
    row = table(jobs_section(planted(tmp_path / "run"), About), "jobs-spread")[0]
    means = [8 * 2e4 * jobs * 7 / 8 for jobs in (32, 64)]
    assert row["between_bit_per_s"] == pytest.approx(np.std(means))
    assert row["between_sample_bit_per_s"] == pytest.approx(np.std(means, ddof=1))
    assert row["within_bit_per_s"] > 0


def test_batches_with_failed_jobs_or_from_two_sessions_are_reported_and_excluded(tmp_path):
    run = planted(tmp_path / "run", fails={(0, 3)}, sessions={2: 2})
    found = {(b.configuration, b.jobs): b for b in batches(run)}
    assert found["direct Lustre", 32].failed == 1
    assert found["LAN xrootd", 32].split
    section = jobs_section(run, About)
    lost = table(section, "jobs-lost")
    assert [(r["configuration"], r["jobs"], r["failed"], r["split"]) for r in lost] == [
        ("direct Lustre", 32, 1, False),
        ("LAN xrootd", 32, 0, True),
    ]
    assert {(r["configuration"], r["jobs"]) for r in table(section, "jobs-walls")} == {
        ("direct Lustre", 64),
        ("LAN xrootd", 64),
    }
    assert "2 of 4 batches" in section.sentence


def test_the_limit_of_jobs_that_wait_for_their_own_rate_is_the_jobs_themselves(tmp_path):
    rows = table(jobs_section(planted(tmp_path / "run", waits=6.5), About), "jobs-limits")
    assert {row["limit"] for row in rows} == {"the jobs themselves"}


def limit_of(run, configuration):
    return next(r for r in table(jobs_section(run, About), "jobs-limits") if r["configuration"] == configuration)


def test_resources_not_shared_with_a_faster_configuration_are_the_possible_limits(tmp_path):
    # 64 jobs send 1.34 MB/s in the mean. That is 11 % of one link and 67 % of the other. Only the latter or the server
    # can limit LAN xrootd.
    run = planted(
        tmp_path / "run", fraction={"direct Lustre": 0.3, "LAN xrootd": 0.15}, second=lambda jobs: 2.4e4 * jobs
    )
    slow = limit_of(run, "LAN xrootd")
    assert slow["limit"] == "one of: link dgt>lan, server LAN"
    assert slow["cleared"] == "link oss>core (direct Lustre); storage x (direct Lustre)"
    fast = limit_of(run, "direct Lustre")
    assert (fast["limit"], fast["cleared"]) == ("not found", None)


def test_a_link_with_low_utilization_is_not_a_possible_limit(tmp_path):
    run = planted(
        tmp_path / "run", fraction={"direct Lustre": 0.1, "LAN xrootd": 0.05}, second=lambda jobs: 1e4 * jobs
    )
    slow = limit_of(run, "LAN xrootd")
    assert slow["limit"] == "one of: server LAN"
    assert "link dgt>lan (28 % of its rate)" in slow["cleared"]


def test_a_full_link_is_the_limit_regardless_of_substitution(tmp_path):
    # 64 jobs send 2.08 MB/s, or 1.82 MB/s with the ramps: 91 % of 16 Mb/s.
    run = planted(
        tmp_path / "run", fraction={"direct Lustre": 0.4, "LAN xrootd": 0.2}, second=lambda jobs: 3.25e4 * jobs
    )
    slow = limit_of(run, "LAN xrootd")
    assert (slow["limit"], slow["evidence"]) == ("link dgt>lan", "it carried 91 % of its rate over the whole batch")


def test_a_run_that_ends_with_its_last_batch_loses_at_most_one_sample_of_it(tmp_path):
    # The last sample is 0.1 s before the end, so one of 40 readings lacks its second sample. If it is 1 s before, the
    # batch has no rate.
    *_, last = batches(planted(tmp_path / "run", last_s=0.0))
    assert len(last.rate_bit_per_s) == 39
    *_, torn = batches(planted(tmp_path / "torn", last_s=-1.0))
    assert (len(torn.rate_bit_per_s), torn.slice) == (0, None)


def test_inputs_are_listed_with_their_origin_and_a_note_that_they_confirm_nothing(tmp_path):
    section = jobs_section(planted(tmp_path / "run"), About)
    rows = table(section, "jobs-inputs")
    assert {row["origin"] for row in rows} == {"published", "chosen"}
    named = [row["quantity"] for row in rows if row["origin"] == "published"]
    assert all(name in section.note for name in named)
    assert "cannot confirm" in section.note
    # 62.5 Mb/s is 500 Mb/s of 8 jobs in 6.1.3; 10.3 Mb/s is 1977.2 Mb/s of 192 jobs in 5.1.
    paces = [row["value"] for row in rows if row["quantity"].startswith("rate of a")]
    assert paces == [f"{500 / 8:g} Mb/s", f"{1977.2 / 192:.1f} Mb/s"]
    workload = tomllib.loads(study("fiu/xrootd").scenario_path.read_text())["workload"]
    assert [workload["application"][name]["rate"] for name in ("root", "higgs")] == paces


def test_claims_that_follow_from_inputs_are_untested_and_claims_about_the_shape_are_tested():
    claims = {claim["id"]: claim.get("ours", {}) for claim in study("fiu/xrootd").published.claims}
    put_in = {
        "003-lan-mean-of-1-gbps",
        "003-lan-below-a-fifth-of-the-link",
        "003-lan-below-all-others",
        "003-higgs-doubles-to-64",
    }
    found = {"003-lan-peaks-at-32-jobs", "003-lan-steps-at-most-one", "003-direct-beats-wan", "003-direct-mean"}
    assert all(claims[id_]["untested"].startswith("put in: ") for id_ in put_in)
    assert not any("untested" in claims[id_] for id_ in found)


def test_worker_groups_have_a_mean_per_node_and_a_deviation_of_the_totals(tmp_path):
    class OfGroups:
        study, scale = "fiu/iperf", 0.02

    run = planted(tmp_path / "run", sizes=(10,), window=True)
    assert jobs_section(run, OfGroups) is None
    section = groups_section(run, OfGroups)
    rows = table(section, "003-iperf")
    assert [row["group"] for row in rows] == [1, 2]
    assert rows[0]["total_bit_per_s"] == pytest.approx(10 * rows[0]["node_mean_bit_per_s"])
    assert rows[0]["total_published_bit_per_s"] == 8540e6
    assert "8.62 Gb/s ± 63.4 Mb/s" in section.sentence


def test_a_run_of_another_kind_has_no_jobs_or_groups_section(tmp_path):
    run = planted(tmp_path / "run")
    run.header["scenario"]["workload"]["kind"] = "sweep"
    assert jobs_section(run, About) is None
    assert groups_section(run, About) is None
