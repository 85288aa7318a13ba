"""Path probes: real listeners and connections of shells on this machine and in network namespaces."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from testkit import free_port, needs_programs, needs_root, wait_until
from venturi.backend.connection import Connection, open_shell
from venturi.backend.host_services import _url_address
from venturi.backend.path_probe import PathTarget, path_findings, path_properties, probe_paths
from venturi.errors import BackendError


@pytest.fixture
def shells(engine, tmp_path):
    """Shells of two host names on this machine."""
    with (
        open_shell(Connection.to("a"), cache=str(tmp_path / "a")) as first,
        open_shell(Connection.to("b"), cache=str(tmp_path / "b")) as second,
    ):
        yield {"a": first, "b": second}


def target(**changes):
    return PathTarget(
        **(
            {
                "service": "serve",
                "host": "b",
                "address": "127.0.0.1",
                "ports": (free_port(),),
                "open_ports": None,
                "clients": ("a",),
            }
            | changes
        )
    )


def test_probing_a_working_path_gives_its_properties_and_frees_the_port(shells):
    one = target()
    (path,) = probe_paths([one], shells)
    assert (path.client, path.port, path.measured.remote_address) == ("a", one.ports[0], "127.0.0.1")
    found = path_properties([path])["a"]["path"]["b"]
    assert found["interface"] == "lo"
    assert 0 < found["connect_s"] < 1
    assert 0 < found["rtt_s"] < 1
    assert path_findings([path]) == []
    with socket.create_server(("127.0.0.1", one.ports[0])):
        pass


def test_a_port_in_use_is_named(shells):
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BackendError, match=rf"serve: cannot listen on port {port} of b: .*open_ports"):
            probe_paths([target(ports=(port,))], shells)


def test_an_unknown_name_is_reported_with_the_key_to_set(shells):
    with pytest.raises(BackendError) as caught:
        probe_paths([target(address="no-such-host.invalid", open_ports=(50000, 50100))], shells)
    text = str(caught.value)
    assert text.startswith("serve: no path from host a to no-such-host.invalid port ")
    assert "(host b, open_ports 50000-50100): the client cannot resolve the name" in text
    assert text.endswith("Set testbed.host.b.address to a name or address that this host knows.")
    assert "\n" not in text


def test_an_existing_server_is_only_contacted_and_its_absence_is_reported(shells):
    with socket.create_server(("127.0.0.1", 0)) as server:
        existing = target(host=None, ports=(server.getsockname()[1],))
        (path,) = probe_paths([existing], shells)
        assert "127.0.0.1" in path_properties([path])["a"]["path"]
    with pytest.raises(
        BackendError,
        match=r"serve: no path from host a to 127\.0\.0\.1 port \d+ \(an existing server\): connection refused",
    ):
        probe_paths([existing], shells)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ftp://dtn.example.org:2121{path}", ("dtn.example.org", 2121)),
        ("davs://eos.example.org{path}", ("eos.example.org", 443)),
        ("root://alice@[fd00::1]:1095/{path}", ("fd00::1", 1095)),
        ("gsiftp://{host}:{port}{path}", None),
        ("file://{path}", None),
        ("other://somewhere{path}", None),
    ],
)
def test_addresses_of_existing_servers_come_from_their_urls(url, address):
    assert _url_address(url) == address


NAMESPACES = ("vp-a", "vp-b")


@pytest.fixture
def linked(engine, tmp_path):
    """Shells of two hosts in linked network namespaces, and a function that runs a command in one of them."""
    namespace_owners = {name: subprocess.Popen(["unshare", "--net", "sleep", "600"]) for name in ("a", "b")}
    own = Path("/proc/self/ns/net").readlink()

    def within(name, *command):
        subprocess.run(["nsenter", "--net", "--target", str(namespace_owners[name].pid), *command], check=True)

    try:
        for namespace_owner in namespace_owners.values():
            wait_until(
                lambda namespace_owner=namespace_owner: Path(f"/proc/{namespace_owner.pid}/ns/net").readlink() != own,
                "a namespace",
            )
        within(
            "a",
            "ip",
            "link",
            "add",
            "veth0",
            "type",
            "veth",
            "peer",
            "name",
            "veth0",
            "netns",
            str(namespace_owners["b"].pid),
        )
        for name, address in (("a", "10.91.0.1/24"), ("b", "10.91.0.2/24")):
            within(name, "ip", "address", "add", address, "dev", "veth0")
            within(name, "ip", "link", "set", "veth0", "up")
            within(name, "ip", "link", "set", "lo", "up")
        prefixes = {
            name: ["nsenter", "--net", "--target", str(namespace_owner.pid), "env", f"HOME={tmp_path}"]
            for name, namespace_owner in namespace_owners.items()
        }
        with (
            open_shell(Connection.to("a", connect=prefixes["a"])) as first,
            open_shell(Connection.to("b", connect=prefixes["b"])) as second,
        ):
            yield {"a": first, "b": second}, within
    finally:
        for namespace_owner in namespace_owners.values():
            namespace_owner.kill()
            namespace_owner.wait()


@needs_root
@needs_programs("ip", "nsenter")
def test_a_path_has_the_properties_of_its_link(linked):
    shells, within = linked
    within("a", "ip", "link", "set", "veth0", "mtu", "1400")
    (path,) = probe_paths([target(address="10.91.0.2")], shells)
    assert (path.measured.local_address, path.measured.interface) == ("10.91.0.1", "veth0")
    assert path.measured.path_mtu_bytes == 1400
    (finding,) = path_findings([path])
    assert (finding.code, finding.host) == ("path-mtu", "a")


@needs_root
@needs_programs("ip", "nsenter")
def test_an_address_without_a_route_is_reported(linked):
    shells, _ = linked
    with pytest.raises(
        BackendError,
        match=r"serve: no path from host a to 10\.99\.0\.1 port .*: no route .*testbed\.host\.b\.address",
    ):
        probe_paths([target(address="10.99.0.1")], shells)


@needs_root
@needs_programs("ip", "nsenter", "nft")
@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("tcp dport 15000-32000 drop", "no response"),
        ("tcp dport 15000-32000 reject with tcp reset", "connection refused"),
        ("ip length > 1000 drop", "large packets are lost"),
    ],
)
def test_firewalls_and_mtu_black_holes_are_reported(linked, rule, cause):
    shells, within = linked
    within(
        "b",
        "nft",
        "add table inet f; add chain inet f in { type filter hook input priority 0; }; add rule inet f in " + rule,
    )
    with pytest.raises(BackendError) as caught:
        probe_paths([target(address="10.91.0.2", open_ports=(15000, 32000))], shells)
    text = str(caught.value)
    assert text.startswith("serve: no path from host a to 10.91.0.2 port ")
    assert f"open_ports 15000-32000): {cause}" in text
    assert "\n" not in text
    assert os.linesep not in text
