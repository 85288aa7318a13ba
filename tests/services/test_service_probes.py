"""iperf3 and nuttcp servers, used by their clients."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from bare import check_nothing_left, lacking

from testkit import wait_until
from venturi.testbed.services.table import SERVICES

BUSY = "the server is busy running a test. try again later"

pytestmark = pytest.mark.skipif(lacking("iperf3", "nuttcp") is not None, reason=str(lacking("iperf3", "nuttcp")))


def iperf3(lab, host, port, *arguments):
    """What a client tells at its end. A server that is still ending the test before says that it is busy, and the client leaves with exit code 0."""
    told = {}

    def is_served():
        done = lab.run(host, "iperf3", "-J", "-c", "a.lab.test", "-p", str(port), *arguments)
        assert done.returncode == 0, done.stdout
        told.clear()
        told.update(json.loads(done.stdout))
        return told.get("error") != BUSY

    wait_until(is_served, "iperf3 to serve a client")
    assert "error" not in told, told
    return told["end"]


def nuttcp(lab, host, port, data_port, *arguments):
    done = lab.run(host, "nuttcp", "-fparse", f"-P{port}", f"-p{data_port}", *arguments, "a.lab.test")
    assert done.returncode == 0, done.stderr
    return float(re.search(r"megabytes=([\d.]+)", done.stdout)[1])


def test_iperf3_serves_one_client_after_the_other_and_nothing_is_left(lab):
    for number in range(3):
        with lab.running(lab.room(f"iperf3-{number}", "iperf3")) as doors:
            assert doors == {"iperf3": "tcp://a.lab.test:{port}"}
            for direction in ([], ["-R"], ["-P", "4"]):
                end = iperf3(lab, "b", 5201, "-n", "4M", *direction)
                # The receiver stops counting before all has come.
                assert end["sum_sent"]["bytes"] >= 4 << 20
                assert end["sum_received"]["bytes"] > 0
        check_nothing_left(lab)


def test_iperf3_serves_a_client_a_port_at_the_same_time(lab):
    ports = SERVICES["iperf3"].default_ports[:3]
    with lab.running(lab.room("ports", "iperf3", ports=ports)), ThreadPoolExecutor() as pool:
        ends = list(pool.map(lambda port: iperf3(lab, "b", port, "-t", "1"), ports))
        assert all(end["sum_received"]["bytes"] > 0 for end in ends)
    check_nothing_left(lab)


def test_nuttcp_serves_one_client_after_the_other_and_nothing_is_left(lab):
    for number in range(3):
        with lab.running(lab.room(f"nuttcp-{number}", "nuttcp")) as doors:
            assert doors == {"nuttcp": "tcp://a.lab.test:{port}"}
            for direction in ([], ["-r"], ["-N4"], []):
                assert nuttcp(lab, "b", 5000, 6000, "-n64", "-l65536", *direction) >= 4
        check_nothing_left(lab)


def test_nuttcp_serves_clients_at_the_same_time_on_one_port_and_on_several(lab):
    ends = [(5000, 6000), (5000, 6100), (5001, 6200)]
    with lab.running(lab.room("both", "nuttcp", ports=[5000, 5001])), ThreadPoolExecutor() as pool:
        moved = list(pool.map(lambda end: nuttcp(lab, "b", *end, "-N2", "-T1"), ends))
        assert min(moved) > 0
    check_nothing_left(lab)


def test_a_test_that_runs_ends_with_its_server(lab):
    commands = [["iperf3", "-c", "a.lab.test", "-t", "60"], ["nuttcp", "-T60", "-p6000", "a.lab.test"]]
    with lab.running(lab.room("running-i", "iperf3")), lab.running(lab.room("running-n", "nuttcp")):
        clients = [lab.machines["b"].start(argv, log=lab.folder / "running") for argv in commands]
        wait_until(lambda: received(lab) > 2_000_000, "both tests to move data")
    for client in clients:
        client.stop()
    check_nothing_left(lab)


def received(lab):
    """Return what the slower of the two largest connections to host a has brought."""
    said = lab.machines["a"].run(["ss", "-Htnie", "state", "established"], timeout_s=5).stdout
    sizes = sorted(int(size) for size in re.findall(r"bytes_received:(\d+)", said))
    return sizes[-2] if len(sizes) > 1 else 0
