"""Logs of FTS and Rucio as traces: fields of real records, in every form in which archives keep them."""

import gzip
import json

import duckdb
import pytest
from peerskit import bed_of
from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.errors import ScenarioError
from venturi.plan import Trial
from venturi.report.toml import as_toml
from venturi.scenario import load_scenario
from venturi.workload import expand
from venturi.workload.trace import TraceError, read_trace

START_MS = 1466632862284
"""Start of the transfer of bytes in the example record: 2016-06-22T22:01:02.284Z."""


def fts(**changes):
    """Return a message of FTS3. Its values are texts, as FTS writes them."""
    record = {
        "tr_id": "2016-06-22-2201__alpha.example.org__beta.example.org__856147523__4d964812", "endpnt": "fts3.example.org",
        "vo": "atlas", "src_url": "srm://alpha.example.org:8446/srm/managerv2?SFN=/a/1",
        "dst_url": "srm://beta.example.org:8443/srm/managerv2?SFN=/b/1", "src_hostname": "alpha.example.org",
        "dst_hostname": "beta.example.org", "src_site_name": "", "dst_site_name": "",
        "t_channel": "srm://alpha.example.org__srm://beta.example.org", "timestamp_tr_st": str(START_MS),
        "timestamp_tr_comp": str(START_MS + 3332), "t_final_transfer_state": "Ok", "tr_bt_transfered": "10565043",
        "nstreams": "3", "f_size": "10565043", "tr_timestamp_start": f"{START_MS - 2133}.000000",
        "tr_timestamp_complete": f"{START_MS + 3948}.000000", "retry": "0", "t__error_message": "",
        "file_metadata": {"src_rse": "ALPHA_DATADISK", "dst_rse": "BETA_DATADISK", "activity": "Data Consolidation"},
    }  # fmt: skip
    return {**record, **changes}


def event(kind="transfer-done", **changes):
    """Return an event of Rucio."""
    payload = {
        "activity": "User Subscriptions", "request-id": "b4ccdac3a01146a7859bd5458da9808e", "duration": 239,
        "file-size": 1024000000, "bytes": 1024000000, "scope": "test", "name": "file.1", "src-type": "DISK",
        "src-rse": "MANCHESTER", "src-url": "root://alpha.example.org/dune/1", "dst-type": "DISK",
        "dst-rse": "CCIN2P3", "dst-url": "root://beta.example.org:1097/dune/1", "reason": "",
        "submitted_at": "2022-01-31 16:53:40.324004", "started_at": "2022-01-31 16:53:42",
        "transferred_at": "2022-01-31 16:57:41", "tool-id": "rucio-conveyor",
    }  # fmt: skip
    return {"event_type": kind, "created_at": "2022-01-31 16:57:43", "payload": {**payload, **changes}}


def trace(kind="download", **changes):
    """Return a trace of a client of Rucio."""
    record = {
        "eventType": kind, "eventVersion": "1.30.0", "hostname": "wn17.example.org", "account": "alice", "uuid": "0f" * 16,
        "scope": "user.alice", "filename": "f", "datasetScope": "", "dataset": "", "localSite": "GAMMA",
        "remoteSite": "ALPHA_DISK", "filesize": 2000, "protocol": "davs", "transferStart": 1643648022.5,
        "transferEnd": 1643648024.0, "clientState": "DONE", "stateReason": "OK",
    }  # fmt: skip
    return {**record, **changes}


@pytest.fixture
def log(tmp_path):
    """Return a function that writes records as JSON Lines."""

    def write(*records, name="log.json", compress=False):
        path = tmp_path / name
        content = "".join(json.dumps(record) + "\n" for record in records).encode()
        path.write_bytes(gzip.compress(content) if compress else content)
        return path

    return write


def read(path, **more):
    return read_trace(path, None, None, 10**7, **more)


def rows(found):
    """Return (start, source, destination, bytes, duration) of each transfer."""
    return [
        (start, found.names[source], found.names[destination], size, duration)
        for start, source, destination, size, duration in zip(
            found.start_s.tolist(), found.source, found.destination, found.size_bytes.tolist(),
            found.duration_s.tolist(), strict=True,
        )
    ]  # fmt: skip


def left_out(found):
    return (found.log.records, found.log.failed, found.log.other, found.log.incomplete)


def test_fts_records_have_the_time_of_the_bytes_and_hosts(log):
    found = read(log(fts(), fts(t_final_transfer_state="Error"), fts(t_final_transfer_state="Abort")))
    assert rows(found) == [
        (pytest.approx(START_MS / 1e3), "alpha.example.org", "beta.example.org", 10565043, pytest.approx(3.332))
    ]
    assert left_out(found) == (3, 2, 0, 0) and found.row.tolist() == [1]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "wrap", [lambda r: {"metadata": {}, "data": r}, lambda r: {"_source": {"data": r}}, lambda r: r]
)
def test_archived_and_compressed_fts_records_are_read(log, wrap, compress):
    found = read(
        log(*(wrap(fts(f_size=size)) for size in (1, 2)), compress=compress, name="fts.gz" if compress else "x")
    )
    assert found.size_bytes.tolist() == [1, 2]


def test_fts_records_with_numbers_flags_and_storage_elements_are_read(log):
    record = fts(
        timestamp_tr_st=0, tr_timestamp_start=START_MS, tr_timestamp_complete=START_MS + 500, file_size=77, f_size=None,
        src_hostname="", dst_hostname=None, src_se="davs://alpha.example.org:2880", dst_se="beta.example.org",
        t_final_transfer_state=None, t_final_transfer_state_flag=1,
    )  # fmt: skip
    found = read(log(record, {**record, "src_se": None, "src_url": None}, fts(t_final_transfer_state="")))
    assert rows(found) == 2 * [
        (pytest.approx(START_MS / 1e3), "alpha.example.org", "beta.example.org", 77, pytest.approx(0.5))
    ]
    # A record without a final state belongs to a transfer that was not complete.
    assert left_out(found) == (3, 0, 1, 0)


def test_names_of_fts_records_can_be_rses(log):
    as_text = fts(file_metadata=json.dumps({"src_rse": "ALPHA_DATADISK", "dst_rse": "GAMMA_TAPE"}))
    found = read(log(fts(), as_text, fts(file_metadata="none")), endpoints="rse")
    assert [(source, destination) for _, source, destination, *_ in rows(found)] == [
        ("ALPHA_DATADISK", "BETA_DATADISK"),
        ("ALPHA_DATADISK", "GAMMA_TAPE"),
    ]
    assert left_out(found) == (3, 0, 0, 1)


def test_rucio_events_have_the_times_of_the_transfer_and_rses(log):
    # 2022-01-31T16:53:42Z is 1643648022.
    late = event(started_at=None, duration=60)
    queued = event(started_at=None, duration=-1, bytes=None)
    found = read(
        log(
            event(),
            late,
            queued,
            event("transfer-failed"),
            event("transfer-submission_failed"),
            event("deletion-done"),
        )
    )
    assert rows(found) == [
        (
            pytest.approx(1643648020.324004),
            "MANCHESTER",
            "CCIN2P3",
            1024000000,
            pytest.approx(float("nan"), nan_ok=True),
        ),
        (1643648022, "MANCHESTER", "CCIN2P3", 1024000000, 239),
        (1643648022 + 239 - 60, "MANCHESTER", "CCIN2P3", 1024000000, 60),
    ]
    assert left_out(found) == (6, 2, 1, 0)


def test_flat_rucio_events_of_an_index_are_read_and_names_can_be_hosts(log):
    flat = {"event_type": "transfer-done", **event()["payload"], "started_at": "2022-01-31T17:53:42+01:00"}
    found = read(log({"_source": flat}), endpoints="host")
    assert rows(found) == [(1643648022, "alpha.example.org", "beta.example.org", 1024000000, 239)]


def test_rucio_traces_have_the_direction_of_their_event(log):
    upload = trace("upload", localSite=None, stateReason=None)
    stage_in = trace("get_sm_a", transferStart=None, transferEnd=None, timeStart=1643648000, timeEnd=1643648010)
    found = read(log(
        trace(), upload, stage_in, trace(clientState="FAILED"), trace(clientState="ALREADY_DONE"), trace("touch"),
        trace(filesize=0), trace(filesize=None),
    ))  # fmt: skip
    assert rows(found) == [
        (1643648000, "ALPHA_DISK", "GAMMA", 2000, 10),
        (1643648022.5, "ALPHA_DISK", "GAMMA", 2000, 1.5),
        (1643648022.5, "wn17.example.org", "ALPHA_DISK", 2000, 1.5),
    ]
    assert left_out(found) == (8, 1, 2, 2)


@pytest.mark.parametrize("value", [1643648022, "1643648022", 1643648022000, "1643648022000.0", 1643648022 * 10**9,
                                   "2022-01-31T16:53:42Z", "2022-01-31 16:53:42"])  # fmt: skip
def test_times_are_recognized_by_their_size_or_form(log, value):
    found = read(log(trace(transferStart=value, transferEnd=None, timeEnd=None)))
    assert found.start_s.tolist() == [1643648022]


def test_a_log_of_two_formats_needs_the_key_format(log):
    path = log(fts(), trace())
    with pytest.raises(
        TraceError, match=r'found FTS records and Rucio traces; select one with workload.format = "fts"'
    ):
        read(path)
    assert read(path, log_format="rucio-trace").names == ("ALPHA_DISK", "GAMMA")


@pytest.mark.parametrize(
    ("content", "more", "problem"),
    [
        ('{"a": 1, "b": 2}\n', {}, "expected FTS records, Rucio events or Rucio traces, found records with a, b;"),
        (json.dumps(fts()) + "\n", {"log_format": "rucio-event"}, "expected Rucio events, found records with tr_id"),
        ("[1]\n", {}, "line 1: expected one JSON object per line, found an array; convert it with `jq"),
        (json.dumps(fts()) + "\n{oops\n", {}, "line 2: expected a JSON object, found"),
        (json.dumps(fts(t_final_transfer_state="Error")) + "\n", {}, "expected successful transfers, found 1 FTS records; left out: 1 failed"),
        (json.dumps(fts(file_metadata=None)) + "\n", {"endpoints": "rse"}, 'left out: 1 without size, time or endpoint; set workload.endpoints = "host"'),
        (json.dumps(trace()) + "\n", {"endpoints": "host"}, 'workload.endpoints: expected "rse", because Rucio traces name sites'),
    ],
)  # fmt: skip
def test_an_unusable_log_is_rejected_with_the_next_step(tmp_path, content, more, problem):
    path = tmp_path / "log"
    path.write_text(content)
    with pytest.raises(TraceError) as error:
        read(path, **more)
    assert problem in str(error.value)


def test_a_truncated_gzip_file_is_rejected(tmp_path):
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress(json.dumps(fts()).encode() * 50)[:60])
    with pytest.raises(TraceError, match=r"log.json.gz"):
        read(path)


@pytest.fixture
def replay(tmp_path):
    """Return a function that loads a scenario which replays the file ``log.json``."""

    def make(**workload):
        document = {
            "venturi": 1, "name": "r", "testbed": bed_of(),
            "workload": {"kind": "replay", "mover": "globus-url-copy", "trace": "log.json", **workload},
        }  # fmt: skip
        path = tmp_path / "scenario.toml"
        path.write_text(as_toml(document))
        return load_scenario(path)

    return make


def test_a_log_is_replayed_with_mapped_names_and_its_counts_are_a_note(log, replay):
    log(
        fts(f_size="5"), fts(f_size="7", timestamp_tr_st=str(START_MS + 2500)), fts(t_final_transfer_state="Error"),
    )  # fmt: skip
    plan = expand(replay(map={"alpha.example.org": "alpha0", "beta.example.org": "beta0"}))
    steps = [
        (line.steps[1].time_s, line.steps[2].steps[0]) for line in plan.lines if isinstance(line.steps[-1], Trial)
    ]
    assert [
        (time, step.source.partition(":")[0], step.destination.partition(":")[0], step.bytes) for time, step in steps
    ] == [
        (0, "alpha0", "beta0", 5),
        (2.5, "alpha0", "beta0", 7),
    ]
    assert plan.notes == ("log.json: 3 FTS records; left out: 1 failed transfer",)


def test_the_command_plan_prints_the_number_of_records_that_are_left_out(log, replay, tmp_path):
    log(fts(), fts(t_final_transfer_state="Abort"))
    replay(map={"alpha.example.org": "alpha0", "beta.example.org": "beta0"})
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "scenario.toml"), "--on", "sim", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["notes"] == ["log.json: 2 FTS records; left out: 1 failed transfer"]


def test_unknown_endpoints_are_one_error_with_the_number_of_transfers(log, replay):
    log(fts(), fts(), fts(dst_hostname="gamma.example.org"), fts(src_hostname="alpha0"))
    with pytest.raises(ScenarioError) as error:
        replay()
    (problem,) = error.value.problems
    assert problem[0] == "workload.map"
    assert "3 other names" in problem[1]
    assert "alpha.example.org (3), beta.example.org (3), gamma.example.org (1); add their storages" in problem[1]


def test_a_log_of_many_records_is_read_as_a_stream(tmp_path):
    path = tmp_path / "big.json"
    text = json.dumps(fts(timestamp_tr_st="@", f_size="#")).replace("'", "''")
    duckdb.sql(
        f"""COPY (SELECT replace(replace('{text}', '"@"', '"' || (1466632862284 + i * 7)::VARCHAR || '"'), '"#"', (1 + i)::VARCHAR) AS line
        FROM range(20000) t(i)) TO '{path}' (FORMAT csv, HEADER false, QUOTE '', DELIMITER '\t')"""
    )
    found = read(path)
    assert len(found) == 20_000 and found.size_bytes.sum() == 20_000 * 20_001 // 2
    assert found.start_s[-1] - found.start_s[0] == pytest.approx(19_999 * 0.007)
