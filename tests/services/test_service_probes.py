"""iperf3 and nuttcp servers with their clients."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from bare import check_nothing_left, lacking
from nuttcp_client import nuttcp_command

from testkit import wait_until
from venturi.testbed.services.table import SERVICES

BUSY = "the server is busy running a test. try again later"

pytestmark = pytest.mark.skipif(lacking("iperf3", "nuttcp") is not None, reason=str(lacking("iperf3", "nuttcp")))


def iperf3(lab, host, port, *arguments):
    """Return the result of a client. A server that still ends the previous test is busy, and then the client exits with 0."""
    output = {}

    def is_served():
        done = lab.run(host, "iperf3", "-J", "-c", "a.lab.test", "-p", str(port), *arguments)
        assert done.returncode == 0, done.stdout
        output.clear()
        output.update(json.loads(done.stdout))
        return output.get("error") != BUSY

    wait_until(is_served, "iperf3 to serve a client")
    assert "error" not in output, output
    return output["end"]


def nuttcp(lab, host, port, data_port, *arguments):
    """Return the transferred MiB."""
    done = lab.run(host, *nuttcp_command("a.lab.test", port, data_port, *arguments, step=10))
    assert done.returncode == 0, done.stderr
    return float(re.search(r"megabytes=([\d.]+)", done.stdout)[1])


def test_iperf3_serves_one_client_after_the_other_and_cleans_up(lab):
    for number in range(3):
        with lab.running(lab.context(f"iperf3-{number}", "iperf3")) as service_ports:
            assert service_ports == {"iperf3": "tcp://a.lab.test:{port}"}
            for direction in ([], ["-R"], ["-P", "4"]):
                end = iperf3(lab, "b", 5201, "-n", "4M", *direction)
                # The receiver stops counting before all bytes arrive.
                assert end["sum_sent"]["bytes"] >= 4 << 20
                assert end["sum_received"]["bytes"] > 0
        check_nothing_left(lab)


def test_iperf3_serves_one_client_per_port_at_the_same_time(lab):
    ports = SERVICES["iperf3"].default_ports[:3]
    with lab.running(lab.context("ports", "iperf3", ports=ports)), ThreadPoolExecutor() as pool:
        ends = list(pool.map(lambda port: iperf3(lab, "b", port, "-t", "1"), ports))
        assert all(end["sum_received"]["bytes"] > 0 for end in ends)
    check_nothing_left(lab)


def test_nuttcp_serves_one_client_after_the_other_and_cleans_up(lab):
    for number in range(3):
        with lab.running(lab.context(f"nuttcp-{number}", "nuttcp")) as service_ports:
            assert service_ports == {"nuttcp": "tcp://a.lab.test:{port}"}
            for direction in ([], ["-r"], ["-N4"], []):
                assert nuttcp(lab, "b", 5000, 6000, "-n64", "-l65536", *direction) >= 4
        check_nothing_left(lab)


def test_nuttcp_serves_clients_at_the_same_time_on_one_port_and_on_several(lab):
    ends = [(5000, 6000), (5000, 6100), (5001, 6200)]
    with lab.running(lab.context("both", "nuttcp", ports=[5000, 5001])), ThreadPoolExecutor() as pool:
        moved = list(pool.map(lambda end: nuttcp(lab, "b", *end, "-N2", "-T1"), ends))
        assert min(moved) > 0
    check_nothing_left(lab)


def test_a_running_test_ends_with_its_server(lab):
    commands = [["iperf3", "-c", "a.lab.test", "-t", "60"], nuttcp_command("a.lab.test", 5000, 6000, "-T60")]
    with lab.running(lab.context("running-i", "iperf3")), lab.running(lab.context("running-n", "nuttcp")):
        clients = [lab.shells["b"].start(argv, log=lab.directory / "running") for argv in commands]
        wait_until(lambda: received(lab) > 2_000_000, "both tests to move data")
    for client in clients:
        client.stop()
    check_nothing_left(lab)


def received(lab):
    """Return the received bytes of the slower of the two largest connections to host a."""
    printed = lab.shells["a"].run(["ss", "-Htnie", "state", "established"], timeout_s=5).stdout
    sizes = sorted(int(size) for size in re.findall(r"bytes_received:(\d+)", printed))
    return sizes[-2] if len(sizes) > 1 else 0
