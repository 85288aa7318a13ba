"""What servers and control channels say of a run, from hand-made events."""

import pytest

from testkit import call_of, tiny_trials, transfer_record, trial_record, write_plan
from venturi.analysis import analyse
from venturi.analysis.control import control_sessions
from venturi.analysis.measured import measure
from venturi.analysis.servers import server_counts
from venturi.mover import ToolReport
from venturi.run import Run, RunWriter

SIZE = 100_000


@pytest.fixture
def run_with(tmp_path):
    """Return a function that writes a run of two uploads through a door, and of these events."""

    def write(events):
        calls = {"put": call_of(["put", "{source}", "{destination}"])}
        plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(2, call="put"), calls=calls)
        with RunWriter.create(tmp_path / "runs", plan, backend="lab") as run:
            run.begin_session({"node1": {}})
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
        # Sent again after it broke off: between the good part and all of it.
        ([logged("data:out/t0000000", 60_000), logged("data:out/t0000000", 70_000, code="426")], 1, 0),
        ([logged("data:out/t0000000", 60_000), logged("data:out/t0000000", 10_000, code="426")], 1, 1),
        # The same source file is read by both; each counts in its own time.
        ([logged("data:set/000000", SIZE, "RETR", "out", start_s=s) for s in (1.1, 2.1)], 2, 0),
        ([logged("data:set/000000", SIZE - 1, "RETR", "out", start_s=2.1)], 1, 1),
        # Another server, another file, nothing of the file's bytes: not to be compared.
        ([logged("data:out/t0000000", 1, service="out"), logged("data:out/t0000009", 1), logged("data:set/000001", 1, "RETR", "out")],
         0, 0),
        ([logged("data:out/t0000000", None)], 0, 0),
    ],
)  # fmt: skip
def test_servers_and_receivers_are_held_against_each_other(run_with, events, compared, wrong):
    with run_with(events) as run:
        counts = server_counts(run)
        assert (counts.compared, counts.disagreeing) == (compared, wrong)
        codes = [notice.code for notice in analyse(run).notices]
        assert ("server-disagrees" in codes) is bool(wrong)


def test_readers_of_one_file_at_the_same_time_are_not_held_against_its_replies(tmp_path):
    plan = write_plan(
        tmp_path / "plan.jsonl",
        tiny_trials(3, call="put"),
        calls={"put": call_of(["put", "{source}", "{destination}"])},
    )
    with RunWriter.create(tmp_path / "runs", plan, backend="lab") as run:
        run.begin_session({"node1": {}})
        # The first two overlap: each would be given the replies of both. The third is alone.
        for number, (start_s, end_s) in enumerate([(1.0, 1.5), (1.2, 1.7), (2.0, 2.5)]):
            trial = f"t{number:07d}"
            moved = transfer_record(trial, call="put", source_via="out/ftp", start_s=start_s, end_s=end_s)
            run.trial(trial_record(trial, transfers=[moved], start_s=start_s, end_s=end_s), "node1")
            run.event(logged("data:set/000000", SIZE, "RETR", "out", start_s=start_s + 0.25), "node1")
        run.finish("complete")
    with Run.open(run.path) as found:
        counts = server_counts(found)
        assert (counts.compared, counts.disagreeing) == (1, 0)


def reading_run(base, options, replies, *, asked_bytes=SIZE, counted=None):
    """Write a run of one reader after the other, and of the replies of the server that has the file."""
    call = call_of(["get", "{source}", "{destination}"], options=options)
    plan = write_plan(base / "plan.jsonl", tiny_trials(len(replies), call="get"), calls={"get": call})
    with RunWriter.create(base / "runs", plan, backend="lab", parse=lambda call, record: ToolReport(counted)) as run:
        run.begin_session({"node1": {}})
        for number, sizes in enumerate(replies):
            trial, start_s = f"t{number:07d}", 1.0 + number
            moved = transfer_record(trial, call="get", source_via="out/http", destination="null:", received_bytes=None,
                                    asked_bytes=asked_bytes, start_s=start_s, end_s=start_s + 0.5, stdout="")  # fmt: skip
            run.trial(trial_record(trial, transfers=[moved], start_s=start_s, end_s=start_s + 0.5), "node1")
            for size in sizes:
                run.event(logged("data:set/000000", size, "GET", "out", code="200", start_s=start_s + 0.1), "node1")
        run.finish("complete")
    return Run.open(run.path)


@pytest.mark.parametrize(
    ("options", "compared", "wrong"), [({}, 2, 1), ({"proxy": None}, 2, 1), ({"proxy": "http://s:3128"}, 0, 0)]
)
def test_replies_of_an_origin_are_those_of_readers_only_without_a_proxy_between(tmp_path, options, compared, wrong):
    # As a proxy asks: once for all of the object, then for the rest of it alone, and then it has it.
    with reading_run(tmp_path, options, [[SIZE], [SIZE // 2], []]) as run:
        counts = server_counts(run)
    assert (counts.compared, counts.disagreeing) == (compared, wrong)


@pytest.mark.parametrize(("counted", "wrong"), [(3 * SIZE, 0), (2 * SIZE, 1)])
def test_who_is_asked_for_a_time_moved_what_the_tool_counted(tmp_path, counted, wrong):
    with reading_run(tmp_path, {}, [[SIZE] * 3], asked_bytes=0, counted=counted) as run:
        counts = server_counts(run)
        assert (counts.compared, counts.disagreeing) == (1, wrong)
        assert list(measure(run).trial_bytes) == [counted]


@pytest.mark.parametrize(("asked_bytes", "counted"), [(SIZE, 3 * SIZE), (0, None)])
def test_who_is_asked_for_bytes_moved_these_whatever_the_tool_says(tmp_path, asked_bytes, counted):
    with reading_run(tmp_path, {}, [[]], asked_bytes=asked_bytes, counted=counted) as run:
        assert list(measure(run).trial_bytes) == [asked_bytes]


def test_a_disagreement_is_told_with_both_numbers(run_with):
    with run_with([logged("data:out/t0000001", 90_000)]) as run:
        (notice,) = [notice for notice in analyse(run).notices if notice.code == "server-disagrees"]
    assert notice.subject == "in"
    assert "data:out/t0000001 in logged 90 kB, held are 100 kB" in notice.evidence


def said(texts, *, seen="wire", session=0, start_s=1.1):
    """Return the events of a control channel: ``>`` is said by the client, ``<`` by the server, ``.`` is a note."""
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


def test_sessions_tell_what_waited_and_what_was_opened(run_with):
    events = said(LOGIN + PIPELINED) + said(LOGIN + IN_TURN, session=1, start_s=2.1)
    with run_with(events) as run:
        first, second = control_sessions(run)
        one, other = analyse(run).sessions
    assert (first.trial, first.most_outstanding, first.data_channels, first.transfers, first.logins) == (
        "t0000000", 2, 1, 3, 1)  # fmt: skip
    assert (second.trial, second.most_outstanding, second.data_channels, second.transfers) == ("t0000001", 1, 2, 2)
    assert (first.commands, first.replies) == (6, 7)
    assert [(s.service, s.point, s.sessions, s.transfers, s.most_outstanding) for s in (one, other)] == [
        ("in", 0, 1, 3, 2), ("in", 1, 1, 2, 1)]  # fmt: skip


def test_a_log_tells_who_logged_in_and_not_what_waited(run_with):
    login = [
        *LOGIN[:3],
        ".DN /O=Venturi/CN=Lab User successfully authorized.",
        ".User root successfully authorized.",
        LOGIN[3],
    ]
    with run_with(said(login + PIPELINED, seen="log")) as run:
        (session,) = control_sessions(run)
    assert (session.user, session.most_outstanding, session.trial, session.data_channels) == ("root", None, None, 1)


def test_who_only_looked_whether_the_server_is_there_is_no_session(run_with):
    with run_with(said([">USER anonymous", "<331 Password required.", ">QUIT", "<221 Bye."])) as run:
        assert control_sessions(run) == []
