"""Logs of real GridFTP servers (tests/data/gridftp), and the values read from them."""

import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridftpkit import logins, messages, records, sessions
from venturi.mover.base import OutputError
from venturi.testbed.gridftp_log import Session, read_control

LOGS = Path(__file__).parents[1] / "data" / "gridftp"


def text(name):
    return (LOGS / name).read_text(encoding="utf-8")


def sessions_of(name):
    return sessions(text(f"{name}.control.log"))


def session(*spoken):
    """Return a synthetic session from pairs of speaker and text, at intervals of one second."""
    head = "[7] Sun Nov 22 01:02:{:02} 2026 :: "
    lines = [head.format(0) + "New connection from: b.lab.test:4000\n"]
    printed = [("S", "230 User anonymous logged in."), *spoken]
    for second, (who, what) in enumerate(printed, 1):
        lines.append(f"{head.format(second)}b.lab.test:4000: [{'CLIENT' if who == 'C' else 'SERVER'}]: {what}\n")
    (found,) = sessions("".join(lines))
    return found


def test_sessions_have_their_logins_transfers_and_data_connections():
    ready, one, failed, plain, pipelined = sessions_of("anonymous")
    assert ready.authentication is None
    assert [login.user for login in logins(sessions_of("anonymous"))] == ["anonymous"] * 4
    assert [len(found.transfers) for found in (ready, one, failed, plain, pipelined)] == [0, 1, 0, 20, 20]
    # Without -fast, each file has its own data connection; with -fast, all files share one.
    assert [found.data_channels for found in (one, plain, pipelined)] == [1, 20, 1]
    assert len(plain.pauses_s) == 19
    assert all(pause > 0 for pause in plain.pauses_s)


def test_session_transfers_match_the_transfer_log():
    output = [transfer for found in sessions_of("anonymous") for transfer in found.transfers]
    assert output == records(text("anonymous.transfer.log"))
    first = output[0]
    assert (first.kind, first.bytes, first.streams, first.stripes, first.code) == ("RETR", 40_000_000, 4, 1, 226)
    assert (first.peers, first.retransmits) == (("10.77.0.2",), (0, 0, 0, 0))
    assert (first.path, first.buffer_bytes, first.block_bytes) == ("/lab/a/disk/one", 131_072, 262_144)
    assert 0 < first.duration_s < 1


def test_a_receiver_whose_sender_was_killed_logs_success_and_fewer_bytes():
    broken, rest = (transfer for transfer in records(text("broken.transfer.log")) if transfer.path == "/lab/B/k3")
    assert (broken.kind, broken.code, broken.bytes) == ("STOR", 226, 77_613_543)  # of 100 MB
    assert (rest.kind, rest.code, rest.bytes) == ("ESTO", 226, 40_231_168)  # sent again from the last marker


def test_a_certificate_login_has_its_subject_and_an_expired_certificate_has_no_login():
    assert [(login.subject, login.user) for login in logins(sessions_of("gsi"))] == [
        ("/O=Venturi/CN=Lab User", "root")
    ] * 2
    assert len(sessions_of("gsi")) == 4


def test_multi_line_and_unterminated_messages_are_separated():
    events = messages(text("striped.control.log"))
    passive = next(event for event in events if event.text.startswith("229"))
    assert passive.verb == "229"
    assert len(passive.text.splitlines()) == 4
    assert any(event.text == "User anonymous successfully authorized." for event in events)


def test_session_times_agree_with_the_transfer_log():
    (found,) = [found for found in sessions_of("striped") if found.transfers]
    (moved,) = found.transfers
    assert found.events[0].time_s - 1 <= moved.start_s <= found.events[-1].time_s + 1


def test_the_server_processes_one_command_at_a_time_even_with_pipelining():
    assert [found.max_outstanding for found in sessions_of("anonymous")] == [0, 1, 1, 1, 1]


def test_outstanding_commands_are_counted_over_time():
    found = session(
        ("C", "RETR /a"), ("C", "RETR /b"), ("S", "150 Begin"), ("C", "NOOP"), ("S", "226 Done"),
        ("S", "150 Begin"), ("C", "STOR /c"), ("S", "226 Done"), ("S", "200 NOOP"), ("S", "500-No.\n500 End."),
    )  # fmt: skip
    started_s = found.events[1].time_s
    assert [(time_s - started_s, number) for time_s, number in found.outstanding()] == [
        (1, 1), (2, 2), (5, 1), (7, 2), (8, 1), (10, 0),
    ]  # fmt: skip
    assert found.max_outstanding == 2


def test_a_reused_process_id_starts_a_new_session():
    once = text("gsi.control.log")
    assert len(sessions(once + once)) == 2 * len(sessions(once))


def test_an_incomplete_last_line_is_ignored():
    whole = text("anonymous.transfer.log")
    assert len(records(whole[:-20])) == len(records(whole)) - 1


@pytest.mark.parametrize("line", ["DATE=now\n", "DATE=20261341010101.5 HOST=a\n", "hello\n"])
def test_a_malformed_line_is_rejected_and_its_text_is_kept(line):
    with pytest.raises(OutputError) as raised:
        records(line)
    assert raised.value.text == line


def test_an_invalid_time_is_rejected():
    line = text("gsi.transfer.log").splitlines(keepends=True)[0].replace("DATE=2026", "DATE=20269")
    with pytest.raises(OutputError, match="a time as YYYYMMDDhhmmss"):
        records(line)


def test_file_names_with_spaces_are_read_completely():
    line = text("gsi.transfer.log").splitlines(keepends=True)[0].replace("/disk/one", "/disk/o n e")
    assert records(line)[0].path == "/lab/a/disk/o n e"


HEADS = st.sampled_from(
    [
        "[7] Sun Nov 22 01:02:01 2026 :: ",
        "[7] Sun Nov 99 01:02:01 2026 :: ",
        "[7] Abc Def 22 01:02:01 0000 :: ",
        "[7] ",
    ]
)
WORDS = st.sampled_from(
    [
        "New connection from: b:1\n",
        "b:1: [CLIENT]: ",
        "b:1: [SERVER]: ",
        "RETR /a\n",
        "226 Done\n",
        "230 In\n",
        "PASV\n",
    ]
)


LOG = st.lists(st.one_of(HEADS, WORDS, st.text(max_size=8))).map("".join)


class InParts:
    """A log that returns a limited number of characters per read."""

    def __init__(self, log, chars):
        self.log, self.chars = io.StringIO(log), chars

    def read(self, _):
        return self.log.read(self.chars)


@given(LOG, st.integers(1, 50))
def test_the_read_size_does_not_change_the_messages_of_a_log(log, chars):
    assert list(read_control(InParts(log, chars))) == messages(log)


def test_a_log_is_read_without_loading_it_completely():
    log = text("anonymous.control.log")

    class Long:
        left = 200

        def read(self, _):
            self.left -= 1
            return log if self.left >= 0 else ""

    tracemalloc.start()
    count = sum(1 for _ in read_control(Long()))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200 * len(messages(log))
    assert most_bytes < 200 * len(log) / 10


@given(LOG)
def test_the_control_log_reader_accepts_arbitrary_text_without_an_exception(anything):
    for found in sessions(anything):
        assert isinstance(found, Session)
        assert found.max_outstanding >= 0
        assert found.data_channels >= 0
