"""Plans run in a lab: the run has the records of network, probes and servers, and it survives their failures."""

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from labkit import below, header_of, pair

from testkit import Gate, call_of, needs_root, tiny_trials, write_plan
from venturi.backend import LabBackend
from venturi.errors import BackendError
from venturi.plan.codec import HEADER
from venturi.run import RunWriter
from venturi.testbed.lab import registered
from venturi.testbed.lab.process_id import children

pytestmark = needs_root

DATA = {"data": {"host": "a", "path": "data", "spec": None}}
SERVER = '[service.probe]\nkind = "iperf3"\nhost = "b"\n'


def plan_in_lab(tmp_path, count, text, **changes):
    """Write a plan of copies on host a, in a testbed from a text, and return its path."""
    header = HEADER.emit(header_of(text))
    parts = {key: header[key] for key in ("hosts", "network", "services")}
    trials = tiny_trials(count, host="a")
    return write_plan(tmp_path / "plan.jsonl", trials, storages=DATA, **parts, interval_s=0.05, **changes)


def table(run, name):
    """Return the rows of a table of a run, as dictionaries."""
    relation = duckdb.sql(f"select * from '{run / name}.parquet'")
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def execute(run, tmp_path, engine, **options):
    """Execute a run in the lab."""
    return LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, **options)


def test_a_lab_run_records_the_samples_events_and_environment_of_the_network(tmp_path, parent, engine):
    run = RunWriter.create(tmp_path / "runs", plan_in_lab(tmp_path, 4, pair()), backend="lab")
    outcome = execute(run, tmp_path, engine)
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", 4, 0)
    counters = {row["counter"] for row in table(run.path, "samples") if row["host"] == "network"}
    assert {"link.a>core.bytes", "link.core>b.queue_drops"} <= counters
    kinds = {(row["host"], row["kind"]) for row in table(run.path, "events")}
    assert {("network", "lab-up"), ("network", "probe"), ("a", "probe")} <= kinds
    properties = {(row["host"], row["key"]): row["value"] for row in table(run.path, "environment")}
    assert properties["a", "lab.address"].strip('"') == "10.77.0.1"
    assert str(tmp_path / "scratch" / "a") in properties["a", "scratch"]
    # On a busy machine, probes can disagree, so tests that run alone check the values. Here, only the events count.
    probes = [json.loads(row["detail"]) for row in table(run.path, "events") if row["kind"] == "probe"]
    assert probes
    assert properties["network", "lab.probes_off"] == str(sum(not probe["agrees"] for probe in probes))
    assert registered(parent) == []


def test_datasets_are_reused_by_the_next_lab(tmp_path, parent, engine):
    made = []
    for number in (1, 2):
        plan = plan_in_lab(tmp_path, 1, pair())
        run = RunWriter.create(tmp_path / "runs", plan, backend="lab", path=tmp_path / f"run{number}")
        assert execute(run, tmp_path, engine).state == "complete"
        made.append((tmp_path / "scratch" / "a" / "data" / "set" / "000000").stat().st_ino)
    assert made[0] == made[1]


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_a_killed_server_is_an_event_and_a_finding_and_the_run_continues(tmp_path, parent, engine):
    calls = {
        "cp": call_of(["cp", "{source}", "{destination}"]),
        # A lab host sees only processes of the lab.
        "kill": call_of(["sh", "-c", "pkill -9 iperf3; sleep 0.5; cp {source} {destination}"], requires=["pkill"]),
    }
    lines = [*tiny_trials(1, host="a", call="kill"), *tiny_trials(2, host="a", first=1)]
    header = HEADER.emit(header_of(pair(more=SERVER)))
    parts = {key: header[key] for key in ("hosts", "network", "services")}
    plan = write_plan(tmp_path / "plan.jsonl", lines, storages=DATA, calls=calls, **parts)
    run = RunWriter.create(tmp_path / "runs", plan, backend="lab")
    outcome = execute(run, tmp_path, engine)
    assert (outcome.state, outcome.trials_done) == ("complete", 3)
    (event,) = [row for row in table(run.path, "events") if row["kind"] == "service-exited"]
    assert event["host"] == "b" and '"signal":9' in event["detail"].replace(" ", "")
    (finding,) = [row for row in table(run.path, "findings") if row["code"] == "service-exited"]
    assert (finding["subject"], finding["host"]) == ("probe", "b")
    assert list((run.path / "lab" / "probe").iterdir())


def test_a_stopped_run_resumes_in_a_new_lab(tmp_path, parent, engine):
    gate = Gate(tmp_path / "gate", 1)
    run = RunWriter.create(tmp_path / "runs", plan_in_lab(tmp_path, 20, pair(), calls=gate.calls), backend="lab")
    requested = []

    def stop(progress):
        if progress.trials_done >= 1 and not requested:
            requested.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    outcome = execute(run, tmp_path, engine, on_progress=stop)
    assert (outcome.state, outcome.trials_done) == ("stopped", 1)
    assert registered(parent) == []
    gate.open()
    assert execute(RunWriter.resume(run.path), tmp_path, engine).state == "complete"
    assert len(table(run.path, "trials")) == 20


def test_a_stop_during_lab_start_removes_the_lab_and_leaves_a_resumable_run(tmp_path, parent, engine):
    run = RunWriter.create(tmp_path / "runs", plan_in_lab(tmp_path, 1, pair()), backend="lab")

    def stop(progress):
        if "connecting" in progress.message:
            os.kill(os.getpid(), signal.SIGTERM)

    assert execute(run, tmp_path, engine, on_progress=stop).state == "stopped"
    assert registered(parent) == []
    assert execute(RunWriter.resume(run.path), tmp_path, engine).state == "complete"


def test_a_killed_network_emulator_ends_the_session_with_a_message(tmp_path, parent, engine):
    gate = Gate(tmp_path / "gate", 1)
    run = RunWriter.create(tmp_path / "runs", plan_in_lab(tmp_path, 2, pair(), calls=gate.calls), backend="lab")
    killed = []

    def kill_the_wire(progress):
        if progress.trials_done >= 1 and not killed:
            for pid in below(os.getpid()):
                with suppress(OSError):  # the process has exited
                    if b"\0emulator\0" in Path(f"/proc/{pid}/cmdline").read_bytes() and not children(pid):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    with pytest.raises(BackendError, match="the network emulator of the lab exited early"):
        execute(run, tmp_path, engine, on_progress=kill_the_wire)
    assert killed
    assert registered(parent) == []


def test_a_server_that_does_not_start_is_reported_with_its_last_messages(tmp_path, parent, engine):
    header = HEADER.emit(header_of(pair(more=SERVER)))
    header["services"]["probe"]["interface"] = "a.eth0"  # an address of another host
    parts = {key: header[key] for key in ("hosts", "network", "services")}
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(1, host="a"), storages=DATA, **parts)
    run = RunWriter.create(tmp_path / "runs", plan, backend="lab")
    with pytest.raises(BackendError, match=r"testbed\.service\.probe: (?s:.*)Cannot assign requested address"):
        execute(run, tmp_path, engine)
    assert list((run.path / "lab").rglob("*.log"))
    assert registered(parent) == []
