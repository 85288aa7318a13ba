"""Tools and disks fail: each failure has a clear record, and other transfers succeed."""

import os
import stat
import subprocess
import time

import pytest

from testkit import call_of, living_processes, tiny_trials, transfer_step, write_plan
from venturi.analysis import analyse
from venturi.backend import HostsBackend
from venturi.errors import RunError
from venturi.run import Run, RunWriter

SIZE = 100_000


@pytest.fixture
def execute(tmp_path, engine, scratch):
    def work(plan):
        run = RunWriter.create(tmp_path / "runs", plan, backend="hosts")
        return HostsBackend(scratch=scratch, engine=engine).execute(run), Run.open(run.path)

    return work


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill")
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "venturi-test", directory]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no small file system to fill: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", directory], check=True)


def trial(number, call, **changes):
    """Return a trial of one transfer."""
    name = f"t{number:07d}"
    transfer = transfer_step(call, "data:set/000000", f"data:out/{name}", SIZE)
    steps = [{"step": "prepare", "dataset": "set-data", "first": 0, "files": 1, "cache": "as_is"}, transfer | changes]
    step = {
        "step": "trial",
        "id": name,
        "point": number,
        "repetition": 0,
        "block": 0,
        "factors": {"call": call},
        "steps": steps,
    }
    return {"actor": "sweep", "host": "node1", "steps": [step]}


FAULTS = {
    # name: (script, outcome, exit code, signal, text kept)
    "hangs": ("sleep 600 & sleep 600", "timeout", None, None, ""),
    "refuses": ("echo no thank you >&2; exit 1", "failed", 1, None, "no thank you"),
    "crashes": ("echo last words >&2; kill -SEGV $$", "killed", None, 11, "last words"),
    "writes-short": ('head -c 1000 "$1" > "$2"', "short", 0, None, ""),
    "writes-nothing": ("exit 0", "short", 0, None, ""),
    "ignores-sigterm": ("trap '' TERM; while :; do sleep 1; done", "timeout", None, None, ""),
}


def test_every_outcome_of_a_mover_is_recorded_and_the_next_trial_starts(execute, tmp_path, monkeypatch):
    monkeypatch.setenv("VENTURI_TEST", str(tmp_path))
    calls = {"cp": call_of(["cp", "{source}", "{destination}"]),
             "gone": call_of(["no-such-tool", "{source}", "{destination}"])}  # fmt: skip
    for name, (text, *_) in FAULTS.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(stat.S_IRWXU)
        # A tool that exits by itself has enough time, even on a slow machine.
        calls[name] = call_of(
            [str(path), "{source}", "{destination}"], timeout_s=0.3 if FAULTS[name][1] == "timeout" else 60.0
        )
    order = [name for fault in (*FAULTS, "gone") for name in (fault, "cp")]
    lines = [trial(number, call) for number, call in enumerate(order)]
    started_s = time.monotonic()
    outcome, run = execute(write_plan(tmp_path / "plan.jsonl", lines, calls=calls))
    assert time.monotonic() - started_s < 120, "far from the 600 s that one of them sleeps"
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", len(order), len(FAULTS) + 1)
    rows = run.query("SELECT call, outcome, exit_code, signal, error, received_bytes FROM transfers ORDER BY trial")
    found = dict(zip(rows["call"], zip(*list(rows.values())[1:], strict=True), strict=True))
    assert [row for call, row in zip(rows["call"], rows["outcome"], strict=True) if call == "cp"] == ["ok"] * 7
    for name, (_, expected, exit_code, signal, text) in FAULTS.items():
        result, found_code, found_signal, error, _ = found[name]
        assert result == expected, name
        if exit_code is not None:
            assert found_code == exit_code, name
        if signal is not None:
            assert found_signal == signal, name
        assert error, name
        assert text in error or text in kept_text(run, name), name
    assert found["writes-short"][4] == 1000
    assert found["writes-nothing"][4] == 0
    assert found["gone"][0] == "missing"
    assert "no-such-tool" in found["gone"][3]
    (missing,) = [finding for finding in run.findings() if finding.code == "missing-tool"]
    assert (missing.subject, missing.host) == ("no-such-tool", "node1")
    assert living_processes(tmp_path) == []


def kept_text(run, call):
    """Return the stored output of the transfer of a call, which is in the journal."""
    source = str(run.path / "journal.jsonl")
    columns = "{trial: 'STRUCT(transfers STRUCT(call VARCHAR, stdout VARCHAR, stderr VARCHAR)[])'}"
    rows = run.query(
        f"SELECT t.stdout || t.stderr AS text FROM (SELECT unnest(trial.transfers) AS t FROM"
        f" read_json('{source}', format='newline_delimited', columns={columns}) WHERE trial IS NOT NULL) WHERE t.call = ?",
        [call],
    )
    return rows["text"][0]


def test_a_full_disk_fails_only_transfers_that_do_not_fit(execute, tmp_path, small_disk):
    """The plan declares that it needs little space, but another file fills the disk."""
    (small_disk / "foreign").write_bytes(b"\0" * (2 * 2**20 - 3 * SIZE))
    storages = {"data": {"host": "node1", "path": str(small_disk)}}
    calls = {"cp": call_of(["cp", "{source}", "{destination}"]),
             "grows": call_of(["sh", "-c", 'cat "$0" "$0" "$0" > "$1"', "{source}", "{destination}"], requires=["sh"])}  # fmt: skip
    lines = [trial(number, call) for number, call in enumerate(["cp", "grows", "cp"])]
    outcome, run = execute(write_plan(tmp_path / "plan.jsonl", lines, calls=calls, storages=storages))
    assert (outcome.state, outcome.failed) == ("complete", 1)
    rows = run.query("SELECT outcome, error FROM transfers ORDER BY trial")
    assert rows["outcome"].tolist() == ["ok", "failed", "ok"]
    assert "No space left on device" in rows["error"][1] + kept_text(run, "grows")


@pytest.mark.parametrize("spoilt", [2, 5])
def test_a_dataset_that_cannot_be_created_fails_its_trials_without_transfers(execute, tmp_path, spoilt):
    """A file has the path of its directory. The other trials are done, and tables and analysis show the failed ones."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "set").write_text("no directory")
    storages = {"bad": {"host": "node1", "path": str(tmp_path / "bad")}, "data": {"host": "node1", "path": "data"}}
    lines = [*tiny_trials(spoilt, storage="bad"), *tiny_trials(5 - spoilt, first=spoilt)]
    outcome, run = execute(write_plan(tmp_path / "plan.jsonl", lines, storages=storages))
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", 5, spoilt)
    names = [f"t{number:07d}" for number in range(5)]
    assert run.table("transfers")["trial"].tolist() == names[spoilt:]
    rows = run.query("SELECT outcome FROM trials ORDER BY trial")
    assert rows["outcome"].tolist() == ["failed"] * spoilt + ["ok"] * (5 - spoilt)
    found = [(finding.code, finding.trial, finding.subject) for finding in run.findings()]
    assert found == [("prepare-failed", name, "set-bad") for name in names[:spoilt]]
    assert [finding.evidence for finding in run.findings() if "/bad/set`: File exists" not in finding.evidence] == []
    result = analyse(run)
    assert (result.counts.trials_failed, result.counts.transfers) == (spoilt, 5 - spoilt)
    if spoilt == 5:
        assert result.conclusion == "Nothing was measured: 5 trials failed before their first transfer."


def test_a_full_disk_of_the_run_directory_is_reported_and_the_run_can_be_resumed(
    tmp_path, engine, scratch, small_disk
):
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(60))
    run = RunWriter.create(small_disk, plan, backend="hosts")
    foreign = small_disk / "foreign"
    free = os.statvfs(small_disk)
    foreign.write_bytes(b"\0" * (free.f_bavail * free.f_frsize - 14 * 4096))
    with pytest.raises(RunError, match=r"journal.jsonl: cannot write: No space left on device\..*resume the run"):
        HostsBackend(scratch=scratch, engine=engine).execute(run)
    foreign.unlink()
    with RunWriter.resume(run.path) as again:
        assert 0 < len(again.finished) < 60
        outcome = HostsBackend(scratch=scratch, engine=engine).execute(again)
    assert outcome.state == "complete"
    with Run.open(run.path) as read:
        assert sorted(read.table("transfers")["trial"]) == [f"t{number:07d}" for number in range(60)]
