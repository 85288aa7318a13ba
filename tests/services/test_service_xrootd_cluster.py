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
def storages(lab):
    """A storage on a and one on b, with one file each, and a directory of the client."""
    disks = [lab.storage(f"disk-{host}", host) for host in "ab"]
    for disk in disks:
        (disk / f"of-{disk.name}").write_bytes(os.urandom(SIZE))
    return *disks, lab.storage("local", "c")


def xrdcp(lab, source, destination, *options, status=0):
    done = lab.run("c", "xrdcp", "-f", "-N", *options, str(source), str(destination))
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr


def root(service_ports, path):
    return service_ports["root"].format(path=path, relative=path)


def cluster(lab, stack, name, **options):
    """Start a redirector and its data servers; return the service ports of the redirector."""
    storages = ["disk-a", "disk-b"]
    contexts = [lab.context(name, "xrootd-redirector", "c", storages=storages, http=True, **options)]
    contexts += [
        lab.context(f"{name}-{host}", "xrootd", host, storages=[storage], redirector=name, http=True, **options)
        for host, storage in zip("ab", storages, strict=True)
    ]
    service_ports, *_ = [stack.enter_context(lab.running(context)) for context in contexts]
    return service_ports


def test_a_redirector_redirects_to_the_server_of_each_storage(lab, storages):
    one, two, local = storages
    with ExitStack() as stack:
        service_ports = cluster(lab, stack, "paths")
        assert service_ports["root"] == "root://c.lab.test:1094/{path}"
        for disk in (one, two):
            source = disk / f"of-{disk.name}"
            xrdcp(lab, root(service_ports, source), local / "read")
            assert (local / "read").read_bytes() == source.read_bytes()
        xrdcp(lab, one / "of-disk-a", root(service_ports, two / "new/file"))
        assert (two / "new/file").read_bytes() == (one / "of-disk-a").read_bytes()
        got = lab.run(
            "c", "curl", "-sSfL", "-o", f"{local}/got", service_ports["http"].format(path=two / "of-disk-b")
        )
        assert got.returncode == 0, got.stderr
        assert (local / "got").read_bytes() == (two / "of-disk-b").read_bytes()
        listed = lab.run("c", "xrdfs", "c.lab.test:1094", "locate", "*").stdout
        assert len(listed.splitlines()) == 2
    check_nothing_left(lab)


def test_a_shared_name_space_holds_the_files_of_all_servers(lab, storages):
    one, two, _ = storages
    with ExitStack() as stack:
        service_ports = cluster(lab, stack, "shared", shared=True)
        assert service_ports["root"] == "root://c.lab.test:1094//{relative}"
        for disk in (one, two):
            xrdcp(lab, root(service_ports, f"of-{disk.name}"), "/dev/null")
        for number in range(3):
            xrdcp(lab, one / "of-disk-a", root(service_ports, f"spread/{number}"))
        stored = [len(list((disk / "spread").glob("*"))) if (disk / "spread").exists() else 0 for disk in (one, two)]
        assert sorted(stored) == [1, 2]
        with pytest.raises(BackendError, match="expected shared to have shared = false, found true; set both alike"):
            SERVICES["xrootd"].configure(lab.context("odd", "xrootd", "a", storages=["disk-a"], redirector="shared"))
    check_nothing_left(lab)


def accesses(shown: str) -> list[int]:
    """Return the number of clients in each access record of ``xrdpfc_print``."""
    heading, *records = shown.partition("Record ")[2].splitlines()
    column = heading.split().index("N_ios") + 1
    return [int(record.split()[column]) for record in records]


@pytest.mark.parametrize("auth", ["none", "sss", "gsi"])
def test_a_proxy_and_a_cache_read_from_the_origin_for_their_clients(lab, storages, auth):
    disk, _, local = storages
    source = disk / "of-disk-a"
    origin = lab.context(f"origin-{auth}", "xrootd", "a", storages=["disk-a"], auth=auth)
    served = {"storages": ["disk-a"], "origin": origin.spec.name, "http": True}
    proxy = lab.context(f"proxy-{auth}", "xrootd-proxy", "b", **served)
    cache = lab.context(f"cache-{auth}", "xrootd-cache", "c", **served)
    with lab.running(origin), lab.running(proxy) as proxied, lab.running(cache) as cached:
        for service_ports in (proxied, cached):
            xrdcp(lab, root(service_ports, source), local / "through", "-S", "4")
            assert (local / "through").read_bytes() == source.read_bytes()
            got = lab.run("b", "curl", "-sSf", "-o", f"{local}/got", service_ports["http"].format(path=source))
            assert got.returncode == 0, got.stderr
            assert (local / "got").read_bytes() == source.read_bytes()
        xrdcp(lab, local / "got", root(proxied, disk / f"up-{auth}"))
        assert (disk / f"up-{auth}").read_bytes() == source.read_bytes()
        assert "read-only file system" in xrdcp(lab, local / "got", root(cached, disk / "no"), status=54)
        blocks = SERVICES["xrootd-cache"].store(cache)
        shown = lab.run("c", "xrdpfc_print", f"{blocks}{source}.cinfo").stdout
        assert "state complete" in shown
        # A client that arrives before the cache has released the previous one is counted in its record (N_ios).
        assert sum(accesses(shown)) == 2, shown
    check_nothing_left(lab)


def test_a_cache_serves_from_its_blocks_when_the_origin_has_lost_the_file(lab, storages):
    disk, _, local = storages
    source = disk / "of-disk-a"
    data = source.read_bytes()
    origin = lab.context("loser", "xrootd", "a", storages=["disk-a"])
    store = lab.storage("store", "c")
    cache = lab.context("keeper", "xrootd-cache", "c", storages=["disk-a"], origin="loser", store="store", prefetch=2)
    with lab.running(origin), lab.running(cache) as service_ports:
        xrdcp(lab, root(service_ports, source), "/dev/null")
        source.write_bytes(b"\0" * SIZE)
        xrdcp(lab, root(service_ports, source), local / "kept")
        assert (local / "kept").read_bytes() == data
        assert (store / str(source).lstrip("/")).stat().st_size == SIZE
    check_nothing_left(lab)


def test_a_missing_or_unsuitable_origin_is_reported(lab, storages):
    proxy = SERVICES["xrootd-proxy"]
    with pytest.raises(BackendError, match="expected the option origin, found none; name an xrootd service"):
        proxy.configure(lab.context("alone", "xrootd-proxy", storages=["disk-a"]))
    lab.context("far", "xrootd", "b", storages=["disk-b"], shared=True)
    with pytest.raises(BackendError, match="expected far to have shared = false, found true"):
        proxy.configure(lab.context("near", "xrootd-proxy", storages=["disk-b"], origin="far"))


def test_needs_and_service_ports_depend_only_on_the_options():
    options = {"origin": "o", "tls": True}
    for kind in ("xrootd-proxy", "xrootd-cache"):
        spec = ServiceSpec("p", kind, "a", "a.eth0", ("d",), options)
        assert SERVICES[kind].needs(spec) == ("o",)
        assert SERVICES[kind].service_ports(spec, "h") == {
            "root": "root://h:1094/{path}",
            "roots": "roots://h:1094/{path}",
        }
    redirector = SERVICES["xrootd-redirector"]
    spec = ServiceSpec("r", redirector.kind, "a", "a.eth0", ("d",), {"http": True}, ports=(1, 2, 3))
    assert redirector.needs(spec) == ()
    assert redirector.service_ports(spec, "h") == {"root": "root://h:1/{path}", "http": "http://h:3{path}"}
    secure = ServiceSpec("r", redirector.kind, "a", "a.eth0", ("d",), {"tls": True})
    assert redirector.service_ports(secure, "h") == {"root": "root://h:1094/{path}"}
