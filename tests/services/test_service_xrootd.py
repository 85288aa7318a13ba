"""XRootD data servers with xrdcp, curl and davix as clients."""

import os
from contextlib import ExitStack

import pytest
from bare import check_nothing_left, lacking

from venturi.errors import BackendError
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("xrootd", "kdc") is not None, reason=str(lacking("xrootd", "kdc")))
SIZE = 9_000_001
CREDENTIALS = ("XrdSecSSSKT", "KRB5CCNAME", "X509_USER_PROXY")


@pytest.fixture
def storages(lab):
    """A storage with a file on a, an empty one on b, and a directory of the client."""
    source = lab.storage("disk-a", "a") / "source"
    source.write_bytes(os.urandom(SIZE))
    return source, lab.storage("disk-b", "b"), lab.storage("local", "c")


def url(service_ports, protocol, path):
    return service_ports[protocol].format(path=path)


def run(lab, *argv, status=0, host="c", **environment):
    done = lab.run(host, *map(str, argv), environment=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def xrdcp(lab, *argv, **how):
    return run(lab, "xrdcp", "-f", "-N", *argv, **how)


@pytest.mark.parametrize("time", [1, 2, 3])
def test_clients_read_and_write_with_both_protocols_and_the_server_cleans_up(lab, storages, time):
    source, target, local = storages
    data = source.read_bytes()
    context = lab.context(f"plain{time}", "xrootd", storages=["disk-a"], http=True)
    with lab.running(context) as service_ports:
        assert service_ports == {"root": "root://a.lab.test:1094/{path}", "http": "http://a.lab.test:1094{path}"}
        xrdcp(lab, "-S", "4", url(service_ports, "root", source), local / "read")
        assert (local / "read").read_bytes() == data
        assert "adler32: " in xrdcp(lab, "--cksum", "adler32:source", url(service_ports, "root", source), "/dev/null")
        xrdcp(lab, source, url(service_ports, "root", source.with_name("new") / "written"))
        assert (source.with_name("new") / "written").read_bytes() == data
        assert (source.with_name("new") / "written").owner() == "xrootd"
        run(lab, "curl", "-sSf", "-o", local / "got", url(service_ports, "http", source))
        assert (local / "got").read_bytes() == data
        run(lab, "curl", "-sSf", "-T", source, url(service_ports, "http", source.with_name("put")))
        assert source.with_name("put").read_bytes() == data
        run(lab, "davix-get", url(service_ports, "http", source), local / "davix")
        assert (local / "davix").read_bytes() == data
        rejected = xrdcp(lab, url(service_ports, "root", target / "elsewhere"), "/dev/null", status=54)
        assert "is disallowed" in rejected
    check_nothing_left(lab)


def test_http_can_have_a_separate_port(lab, storages):
    source, _, _ = storages
    with lab.running(
        lab.context("two-ports", "xrootd", storages=["disk-a"], http=True, ports=[1095, 8080])
    ) as service_ports:
        assert service_ports == {"root": "root://a.lab.test:1095/{path}", "http": "http://a.lab.test:8080{path}"}
        assert lab.listening() == [1095, 8080]
        run(lab, "curl", "-sSf", "-o", "/dev/null", url(service_ports, "http", source))
        assert lab.run("c", "curl", "-sSf", f"http://a.lab.test:1095{source}").returncode != 0


@pytest.mark.parametrize("auth", ["none", "sss", "krb5", "gsi"])
def test_authenticated_clients_copy_directly_and_between_servers(lab, storages, auth):
    source, target, _ = storages
    with ExitStack() as stack:
        stack.enter_context(lab.running(lab.context(f"kdc-{auth}", "kdc", "c")))
        known = {"auth": auth, "kdc": f"kdc-{auth}", "tls": True, "http": True}
        one, two = (
            stack.enter_context(
                lab.running(lab.context(f"{auth}-{host}", "xrootd", host, storages=[f"disk-{host}"], **known))
            )
            for host in "ab"
        )
        assert set(one) == {"root", "roots", "https", "davs"}
        for protocol in ("root", "roots"):
            xrdcp(lab, url(one, protocol, source), "/dev/null")
        if auth != "none":
            forgotten = dict.fromkeys(CREDENTIALS, "/nonexistent")
            assert "Auth failed" in xrdcp(lab, url(one, "root", source), "/dev/null", status=52, **forgotten)
        xrdcp(lab, "--tpc", "only", url(one, "roots", source), url(two, "roots", target / auth / "third"))
        for direction, there, at in (("Source", one, two), ("Destination", two, one)):
            paths = {id(one): source, id(two): target / auth / direction}
            header = f"{direction}: {url(there, 'https', paths[id(there)])}"
            printed = run(
                lab, "curl", "-sS", "-X", "COPY", "-H", header, "-H", "Credential: none", "-H",
                "X-Number-Of-Streams: 2", url(at, "https", paths[id(at)]),
            )  # fmt: skip
            assert "success: Created" in printed
        copies = sorted((target / auth).iterdir())
        assert [copy.name for copy in copies] == ["Destination", "Source", "third"]
        assert all(copy.read_bytes() == source.read_bytes() for copy in copies)
    check_nothing_left(lab)


def test_a_server_of_an_ordinary_user_serves_as_that_user(lab, storages):
    source, _, _ = storages
    lab.shells["a"].privileged = False
    try:
        with lab.running(
            lab.context("ordinary", "xrootd", storages=["disk-a"], auth="sss", http=True)
        ) as service_ports:
            xrdcp(lab, source, url(service_ports, "root", source.with_name("ordinary")))
            assert source.with_name("ordinary").owner() == "nobody"
            run(lab, "curl", "-sSf", "-o", "/dev/null", url(service_ports, "http", source))
    finally:
        lab.shells["a"].privileged = True
    check_nothing_left(lab)


def test_missing_or_invalid_options_are_reported(lab, storages):
    service = SERVICES["xrootd"]
    with pytest.raises(BackendError, match="empty: expected a storage to serve, found none"):
        service.configure(lab.context("empty", "xrootd"))
    with pytest.raises(BackendError, match="expected the option kdc with auth"):
        service.configure(lab.context("lost", "xrootd", storages=["disk-a"], auth="krb5"))
    with pytest.raises(BackendError, match=r"expected one storage with shared = true, found 2"):
        service.configure(lab.context("wide", "xrootd", storages=["disk-a", "disk-b"], shared=True))
    with pytest.raises(BackendError, match="expected empty to be a service of kind xrootd-redirector, found xrootd"):
        service.configure(lab.context("misled", "xrootd", storages=["disk-a"], redirector="empty"))


def test_needs_and_service_ports_depend_only_on_the_options():
    service = SERVICES["xrootd"]
    options = {"auth": "krb5", "kdc": "k", "redirector": "r", "shared": True, "http": True}
    spec = ServiceSpec("x", "xrootd", "a", "a.eth0", ("p",), options, ports=(1, 2))
    assert service.needs(spec) == ("k", "r")
    assert service.service_ports(spec, "h") == {"root": "root://h:1//{relative}", "http": "http://h:2/{relative}"}
    plain = ServiceSpec("x", "xrootd", "a", "a.eth0", ("p",), {"auth": "none", "kdc": "k"})
    assert service.needs(plain) == ()
    assert service.service_ports(plain, "h") == {"root": "root://h:1094/{path}"}
