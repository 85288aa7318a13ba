"""Requested and reached rates of open-loop workloads, against planted transfers with known rates and backlogs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from planted_load import MB, Moved, even, flow, load_run, one_by_one

from venturi import simulate
from venturi.analysis import analyse
from venturi.analysis.byte_times import EVENLY, LINKS
from venturi.analysis.requested_load import integral, requested_load
from venturi.analysis.result import About
from venturi.analysis.sections.injected import injected_section
from venturi.report.figures_section import section_pictures
from venturi.report.toml import as_toml

VENTURI = Path(sys.executable).parent / "venturi"
PAYLOAD = 1448 / 1500


def about(run):
    return About(
        name=run.name, path=str(run.path), state=run.state, backend=run.backend, created_unix_ns=0, plan_sha256="", seed=1, scale=1.0,
        scenario=run.header["scenario"], study=None, mover="cp", environment={}, venturi_version="", confidence=0.95, criterion="aicc",
    )  # fmt: skip


def section_of(run):
    return injected_section(run, about(run))


def rows_of(section, name):
    table = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def inject(base, moved, flows, **more):
    """Return a run of flows (source, destination, MB/s, end in s)."""
    written = {name: flow(*parts) for name, parts in flows.items()}
    return load_run(base, moved, written, rates={name: 8e6 * parts[2] for name, parts in flows.items()}, **more)


def test_a_load_that_arrives_as_requested_reaches_all_of_its_rate_in_each_minute(tmp_path):
    # A file of 1 MB each second, from 0.5 s on, takes 0.5 s: each minute has 60 MB, and nothing is in flight at its end.
    run = inject(tmp_path, even(1, 360, 0.5, "a", "b"), {"f": ("a", "b", 1, 360)})
    section = section_of(run)
    (row,) = rows_of(section, "injected-flows")
    assert (row["from"], row["to"], row["flow"]) == ("a", "b", "f")
    assert row["requested_bit_per_s"] == pytest.approx(8e6)
    assert (row["reached_ratio"], row["lowest_ratio"]) == pytest.approx((1, 1))
    # The first minute contains the fill time, so five of six minutes are compared.
    assert row["intervals"] == 5
    assert (row["low_ratio"], row["high_ratio"]) == pytest.approx((1, 1))
    assert (row["backlog_bytes"], row["max_late_s"], row["limit"]) == (pytest.approx(0, abs=1), 0, None)
    minutes = [one for one in rows_of(section, "injected-intervals") if one["requested_bit_per_s"]]
    assert [one["end_s"] - one["start_s"] for one in minutes] == [60] * 6
    assert [one["reached_bit_per_s"] for one in minutes] == pytest.approx([8e6] * 6)
    assert "8 Mb/s" in section.headline and "no limit" in section.headline


def test_an_overloaded_server_has_the_rate_backlog_and_lateness_of_the_closed_form(tmp_path):
    # Two files per second arrive, one per second is served: D = t, R = 2 t, and file n waits n / 2.
    run = inject(tmp_path, one_by_one(2, 180, 1, "a", "b"), {"f": ("a", "b", 2, 180)})
    section = section_of(run)
    (row,) = rows_of(section, "injected-flows")
    assert row["reached_ratio"] == pytest.approx(0.5)
    assert row["reached_bit_per_s"] == pytest.approx(8e6)
    assert row["backlog_bytes"] == pytest.approx(180 * MB)
    assert (row["late_s"], row["max_late_s"]) == pytest.approx((359 / 4, 359 / 2))
    # The backlog drains after the request: 360 s in total.
    intervals = rows_of(section, "injected-intervals")
    backlog = [one["backlog_bytes"] / MB for one in intervals]
    assert backlog == pytest.approx([60, 120, 180, 120, 60, 0], abs=1e-6)
    assert [one["max_late_s"] for one in intervals[:3]] == pytest.approx([119 / 2, 239 / 2, 359 / 2])
    assert intervals[3]["max_late_s"] is None
    assert "the flow falls short" in section.headline


def test_the_flows_that_fall_short_are_counted_and_have_a_finding_with_the_next_command(tmp_path):
    moved = [
        *even(1, 180, 0.5, "a", "b", flow="one"),
        *one_by_one(2, 180, 1, "a", "c", flow="two"),
        *even(1, 180, 0.5, "b", "c", flow="three"),
    ]
    ends = {"one": ("a", "b", 1, 180), "two": ("a", "c", 2, 180), "three": ("b", "c", 1, 180)}
    run = inject(tmp_path, moved, ends)
    analysis = analyse(run)
    (finding,) = (one for one in analysis.findings if one.code == "rate-not-reached")
    assert "1 of 3 flows" in finding.evidence and "a → c with 50 % of 16 Mb/s" in finding.evidence
    assert finding.advice.endswith(f"venturi advise {run.path}")
    assert analysis.headline.text.startswith("Reached 75 % of the requested 32 Mb/s")
    assert "1 of 3 flows falls short" in analysis.headline.text
    section = next(one for one in analysis.sections if one.name == "injected")
    total, first, *_ = rows_of(section, "injected-flows")
    assert (first["from"], first["to"], total["from"], total["reached_ratio"]) == (
        "a",
        "c",
        "all",
        pytest.approx(0.75),
    )
    # Without counters no verdict decides. The sentence contains this.
    assert first["limit"] == "not decided"
    assert "No verdict decides the cause" in section.sentence
    (heat,) = section.heat_maps
    assert {(row, column): round(ratio, 3) for row, column, ratio in heat.values} == {
        ("a", "b"): 1, ("a", "c"): 0.5, ("b", "c"): 1,
    }  # fmt: skip
    names = {picture.name for picture in section_pictures(section)}
    assert names == {"injected-rates", "injected-backlog", "injected-reached"}


def test_a_short_load_has_one_interval_without_its_fill_time_and_the_reason(tmp_path):
    # Ten files per second take 2 s each: 2 s of each run are in flight, but no byte is missing between 2 and 20 s.
    run = inject(tmp_path, even(10, 20, 2, "a", "b"), {"f": ("a", "b", 10, 20)})
    section = section_of(run)
    (row,) = rows_of(section, "injected-flows")
    assert row["reached_ratio"] == pytest.approx(1)
    assert (row["intervals"], row["low_ratio"], row["lowest_ratio"]) == (1, None, None)
    assert row["backlog_bytes"] == pytest.approx(10 * MB)
    assert "shorter than" in next(table.note for table in section.tables if table.name == "injected-flows")


def test_random_arrivals_below_the_rate_are_the_cause_and_not_a_limit(tmp_path):
    # The scenario requests 2 MB/s, but the plan has only 1 MB/s, which arrive in time.
    run = inject(tmp_path, even(1, 180, 0.5, "a", "b"), {"f": ("a", "b", 2, 180)})
    (row,) = rows_of(section_of(run), "injected-flows")
    assert row["reached_ratio"] == pytest.approx(0.5)
    assert row["scheduled_bit_per_s"] == pytest.approx(8e6)
    assert row["limit"] == "the arrivals of the plan"


def test_failed_transfers_deliver_nothing(tmp_path):
    moved = [
        Moved(m.source, m.destination, m.intended_s, m.start_s, m.end_s, outcome="failed" if n % 2 else "ok")
        for n, m in enumerate(even(1, 180, 0.5, "a", "b"))
    ]
    (row,) = rows_of(section_of(inject(tmp_path, moved, {"f": ("a", "b", 1, 180)})), "injected-flows")
    assert row["reached_ratio"] == pytest.approx(0.5)
    assert row["failed"] == 90


def test_ramps_have_the_area_below_their_rate():
    shape = ((10, 0), (50, 1), (90, 1), (110, 0))
    # 40 s at 1, and half of 40 s and of 20 s.
    assert integral(shape, np.array([0.0, 10, 30, 50, 90, 110, 200])).tolist() == pytest.approx([0, 0, 5, 20, 60, 70, 70])  # fmt: skip


HALVES = [Moved("a", "b", 0.0, 0.0, 120.0, 60 * MB), Moved("a", "c", 0.0, 0.0, 120.0, 60 * MB, flow="g")]
"""Two transfers of two minutes."""
ENDS = {"f": ("a", "b", 0.5, 120), "g": ("a", "c", 0.5, 120)}


def counter(*steps):
    """Return samples each second of a counter in MB at the given times, with headers."""
    times, values = zip(*steps, strict=True)
    return [(float(t), float(np.interp(t, times, values)) * MB / PAYLOAD) for t in range(122)]


def test_bytes_have_the_times_of_the_link_counters(tmp_path):
    # f moves all of its bytes in the first minute, and g in the second one, as their own links show.
    counters = {"core>b": counter((0, 0), (60, 60), (121, 60)), "core>c": counter((0, 0), (60, 0), (120, 60), (121, 60)), "a>core": counter((0, 0), (120, 120), (121, 120))}  # fmt: skip
    run = inject(tmp_path, HALVES, ENDS, links=("a", "b", "c"), counters=counters)
    load = requested_load(run, about(run))
    assert load.times == LINKS
    assert np.diff(load.reached, axis=1).tolist() == [pytest.approx([60 * MB, 0], abs=10), pytest.approx([0, 60 * MB], abs=10)]  # fmt: skip


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_counters_of_other_traffic_are_not_used(tmp_path, factor):
    counters = {name: counter((0, 0), (60, 60 * factor), (121, 60 * factor)) for name in ("core>b", "core>c")}
    run = inject(tmp_path, HALVES, ENDS, links=("a", "b", "c"), counters=counters)
    load = requested_load(run, about(run))
    assert load.times == EVENLY
    assert np.diff(load.reached, axis=1).tolist() == [pytest.approx([30 * MB, 30 * MB])] * 2
    assert "shifts bytes" in section_of(run).note


def test_the_prediction_is_the_max_min_fair_share_of_the_full_link(tmp_path):
    # b gets 16 and 8 Mb/s over its link of 12 Mb/s: 2/3 of the payload rate, in proportion to the requests.
    moved = [*one_by_one(2, 180, 1.0, "a", "b"), *one_by_one(1, 180, 2.0, "c", "b", flow="g")]
    run = inject(tmp_path, moved, {"f": ("a", "b", 2, 180), "g": ("c", "b", 1, 180)}, links=("a", "b", "c"), link_bit_per_s=12e6)  # fmt: skip
    rows = {row["flow"]: row for row in rows_of(section_of(run), "injected-flows")}
    # The link of a carries 12 Mb/s itself, which is more than its share of the link of b.
    assert rows["f"]["predicted_bit_per_s"] == pytest.approx(12e6 * PAYLOAD * 2 / 3)
    assert rows["g"]["predicted_bit_per_s"] == pytest.approx(12e6 * PAYLOAD / 3)
    assert rows["f"]["predicted_low_bit_per_s"] == pytest.approx(0.95 * 12e6 * PAYLOAD * 2 / 3)
    assert {row["predicted_limit"] for row in rows.values()} == {"link core>b", None}


def test_a_replay_at_its_recorded_durations_reaches_all_and_a_slow_one_does_not(tmp_path):
    times = range(0, 200, 10)
    good = load_run(tmp_path / "good", [Moved("a", "b", t, t, t + 5, 10 * MB, "", 5.0) for t in times])
    (row,) = rows_of(section_of(good), "injected-flows")
    assert row["reached_ratio"] == pytest.approx(1)
    assert row["requested_bit_per_s"] == pytest.approx(200 * MB * 8 / 195)
    # Each transfer takes 20 s, one after another: at 195 s, 9.75 of 20 files have arrived.
    slow = load_run(tmp_path / "slow", [Moved("a", "b", t, 2 * t, 2 * t + 20, 10 * MB, "", 5.0) for t in times])
    section = section_of(slow)
    (row,) = rows_of(section, "injected-flows")
    assert row["reached_ratio"] == pytest.approx(9.75 / 20)
    assert row["predicted_bit_per_s"] is None
    assert "falls short" in section.headline


def test_a_stopped_run_is_compared_until_its_last_transfer(tmp_path):
    run = inject(tmp_path, even(1, 360, 0.5, "a", "b"), {"f": ("a", "b", 1, 360)}, done=150)
    (row,) = rows_of(section_of(run), "injected-flows")
    assert row["reached_ratio"] == pytest.approx(1)
    assert row["period_s"] < 150


def test_other_workloads_have_no_such_section(tmp_path):
    run = load_run(tmp_path, even(1, 10, 0.5, "a", "b"))
    scenario = {**run.header["scenario"], "workload": {"kind": "sweep"}}
    kept = about(run)
    object.__setattr__(kept, "scenario", scenario)
    assert injected_section(run, kept) is None


# --- simulated runs, as a user makes them


def _testbed():
    sites = {"alpha": "200 Mb/s", "beta": "100 Mb/s", "gamma": "100 Mb/s"}
    return {
        "router": {"core": {}},
        "host": {name: {"site": name.title()} for name in sites},
        "link": {name: {"between": [name, "core"], "rate": rate, "delay": "2 ms"} for name, rate in sites.items()},
        "storage": {name: {"host": name, "path": "disk"} for name in sites},
        "service": {name: {"kind": "xrootd", "host": name, "storage": [name]} for name in sites},
    }


def _document(workload):
    return {
        "venturi": 1, "name": "load", "testbed": _testbed(), "measure": {"interval": "1 s", "counters": []}, "workload": workload,
    }  # fmt: skip


def _injected(**flows):
    return _document({"kind": "inject", "mover": "xrdcp", "arrivals": "even", "lead": "2 s", "flow": flows})


def _flow(source, destination, rate, end="190 s", size="8 MB"):
    return {"source": source, "destination": destination, "rate": rate, "of": "flow", "end": end, "size": size}


def test_a_feasible_simulated_load_is_within_three_percent_in_each_full_minute(engine):
    run = simulate(_injected(one=_flow("Alpha", "Gamma", "40 Mb/s"), two=_flow("Beta", "Gamma", "30 Mb/s")))
    section = section_of(run)
    rows = rows_of(section, "injected-flows")
    assert [row["intervals"] for row in rows] == [2, 2, 2]
    for row in rows:
        assert row["lowest_ratio"] == pytest.approx(1, abs=0.03)
        assert row["reached_ratio"] == pytest.approx(1, abs=0.03)
        assert row["predicted_bit_per_s"] == pytest.approx(row["requested_bit_per_s"], rel=1e-6)
    assert "no limit" in section.headline


def test_an_infeasible_simulated_load_names_the_full_link_and_reaches_the_predicted_rates(tmp_path, engine):
    flows = {
        "one": _flow("Alpha", "Gamma", "90 Mb/s", "130 s", "20 MB"),
        "two": _flow("Beta", "Gamma", "40 Mb/s", "130 s", "20 MB"),
        "three": _flow("Alpha", "Beta", "20 Mb/s", "130 s", "20 MB"),
    }
    (tmp_path / "load.toml").write_text(as_toml(_injected(**flows)))
    for words in (("run", "load.toml", "--on", "sim", "-q"), ("report", "load", "--json")):
        done = subprocess.run([VENTURI, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    section = next(one for one in found["sections"] if one["name"] == "injected")
    table = next(table for table in section["tables"] if table["name"] == "injected-flows")
    rows = {
        row["flow"]: row for cells in table["rows"] for row in [dict(zip((c["name"] for c in table["columns"]), cells, strict=True))]
    }  # fmt: skip
    for name in ("one", "two"):
        assert rows[name]["limit"] == "the link core>gamma"
        assert rows[name]["predicted_limit"] == "link core>gamma"
        # Processor sharing of the backlog gives the shares of the prediction, within the granularity of files.
        assert rows[name]["predicted_bit_per_s"] == pytest.approx(1e8 * PAYLOAD * int(flows[name]["rate"][:2]) / 130)
        assert rows[name]["reached_bit_per_s"] == pytest.approx(rows[name]["predicted_bit_per_s"], rel=0.03)
    assert rows["three"]["limit"] is None
    assert "2 of 3 flows fall short, limited by the link core>gamma" in found["headline"]["text"]
    codes = {finding["code"] for finding in found["findings"]}
    assert "rate-not-reached" in codes
    # The backlog explains why later transfers are slower.
    assert "drift" not in codes


def test_a_simulated_replay_reaches_its_trace(tmp_path, engine):
    lines = [f"{4 * n},alpha,gamma,8000000,1.0" for n in range(50)]
    (tmp_path / "trace.csv").write_text(
        "\n".join(["start_s,source,destination,size_bytes,duration_s", *lines]) + "\n"
    )
    replay = {"kind": "replay", "mover": "xrdcp", "trace": str(tmp_path / "trace.csv"), "lead": "2 s"}
    section = section_of(simulate(_document(replay)))
    (row,) = rows_of(section, "injected-flows")
    # 50 files from 2 s to 2 + 4 × 49 + 1 s.
    assert row["requested_bit_per_s"] == pytest.approx(50 * 64e6 / 197, rel=1e-3)
    assert row["reached_ratio"] == pytest.approx(1, abs=0.01)
    assert section.headline.startswith("Reached 100 % of the requested 16.2 Mb/s")
