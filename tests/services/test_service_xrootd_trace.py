"""Traces of XRootD, from recorded servers and from a running one.

The recording is of release 5.5.3: a source and a destination of third-party copies, and a cache of the source. In turn,
a client read 8 MiB with two more streams, wrote it back, had it copied over root://, read it over HTTP, had it copied
over HTTP, and read it twice through the cache.
"""

import contextlib
import os
import signal
import sys
import threading
from datetime import UTC
from pathlib import Path

import pytest
from bare import check_nothing_left, lacking, wait_until_ready
from hypothesis import given
from hypothesis import strategies as st

from venturi.errors import RunError
from venturi.testbed.services.table import SERVICES
from venturi.testbed.services.xrootd_collector import PREFIX
from venturi.testbed.xrootd_trace import parse_log, parse_monitoring, trace

RECORDED = Path(__file__).parents[1] / "data/xrootd"
SIZE = 8 << 20


def recorded(server):
    log, monitoring = RECORDED / f"{server}.log", RECORDED / f"{server}.bin"
    return trace(log.read_text(), monitoring.read_bytes(), UTC)


def test_each_file_has_its_client_streams_times_and_bytes():
    read, write, checked, held, fetched, http, pulled, cached = recorded("source")
    assert (read.mode, read.streams, read.read_bytes, read.written_bytes) == ("r", 3, SIZE, 0)
    assert (write.mode, write.streams, write.read_bytes) == ("w", 1, 0)
    assert write.written_bytes == SIZE + SIZE // 4096 * 4
    assert {access.account for access in (read, write, checked, held, fetched)} == {"labuser"}
    assert checked.client == held.client
    assert (checked.read_bytes, held.read_bytes) == (0, 0)
    assert (fetched.client.partition(".")[0], fetched.host, fetched.read_bytes) == ("xrootd", "b", SIZE)
    assert held.opened_s < fetched.opened_s < fetched.closed_s < held.closed_s
    assert [(access.host, access.account, access.read_bytes) for access in (http, pulled)] == [
        ("c", "nobody", SIZE),
        ("b", "nobody", SIZE),
    ]
    assert (cached.host, cached.read_bytes) == ("c", SIZE)
    for access in (read, write, checked, held, fetched, http, pulled, cached):
        assert access.login_s <= access.opened_s < access.closed_s
    assert read.opened_s == pytest.approx(1795312429.97, abs=0.5)


def test_a_third_party_copy_has_its_size_only_in_its_event():
    (held,) = recorded("destination")
    assert (held.mode, held.written_bytes) == ("w", 0)
    root, http = parse_monitoring((RECORDED / "destination.bin").read_bytes()).events
    assert [(event["TPC"], event["Size"], event["Xeq"]["Type"]) for event in (root, http)] == [
        ("xroot", SIZE, "pull"),
        ("http", SIZE, "pull"),
    ]


def test_a_cache_queried_its_origin_only_the_first_time():
    cold, warm = recorded("cache")
    assert (cold.read_bytes, warm.read_bytes) == (SIZE, SIZE)
    first, second = parse_monitoring((RECORDED / "cache.bin").read_bytes()).events
    assert (first["remotes"], second["remotes"]) == (["a.lab.test:1094"], [])
    assert second["access_cnt"] == 2


def test_a_log_without_monitoring_has_times_but_no_byte_counts():
    text = (RECORDED / "source.log").read_text()
    assert [(access.read_bytes, access.written_bytes) for access in parse_log(text, UTC)] == [(None, None)] * 8
    still_open = text[: text.index("Xrootd_File: closing")]
    assert parse_log(still_open, UTC)[0].closed_s is None


@given(st.integers(0, (RECORDED / "source.bin").stat().st_size))
def test_truncated_monitoring_yields_the_files_before_the_end(length):
    whole = parse_monitoring((RECORDED / "source.bin").read_bytes()).files
    found = parse_monitoring((RECORDED / "source.bin").read_bytes()[:length]).files
    assert found == whole[: len(found)]


@given(st.binary(max_size=100), st.sampled_from([b"f", b"u", b"{", b"x"]))
def test_invalid_monitoring_data_is_rejected_or_skipped(junk, code):
    data = code + junk
    try:
        parse_monitoring(PREFIX.pack(1, len(data)) + data)
    except RunError as error:
        assert "expected a datagram of release 5" in str(error)


@pytest.mark.skipif(lacking("xrootd") is not None, reason=str(lacking("xrootd")))
def test_a_monitored_server_records_each_transfer(lab):
    storage = lab.storage("disk")
    (storage / "source").write_bytes(os.urandom(1_000_000))
    context = lab.context("seen", "xrootd", storages=["disk"], monitor=True)
    with lab.running(context) as service_ports:
        for _ in range(3):
            done = lab.run(
                "b", "xrdcp", "-f", "-N", service_ports["root"].format(path=storage / "source"), "/dev/null"
            )
            assert done.returncode == 0, done.stderr
    check_nothing_left(lab)
    log, monitoring = SERVICES["xrootd"].records(context)
    accesses = trace(log.read_text(errors="replace"), monitoring.read_bytes())
    assert [(access.path, access.host, access.read_bytes) for access in accesses] == [
        (str(storage / "source"), "b", 1_000_000)
    ] * 3
    assert len({access.client for access in accesses}) == 3


@pytest.mark.skipif(lacking("xrootd") is not None, reason=str(lacking("xrootd")))
def test_the_service_waits_for_late_monitoring_data(lab):
    """The collector is stopped until the service is being stopped, for longer than a busy machine would delay it."""
    storage = lab.storage("disk")
    (storage / "source").write_bytes(os.urandom(1_000_000))
    context = lab.context("late", "xrootd", storages=["disk"], monitor=True)
    service = SERVICES["xrootd"]
    service.configure(context)
    processes = service.start(context)
    assert (context.directory / "collector.ready").exists()
    collector = collector_of(context)
    try:
        wait_until_ready(service, context, processes)
        os.kill(collector, signal.SIGSTOP)
        service_port = service.service_ports(context.spec, context.host_name)["root"]
        done = lab.run(
            "b",
            "xrdcp",
            "-f",
            "-N",
            service_port.format(path=storage / "source", port=context.spec.ports[0]),
            "/dev/null",
        )
        assert done.returncode == 0, done.stderr
    finally:
        going_on = threading.Timer(3, go_on, (collector,))
        going_on.start()
        service.stop(context, processes)
        going_on.join()
    (file,) = service.transfers(context)
    assert file.sent_bytes == 1_000_000


def go_on(pid):
    """Continue a program and its parent nsenter, which was stopped together with it."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for one in (parent, pid):
        os.kill(one, signal.SIGCONT)


def collector_of(context):
    """Return the PID of the program that collects the monitoring of a service."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (directory / "cmdline").read_bytes().split(b"\0")
            if (
                words[0] == os.fsencode(sys.executable)
                and os.fsencode(context.directory / "collector.ready") in words
            ):
                return int(directory.name)
    raise AssertionError("the collector does not run")
