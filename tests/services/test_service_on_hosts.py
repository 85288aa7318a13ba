"""Services on real hosts: an ordinary user's servers behind a host shell, which reject hosts outside of the testbed."""

import dataclasses
import json
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from bare import bare_lab, lacking
from nuttcp_client import nuttcp_command

from testkit import wait_until
from venturi.backend.clock import ClockOffset
from venturi.backend.connection import Connection, open_shell
from venturi.backend.engine import find_engine
from venturi.backend.host_services import HostServices
from venturi.backend.plan_usage import HostUsage
from venturi.errors import BackendError
from venturi.mover.nuttcp import DATA_PORTS_VARIABLE
from venturi.plan.header import Header, Host, Measure, PlanService, Storage, Totals
from venturi.testbed import service_manager
from venturi.testbed.host_ports import HostPorts, find_ports, reported_addresses
from venturi.testbed.lab.host_shell import _all_children
from venturi.testbed.record_buffer import RecordBuffer
from venturi.testbed.service_context import SESSION
from venturi.testbed.services.base import ServiceSpec, find_hosts_obstacle
from venturi.testbed.services.sshd import CLIENT_CONFIGURATION
from venturi.testbed.services.table import SERVICES

USER, USER_ID = "alice", 2345
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.77.0.3"}
OPEN_PORTS = (24_000, 24_099)
LONG_TEST_PORT = 24_060
SIZE = 300_000
REJECTED_S = 20

pytestmark = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))


@dataclass
class Testbed:
    """Two hosts, ``a`` and ``b``, with shells of an ordinary user, and a host ``c`` outside of the testbed."""

    directory: Path
    lab: object
    shells: dict

    __test__ = False

    def storage(self, host, name="data"):
        path = self.home(host) / name
        self.shells[host].make_directory(path)
        return path

    def home(self, host):
        return self.directory / f"home-{host}"

    @contextmanager
    def running(self, kind, *, others=(), ports=1, open_ports=OPEN_PORTS, made_by=HostServices, **options):
        """Run a service of ``b``, as in a plan with both hosts, and yield it."""
        services = {**dict(others), "server": service(kind, ports=ports, **options)}
        with self.made(services, open_ports, made_by=made_by) as running:
            running.hosts.bring_up(lambda step: None)
            try:
                yield running
                exits = [record for _, record in running.records if record["record"] == "finding"]
                assert exits == []
            finally:
                problems = running.hosts.stop()
            assert problems == []

    @contextmanager
    def made(self, services, open_ports=OPEN_PORTS, shells=None, made_by=HostServices):
        """Yield services that have not been started."""
        found, buffer = [], RecordBuffer(time.time_ns())
        buffer.listen(lambda host, record: found.append((host, record)))
        hosts = {name: Host(address=ADDRESSES[name], open_ports=open_ports) for name in ("a", "b")}
        header = Header(
            "hosts", 1, 1.0, {}, hosts, {"sb": Storage("b", "data")}, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}),
            services=services,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as directory:
            made = made_by(
                header,
                hosts,
                {name: Connection.to(name, connect=["true"]) for name in hosts},
                shells or self.shells,
                {"sb": ("b", PurePosixPath(self.home("b") / "data"))},
                {"a": HostUsage(services={name for name, one in services.items() if one.kind != "gridftp-node"})},
                Path(directory),
                buffer,
            )
            try:
                yield Running(self, made, found, header)
            finally:
                made.forget()

    def stranger(self, *argv, **environment):
        """Run a client on the host outside of the testbed."""
        argv = ["timeout", "-k", "1", str(REJECTED_S), *map(str, argv)]
        environment = {
            "XRD_CONNECTIONWINDOW": "2",
            "XRD_CONNECTIONRETRY": "1",
            "XRD_REQUESTTIMEOUT": "4",
            **environment,
        }
        return self.lab.shells["c"].run(argv, timeout_s=REJECTED_S + 10, environment=environment)

    def own_processes(self):
        """Return the names of the processes of the user, without shells."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                status = (directory / "status").read_text().splitlines()
                fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
            except OSError:
                continue
            if fields.get("Uid", "").split()[:1] == [str(USER_ID)]:
                found.append(fields["Name"])
        return sorted(name for name in found if not name.startswith(("venturi-engine", "engine-", "sh")))


@dataclass
class Running:
    """Services of ``a`` and ``b``; the service under test is ``server``."""

    testbed: Testbed
    hosts: HostServices
    records: list
    header: Header

    __test__ = False

    @property
    def context(self):
        return self.hosts.running["server"].context

    @property
    def ports(self):
        return self.hosts.addresses["server"]["ports"]

    def environment(self, host="a"):
        session = str(self.testbed.shells[host].session)
        return {name: value.replace(SESSION, session) for name, value in self.hosts.client_environment.items()}

    def url(self, protocol, path):
        kind, start = self.header.services["server"].kind, self.hosts.addresses["server"]
        spec = spec_of(kind, ("sb",), **self.header.services["server"].options)
        template = SERVICES[kind].service_ports(spec, "{host}")[protocol]
        return template.format(host=start["address"], port=start["ports"][0], path=path, relative="")

    def client(self, *argv, status=0):
        """Run a client on ``a`` with the environment of clients."""
        done = self.testbed.shells["a"].run(list(map(str, argv)), timeout_s=60, environment=self.environment())
        assert (done.returncode == 0) == (status == 0), (argv, done.stdout, done.stderr)
        return done.stdout + done.stderr


def service(kind, *, host="b", ports=1, storages=("sb",), after=(), **options):
    defaults = {option.key: option.default for option in SERVICES[kind].options}
    assert set(options) <= set(defaults)
    return PlanService(
        kind, host, None, storages if kind not in ("iperf3", "nuttcp", "squid", "ssh", "sshd") else (),
        defaults | options, after, tuple(SERVICES[kind].default_ports[:ports]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def testbed():
    with tempfile.TemporaryDirectory(prefix="venturi-hosts-") as name, bare_lab(Path(name)) as lab:
        directory = Path(name)
        lines = {
            "passwd": f"{USER}:x:{USER_ID}:{USER_ID}::{directory}/home-b:/bin/sh",
            "group": f"{USER}:x:{USER_ID}:",
            "shadow": f"{USER}:*:1::::::",
        }
        for file, line in lines.items():
            changed = directory / file
            changed.write_text(f"{Path('/etc', file).read_text()}{line}\n")
            changed.chmod(0o600 if file == "shadow" else 0o644)
            assert lab.shells["a"].run(["mount", "--bind", str(changed), f"/etc/{file}"], timeout_s=5).returncode == 0
        made = Testbed(directory, lab, {})
        for host in ("a", "b"):
            home = made.home(host)
            home.mkdir()
            os.chown(home, USER_ID, USER_ID)
            home.chmod(0o700)
            made.shells[host] = open_user_shell(made, host)
        try:
            yield made
        finally:
            sessions = [shell.session for shell in made.shells.values()]
            for shell in made.shells.values():
                shell.close()
            left = [session for session in sessions if Path(session).exists()]
            wait_until(lambda: made.own_processes() == [], "all processes of the user to end")
        assert left == []


def open_user_shell(testbed, host):
    """Connect to a host as an ordinary user with a clean environment."""
    enter = ["nsenter", "--target", str(testbed.lab.shells[host].outer), "--mount", "--net", "--uts", "--pid", "--"]
    user = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]
    clean = ["env", "-i", f"HOME={testbed.home(host)}", f"PATH={os.environ['PATH']}", "LANG=C"]
    return open_shell(Connection.to(host, connect=[*enter, *user, *clean]), address=ADDRESSES[host])


@pytest.fixture
def files(testbed):
    """A file of the client, the path of its copy, and the storage of the server."""
    source = testbed.storage("a") / "source"
    testbed.shells["a"].put(source, os.urandom(SIZE))
    return source, testbed.storage("a") / "back", testbed.storage("b")


def copy(kind, protocol, running, source, destination, client="a"):
    """Return the usual client command of a protocol for one file, for ``a`` or for a host outside of the testbed."""
    ends = str(source), str(destination)
    match kind, protocol:
        case "venturi-serve", "ftp" | "gsiftp" | "https":
            engine = running.testbed.shells["a"].engine if client == "a" else find_engine()
            return [engine, "copy", *ends]
        case _, "ftp" | "gsiftp":
            return ["globus-url-copy", *(end if "://" in end else f"file://{end}" for end in ends)]
        case _, "http" | "https":
            return ["curl", "-sS", "-f", *(("-o", ends[1], ends[0]) if "://" in ends[0] else ("-T", *ends))]
        case _, "root":
            return ["xrdcp", "-f", "-N", *ends]
        case _, "ssh":
            known = ["-F", running.environment()[CLIENT_CONFIGURATION]]
            unknown = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
            # A path of scp is absolute only with a second slash.
            urls = [
                end.replace("ssh://", "scp://").replace("/tmp/", "//tmp/", 1) if "://" in end else end for end in ends
            ]
            return ["scp", "-q", *(known if client == "a" else unknown), *urls]
    raise AssertionError(kind, protocol)


CASES = [
    ("venturi-serve", "ftp", {}),
    ("venturi-serve", "gsiftp", {"auth": "gsi"}),
    ("venturi-serve", "http", {"http": True}),
    ("venturi-serve", "https", {"http": True, "tls": True}),
    ("gridftp", "ftp", {}),
    ("gridftp", "gsiftp", {"auth": "gsi"}),
    ("nginx", "http", {}),
    ("xrootd", "root", {}),
    ("xrootd", "http", {"http": True}),
    ("xrootd", "root", {"auth": "sss"}),
    ("xrootd", "root", {"auth": "gsi"}),
    ("sshd", "ssh", {}),
]


def name_of(case):
    kind, protocol, options = case
    return "-".join([kind, protocol, *map(str, options.values())])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_server_of_an_ordinary_user_serves_only_the_testbed_and_cleans_up(testbed, files, case):
    kind, protocol, options = case
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    source, back, storage = files
    with testbed.running(kind, **options) as running:
        there = running.url(protocol, storage / "there")
        running.client(*copy(kind, protocol, running, source, there))
        assert (storage / "there").read_bytes() == source.read_bytes()
        assert (storage / "there").stat().st_uid == USER_ID
        assert stat.S_IMODE((storage / "there").stat().st_mode) & 0o077 == 0
        running.client(*copy(kind, protocol, running, there, back))
        assert back.read_bytes() == source.read_bytes()
        ports = running.ports
        assert all(OPEN_PORTS[0] <= port <= OPEN_PORTS[1] for port in ports)
        # A client without credentials, at another address, cannot read or write.
        stolen, left = testbed.directory / "stolen", f"{there}-by-a-stranger"
        for ends in ((there, stolen), (__file__, left)):
            done = testbed.stranger(*copy(kind, protocol, running, *ends, client="stranger"))
            assert done.returncode != 0, (ends, done.stdout, done.stderr)
        assert not stolen.exists() or stolen.stat().st_size == 0
        assert not Path(f"{storage}/there-by-a-stranger").exists()
        stolen.unlink(missing_ok=True)
    check_nothing_left(testbed, storage, {"there"})
    for path in (back, storage / "there"):
        path.unlink()


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "sshd" and "auth" not in case[2]], ids=name_of)
def test_an_open_server_serves_all_clients_but_only_its_storages(testbed, files, case):
    kind, protocol, options = case
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    source, _, storage = files
    secret = testbed.home("b") / "secret"
    testbed.shells["b"].put(secret, "not for clients")
    with testbed.running(kind, open=True, open_ports=None, **options) as running:
        there = running.url(protocol, storage / "there")
        running.client(*copy(kind, protocol, running, source, there))
        got = testbed.directory / "got"
        authority = running.environment().get("CURL_CA_BUNDLE", "")
        trust = {"CURL_CA_BUNDLE": authority, "SSL_CERT_FILE": authority} if authority else {}
        done = testbed.stranger(*copy(kind, protocol, running, there, got, client="stranger"), **trust)
        assert done.returncode == 0, done.stderr
        assert got.read_bytes() == source.read_bytes()
        got.unlink()
        for path in (secret, "/etc/passwd"):
            running.client(*copy(kind, protocol, running, running.url(protocol, path), f"{source}-stolen"), status=1)
            assert (
                not Path(f"{source}-stolen").exists()
                or b"not for clients" not in Path(f"{source}-stolen").read_bytes()
            )
        running.client(
            *copy(kind, protocol, running, source, running.url(protocol, testbed.home("b") / "new")), status=1
        )
        assert not (testbed.home("b") / "new").exists()
    check_nothing_left(testbed, storage, {"there"})
    (storage / "there").unlink()


def test_a_proxy_serves_the_testbed_and_no_other_host(testbed, files):
    reason = lacking("squid", "nginx")
    if reason:
        pytest.skip(reason)
    source, back, storage = files
    (storage / "object").write_bytes(source.read_bytes())
    os.chown(storage / "object", USER_ID, USER_ID)
    with testbed.running("squid", others={"origin": service("nginx")}) as running:
        origin = running.hosts.addresses["origin"]
        proxy = [
            "-x",
            running.url("http-proxy", ""),
            f"http://{origin['address']}:{origin['ports'][0]}{storage}/object",
        ]
        for cache in ("MISS", "HIT"):
            headers = running.client("curl", "-sS", "-f", "-D", "-", "-o", back, *proxy)
            assert re.search(rf"X-Cache: {cache}", headers), headers
            assert back.read_bytes() == source.read_bytes()
        done = testbed.stranger("curl", "-sS", "-f", "-o", "/dev/null", *proxy)
        assert done.returncode == 22, done.stderr
    check_nothing_left(testbed, storage, {"object"})
    (storage / "object").unlink()


def start_long_nuttcp(testbed, port):
    """Start a test of one minute on ``a``, and return its process when data flow."""
    client, server = testbed.shells["a"], testbed.shells["b"]
    process = client.start(
        nuttcp_command(ADDRESSES["b"], port, LONG_TEST_PORT, "-T60"), log=client.session / "long.out"
    )
    established = ["ss", "-Htn", "state", "established", f"sport >= :{LONG_TEST_PORT}"]
    wait_until(lambda: server.run(established, timeout_s=10).stdout, "the test to start")
    return process


@pytest.mark.parametrize("kind", ["iperf3", "nuttcp"])
def test_servers_of_network_tests_run_on_free_ports_and_clean_up(testbed, files, kind):
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    with testbed.running(kind, ports=2) as running:
        ports = running.ports
        assert len(set(ports)) == 2
        for port in ports:
            if kind == "iperf3":
                printed = running.client("iperf3", "-c", ADDRESSES["b"], "-p", port, "-n", "10M", "-J")
                assert json.loads(printed)["end"]["sum_received"]["bytes"] > 1_000_000
            else:
                # Like the mover, this test uses open ports for data.
                assert running.environment()[DATA_PORTS_VARIABLE] == "24050 50"
                nuttcp = nuttcp_command(ADDRESSES["b"], port, 24050, "-n160", "-l65536")
                assert "megabytes=10.0000" in running.client(*nuttcp)
                # A client does not wait for another, and is not rejected because of it.
                other = start_long_nuttcp(testbed, port)
                assert "megabytes=10.0000" in running.client(*nuttcp)
                assert other.poll() is None
                other.stop()
    check_nothing_left(testbed, files[2], set())


def test_the_existing_ssh_server_of_a_host_is_used(testbed, files):
    reason = lacking("ssh")
    if reason:
        pytest.skip(reason)
    source, back, storage = files
    with host_ssh_server(testbed) as keys:
        with testbed.running("ssh") as running:
            assert running.hosts.addresses["server"] == {"address": ADDRESSES["b"], "ports": [22]}
            there = running.url("ssh", storage / "there")
            running.client(*copy("ssh", "ssh", running, source, there))
            running.client(*copy("ssh", "ssh", running, there, back))
            assert back.read_bytes() == source.read_bytes()
        (storage / "there").unlink()
        # A login without permission is an error before the first transfer.
        (keys / "authorized_keys").unlink()
        rejected = r"(?s)from a: ssh .*Permission denied.*let a log in to 10\.77\.0\.2"
        with pytest.raises(BackendError, match=rejected), short_wait(), testbed.running("ssh"):
            pass


def test_a_striped_server_has_data_nodes_on_both_hosts(testbed, files):
    reason = lacking("gridftp")
    if reason:
        pytest.skip(reason)
    source, _, storage = files
    nodes = {"node": service("gridftp-node", storages=("sb",))}
    with testbed.running("gridftp", others=nodes, after=("node",), data_nodes="node") as running:
        there = running.url("ftp", storage / "there")
        running.client(*copy("gridftp", "ftp", running, source, there))
        assert (storage / "there").read_bytes() == source.read_bytes()
        assert testbed.stranger(*copy("gridftp", "ftp", running, there, testbed.directory / "stolen")).returncode != 0
    check_nothing_left(testbed, storage, {"there"})
    (storage / "there").unlink()


def test_a_redirector_and_its_server_form_a_cluster(testbed, files):
    reason = lacking("xrootd")
    if reason:
        pytest.skip(reason)
    source, back, storage = files
    data = {"data": service("xrootd", after=("server",), redirector="server")}
    with testbed.running("xrootd-redirector", others=data, storages=("sb",)) as running:
        there = running.url("root", storage / "there")
        running.client(*copy("xrootd", "root", running, source, there))
        running.client(*copy("xrootd", "root", running, there, back))
        assert back.read_bytes() == source.read_bytes()
        assert testbed.stranger(*copy("xrootd", "root", running, there, testbed.directory / "stolen")).returncode != 0
    check_nothing_left(testbed, storage, {"there"})
    (storage / "there").unlink()


@pytest.mark.parametrize(("kind", "protocol"), [("gridftp", "ftp"), ("venturi-serve", "ftp"), ("nginx", "http")])
def test_logs_of_servers_are_fetched_and_corrected_by_the_clock_of_the_host(testbed, files, kind, protocol):
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    source, _, storage = files
    with testbed.running(kind) as running:
        # This test does not use `venturi copy`, which first writes to a temporary name.
        client = "gridftp" if protocol == "ftp" else kind
        running.client(*copy(client, protocol, running, source, running.url(protocol, storage / "there")))
        running.hosts.stop()
        testbed.shells["b"].clock_offset = ClockOffset(1000.0, 0.0)
        running.hosts.record_logs()
        logs = [running.context.fetch(log) for log in running.hosts.running["server"].logs()]
        assert any(log.stat().st_size for log in logs if log.exists())
        found = running.records
    transfers = [record for host, record in found if record.get("kind") == "server-transfer" and host == "b"]
    assert [one["detail"]["file_bytes"] for one in transfers] == [SIZE], found
    (transfer,) = transfers
    assert transfer["detail"]["endpoint"] == "sb:there"
    assert -1001 < transfer["time_s"] < -900
    (storage / "there").unlink()


@pytest.mark.parametrize("kind", ["gridftp", "venturi-serve"])
def test_data_connections_use_open_ports_of_the_host(testbed, files, kind):
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    with testbed.running(kind) as running:
        (port,) = running.ports
        lines = [None, "USER anonymous", "PASS a@example.org", "PASV"]
        reply = testbed.shells["a"].converse(ADDRESSES["b"], port, lines, 10)[-1]
        *address, high, low = re.search(r"\(([\d,]+)\)", reply)[1].split(",")
        assert ".".join(address) == ADDRESSES["b"]
        assert OPEN_PORTS[0] <= int(high) * 256 + int(low) <= OPEN_PORTS[1]


@pytest.mark.parametrize("case", [case for case in CASES if case[1] in ("ftp", "http")], ids=name_of)
def test_an_address_with_the_same_prefix_is_rejected(testbed, files, case):
    kind, protocol, options = case
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    source, _, storage = files
    similar = f"{ADDRESSES['b']}0"
    rename = testbed.lab.shells["c"].run
    assert rename(["ip", "addr", "replace", f"{similar}/24", "dev", "eth0"], timeout_s=5).returncode == 0
    (storage / "there").write_bytes(source.read_bytes())
    os.chown(storage / "there", USER_ID, USER_ID)
    with testbed.running(kind, **options) as running:
        # With two slashes, curl does not take the FTP path as relative to the login directory.
        url = running.url(protocol, f"/{storage}/there" if protocol == "ftp" else storage / "there")
        running.client("curl", "-sS", "-f", "-o", "/dev/null", url)
        done = testbed.stranger("curl", "-sS", "-f", "--interface", similar, "-o", "/dev/null", url)
        # 28: curl calls the reply 421 a timeout.
        assert done.returncode in (8, 22, 28, 52, 56), done.stderr
    (storage / "there").unlink()


class BehindTranslation(HostServices):
    """Hosts with NAT addresses for clients; servers listen on all of their own addresses."""

    def _bind_address(self, name):
        return None


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "sshd" and "auth" not in case[2]], ids=name_of)
def test_a_server_on_all_addresses_admits_the_testbed_and_no_other_host(testbed, files, case):
    kind, protocol, options = case
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    source, _, storage = files
    with testbed.running(kind, made_by=BehindTranslation, **options) as running:
        there = running.url(protocol, storage / "there")
        running.client(*copy(kind, protocol, running, source, there))
        assert (storage / "there").read_bytes() == source.read_bytes()
        stolen = testbed.directory / "stolen"
        assert testbed.stranger(*copy(kind, protocol, running, there, stolen, client="stranger")).returncode != 0
        stolen.unlink(missing_ok=True)
    (storage / "there").unlink()


@pytest.fixture
def nameless(testbed):
    """Give host ``b`` a name that does not resolve there, as on many machines."""
    rename = testbed.lab.shells["b"].run
    assert rename(["hostname", "nameless"], timeout_s=5).returncode == 0
    yield
    assert rename(["hostname", "b.lab.test"], timeout_s=5).returncode == 0


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0] in ("gridftp", "venturi-serve", "nginx")], ids=name_of
)
def test_servers_do_not_need_a_host_name_that_resolves(testbed, files, nameless, case):
    kind, protocol, options = case
    reason = lacking(kind)
    if reason:
        pytest.skip(reason)
    source, _, storage = files
    with testbed.running(kind, **options) as running:
        running.client(*copy(kind, protocol, running, source, running.url(protocol, storage / "there")))
        assert (storage / "there").read_bytes() == source.read_bytes()
    (storage / "there").unlink()


def test_xrootd_needs_a_host_name_that_resolves_and_the_error_names_it(testbed, files, nameless):
    reason = lacking("xrootd")
    if reason:
        pytest.skip(reason)
    unresolved = pytest.raises(
        BackendError, match=r"host name of b that resolves.*found nameless; add it to /etc/hosts"
    )
    with unresolved, testbed.running("xrootd"):
        pass


def test_servers_and_files_of_a_killed_shell_are_removed(testbed, files):
    """Servers exit with their shell, and the directory of the run is removed with its keys."""
    with ExitStack() as stack:
        shell = stack.enter_context(open_user_shell(testbed, "b"))
        shells = {**testbed.shells, "b": shell}
        services = {"server": service("venturi-serve", auth="gsi")}
        running = stack.enter_context(testbed.made(services, shells=shells))
        running.hosts.bring_up(lambda step: None)
        assert list((Path(shell.session) / "pki").glob("*.key"))
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in Path(shell.session).rglob("*"))
        assert not list(Path(shell.session).rglob("authority.key"))
        (process,) = running.hosts.running["server"].processes
        (watchdog,) = _all_children(shell.pid)
        os.kill(watchdog, signal.SIGKILL)
        wait_until(lambda: not Path(shell.session).exists(), "the directory of the session to be removed")
        wait_until(lambda: "serve" not in command_of(process.pid), "the server to end")
        running.hosts.stop()


@pytest.mark.parametrize("options", [{}, {"auth": "gsi"}, {"http": True, "tls": True}], ids=str)
def test_the_configuration_of_a_server_does_not_wait_for_hosts(testbed, files, options):
    """On a long path, each result of a host costs a round trip. Stopped shells have no results."""
    with testbed.made({"server": service("venturi-serve", **options)}) as running:
        running.hosts.find_paths(lambda step: None)
        watchdogs = [pid for shell in testbed.shells.values() for pid in _all_children(shell.pid)]
        stopped = [pid for watchdog in watchdogs for pid in _all_children(watchdog)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert len(stopped) >= 2
            assert running.hosts.configure()
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        running.hosts.start(lambda step: None)
        assert running.hosts.running["server"].processes
        assert running.hosts.stop() == []


def test_a_stop_ends_a_start_in_progress_and_its_server(testbed, files, monkeypatch):
    monkeypatch.setattr(type(SERVICES["venturi-serve"]), "ready", lambda self, context: "never ready")
    with testbed.made({"server": service("venturi-serve")}) as running, ThreadPoolExecutor(1) as pool:
        running.hosts.find_paths(lambda step: None)
        running.hosts.configure()
        started = pool.submit(running.hosts.start, lambda step: None)
        wait_until(lambda: running.hosts.running["server"].processes, "the server to start")
        (process,) = running.hosts.running["server"].processes
        assert running.hosts.stop() == []
        assert process.poll() is not None
        started.result(timeout=60)


@pytest.mark.parametrize("kind", sorted(SERVICES))
def test_kinds_that_run_only_in_a_lab_are_rejected_with_the_reason(kind):
    storages = () if kind == "ssh" else ("sb",)
    obstacle = find_hosts_obstacle(SERVICES[kind], spec_of(kind, storages))
    only_in_a_lab = {"kdc", "srm", "moosefs-master", "moosefs-chunkserver", "moosefs-mount"}
    assert (obstacle is not None) == (kind in only_in_a_lab)
    assert obstacle is None or re.search("only in a lab, because", obstacle)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gridftp", {"trace": "packets"}),
        ("squid", {"workers": 2}),
        ("xrootd", {"auth": "krb5"}),
        ("xrootd", {"monitor": True}),
        ("ssh", {"cipher": "aes128-ctr"}),
    ],
)
def test_options_that_work_only_in_a_lab_are_rejected_with_the_reason(kind, options):
    assert "only in a lab" in find_hosts_obstacle(SERVICES[kind], spec_of(kind, ("sb",), **options))


@pytest.mark.parametrize("kind", ["gridftp", "gridftp-node", "venturi-serve"])
def test_a_file_server_without_storages_is_rejected(kind):
    assert "expected `storage`" in find_hosts_obstacle(SERVICES[kind], spec_of(kind, ()))


def test_without_known_addresses_a_server_for_anonymous_clients_is_rejected(testbed):
    with testbed.running("nginx") as running:
        context = running.context
        context.access = dataclasses.replace(context.access, client_addresses=())
        with pytest.raises(BackendError, match="expected addresses of the hosts"):
            SERVICES["nginx"].configure(context)


def test_too_few_open_ports_are_an_error_that_names_them(testbed):
    rejected = pytest.raises(
        BackendError, match=r"testbed\.host\.b\.open_ports: expected 3 free ports from 24000 to 24001"
    )
    with rejected, testbed.running("iperf3", ports=3, open_ports=(24_000, 24_001)):
        pass


def test_services_of_a_host_have_different_ports_and_ssh_keeps_its_own(testbed):
    services = {
        "one": service("iperf3", ports=2),
        "two": service("nuttcp"),
        "cluster": service("xrootd-redirector"),
        "ssh-b": service("ssh"),
        "existing": dataclasses.replace(service("nginx"), host=None),
        "other": service("iperf3", host="a"),
    }
    hosts = {name: HostPorts(shell, OPEN_PORTS, 2222) for name, shell in testbed.shells.items()}
    found = find_ports(services, hosts)
    assert {name: len(ports) for name, ports in found.items()} == {
        "one": 2, "two": 1, "cluster": 2, "ssh-b": 1, "other": 1,
    }  # fmt: skip
    assert found["ssh-b"] == (2222,)
    of_b = [port for name in ("one", "two", "cluster") for port in found[name]]
    assert len(set(of_b)) == 5
    assert all(OPEN_PORTS[0] <= port <= OPEN_PORTS[1] for port in of_b)


def test_clients_are_admitted_by_the_addresses_that_hosts_and_probes_report(testbed):
    assert {name: reported_addresses(shell) for name, shell in testbed.shells.items()} == {
        name: [ADDRESSES[name]] for name in testbed.shells
    }
    with testbed.running("nginx") as running:
        access = running.context.access
        assert set(access.client_addresses) == {ADDRESSES["a"], ADDRESSES["b"], "127.0.0.1", "::1"}
        assert access.bind_address == ADDRESSES["b"]
        assert access.data_ports == OPEN_PORTS


def spec_of(kind, storages, **options):
    defaults = {option.key: option.default for option in SERVICES[kind].options}
    return ServiceSpec("server", kind, "b", "", storages, defaults | options, ports=SERVICES[kind].default_ports[:1])


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@contextmanager
def short_wait():
    """Reduce the timeout for the readiness of a service to 2 s."""
    before = service_manager.READY_TIMEOUT_S
    service_manager.READY_TIMEOUT_S = 2.0
    try:
        yield
    finally:
        service_manager.READY_TIMEOUT_S = before


@contextmanager
def host_ssh_server(testbed):
    """Run the SSH server of host ``b`` like an administrator, with keys of the user; yield the directory of the keys."""
    etc, shell = testbed.directory / "etc-ssh", testbed.lab.shells["b"]
    keys = testbed.home("b") / ".ssh"
    etc.mkdir(exist_ok=True)
    keys.mkdir(mode=0o700, exist_ok=True)
    for key in (etc / "ssh_host_ed25519_key", keys / "id_ed25519"):
        key.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (keys / "authorized_keys").write_text((keys / "id_ed25519.pub").read_text())
    for path in (keys, *keys.iterdir()):
        os.chown(path, USER_ID, USER_ID)
    (etc / "sshd_config").write_text(
        f"ListenAddress {ADDRESSES['b']}:22\nHostKey /etc/ssh/ssh_host_ed25519_key\nUsePAM no\nPidFile none\nStrictModes no\nSubsystem sftp internal-sftp\n"
    )
    assert shell.run(["mount", "--bind", str(etc), "/etc/ssh"], timeout_s=5).returncode == 0
    shell.run(["mkdir", "-p", "-m", "755", "/run/sshd"], timeout_s=5)
    server = shell.start(
        ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config"], log=testbed.directory / "host-sshd"
    )
    try:
        wait_until(lambda: shell.run(["ss", "-Hltn", "sport = :22"], timeout_s=5).stdout, "the SSH server to listen")
        yield keys
    finally:
        server.stop()
        shell.run(["umount", "/etc/ssh"], timeout_s=5)


def check_nothing_left(testbed, storage, names):
    wait_until(lambda: testbed.own_processes() == [], "all processes of the service to end")
    listening = testbed.shells["b"].run(["ss", "-Hltn"], timeout_s=5).stdout
    assert not [
        line for line in listening.splitlines() if ADDRESSES["b"] in line or "0.0.0.0" in line or "*:" in line
    ]
    assert {path.name for path in storage.iterdir()} == names
