"""Commands in flight to a GridFTP server, as captured by ``tcpdump`` at the server."""

import os
import signal
import statistics

import pytest
from bare import check_nothing_left, lacking, make_open

from gridftpkit import sessions
from testkit import wait_until
from venturi.testbed.capture import captured_sessions
from venturi.testbed.services.gridftp import control_log

FILES = 40


@pytest.fixture(scope="module")
def moved(lab):
    """Captured and logged sessions at the source server, for third-party copies of a directory in four modes."""
    reason = lacking("gridftp") or (None if os.access("/usr/bin/tcpdump", os.X_OK) else "not installed: tcpdump")
    if reason:
        pytest.skip(reason)
    storage = lab.storage("disk")
    names = [f"{number:06}" for number in range(FILES)]
    for directory in ("from", "to"):
        make_open(storage / directory)
    for name in names:
        (storage / "from" / name).write_bytes(os.urandom(10_000))
    there, here = f"ftp://a.lab.test:2811{storage}/from/", f"ftp://b.lab.test:2811{storage}/to/"
    listed = lab.directory / "list"
    listed.write_text("".join(f"{there}{name} {here}{name}\n" for name in names))
    captured, printed = lab.directory / "captured.pcap", lab.directory / "tcpdump.out"
    source = lab.context("source", "gridftp")
    # A file takes 8 ms on this link. Without the limit, the server would reply before a delayed client sends more.
    slow = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "10mbit", "burst", "8kb", "latency", "1s"]
    shaped = lab.shells["a"].run(slow, timeout_s=30)
    assert shaped.returncode == 0, shaped.stderr
    with lab.running(source), lab.running(lab.context("sink", "gridftp", "b")):
        # The buffer of 16 MiB holds as many packets as fit, each of the maximum length of -s.
        size = ["--immediate-mode", "-U", "-B", "16384", "-s", "4096"]
        argv = ["tcpdump", "-Z", "root", *size, "-i", "eth0", "-w", str(captured), "tcp", "port", "2811"]
        tcpdump = lab.shells["a"].start(argv, log=printed)
        wait_until(lambda: "listening on" in printed.read_text(), "tcpdump to listen")
        directories = ["-r", there, here]
        for options in (
            ["-f", str(listed)],
            ["-fast", *directories],
            ["-fast", "-pp", "-f", str(listed)],
            ["-fast", "-pp", *directories],
        ):
            done = lab.run("c", "globus-url-copy", *options)
            assert done.returncode == 0, done.stderr
        tcpdump.stop(signal=signal.SIGINT)
    check_nothing_left(lab)
    assert "\n0 packets dropped by kernel" in printed.read_text()
    logged = [session for session in sessions(control_log(source).read_text()) if session.transfers]
    return captured_sessions([captured], 2811), logged


def test_a_pipelining_client_has_many_outstanding_commands_and_others_have_one(moved):
    captured, _ = moved
    plain, fast, pipelined_list, pipelined = captured
    assert (plain.max_outstanding, fast.max_outstanding) == (1, 1)
    # globus-url-copy pipelines directories, but never lists of files.
    assert pipelined_list.max_outstanding == 1
    assert pipelined.max_outstanding > 5


def test_the_server_log_has_the_same_commands_as_the_capture(moved):
    captured, logged = moved
    for seen, output in zip(captured, logged, strict=True):
        requested = [[event.text for event in one.events if event.verb == "RETR" and event.direction == "client"]
                 for one in (seen, output)]  # fmt: skip
        assert len(requested[0]) == FILES
        assert requested[0] == requested[1]
        assert seen.data_channels == output.data_channels
    # One per file; one for the listing and one for the data; one; again two.
    assert [output.data_channels for output in logged] == [FILES, 2, 1, 2]


def test_pauses_between_transfers_are_shorter_with_pipelining(moved):
    _, logged = moved
    _, fast, _, pipelined = [statistics.median(output.pauses_s) for output in logged]
    assert 0 <= pipelined < fast
