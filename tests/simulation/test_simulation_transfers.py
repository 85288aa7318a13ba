"""Transfers as columns: closed forms, the same transfers as a replay, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import venturi
from venturi.errors import BackendError, ScenarioError

TESTBED: dict[str, Any] = {
    "venturi": 1,
    "name": "columns",
    "testbed": {
        "host": {name: {"site": name} for name in ("a", "b", "c")},
        "router": {"core": {}},
        "link": {
            "a": {"between": ["a", "core"], "rate": "10 Gb/s", "delay": "1 ms"},
            "b": {"between": ["b", "core"], "rate": "2 Gb/s", "delay": "5 ms"},
            "c": {"between": ["c", "core"], "rate": "4 Gb/s", "delay": "20 ms"},
        },
        "storage": {
            name: {"host": name, "path": "data", "kind": "disk", "size": "100 TB",
                   "read_rate": "8 Gb/s", "write_rate": "6 Gb/s"}
            for name in ("a", "b", "c")
        },
        "service": {name: {"kind": "xrootd", "host": name, "storage": [name]} for name in ("a", "b", "c")},
    },
    "workload": {"kind": "sweep", "mover": "cp", "source": "a", "destination": "a", "factors": {"size": ["1 kB"]}},
}  # fmt: skip
WRITE_BYTES_PER_S = 0.75e9


def changed(**parts: Any) -> dict[str, Any]:
    document = copy.deepcopy(TESTBED)
    document["testbed"] |= parts
    return document


def test_copies_that_share_a_disk_end_as_processor_sharing_says() -> None:
    # Sizes s1 <= ... <= sn from one moment on: T_k = (s1 + ... + s_{k-1} + (n - k + 1) s_k) / C.
    sizes = np.array([1e9, 2e9, 5e9, 5.5e9])
    document = changed(
        host={"a": {}}, router={}, link={}, service={}, storage={"a": TESTBED["testbed"]["storage"]["a"]}
    )
    moved = venturi.simulate_transfers(
        document, mover="cp", names=["a"], start_s=np.zeros(4), source=np.zeros(4, int), destination=np.zeros(4, int),
        size_bytes=sizes,
    )  # fmt: skip
    # What the tool's own start takes is the same for all.
    began_s = moved.end_s[0] - 4 * sizes[0] / WRITE_BYTES_PER_S
    before = np.concatenate(([0.0], np.cumsum(sizes)[:-1]))
    expected_s = (before + np.arange(4, 0, -1) * sizes) / WRITE_BYTES_PER_S
    assert 0 <= began_s < 0.1
    assert np.allclose(moved.end_s - began_s, expected_s, rtol=1e-12, atol=0)


def columns(count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 3, count)
    return {
        "start_s": np.round(np.sort(rng.uniform(0, 60, count)), 6),
        "source": source,
        "destination": (source + rng.integers(1, 3, count)) % 3,
        "size_bytes": rng.integers(1, 4_000_000_000, count),
    }


def test_columns_end_as_the_same_transfers_of_a_replay_do(tmp_path: Path) -> None:
    names, given = ["a", "b", "c"], columns(200, 7)
    rows = zip(given["start_s"], given["source"], given["destination"], given["size_bytes"], strict=True)
    text = "".join(f"{start},{names[one]},{names[other]},{size}\n" for start, one, other, size in rows)
    (tmp_path / "trace.csv").write_text("start_s,source,destination,size_bytes\n" + text)
    workload = {"kind": "replay", "mover": "xrdcp", "trace": str(tmp_path / "trace.csv"), "window": {"begin": 0}}
    with venturi.simulate(TESTBED | {"workload": workload}) as run:
        there = run.query("SELECT end_s, bound FROM transfers ORDER BY CAST(json_extract(labels, '$.row') AS BIGINT)")
    moved = venturi.simulate_transfers(TESTBED, mover="xrdcp", names=names, explain=True, **given)
    assert np.allclose(moved.end_s, there["end_s"], rtol=1e-9, atol=0)
    assert moved.bound is not None
    kept_back = [moved.bound_names[code] for code in moved.bound]
    assert any(name.startswith(("link:", "disk:")) for name in kept_back)


def test_the_order_of_rows_and_names_in_place_of_numbers_change_nothing() -> None:
    names, given = ["a", "b", "c"], columns(300, 8)
    moved = venturi.simulate_transfers(TESTBED, mover="xrdcp", names=names, **given)
    order = np.random.default_rng(9).permutation(300)
    mixed = {name: column[order] for name, column in given.items()}
    mixed |= {end: np.array(names)[mixed[end]] for end in ("source", "destination")}
    again = venturi.simulate_transfers(TESTBED, mover="xrdcp", **mixed)
    assert (again.end_s == moved.end_s[order]).all()


def test_behind_a_link_that_stays_down_a_transfer_has_no_end() -> None:
    document = changed(change=[{"at": "1 s", "link": "b", "up": False}])
    given: dict[str, Any] = {
        "start_s": [0.0, 0.0],
        "source": ["a", "a"],
        "destination": ["b", "c"],
        "size_bytes": [1e10, 1e9],
    }
    moved = venturi.simulate_transfers(document, mover="xrdcp", **given)
    assert np.isnan(moved.end_s).tolist() == [True, False]


def test_no_transfers_give_columns_without_rows() -> None:
    moved = venturi.simulate_transfers(
        TESTBED, mover="xrdcp", names=["a"], start_s=[], source=np.zeros(0, int), destination=np.zeros(0, int),
        size_bytes=[],
    )  # fmt: skip
    assert len(moved) == 0 and moved.rate_bytes_per_s.shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_s": [0.0, -1.0]}, r"start_s\[1\]: expected seconds from 0 on, found -1.0"),
        ({"start_s": [0.0, float("nan")]}, r"start_s\[1\]: expected seconds from 0 on, found nan"),
        ({"size_bytes": [1.0, 1e17]}, r"size_bytes\[1\]: expected whole numbers of bytes"),
        ({"size_bytes": [1.0]}, "size_bytes: expected 2 values, as many as of start_s, found 1"),
        ({"source": [0, 3]}, r"source\[1\]: expected a place in the 3 names, found 3"),
        ({"source": [0.0, 1.0]}, "source: expected whole numbers, places in names"),
        ({"names": ["a", "b", "nowhere"]}, "expected one of the storages, hosts and sites"),
        ({"mover": "xrdpc"}, "mover: expected one of the movers that copy files"),
        ({"client": "both"}, "client: expected source or destination, found both"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "mover": "xrdcp", "names": ["a", "b", "c"], "start_s": [0.0, 1.0], "source": [0, 1], "destination": [2, 2],
        "size_bytes": [1e6, 1e6],
    }  # fmt: skip
    with pytest.raises(ScenarioError, match=message):
        venturi.simulate_transfers(TESTBED, **(given | change))


def test_a_part_of_a_byte_is_refused_by_the_engine_with_its_row() -> None:
    given: dict[str, Any] = {
        "start_s": [0.0, 1.0],
        "source": ["a", "a"],
        "destination": ["b", "b"],
        "size_bytes": [1.0, 1.5],
    }
    with pytest.raises(BackendError, match=r"row 1, bytes: expected a whole number of bytes"):
        venturi.simulate_transfers(TESTBED, mover="xrdcp", **given)
