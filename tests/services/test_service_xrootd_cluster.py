"""XRootD in several layers: a redirector with data servers, a proxy, a disk cache."""

import os
from contextlib import ExitStack

import pytest
from bare import check_nothing_left, lacking

from venturi.errors import BackendError
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.table import SERVICES

KINDS = ("xrootd", "xrootd-redirector", "xrootd-proxy", "xrootd-cache")
pytestmark = pytest.mark.skipif(lacking(*KINDS) is not None, reason=str(lacking(*KINDS)))
SIZE = 5_000_000


@pytest.fixture
def places(lab):
    """A place on a and one on b, with a file each, and a folder of the client."""
    disks = [lab.place(f"disk-{host}", host) for host in "ab"]
    for disk in disks:
        (disk / f"of-{disk.name}").write_bytes(os.urandom(SIZE))
    return *disks, lab.place("local", "c")


def xrdcp(lab, source, destination, *options, status=0):
    done = lab.run("c", "xrdcp", "-f", "-N", *options, str(source), str(destination))
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr


def root(doors, path):
    return doors["root"].format(path=path, relative=path)


def cluster(lab, stack, name, **options):
    """Start a redirector and its data servers; return the redirector's doors."""
    places = ["disk-a", "disk-b"]
    rooms = [lab.room(name, "xrootd-redirector", "c", places=places, http=True, **options)]
    rooms += [
        lab.room(f"{name}-{host}", "xrootd", host, places=[place], redirector=name, http=True, **options)
        for host, place in zip("ab", places, strict=True)
    ]
    doors, *_ = [stack.enter_context(lab.running(room)) for room in rooms]
    return doors


def test_a_redirector_leads_to_the_server_of_each_storage(lab, places):
    one, two, local = places
    with ExitStack() as stack:
        doors = cluster(lab, stack, "paths")
        assert doors["root"] == "root://c.lab.test:1094/{path}"
        for disk in (one, two):
            source = disk / f"of-{disk.name}"
            xrdcp(lab, root(doors, source), local / "read")
            assert (local / "read").read_bytes() == source.read_bytes()
        xrdcp(lab, one / "of-disk-a", root(doors, two / "new/file"))
        assert (two / "new/file").read_bytes() == (one / "of-disk-a").read_bytes()
        got = lab.run("c", "curl", "-sSfL", "-o", f"{local}/got", doors["http"].format(path=two / "of-disk-b"))
        assert got.returncode == 0, got.stderr
        assert (local / "got").read_bytes() == (two / "of-disk-b").read_bytes()
        listed = lab.run("c", "xrdfs", "c.lab.test:1094", "locate", "*").stdout
        assert len(listed.splitlines()) == 2
    check_nothing_left(lab)


def test_a_shared_name_space_holds_the_files_of_all_servers(lab, places):
    one, two, _ = places
    with ExitStack() as stack:
        doors = cluster(lab, stack, "shared", shared=True)
        assert doors["root"] == "root://c.lab.test:1094//{relative}"
        for disk in (one, two):
            xrdcp(lab, root(doors, f"of-{disk.name}"), "/dev/null")
        for number in range(3):
            xrdcp(lab, one / "of-disk-a", root(doors, f"spread/{number}"))
        stored = [len(list((disk / "spread").glob("*"))) if (disk / "spread").exists() else 0 for disk in (one, two)]
        assert sorted(stored) == [1, 2]
        with pytest.raises(BackendError, match="expected shared to have shared = false, found true; set both alike"):
            SERVICES["xrootd"].configure(lab.room("odd", "xrootd", "a", places=["disk-a"], redirector="shared"))
    check_nothing_left(lab)


def accesses(shown: str) -> list[int]:
    """Return how many clients each access record has that ``xrdpfc_print`` shows."""
    heading, *records = shown.partition("Record ")[2].splitlines()
    column = heading.split().index("N_ios") + 1
    return [int(record.split()[column]) for record in records]


@pytest.mark.parametrize("auth", ["none", "sss", "gsi"])
def test_a_proxy_and_a_cache_read_from_the_origin_for_their_clients(lab, places, auth):
    disk, _, local = places
    source = disk / "of-disk-a"
    origin = lab.room(f"origin-{auth}", "xrootd", "a", places=["disk-a"], auth=auth)
    served = {"places": ["disk-a"], "origin": origin.spec.name, "http": True}
    proxy = lab.room(f"proxy-{auth}", "xrootd-proxy", "b", **served)
    cache = lab.room(f"cache-{auth}", "xrootd-cache", "c", **served)
    with lab.running(origin), lab.running(proxy) as proxied, lab.running(cache) as cached:
        for doors in (proxied, cached):
            xrdcp(lab, root(doors, source), local / "through", "-S", "4")
            assert (local / "through").read_bytes() == source.read_bytes()
            got = lab.run("b", "curl", "-sSf", "-o", f"{local}/got", doors["http"].format(path=source))
            assert got.returncode == 0, got.stderr
            assert (local / "got").read_bytes() == source.read_bytes()
        xrdcp(lab, local / "got", root(proxied, disk / f"up-{auth}"))
        assert (disk / f"up-{auth}").read_bytes() == source.read_bytes()
        assert "read-only file system" in xrdcp(lab, local / "got", root(cached, disk / "no"), status=54)
        blocks = SERVICES["xrootd-cache"].store(cache)
        shown = lab.run("c", "xrdpfc_print", f"{blocks}{source}.cinfo").stdout
        assert "state complete" in shown
        # Who comes before the cache has let go of the one before is counted in its record (N_ios).
        assert sum(accesses(shown)) == 2, shown
    check_nothing_left(lab)


def test_a_cache_answers_from_its_blocks_when_the_origin_has_lost_the_file(lab, places):
    disk, _, local = places
    source = disk / "of-disk-a"
    data = source.read_bytes()
    origin = lab.room("loser", "xrootd", "a", places=["disk-a"])
    store = lab.place("store", "c")
    cache = lab.room("keeper", "xrootd-cache", "c", places=["disk-a"], origin="loser", store="store", prefetch=2)
    with lab.running(origin), lab.running(cache) as doors:
        xrdcp(lab, root(doors, source), "/dev/null")
        source.write_bytes(b"\0" * SIZE)
        xrdcp(lab, root(doors, source), local / "kept")
        assert (local / "kept").read_bytes() == data
        assert (store / str(source).lstrip("/")).stat().st_size == SIZE
    check_nothing_left(lab)


def test_what_is_missing_is_said(lab, places):
    proxy = SERVICES["xrootd-proxy"]
    with pytest.raises(BackendError, match="expected the option origin, found none; name an xrootd service"):
        proxy.configure(lab.room("alone", "xrootd-proxy", places=["disk-a"]))
    lab.room("far", "xrootd", "b", places=["disk-b"], shared=True)
    with pytest.raises(BackendError, match="expected far to have shared = false, found true"):
        proxy.configure(lab.room("near", "xrootd-proxy", places=["disk-b"], origin="far"))


def test_they_are_planned_by_their_options_alone():
    options = {"origin": "o", "tls": True}
    for kind in ("xrootd-proxy", "xrootd-cache"):
        spec = ServiceSpec("p", kind, "a", "a.eth0", ("d",), options)
        assert SERVICES[kind].needs(spec) == ("o",)
        assert SERVICES[kind].doors(spec, "h") == {"root": "root://h:1094/{path}", "roots": "roots://h:1094/{path}"}
    redirector = SERVICES["xrootd-redirector"]
    spec = ServiceSpec("r", redirector.kind, "a", "a.eth0", ("d",), {"http": True}, ports=(1, 2, 3))
    assert redirector.needs(spec) == ()
    assert redirector.doors(spec, "h") == {"root": "root://h:1/{path}", "http": "http://h:3{path}"}
    secure = ServiceSpec("r", redirector.kind, "a", "a.eth0", ("d",), {"tls": True})
    assert redirector.doors(secure, "h") == {"root": "root://h:1094/{path}"}
