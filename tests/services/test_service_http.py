"""nginx as origin and Squid as its proxy, with ``curl`` as client."""

import os
import re
from pathlib import Path

import pytest
from bare import check_nothing_left, lacking

from testkit import wait_until
from venturi.errors import BackendError
from venturi.testbed.services import nginx, squid
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("nginx", "squid") is not None, reason=str(lacking("nginx", "squid")))
SIZE = 2_000_000


@pytest.fixture
def source(lab):
    """A file of a storage."""
    path = lab.storage("web") / "source"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def origin(lab, source):
    """A running origin on host a; returns the URL of its file."""
    with lab.running(lab.context("origin", "nginx", storages=["web"])) as service_ports:
        yield service_ports["http"].format(port=8000, path=source)


def curl(lab, host, *arguments):
    done = lab.run(host, "curl", "-sS", "-f", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def through(lab, host, url, port=3128):
    """Get a URL through the proxy and return its cache status."""
    target = lab.directory / f"got-{host}"
    printed = curl(lab, host, "-x", f"http://a.lab.test:{port}", "-o", str(target), "-D", "-", url)
    assert target.stat().st_size == SIZE
    return re.search(r"X-Cache: (\w+)", printed)[1]


def statuses(context):
    return [re.findall(r"(TCP_\w+)/", log.read_text()) for log in squid.access_logs(context)]


def test_the_origin_serves_ranges_accepts_uploads_and_cleans_up(lab, source):
    for number in range(3):
        context = lab.context(f"origin{number}", "nginx", storages=["web"], ports=[8000, 8001], workers=2)
        with lab.running(context) as service_ports:
            url = service_ports["http"].format(port=8001, path=source)
            target = lab.directory / "got"
            curl(lab, "b", "-o", str(target), url)
            assert target.read_bytes() == source.read_bytes()
            curl(lab, "b", "-o", str(target), "-r", "100-199", url)
            assert target.read_bytes() == source.read_bytes()[100:200]
            up = source.with_name("deep") / f"up{number}"
            curl(lab, "b", "-T", str(source), service_ports["http"].format(port=8000, path=up))
            assert up.read_bytes() == source.read_bytes()
            outside = lab.run("b", "curl", "-sS", "-f", service_ports["http"].format(port=8000, path="/etc/passwd"))
            assert "404" in outside.stderr
        check_nothing_left(lab)
        assert sorted(path.name for path in source.parent.iterdir()) == ["deep", "source"]
        line = nginx.access_log(context).read_text().splitlines()[0]
        printed = dict(word.split("=", 1) for word in line.split() if "=" in word)
        assert int(printed["sent_bytes"]) > SIZE
        assert float(printed["duration_s"]) >= 0
        assert printed["path"] == str(source)


def test_a_request_in_progress_when_the_origin_stops_is_in_its_log(lab, source):
    # The file is larger than the buffers of both sockets.
    os.truncate(source, 50_000_000)
    target = source.with_name("slow")
    context = lab.context("stopped", "nginx", storages=["web"])
    with lab.running(context) as service_ports:
        argv = ["curl", "-sS", "--limit-rate", "100k", "-o", str(target)]
        argv.append(service_ports["http"].format(port=8000, path=source))
        client = lab.shells["b"].start(argv, log=lab.directory / "slow.log")
        wait_until(lambda: target.exists() and target.stat().st_size > 0, "the transfer to start")
    client.stop()
    (transfer,) = SERVICES["nginx"].transfers(context)
    assert (transfer.path, transfer.command) == (str(source), "GET")
    assert 0 < transfer.file_bytes < source.stat().st_size
    check_nothing_left(lab)


def test_an_origin_without_a_storage_is_rejected(lab):
    with pytest.raises(BackendError, match="expected a storage to serve"):
        SERVICES["nginx"].configure(lab.context("empty", "nginx"))


def test_a_proxy_fetches_an_object_once_and_cleans_up(lab, origin):
    for number in range(3):
        context = lab.context(f"proxy{number}", "squid")
        with lab.running(context) as service_ports:
            assert service_ports == {"http-proxy": "http://a.lab.test:{port}"}
            assert [through(lab, host, origin) for host in "bbc"] == ["MISS", "HIT", "HIT"]
        assert statuses(context)[0][-3:] == ["TCP_MISS", "TCP_MEM_HIT", "TCP_MEM_HIT"]
        assert [name for name in lab.processes().values() if "squid" in name] == []
        assert lab.shared_memory() == []


def test_workers_share_a_cache_and_are_bound_to_their_cores(lab, origin):
    context = lab.context("smp", "squid", workers=2, cpus="0,1")
    with lab.running(context):
        assert [through(lab, "b", origin) for _ in range(4)] == ["MISS", "HIT", "HIT", "HIT"]
        kids = [pid for pid, name in lab.processes().items() if name.startswith("squid")]
        bound = [re.search(r"Cpus_allowed_list:\s(\S+)", Path(f"/proc/{pid}/status").read_text())[1] for pid in kids]
        assert {"0", "1"} <= set(bound)
        assert len(lab.shared_memory()) > 0
    assert lab.shared_memory() == []


def test_instances_share_a_port_and_not_their_caches(lab, origin):
    context = lab.context("many", "squid", instances=3, cpus="1")
    with lab.running(context):
        # The kernel assigns each connection to a random instance. With 60 connections, an instance gets none once in
        # 10^10 runs.
        printed = [through(lab, "b", origin) for _ in range(60)]
        assert printed.count("MISS") == 3
        assert lab.listening().count(3128) == 3
    assert all(found.count("TCP_MISS") >= 1 for found in statuses(context))
    assert all(found.count("TCP_MEM_HIT") >= 1 for found in statuses(context))
    assert lab.shared_memory() == []


def test_shared_memory_of_a_killed_proxy_is_removed(lab):
    service, context = SERVICES["squid"], lab.context("killed", "squid", workers=2)
    with lab.running(context):
        assert len(lab.shared_memory()) > 0
        for pid, name in lab.processes().items():
            if "squid" in name:
                os.kill(pid, 9)
    assert lab.shared_memory() == []
    assert service.logs(context)[0].exists()
    check_nothing_left(lab)


def test_cores_that_are_not_numbers_are_rejected(lab):
    with pytest.raises(BackendError, match='expected cpus to be numbers of cores such as "0,1", found "first"'):
        SERVICES["squid"].configure(lab.context("wrong", "squid", cpus="first"))


def test_servers_of_an_ordinary_user_work(lab, source):
    lab.shells["a"].privileged = False
    try:
        contexts = [
            lab.context("plain-origin", "nginx", storages=["web"]),
            lab.context("plain-proxy", "squid", workers=2),
        ]
        with lab.running(contexts[0]) as service_ports, lab.running(contexts[1]):
            url = service_ports["http"].format(port=8000, path=source)
            assert [through(lab, "b", url) for _ in range(2)] == ["MISS", "HIT"]
    finally:
        lab.shells["a"].privileged = True
    check_nothing_left(lab)
