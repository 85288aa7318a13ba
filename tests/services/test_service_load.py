"""The engine's load generator against nginx and Squid: what it counts is what their access logs hold."""

import json
import os
import re

import pytest
from bare import lacking

from testkit import wait_until
from venturi.backend import find_engine
from venturi.testbed.services import nginx, squid

pytestmark = pytest.mark.skipif(lacking("nginx", "squid") is not None, reason=str(lacking("nginx", "squid")))
SIZE = 100_000
CLIENTS, FETCHES = 300, 5


def load(lab, url, *arguments):
    """Fetch from host b; return the exit code, the records and what was complained of."""
    done = lab.run("b", str(find_engine()), "load", url, *map(str, arguments))
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def sent(room):
    """Return sent bytes and serial number of the connection of each line of nginx's log; a port may be used again."""
    return re.findall(r" sent_bytes=(\d+) .* connection=(\d+) ", nginx.access_log(room).read_text())


def sent_since(room, before, count):
    """Return what was sent after so many lines once there are `count` of them: nginx writes them after the last byte."""
    wait_until(lambda: len(sent(room)) >= before + count, f"{count} lines in nginx's log")
    return sent(room)[before:]


@pytest.fixture
def origin(lab):
    """The room of an origin, and the URL of its object."""
    path = lab.place("web") / "object"
    path.write_bytes(os.urandom(SIZE))
    room = lab.room("origin", "nginx", places=["web"])
    with lab.running(room) as doors:
        yield room, doors["http"].format(port=8000, path=path)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("keeps", [False, True])
def test_fetches_bytes_and_connections_are_those_that_the_server_logged(lab, origin, version, keeps):
    room, url = origin
    before = len(sent(room))
    options = ["--clients", CLIENTS, "--fetches-each", FETCHES, "--http", version, "--expect-bytes", SIZE]
    code, records, _ = load(lab, url, *options, *(["--keep-alive"] if keeps else []))
    total = records[-1]
    lines = sent_since(room, before, CLIENTS * FETCHES)
    assert (code, total["record"], total["errors"]) == (0, "total", {})
    assert total["fetches"] == len(lines) == CLIENTS * FETCHES
    assert total["bytes"] == total["fetched_bytes"] == CLIENTS * FETCHES * SIZE
    assert total["head_bytes"] + total["bytes"] == sum(int(size) for size, _ in lines)
    assert total["connections"] == len({connection for _, connection in lines}) == CLIENTS * (1 if keeps else FETCHES)


def test_through_a_proxy_of_several_processes_it_counts_what_they_logged(lab, origin):
    _, url = origin
    room = lab.room("squid", "squid", instances=2, all_interfaces=True)
    with lab.running(room):
        proxy = f"http://a.lab.test:{room.spec.ports[0]}"
        code, records, _ = load(lab, url, "--proxy", proxy, "--clients", CLIENTS, "--fetches-each", FETCHES)
    # Squid writes a line after the last byte: the logs are whole when it has ended.
    logs = [log.read_text() for log in squid.access_logs(room)]
    total = records[-1]
    each = [re.findall(r"TCP_\w+/200 (\d+) GET http://a\.lab\.test:8000", log) for log in logs]
    assert code == 0 and total["errors"] == {}
    assert total["fetches"] == sum(map(len, each)) == CLIENTS * FETCHES
    assert total["head_bytes"] + total["bytes"] == sum(int(size) for lines in each for size in lines)
    assert all(each), "both processes share the port"


def test_for_a_time_its_intervals_add_up_to_its_total(lab, origin):
    _, url = origin
    code, records, _ = load(
        lab, url, "--clients", 20, "--duration-s", 1, "--ramp-s", "0.2", "--interval-s", "0.1", "--think-s", "0.05"
    )
    *intervals, total = records
    assert code == 0 and total["duration_s"] >= 1 and len(intervals) >= 5
    assert sum(line["bytes"] for line in intervals) <= total["bytes"] == total["fetches"] * SIZE
    # Each client waits 0.05 s between two fetches: no more than 20 a second and one to begin with.
    assert total["fetches"] <= 20 * (1 / 0.05 + 1)
    steady, latency = total["steady"], total["latency"]
    assert 0.2 == steady["start_s"] < steady["end_s"] and steady["end_s"] >= 1
    assert latency["count"] == steady["fetches"] == sum(count for _, count in latency["buckets"])
    assert latency["min_s"] <= latency["p50_s"] <= latency["p99_s"] <= latency["max_s"]


def test_what_goes_wrong_is_counted_by_kind(lab, origin):
    room, url = origin
    before = len(sent(room))
    for asked, arguments, kind in [
        (url + "-not-there", (), "status_404"),
        (url, ("--expect-bytes", SIZE + 1), "length"),
        (url.replace(":8000", ":8001"), (), "refused"),
    ]:
        code, records, said = load(lab, asked, "--clients", 3, "--fetches-each", 2, *arguments)
        assert (code, records[-1]["errors"], records[-1]["fetches"]) == (1, {kind: 6}, 0)
        assert "no fetch was whole" in said
    assert len(sent_since(room, before, 12)) == 12


def test_an_order_that_cannot_be_carried_out_is_told_in_a_sentence(lab, origin):
    _, url = origin
    code, records, said = load(lab, url, "--fetches-each", 1, "--bind", "10.77.0.9")
    assert (code, records) == (2, [])
    assert "expected 10.77.0.9 to be an address of this host to bind to" in said
    code, _, said = load(lab, "http://nobody.lab.test/", "--fetches-each", 1)
    assert code == 2 and "expected an address for nobody.lab.test, found none" in said


def test_a_process_of_squid_sends_no_faster_than_it_may(lab, origin):
    _, url = origin
    rate = 2_000_000
    room = lab.room("slow", "squid", process_rate_bytes_per_s=rate, collapsed_forwarding=True)
    with lab.running(room):
        proxy = f"http://a.lab.test:{room.spec.ports[0]}"
        code, records, _ = load(lab, url, "--proxy", proxy, "--clients", 20, "--duration-s", 4, "--ramp-s", 1)
    steady = records[-1]["steady"]
    # Its bucket is filled once a second: within three of them it can be one too many or too few.
    assert code == 0 and rate * 2 / 3 <= steady["rate_bytes_per_s"] <= rate * 4 / 3
