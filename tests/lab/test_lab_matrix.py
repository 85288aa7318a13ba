"""Every mover through every service that makes sense, as a user runs it: ``venturi run --on lab``.

Each matrix is one scenario and one lab. Its rows, a mover with its ends, are points of one sweep, which vary together. What must be true of a row is
looked up in the tables of the run: outcome, bytes at the receiver, sockets, links.
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
# Transfers one after the other leave their last sockets and counters within this time.
SETTLED_S = 0.5

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
"""What a server cannot do without."""


@dataclass(frozen=True)
class Row:
    """A mover, its ends and the services that it reaches them through (``""``: a file of host c), and the files of one call."""

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
    """Rows that are carried out in one lab; ``more`` are lines of the workload, ``unnamed`` servers are not said by any row."""

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
        get("scp", "sshd-a"), get("iperf3", "iperf3"), get("nuttcp", "nuttcp"),
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
        put("scp", "sshd-a"), put("iperf3", "iperf3"), put("nuttcp", "nuttcp"),
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
        # Through the client.
        between("xrdcp", "root"), between("xrdcp", "root", other="krb5"),
    ], "options = { certificate = true }"),
    "others": Matrix([
        Row("cp", "disk-c", "", "mounted"), Row("rsync", "mounted", "", "disk-c"),
        # Nobody but nginx serves disk-a there, so it need not be named.
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
    """Return the programs that a matrix needs and this machine has not."""
    matrix = MATRICES[name]
    programs = {tool for row in matrix.rows for tool in BUILT_IN[row.mover].requires}
    programs |= {
        package.program for server in servers_of(matrix) for package in SERVICES[SERVERS[server][0]].packages
    }
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return sorted(program for program in programs if shutil.which(program, path=path) is None)


@pytest.fixture(scope="module")
def carried_out():
    """Return a function that carries a matrix out, once, and returns what came of it; no lab may leave anything."""
    folder = Path(tempfile.mkdtemp(prefix="venturi-matrix-"))
    folder.chmod(0o755)
    labs = folder / "labs"
    labs.mkdir(mode=0o755)
    done = {}

    def carry_out(name):
        missing = lacking(name)
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")
        if name not in done:
            done[name] = run(name, folder, labs)
        path, said = done[name]
        assert path is not None, said
        return path

    yield carry_out
    assert registered(labs) == []
    left = traces(labs)
    shutil.rmtree(folder)
    assert left == {"processes": [], "mounts": [], "loops": [], "files": []}


def run(name, folder, labs):
    """Carry a matrix out from the command line, and return the directory of the run (``None``: there is none) and what the command said."""
    scenario = folder / f"{name}.toml"
    scenario.write_text(scenario_of(name))
    venturi = Path(sys.executable).with_name("venturi")
    done = subprocess.run(
        [venturi, "run", scenario, "--on", "lab", "--runs", folder / "runs", "--json"],
        env={**os.environ, "VENTURI_LAB": str(labs)}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    paths = list((folder / "runs").glob(f"{name}-2*"))
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
def test_what_is_sent_arrives_whole_over_sockets_and_links_that_saw_it(name, row, carried_out):
    path = carried_out(name)
    transfer = transfer_of(path, name, row)
    assert (transfer["outcome"], transfer["error"]) == ("ok", None)
    assert transfer["asked_bytes"] == row.files * SIZE
    memory = row.mover in ("iperf3", "nuttcp")
    if memory:
        assert transfer["tool_bytes"] >= SIZE
    elif row.destination != "null":
        assert transfer["received_bytes"] == row.files * SIZE
    assert crossed_bytes(path, transfer, receivers(row)) >= transfer["asked_bytes"] * (0.99 if memory else 1)
    if "mounted" not in (row.source, row.destination):  # a mount keeps its connections
        found = sockets(path, transfer, receivers(row))
        assert sum(received for _, received, _ in found) >= transfer["asked_bytes"]
        # The kernel tells it of a socket that lives, and not of one that has ended: of short ones nobody knows.
        assert {(host, CONTROL[host]) for host, _, control in found if control} == {
            (host, control) for host, _, control in found if control
        }


def receivers(row):
    """Return the hosts that the bytes of a row come to; those of a striped server may come to either of its nodes."""
    if row.destination_service == "striped":
        return ("a", "b")
    if row.destination == "null":
        return (SERVERS[row.destination_service][1] if row.destination_service else "c",)
    return ({"disk-a": "a", "disk-b": "b", "disk-c": "c", "mounted": "b"}[row.destination],)


def crossed_bytes(run_path, transfer, hosts):
    """Return what the links to some hosts carried during a transfer."""
    total = 0
    for host in hosts:
        ((before, after),) = duckdb.sql(
            f"""select max(value) filter (where time_s <= {transfer["start_s"]}),
                       max(value) filter (where time_s <= {transfer["end_s"] + SETTLED_S})
                from '{run_path}/samples.parquet' where counter = 'link.core>{host}.bytes'"""
        ).fetchall()
        total += after - (before or 0)
    return total


def sockets(run_path, transfer, hosts):
    """Return host, bytes received and congestion control of each socket that ended on some hosts during a transfer."""
    return duckdb.sql(
        f"""select host, max(received_bytes), max(congestion_control) from '{run_path}/sockets.parquet'
            where host in ({",".join(f"'{host}'" for host in hosts)})
            and split_part(local, ':', 1) != split_part(remote, ':', 1)
            and time_s between {transfer["start_s"]} and {transfer["end_s"] + SETTLED_S}
            group by host, local, remote having bool_or(closed)"""
    ).fetchall()


@pytest.mark.parametrize("name", ["download", "upload", "third-party"])
def test_sockets_have_the_congestion_control_of_their_host(name, carried_out):
    # It is a property of routes, which what a host says to itself does not take.
    found = duckdb.sql(
        f"""select distinct host, congestion_control from '{carried_out(name)}/sockets.parquet'
            where congestion_control is not null and state = 'established'
            and split_part(local, ':', 1) != split_part(remote, ':', 1)"""
    ).fetchall()
    assert set(found) == set(CONTROL.items())


ELSEWHERE = {"bbftp", "http-load", "managed", "root-read"}
"""Movers of the network with tests of their own: tests/mover/test_mover_bbftp.py, test_lab_clients.py, tests/managed, test_lab_jobs.py."""

LOCAL = {"cp", "rsync"}


def test_every_mover_of_the_network_and_every_service_is_in_a_matrix():
    movers = {row.mover for matrix in MATRICES.values() for row in matrix.rows}
    assert {name for name, mover in BUILT_IN.items() if mover.speaks} == movers - LOCAL | ELSEWHERE
    kinds = {SERVERS[server][0] for matrix in MATRICES.values() for server in servers_of(matrix)}
    assert kinds | {"root-jobs", "srm"} == set(SERVICES)  # with tests of their own: test_lab_jobs.py, tests/services
