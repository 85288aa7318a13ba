"""ROOT files written and read with uproot, directly and through the job server."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testkit import wait_until
from venturi.application.client import SOCKET_VARIABLE
from venturi.application.commands import execute
from venturi.application.libraries import RootFileError
from venturi.application.read import read
from venturi.application.write import RootFileShape, smallest_bytes, write

uproot = pytest.importorskip("uproot", reason="not installed: uproot (venturi[root])")
pytest.importorskip("XRootD.client", reason="not installed: xrootd (venturi[root])")

PROGRAM = (sys.executable, "-m", "venturi.application")


def program(*arguments, **options):
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60, **options
    )


@pytest.mark.parametrize(
    "shape", [RootFileShape(), RootFileShape(1, 1, 1), RootFileShape(3, 5, 2), RootFileShape(1, 40, 10)]
)
def test_a_file_has_the_requested_size_and_almost_as_many_bytes_of_data(tmp_path, shape):
    for size in (smallest_bytes(shape), 1_000_003):
        path = tmp_path / f"{size}"
        assert write(path, size, shape=shape) == 1
        assert path.stat().st_size == size
        with uproot.open(path) as file:
            assert len(file.keys(filter_classname="TTree")) == shape.containers
            values = sum(branch.num_entries for tree in file.values() for branch in tree.branches)
        assert 8 * values <= size
    # The overhead is the headers and lists of these few baskets.
    assert 8 * values > size - 4 * (smallest_bytes(shape) - 20_000) - 30_000


def test_the_sum_of_the_bytes_agrees_with_the_values_read_by_uproot(tmp_path):
    path = tmp_path / "events"
    write(path, 300_000, shape=RootFileShape(2, 3, 4), seed=5)
    with uproot.open(path) as file:
        arrays = [branch.array(library="np") for tree in file.values() for branch in tree.branches]
    found = read(str(path))
    assert found.sum == sum(int(np.frombuffer(array.astype(">f8").tobytes(), np.uint8).sum()) for array in arrays)
    assert (found.containers, found.baskets) == (2, 24)
    assert found.container_bytes == sum(array.nbytes for array in arrays)
    assert found.container_bytes < found.bytes <= 300_000


def test_few_contents_are_shared_by_many_names_and_complete_files_are_kept(tmp_path):
    assert write(tmp_path / "set", 100_000, names=5, unique=2) == 5
    contents = [(tmp_path / "set" / f"{index:06d}").read_bytes() for index in range(5)]
    assert [contents.index(content) for content in contents] == [0, 1, 0, 1, 0]
    (tmp_path / "set" / "000003").write_bytes(b"cut short")
    assert write(tmp_path / "set", 100_000, names=5, unique=2) == 1
    assert (tmp_path / "set" / "000003").read_bytes() == contents[1]


def test_a_size_without_space_for_its_baskets_is_rejected(tmp_path):
    with pytest.raises(RootFileError, match="B or more for 32 baskets, found 20000 B"):
        write(tmp_path / "small", 20_000)


def test_a_job_reads_at_the_requested_rate_and_uses_the_requested_cpu_time(tmp_path):
    path = tmp_path / "events"
    write(path, 100_000)
    found = read(str(path), rate_bytes_per_s=200_000, compute_core_s=0.1)
    assert found.read_s >= 0.9 * found.bytes / 200_000
    assert found.waited_s > 0
    assert found.compute_s >= 0.1
    assert found.cpu_s >= 0.1


def test_an_invalid_root_file_is_reported_in_one_line(tmp_path):
    (tmp_path / "text").write_text("not a file of ROOT" * 100)
    for name in ("text", "nothing-here"):
        code, text = execute(["read", str(tmp_path / name)])
        assert code == 1
        assert text.startswith(f"{tmp_path / name}: expected a readable ROOT file, found ")
        assert text.count("\n") == 1
    assert program("walk").returncode == 2


@pytest.fixture
def server(tmp_path):
    """The job server of this machine; the environment has the path of its socket."""
    path = tmp_path / "socket"
    with subprocess.Popen([*PROGRAM, "serve", str(path)]) as process:
        wait_until(lambda: path.exists() or process.poll() is not None, "the server to listen")
        assert process.poll() is None
        yield {**os.environ, SOCKET_VARIABLE: str(path)}, process
        process.terminate()


def test_server_jobs_report_the_same_results_and_errors_as_standalone_jobs(tmp_path, server):
    environment, _ = server
    write(tmp_path / "events", 200_000)
    alone = program("read", tmp_path / "events")
    forked = [
        subprocess.Popen([*PROGRAM, "read", str(tmp_path / "events")], stdout=subprocess.PIPE, env=environment)
        for _ in range(8)
    ]
    message = [json.loads(job.communicate(timeout=60)[0]) for job in forked]
    assert {one["sum"] for one in message} == {json.loads(alone.stdout)["sum"]}
    failed = program("read", tmp_path / "nothing", env=environment)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "expected a readable ROOT file" in failed.stderr
    assert program("ask", tmp_path / "events", env=environment).returncode == 0
    absent_server = {**environment, SOCKET_VARIABLE: "@nobody-listens-here"}
    assert "expected venturi-root serve on this host" in program("ask", tmp_path / "events", env=absent_server).stderr


def test_a_job_ends_with_the_client_that_requested_it(tmp_path, server):
    environment, process = server
    write(tmp_path / "events", 200_000)
    client = subprocess.Popen([*PROGRAM, "read", str(tmp_path / "events"), "--rate", "1"], env=environment)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def jobs():
        return children.read_text().split()

    wait_until(lambda: jobs() or client.poll() is not None, "the job to begin")
    assert client.poll() is None
    client.send_signal(signal.SIGKILL)
    client.wait()
    wait_until(lambda: not jobs(), "the job to end with its client")
