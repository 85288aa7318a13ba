import os
import subprocess
import sys

import pytest

from venturi.errors import RunError
from venturi.run.lock import RunLock, quiet


def test_a_second_controller_is_told_the_pid_of_the_first(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(RunError, match=rf"the run is in use by PID {os.getpid()} on "):
        RunLock(tmp_path)
    lock.release()
    RunLock(tmp_path).release()


def test_a_run_stays_taken_until_the_last_process_that_inherited_the_lock_is_gone(tmp_path):
    """A controller that dies leaves an agent behind for a moment: whoever resumes must wait for its end."""
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
        with pytest.raises(RunError, match=rf"PID {dead.pid} .*has ended, but processes that it started have not"):
            RunLock(tmp_path, wait_s=0.1)
        dead.stdin.close()
        RunLock(tmp_path).release()


def test_a_reader_sees_whether_somebody_writes(tmp_path):
    with quiet(tmp_path) as nobody_writes:
        assert nobody_writes
    lock = RunLock(tmp_path)
    with quiet(tmp_path) as nobody_writes:
        assert not nobody_writes
    lock.release()
    with quiet(tmp_path) as nobody_writes:
        assert nobody_writes
        with pytest.raises(RunError, match="in use"):
            RunLock(tmp_path, wait_s=0.05)


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path):
    with pytest.raises(RunError, match="expected a directory that can be written to"):
        RunLock(tmp_path / "gone")
