"""Movers and services between two real hosts, as users run them: ``venturi run --on hosts``.

Each matrix is one scenario whose design points are its rows. The checks use the tables of the run: outcome, and bytes
at the receiver.
"""

import json
import shutil
from dataclasses import dataclass

import duckdb
import pytest

from testkit import needs_root
from venturi.mover import BUILT_IN
from venturi.testbed.services.table import SERVICES

pytestmark = needs_root

SIZE = 1_500_000

HOSTS = """
venturi = 1
name = "{name}"
seed = 1
[testbed.host.a]
ssh = "a"
address = "{a}"
[testbed.host.b]
ssh = "b"
address = "{b}"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
"""
SERVERS = {
    "ftp": ("gridftp", ""),
    "gsiftp": ("gridftp", 'auth = "gsi"'),
    "venturi": ("venturi-serve", ""),
    "gsi": ("venturi-serve", 'auth = "gsi"'),
    "webdav": ("venturi-serve", "http = true, tls = true"),
    "nginx": ("nginx", ""),
    "root": ("xrootd", "http = true"),
    "x509": ("xrootd", 'auth = "gsi", tls = true, http = true'),
    "sshd": ("sshd", ""),
    "iperf3": ("iperf3", ""),
    "nuttcp": ("nuttcp", ""),
}
MEMORY = ("iperf3", "nuttcp")


@dataclass(frozen=True)
class Row:
    """A mover from host a to host b through a server at one of them (``""``: no server in the scenario)."""

    mover: str
    server: str = ""
    at: str = "b"
    files: int = 1

    def __str__(self):
        where = f"-{self.server}-at-{self.at}" if self.server else ""
        return f"{self.mover}{where}{f'-{self.files}files' if self.files > 1 else ''}"

    @property
    def services(self):
        """The columns ``source_service`` and ``destination_service``."""
        name = f"{self.server}-{self.at}"
        return {"source_service" if self.at == "a" else "destination_service": name}


MATRICES = {
    "nothing-installed": [Row("venturi", files=5), Row("venturi"), Row("rsync"), Row("scp"), Row("sftp"), Row("rclone")],
    "upload": [
        Row("globus-url-copy", "ftp", files=5), Row("globus-url-copy", "gsiftp", files=5),
        Row("venturi", "gsi", files=5), Row("venturi", "webdav", files=5), Row("globus-url-copy", "gsi"),
        Row("venturi", "gsiftp"), Row("curl", "webdav"), Row("davix", "webdav"),
        Row("xrdcp", "root", files=5), Row("xrdcp", "x509"), Row("curl", "nginx"), Row("davix", "nginx"),
        Row("curl", "root"), Row("scp", "sshd"), Row("iperf3", "iperf3"), Row("nuttcp", "nuttcp"),
    ],
    "download": [
        Row("globus-url-copy", "ftp", "a"), Row("globus-url-copy", "gsiftp", "a", files=5),
        Row("venturi", "gsi", "a", files=5), Row("venturi", "webdav", "a"), Row("xrdcp", "root", "a", files=5),
        Row("curl", "nginx", "a"), Row("wget", "nginx", "a"), Row("curl", "x509", "a"), Row("scp", "sshd", "a"),
    ],
}  # fmt: skip
CASES = [pytest.param(name, row, id=f"{name}-{row}") for name, rows in MATRICES.items() for row in rows]


def scenario_of(name, real_hosts):
    """Return the scenario of a matrix."""
    rows = MATRICES[name]
    text = [HOSTS.format(name=name, a=real_hosts.address("a"), b=real_hosts.address("b"))]
    for server, at in dict.fromkeys((row.server, row.at) for row in rows if row.server):
        kind, options = SERVERS[server]
        text.append(
            f'[testbed.service.{server}-{at}]\nkind = "{kind}"\nhost = "{at}"\noptions = {{ {options} }}\n'
            + ("" if kind in MEMORY else f'storage = ["s{at}"]\n')
        )
    # The mover runs on the host without the server.
    client = "b" if rows[0].server and rows[0].at == "a" else "a"
    columns = {"mover": [row.mover for row in rows], "files_per_call": [row.files for row in rows]}
    for key in ("source_service", "destination_service"):
        if all(key in row.services for row in rows) and all(row.server for row in rows):
            columns[key] = [row.services[key] for row in rows]
    text += [
        "[workload]", 'kind = "sweep"', f'client = "{client}"', 'source = "sa"', 'destination = "sb"', 'order = "given"', 'timeout = "60 s"',
        "options = { certificate = true }" if rows[0].server else "",
        "[workload.factors]", f'size = ["{SIZE} B"]',
        *(f"{key} = {json.dumps(values)}" for key, values in columns.items()),
        "[workload.sweep]", f"zip = [{json.dumps(list(columns))}]",
    ]  # fmt: skip
    return "\n".join(text) + "\n"


def missing_programs(name):
    """Return the programs of a matrix that are missing on this machine."""
    programs = {tool for row in MATRICES[name] for tool in BUILT_IN[row.mover].requires}
    kinds = {SERVERS[row.server][0] for row in MATRICES[name] if row.server}
    programs |= {package.program for kind in kinds for package in SERVICES[kind].packages}
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    own = {"venturi-engine", "venturi"}
    return sorted(program for program in programs - own if shutil.which(program, path=path) is None)


@pytest.fixture(scope="module")
def executed(real_hosts):
    """Return a function that runs a matrix once and returns the directory of the run."""
    done = {}

    def execute(name):
        if missing := missing_programs(name):
            pytest.skip(f"not installed: {', '.join(missing)}")
        if name not in done:
            scenario = real_hosts.work / f"{name}.toml"
            scenario.write_text(scenario_of(name, real_hosts))
            runs = real_hosts.work / "runs"
            process = real_hosts.venturi(
                "run", scenario, "--on", "hosts", "--yes", "--runs", runs, "--json", check=False
            )
            found = list(runs.glob(f"{name}-2*"))
            done[name] = found[0] if found else None, process.stdout + process.stderr
        path, output = done[name]
        assert path is not None, output
        return path

    return execute


@pytest.mark.parametrize(("name", "row"), CASES)
def test_each_transfer_arrives_completely(name, row, executed):
    path = executed(name)
    point = MATRICES[name].index(row)
    transfers = f"'{path}/transfers.parquet'"
    (found,) = duckdb.sql(
        f"select outcome, error, requested_bytes, received_bytes, tool_bytes from {transfers} where point = {point}"
    ).fetchall()
    outcome, error, requested, received, tool = found
    assert (outcome, error) == ("ok", None)
    assert requested == row.files * SIZE
    if row.mover in MEMORY:
        assert tool >= SIZE
    else:
        assert received == requested


@pytest.mark.parametrize("name", MATRICES)
def test_the_transfers_leave_nothing_on_the_hosts(name, executed, real_hosts):
    executed(name)
    for host in "ab":
        real_hosts.wait_for_nothing_left(host)
