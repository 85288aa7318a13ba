"""Logs of real GridFTP servers (tests/data/gridftp), and what is read from them."""

import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridftpkit import logins, messages, records, sessions
from venturi.mover.base import OutputError
from venturi.testbed.trace import Session, read_control

LOGS = Path(__file__).parents[1] / "data" / "gridftp"


def text(name):
    return (LOGS / name).read_text(encoding="utf-8")


def sessions_of(name):
    return sessions(text(f"{name}.control.log"))


def session(*spoken):
    """A session of our own: pairs of who and what, a second apart."""
    head = "[7] Sun Nov 22 01:02:{:02} 2026 :: "
    lines = [head.format(0) + "New connection from: b.lab.test:4000\n"]
    said = [("S", "230 User anonymous logged in."), *spoken]
    for second, (who, what) in enumerate(said, 1):
        lines.append(f"{head.format(second)}b.lab.test:4000: [{'CLIENT' if who == 'C' else 'SERVER'}]: {what}\n")
    (found,) = sessions("".join(lines))
    return found


def test_sessions_are_found_with_their_logins_transfers_and_data_channels():
    ready, one, failed, plain, pipelined = sessions_of("anonymous")
    assert ready.authentication is None
    assert [login.user for login in logins(sessions_of("anonymous"))] == ["anonymous"] * 4
    assert [len(found.transfers) for found in (ready, one, failed, plain, pipelined)] == [0, 1, 0, 20, 20]
    # Without -fast each file has a data channel of its own, with it all have one.
    assert [found.data_channels for found in (one, plain, pipelined)] == [1, 20, 1]
    assert len(plain.pauses_s) == 19
    assert all(pause > 0 for pause in plain.pauses_s)


def test_the_transfers_of_sessions_are_those_of_the_transfer_log():
    told = [transfer for found in sessions_of("anonymous") for transfer in found.transfers]
    assert told == records(text("anonymous.transfer.log"))
    first = told[0]
    assert (first.kind, first.bytes, first.streams, first.stripes, first.code) == ("RETR", 40_000_000, 4, 1, 226)
    assert (first.peers, first.retransmits) == (("10.77.0.2",), (0, 0, 0, 0))
    assert (first.path, first.buffer_bytes, first.block_bytes) == ("/lab/a/disk/one", 131_072, 262_144)
    assert 0 < first.duration_s < 1


def test_a_receiver_whose_sender_was_killed_logs_success_and_fewer_bytes():
    broken, rest = (transfer for transfer in records(text("broken.transfer.log")) if transfer.path == "/lab/B/k3")
    assert (broken.kind, broken.code, broken.bytes) == ("STOR", 226, 77_613_543)  # of 100 MB
    assert (rest.kind, rest.code, rest.bytes) == ("ESTO", 226, 40_231_168)  # sent again from the last mark on


def test_a_login_with_a_certificate_has_its_subject_and_an_expired_one_is_none():
    assert [(login.subject, login.user) for login in logins(sessions_of("gsi"))] == [
        ("/O=Venturi/CN=Lab User", "root")
    ] * 2
    assert len(sessions_of("gsi")) == 4


def test_messages_of_several_lines_and_without_a_line_end_are_kept_apart():
    events = messages(text("striped.control.log"))
    passive = next(event for event in events if event.text.startswith("229"))
    assert passive.verb == "229"
    assert len(passive.text.splitlines()) == 4
    assert any(event.text == "User anonymous successfully authorized." for event in events)


def test_times_are_those_of_the_transfers():
    (found,) = [found for found in sessions_of("striped") if found.transfers]
    (moved,) = found.transfers
    assert found.events[0].time_s - 1 <= moved.start_s <= found.events[-1].time_s + 1


def test_the_server_takes_up_one_command_at_a_time_pipelined_or_not():
    assert [found.most_outstanding for found in sessions_of("anonymous")] == [0, 1, 1, 1, 1]


def test_commands_without_a_reply_are_counted_where_a_log_shows_them():
    found = session(
        ("C", "RETR /a"), ("C", "RETR /b"), ("S", "150 Begin"), ("C", "NOOP"), ("S", "226 Done"),
        ("S", "150 Begin"), ("C", "STOR /c"), ("S", "226 Done"), ("S", "200 NOOP"), ("S", "500-No.\n500 End."),
    )  # fmt: skip
    begin_s = found.events[1].time_s
    assert [(time_s - begin_s, number) for time_s, number in found.outstanding()] == [
        (1, 1), (2, 2), (5, 1), (7, 2), (8, 1), (10, 0),
    ]  # fmt: skip
    assert found.most_outstanding == 2


def test_a_process_number_that_is_used_again_is_another_session():
    once = text("gsi.control.log")
    assert len(sessions(once + once)) == 2 * len(sessions(once))


def test_a_line_that_is_still_being_written_is_left_out():
    whole = text("anonymous.transfer.log")
    assert len(records(whole[:-20])) == len(records(whole)) - 1


@pytest.mark.parametrize("line", ["DATE=now\n", "DATE=20261341010101.5 HOST=a\n", "hello\n"])
def test_a_line_of_another_form_is_refused_and_kept(line):
    with pytest.raises(OutputError) as raised:
        records(line)
    assert raised.value.text == line


def test_a_time_that_cannot_be_is_refused():
    line = text("gsi.transfer.log").splitlines(keepends=True)[0].replace("DATE=2026", "DATE=20269")
    with pytest.raises(OutputError, match="a time as YYYYMMDDhhmmss"):
        records(line)


def test_file_names_with_spaces_are_whole():
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
    """A log that is read so many characters at a time."""

    def __init__(self, log, chars):
        self.log, self.chars = io.StringIO(log), chars

    def read(self, _):
        return self.log.read(self.chars)


@given(LOG, st.integers(1, 50))
def test_how_much_of_a_log_is_read_at_a_time_makes_no_difference(log, chars):
    assert list(read_control(InParts(log, chars))) == messages(log)


def test_no_more_than_a_part_of_a_log_is_held():
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
def test_no_text_makes_the_reader_of_control_logs_fail(anything):
    for found in sessions(anything):
        assert isinstance(found, Session)
        assert found.most_outstanding >= 0
        assert found.data_channels >= 0
