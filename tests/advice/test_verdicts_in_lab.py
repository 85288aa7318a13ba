"""Verdicts of real transfers in the lab and of the same transfers in the simulator.

Each path has one known limit, far below all others. The paths of a mover are pairs of hosts in one lab, with one trial
each, one after another.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testkit import needs_root
from venturi.advice import Verdict, advise
from venturi.backend import Backend, LabBackend, SimBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

BUSY = 0.3
"""Fraction of time with processes that wait for a core; above it, a verdict can name the machine."""


@dataclass(frozen=True)
class Path_:
    """A pair of hosts with one limit; texts are lines of TOML.

    Attributes
    ----------
    cause
        The limit.
    simulated
        Whether the simulator has this limit.
    """

    name: str
    cause: str
    source: str = ""
    destination: str = ""
    sysctl: str = ""
    rate: str = "100 Mb/s"
    rtt: str = "30 ms"
    link: str = ""
    access: str = "100 Mb/s"
    data: str = ""
    copies: str = ""
    service: str = ""
    size: str = "3 MB"
    files: int = 1
    simulated: bool = True

    def toml(self, kind: str, at: str) -> str:
        """Return the hosts, links, storages and the service."""
        name = self.name
        tcp = f'tcp = "{name}"' if self.sysctl else ""
        served = f"data-{name}" if at == "src" else f"copies-{name}"
        return f"""
[testbed.host.src-{name}]
{self.source}
{tcp if self.cause == "send-buffer" else ""}
[testbed.host.dst-{name}]
{self.destination}
{tcp if self.cause == "receive-window" else ""}
{f"[testbed.tcp.{name}]" if self.sysctl else ""}
{self.sysctl}
[testbed.router.r-{name}]
[testbed.link.wan-{name}]
between = ["src-{name}", "r-{name}"]
rate = "{self.rate}"
rtt = "{self.rtt}"
{self.link}
[testbed.link.access-{name}]
between = ["r-{name}", "dst-{name}"]
rate = "{self.access}"
[testbed.storage.data-{name}]
host = "src-{name}"
path = "data"
{self.data}
[testbed.storage.copies-{name}]
host = "dst-{name}"
path = "copies"
{self.copies}
[testbed.service.server-{name}]
kind = "{kind}"
host = "{at}-{name}"
storage = ["{served}"]
{self.service}
"""


@dataclass(frozen=True)
class Group:
    """Paths of one mover."""

    mover: str
    kind: str
    at: str
    programs: tuple[str, ...]
    paths: tuple[Path_, ...]
    options: str = ""
    costs: str = ""

    def toml(self) -> str:
        """Return the scenario."""
        paths = "".join(path.toml(self.kind, self.at) for path in self.paths)
        factors = {
            "source": [f'"data-{path.name}"' for path in self.paths],
            "destination": [f'"copies-{path.name}"' for path in self.paths],
            "size": [f'"{path.size}"' for path in self.paths],
            "files_per_call": [str(path.files) for path in self.paths],
        }
        lists = "\n".join(f"{name} = [{', '.join(values)}]" for name, values in factors.items())
        return f"""venturi = 1
name = "verdicts"
{paths}
{self.costs}
[workload]
kind = "sweep"
mover = "{self.mover}"
cache = "cold"
order = "given"
timeout = "2 min"
[workload.factors]
{lists}
[workload.options]
{self.options}
[workload.sweep]
zip = [["source", "destination", "size", "files_per_call"]]
"""


SLOW_DISK = 'kind = "disk"\nsize = "64 MB"\n{} = "1 MB/s"'
GROUPS = (
    Group("globus-url-copy", "gridftp", "src", ("globus-url-copy", "globus-gridftp-server"), (
        Path_("source-disk", "source-disk", data=SLOW_DISK.format("read_rate"), rtt="10 ms"),
        Path_("link", "link", rate="8 Mb/s", rtt="10 ms"),
        Path_("interface", "link", access="8 Mb/s", rtt="10 ms"),
        Path_("loss", "loss", link="loss = 0.01", size="2 MB"),
        # The simulator has no queues of packets.
        Path_("policer", "policer", rate="30 Mb/s", rtt="40 ms", link='queue = "6 kB"', size="1 MB", simulated=False),
        Path_("receive-window", "receive-window", sysctl='net.ipv4.tcp_rmem = "4096 32768 32768"', size="1 MB"),
        Path_("send-buffer", "send-buffer", sysctl='net.ipv4.tcp_wmem = "4096 16384 32768"', rtt="60 ms", size="2 MB"),
        Path_("file-latency", "file-latency", files=20, size="10 kB"),
        Path_("authentication", "authentication", service='options = { auth = "gsi" }', rtt="60 ms", size="50 kB"),
    )),
    Group("venturi", "venturi-serve", "src", ("mkfs.ext4",),
          (Path_("destination-disk", "destination-disk", copies=SLOW_DISK.format("write_rate"), rtt="10 ms"),), "fsync = true"),
    Group("rclone", "sshd", "dst", ("sshd", "rclone"), (
        Path_("source-cpu", "source-cpu", source="cpu_limit = 0.05", rate="1 Gb/s", access="1 Gb/s", rtt="2 ms", size="5 MB"),
        Path_("destination-cpu", "destination-cpu", destination="cpu_limit = 0.05", rate="1 Gb/s", access="1 Gb/s", rtt="2 ms"),
    )),
    Group("curl", "nginx", "src", ("nginx", "curl"), (Path_("rate-limit", "rate-limit", rtt="10 ms"),), 'rate = "1 MB/s"'),
    # Each request has 32 KiB: the cost parameter of the simulator expresses the number of requests.
    Group("sftp", "sshd", "src", ("sshd", "sftp"), (Path_("client", "client", rtt="60 ms", size="1 MB"),), "requests = 1",
          '[testbed.cost.mover.one]\nmover = "sftp"\nin_flight = "32 KiB"'),
)  # fmt: skip
CASES = [pytest.param(group, path, id=path.name) for group in GROUPS for path in group.paths]


@dataclass
class Verdicts:
    """Verdicts of the groups that ran, by path name."""

    directory: Path
    engine: Path
    found: dict[tuple[str, str], dict[str, Verdict]] = field(default_factory=dict)
    waited: float = 0.0

    def of(self, group: Group, path: Path_, backend: str) -> Verdict:
        """Return the verdict of a path; the first call of a group runs the group."""
        key = (group.mover, backend)
        if key not in self.found:
            self.found[key] = self._run(group, backend)
        return self.found[key][path.name]

    def _run(self, group: Group, backend: str) -> dict[str, Verdict]:
        base = self.directory / f"{group.mover}-{backend}"
        base.mkdir()
        (base / "scenario.toml").write_text(group.toml())
        write_plan(expand(load_scenario(base / "scenario.toml")), base / "plan.jsonl")
        writer = RunWriter.create(base / "runs", base / "plan.jsonl", backend=backend)
        executor: Backend = (
            SimBackend(engine=self.engine)
            if backend == "sim"
            else LabBackend(scratch=base / "scratch", engine=self.engine)
        )
        waited_s, started_s = waited_for_cpu_s(), time.monotonic()
        outcome = executor.execute(writer)
        self.waited = (waited_for_cpu_s() - waited_s) / (time.monotonic() - started_s)
        assert (outcome.state, outcome.failed) == ("complete", 0)
        points = advise(Run.open(writer.path)).points
        return {str(one.factors["source"]).removeprefix("data-"): one for one in points}


def waited_for_cpu_s() -> float:
    """Return the time in which processes waited for a core (PSI), in seconds; 0 on kernels without PSI."""
    try:
        return int(Path("/proc/pressure/cpu").read_text().split()[4].removeprefix("total=")) / 1e6
    except OSError:
        return 0.0


@pytest.fixture(scope="module")
def verdicts(engine: Path) -> Iterator[Verdicts]:
    """Return the verdicts of this module."""
    directory = Path(tempfile.mkdtemp(prefix="venturi-verdicts-"))
    yield Verdicts(directory, engine)
    shutil.rmtree(directory)


@pytest.mark.alone
@needs_root
@pytest.mark.parametrize(("group", "path"), CASES)
def test_the_verdict_names_the_limit_of_the_path(verdicts: Verdicts, group: Group, path: Path_) -> None:
    missing = [name for name in group.programs if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    found = verdicts.of(group, path, "lab")
    named = [fraction.cause for fraction in found.fractions if fraction.cause != "unknown"]
    assert path.cause in named[:2], (found.fractions, found.evidence)
    if verdicts.waited >= BUSY or named[0] == "lab":
        # Other processes used the cores, so the second resource can be the machine or the start of programs.
        return
    assert found.cause == path.cause, (found.fractions, found.evidence)
    assert found.rate_bytes_per_s
    assert found.counterfactual is not None


@pytest.mark.parametrize(("group", "path"), CASES)
def test_the_simulation_names_the_same_limit(verdicts: Verdicts, group: Group, path: Path_) -> None:
    if not path.simulated:
        pytest.skip(f"the simulator has no {path.cause}")
    found = verdicts.of(group, path, "sim")
    assert found.cause == path.cause, found.fractions
    assert found.settings
