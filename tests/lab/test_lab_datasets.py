"""File sets through real GridFTP servers: who pipelines, which interface carries what, what a file costs in round trips."""

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
files_as = ["list", "folder"]
[measure]
interval = "100 ms"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, engine):
    folder = tmp_path_factory.mktemp("sets")
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), folder / "plan.jsonl")
    writer = RunWriter.create(folder / "runs", folder / "plan.jsonl", backend="lab")
    outcome = LabBackend(scratch=folder / "scratch", engine=engine).carry_out(writer)
    assert outcome.state == "complete"
    found = Run.open(writer.path)
    yield found
    found.close()


def _tables(run):
    return {
        table.name: [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
        for chapter in analyse(run).chapters
        for table in chapter.tables
    }


def test_a_folder_is_pipelined_and_a_list_is_not(run):
    listed, folder = _tables(run)["gridftp-control"]
    assert (listed["files_as"], folder["files_as"]) == ("list", "folder")
    assert listed["most_outstanding"] == 1
    assert folder["most_outstanding"] > 5


def test_a_file_of_a_list_costs_a_round_trip_and_one_of_a_folder_next_to_none(run):
    listed, folder = _tables(run)["gridftp-control"]
    assert listed["rtt_s"] == pytest.approx(RTT_S)
    # The next STOR goes when the last file's completion has come. A busy machine adds to that, nothing takes from it.
    assert listed["idle_s"] >= 0.95 * RTT_S
    assert folder["idle_s"] < 0.25 * listed["idle_s"]
    listed_rate, folder_rate = (row["rate_bit_per_s"] for row in _tables(run)["dataset-rates"])
    assert folder_rate > 1.5 * listed_rate


def test_server_to_server_takes_two_control_connections_and_channels_are_kept(run):
    for row in _tables(run)["gridftp-control"]:
        assert (row["sessions_per_call"], row["logins_per_call"], row["files_per_call"]) == (2, 2, FILES)
        # One for the data at either end, and in a folder one to list it.
        assert row["data_channels_per_call"] == {"list": 2, "folder": 3}[row["files_as"]]


def test_what_a_pair_of_interfaces_moves_goes_through_both(run):
    moved = run.query(
        "SELECT counter, max(value) - min(value) AS bytes FROM samples WHERE counter LIKE 'link.%.bytes' GROUP BY counter"
    )
    bytes_of = dict(zip(moved["counter"], moved["bytes"], strict=True))
    asked = float(run.query("SELECT sum(asked_bytes) AS bytes FROM transfers")["bytes"][0])
    for link in ("a>r", "a>r@a-1", "r>b", "r>b@b-1"):
        assert bytes_of[f"link.{link}.bytes"] >= 0.5 * asked


def test_the_sequence_shows_the_login_the_commands_and_the_data(run):
    (chapter,) = [chapter for chapter in analyse(run).chapters if chapter.name == "gridftp"]
    assert len(chapter.sequences) == 2
    for diagram in chapter.sequences:
        source, client, destination = diagram.parties
        assert (source[0], client, destination[0]) == ("a", "client", "b")
        said = [(message.sender, message.text.split()[0]) for message in diagram.messages]
        for one in (
            ("client", "USER"),
            ("client", "RETR"),
            ("client", "STOR"),
            (source, "data"),
            (destination, "226"),
        ):
            assert one in said
        times = [message.time_s for message in diagram.messages]
        assert times == sorted(times)
        assert times[0] == 0
