"""Every mover with every suitable service, as users run them: ``venturi run --on lab``.

Each matrix is one scenario and one lab. Its rows, each a mover with its endpoints, are the points of one sweep and vary
together. The checks use the tables of the run: outcome, bytes at the receiver, sockets, links.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from labkit import traces

from testkit import needs_root
from venturi.mover import BUILT_IN
from venturi.testbed.lab import registered
from venturi.testbed.services.table import SERVICES

pytestmark = needs_root

SIZE = 1_500_000
TIMEOUT_S = 200
# The last sockets and counters of a transfer appear within this time.
WARMUP_S = 0.5

HOSTS = """
venturi = 1
seed = 1
[testbed.router.core]
[testbed.host.a]
congestion_control = "reno"
[testbed.host.b]
[testbed.host.c]
"""
CONTROL = {"a": "reno", "b": "cubic", "c": "cubic"}
LINK = '[testbed.link.{0}-core]\nbetween = ["{0}", "core"]\nrate = "1 Gb/s"\ndelay = "0.5 ms"\n'
STORAGE = {
    "disk-a": 'host = "a"\npath = "data"\nshared = ["b"]',
    "disk-b": 'host = "b"\npath = "data"',
    "disk-c": 'host = "c"\npath = "data"',
    "chunks": 'host = "b"\npath = "chunks"',
    "mounted": 'host = "c"\npath = "mounted"',
}
XROOTD = {
    "root": "http = true",
    "sss": 'auth = "sss"',
    "krb5": 'auth = "krb5", kdc = "kdc"',
    "x509": 'auth = "gsi", tls = true, http = true',
}
SERVERS = {
    "kdc": ("kdc", "b", "", ""),
    "node1": ("gridftp-node", "a", "disk-a", ""),
    "node2": ("gridftp-node", "b", "disk-a", ""),
    "striped": ("gridftp", "a", "disk-a", 'data_nodes = "node1,node2"'),
    "redirector": ("xrootd-redirector", "b", "disk-a", ""),
    "member": ("xrootd", "a", "disk-a", 'redirector = "redirector"'),
    "shared": ("xrootd-redirector", "b", "disk-a", "shared = true"),
    "sharer": ("xrootd", "a", "disk-a", 'redirector = "shared", shared = true'),
    "proxy": ("xrootd-proxy", "b", "disk-a", 'origin = "root-a"'),
    "cache": ("xrootd-cache", "b", "disk-a", 'origin = "root-a"'),
    "krb5-too": ("xrootd", "a", "disk-a", XROOTD["krb5"]),
    "iperf3": ("iperf3", "a", "", ""),
    "nuttcp": ("nuttcp", "a", "", ""),
    "squid": ("squid", "b", "", ""),
    "master": ("moosefs-master", "a", "", ""),
    "chunkserver": ("moosefs-chunkserver", "b", "chunks", 'master = "master", leave = "1 MiB"'),
    "mount": ("moosefs-mount", "c", "mounted", 'master = "master", chunkservers = "chunkserver"'),
}
for _host in "ab":
    SERVERS[f"ftp-{_host}"] = ("gridftp", _host, f"disk-{_host}", "")
    SERVERS[f"gsiftp-{_host}"] = ("gridftp", _host, f"disk-{_host}", 'auth = "gsi"')
    SERVERS[f"venturi-{_host}"] = ("venturi-serve", _host, f"disk-{_host}", "")
    SERVERS[f"webdav-{_host}"] = ("venturi-serve", _host, f"disk-{_host}", "http = true, tls = true")
    SERVERS[f"nginx-{_host}"] = ("nginx", _host, f"disk-{_host}", "")
    SERVERS[f"sshd-{_host}"] = ("sshd", _host, f"disk-{_host}", "")
    for _name, _options in XROOTD.items():
        SERVERS[f"{_name}-{_host}"] = ("xrootd", _host, f"disk-{_host}", _options)
BEHIND = {
    "striped": ["node1", "node2"], "redirector": ["member"], "shared": ["sharer"], "proxy": ["root-a"], "cache": ["root-a"],
    "krb5-a": ["kdc"], "krb5-b": ["kdc"], "krb5-too": ["kdc"], "mount": ["master", "chunkserver"],
}  # fmt: skip
"""Services that each server needs."""


@dataclass(frozen=True)
class Row:
    """A mover, its endpoints and their services (``""``: a file of host c), and the files per call."""

    mover: str
    source: str = "disk-a"
    source_service: str = ""
    destination: str = "disk-c"
    destination_service: str = ""
    files: int = 1

    def __str__(self):
        source, destination = self.source_service or self.source, self.destination_service or self.destination
        many = f"-{self.files}files" if self.files > 1 else ""
        return f"{self.mover}-{source}-to-{destination}{many}"


@dataclass(frozen=True)
class Matrix:
    """Rows that run in one lab. ``more`` has lines of the workload; no row names the servers in ``unnamed``."""

    rows: list[Row]
    more: str = ""
    unnamed: tuple[str, ...] = ()


def get(mover, service, *, files=1, destination="disk-c"):
    return Row(mover, "disk-a", service, destination, "", files)


def put(mover, service, *, files=1):
    return Row(mover, "disk-c", "", "disk-a", service, files)


def between(mover, kind, *, other=None, files=1):
    return Row(mover, "disk-a", f"{kind}-a", "disk-b", f"{other or kind}-b", files)


MATRICES = {
    "download": Matrix([
        get("globus-url-copy", "ftp-a", files=5), get("globus-url-copy", "gsiftp-a", files=5), get("globus-url-copy", "striped"),
        get("globus-url-copy", "ftp-a", destination="null"),
        get("venturi", "ftp-a", files=5), get("venturi", "venturi-a", files=5), get("globus-url-copy", "venturi-a", files=5),
        get("venturi", "webdav-a", files=5), get("venturi", "x509-a"), get("davix", "webdav-a"), get("curl", "webdav-a"),
        get("xrdcp", "root-a", files=5), get("xrdcp", "root-a", destination="null"), get("xrdcp", "sss-a"), get("xrdcp", "krb5-a"),
        get("xrdcp", "krb5-too"), get("xrdcp", "x509-a"), get("xrdcp", "redirector"), get("xrdcp", "shared"), get("xrdcp", "proxy"),
        get("xrdcp", "cache", files=2),
        get("curl", "nginx-a"), get("curl", "root-a"), get("curl", "x509-a"), get("curl", "nginx-a", destination="null"),
        get("wget", "nginx-a"), get("wget", "root-a"), get("wget", "x509-a"),
        get("davix", "nginx-a"), get("davix", "root-a"), get("davix", "x509-a"),
        get("gfal-copy", "ftp-a"), get("gfal-copy", "root-a"), get("gfal-copy", "nginx-a"),
        get("scp", "sshd-a"), get("sftp", "sshd-a"), get("rsync", "sshd-a"), get("rclone", "sshd-a"),
        get("iperf3", "iperf3"), get("nuttcp", "nuttcp"),
    ], "options = { certificate = true }"),
    "upload": Matrix([
        put("globus-url-copy", "ftp-a", files=5), put("globus-url-copy", "gsiftp-a"), put("globus-url-copy", "striped"),
        put("venturi", "ftp-a", files=5), put("venturi", "venturi-a", files=5), put("globus-url-copy", "venturi-a", files=5),
        put("venturi", "webdav-a", files=5), put("venturi", "x509-a"), put("davix", "webdav-a"), put("curl", "webdav-a"),
        put("xrdcp", "root-a", files=5), put("xrdcp", "sss-a"), put("xrdcp", "krb5-a"), put("xrdcp", "x509-a"),
        put("xrdcp", "redirector"), put("xrdcp", "shared"), put("xrdcp", "proxy"),
        put("curl", "nginx-a"), put("curl", "root-a"), put("curl", "x509-a"),
        put("davix", "nginx-a"), put("davix", "root-a"), put("davix", "x509-a"),
        put("gfal-copy", "gsiftp-a"), put("gfal-copy", "root-a"), put("gfal-copy", "nginx-a"),
        put("scp", "sshd-a"), put("sftp", "sshd-a"), put("rsync", "sshd-a"), put("rclone", "sshd-a"),
        put("iperf3", "iperf3"), put("nuttcp", "nuttcp"),
    ], 'options = { certificate = true, exit = "at once" }'),
    "third-party": Matrix([
        between("globus-url-copy", "ftp", files=5), between("globus-url-copy", "gsiftp"),
        Row("globus-url-copy", "zero", "gsiftp-a", "null", "gsiftp-b"),
        between("xrdcp", "root"), between("xrdcp", "sss"), between("xrdcp", "x509"),
        between("scp", "sshd"),
    ], 'options = { third_party = "only", length = true }'),
    "third-party-http": Matrix([
        between("curl", "root"), between("curl", "x509"), between("curl", "nginx", other="root"),
        between("davix", "root"), between("davix", "x509"),
        between("gfal-copy", "ftp"),
        between("venturi", "root"), between("venturi", "x509"), between("venturi", "gsiftp", files=5),
        # Bytes through the client.
        between("xrdcp", "root"), between("xrdcp", "root", other="krb5"),
    ], "options = { certificate = true }"),
    "others": Matrix([
        Row("cp", "disk-c", "", "mounted"), Row("rsync", "mounted", "", "disk-c"),
        # Only nginx serves disk-a in this lab, so rows need not name it.
        Row("curl"), Row("wget"),
    ], 'options = { proxy = "http://b.lab.test:3128" }', ("mount", "nginx-a", "squid")),
}  # fmt: skip


def servers_of(matrix):
    """Return the services that a matrix needs."""
    found = list(
        dict.fromkeys(
            [*matrix.unnamed, *(n for r in matrix.rows for n in (r.source_service, r.destination_service) if n)]
        )
    )
    for name in found:
        found += [other for other in BEHIND.get(name, []) if other not in found]
    return found


def scenario_of(name):
    """Return the scenario of a matrix."""
    matrix = MATRICES[name]
    text = [HOSTS.replace("venturi = 1", f'venturi = 1\nname = "{name}"'), *(LINK.format(host) for host in "abc")]
    text += [f"[testbed.storage.{storage}]\n{lines}\n" for storage, lines in STORAGE.items()]
    for server in servers_of(matrix):
        kind, host, storage, options = SERVERS[server]
        text.append(f'[testbed.service.{server}]\nkind = "{kind}"\nhost = "{host}"\noptions = {{ {options} }}')
        if storage:
            text.append(f'storage = ["{storage}"]')
    columns = {
        "mover": [row.mover for row in matrix.rows],
        **{end: [getattr(row, end) for row in matrix.rows] for end in ("source", "destination")},
        **{
            end: [getattr(row, end) for row in matrix.rows]
            for end in ("source_service", "destination_service")
            if all(getattr(row, end) for row in matrix.rows)
        },
        "files_per_call": [row.files for row in matrix.rows],
    }
    text += ["[workload]", 'kind = "sweep"', 'client = "c"', 'order = "given"', 'timeout = "30 s"', matrix.more]
    text += [
        "[workload.factors]",
        f'size = ["{SIZE} B"]',
        *(f"{key} = {json.dumps(column)}" for key, column in columns.items()),
    ]
    text += ["[workload.sweep]", f"zip = [{json.dumps(list(columns))}]"]
    text += ["[measure]", 'interval = "50 ms"', 'counters = ["tcp"]']
    return "\n".join(text) + "\n"


def lacking(name):
    """Return the programs of a matrix that are missing on this machine."""
    matrix = MATRICES[name]
    programs = {tool for row in matrix.rows for tool in BUILT_IN[row.mover].requires}
    programs |= {
        package.program for server in servers_of(matrix) for package in SERVICES[SERVERS[server][0]].packages
    }
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return sorted(program for program in programs if shutil.which(program, path=path) is None)


@pytest.fixture(scope="module")
def executed():
    """Return a function that runs a matrix once and returns the run directory; no lab can have remains."""
    directory = Path(tempfile.mkdtemp(prefix="venturi-matrix-"))
    directory.chmod(0o755)
    labs = directory / "labs"
    labs.mkdir(mode=0o755)
    done = {}

    def execute(name):
        missing = lacking(name)
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")
        if name not in done:
            done[name] = run(name, directory, labs)
        path, printed = done[name]
        assert path is not None, printed
        return path

    yield execute
    assert registered(labs) == []
    left = traces(labs)
    shutil.rmtree(directory)
    assert left == {"processes": [], "mounts": [], "loops": [], "files": []}


def run(name, directory, labs):
    """Run a matrix from the command line, and return the run directory (``None`` if there is none) and the output."""
    scenario = directory / f"{name}.toml"
    scenario.write_text(scenario_of(name))
    venturi = Path(sys.executable).with_name("venturi")
    done = subprocess.run(
        [venturi, "run", scenario, "--on", "lab", "--runs", directory / "runs", "--json"],
        env={**os.environ, "VENTURI_LAB": str(labs)}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    paths = list((directory / "runs").glob(f"{name}-2*"))
    return paths[0] if paths and done.returncode in (0, 3) else None, done.stdout + done.stderr


CASES = [pytest.param(name, row, id=f"{name}-{row}") for name, matrix in MATRICES.items() for row in matrix.rows]


def transfer_of(run_path, name, row):
    """Return the transfer of a row, as a dictionary."""
    point = MATRICES[name].rows.index(row)
    relation = duckdb.sql(f"select * from '{run_path}/transfers.parquet' where point = {point}")
    rows = [dict(zip(relation.columns, values, strict=True)) for values in relation.fetchall()]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize(("name", "row"), CASES)
def test_every_transfer_arrives_completely_and_sockets_and_links_count_its_bytes(name, row, executed):
    path = executed(name)
    transfer = transfer_of(path, name, row)
    assert (transfer["outcome"], transfer["error"]) == ("ok", None)
    assert transfer["requested_bytes"] == row.files * SIZE
    memory = row.mover in ("iperf3", "nuttcp")
    if memory:
        assert transfer["tool_bytes"] >= SIZE
    elif row.destination != "null":
        assert transfer["received_bytes"] == row.files * SIZE
    assert crossed_bytes(path, transfer, receivers(row)) >= transfer["requested_bytes"] * (0.99 if memory else 1)
    if "mounted" not in (row.source, row.destination):  # a mount keeps its connections
        found = sockets(path, transfer, receivers(row))
        assert sum(received for _, received, _ in found) >= transfer["requested_bytes"]
        # The kernel reports the congestion control of open sockets only, so it is unknown for short connections.
        assert {(host, CONTROL[host]) for host, _, control in found if control} == {
            (host, control) for host, _, control in found if control
        }


def receivers(row):
    """Return the hosts that receive the bytes of a row; for a striped server, these are both nodes."""
    if row.destination_service == "striped":
        return ("a", "b")
    if row.destination == "null":
        return (SERVERS[row.destination_service][1] if row.destination_service else "c",)
    return ({"disk-a": "a", "disk-b": "b", "disk-c": "c", "mounted": "b"}[row.destination],)


def crossed_bytes(run_path, transfer, hosts):
    """Return the bytes that the links to some hosts carried during a transfer."""
    total = 0
    for host in hosts:
        ((before, after),) = duckdb.sql(
            f"""select max(value) filter (where time_s <= {transfer["start_s"]}),
                       max(value) filter (where time_s <= {transfer["end_s"] + WARMUP_S})
                from '{run_path}/samples.parquet' where counter = 'link.core>{host}.bytes'"""
        ).fetchall()
        total += after - (before or 0)
    return total


def sockets(run_path, transfer, hosts):
    """Return host, received bytes and congestion control of each socket that closed on some hosts during a transfer."""
    return duckdb.sql(
        f"""select host, max(received_bytes), max(congestion_control) from '{run_path}/sockets.parquet'
            where host in ({",".join(f"'{host}'" for host in hosts)})
            and split_part(local, ':', 1) != split_part(remote, ':', 1)
            and time_s between {transfer["start_s"]} and {transfer["end_s"] + WARMUP_S}
            group by host, local, remote having bool_or(closed)"""
    ).fetchall()


@pytest.mark.parametrize("name", ["download", "upload", "third-party"])
def test_sockets_have_the_congestion_control_of_their_host(name, executed):
    # Routes have the congestion control, and connections of a host to itself use none of them.
    found = duckdb.sql(
        f"""select distinct host, congestion_control from '{executed(name)}/sockets.parquet'
            where congestion_control is not null and state = 'established'
            and split_part(local, ':', 1) != split_part(remote, ':', 1)"""
    ).fetchall()
    assert set(found) == set(CONTROL.items())


ELSEWHERE = {"bbftp", "http-load", "managed", "root-read"}
"""Network movers with their own tests.

These are tests/mover/test_mover_bbftp.py, test_lab_clients.py, tests/transfer_jobs and test_lab_jobs.py.
"""

LOCAL = {"cp"}


def test_every_network_mover_and_every_service_is_in_a_matrix():
    movers = {row.mover for matrix in MATRICES.values() for row in matrix.rows}
    assert {name for name, mover in BUILT_IN.items() if mover.protocols} == movers - LOCAL | ELSEWHERE
    kinds = {SERVERS[server][0] for matrix in MATRICES.values() for server in servers_of(matrix)}
    # test_lab_jobs.py and tests/services test the others. In a lab, sshd replaces ssh.
    assert kinds | {"root-jobs", "srm", "ssh"} == set(SERVICES)
