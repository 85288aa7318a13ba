"""Evidence from servers and control connections about a run, from hand-made events."""

import pytest

from testkit import call_of, tiny_trials, transfer_record, trial_record, write_plan
from venturi.analysis import analyse
from venturi.analysis.control import control_sessions
from venturi.analysis.run_columns import load_run_columns
from venturi.analysis.servers import server_counts
from venturi.mover import ToolReport
from venturi.run import Run, RunWriter

SIZE = 100_000


@pytest.fixture
def run_with(tmp_path):
    """Return a function that writes a run of two uploads through a service port, with the given events."""

    def write(events):
        calls = {"put": call_of(["put", "{source}", "{destination}"])}
        plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(2, call="put"), calls=calls)
        with RunWriter.create(tmp_path / "runs", plan, backend="lab") as run:
            run.start_session({"node1": {}})
            for number in range(2):
                trial = f"t{number:07d}"
                moved = transfer_record(trial, call="put", source_via="out/ftp", destination_via="in/ftp",
                                        start_s=1.0 + number, end_s=1.5 + number)  # fmt: skip
                run.trial(trial_record(trial, transfers=[moved], start_s=1.0 + number, end_s=1.5 + number), "node1")
            for event in events:
                run.event(event, "node1")
            run.finish("complete")
        return Run.open(run.path)

    return write


def logged(endpoint, size, command="STOR", service="in", code="226", start_s=1.1):
    """Return the event of a transfer that a server logged."""
    detail = {"service": service, "endpoint": endpoint, "file_bytes": size, "command": command, "code": code,
              "start_s": start_s, "end_s": start_s + 0.1}  # fmt: skip
    return {"time_s": start_s + 0.1, "kind": "server-transfer", "detail": detail}


@pytest.mark.parametrize(
    ("events", "compared", "wrong"),
    [
        ([], 0, 0),
        ([logged("data:out/t0000000", SIZE), logged("data:out/t0000001", SIZE)], 2, 0),
        ([logged("data:out/t0000000", SIZE - 1), logged("data:out/t0000001", SIZE)], 2, 1),
        ([logged("data:out/t0000000", SIZE + 1)], 1, 1),
        # Resent after an abort: the total is between the successful part and the sum.
        ([logged("data:out/t0000000", 60_000), logged("data:out/t0000000", 70_000, code="426")], 1, 0),
        ([logged("data:out/t0000000", 60_000), logged("data:out/t0000000", 10_000, code="426")], 1, 1),
        # Both transfers read the same source file; each counts in its own time.
        ([logged("data:set/000000", SIZE, "RETR", "out", start_s=s) for s in (1.1, 2.1)], 2, 0),
        ([logged("data:set/000000", SIZE - 1, "RETR", "out", start_s=2.1)], 1, 1),
        # Another server, another file, or no bytes of the file: not comparable.
        ([logged("data:out/t0000000", 1, service="out"), logged("data:out/t0000009", 1), logged("data:set/000001", 1, "RETR", "out")],
         0, 0),
        ([logged("data:out/t0000000", None)], 0, 0),
    ],
)  # fmt: skip
def test_server_counts_are_compared_with_receiver_counts(run_with, events, compared, wrong):
    with run_with(events) as run:
        counts = server_counts(run)
        assert (counts.compared, counts.disagreeing) == (compared, wrong)
        codes = [finding.code for finding in analyse(run).findings]
        assert ("server-disagrees" in codes) is bool(wrong)


def test_concurrent_readers_of_one_file_are_not_compared_with_server_replies(tmp_path):
    plan = write_plan(
        tmp_path / "plan.jsonl",
        tiny_trials(3, call="put"),
        calls={"put": call_of(["put", "{source}", "{destination}"])},
    )
    with RunWriter.create(tmp_path / "runs", plan, backend="lab") as run:
        run.start_session({"node1": {}})
        # The first two overlap, so each would get the replies of both. The third is alone.
        for number, (start_s, end_s) in enumerate([(1.0, 1.5), (1.2, 1.7), (2.0, 2.5)]):
            trial = f"t{number:07d}"
            moved = transfer_record(trial, call="put", source_via="out/ftp", start_s=start_s, end_s=end_s)
            run.trial(trial_record(trial, transfers=[moved], start_s=start_s, end_s=end_s), "node1")
            run.event(logged("data:set/000000", SIZE, "RETR", "out", start_s=start_s + 0.25), "node1")
        run.finish("complete")
    with Run.open(run.path) as found:
        counts = server_counts(found)
        assert (counts.compared, counts.disagreeing) == (1, 0)


def reading_run(base, options, replies, *, requested_bytes=SIZE, counted=None):
    """Write a run of readers in sequence, with the replies of the server that has the file."""
    call = call_of(["get", "{source}", "{destination}"], options=options)
    plan = write_plan(base / "plan.jsonl", tiny_trials(len(replies), call="get"), calls={"get": call})
    with RunWriter.create(base / "runs", plan, backend="lab", parse=lambda call, record: ToolReport(counted)) as run:
        run.start_session({"node1": {}})
        for number, sizes in enumerate(replies):
            trial, start_s = f"t{number:07d}", 1.0 + number
            moved = transfer_record(trial, call="get", source_via="out/http", destination="null:", received_bytes=None,
                                    requested_bytes=requested_bytes, start_s=start_s, end_s=start_s + 0.5, stdout="")  # fmt: skip
            run.trial(trial_record(trial, transfers=[moved], start_s=start_s, end_s=start_s + 0.5), "node1")
            for size in sizes:
                run.event(logged("data:set/000000", size, "GET", "out", code="200", start_s=start_s + 0.1), "node1")
        run.finish("complete")
    return Run.open(run.path)


@pytest.mark.parametrize(
    ("options", "compared", "wrong"), [({}, 2, 1), ({"proxy": None}, 2, 1), ({"proxy": "http://s:3128"}, 0, 0)]
)
def test_replies_of_an_origin_are_compared_with_readers_only_without_a_proxy(tmp_path, options, compared, wrong):
    # A proxy requests the whole object first, then only its rest, and then it has the object.
    with reading_run(tmp_path, options, [[SIZE], [SIZE // 2], []]) as run:
        counts = server_counts(run)
    assert (counts.compared, counts.disagreeing) == (compared, wrong)


@pytest.mark.parametrize(("counted", "wrong"), [(3 * SIZE, 0), (2 * SIZE, 1)])
def test_the_bytes_of_a_timed_mover_are_those_counted_by_the_tool(tmp_path, counted, wrong):
    with reading_run(tmp_path, {}, [[SIZE] * 3], requested_bytes=0, counted=counted) as run:
        counts = server_counts(run)
        assert (counts.compared, counts.disagreeing) == (1, wrong)
        assert list(load_run_columns(run).trial_bytes) == [counted]


@pytest.mark.parametrize(("requested_bytes", "counted"), [(SIZE, 3 * SIZE), (0, None)])
def test_the_requested_bytes_of_a_mover_count_regardless_of_the_tool_report(tmp_path, requested_bytes, counted):
    with reading_run(tmp_path, {}, [[]], requested_bytes=requested_bytes, counted=counted) as run:
        assert list(load_run_columns(run).trial_bytes) == [requested_bytes]


def test_a_disagreement_is_reported_with_both_numbers(run_with):
    with run_with([logged("data:out/t0000001", 90_000)]) as run:
        (finding,) = [finding for finding in analyse(run).findings if finding.code == "server-disagrees"]
    assert finding.subject == "in"
    assert "at data:out/t0000001, in logged 90 kB, but 100 kB were delivered" in finding.evidence


def printed(texts, *, seen="wire", session=0, start_s=1.1):
    """Return the events of a control connection: ``>`` is from the client, ``<`` from the server, ``.`` is a note."""
    direction = {">": "client", "<": "server", ".": "note"}
    return [
        {"time_s": start_s + 0.01 * number, "kind": "control",
         "detail": {"service": "in", "session": session, "number": 100 * session + number, "client": f"10.0.0.1:{session}",
                    "direction": direction[text[0]], "line": text[1:], "seen": seen}}
        for number, text in enumerate(texts)
    ]  # fmt: skip


LOGIN = [">USER anonymous", "<331 Password required.", ">PASS x", "<230 Logged in."]
PIPELINED = [
    ">PASV",
    "<227 Entering",
    ">RETR a",
    ">RETR b",
    "<150 Open",
    "<226 Done",
    ">RETR c",
    "<226 Done",
    "<226 Done",
]
IN_TURN = [">PASV", "<227 Entering", ">RETR a", "<226 Done", ">PASV", "<227 Entering", ">RETR b", "<550 No such file"]


def test_sessions_report_outstanding_commands_and_data_connections(run_with):
    events = printed(LOGIN + PIPELINED) + printed(LOGIN + IN_TURN, session=1, start_s=2.1)
    with run_with(events) as run:
        first, second = control_sessions(run)
        one, other = analyse(run).sessions
    assert (first.trial, first.most_outstanding, first.data_channels, first.transfers, first.logins) == (
        "t0000000", 2, 1, 3, 1)  # fmt: skip
    assert (second.trial, second.most_outstanding, second.data_channels, second.transfers) == ("t0000001", 1, 2, 2)
    assert (first.commands, first.replies) == (6, 7)
    assert [(s.service, s.point, s.sessions, s.transfers, s.most_outstanding) for s in (one, other)] == [
        ("in", 0, 1, 3, 2), ("in", 1, 1, 2, 1)]  # fmt: skip


def test_connections_without_a_point_come_before_point_zero(run_with):
    events = [
        event
        for number, start_s in enumerate((1.1, 1.7, 2.1))  # the second one starts between the trials
        for event in printed(LOGIN + IN_TURN, session=number, start_s=start_s)
    ]
    with run_with(events) as run:
        assert [row.point for row in analyse(run).sessions] == [None, 0, 1]


def test_a_server_log_gives_the_user_and_no_outstanding_commands(run_with):
    login = [
        *LOGIN[:3],
        ".DN /O=Venturi/CN=Lab User successfully authorized.",
        ".User root successfully authorized.",
        LOGIN[3],
    ]
    with run_with(printed(login + PIPELINED, seen="log")) as run:
        (session,) = control_sessions(run)
    assert (session.user, session.most_outstanding, session.trial, session.data_channels) == ("root", None, None, 1)


def test_a_probe_of_the_server_is_not_a_session(run_with):
    with run_with(printed([">USER anonymous", "<331 Password required.", ">QUIT", "<221 Bye."])) as run:
        assert control_sessions(run) == []
