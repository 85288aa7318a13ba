"""XRootD data servers, used by xrdcp, curl and davix."""

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
def places(lab):
    """A place with a file on a, an empty one on b, and a folder of the client."""
    source = lab.place("disk-a", "a") / "source"
    source.write_bytes(os.urandom(SIZE))
    return source, lab.place("disk-b", "b"), lab.place("local", "c")


def url(doors, protocol, path):
    return doors[protocol].format(path=path)


def run(lab, *argv, status=0, host="c", **environment):
    done = lab.run(host, *map(str, argv), environment=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def xrdcp(lab, *argv, **how):
    return run(lab, "xrdcp", "-f", "-N", *argv, **how)


@pytest.mark.parametrize("time", [1, 2, 3])
def test_clients_read_and_write_by_both_protocols_and_nothing_is_left(lab, places, time):
    source, target, local = places
    data = source.read_bytes()
    room = lab.room(f"plain{time}", "xrootd", places=["disk-a"], http=True)
    with lab.running(room) as doors:
        assert doors == {"root": "root://a.lab.test:1094/{path}", "http": "http://a.lab.test:1094{path}"}
        xrdcp(lab, "-S", "4", url(doors, "root", source), local / "read")
        assert (local / "read").read_bytes() == data
        assert "adler32: " in xrdcp(lab, "--cksum", "adler32:source", url(doors, "root", source), "/dev/null")
        xrdcp(lab, source, url(doors, "root", source.with_name("new") / "written"))
        assert (source.with_name("new") / "written").read_bytes() == data
        assert (source.with_name("new") / "written").owner() == "xrootd"
        run(lab, "curl", "-sSf", "-o", local / "got", url(doors, "http", source))
        assert (local / "got").read_bytes() == data
        run(lab, "curl", "-sSf", "-T", source, url(doors, "http", source.with_name("put")))
        assert source.with_name("put").read_bytes() == data
        run(lab, "davix-get", url(doors, "http", source), local / "davix")
        assert (local / "davix").read_bytes() == data
        refused = xrdcp(lab, url(doors, "root", target / "elsewhere"), "/dev/null", status=54)
        assert "is disallowed" in refused
    check_nothing_left(lab)


def test_http_may_have_a_port_of_its_own(lab, places):
    source, _, _ = places
    with lab.running(lab.room("two-ports", "xrootd", places=["disk-a"], http=True, ports=[1095, 8080])) as doors:
        assert doors == {"root": "root://a.lab.test:1095/{path}", "http": "http://a.lab.test:8080{path}"}
        assert lab.listening() == [1095, 8080]
        run(lab, "curl", "-sSf", "-o", "/dev/null", url(doors, "http", source))
        assert lab.run("c", "curl", "-sSf", f"http://a.lab.test:1095{source}").returncode != 0


@pytest.mark.parametrize("auth", ["none", "sss", "krb5", "gsi"])
def test_who_proves_who_he_is_copies_directly_and_between_servers(lab, places, auth):
    source, target, _ = places
    with ExitStack() as stack:
        stack.enter_context(lab.running(lab.room(f"kdc-{auth}", "kdc", "c")))
        known = {"auth": auth, "kdc": f"kdc-{auth}", "tls": True, "http": True}
        one, two = (
            stack.enter_context(
                lab.running(lab.room(f"{auth}-{host}", "xrootd", host, places=[f"disk-{host}"], **known))
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
            said = run(
                lab, "curl", "-sS", "-X", "COPY", "-H", header, "-H", "Credential: none", "-H",
                "X-Number-Of-Streams: 2", url(at, "https", paths[id(at)]),
            )  # fmt: skip
            assert "success: Created" in said
        copies = sorted((target / auth).iterdir())
        assert [copy.name for copy in copies] == ["Destination", "Source", "third"]
        assert all(copy.read_bytes() == source.read_bytes() for copy in copies)
    check_nothing_left(lab)


def test_a_server_of_an_ordinary_user_serves_as_that_user(lab, places):
    source, _, _ = places
    lab.machines["a"].privileged = False
    try:
        with lab.running(lab.room("ordinary", "xrootd", places=["disk-a"], auth="sss", http=True)) as doors:
            xrdcp(lab, source, url(doors, "root", source.with_name("ordinary")))
            assert source.with_name("ordinary").owner() == "nobody"
            run(lab, "curl", "-sSf", "-o", "/dev/null", url(doors, "http", source))
    finally:
        lab.machines["a"].privileged = True
    check_nothing_left(lab)


def test_what_is_missing_is_said(lab, places):
    service = SERVICES["xrootd"]
    with pytest.raises(BackendError, match="empty: expected a storage to serve, found none"):
        service.configure(lab.room("empty", "xrootd"))
    with pytest.raises(BackendError, match="expected the option kdc with auth"):
        service.configure(lab.room("lost", "xrootd", places=["disk-a"], auth="krb5"))
    with pytest.raises(BackendError, match=r"expected one storage with shared = true, found 2"):
        service.configure(lab.room("wide", "xrootd", places=["disk-a", "disk-b"], shared=True))
    with pytest.raises(BackendError, match="expected empty to be a service of kind xrootd-redirector, found xrootd"):
        service.configure(lab.room("misled", "xrootd", places=["disk-a"], redirector="empty"))


def test_it_is_planned_by_its_options_alone():
    service = SERVICES["xrootd"]
    options = {"auth": "krb5", "kdc": "k", "redirector": "r", "shared": True, "http": True}
    spec = ServiceSpec("x", "xrootd", "a", "a.eth0", ("p",), options, ports=(1, 2))
    assert service.needs(spec) == ("k", "r")
    assert service.doors(spec, "h") == {"root": "root://h:1//{relative}", "http": "http://h:2/{relative}"}
    plain = ServiceSpec("x", "xrootd", "a", "a.eth0", ("p",), {"auth": "none", "kdc": "k"})
    assert service.needs(plain) == ()
    assert service.doors(plain, "h") == {"root": "root://h:1094/{path}"}
