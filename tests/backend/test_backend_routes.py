"""Simulated transfers counted by route, compared with the same transfers recorded individually."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from venturi.advice import advise
from venturi.analysis import analyse
from venturi.analysis.sketches import RELATIVE_ERROR, quantiles, values_and_counts
from venturi.backend import RunProgress, SessionOutcome, SimBackend
from venturi.cli.progress import _progress_line as words
from venturi.cli.run import run_scenario
from venturi.errors import ScenarioError
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.testbed.wlcg import wlcg
from venturi.workload import expand

KEY = "factor_flow, factor_source, factor_destination, size_bytes"


def year(recorded: str, *, read_each: str = "2 MB/s") -> dict[str, Any]:
    """Return an hour on a small grid: outbound files of two sizes, and jobs that read at their compute rate.

    There are thousands of both.
    """
    return {
        "venturi": 1,
        "name": "hour",
        "seed": 3,
        **wlcg(12, seed=1),
        "workload": {
            "kind": "inject",
            "mover": "xrdcp",
            "form": "arrivals",
            "timeout": "1 d",
            "flow": {
                "out": {"source": "t0", "destination": ["t1-*", "t2-*"], "of": "capacity", "rate": "3000 /h", "end": "1 h", "size": ["1 GB", "4 GB"]},
                "read": {
                    "source": "t1-*", "destination": "t2-*", "of": "capacity", "rate": "2000 /h", "end": "1 h", "size": "1 GB",
                    "options": {"rate": read_each}, "client": "destination",
                },
            },
        },
        "measure": {"interval": "5 min", "counters": [], "transfers": recorded},
    }  # fmt: skip


def execute(base: Path, document: dict[str, Any]) -> tuple[Run, SessionOutcome]:
    base.mkdir()
    write_plan(expand(scenario_from(document)), base / "plan.jsonl")
    with RunWriter.create(base / "runs", base / "plan.jsonl", backend="sim") as run:
        outcome = SimBackend().execute(run)
    return Run.open(run.path), outcome


def test_progress_reports_the_fraction_of_virtual_time_and_finished_transfers(tmp_path: Path, engine: Path) -> None:
    # The simulation of an hour ends before its first progress record, so the script first prints one of its middle.
    output = {"host": "", "record": "progress", "time_s": 1200.0, "until_s": 3600.0, "transfers": 1500, "live": 40}
    slow = tmp_path / "engine"
    slow.write_text(f"#!/bin/sh\n[ $1 = sim ] && echo '{json.dumps(output)}'\nexec {engine} \"$@\"\n")
    slow.chmod(0o755)
    write_plan(expand(scenario_from(year("routes"))), tmp_path / "plan.jsonl")
    seen: list[RunProgress] = []
    with RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="sim") as run:
        SimBackend(engine=slow).execute(run, on_progress=seen.append)
    middle, end = seen[0], seen[-1]
    assert (middle.time_fraction, middle.transfers_done, middle.transfers_total) == (pytest.approx(1 / 3), 1460, None)
    assert words(middle).startswith("33 % of virtual time · 1,460 transfers · ")
    assert words(middle).endswith(" left · virtual time: 20 min 00 s, 40 transfers in progress")
    assert " · 1,460 of 5,000 transfers · " in words(dataclasses.replace(middle, transfers_total=5000))
    # The last progress reports that all trials are complete.
    assert end.time_fraction is None and words(end).startswith(f"{end.trials_total}/{end.trials_total} trials · ")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    base = tmp_path_factory.mktemp("routes")
    (one, _), (other, outcome) = execute(base / "each", year("each")), execute(base / "routes", year("routes"))
    assert (outcome.state, outcome.failed) == ("complete", 0)
    return one, other


def test_routes_have_the_counts_bytes_and_times_of_their_transfers(both: tuple[Run, Run]) -> None:
    each, routes = both
    exact = each.query(
        f"""SELECT {KEY.replace("size_bytes", "requested_bytes AS size_bytes")}, count(*) AS n, sum(received_bytes)::BIGINT AS moved, sum(duration_s) AS took_s, min(start_s) AS start_s,
                   max(end_s) AS end_s FROM transfers GROUP BY ALL ORDER BY ALL"""
    )
    found = routes.query(
        f"""SELECT {KEY}, transfers AS n, received_bytes AS moved, duration_s AS took_s, start_s, end_s FROM routes ORDER BY ALL"""
    )
    assert exact["n"].sum() > 4000
    for name in ("factor_flow", "factor_source", "factor_destination", "size_bytes", "n", "moved"):
        assert (exact[name] == found[name]).all(), name
    for name in ("took_s", "start_s", "end_s"):
        assert np.allclose(exact[name], found[name], rtol=1e-9, atol=0), name
    assert len(routes.query("SELECT trial FROM transfers")["trial"]) == 0


def test_quantiles_over_all_routes_are_within_the_stated_error(both: tuple[Run, Run]) -> None:
    each, routes = both
    took = np.sort(each.query("SELECT duration_s FROM transfers")["duration_s"])
    rows = routes.query("SELECT sketch_first, sketch_counts FROM routes")
    value, count, _ = values_and_counts(rows["sketch_first"], list(rows["sketch_counts"]))
    fractions = (0.1, 0.5, 0.9, 0.99)
    exact = took[np.ceil(np.array(fractions) * len(took)).astype(int) - 1]
    assert np.allclose(quantiles(value, count, fractions), exact, rtol=RELATIVE_ERROR * (1 + 1e-9), atol=0)


def test_counting_by_route_gives_the_same_link_bytes_and_transfers_in_flight(both: tuple[Run, Run]) -> None:
    counted = (
        "SELECT counter, max(value) AS value FROM samples WHERE counter LIKE 'link.%.bytes' GROUP BY ALL ORDER BY ALL"
    )
    exact, found = (run.query(counted) for run in both)
    assert exact["value"].sum() > 1e12
    assert (exact["counter"] == found["counter"]).all()
    assert np.allclose(exact["value"], found["value"], rtol=1e-9, atol=1)
    live = both[1].query("SELECT time_s, value FROM samples WHERE counter = 'transfers.live' ORDER BY time_s")
    spans = both[0].query("SELECT start_s, end_s FROM transfers")
    in_flight = [int(((spans["start_s"] <= at) & (at < spans["end_s"])).sum()) for at in live["time_s"]]
    assert max(in_flight) > 100
    assert live["value"].tolist() == in_flight


def test_counting_by_route_reports_the_same_bottlenecks(both: tuple[Run, Run]) -> None:
    exact, found = ({one.resource: one.fraction for one in advise(run).run.fractions} for run in both)
    # Fractions below 2 % are not listed.
    assert sum(found.values()) == pytest.approx(1.0, abs=0.1)
    assert set(found) <= set(exact)
    # Bottlenecks are sampled once per several thousand transfers.
    assert all(found.get(name, 0.0) == pytest.approx(fraction, abs=0.04) for name, fraction in exact.items())


def test_the_report_of_routes_has_flows_groups_late_transfers_links_and_bottlenecks(both: tuple[Run, Run]) -> None:
    analysis = analyse(both[1])
    (section,) = (one for one in analysis.sections if one.name == "routes")
    tables = {table.name: table for table in section.tables}
    assert {"routes-flows", "routes-groups", "routes-late", "routes-links", "routes-bounds"} <= set(tables)
    transfers = len(both[0].query("SELECT 1 AS one FROM transfers")["one"])
    assert analysis.counts.transfers_ok == transfers
    assert [row[1] for row in tables["routes-flows"].rows] == [transfers, *np.unique(both[0].query("SELECT factor_flow AS f FROM transfers")["f"].astype(str), return_counts=True)[1].tolist()]  # fmt: skip
    assert f"{transfers:,} transfers moved" in analysis.sentence
    # A reading job reads 1 GB at 2 MB/s without delay.
    reads = next(row for row in tables["routes-flows"].rows if row[0] == "read")
    assert float(reads[5] or 0) == pytest.approx(500.0, rel=0.02)
    assert {figure.name for figure in section.figures} == {"routes-live", "routes-use"}


def test_only_the_simulator_counts_by_route_and_is_used_by_default_for_it(tmp_path: Path) -> None:
    scenario = scenario_from(year("routes"))
    with pytest.raises(ScenarioError, match="which only a simulation supports; use --on sim"):
        run_scenario(scenario, on="lab", scratch=tmp_path, runs=tmp_path / "runs", quiet=True)
    path, outcome, _ = run_scenario(scenario, scratch=tmp_path, runs=tmp_path / "runs", quiet=True)
    assert (Run.open(path).backend, outcome.state) == ("sim", "complete")


def test_transfers_that_exceed_the_timeout_are_counted_as_timeouts(tmp_path: Path) -> None:
    document = year("routes", read_each="100 kB/s")
    document["workload"]["timeout"] = "2 h"
    run, outcome = execute(tmp_path / "late", document)
    rows = run.query(
        """SELECT sum((outcomes->>'timeout')::BIGINT)::BIGINT AS n, sum(transfers)::BIGINT AS all_of, sum(received_bytes)::BIGINT AS moved,
                  max(max_duration_s) AS max_duration_s FROM routes WHERE factor_flow = 'read'"""
    )
    assert rows["n"][0] == rows["all_of"][0] > 1000
    assert outcome.failed > 0
    assert rows["max_duration_s"][0] == pytest.approx(7200.0, abs=1e-6)
    # 100 kB/s for two hours, minus the set-up.
    assert rows["moved"][0] == pytest.approx(rows["n"][0] * 7.2e8, rel=0.01)
