"""Transfers as columns: closed forms, the same transfers as a replay, and rejected input."""

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


def test_copies_that_share_a_disk_end_as_processor_sharing_predicts() -> None:
    # Sizes s1 <= ... <= sn with a common start: T_k = (s1 + ... + s_{k-1} + (n - k + 1) s_k) / C.
    sizes = np.array([1e9, 2e9, 5e9, 5.5e9])
    document = changed(
        host={"a": {}}, router={}, link={}, service={}, storage={"a": TESTBED["testbed"]["storage"]["a"]}
    )
    moved = venturi.simulate_transfers(
        document, mover="cp", names=["a"], start_s=np.zeros(4), source=np.zeros(4, int), destination=np.zeros(4, int),
        size_bytes=sizes,
    )  # fmt: skip
    # The start of the tool takes the same time for all.
    started_s = moved.end_s[0] - 4 * sizes[0] / WRITE_BYTES_PER_S
    before = np.concatenate(([0.0], np.cumsum(sizes)[:-1]))
    expected_s = (before + np.arange(4, 0, -1) * sizes) / WRITE_BYTES_PER_S
    assert 0 <= started_s < 0.1
    assert np.allclose(moved.end_s - started_s, expected_s, rtol=1e-12, atol=0)


def columns(count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 3, count)
    return {
        "start_s": np.round(np.sort(rng.uniform(0, 60, count)), 6),
        "source": source,
        "destination": (source + rng.integers(1, 3, count)) % 3,
        "size_bytes": rng.integers(1, 4_000_000_000, count),
    }


def test_simulated_columns_have_the_end_times_of_an_equal_replay(tmp_path: Path) -> None:
    names, given = ["a", "b", "c"], columns(200, 7)
    rows = zip(given["start_s"], given["source"], given["destination"], given["size_bytes"], strict=True)
    text = "".join(f"{start},{names[one]},{names[other]},{size}\n" for start, one, other, size in rows)
    (tmp_path / "trace.csv").write_text("start_s,source,destination,size_bytes\n" + text)
    workload = {"kind": "replay", "mover": "xrdcp", "trace": str(tmp_path / "trace.csv"), "window": {"start": 0}}
    with venturi.simulate(TESTBED | {"workload": workload}) as run:
        there = run.query(
            "SELECT end_s, bottleneck FROM transfers ORDER BY CAST(json_extract(labels, '$.row') AS BIGINT)"
        )
    moved = venturi.simulate_transfers(TESTBED, mover="xrdcp", names=names, explain=True, **given)
    assert np.allclose(moved.end_s, there["end_s"], rtol=1e-9, atol=0)
    assert moved.bottleneck is not None
    kept_back = [moved.bottleneck_names[code] for code in moved.bottleneck]
    assert any(name.startswith(("link:", "disk:")) for name in kept_back)


def test_row_order_and_names_instead_of_indices_do_not_change_the_end_times() -> None:
    names, given = ["a", "b", "c"], columns(300, 8)
    moved = venturi.simulate_transfers(TESTBED, mover="xrdcp", names=names, **given)
    order = np.random.default_rng(9).permutation(300)
    mixed = {name: column[order] for name, column in given.items()}
    mixed |= {end: np.array(names)[mixed[end]] for end in ("source", "destination")}
    again = venturi.simulate_transfers(TESTBED, mover="xrdcp", **mixed)
    assert (again.end_s == moved.end_s[order]).all()


def test_a_transfer_over_a_link_that_stays_down_has_no_end() -> None:
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
        ({"start_s": [0.0, -1.0]}, r"start_s\[1\]: expected seconds, 0 or more, found -1.0"),
        ({"start_s": [0.0, float("nan")]}, r"start_s\[1\]: expected seconds, 0 or more, found nan"),
        ({"size_bytes": [1.0, 1e17]}, r"size_bytes\[1\]: expected whole numbers of bytes"),
        ({"size_bytes": [1.0]}, "size_bytes: expected 2 values, as many as of start_s, found 1"),
        ({"source": [0, 3]}, r"source\[1\]: expected an index of the 3 names, found 3"),
        ({"source": [0.0, 1.0]}, r"source: expected whole numbers \(indices of names\)"),
        ({"names": ["a", "b", "nowhere"]}, "expected one of the storages, hosts and sites"),
        ({"mover": "xrdpc"}, "mover: expected one of the movers that copy files"),
        ({"client": "both"}, "client: expected source or destination, found both"),
    ],
)
def test_an_invalid_value_is_rejected_with_its_location(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "mover": "xrdcp", "names": ["a", "b", "c"], "start_s": [0.0, 1.0], "source": [0, 1], "destination": [2, 2],
        "size_bytes": [1e6, 1e6],
    }  # fmt: skip
    with pytest.raises(ScenarioError, match=message):
        venturi.simulate_transfers(TESTBED, **(given | change))


def test_the_engine_rejects_a_fractional_size_with_its_row() -> None:
    given: dict[str, Any] = {
        "start_s": [0.0, 1.0],
        "source": ["a", "a"],
        "destination": ["b", "b"],
        "size_bytes": [1.0, 1.5],
    }
    with pytest.raises(BackendError, match=r"row 1, bytes: expected a whole number of bytes"):
        venturi.simulate_transfers(TESTBED, mover="xrdcp", **given)
