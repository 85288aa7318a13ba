"""Bottlenecks of simulated transfers by design point, compared with closed forms. The engine runs the plans."""

from pathlib import Path

import pytest

from venturi.analysis import analyse
from venturi.backend import SimBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

WINDOW = 65_536
RTT_S = 0.1


def scenario(**more):
    """Return two hosts and a link of 1 Gb/s and 100 ms. Costs of the tool are 0, so that the results have closed forms."""
    nothing = {"start": "0 s", "start_core": "0 s", "session_round_trips": 0, "file_round_trips": 0}
    document = {
        "venturi": 1, "name": "bounds", "seed": 1,
        "testbed": {
            "host": {"a": {}, "b": {}}, "link": {"ab": {"between": ["a", "b"], "rate": "1 Gb/s", "rtt": f"{RTT_S} s"}},
            "storage": {"here": {"host": "a", "path": "x"}, "there": {"host": "b", "path": "x"}},
            "service": {"ftp": {"kind": "gridftp", "host": "b", "storage": ["there"]}},
            "cost": {"mover": {"globus-url-copy": nothing}},
        },
        "workload": {
            "kind": "sweep", "mover": "globus-url-copy", "client": "a", "source": "here", "destination": "there", "repeat": 1, "timeout": "10 h",
            "factors": {"window": ["64 KiB", "640 KiB"], "size": ["1 GB"]},
        },
        "measure": {"interval": "off"},
    }  # fmt: skip
    document["workload"] |= more
    return document


def executed(tmp_path, engine, document):
    path = tmp_path / "plan.jsonl"
    write_plan(expand(scenario_from(document)), path)
    with RunWriter.create(tmp_path / "runs", path, backend="sim") as run:
        assert SimBackend(engine=engine).execute(run).state == "complete"
    return analyse(Run.open(run.path))


def rows_of(analysis):
    (section,) = (one for one in analysis.sections if one.name == "bottlenecks")
    (table,) = section.tables
    return section, [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]


def test_each_point_has_its_rate_its_ratio_to_the_first_and_its_bottleneck(tmp_path, engine):
    section, (first, second) = rows_of(executed(tmp_path, engine, scenario()))
    # One window per round trip (RFC 7323, 1.1). Slow start ends after 8 of about 15,000 round trips.
    assert first["rate_bit_per_s"] == pytest.approx(8 * WINDOW / RTT_S, rel=0.002)
    assert (first["to_first_ratio"], first["bottleneck_1"]) == (1.0, "window")
    assert first["bottleneck_1_ratio"] == pytest.approx(1.0, abs=0.01)
    assert second["to_first_ratio"] == pytest.approx(10.0, rel=0.01)
    assert "window 64 KiB: 5.24 Mb/s (window" in section.sentence
    assert "9.9" in section.sentence or "10" in section.sentence


def test_files_of_different_sizes_are_not_compared(tmp_path, engine):
    more = {"factors": {"size": ["1 GB", "10 MB"], "window": ["64 KiB", "640 KiB"]}}
    _, rows = rows_of(executed(tmp_path, engine, scenario(**more)))
    assert [row["to_first_ratio"] for row in rows if row["window_bytes"] == WINDOW] == [1.0, 1.0]


def test_too_many_points_are_combined_into_one_row(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("venturi.analysis.sections.bottlenecks.MAX_POINTS", 1)
    section, (row,) = rows_of(executed(tmp_path, engine, scenario()))
    assert "all transfers" in section.sentence
    assert row["bottleneck_1"] == "window"


def test_waiting_for_each_block_limits_the_rate_of_a_tool(tmp_path, engine):
    document = scenario(
        source="there", destination="here",
        factors={"block": ["64 KiB", "1 MiB", "4 MiB"], "size": ["1 GB"]}, options={"window": "128 MiB"},
    )  # fmt: skip
    document["testbed"]["link"]["ab"]["rtt"] = "0.01 ms"
    document["testbed"]["link"]["ab"]["rate"] = "10 Gb/s"
    block = {"block": "1 MiB", "block_time": "5 ms"}
    document["testbed"]["cost"]["storage"] = {"there": {"read_rate": "4 Gb/s", **block}}
    document["testbed"]["cost"]["host"] = {"b": {"page_cache_rate": "4 Gb/s"}}
    document["workload"]["cache"] = "cold"
    _, rows = rows_of(executed(tmp_path, engine, document))
    # 1/x = 1/r + t / max(b, B)
    closed = [8 / (1 / 500e6 + 0.005 / max(b, 2**20)) for b in (2**16, 2**20, 2**22)]
    assert [row["rate_bit_per_s"] for row in rows] == pytest.approx(closed, rel=0.005)
    assert {row["bottleneck_1"] for row in rows} == {"block"}


def test_a_run_without_recorded_bottlenecks_has_no_bottlenecks_section(recorded):
    assert "bottlenecks" not in {section.name for section in recorded.sections}


@pytest.fixture
def recorded():
    """Return the analysis of a recorded run on hosts."""
    return analyse(Run.open(Path(__file__).parents[1] / "data" / "runs" / "version-1"))
