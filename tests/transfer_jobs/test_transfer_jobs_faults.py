"""Faults of transfer jobs: killed and stopped workers, full disks, corrupt copies, two concurrent workers."""

import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from jobkit import copies, make_files, run_worker, same, start_worker, submitted, tool

from testkit import wait_until
from venturi.transfer_jobs import job_status
from venturi.transfer_jobs.status import failed_transfers

COUNT = 40
SLOW_CP = 'for last; do :; done; head -c 5000 /dev/zero > "$last"; sleep 0.05; exec /bin/cp "$@"'
"""A slow cp that first writes half a file."""


def status(queue):
    return job_status(queue, 1, time.time())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_killed_workers_every_transfer_is_completed_and_counted_once(tmp_path, seed):
    pairs = copies(tmp_path, make_files(tmp_path / "in", COUNT))
    queue = submitted(tmp_path, pairs, concurrency=6)
    path, draw = tool(tmp_path / "bin", "cp", SLOW_CP), random.Random(seed)
    for _ in range(3):
        worker = start_worker(queue, PATH=path)
        goal = status(queue).transfers.get("done", 0) + draw.randint(1, COUNT // 4)
        wait_until(
            lambda goal=goal: status(queue).transfers.get("done", 0) >= goal or worker.poll() is not None,  # noqa: B023 - called at once
            "more to be done",
        )
        worker.kill()
        worker.communicate()
    output, code = run_worker(queue, PATH=path)
    (job,) = output["jobs"]
    assert (code, job["transfers"]) == (0, {"done": COUNT})
    assert same(pairs)
    assert job["done_bytes"] == COUNT * 10_000
    assert job["verified"] == COUNT
    assert job["retries"] == 0, "a kill is no failure of a transfer"
    (row,) = queue.rows("SELECT count(*) AS n, count(DISTINCT transfer) AS t FROM attempt WHERE outcome = 'ok'")
    assert (row["n"], row["t"]) == (COUNT, COUNT)
    assert not list((queue.directory / "workers").iterdir())


def test_files_copied_before_a_kill_are_verified_and_not_copied_again(tmp_path):
    (pair,) = pairs = copies(tmp_path, make_files(tmp_path / "in", 1))
    queue = submitted(tmp_path, pairs)
    worker, lease = queue.enrol(1.0)
    (claim,) = queue.claim(worker, 2.0)
    shutil.copytree(tmp_path / "in", tmp_path / "out")
    queue.note_copied(claim.tasks, [10_000])
    inode = pair[1].stat().st_ino
    os.close(lease.descriptor)  # like the kernel when the holder is killed
    output, code = run_worker(queue, PATH=tool(tmp_path / "bin", "cp", "exit 1"))
    assert (code, output["jobs"][0]["verified"]) == (0, 1)
    assert pair[1].stat().st_ino == inode


def test_ctrl_c_ends_the_movers_keeps_completed_files_and_allows_a_resume(tmp_path):
    pairs = copies(tmp_path, make_files(tmp_path / "in", COUNT))
    queue = submitted(tmp_path, pairs, concurrency=3)
    # Six calls pass; the others wait in the middle of a copy.
    held = f"n=0; while [ $n -lt 6 ]; do mkdir {tmp_path}/$n 2>/dev/null && break; n=$((n + 1)); done; [ $n -lt 6 ] || until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    path = tool(tmp_path / "bin", "cp", SLOW_CP.replace("sleep 0.05", held))
    worker = start_worker(queue, PATH=path)
    wait_until(lambda: status(queue).transfers.get("done", 0) >= 4, "four to be done")
    worker.send_signal(signal.SIGINT)
    out, err = worker.communicate(timeout=300)
    (tmp_path / "go").touch()
    assert worker.returncode == 130, out + err
    assert "resume with: venturi transfer run" in err
    assert set(status(queue).transfers) == {"done", "queued"}
    output, code = run_worker(queue, PATH=path)
    assert (code, output["jobs"][0]["transfers"], same(pairs)) == (0, {"done": COUNT}, True)


def test_two_workers_share_a_queue_without_duplicate_transfers(tmp_path):
    pairs = copies(tmp_path, make_files(tmp_path / "in", COUNT))
    queue = submitted(tmp_path, pairs, concurrency=6)
    path = tool(tmp_path / "bin", "cp", f'echo "$@" >> {tmp_path}/calls; {SLOW_CP}')
    workers = [start_worker(queue, PATH=path) for _ in range(2)]
    assert [worker.communicate(timeout=300) and worker.returncode for worker in workers] == [0, 0]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == len(set(calls)) == COUNT
    assert same(pairs)
    assert {row["outcome"] for row in queue.rows("SELECT outcome FROM attempt")} == {"ok"}


def test_an_idle_worker_does_not_take_transfers_of_an_active_worker(tmp_path):
    queue = submitted(tmp_path, copies(tmp_path, make_files(tmp_path / "in", 1)))
    worker, lease = queue.enrol(1.0)
    assert len(queue.claim(worker, 2.0)) == 1
    output, code = run_worker(queue)
    assert (code, output["jobs"][0]["transfers"]) == (0, {"active": 1})
    os.close(lease.descriptor)  # like the kernel when the holder is killed
    output, code = run_worker(queue)
    assert (code, output["jobs"][0]["transfers"]) == (0, {"done": 1})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system of its own")
def test_a_full_disk_fails_a_transfer_permanently_and_leaves_no_partial_file(tmp_path):
    small, (large,) = make_files(tmp_path / "in", 3), make_files(tmp_path / "large", 1, 3_000_000)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", out], check=True)
    try:
        pairs = copies(tmp_path, small)
        queue = submitted(tmp_path, [(large, out / "large"), *pairs], concurrency=1)
        output, code = run_worker(queue)
        assert (code, output["jobs"][0]["causes"], output["jobs"][0]["retries"]) == (3, {"no-space": 1}, 0)
        assert same(pairs)
        assert not (out / "large").exists()
    finally:
        subprocess.run(["umount", out], check=True)


def test_a_corrupt_copy_is_detected_by_its_checksum_and_repeated(tmp_path):
    pairs = copies(tmp_path, make_files(tmp_path / "in", 2))
    queue = submitted(tmp_path, pairs, backoff_s=0.05)
    corrupt = f'/bin/cp "$@"; for last; do :; done; mkdir {tmp_path}/once 2>/dev/null && printf X | dd of="$last" conv=notrunc 2>/dev/null; exit 0'
    output, code = run_worker(queue, PATH=tool(tmp_path / "bin", "cp", corrupt))
    (job,) = output["jobs"]
    assert (code, job["passing"], job["retries"], job["verified"]) == (0, {"corrupt": 1}, 1, 2)
    assert same(pairs)


def test_a_repeatedly_corrupt_copy_fails_and_is_removed(tmp_path):
    ((source, target),) = pairs = copies(tmp_path, make_files(tmp_path / "in", 1))
    queue = submitted(tmp_path, pairs, backoff_s=0.01, retries=2)
    corrupt = '/bin/cp "$@"; for last; do :; done; printf X | dd of="$last" conv=notrunc 2>/dev/null'
    output, code = run_worker(queue, PATH=tool(tmp_path / "bin", "cp", corrupt))
    assert (code, output["jobs"][0]["causes"], output["jobs"][0]["attempts"]) == (3, {"corrupt": 1}, 3)
    assert not target.exists()
    assert source.exists()
    assert "expected a destination of adler32:" in failed_transfers(queue, 1)[0]["error"]


def test_an_untouched_existing_destination_is_kept(tmp_path):
    (kept,) = make_files(tmp_path / "out", 1)
    queue = submitted(tmp_path, [(tmp_path / "in" / "none", kept)])
    _, code = run_worker(queue)
    assert (code, kept.stat().st_size) == (3, 10_000)


def test_cancelling_stops_active_transfers_and_removes_partial_files(tmp_path):
    pairs = copies(tmp_path, make_files(tmp_path / "in", 4))
    queue = submitted(tmp_path, pairs, concurrency=2)
    stuck = 'for last; do :; done; head -c 5000 /dev/zero > "$last"; exec sleep 100'
    worker = start_worker(queue, PATH=tool(tmp_path / "bin", "cp", stuck))
    wait_until(lambda: pairs[1][1].exists() and pairs[0][1].exists(), "two to be under way")
    assert queue.cancel(1, 5.0) == (2, 2)
    worker.communicate(timeout=300)
    assert (worker.returncode, status(queue).transfers) == (0, {"cancelled": 4})
    assert not any(target.exists() for _, target in pairs)


def test_a_deadline_ends_active_transfers_and_starts_no_others(tmp_path):
    pairs = copies(tmp_path, make_files(tmp_path / "in", 3))
    queue = submitted(tmp_path, pairs, concurrency=1, deadline_unix_s=time.time() + 3)
    output, code = run_worker(queue, PATH=tool(tmp_path / "bin", "cp", "exec sleep 100"))
    assert (code, output["jobs"][0]["transfers"]) == (3, {"failed": 3})
    assert set(output["jobs"][0]["causes"]) <= {"deadline", "timeout"}
    assert output["jobs"][0]["elapsed_s"] < 1e10


def test_a_missing_tool_is_reported_by_name(tmp_path):
    queue = submitted(
        tmp_path, [(path, f"root://nowhere.invalid//{path.name}") for path in make_files(tmp_path / "in", 1)]
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "env").symlink_to("/usr/bin/env")
    _, code = run_worker(queue, PATH=str(tmp_path / "bin"))
    (row,) = failed_transfers(queue, 1)
    assert (code, row["cause"], row["attempts"]) == (3, "no-tool", 1)
    assert "expected the program" in row["error"]


def test_directories_that_cannot_be_created_fail_only_their_transfers(tmp_path):
    sources = make_files(tmp_path / "in", 3)
    (tmp_path / "file").touch()
    bad = [(f"gsiftp://nowhere.invalid/{path.name}", tmp_path / "file" / path.name) for path in sources[:2]]
    queue = submitted(tmp_path, [*bad, (sources[2], tmp_path / "out" / "good")], files_per_call=4, retries=0)
    output, code = run_worker(queue)
    assert (code, output["jobs"][0]["transfers"]) == (3, {"done": 1, "failed": 2})
