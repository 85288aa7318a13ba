"""nginx as origin and Squid before it, used by ``curl``."""

import os
import re
from pathlib import Path

import pytest
from bare import check_nothing_left, lacking

from venturi.errors import BackendError
from venturi.testbed.services import nginx, squid
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("nginx", "squid") is not None, reason=str(lacking("nginx", "squid")))
SIZE = 2_000_000


@pytest.fixture
def source(lab):
    """A file of a place."""
    path = lab.place("web") / "source"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def origin(lab, source):
    """A running origin on host a; its URL of the file."""
    with lab.running(lab.room("origin", "nginx", places=["web"])) as doors:
        yield doors["http"].format(port=8000, path=source)


def curl(lab, host, *arguments):
    done = lab.run(host, "curl", "-sS", "-f", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def through(lab, host, url, port=3128):
    """Get a URL through the proxy and return what the proxy says of its cache."""
    target = lab.folder / f"got-{host}"
    said = curl(lab, host, "-x", f"http://a.lab.test:{port}", "-o", str(target), "-D", "-", url)
    assert target.stat().st_size == SIZE
    return re.search(r"X-Cache: (\w+)", said)[1]


def statuses(room):
    return [re.findall(r"(TCP_\w+)/", log.read_text()) for log in squid.access_logs(room)]


def test_the_origin_serves_ranges_and_takes_files_and_nothing_is_left(lab, source):
    for number in range(3):
        room = lab.room(f"origin{number}", "nginx", places=["web"], ports=[8000, 8001], workers=2)
        with lab.running(room) as doors:
            url = doors["http"].format(port=8001, path=source)
            target = lab.folder / "got"
            curl(lab, "b", "-o", str(target), url)
            assert target.read_bytes() == source.read_bytes()
            curl(lab, "b", "-o", str(target), "-r", "100-199", url)
            assert target.read_bytes() == source.read_bytes()[100:200]
            up = source.with_name("deep") / f"up{number}"
            curl(lab, "b", "-T", str(source), doors["http"].format(port=8000, path=up))
            assert up.read_bytes() == source.read_bytes()
            outside = lab.run("b", "curl", "-sS", "-f", doors["http"].format(port=8000, path="/etc/passwd"))
            assert "404" in outside.stderr
        check_nothing_left(lab)
        assert sorted(path.name for path in source.parent.iterdir()) == ["deep", "source"]
        line = nginx.access_log(room).read_text().splitlines()[0]
        said = dict(word.split("=", 1) for word in line.split() if "=" in word)
        assert int(said["sent_bytes"]) > SIZE
        assert float(said["duration_s"]) >= 0
        assert said["path"] == str(source)


def test_an_origin_without_a_place_is_refused(lab):
    with pytest.raises(BackendError, match="expected a storage to serve"):
        SERVICES["nginx"].configure(lab.room("empty", "nginx"))


def test_a_proxy_fetches_an_object_once_and_nothing_is_left(lab, origin):
    for number in range(3):
        room = lab.room(f"proxy{number}", "squid")
        with lab.running(room) as doors:
            assert doors == {"http-proxy": "http://a.lab.test:{port}"}
            assert [through(lab, host, origin) for host in "bbc"] == ["MISS", "HIT", "HIT"]
        assert statuses(room)[0][-3:] == ["TCP_MISS", "TCP_MEM_HIT", "TCP_MEM_HIT"]
        assert [name for name in lab.processes().values() if "squid" in name] == []
        assert lab.shared_memory() == []


def test_workers_share_a_cache_and_are_bound_to_their_cores(lab, origin):
    room = lab.room("smp", "squid", workers=2, cpus="0,1")
    with lab.running(room):
        assert [through(lab, "b", origin) for _ in range(4)] == ["MISS", "HIT", "HIT", "HIT"]
        kids = [pid for pid, name in lab.processes().items() if name.startswith("squid")]
        bound = [re.search(r"Cpus_allowed_list:\s(\S+)", Path(f"/proc/{pid}/status").read_text())[1] for pid in kids]
        assert {"0", "1"} <= set(bound)
        assert len(lab.shared_memory()) > 0
    assert lab.shared_memory() == []


def test_instances_share_a_port_and_not_their_caches(lab, origin):
    room = lab.room("many", "squid", instances=3, cpus="1")
    with lab.running(room):
        # Which instance a connection reaches is the kernel's choice, at random: 60 leave one out once in 10^10.
        said = [through(lab, "b", origin) for _ in range(60)]
        assert said.count("MISS") == 3
        assert lab.listening().count(3128) == 3
    assert all(found.count("TCP_MISS") >= 1 for found in statuses(room))
    assert all(found.count("TCP_MEM_HIT") >= 1 for found in statuses(room))
    assert lab.shared_memory() == []


def test_shared_memory_of_a_proxy_that_was_killed_is_removed(lab):
    service, room = SERVICES["squid"], lab.room("killed", "squid", workers=2)
    with lab.running(room):
        assert len(lab.shared_memory()) > 0
        for pid, name in lab.processes().items():
            if "squid" in name:
                os.kill(pid, 9)
    assert lab.shared_memory() == []
    assert service.logs(room)[0].exists()
    check_nothing_left(lab)


def test_cores_that_are_not_numbers_are_refused(lab):
    with pytest.raises(BackendError, match='expected cpus to be numbers of cores such as "0,1", found "first"'):
        SERVICES["squid"].configure(lab.room("wrong", "squid", cpus="first"))


def test_servers_of_an_ordinary_user_work(lab, source):
    lab.machines["a"].privileged = False
    try:
        rooms = [lab.room("plain-origin", "nginx", places=["web"]), lab.room("plain-proxy", "squid", workers=2)]
        with lab.running(rooms[0]) as doors, lab.running(rooms[1]):
            url = doors["http"].format(port=8000, path=source)
            assert [through(lab, "b", url) for _ in range(2)] == ["MISS", "HIT"]
    finally:
        lab.machines["a"].privileged = True
    check_nothing_left(lab)
