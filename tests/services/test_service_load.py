"""The load generator of the engine with nginx and Squid: its counts agree with their access logs."""

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
    """Fetch from host b; return the exit code, the records and the errors."""
    done = lab.run("b", str(find_engine()), "http-load", url, *map(str, arguments))
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def sent(context):
    """Return sent bytes and connection number of each line of nginx's log, because ports can be reused."""
    return re.findall(r" sent_bytes=(\d+) .* connection=(\d+) ", nginx.access_log(context).read_text())


def sent_since(context, before, count):
    """Wait for ``count`` lines after the first ``before`` and return their values; nginx writes a line after the last byte."""
    wait_until(lambda: len(sent(context)) >= before + count, f"{count} lines in nginx's log")
    return sent(context)[before:]


@pytest.fixture
def origin(lab):
    """The context of an origin, and the URL of its object."""
    path = lab.storage("web") / "object"
    path.write_bytes(os.urandom(SIZE))
    context = lab.context("origin", "nginx", storages=["web"])
    with lab.running(context) as service_ports:
        yield context, service_ports["http"].format(port=8000, path=path)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("keeps", [False, True])
def test_fetches_bytes_and_connections_equal_those_in_the_server_log(lab, origin, version, keeps):
    context, url = origin
    before = len(sent(context))
    options = ["--clients", CLIENTS, "--fetches-each", FETCHES, "--http", version, "--expect-bytes", SIZE]
    code, records, _ = load(lab, url, *options, *(["--keep-alive"] if keeps else []))
    total = records[-1]
    lines = sent_since(context, before, CLIENTS * FETCHES)
    assert (code, total["record"], total["errors"]) == (0, "total", {})
    assert total["fetches"] == len(lines) == CLIENTS * FETCHES
    assert total["bytes"] == total["fetched_bytes"] == CLIENTS * FETCHES * SIZE
    assert total["head_bytes"] + total["bytes"] == sum(int(size) for size, _ in lines)
    assert total["connections"] == len({connection for _, connection in lines}) == CLIENTS * (1 if keeps else FETCHES)


def test_counts_through_a_proxy_of_several_processes_equal_those_in_its_logs(lab, origin):
    _, url = origin
    context = lab.context("squid", "squid", instances=2, all_interfaces=True)
    with lab.running(context):
        proxy = f"http://a.lab.test:{context.spec.ports[0]}"
        code, records, _ = load(lab, url, "--proxy", proxy, "--clients", CLIENTS, "--fetches-each", FETCHES)
    # Squid writes a line after the last byte, so the logs are complete after its exit.
    logs = [log.read_text() for log in squid.access_logs(context)]
    total = records[-1]
    each = [re.findall(r"TCP_\w+/200 (\d+) GET http://a\.lab\.test:8000", log) for log in logs]
    assert code == 0 and total["errors"] == {}
    assert total["fetches"] == sum(map(len, each)) == CLIENTS * FETCHES
    assert total["head_bytes"] + total["bytes"] == sum(int(size) for lines in each for size in lines)
    assert all(each), "both processes share the port"


def test_intervals_and_latencies_of_a_timed_load_are_consistent_with_its_total(lab, origin):
    _, url = origin
    code, records, _ = load(
        lab, url, "--clients", 20, "--duration-s", 1, "--ramp-s", "0.2", "--interval-s", "0.1", "--think-s", "0.05"
    )
    *intervals, total = records
    assert code == 0 and total["duration_s"] >= 1 and len(intervals) >= 5
    assert sum(line["bytes"] for line in intervals) <= total["bytes"] == total["fetches"] * SIZE
    # Each client waits 0.05 s between two fetches, so there are at most 20 per second plus the first.
    assert total["fetches"] <= 20 * (1 / 0.05 + 1)
    steady, latency = total["steady"], total["latency"]
    assert 0.2 == steady["start_s"] < steady["end_s"] and steady["end_s"] >= 1
    assert latency["count"] == steady["fetches"] == sum(count for _, count in latency["buckets"])
    assert latency["min_s"] <= latency["p50_s"] <= latency["p99_s"] <= latency["max_s"]


def test_errors_are_counted_by_kind(lab, origin):
    context, url = origin
    before = len(sent(context))
    for requested, arguments, kind in [
        (url + "-not-there", (), "status_404"),
        (url, ("--expect-bytes", SIZE + 1), "length"),
        (url.replace(":8000", ":8001"), (), "refused"),
    ]:
        code, records, printed = load(lab, requested, "--clients", 3, "--fetches-each", 2, *arguments)
        assert (code, records[-1]["errors"], records[-1]["fetches"]) == (1, {kind: 6}, 0)
        assert "no fetch succeeded" in printed
    assert len(sent_since(context, before, 12)) == 12


def test_a_load_that_cannot_run_reports_the_reason(lab, origin):
    _, url = origin
    code, records, printed = load(lab, url, "--fetches-each", 1, "--bind", "10.77.0.9")
    assert (code, records) == (2, [])
    assert "--bind 10.77.0.9: cannot bind" in printed
    code, _, printed = load(lab, "http://nobody.lab.test/", "--fetches-each", 1)
    assert code == 2 and "nobody.lab.test: expected an address, found none" in printed


def test_a_squid_process_respects_its_rate_limit(lab, origin):
    _, url = origin
    rate = 2_000_000
    context = lab.context("slow", "squid", process_rate_bytes_per_s=rate, collapsed_forwarding=True)
    with lab.running(context):
        proxy = f"http://a.lab.test:{context.spec.ports[0]}"
        code, records, _ = load(lab, url, "--proxy", proxy, "--clients", 20, "--duration-s", 4, "--ramp-s", 1)
    steady = records[-1]["steady"]
    # The bucket is filled once per second, so three seconds can contain one fill more or less.
    assert code == 0 and rate * 2 / 3 <= steady["rate_bytes_per_s"] <= rate * 4 / 3
