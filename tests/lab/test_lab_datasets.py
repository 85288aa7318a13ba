"""Datasets through real GridFTP servers: pipelining, bytes by interface, and round trips per file."""

import tomllib

import pytest

from testkit import needs_programs, needs_root
from venturi.analysis import analyse
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server", "tcpdump"),
]

FILES, RTT_S = 40, 0.02
SCENARIO = """
venturi = 1
name = "sets"
[testbed.host.a]
[testbed.host.b]
[testbed.host.c]
[testbed.router.r]
[testbed.link]
a-0 = { between = ["a", "r"], rate = "100 Mb/s", rtt = "10 ms" }
a-1 = { between = ["a", "r"], rate = "100 Mb/s", rtt = "10 ms" }
b-0 = { between = ["b", "r"], rate = "100 Mb/s", rtt = "10 ms" }
b-1 = { between = ["b", "r"], rate = "100 Mb/s", rtt = "10 ms" }
c-0 = { between = ["c", "r"], rate = "100 Mb/s", rtt = "10 ms" }
[testbed.storage]
out = { host = "a", path = "out" }
in = { host = "b", path = "in" }
[testbed.service]
a-0 = { kind = "gridftp", host = "a", interface = "eth0", storage = ["out"], options = { trace = "packets" } }
a-1 = { kind = "gridftp", host = "a", interface = "eth1", storage = ["out"], options = { trace = "packets" } }
b-0 = { kind = "gridftp", host = "b", interface = "eth0", storage = ["in"], options = { trace = "packets" } }
b-1 = { kind = "gridftp", host = "b", interface = "eth1", storage = ["in"], options = { trace = "packets" } }
[workload]
kind = "dataset"
mover = "globus-url-copy"
client = "c"
source_service = "a-*"
destination_service = "b-*"
pairs = "one to one"
destination = "null"
set = "few"
[workload.sets.few]
sizes = ["1 KB", "20 KB"]
files = 20
[workload.options]
fast = true
pipelining = true
[workload.factors]
files_as = ["list", "directory"]
[measure]
interval = "100 ms"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, engine):
    directory = tmp_path_factory.mktemp("sets")
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), directory / "plan.jsonl")
    writer = RunWriter.create(directory / "runs", directory / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=directory / "scratch", engine=engine).execute(writer)
    assert outcome.state == "complete"
    found = Run.open(writer.path)
    yield found
    found.close()


def _tables(run):
    return {
        table.name: [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
        for section in analyse(run).sections
        for table in section.tables
    }


def test_a_directory_is_pipelined_and_a_list_is_not(run):
    listed, directory = _tables(run)["gridftp-control"]
    assert (listed["files_as"], directory["files_as"]) == ("list", "directory")
    assert listed["most_outstanding"] == 1
    assert directory["most_outstanding"] > 5


def test_each_file_costs_a_round_trip_in_a_list_but_not_in_a_directory(run):
    listed, directory = _tables(run)["gridftp-control"]
    assert listed["rtt_s"] == pytest.approx(RTT_S)
    # The client sends the next STOR after the completion of the previous file. A busy machine can only add time.
    assert listed["idle_s"] >= 0.95 * RTT_S
    assert directory["idle_s"] < 0.25 * listed["idle_s"]
    listed_rate, directory_rate = (row["rate_bit_per_s"] for row in _tables(run)["dataset-rates"])
    assert directory_rate > 1.5 * listed_rate


def test_a_third_party_copy_uses_two_control_connections_and_reuses_data_connections(run):
    for row in _tables(run)["gridftp-control"]:
        assert (row["sessions_per_call"], row["logins_per_call"], row["files_per_call"]) == (2, 2, FILES)
        # One data connection at either end, and one more for the listing of a directory.
        assert row["data_channels_per_call"] == {"list": 2, "directory": 3}[row["files_as"]]


def test_a_pair_of_interfaces_shares_the_bytes_of_a_transfer(run):
    moved = run.query(
        "SELECT counter, max(value) - min(value) AS bytes FROM samples WHERE counter LIKE 'link.%.bytes' GROUP BY counter"
    )
    bytes_of = dict(zip(moved["counter"], moved["bytes"], strict=True))
    requested = float(run.query("SELECT sum(requested_bytes) AS bytes FROM transfers")["bytes"][0])
    for link in ("a>r", "a>r@a-1", "r>b", "r>b@b-1"):
        assert bytes_of[f"link.{link}.bytes"] >= 0.5 * requested


def test_the_sequence_shows_the_login_the_commands_and_the_data(run):
    (section,) = [section for section in analyse(run).sections if section.name == "gridftp"]
    assert len(section.sequences) == 2
    for diagram in section.sequences:
        source, client, destination = diagram.parties
        assert (source[0], client, destination[0]) == ("a", "client", "b")
        printed = [(message.sender, message.text.split()[0]) for message in diagram.messages]
        for one in (
            ("client", "USER"),
            ("client", "RETR"),
            ("client", "STOR"),
            (source, "data"),
            (destination, "226"),
        ):
            assert one in printed
        times = [message.time_s for message in diagram.messages]
        assert times == sorted(times)
        assert times[0] == 0
