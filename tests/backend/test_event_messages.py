"""Agent events as messages for the user."""

import pytest

from venturi.backend.event_messages import format_event, format_failure


@pytest.mark.parametrize(
    ("kind", "detail", "expected"),
    [
        ("dataset", {"dataset": "gpfs-5MB", "files": 30, "first": 5, "made": 30, "reused": 0}, "generated dataset gpfs-5MB on node1: 30 files"),
        ("dataset", {"dataset": "gpfs-5MB", "files": 1, "first": 5, "made": 1, "reused": 0}, "generated dataset gpfs-5MB on node1: 1 file"),
        ("dataset", {"dataset": "gpfs-5MB", "files": 30, "first": 5, "made": 0, "reused": 30}, ""),
        (
            "progress",
            {"bytes": 320000000, "dataset": "gpfs-20MB", "files": 15, "of_bytes": 760000000, "of_files": 38},
            "generating dataset gpfs-20MB on node1: 15 of 38 files, 320 MB of 760 MB",
        ),
        ("progress", {"dataset": "gpfs-20MB"}, "generating dataset gpfs-20MB on node1"),
        ("drop_caches", {"dataset": "gpfs-5MB", "files": 30, "method": "drop_caches", "resident_ratio": 0.0}, ""),
        ("a_new-kind", {"x": 1}, "a new kind on node1"),
    ],
)  # fmt: skip
def test_an_event_is_formatted_as_a_sentence_or_omitted(kind, detail, expected):
    assert format_event("node1", {"kind": kind, "detail": detail}) == expected


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (
            {"transfers": [{"outcome": "ok", "call": "cp"}, {"outcome": "failed", "call": "cp", "error": "exit code 1", "stderr": " no\nspace "}]},
            "cp failed: exit code 1: no space",
        ),
        (
            {"transfers": [{"outcome": "failed", "call": "x", "error": "exit code 1: 500 No / 500 End.", "stderr": "\nerror\n500 No\n500 End.\n"}]},
            "x failed: exit code 1: 500 No / 500 End.",
        ),
        ({"transfers": [{"outcome": "short", "call": "cp", "error": None, "stderr": ""}]}, "cp short"),
        ({"transfers": [], "findings": [{"code": "prepare-failed", "evidence": "read-only"}]}, "prepare-failed: read-only"),
        ({}, "cannot parse the output of the tool; the report shows it"),
    ],
)  # fmt: skip
def test_a_failed_trial_has_one_reason(trial, expected):
    assert format_failure(trial) == expected
