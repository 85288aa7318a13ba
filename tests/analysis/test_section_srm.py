"""The report section about SRM: a run with planted conversations, so waits, counts and volumes are known."""

import json

import pytest

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.sections.srm import srm_section
from venturi.analysis.srm_requests import negotiations
from venturi.run import Run, RunWriter

SIZE = 1_000_000
FILES = 5
WAITS_S = [0.010, 0.020, 0.030, 0.040, 0.050]
SERVICES = {"srm1": "srm", "door": "gridftp", "sink": "gridftp"}


def lines(writer, service, session, printed, *, number=0):
    """Write the events of one connection from (time, direction, line)."""
    for index, (time_s, direction, line) in enumerate(printed, number):
        detail = {"service": service, "number": index, "session": session, "client": f"10.77.0.2:{4000 + session}", "direction": direction,
                  "line": line, "seen": "log"}  # fmt: skip
        writer.event({"record": "event", "time_s": time_s, "kind": "control", "detail": detail}, "a")


def conversation(request_s, wait_s, surl, turl, *, queued):
    """Return a get of one file, which is served immediately or after a wait in the queue."""
    first = [(request_s - 0.02, "note", "DN /O=V/CN=A authenticated over TLSv1.3 as root in 0.012500 s"),
             (request_s, "client", f"srmPrepareToGet {surl}")]  # fmt: skip
    if queued:
        first += [(request_s + 0.001, "server", f"srmPrepareToGet SRM_REQUEST_QUEUED token=t{request_s}"),
                  (request_s + 0.001, "server", f"srmPrepareToGet SRM_REQUEST_QUEUED {surl}"),
                  (request_s + wait_s - 0.001, "client", f"srmStatusOfGetRequest token=t{request_s} {surl}"),
                  (request_s + wait_s, "server", f"srmStatusOfGetRequest SRM_SUCCESS token=t{request_s}"),
                  (request_s + wait_s, "server", f"srmStatusOfGetRequest SRM_FILE_PINNED {surl} {turl}")]  # fmt: skip
    else:
        first += [(request_s + wait_s, "server", f"srmPrepareToGet SRM_SUCCESS token=t{request_s}"),
                  (request_s + wait_s, "server", f"srmPrepareToGet SRM_FILE_PINNED {surl} {turl}")]  # fmt: skip
    return first


def planted(base, *, lost_bytes=0, services=SERVICES, study=None, events=True):
    """Write a run of two points, by SRM and by GridFTP alone.

    Each has one trial of FILES calls at intervals of one second. A file takes 0.8 s at the first point and 0.2 s at the
    second.
    """
    scenario = {
        "venturi": 1,
        "name": "srm",
        "workload": {"kind": "dataset"},
        "analyse": {"against": []},
        **({"study": study} if study else {}),
    }
    header = {
        "format": "venturi-plan", "version": 2, "name": "srm", "seed": 1, "scale": 1.0, "scenario": scenario,
        "hosts": {"a": {"ssh": None, "memory_bytes": None, "lab": None}}, "storages": {"disk": {"host": "a", "path": "d", "spec": None}},
        "services": {name: {"kind": kind, "host": "a", "interface": None, "storages": ["disk"], "options": {}, "after": [], "ports": [1], "service_ports": {}}
                     for name, kind in services.items()},
        "network": None, "datasets": {}, "draws": {}, "pools": {},
        "calls": {"c": {"mover": "gfal-copy", "options": {}, "argv": ["x"], "requires": [], "timeout_s": 60.0, "capture": False, "expect": "nothing"}},
        "measure": {"interval_s": None, "counters": []}, "totals": {"trials": 2, "transfers": 2 * FILES, "bytes": 2 * FILES * SIZE, "disk_bytes": {}},
    }  # fmt: skip
    points = [("srm1/srm", 10.0, 0.8), ("door/gsiftp", 30.0, 0.2)]
    steps = [{"step": "trial", "id": f"t{n:07d}", "point": n, "repetition": 0, "block": 0, "factors": {"set": "small", "streams": 4, "source_service": via.split("/")[0]}, "steps": []}
             for n, (via, _, _) in enumerate(points)]  # fmt: skip
    plan = base / "plan.jsonl"
    plan.write_text(
        "\n".join(
            json.dumps(line) for line in [header, *({"actor": "x", "host": "a", "steps": [step]} for step in steps)]
        )
        + "\n"
    )
    with RunWriter.create(base / "runs", plan, backend="lab") as writer:
        writer.start_session({"a": {}})
        for n, (via, request_s, seconds) in enumerate(points):
            transfers = [transfer(n, i, via, request_s + i, seconds) for i in range(FILES)]
            writer.trial({"trial": f"t{n:07d}", "actor": "x", "start_s": request_s - 0.1, "end_s": request_s + FILES, "outcome": "ok", "cache": None,
                          "transfers": transfers, "findings": []}, "a")  # fmt: skip
        if events:
            add_run(writer, lost_bytes)
        writer.finish("complete")
        path = writer.path
    return Run.open(path)


def transfer(n, i, via, start_s, seconds):
    return {
        "trial": f"t{n:07d}", "actor": "x", "slot": 0, "call": "c", "mover": "gfal-copy", "source": f"disk:{i}", "source_via": via,
        "destination": f"disk:out{i}", "destination_via": "sink/gsiftp", "files": 1, "requested_bytes": SIZE, "received_bytes": SIZE, "intended_s": None,
        "start_s": start_s, "end_s": start_s + seconds, "duration_s": seconds, "outcome": "ok", "exit_code": 0, "signal": None, "error": None,
        "user_s": 0.0, "system_s": 0.0, "stdout": None, "stderr": "", "labels": {},
    }  # fmt: skip


def add_run(writer, lost_bytes):
    """Write the server events.

    SRM has GridFTP logins and a data connection at both ends for each file. GridFTP alone has them once.
    """
    lines(writer, "srm1", 99, [(1.0, "client", "srmPing"), (1.1, "server", "srmPing SRM_SUCCESS")])
    for i, wait_s in enumerate(WAITS_S):
        request_s = 10.0 + i + 0.1
        lines(
            writer,
            "srm1",
            i,
            conversation(request_s, wait_s, f"srm://a/{i}", f"gsiftp://a:{i}/{i}", queued=i == 4),
            number=100 * i,
        )
        for name, verb in (("door", "RETR"), ("sink", "STOR")):
            lines(writer, name, i, dialogue(10.0 + i, [f"{verb} /{i}"]))
        stored(writer, 10.0 + i + 0.3, SIZE)
    for name, verb in (("door", "RETR"), ("sink", "STOR")):
        lines(writer, name, 50, dialogue(30.0, [f"{verb} /{i}" for i in range(FILES)]))
    for i in range(FILES):
        stored(writer, 30.0 + i + 0.05, SIZE - (lost_bytes if i == 0 else 0))


def dialogue(time_s, moves):
    """Return the lines of a control connection: a login, one data connection, and files."""
    printed = [
        ("client", "USER :globus-mapping:"),
        ("server", "230 User root logged in."),
        ("client", "PASV"),
        ("server", "227 Entering Passive Mode (…)"),
    ]
    for move in moves:
        printed += [("client", move), ("server", "226 Transfer Complete.")]
    return [(time_s, direction, line) for direction, line in printed]


def stored(writer, start_s, size):
    detail = {
        "service": "sink",
        "kind": "gridftp",
        "start_s": start_s,
        "end_s": start_s + 0.1,
        "command": "STOR",
        "code": "226",
        "file_bytes": size,
        "path": "/x",
    }
    writer.event({"record": "event", "time_s": start_s + 0.1, "kind": "server-transfer", "detail": detail}, "a")


def section_of(run):
    return srm_section(run, analyse(run, AnalyseOptions(fits=False)).about)


def table(section, name):
    found = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


def test_waits_last_from_the_request_to_the_reply_with_the_transfer_url(tmp_path):
    run = planted(tmp_path)
    requests, handshakes, turls = negotiations(run)
    assert [turl.wait_s for turl in turls] == pytest.approx(WAITS_S)
    assert [turl.polls for turl in turls] == [0, 0, 0, 0, 1]
    assert {one.took_s for one in handshakes} == {0.0125}
    (row,) = table(section_of(run), "srm-turls")
    assert (row["urls"], row["polls_per_file"]) == (FILES, 0.2)
    assert (row["least_s"], row["median_s"], row["most_s"]) == pytest.approx((0.01, 0.03, 0.05))
    assert next(one for one in requests if one.operation == "srmPing").point is None


def test_the_cost_per_file_is_compared_with_gridftp_alone(tmp_path):
    section = section_of(planted(tmp_path))
    srm, alone = table(section, "srm-services")
    assert (srm["service"], alone["service"], srm["category"]) == ("srm", "gridftp", "small")
    assert (srm["connections_per_file"], srm["logins_per_file"], srm["data_channels_per_file"]) == (1, 2, 1)
    assert (alone["connections_per_file"], alone["logins_per_file"], alone["data_channels_per_file"]) == (
        None,
        2 / FILES,
        1 / FILES,
    )
    # Five calls start at intervals of one second.
    assert srm["throughput_bit_per_s"] == pytest.approx(8 * FILES * SIZE / 4.8)
    assert alone["throughput_bit_per_s"] == pytest.approx(8 * FILES * SIZE / 4.2)
    assert (srm["file_s"], srm["moving_s"], alone["file_s"]) == pytest.approx((0.8, 0.1, 0.2))
    assert f"{100 * 4.2 / 4.8:.3g} % of GridFTP alone" in section.sentence
    (conversation,) = section.sequences
    assert [message.text for message in conversation.messages] == ["srmPrepareToGet", "SRM_SUCCESS · gsiftp://a:0"]


def test_inconsistent_volumes_are_reported_for_measured_and_published_values(tmp_path):
    rows = table(section_of(planted(tmp_path, lost_bytes=SIZE // 2, study="ani/srm")), "srm-volumes")
    verdicts = {(row["source"], row["category"], row["service"]): row["verdict"] for row in rows}
    assert verdicts["this run", "small", "srm"] == "adds up"
    assert verdicts["this run", "small", "gridftp"] == "does not add up: 1.11 × the sum"
    assert verdicts["published", "large", "srm"] == verdicts["published", "small", "srm"] == "adds up"
    # 002-E01: the total of the medium files repeats that of the large ones.
    assert verdicts["published", "medium", "srm"].startswith("does not add up: 2.81 × the sum")
    large = next(row for row in rows if row["source"] == "published" and row["category"] == "large")
    # 002-E02: 91.60 Gb/s if a megabyte is binary.
    assert large["from_binary_volume_bit_per_s"] == pytest.approx(91.60e9, rel=1e-4)
    assert large["from_volume_bit_per_s"] == pytest.approx(large["throughput_bit_per_s"], rel=1e-3)


def test_published_rates_are_compared_with_ours(tmp_path):
    section = section_of(planted(tmp_path, study="ani/srm"))
    rates = {row["service"]: row["throughput_published_bit_per_s"] for row in table(section, "srm-services")}
    assert rates == {"srm": 0.5e9, "gridftp": 2.51e9}
    bars = next(figure for figure in section.figures if figure.source == "002, figure 5")
    assert {series.name for series in bars.panels[1].series} == {"gridftp", "globus online", "srm"}


def test_a_run_without_srm_has_no_section_and_without_events_no_request_tables(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert section_of(planted(tmp_path / "one", services={"door": "gridftp", "sink": "gridftp"})) is None
    section = section_of(planted(tmp_path / "two", events=False))
    assert "no transfer URL" in section.sentence
    assert not [one for one in section.tables if one.name in ("srm-turls", "srm-requests")]
