import os
import subprocess
import sys

import pytest

from venturi.errors import RunError
from venturi.run.lock import RunLock, exclusive_if_free


def test_a_second_controller_gets_the_pid_of_the_first(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(RunError, match=rf"PID {os.getpid()} on "):
        RunLock(tmp_path)
    lock.release()
    RunLock(tmp_path).release()


def test_a_run_stays_locked_until_the_last_process_with_the_inherited_lock_exits(tmp_path):
    """After a controller dies, its agent runs for a moment, and a resumed session must wait for its end."""
    code = (
        "import os, subprocess, sys; from pathlib import Path; from venturi.run.lock import RunLock;"
        "lock = RunLock(Path(sys.argv[1]));"
        "subprocess.Popen(['cat'], pass_fds=[lock.descriptor]);"
        "print('ready', flush=True); os._exit(0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as dead:
        assert dead.stdout.readline() == b"ready\n"
        dead.wait()
        with pytest.raises(
            RunError, match=rf"PID {dead.pid} .*has exited, but processes that it started are running"
        ):
            RunLock(tmp_path, wait_s=0.1)
        dead.stdin.close()
        RunLock(tmp_path).release()


def test_a_reader_detects_whether_another_process_writes(tmp_path):
    with exclusive_if_free(tmp_path) as writer_absent:
        assert writer_absent
    lock = RunLock(tmp_path)
    with exclusive_if_free(tmp_path) as writer_absent:
        assert not writer_absent
    lock.release()
    with exclusive_if_free(tmp_path) as writer_absent:
        assert writer_absent
        with pytest.raises(RunError, match="PID"):
            RunLock(tmp_path, wait_s=0.05)


def test_a_missing_directory_is_a_clear_error(tmp_path):
    with pytest.raises(RunError, match="expected a writable directory"):
        RunLock(tmp_path / "gone")
