"""What clients have on their way to a GridFTP server, seen by the server's kernel: ``tcpdump`` beside the server."""

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
    """Sessions at the source server, captured and logged, of third-party copies of a folder in four ways."""
    reason = lacking("gridftp") or (None if os.access("/usr/bin/tcpdump", os.X_OK) else "not installed: tcpdump")
    if reason:
        pytest.skip(reason)
    place = lab.place("disk")
    names = [f"{number:06}" for number in range(FILES)]
    for folder in ("from", "to"):
        make_open(place / folder)
    for name in names:
        (place / "from" / name).write_bytes(os.urandom(10_000))
    there, here = f"ftp://a.lab.test:2811{place}/from/", f"ftp://b.lab.test:2811{place}/to/"
    listed = lab.folder / "list"
    listed.write_text("".join(f"{there}{name} {here}{name}\n" for name in names))
    captured, said = lab.folder / "captured.pcap", lab.folder / "tcpdump.out"
    source = lab.room("source", "gridftp")
    # A file takes this link 8 ms: a server that is as fast as memory has answered before a client that is held up sends more.
    slow = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "10mbit", "burst", "8kb", "latency", "1s"]
    shaped = lab.machines["a"].run(slow, timeout_s=30)
    assert shaped.returncode == 0, shaped.stderr
    with lab.running(source), lab.running(lab.room("sink", "gridftp", "b")):
        # Its buffer holds as many packets as 16 MiB have room for, each as long as -s allows.
        size = ["--immediate-mode", "-U", "-B", "16384", "-s", "4096"]
        argv = ["tcpdump", "-Z", "root", *size, "-i", "eth0", "-w", str(captured), "tcp", "port", "2811"]
        tcpdump = lab.machines["a"].start(argv, log=said)
        wait_until(lambda: "listening on" in said.read_text(), "tcpdump to listen")
        folders = ["-r", there, here]
        for options in (
            ["-f", str(listed)],
            ["-fast", *folders],
            ["-fast", "-pp", "-f", str(listed)],
            ["-fast", "-pp", *folders],
        ):
            done = lab.run("c", "globus-url-copy", *options)
            assert done.returncode == 0, done.stderr
        tcpdump.stop(signal=signal.SIGINT)
    check_nothing_left(lab)
    assert "\n0 packets dropped by kernel" in said.read_text()
    logged = [session for session in sessions(control_log(source).read_text()) if session.transfers]
    return captured_sessions([captured], 2811), logged


def test_a_client_that_pipelines_has_many_commands_outstanding_and_others_one(moved):
    captured, _ = moved
    plain, fast, pipelined_list, pipelined = captured
    assert (plain.most_outstanding, fast.most_outstanding) == (1, 1)
    # globus-url-copy pipelines a folder, not a list of files, whatever it is asked for.
    assert pipelined_list.most_outstanding == 1
    assert pipelined.most_outstanding > 5


def test_the_log_of_the_server_tells_of_the_same_commands(moved):
    captured, logged = moved
    for seen, told in zip(captured, logged, strict=True):
        asked = [[event.text for event in one.events if event.verb == "RETR" and event.direction == "client"]
                 for one in (seen, told)]  # fmt: skip
        assert len(asked[0]) == FILES
        assert asked[0] == asked[1]
        assert seen.data_channels == told.data_channels
    # One a file; one for the listing and one for the data; one; again two.
    assert [told.data_channels for told in logged] == [FILES, 2, 1, 2]


def test_pauses_between_transfers_are_shorter_with_pipelining(moved):
    _, logged = moved
    _, fast, _, pipelined = [statistics.median(told.pauses_s) for told in logged]
    assert 0 <= pipelined < fast
