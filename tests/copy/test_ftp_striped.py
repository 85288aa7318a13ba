"""Striped Globus servers, whose data nodes share each file: every node takes part, and no byte is lost."""

import contextlib
import os
import re
import socket
import subprocess
import time

import pytest
from copykit import copy, end_of, events, leftovers
from ftpkit import Server, below, contents, digest, free_port, make_tree

from testkit import needs_programs, wait_until

pytestmark = needs_programs("globus-gridftp-server")

BYTES = 150_000_000
"""Larger than files that a single node transfers in chunks."""


@contextlib.contextmanager
def striped(directory, nodes):
    """Yield a server with data nodes; its transfer log is next to its directory."""
    ports = []
    who = ["-aa", "-no-si", "-c", "none", "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]
    if os.geteuid() == 0:
        who += ["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.ExitStack() as running:
        for _ in range(nodes):
            ports.append(port := free_port())
            node = subprocess.Popen(
                ["globus-gridftp-server", "-p", str(port), "-dn", "-auth-level", "0", *who], **quiet
            )
            running.callback(node.wait)
            running.callback(node.kill)
            until_listening(node, port)
        directory.mkdir(mode=0o777)
        directory.chmod(0o777)
        log = directory.with_suffix(".log")
        options = ["-r", ",".join(f"127.0.0.1:{port}" for port in ports), "-Z", str(log)]
        server = Server(directory, options=options)
        running.callback(server.stop)
        yield server, lambda kind: _stripes(log, kind)


def until_listening(node, port):
    """Wait for a data node, which sends no greeting."""
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        assert node.poll() is None and time.monotonic() < deadline, "a data node does not listen"
        time.sleep(0.02)


def _stripes(log, kind):
    """Return the number of nodes for each logged transfer, once there is a line.

    The line appears after the client's reply.
    """
    line = re.compile(rf" STRIPES=(\d+) .*TYPE=(?:{kind}) CODE=226")
    wait_until(lambda: line.search(log.read_text()), f"a line of {kind} in the log", 20)
    return [int(found) for found in line.findall(log.read_text())]


@pytest.fixture
def source(here):
    (here / "large").write_bytes(os.urandom(BYTES))
    (here / "large").chmod(0o644)
    return here / "large"


def test_a_large_file_is_copied_to_all_nodes_and_from_them(engine, source, here):
    with striped(here / "there", 3) as (server, stripes):
        output = events(engine, "--stripe", source, server.url("stored"))
        assert digest(here / "there" / "stored") == digest(source)
        assert set(stripes("STOR|ESTO")) == {3}
        (chosen,) = [event for event in output if event["event"] == "decision" and event["setting"] == "stripe"]
        assert chosen["value"] == 3
        copy(engine, "--stripe", "--streams", "2", server.url("stored"), here / "back")
        assert digest(here / "back") == digest(source)
        assert stripes("RETR") == [3]
        assert leftovers(here) == []


def test_a_killed_striped_download_resumes_without_holes(engine, source, here):
    with striped(here / "there", 2) as (server, _):
        (here / "there" / "large").write_bytes(source.read_bytes())
        (here / "there" / "large").chmod(0o644)
        words = [engine, "copy", "--stripe", "--streams", "2", server.url("large"), str(here / "back")]
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while running.poll() is None and not any(part.stat().st_blocks * 512 > BYTES / 3 for part in parts(here)):
            assert time.monotonic() < deadline
        running.kill()
        running.wait()
        copy(engine, *words[2:])
        assert digest(here / "back") == digest(source)
        assert leftovers(here) == []


def parts(directory):
    """Return the unfinished files."""
    return [path for path in directory.iterdir() if path.name.startswith(".venturi-") and path.name.endswith(".part")]


def test_trees_are_copied_to_from_and_between_striped_servers(engine, here):
    make_tree(here / "tree")
    # Copies between two servers omit links.
    (here / "tree" / "d0" / "link").unlink()
    with striped(here / "a", 2) as (first, _), striped(here / "b", 3) as (second, stripes):
        copy(engine, "--stripe", "-r", here / "tree", first.url("tree"))
        assert contents(here / "a" / "tree") == contents(here / "tree")
        output = events(engine, "--stripe", "-r", first.url("tree"), second.url("tree"))
        assert end_of(output)["errors"] == 0
        assert contents(here / "b" / "tree") == contents(here / "tree")
        assert set(stripes("STOR|ESTO")) == {3}
        copy(engine, "--stripe", "-r", below(second, here / "b" / "tree"), here / "back")
        assert contents(here / "back") == contents(here / "tree")


def test_the_stripe_option_works_with_a_server_without_data_nodes(engine, server, source, here):
    there = below(server, here)
    copy(engine, "--stripe", source, f"{there}/stored")
    copy(engine, "--stripe", f"{there}/stored", here / "back")
    assert digest(here / "back") == digest(source)


def test_the_stripe_option_is_rejected_for_a_web_server(engine, source):
    done = copy(engine, "--stripe", source, "http://127.0.0.1:9/x", code=1)
    assert b"--stripe" in done.stderr and b"FTP or GridFTP" in done.stderr
