"""Runs of version 1: readers use the names of version 2, and a resumed run is version 2 on the disk."""

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pytest

import venturi.backend
import venturi.run
from venturi.errors import RunError
from venturi.run import RUN_VERSION, Run, RunWriter, directory
from venturi.run import upgrade as upgrade_module
from venturi.run.upgrade import upgrade_run

STORED = Path(__file__).parents[1] / "data" / "runs"


@pytest.fixture
def version_1(tmp_path):
    """A copy of a run of format version 1: interrupted once, one transfer rejected, one tool missing."""
    return Path(shutil.copytree(STORED / "version-1", tmp_path / "version-1"))


def test_a_run_of_version_1_is_read_with_its_recorded_values(version_1):
    with Run.open(version_1) as run:
        assert (run.name, run.version, run.state, run.backend) == ("stored", 1, "complete", "hosts")
        assert run.header["totals"]["trials"] == 6
        assert run.factors == ("files", "size_bytes", "half")
        assert run.finished_trials() == {f"t{number:07d}" for number in range(6)}
        rows = run.table("transfers")
        assert rows["outcome"].tolist() == ["ok", "failed", "ok", "ok", "missing", "ok"]
        assert rows["session"].tolist() == [1, 1, 1, 2, 2, 2]
        np.testing.assert_array_equal(rows["exit_code"], [0, 3, 0, 0, np.nan, 0])
        assert rows["error"][1] == "exit code 3: no thank you"
        assert rows["duration_s"][0] == 0.001126876
        assert run.table("samples")["counter"].tolist().count("cpu.idle_s") == 3
        assert run.table("events")["kind"].tolist() == ["dataset"]
        assert [(finding.code, finding.subject) for finding in run.findings()] == [("missing-tool", "no-such-tool")]
        assert run.environment()["node1"]["free_bytes.data"] == "1000000000000"
        assert len(run.table("sockets")["local"]) == 0
        assert rows["source_via"].tolist() == [None] * 6
        assert rows["tool"].tolist() == [None] * 6 and np.isnan(rows["tool_retransmits"]).all()


def test_a_stopped_run_of_version_1_can_be_resumed(version_1):
    lines = (version_1 / "journal.jsonl").read_text().splitlines(keepends=True)
    (version_1 / "journal.jsonl").write_text("".join(lines[:-1]))
    with RunWriter.resume(version_1) as run:
        assert (list(run.remaining()), run.sessions_before) == (["t0000005"], 2)


def test_a_column_missing_in_an_older_table_is_null(version_1):
    with Run.open(version_1) as run:
        run.query("SELECT count(*) FROM transfers")
    (version_1 / "journal.jsonl").unlink()  # only the tables remain
    table = version_1 / "transfers.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE old AS SELECT * EXCLUDE (labels, intended_s) FROM '{table}'")
        connection.execute(f"COPY old TO '{table}' (FORMAT parquet)")
    with Run.open(version_1) as run:
        rows = run.query("SELECT trial, labels, intended_s FROM transfers")
    assert rows["labels"].tolist() == [None] * 6
    assert np.isnan(rows["intended_s"]).all()


@pytest.fixture
def stored(tmp_path):
    """Return a function that copies a stored run of version 1; if ``stopped``, it removes the last trial."""

    def copy(name, *, stopped=False):
        path = Path(shutil.copytree(STORED / name, tmp_path / name))
        if stopped:
            lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
            last = max(number for number, line in enumerate(lines) if line.startswith(b'{"trial"'))
            (path / "journal.jsonl").write_bytes(b"".join(lines[:last]))
            info = json.loads((path / "run.json").read_text())
            (path / "run.json").write_text(json.dumps(info | {"state": "stopped"}))
        return path

    return copy


def _only_tables(path):
    """Remove all files from which the tables were created."""
    with Run.open(path) as run:
        run.query("SELECT count(*) FROM transfers")
    for name in ("journal.jsonl", "samples.jsonl", "events.jsonl", "sockets.jsonl"):
        (path / name).unlink(missing_ok=True)
    return path


def _old_tables(path):
    """Remove all files except the stored tables of version 1."""
    for name in ("journal.jsonl", "samples.jsonl", "events.jsonl", "sockets.jsonl"):
        (path / name).unlink(missing_ok=True)
    return path


def _with_journal(path):
    return path


FORMS = pytest.mark.parametrize("form", [_with_journal, _only_tables, _old_tables])


@FORMS
def test_reads_columns_of_transfers_of_version_1(stored, form):
    path = form(stored("version-1-sim"))
    with Run.open(path) as run:
        rows = run.table("transfers")
    assert set(rows["requested_bytes"]) == {100_000, 1_000_000}
    first = json.loads(rows["bottleneck"][rows["trial"].tolist().index("t0000000")])
    assert first["link:cern>cnaf"] == pytest.approx(0.342, abs=1e-3)
    assert not {"asked_bytes", "bound"} & set(rows)


@FORMS
def test_reads_columns_of_routes_of_version_1(stored, form):
    path = form(stored("version-1-routes"))
    expected = {}
    for line in (STORED / "version-1-routes" / "journal.jsonl").read_text().splitlines():
        for route in (json.loads(line).get("trial") or {}).get("routes") or ():
            expected[json.loads(line)["trial"]["trial"]] = route
    assert len(expected) == 8
    with Run.open(path) as run:
        rows = run.table("routes")
    for index, trial in enumerate(rows["trial"]):
        route = expected[trial]
        assert rows["requested_bytes"][index] == route["asked_bytes"] > 0
        assert rows["wait_s"][index] == route["waited_s"] >= 0
        assert rows["min_duration_s"][index] == route["shortest_s"] > 0
        assert rows["max_duration_s"][index] == route["longest_s"] > 0
        assert json.loads(rows["bottleneck"][index]) == route["bound"]
    assert not {"asked_bytes", "bound", "waited_s", "shortest_s", "longest_s", "alone_s"} & set(rows)


@FORMS
def test_reads_unloaded_duration_of_version_1(stored, form):
    path = stored("version-1-routes")
    journal = path / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"alone_s":null', '"alone_s":0.25'))
    if form is _old_tables:
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE old AS SELECT * REPLACE (0.25 AS alone_s) FROM '{path}/routes.parquet'")
            connection.execute(f"COPY old TO '{path}/routes.parquet' (FORMAT parquet)")
    with Run.open(form(path)) as run:
        assert set(run.query("SELECT unloaded_s FROM routes")["unloaded_s"]) == {0.25}


@FORMS
@pytest.mark.parametrize(
    ("name", "code"), [("version-1-hosts", "orphan-processes"), ("version-1-lab", "emulator-late")]
)
def test_reads_finding_codes_of_version_1(stored, form, name, code):
    with Run.open(form(stored(name))) as run:
        assert code in {finding.code for finding in run.findings()}
        assert not {"children-left-behind", "wire-late"} & {finding.code for finding in run.findings()}


@FORMS
def test_reads_properties_of_storages_of_version_1(stored, form):
    with Run.open(form(stored("version-1-hosts"))) as run:
        properties = run.environment()["here"]
    assert properties["storages.disk.type"] == "ext4"
    assert not [key for key in properties if key.startswith("places")]


@FORMS
def test_reads_event_kinds_of_version_1(stored, form):
    path = stored("version-1-hosts")
    events = path / "events.jsonl"
    events.write_text(events.read_text().replace('"kind":"dataset"', '"kind":"service-ended"'))
    if form is _old_tables:
        with duckdb.connect() as connection:
            connection.execute(
                f"CREATE TABLE old AS SELECT * REPLACE ('service-ended' AS kind) FROM '{path}/events.parquet'"
            )
            connection.execute(f"COPY old TO '{path}/events.parquet' (FORMAT parquet)")
    with Run.open(form(path)) as run:
        assert set(run.table("events")["kind"]) == {"service-exited"}


def test_reads_header_of_version_1_with_new_keys(stored):
    with Run.open(stored("version-1-lab")) as run:
        header = run.header
    assert header["version"] == 2
    assert header["storages"]["data"]["host"] == "cern"
    assert header["services"]["ftp"]["service_ports"]["ftp"].startswith("ftp://")
    assert header["services"]["ftp"]["storages"] == ["data"]
    assert {dataset["storage"] for dataset in header["datasets"].values()} <= {"data", "copies"}


def test_reading_does_not_change_a_run_of_version_1(stored):
    path = stored("version-1-hosts")
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.suffix in (".jsonl", ".json")}
    with Run.open(path) as run:
        assert run.version == 1
        run.table("transfers")
    after = {name: (path / name).read_bytes() for name in before}
    del before["tables.json"], after["tables.json"]
    assert after == before


def test_reads_a_read_only_run_of_version_1(stored, monkeypatch):
    path = stored("version-1-hosts")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    access = venturi.run.tables.os.access
    # Root can write everywhere, so a patch declares the directory read-only.
    monkeypatch.setattr("venturi.run.tables.os.access", lambda name, mode: Path(name) != path and access(name, mode))
    with Run.open(path) as run:
        assert run.query("SELECT sum(requested_bytes) AS n FROM transfers")["n"].tolist() == [600_000]
        assert {finding.code for finding in run.findings()} == {"orphan-processes"}
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_rejects_a_damaged_line_of_version_1_with_its_number(stored):
    path = stored("version-1-hosts")
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (path / "journal.jsonl").write_bytes(b"".join([lines[0], b"{torn\n", *lines[1:]]))
    with Run.open(path) as run, pytest.raises(RunError, match=r"journal\.jsonl, line 2"):
        run.table("transfers")


def _is_version_2(path):
    info = directory.read_info(path)
    assert info.version == RUN_VERSION == 2
    plan = (path / "plan.jsonl").read_bytes()
    assert info.plan_sha256 == hashlib.sha256(plan).hexdigest()
    assert json.loads(plan.splitlines()[0])["version"] == 2
    journal = (path / "journal.jsonl").read_text()
    assert '"requested_bytes":' in journal and '"orphan-processes"' in journal
    assert '"asked_bytes":' not in journal and "children-left-behind" not in journal and '"places":' not in journal
    assert not [file.name for file in path.iterdir() if file.name.startswith(".")]


def _finish(path):
    """Resume a stopped run, record its last trial once more, and end it."""
    last = [
        json.loads(line)["trial"]
        for line in (STORED / "version-1-hosts" / "journal.jsonl").read_text().splitlines()
        if "trial" in json.loads(line)
    ][-1]
    with RunWriter.resume(path) as run:
        assert list(run.remaining()) == [last["trial"]]
        run.start_session({"here": {"storages": {}}})
        record = {key: last[key] for key in ("trial", "actor", "start_s", "end_s", "outcome", "cache")}
        transfers = [{**one, "requested_bytes": one["asked_bytes"]} for one in last["transfers"]]
        for one in transfers:
            del one["asked_bytes"]
        run.trial({"record": "trial", **record, "findings": [], "transfers": transfers}, "here")
        run.finish("complete")


def test_a_resumed_run_of_version_1_is_version_2(stored):
    path = stored("version-1-hosts", stopped=True)
    _finish(path)
    _is_version_2(path)
    with Run.open(path) as run:
        assert (run.version, run.state, len(run.finished_trials())) == (2, "complete", 4)
        assert run.query("SELECT sum(requested_bytes) AS n FROM transfers")["n"].tolist() == [600_000]
        assert set(run.query("SELECT session FROM trials")["session"]) == {1, 2}


@pytest.mark.parametrize("name", ["version-1", "version-1-lab", "version-1-sim", "version-1-routes"])
def test_every_stored_run_can_be_resumed(stored, name):
    path = stored(name, stopped=True)
    with RunWriter.resume(path) as run:
        assert len(list(run.remaining())) == 1
        assert run.header["version"] == 2
    assert directory.read_info(path).version == 2


def test_a_run_with_lines_lost_in_a_power_failure_can_be_resumed(stored):
    path = stored("version-1-hosts", stopped=True)
    with (path / "journal.jsonl").open("ab") as journal:
        journal.write(bytes(200) + b"\n" + b'{"trial":{"trial"')
    _finish(path)
    _is_version_2(path)


class _KilledError(BaseException):
    """Simulates the end of the process."""


STEPS = [
    (upgrade_module, "upgrade_lines", 1, "before"),
    (upgrade_module, "upgrade_lines", 1, "after"),
    (upgrade_module, "upgrade_lines", 2, "before"),
    (directory, "write_info", 1, "before"),
    (directory, "write_info", 1, "after"),
    (directory, "replace_text", 1, "before"),
    (directory, "replace_text", 1, "after"),
    (directory, "replace_text", 2, "before"),
    (directory, "replace_text", 2, "after"),
]


@pytest.mark.parametrize(("module", "function", "call", "when"), STEPS)
def test_a_run_killed_between_steps_of_the_upgrade_can_be_read_and_resumed(
    stored, monkeypatch, module, function, call, when
):
    path = stored("version-1-hosts", stopped=True)
    calls = []
    original = getattr(module, function)

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == call and when == "before":
            raise _KilledError
        original(*arguments)
        if len(calls) == call:
            raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(module, function, killed)
        with pytest.raises(_KilledError):
            upgrade_run(path)
    with Run.open(path) as run:
        assert run.header["version"] == 2
        assert len(run.finished_trials()) == 3
        assert run.query("SELECT min(requested_bytes) AS n FROM transfers")["n"].tolist() == [100_000]
        assert {finding.code for finding in run.findings()} == {"orphan-processes"}
    _finish(path)
    _is_version_2(path)


def test_a_temporary_file_of_a_killed_upgrade_is_replaced(stored):
    path = stored("version-1-hosts", stopped=True)
    (path / ".journal.jsonl.upgrade").write_bytes(b"half a li")
    _finish(path)
    _is_version_2(path)


def test_an_upgrade_that_fails_changes_nothing_and_names_the_reason(stored, monkeypatch):
    path = stored("version-1-hosts", stopped=True)
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}

    def full(source, target):
        target.write_bytes(b"{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(upgrade_module, "upgrade_lines", full)
    with pytest.raises(RunError, match=r"version 2.*No space left on device"):
        RunWriter.resume(path)
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"} == before


def test_a_run_of_version_1_with_another_plan_is_not_upgraded(stored):
    path = stored("version-1-hosts", stopped=True)
    with (path / "plan.jsonl").open("a") as plan:
        plan.write("\n")
    journal = (path / "journal.jsonl").read_bytes()
    with suppress(RunError):
        upgrade_run(path)
    with pytest.raises(RunError, match="SHA-256"):
        RunWriter.resume(path)
    assert (path / "journal.jsonl").read_bytes() == journal
    assert directory.read_info(path).version == 1


def test_an_upgrade_of_a_run_of_version_2_changes_nothing(stored):
    path = stored("version-1-hosts", stopped=True)
    upgrade_run(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    upgrade_run(path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_the_packages_export_exactly_the_public_names():
    assert set(venturi.run.__all__) == {
        "RUN_VERSION", "Finding", "Run", "RunState", "RunWriter", "latest_run", "resolve_run"}  # fmt: skip
    assert set(venturi.backend.__all__) == {
        "Backend", "ClockOffset", "HostsBackend", "LabBackend", "SessionOutcome", "RunProgress", "SimBackend", "find_engine"}  # fmt: skip


@FORMS
def test_reads_counters_of_the_emulator_of_version_1(stored, form):
    with Run.open(form(stored("version-1-lab"))) as run:
        counters = set(run.query("SELECT DISTINCT counter FROM samples")["counter"])
    assert "emulator.cpu_s" in counters
    assert not [counter for counter in counters if counter.startswith("wire.")]


@FORMS
def test_reads_labels_of_directions_of_version_1(stored, form):
    path = stored("version-1")
    journal = path / "journal.jsonl"
    before = journal.read_text()
    journal.write_text(before.replace('"labels":{}', '"labels":{"way":"back"}'))
    assert journal.read_text() != before
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE old AS SELECT * REPLACE ('{{\"way\":\"back\"}}' AS labels) FROM '{path}/transfers.parquet'"
        )
        connection.execute(f"COPY old TO '{path}/transfers.parquet' (FORMAT parquet)")
    with Run.open(form(path)) as run:
        labels = [json.loads(text) for text in run.query("SELECT labels FROM transfers")["labels"]]
    assert labels == [{"direction": "reverse"}] * 6
