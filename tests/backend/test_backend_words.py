"""What agents say, in the words of a spectator."""

import pytest

from venturi.backend.words import event_in_words, failure_in_words


@pytest.mark.parametrize(
    ("kind", "detail", "expected"),
    [
        ("dataset", {"dataset": "gpfs-5MB", "files": 30, "first": 5, "made": 30, "reused": 0}, "made data set gpfs-5MB on node1: 30 files"),
        ("dataset", {"dataset": "gpfs-5MB", "files": 1, "first": 5, "made": 1, "reused": 0}, "made data set gpfs-5MB on node1: 1 file"),
        ("dataset", {"dataset": "gpfs-5MB", "files": 30, "first": 5, "made": 0, "reused": 30}, ""),
        (
            "progress",
            {"bytes": 320000000, "dataset": "gpfs-20MB", "files": 15, "of_bytes": 760000000, "of_files": 38},
            "making data set gpfs-20MB on node1: 15 of 38 files, 320 MB of 760 MB",
        ),
        ("progress", {"dataset": "gpfs-20MB"}, "making data set gpfs-20MB on node1"),
        ("drop_caches", {"dataset": "gpfs-5MB", "files": 30, "method": "drop_caches", "resident_ratio": 0.0}, ""),
        ("a_new-kind", {"x": 1}, "a new kind on node1"),
    ],
)  # fmt: skip
def test_an_event_is_told_in_words_or_not_at_all(kind, detail, expected):
    assert event_in_words("node1", {"kind": kind, "detail": detail}) == expected


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
        ({}, "the output of the tool is not what its mover knows; the report has it"),
    ],
)  # fmt: skip
def test_a_failed_trial_has_one_reason(trial, expected):
    assert failure_in_words(trial) == expected
