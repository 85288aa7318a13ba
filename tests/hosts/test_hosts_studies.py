"""Published experiments on real hosts, in the lab and in the simulation, each from one scenario."""

import json
import math
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit import needs_programs, needs_root
from venturi.run import Run

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server", "xrdcp", "xrootd", "iperf3"),
]

BACKENDS = ("hosts", "lab", "sim")
TABLES = ("transfers", "trials", "routes", "samples", "sockets", "events", "findings", "environment", "verdicts")
VENTURI = Path(sys.executable).parent / "venturi"
PUBLISH = Path(__file__).parents[2] / "scripts" / "publish-study.py"
TWO_NODES = "cnaf/gridftp-two-nodes"


@dataclass(frozen=True)
class Part:
    """The smallest part of a study that moves bytes.

    Attributes
    ----------
    set
        Overrides of the quick variant.
    hosts
        Host of the kit, by host of the study.
    outcomes
        Transfers and requested bytes, by mover.
    receiver
        Host whose interfaces receive the bytes of the transfers of ``crossing``, a condition in SQL. None: the agent counts the
        received bytes of each transfer.
    """

    set: tuple[str, ...]
    hosts: dict[str, str]
    outcomes: dict[str, tuple[int, int]]
    receiver: str | None = None
    crossing: str = "true"


PARTS = {
    TWO_NODES: Part(
        (
            "workload.repeat=1", "workload.factors.files=[1, 3]", 'workload.factors.size=["10 MB"]',
            "workload.factors.streams=[1]",
        ),
        {"node1": "a", "node2": "b"},
        {"globus-url-copy": (4, 4_000_000)},
    ),
    "infn-gpfs/group2": Part(
        (
            "workload.repeat=1", "workload.factors.files=[1]", 'workload.factors.size=["100 MB"]',
            "workload.factors.streams=[1]",
        ),
        {"node1": "a"},
        {"globus-url-copy": (3, 6_000_000)},
    ),
    "ani/gridftp": Part(
        (
            'testbed.without=["nersc2", "nersc3", "anl2", "anl3", "nersc1-2", "nersc1-3", "anl1-2", "anl1-3"]',
            'workload.sets.large.volume="2 GiB"', "workload.sweep.filter=[\"set == 'large'\"]",
        ),
        {"nersc1": "a", "anl1": "b"},
        {"globus-url-copy": (2, 42_949_672)},
        receiver="anl1",
    ),
    "fiu/xrootd": Part(
        ("workload.jobs=[1]", 'workload.timeout="10 min"', 'testbed.without+=["w02"]', 'workload.workers=["w01"]'),
        {"vmuf": "a", "dgt": "a", "w01": "b"},
        {"root-read": (8, 4_000_000), "root-write": (2, 1_000_000)},
        receiver="w01",
        crossing="mover = 'root-read' AND factor_configuration <> 'direct Lustre'",
    ),
    "alice/matrix": Part(
        (
            'workload.timeout="10 min"', 'workload.factors.size=["1 MB"]', 'workload.factors.window=["128 KiB"]', "workload.factors.streams=[1]",
            "workload.sweep.filter=[\"destination == 'at-prague' and destination_service != 'gridftp-prague-block'\"]",
        ),
        {"cnaf": "a", "cnaf-tuned": "a", "catania": "b", "houston": "b", "prague": "b", "prague-tuned": "b"},
        {"globus-url-copy": (1, 1_000_000), "iperf3": (1, 1_000_000), "xrdcp": (1, 1_000_000)},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def run_everywhere(real_hosts):
    """Return a function that runs the part of a study once in each backend and returns the runs by backend."""
    found = {}

    def run(name):
        if name not in found:
            with ThreadPoolExecutor(len(BACKENDS)) as pool:
                runs = pool.map(lambda backend: run_part(real_hosts, name, backend), BACKENDS)
                found[name] = dict(zip(BACKENDS, runs, strict=True))
        return found[name]

    return run


def run_part(real_hosts, name, backend):
    part = PARTS[name]
    directory = real_hosts.work / "studies" / backend / name
    words = ["run", name, "--quick", "--portable", *(word for one in part.set for word in ("--set", one))]
    words += ["--on", backend, "--runs", directory]
    if backend == "hosts":
        real_hosts.venturi(*words, "--hosts", hosts_file(real_hosts, name), "--yes", timeout_s=600)
    else:
        command = [VENTURI, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=real_hosts.work, check=False)
        assert done.returncode == 0, done.stderr
    (run,) = directory.glob("*/run.json")
    return Run.open(run.parent)


def hosts_file(real_hosts, name, **changes):
    """Write the hosts file of a study; ``changes`` replace lines."""
    # root-jobs needs venturi-root, which pip installs next to this Python.
    environment = json.dumps(f"{VENTURI.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    lines = {
        host: f'{{ ssh = "{real}", path = "{real_hosts.shared}", environment = {{ PATH = {environment} }} }}'
        for host, real in PARTS[name].hosts.items()
    }
    path = real_hosts.work / f"{name.replace('/', '-')}.toml"
    path.write_text("".join(f"{host} = {line}\n" for host, line in (lines | changes).items() if line))
    return path


@pytest.mark.parametrize("name", PARTS)
def test_one_scenario_runs_in_all_three_backends(run_everywhere, name):
    runs = run_everywhere(name)
    plans = {(run.path / "plan.jsonl").read_bytes() for run in runs.values()}
    assert len(plans) == 1, "the plan is the same, byte for byte"
    for backend, run in runs.items():
        assert run.backend == backend
        rows = run.query(
            "SELECT mover, outcome, count(*) AS n, sum(requested_bytes)::BIGINT AS bytes FROM transfers GROUP BY 1, 2"
        )
        assert set(rows["outcome"]) == {"ok"}, backend
        outcomes = {mover: (n, size) for mover, n, size in zip(rows["mover"], rows["n"], rows["bytes"], strict=True)}
        assert outcomes == PARTS[name].outcomes, backend


@pytest.mark.parametrize("name", PARTS)
def test_receivers_have_the_same_bytes_in_all_backends(run_everywhere, name):
    part = PARTS[name]
    runs = run_everywhere(name)
    received = {backend: received_bytes(run) for backend, run in runs.items()}
    assert received["hosts"] == received["lab"] == received["sim"]
    if part.receiver is None:
        counted = {mover: sizes for mover, sizes in received["hosts"].items() if mover != "iperf3"}
        assert {mover: sum(sizes) for mover, sizes in counted.items()} == {
            mover: size for mover, (_, size) in part.outcomes.items() if mover != "iperf3"
        }
        return
    for backend, run in runs.items():
        (requested,) = run.query(f"SELECT sum(requested_bytes) AS b FROM transfers WHERE {part.crossing}")["b"]
        # Headers are 3 % of full packets, and jobs read 95 % of their files. Retransmissions and the connection to the
        # agent also count.
        assert 0.9 <= interface_bytes(run, part.receiver) / requested <= 1.5, backend


def received_bytes(run):
    """Return the received bytes of each transfer by mover, smallest first; None if no agent counts files of the receiver."""
    rows = run.query("SELECT mover, received_bytes FROM transfers ORDER BY mover, received_bytes")
    found = {}
    for mover, size in zip(rows["mover"], rows["received_bytes"], strict=True):
        found.setdefault(mover, []).append(None if size is None or math.isnan(size) else int(size))
    return found


def interface_bytes(run, host):
    """Return the bytes that the interfaces of a host received during a run, from its kernel counters."""
    (found,) = run.query(
        "SELECT sum(b) AS b FROM (SELECT max(value) - min(value) AS b FROM samples"
        " WHERE host = ? AND counter LIKE 'nic.eth%.rx_bytes' GROUP BY counter)",
        [host],
    )["b"]
    return float(found)


@pytest.mark.parametrize("name", PARTS)
def test_the_tables_of_all_backends_have_the_same_columns(run_everywhere, name):
    columns = {
        backend: {table: list(run.table(table)) for table in TABLES} for backend, run in run_everywhere(name).items()
    }
    assert columns["hosts"] == columns["lab"] == columns["sim"]
    assert all(columns["hosts"].values())


def test_a_comparison_has_a_column_for_each_backend(run_everywhere, tmp_path):
    paths = [run.path for run in run_everywhere(TWO_NODES).values()]
    command = [VENTURI, "study", "compare", *paths, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=True)
    section = json.loads(done.stdout)
    columns = {column["title"] for table in section["tables"] for column in table["columns"]}
    assert {"hosts", "lab", "simulated"} <= {title.partition(" ")[0] for title in columns}


def test_the_published_comparison_has_machine_commit_and_date(run_everywhere, tmp_path):
    paths = [run.path for run in run_everywhere(TWO_NODES).values()]
    command = [sys.executable, PUBLISH, "--comparison", *paths, "--note", "a test", "--into", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / TWO_NODES / "hosts"
    assert {path.name for path in directory.iterdir()} >= {
        "comparison.csv",
        "hosts-and-lab.html",
        "side-by-side.html",
    }
    page = (directory / "comparison.md").read_text()
    rows = dict(re.findall(r"^\| (\S[^|]*) \| (\S[^|]*) \|$", page, re.MULTILINE))
    assert re.fullmatch(r"\d+ × .+, .+", rows["machine"])
    assert re.fullmatch(r"`[0-9a-f]{10,}`( with later changes)?|unknown", rows["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d to \d{4}-\d\d-\d\d \d\d:\d\d UTC", rows["started"])
    assert rows["note"] == "a test"
    points = re.findall(r"^\| (\d) \| (.+ .B/s) \| (.+ .B/s) \| (.+ .B/s) \|$", page, re.MULTILINE)
    assert [files for files, *_ in points] == ["1", "3"]


def test_a_run_on_hosts_reports_nothing_about_the_network_of_the_lab(run_everywhere):
    command = [VENTURI, "report", run_everywhere(TWO_NODES)["hosts"].path, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "emulated" not in done.stdout
    assert "bytes-disagree" not in done.stdout


def rejected(real_hosts, name, file):
    """Run a study on hosts and return the lines of its error."""
    directory = real_hosts.work / "rejected"
    words = ["study", "run", name, "--quick", "--hosts", file, "--yes", "--quiet", "--runs", directory]
    done = real_hosts.venturi(*words, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert list(directory.glob("*/run.json")) == [], "no run is left"
    return done.stderr.strip().removeprefix("venturi: ").splitlines()


def test_a_missing_host_is_reported_before_any_contact(real_hosts):
    file = hosts_file(real_hosts, TWO_NODES, node2="")
    (line,) = rejected(real_hosts, TWO_NODES, file)
    assert line.startswith(f"{file}: expected a line for each host of the plan, found none for node2; add lines such")


def test_an_unknown_host_is_reported_before_any_contact(real_hosts):
    file = hosts_file(real_hosts, TWO_NODES, node3="{}")
    (line,) = rejected(real_hosts, TWO_NODES, file)
    assert line == f"{file}: expected only hosts of the plan (node1, node2), found node3; remove other hosts"


@pytest.mark.parametrize(("tool", "start"), [
    ("globus-url-copy", "node1: globus-url-copy was not found"),
    ("globus-gridftp-server", "testbed.service.gridftp: expected the programs globus-gridftp-server on node1, found none"),
])  # fmt: skip
def test_a_host_without_a_tool_is_reported_with_the_package(real_hosts, tool, start):
    path = shutil.which(tool, path="/usr/bin:/usr/sbin")
    real_hosts.sh("a", f"mount --bind /dev/null {path}", user=False)
    try:
        (line,) = rejected(real_hosts, "infn-gpfs/group2", hosts_file(real_hosts, "infn-gpfs/group2"))
    finally:
        real_hosts.sh("a", f"umount {path}", user=False)
    assert line.startswith(start)
    assert "install" in line


def test_a_host_with_too_little_disk_space_is_reported_with_both_sizes(real_hosts):
    small = "/home/alice/small"
    real_hosts.sh("a", f"mkdir {small} && mount -t tmpfs -o size=4m,mode=777 tmpfs {small}", user=False)
    try:
        file = hosts_file(real_hosts, "infn-gpfs/group2", node1=f'{{ ssh = "a", path = "{small}" }}')
        (line,) = rejected(real_hosts, "infn-gpfs/group2", file)
    finally:
        real_hosts.sh("a", f"umount {small} && rmdir {small}", user=False)
    assert line.startswith(
        "gpfs (gpfs) and tmp (tmp) on node1: expected 400 MB of free space, found 4.19 MB; use --set"
    )


def test_the_studies_leave_nothing_on_the_hosts(real_hosts):
    for host in "ab":
        real_hosts.wait_for_nothing_left(host)
