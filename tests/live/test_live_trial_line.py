"""Fast reader of trial lines: the same values as the JSON parser, or the JSON parser itself."""

import json

import pytest

from venturi.live.trial_line import parse_record

KEYS = ("mover", "received_bytes", "start_s", "end_s", "outcome")


def line_of(*transfers, **changes):
    """A line of the journal with the keys in the order of the writer."""
    trial = {
        "trial": "t0000001", "actor": "sweep", "start_s": 0.5, "end_s": 2.5, "outcome": "ok",
        "cache": {"state": "as_is", "method": "none", "resident_ratio": None}, "findings": [],
        "position": 1, "session": 1, "host": "a", "point": 0, "repetition": 0, "block": 0, "factors": {"files": 1}, **changes, "transfers": list(transfers),
    }  # fmt: skip
    return json.dumps({"trial": trial}, separators=(",", ":")).encode()


def transfer(**changes):
    found = {
        "tool_bytes": None, "tool": None, "trial": "t0000001", "slot": 0, "call": "cp", "source": "s:in", "files": 1,
        "requested_bytes": 100, "received_bytes": 90, "checked_by": "agent", "intended_s": None, "start_s": 1.0e-5,
        "end_s": 2.25, "duration_s": 2.2, "outcome": "ok", "error": None, "stdout": None, "stderr": None, "labels": {},
        "mover": "cp",
    }  # fmt: skip
    return found | changes


TRANSFERS = {
    "one": [transfer()],
    "several": [transfer(received_bytes=number, mover=f"m{number}") for number in range(20)],
    "texts that look like keys": [
        transfer(stdout='"outcome":"failed","mover":"x"}', source='"start_s":9,"end_s":9,')
    ],
    "keys of a tool": [transfer(tool={"outcome": "x", "start_s": 9, "received_bytes": 1, "mover": "y"})],
    "labels": [transfer(labels={"mover": "z", "outcome": "y"}), transfer()],
    "no requested bytes": [transfer(requested_bytes=None)],
    "unknown bytes": [transfer(received_bytes=None)],
    "a failure": [transfer(), transfer(outcome="failed", error="exit code 1")],
    "no times": [transfer(start_s=None, end_s=None)],
    "a name with quotes": [transfer(mover='a"b\\')],
    "none": [],
}


@pytest.mark.parametrize("name", TRANSFERS)
def test_the_values_are_those_of_the_json_parser(name):
    line = line_of(*TRANSFERS[name])
    expected, found = json.loads(line)["trial"], parse_record(line)["trial"]
    assert [{key: one.get(key) for key in KEYS} for one in found["transfers"]] == [
        {key: one.get(key) for key in KEYS} for one in expected["transfers"]
    ]
    for key in ("trial", "start_s", "end_s", "outcome", "session", "host"):
        assert found[key] == expected[key]


def test_successful_transfers_are_cut_out_of_the_line():
    (found,) = parse_record(line_of(transfer()))["trial"]["transfers"]
    assert set(found) == set(KEYS)


@pytest.mark.parametrize("changes", [{"findings": [{"code": "x"}]}, {"attempt": 2}, {"routes": [{"mover": "cp"}]}])
def test_unusual_trials_keep_all_keys(changes):
    found = parse_record(line_of(transfer(), **changes))["trial"]
    assert {key: found[key] for key in changes} == changes
    assert found["factors"] == {"files": 1}


def test_failures_keep_their_messages():
    found = parse_record(line_of(transfer(outcome="failed", error="disk full"), outcome="failed"))
    assert found["trial"]["transfers"][0]["error"] == "disk full"


@pytest.mark.parametrize("cut", range(0, 700, 23))
def test_a_torn_line_gives_nothing(cut):
    assert parse_record(line_of(transfer())[:-1][:cut]) == {}
