"""bbftp: its command line, and transfers with the real programs if they are installed.

The recorded outputs (``outputs/bbftp-3.3.0-11.jsonl``) are from client and server of that version. They were built from
the public sources and run over the loopback interface through a real sshd.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from callkit import call_with, execute, transfer_argv
from farm import Farm

from venturi.mover import BUILT_IN, OptionError

BBFTP = BUILT_IN["bbftp"]
CONTENT = os.urandom(300_001)


def script_of(**options):
    return call_with(BBFTP, **options).argv[2]


def output(source, destination, environment=None, **options):
    """Return the arguments with which the real ``sh`` starts ``bbftp``, from a program in its place."""
    argv = transfer_argv(call_with(BBFTP, **options), source, destination, 1)
    argv[2] = argv[2].replace("exec bbftp", "exec printf '%s\\n'")
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], **(environment or {})}
    )
    return done.stdout.splitlines() if done.returncode == 0 else done.stderr


def test_the_commands_of_a_download_and_an_upload_follow_the_bbftp_manual():
    down = output("ssh://a.lab.test:2222/data/f", "/here/f", streams=4, window="128 KiB", block="1 MiB")
    assert down == [
        "-m", "-r", "1", "-E", "bbftpd -s", "-L", "ssh -q -o BatchMode=yes  -p 2222", "-e",
        "setnbstream 4;setbuffersize 1024;setsendwinsize 128;setrecvwinsize 128;get /data/f /here/f", "a.lab.test",
    ]  # fmt: skip
    up = output("/here/f", "ssh://user@a.lab.test/data/f", {"VENTURI_SSH_CONFIG": "/lab/ssh"}, gzip=True)
    assert up == [
        "-m", "-r", "1", "-E", "bbftpd -s", "-u", "user", "-L", "ssh -q -o BatchMode=yes -F /lab/ssh ", "-e",
        "setoption gzip;put /here/f /data/f", "a.lab.test",
    ]  # fmt: skip


def test_a_port_range_applies_to_the_server_or_to_the_client_of_an_active_server():
    assert '-E "bbftpd -s -e 5030:5059"' in script_of(ports="5030:5059")
    assert '-D5030:5059 -E "bbftpd -s"' in script_of(ports="5030:5059", active=True)
    assert '-D -E "bbftpd -s"' in script_of(active=True)


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [("ssh://a/f", "ssh://b/f", "one local file, found two servers"), ("/f", "/g", "one server, found /f and /g"),
     ("ssh://a/f", "/dev/null", "which bbftp would replace"), ("/f", "ssh://a//dev/null", "which bbftp would replace"),
     ("/a file", "ssh://a/f", "paths without blanks"), ("/a;b", "ssh://a/f", "paths without blanks and semicolons")],
)  # fmt: skip
def test_unsupported_endpoints_are_rejected_before_bbftp_starts(source, destination, message):
    assert message in output(source, destination)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"window": "1000 B"}, "a window of whole KiB, found 1000 B"), ({"block": "100 kB"}, "a block of whole KiB"),
     ({"ports": "5000"}, "expected ports from 1024 to 65535"), ({"ports": "6000:5000"}, "found \"6000:5000\""),
     ({"server": 'x "y"'}, "without quotes")],
)  # fmt: skip
def test_unsupported_option_values_are_rejected_with_a_message(options, message):
    with pytest.raises(OptionError, match=message):
        call_with(BBFTP, **options)


MOVES = [("get", {}), ("put", {}), ("put", {"streams": 3, "window": "128 KiB", "block": "64 KiB", "ports": "5030:5049"}),
         ("get", {"streams": 2, "active": True}), ("get", {"gzip": True})]  # fmt: skip


@pytest.mark.skipif(
    shutil.which("bbftp") is None or shutil.which("bbftpd") is None,
    reason="bbftp and bbftpd are not installed (no Debian package)",
)
@pytest.mark.parametrize(("direction", "options"), MOVES, ids=str)
def test_bbftp_and_bbftpd_transfer_every_byte(direction, options):
    farm = Farm()
    try:
        source, destination = farm.data / "source", farm.data / "destination"
        source.write_bytes(CONTENT)
        ends = (
            (farm.url("ssh", source), destination) if direction == "get" else (source, farm.url("ssh", destination))
        )
        server = f"{shutil.which('bbftpd')} -s"
        argv = transfer_argv(call_with(BBFTP, server=server, **options), *ends, len(CONTENT))
        record = execute(argv, environment=farm.environment)
        assert record["outcome"] == "ok", record
        assert destination.read_bytes() == CONTENT
        assert BBFTP.parse(record).bytes == len(CONTENT)
    finally:
        farm.close()
