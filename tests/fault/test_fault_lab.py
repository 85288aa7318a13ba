"""Servers, links, disks and certificates of a lab fail during a run.

Each failure has the right class, and other transfers succeed.
"""

import os
import signal
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from testkit import needs_programs, needs_root
from venturi.analysis import analyse
from venturi.analysis.sections import sections
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.testbed.pki import Pki
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server"),
]

TESTBED = """
venturi = 1
name = "faults"
[testbed.host]
a = {}
b = {}
[testbed.router.r]
[testbed.link]
a-r = { between = ["a", "r"], rate = "200 Mb/s", rtt = "1 ms" }
b-r = { between = ["b", "r"], rate = "200 Mb/s", rtt = "1 ms" }
[testbed.storage]
source = { host = "a", path = "source" }
sink = { host = "b", path = "sink", kind = "tmpfs", size = "20 MB" }
[measure]
interval = "off"
counters = []
[workload]
kind = "sweep"
source = "source"
destination = "sink"
mover = "globus-url-copy"
"""
TWO_SERVERS = """
client = "b"
repeat = 10
[workload.factors]
size = ["100 kB"]
source_service = ["one", "other"]
[testbed.service]
one = { kind = "gridftp", host = "a", storage = ["source"], options = { auth = "ONE" } }
other = { kind = "gridftp", host = "a", storage = ["source"], ports = [2911] }
"""
CUT = """
client = "b"
repeat = 40
timeout = "2 s"
[workload.factors]
size = ["100 kB"]
[testbed.service]
one = { kind = "gridftp", host = "a", storage = ["source"] }
[[testbed.change]]
at = "1 s"
link = "b-r"
up = false
[[testbed.change]]
at = "4 s"
link = "b-r"
up = true
"""
SETS = """
[workload.sets.few]
sizes = ["10 kB", "40 kB"]
files = 5
[testbed.service]
one = { kind = "gridftp", host = "a", storage = ["source"] }
other = { kind = "gridftp", host = "a", storage = ["source"], ports = [2911] }
in = { kind = "gridftp", host = "b", storage = ["sink"], ports = [3011] }
"""
FULL = """
client = "a"
repeat = 20
[workload.factors]
size = ["4 MB"]
[testbed.service]
in = { kind = "gridftp", host = "b", storage = ["sink"] }
"""


@pytest.fixture
def execute(tmp_path, labs, engine):
    """Return a function that runs a scenario in a lab and opens the run; all its trials must be done."""
    opened = []

    def work(text, on_progress=None, testbed=TESTBED):
        write_plan(expand(scenario_from(tomllib.loads(testbed + text))), tmp_path / "plan.jsonl")
        run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
        outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, on_progress=on_progress)
        assert outcome.state == "complete" and outcome.trials_done == outcome.trials_total
        opened.append(Run.open(run.path))
        return opened[-1]

    yield work
    for run in opened:
        run.close()


def when(least, act):
    """Return a progress callback that acts once, when at least ``least`` trials are done."""
    done = []

    def look(progress):
        if progress.trials_done >= least and not done:
            done.append(True)
            act()

    return look


def server_pid(labs, port):
    """Return the PID of the GridFTP server of a port, not of a session."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        mine = words[0].endswith("globus-gridftp-server") and any(word.startswith(str(labs)) for word in words)
        if mine and f"-p {port}" in " ".join(words) and os.getpgid(int(directory.name)) == int(directory.name):
            return int(directory.name)
    raise AssertionError(f"no GridFTP server on port {port}")


def rows_of(run, more="true"):
    """Return the transfers by start time, as dictionaries."""
    rows = run.query(f"SELECT * FROM transfers WHERE {more} ORDER BY start_s")
    return [{name: values[index] for name, values in rows.items()} for index in range(len(rows["trial"]))]


def printed(row):
    """Return the error of a failed transfer."""
    return str(row["error"])


def test_a_killed_server_fails_only_its_own_transfers(execute, labs):
    kill = when(6, lambda: os.kill(server_pid(labs, 2811), signal.SIGKILL))
    run = execute(TWO_SERVERS.replace("ONE", "none"), kill)
    (ended_s,) = run.query("SELECT time_s FROM events WHERE kind = 'service-exited'")["time_s"]
    after = rows_of(run, f"factor_source_service = 'one' AND start_s > {ended_s}")
    assert after and {row["outcome"] for row in after} == {"failed"}
    assert all("Connection refused" in printed(row) for row in after)
    assert {row["outcome"] for row in rows_of(run, "factor_source_service = 'other'")} == {"ok"}
    assert "ok" in {row["outcome"] for row in rows_of(run, "factor_source_service = 'one'")}
    assert ("service-exited", "one") in {(found.code, found.subject) for found in run.findings()}
    assert (run.path / "lab" / "one" / "control.log").is_file()
    # Log records from before the kill are kept.
    logged = run.query("SELECT detail->>'service' AS name FROM events WHERE kind = 'server-transfer'")["name"]
    assert {"one", "other"} == set(logged)


def test_a_killed_server_of_datasets_fails_only_its_pairs_and_trials_are_recorded_once(execute, labs):
    workload = TESTBED[TESTBED.index("[workload]") :]
    sets = """[workload]
kind = "dataset"
mover = "globus-url-copy"
set = "few"
source_service = "one+other"
destination_service = "in"
repeat = 16
options = { fast = true, pipelining = true }
"""
    kill = when(3, lambda: os.kill(server_pid(labs, 2811), signal.SIGKILL))
    run = execute(sets + SETS, kill, testbed=TESTBED.replace(workload, ""))
    (ended_s,) = run.query("SELECT time_s FROM events WHERE kind = 'service-exited'")["time_s"]
    after = rows_of(run, f"source_via LIKE 'one/%' AND start_s > {ended_s}")
    assert after and {row["outcome"] for row in after} == {"failed"}
    assert {row["outcome"] for row in rows_of(run, "source_via LIKE 'other/%'")} == {"ok"}
    assert sorted(run.query("SELECT trial FROM trials")["trial"]) == [f"t{number:07d}" for number in range(16)]
    assert len(rows_of(run)) == 2 * 16
    (section,) = [section for section in sections(run, analyse(run).about) if section.name == "datasets"]
    (table,) = section.tables
    assert "failed call" in table.note
    assert 3 <= table.rows[0][[column.name for column in table.columns].index("repetitions")] < 16


def test_an_expired_proxy_fails_only_transfers_that_need_it_and_is_reported(execute, labs):
    def renew():
        (directory,) = labs.glob("venturi-*/pki")
        Pki(directory).proxy(lifetime_s=1)

    run = execute(TWO_SERVERS.replace("ONE", "gsi"), when(5, renew))
    secure = rows_of(run, "factor_source_service = 'one'")
    outcomes = [row["outcome"] for row in secure]
    assert outcomes[0] == "ok" and outcomes[-1] == "failed"
    assert set(outcomes) == {"ok", "failed"}
    # After the first failure, all fail, because the certificates stay expired.
    assert outcomes == sorted(outcomes, reverse=True)
    # The first failed transfer can have started before the expiry, so that only its handshake fails.
    during, *later = [row for row in secure if row["outcome"] == "failed"]
    assert "expired" in printed(during) or "handshake" in printed(during)
    assert later and all("expired" in printed(row) for row in later)
    assert {row["outcome"] for row in rows_of(run, "factor_source_service = 'other'")} == {"ok"}


def test_a_cut_link_stops_transfers_until_it_is_restored(execute):
    run = execute(CUT)
    changes = run.query("SELECT time_s, detail->>'link' AS link, detail->'set'->>'up' AS up FROM events"
                        " WHERE kind = 'network-change' ORDER BY time_s")  # fmt: skip
    assert sorted(zip(changes["link"], changes["up"], strict=True)) == sorted(
        (link, up) for link in ("b>r", "r>b") for up in ("false", "true")
    )
    cut_s, restored_s = changes["time_s"][0], changes["time_s"][-1]
    assert restored_s - cut_s == pytest.approx(3, abs=0.3)
    rows = rows_of(run)
    assert {row["outcome"] for row in rows if row["end_s"] < cut_s} == {"ok"}
    assert {row["outcome"] for row in rows if row["start_s"] > restored_s} == {"ok"}
    # Bytes that had passed the link before the cut can still arrive, and their client exits shortly afterwards.
    arrived_s = max(changes["time_s"][changes["up"] == "false"]) + 0.3
    # Transfers with a timeout before the link came back failed; the others waited for the link.
    touched = [row for row in rows if row["start_s"] < restored_s and row["end_s"] > arrived_s]
    hopeless = [row for row in touched if row["start_s"] + 2 < restored_s - 0.1]
    assert {row["outcome"] for row in hopeless} == {"timeout"}
    assert all(row["outcome"] == "timeout" or row["end_s"] > restored_s for row in touched)


def test_a_full_disk_fails_transfers_until_space_is_freed(execute, labs):
    def storage():
        # It is mounted only in the lab, so its files are reached through a process in the lab.
        inside = Path(f"/proc/{server_pid(labs, 2811)}/root") / labs.relative_to("/")
        (directory,) = inside.glob("venturi-*/hosts/b/sink")
        return directory

    def fill():
        with (storage() / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            for _ in range(100):
                filler.write(b"x" * 1_000_000)

    full, free = when(3, fill), when(9, lambda: (storage() / "filler").unlink())

    def look(progress):
        full(progress)
        free(progress)

    run = execute(FULL, look)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert set(outcomes) <= {"ok", "failed", "short"}
    assert outcomes[:3] == ["ok"] * 3 and outcomes[-2:] == ["ok"] * 2
    failed = [row for row in rows if row["outcome"] != "ok"]
    assert len(failed) >= 2
    # The connection of the client breaks, often without a message. The server logs the reason.
    why = run.query("SELECT count(*) AS n FROM events WHERE kind = 'control' AND detail->>'direction' = 'server'"
                    " AND detail->>'line' LIKE '%No space left on device%'")["n"][0]  # fmt: skip
    assert why >= len(failed) - 1
    assert all(row["received_bytes"] < row["requested_bytes"] for row in failed)
