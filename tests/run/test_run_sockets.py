"""TCP sockets from the records of agents to a table."""

import json
import shutil
import socket as sockets
import subprocess
import threading
import time

import numpy as np
import pytest

from testkit import call_of, transfer_record, transfer_step, trial_record, write_plan
from venturi.backend import HostsBackend
from venturi.run import Run, RunWriter
from venturi.run.columns import COLUMNS

NOT_OF_A_SOCKET = ("host", "time_s")


def socket(local, **output):
    """Return a socket as an agent records it; values missing in ``output`` are unknown to the kernel."""
    absent = dict.fromkeys(name for name in COLUMNS["sockets"] if name not in NOT_OF_A_SOCKET)
    return absent | {"local": local, "remote": "10.77.0.2:2811", "state": "established", "closed": False} | output


def test_every_socket_of_every_record_is_a_row_and_missing_values_are_null(new_run):
    run = new_run()
    first = socket(
        "10.77.0.1:50000", cwnd_bytes=14480, rtt_s=0.0101, congestion_control="cubic", acked_bytes=2**53 - 1
    )
    last = socket("10.77.0.1:50000", closed=True, state="closed", acked_bytes=2**53 - 1, delivery_bytes_per_s=1.25e8)
    other = socket("10.77.0.1:50001")
    run.sockets({"record": "sockets", "time_s": 0.5, "sockets": [first, other]}, "a")
    run.sockets({"record": "sockets", "time_s": 0.75, "sockets": []}, "a")
    run.close()
    with RunWriter.resume(run.path) as again:
        again.sockets({"record": "sockets", "time_s": 1.5, "sockets": [last]}, "a")
    with Run.open(run.path) as read:
        rows = read.table("sockets")
    assert rows["host"].tolist() == ["a"] * 3
    assert rows["time_s"].tolist() == [0.5, 0.5, 1.5]
    assert rows["local"].tolist() == ["10.77.0.1:50000", "10.77.0.1:50001", "10.77.0.1:50000"]
    assert rows["closed"].tolist() == [False, False, True]
    assert rows["congestion_control"].tolist() == ["cubic", None, None]
    np.testing.assert_array_equal(rows["acked_bytes"], [2**53 - 1, np.nan, 2**53 - 1])
    np.testing.assert_array_equal(rows["rtt_s"], [0.0101, np.nan, np.nan])
    np.testing.assert_array_equal(rows["delivery_bytes_per_s"], [np.nan, np.nan, 1.25e8])


def test_the_columns_match_the_socket_record_of_the_agent(engine):
    schema = json.loads(subprocess.run([engine, "schema", "record"], capture_output=True, check=True).stdout)
    kinds = {"boolean": "BOOLEAN", "string": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE"}

    def kind(content):
        named = content.get("$ref") or next(
            (part["$ref"] for part in content.get("anyOf", ()) if "$ref" in part), None
        )
        if named is not None:
            return kind(schema["$defs"][named.rpartition("/")[2]])
        types = [content["type"]] if isinstance(content["type"], str) else content["type"]
        return next(kinds[name] for name in types if name != "null")

    output = {name: kind(content) for name, content in schema["$defs"]["Socket"]["properties"].items()}
    assert output == {name: kind for name, kind in COLUMNS["sockets"].items() if name not in NOT_OF_A_SOCKET}


def test_sockets_of_a_killed_session_are_read_up_to_a_torn_line(new_run):
    run = new_run()
    run.sockets({"record": "sockets", "time_s": 0.5, "sockets": [socket("10.77.0.1:50000")]}, "a")
    run.close()
    with (run.path / "sockets.jsonl").open("ab") as file:
        file.write(b'{"host":"a","time_s":1.0,"sock')
    with Run.open(run.path) as read:
        assert read.table("sockets")["time_s"].tolist() == [0.5]


def test_a_run_with_only_tables_of_an_older_version_has_no_sockets(new_run):
    run = new_run()
    run.trial(trial_record("t0000000"), "a")
    run.finish("stopped")
    for name in ("journal.jsonl", "samples.jsonl", "events.jsonl", "sockets.jsonl", "sockets.parquet"):
        (run.path / name).unlink()
    with Run.open(run.path) as read:
        assert list(read.table("sockets")) == list(COLUMNS["sockets"])
        assert len(read.table("sockets")["local"]) == 0
        assert read.finished_trials() == {"t0000000"}


def test_a_transfer_records_its_service_ports(new_run):
    routes = {"source_via": "gridftp-a/gsiftp", "destination_via": None}
    run = new_run()
    run.trial(trial_record("t0000000", transfers=[transfer_record("t0000000", **routes)]), "a")
    run.trial(trial_record("t0000001"), "a")  # like agents from before the lab, without these fields
    run.finish("stopped")
    with Run.open(run.path) as read:
        rows = read.table("transfers")
    assert rows["source_via"].tolist() == ["gridftp-a/gsiftp", None]
    assert rows["destination_via"].tolist() == [None, None]


def serve_in_halves(listener, size_bytes, watched):
    """Send bytes to the first client; send the second half when the file ``watched`` is not empty."""
    with listener.accept()[0] as connection:
        connection.sendall(bytes(size_bytes // 2))
        end_s = time.monotonic() + 30
        while not (watched.exists() and watched.stat().st_size) and time.monotonic() < end_s:
            time.sleep(0.001)
        connection.sendall(bytes(size_bytes // 2))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the client here")
def test_a_run_records_the_sockets_of_the_tools_that_it_starts(tmp_path, engine, scratch):
    size_bytes = 1_000_000
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        call = call_of(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3"], expect="nothing")
        line = {"actor": "one", "host": "node1", "steps": [transfer_step("get", "zero:", "null:", size_bytes)]}
        measure = {"interval_s": 0.01, "counters": ["tcp", "cpu"]}
        plan = write_plan(tmp_path / "plan.jsonl", [line], calls={"get": call}, measure=measure)
        run = RunWriter.create(tmp_path / "runs", plan, backend="hosts")
        server = threading.Thread(target=serve_in_halves, args=(listener, size_bytes, run.path / "sockets.jsonl"))
        server.start()
        HostsBackend(scratch=scratch, engine=engine).execute(run)
        server.join()
    with Run.open(run.path) as read:
        rows = read.table("sockets")
        assert len(read.table("samples")["value"]) > 0
        assert [finding.code for finding in read.findings() if "socket" in finding.code] == []
    assert set(rows["host"]) == {"node1"}
    assert set(rows["remote"]) == {f"127.0.0.1:{port}"}, "the server is no child of the agent"
    # FIN has a sequence number, so it counts as a byte.
    assert size_bytes <= rows["received_bytes"][rows["closed"].tolist().index(True)] <= size_bytes + 1
