"""What bound simulated transfers, point by point: against closed forms, on plans that the engine carries out."""

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
    """Two hosts and a link of 1 Gb/s and 100 ms; costs of the tool are put to nothing, so that forms are closed."""
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


def carried_out(tmp_path, engine, document):
    path = tmp_path / "plan.jsonl"
    write_plan(expand(scenario_from(document)), path)
    with RunWriter.create(tmp_path / "runs", path, backend="sim") as run:
        assert SimBackend(engine=engine).carry_out(run).state == "complete"
    return analyse(Run.open(run.path))


def rows_of(analysis):
    (chapter,) = (one for one in analysis.chapters if one.name == "bounds")
    (table,) = chapter.tables
    return chapter, [dict(zip((c.name for c in table.columns), row, strict=True)) for row in table.rows]


def test_each_point_has_its_rate_what_it_is_to_the_first_and_what_bound_it(tmp_path, engine):
    chapter, (first, second) = rows_of(carried_out(tmp_path, engine, scenario()))
    # A window a round trip (RFC 7323, 1.1); slow start is over after 8 round trips of some 15,000.
    assert first["rate_bit_per_s"] == pytest.approx(8 * WINDOW / RTT_S, rel=0.002)
    assert (first["to_first_ratio"], first["bound_1"]) == (1.0, "window")
    assert first["bound_1_ratio"] == pytest.approx(1.0, abs=0.01)
    assert second["to_first_ratio"] == pytest.approx(10.0, rel=0.01)
    assert "window 64 KiB: 5.24 Mb/s (window" in chapter.sentence
    assert "9.9" in chapter.sentence or "10" in chapter.sentence


def test_files_of_other_sizes_are_not_compared_with_each_other(tmp_path, engine):
    more = {"factors": {"size": ["1 GB", "10 MB"], "window": ["64 KiB", "640 KiB"]}}
    _, rows = rows_of(carried_out(tmp_path, engine, scenario(**more)))
    assert [row["to_first_ratio"] for row in rows if row["window_bytes"] == WINDOW] == [1.0, 1.0]


def test_more_points_than_can_be_shown_are_one_row(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("venturi.analysis.chapters.bounds.MOST_POINTS", 1)
    chapter, (row,) = rows_of(carried_out(tmp_path, engine, scenario()))
    assert "all transfers" in chapter.sentence
    assert row["bound_1"] == "window"


def test_a_tool_that_waits_for_each_block_of_a_file_system_is_as_fast_as_its_waits_let_it(tmp_path, engine):
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
    _, rows = rows_of(carried_out(tmp_path, engine, document))
    # 1/x = 1/r + t / max(b, B)
    closed = [8 / (1 / 500e6 + 0.005 / max(b, 2**20)) for b in (2**16, 2**20, 2**22)]
    assert [row["rate_bit_per_s"] for row in rows] == pytest.approx(closed, rel=0.005)
    assert {row["bound_1"] for row in rows} == {"block"}


def test_a_run_of_which_nobody_noted_bounds_has_no_such_chapter(recorded):
    assert "bounds" not in {chapter.name for chapter in recorded.chapters}


@pytest.fixture
def recorded():
    """The analysis of a recorded run of hosts."""
    return analyse(Run.open(Path(__file__).parents[1] / "data" / "runs" / "version-1"))
