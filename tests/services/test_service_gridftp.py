"""GridFTP servers with ``globus-url-copy`` as client."""

import os
import time
from contextlib import ExitStack

import pytest
from bare import check_nothing_left, lacking

from gridftpkit import logins, records, sessions
from venturi.errors import BackendError
from venturi.testbed.services.gridftp import control_log, transfer_log
from venturi.testbed.services.table import SERVICES

pytestmark = pytest.mark.skipif(lacking("gridftp") is not None, reason=str(lacking("gridftp")))
SIZE = 3_000_000


@pytest.fixture
def data(lab):
    """A storage with a file, and a destination path."""
    storage = lab.storage("disk")
    source = storage / "source"
    source.write_bytes(os.urandom(SIZE))
    yield source, storage / "copy"
    (storage / "copy").unlink(missing_ok=True)


def url(service_ports, path):
    (template,) = service_ports.values()
    return template.format(port=2811, path=path)


def copy(lab, host, *arguments, status=0, **environment):
    done = lab.run(host, "globus-url-copy", *arguments, environment=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_anonymous_clients_read_and_write_and_the_server_cleans_up(lab, data):
    source, target = data
    for number in range(3):
        context = lab.context(f"anonymous{number}", "gridftp", storages=["disk"])
        with lab.running(context) as service_ports:
            assert service_ports == {"ftp": "ftp://a.lab.test:{port}{path}"}
            copy(lab, "b", "-p", "4", "-fast", url(service_ports, source), f"file://{target}")
            assert target.read_bytes() == source.read_bytes()
            copy(lab, "b", f"file://{source}", url(service_ports, f"{target}.up"))
            assert target.with_name("copy.up").read_bytes() == source.read_bytes()
        check_nothing_left(lab)
        lines = records(transfer_log(context).read_text())
        assert [(line.kind, line.bytes, line.streams, line.code) for line in lines] == [
            ("RETR", SIZE, 4, 226),
            ("STOR", SIZE, 1, 226),
        ]


def test_a_third_party_copy_with_certificates_authenticates_at_both_servers(lab, data):
    source, target = data
    contexts = [lab.context(f"gsi-{host}", "gridftp", host, auth="gsi") for host in "ab"]
    with lab.running(contexts[0]) as there, lab.running(contexts[1]) as here:
        assert list(there) == ["gsiftp"]
        copy(lab, "c", url(there, source), url(here, target))
        assert target.read_bytes() == source.read_bytes()
    for context in contexts:
        (login,) = logins(sessions(control_log(context).read_text()))
        assert (login.subject, login.user) == ("/O=Venturi/CN=Lab User", "root")
    check_nothing_left(lab)


def test_a_client_without_a_proxy_is_rejected(lab, data):
    source, target = data
    with lab.running(lab.context("strict", "gridftp", auth="gsi")) as service_ports:
        done = copy(
            lab, "b", url(service_ports, source), f"file://{target}", status=1, X509_USER_PROXY="/nonexistent"
        )
        assert "credential" in done.stderr
    assert not target.exists() or target.stat().st_size == 0


def test_a_proxy_works_until_it_expires_and_the_error_reports_the_expiry(lab, data):
    source, target = data
    with lab.running(lab.context("expiry", "gridftp", auth="gsi")) as service_ports:
        short = {"X509_USER_PROXY": str(lab.pki.proxy(lifetime_s=10, path=lab.directory / "short"))}
        copy(lab, "b", url(service_ports, source), f"file://{target}", **short)
        assert target.read_bytes() == source.read_bytes()
        deadline = time.monotonic() + 30
        # During the last second of the proxy, other errors are possible.
        while "expired" not in lab.run("b", "globus-url-copy", url(service_ports, source), f"file://{target}",
                                       environment=short).stderr:  # fmt: skip
            assert time.monotonic() < deadline
        old = {"X509_USER_PROXY": str(lab.pki.proxy(lifetime_s=-1, path=lab.directory / "old"))}
        done = copy(lab, "b", url(service_ports, source), f"file://{target}", status=1, **old)
        assert "The proxy credential" in done.stderr
        assert "expired" in done.stderr


@pytest.mark.parametrize("auth", ["none", "gsi"])
def test_a_striped_copy_moves_half_of_the_file_through_each_data_node(lab, data, auth):
    source, target = data
    size = 8 << 20
    source.write_bytes(os.urandom(size))
    nodes = [lab.context(f"node-{auth}-{host}", "gridftp-node", host, auth=auth) for host in "ab"]
    sinks = [lab.context(f"sink-{auth}-{host}", "gridftp-node", host, ports=[6001], auth=auth) for host in "bc"]
    front = lab.context(f"front-{auth}", "gridftp", auth=auth, data_nodes=", ".join(node.spec.name for node in nodes))
    back = lab.context(
        f"back-{auth}", "gridftp", "c", auth=auth, data_nodes=",".join(node.spec.name for node in sinks)
    )
    gridftp = SERVICES["gridftp"]
    assert gridftp.needs(front.spec) == tuple(node.spec.name for node in nodes)
    with ExitStack() as running:
        for context in [*nodes, *sinks]:
            running.enter_context(lab.running(context))
        there, here = (running.enter_context(lab.running(context)) for context in (front, back))
        copy(lab, "b", "-stripe", "-fast", "-nodcau", url(there, source), url(here, target))
        assert target.read_bytes() == source.read_bytes()
    check_nothing_left(lab)
    for context, kind in [(front, "RETR"), (back, "STOR")]:
        (line,) = records(transfer_log(context).read_text())
        assert (line.kind, line.bytes, line.stripes) == (kind, size, 2)
    # Writing data nodes do not log their own part, and not every reading data node does.
    own = [line for node in nodes for line in records(transfer_log(node).read_text())]
    assert {(line.kind, line.bytes, line.stripes) for line in own} == {("RETR", size // 2, 2)}


def test_a_data_node_of_another_kind_or_with_other_access_is_rejected(lab):
    other = lab.context("not-a-node", "iperf3")
    node = lab.context("open-node", "gridftp-node")
    with pytest.raises(BackendError, match=r"kind gridftp-node, found not-a-node of kind iperf3"):
        SERVICES["gridftp"].configure(lab.context("wrong", "gridftp", data_nodes=other.spec.name))
    with pytest.raises(BackendError, match=r'auth = "gsi" as its own, found open-node with "none"'):
        SERVICES["gridftp"].configure(lab.context("wrong", "gridftp", auth="gsi", data_nodes=node.spec.name))


def test_clients_beyond_the_limit_are_rejected(lab, data):
    source, target = data
    with lab.running(lab.context("narrow", "gridftp", connections=1)) as service_ports:
        shell = lab.shells["b"]
        first = shell.start(
            ["globus-url-copy", "-t", "10", url(service_ports, "/dev/zero"), "file:///dev/null"],
            log=lab.directory / "first",
        )
        control = control_log(lab.contexts["narrow"])
        deadline = time.monotonic() + 10
        while "RETR /dev/zero" not in control.read_text() and "ERET" not in control.read_text():
            assert time.monotonic() < deadline
        copy(lab, "c", url(service_ports, source), f"file://{target}", status=1)
        first.stop()


def test_a_server_of_an_ordinary_user_serves_as_that_user(lab, data):
    source, target = data
    lab.shells["a"].privileged = False
    try:
        with lab.running(lab.context("plain", "gridftp")) as service_ports:
            copy(lab, "b", url(service_ports, source), f"file://{target}")
            copy(lab, "b", f"file://{source}", url(service_ports, f"{target}.plain"))
            assert target.with_name("copy.plain").owner() == "nobody"
    finally:
        lab.shells["a"].privileged = True
    check_nothing_left(lab)
