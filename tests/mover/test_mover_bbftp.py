"""bbftp, as it is told, and with the real programs where they are.

The recorded outputs (``outputs/bbftp-3.3.0-11.jsonl``) are those of client and server of the public sources of that version, which
were built beside the project and used over the loopback interface through a real sshd.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from callkit import call_with, carry_out, transfer_argv
from farm import Farm

from venturi.mover import BUILT_IN, OptionError

BBFTP = BUILT_IN["bbftp"]
CONTENT = os.urandom(300_001)


def script_of(**options):
    return call_with(BBFTP, **options).argv[2]


def told(source, destination, environment=None, **options):
    """Return what a program in place of ``bbftp`` is started with, by the real ``sh``."""
    argv = transfer_argv(call_with(BBFTP, **options), source, destination, 1)
    argv[2] = argv[2].replace("exec bbftp", "exec printf '%s\\n'")
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], **(environment or {})}
    )
    return done.stdout.splitlines() if done.returncode == 0 else done.stderr


def test_a_download_and_an_upload_are_told_as_the_manual_wants():
    down = told("ssh://a.lab.test:2222/data/f", "/here/f", streams=4, window="128 KiB", block="1 MiB")
    assert down == [
        "-m", "-r", "1", "-E", "bbftpd -s", "-L", "ssh -q -o BatchMode=yes  -p 2222", "-e",
        "setnbstream 4;setbuffersize 1024;setsendwinsize 128;setrecvwinsize 128;get /data/f /here/f", "a.lab.test",
    ]  # fmt: skip
    up = told("/here/f", "ssh://user@a.lab.test/data/f", {"VENTURI_SSH_CONFIG": "/lab/ssh"}, gzip=True)
    assert up == [
        "-m", "-r", "1", "-E", "bbftpd -s", "-u", "user", "-L", "ssh -q -o BatchMode=yes -F /lab/ssh ", "-e",
        "setoption gzip;put /here/f /data/f", "a.lab.test",
    ]  # fmt: skip


def test_a_range_of_ports_is_the_servers_or_with_an_active_server_the_clients():
    assert '-E "bbftpd -s -e 5030:5059"' in script_of(ports="5030:5059")
    assert '-D5030:5059 -E "bbftpd -s"' in script_of(ports="5030:5059", active=True)
    assert '-D -E "bbftpd -s"' in script_of(active=True)


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [("ssh://a/f", "ssh://b/f", "one end on this host, found servers at both"), ("/f", "/g", "a server at one end"),
     ("ssh://a/f", "/dev/null", "which it would replace"), ("/f", "ssh://a//dev/null", "which it would replace"),
     ("/a file", "ssh://a/f", "paths without blanks"), ("/a;b", "ssh://a/f", "paths without blanks and semicolons")],
)  # fmt: skip
def test_ends_that_it_cannot_have_are_refused_before_it_starts(source, destination, message):
    assert message in told(source, destination)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"window": "1000 B"}, "a window of whole KiB, found 1000 B"), ({"block": "100 kB"}, "a block of whole KiB"),
     ({"ports": "5000"}, "expected ports from 1024 to 65535"), ({"ports": "6000:5000"}, "found \"6000:5000\""),
     ({"server": 'x "y"'}, "without quotes")],
)  # fmt: skip
def test_options_that_it_has_no_way_to_be_told_are_refused_with_a_sentence(options, message):
    with pytest.raises(OptionError, match=message):
        call_with(BBFTP, **options)


MOVES = [("get", {}), ("put", {}), ("put", {"streams": 3, "window": "128 KiB", "block": "64 KiB", "ports": "5030:5049"}),
         ("get", {"streams": 2, "active": True}), ("get", {"gzip": True})]  # fmt: skip


@pytest.mark.skipif(
    shutil.which("bbftp") is None or shutil.which("bbftpd") is None,
    reason="bbftp and bbftpd are not installed (no Debian package)",
)
@pytest.mark.parametrize(("way", "options"), MOVES, ids=str)
def test_the_real_programs_move_every_byte(way, options):
    farm = Farm()
    try:
        source, destination = farm.data / "source", farm.data / "destination"
        source.write_bytes(CONTENT)
        ends = (farm.url("ssh", source), destination) if way == "get" else (source, farm.url("ssh", destination))
        server = f"{shutil.which('bbftpd')} -s"
        argv = transfer_argv(call_with(BBFTP, server=server, **options), *ends, len(CONTENT))
        record = carry_out(argv, environment=farm.environment)
        assert record["outcome"] == "ok", record
        assert destination.read_bytes() == CONTENT
        assert BBFTP.parse(record).bytes == len(CONTENT)
    finally:
        farm.close()
