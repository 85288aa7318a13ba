"""The scale of a lab that fits on one machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from venturi.scenario import load_scenario
from venturi.testbed.lab_scale import CPU_RATE_BIT_PER_S, find_lab_scale
from venturi.workload import expand

PLENTY_BYTES = 10**15
CPUS = 4
CAPACITY = CPUS * CPU_RATE_BIT_PER_S

PAIR = """
venturi = 1
name = "pair"
[testbed.host.a]
[testbed.host.b]
{network}
[testbed.storage.sa]
host = "a"
path = "sa"
[testbed.storage.sb]
host = "b"
path = "sb"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
[workload.factors]
size = ["{size}"]
files = [{files}]
"""
LINK = """
[testbed.link.wan]
between = ["a", "b"]
rate = "{rate}"
delay = "10 ms"
"""
TWO_LINKS = """
[testbed.router.r]
[testbed.link.lan]
between = ["a", "r"]
rate = "100 Gb/s"
[testbed.link.wan]
between = ["r", "b"]
rate = "{rate}"
"""


def write(directory, network, size="1 MB", files=1):
    path = directory / "pair.toml"
    path.write_text(PAIR.format(network=network, size=size, files=files))
    return path


def scale_of(path, free_bytes=PLENTY_BYTES):
    return find_lab_scale(expand(load_scenario(path)), cpus=CPUS, free_bytes=free_bytes)


@pytest.mark.parametrize(
    ("network", "traffic_bit_per_s"),
    [
        (LINK.format(rate="40 Gb/s"), 40e9),
        (LINK.format(rate="100 Mb/s"), 100e6),
        # The fast link carries only as much as the slow one, so both count with its rate.
        (TWO_LINKS.format(rate="10 Gb/s"), 20e9),
    ],
    ids=["fast", "slow", "two links"],
)
def test_the_traffic_of_all_links_stays_below_the_capacity_of_the_cpus(network, traffic_bit_per_s, tmp_path):
    found = scale_of(write(tmp_path, network))
    assert found.traffic_bit_per_s == pytest.approx(traffic_bit_per_s)
    assert found.scale * traffic_bit_per_s <= CAPACITY
    # The next larger scale would be too large, or is not needed.
    assert found.scale == 1.0 or 2.5 * found.scale * traffic_bit_per_s > CAPACITY


def test_parallel_files_of_one_pair_share_its_link(tmp_path):
    network = LINK.format(rate="40 Gb/s")
    assert scale_of(write(tmp_path, network, files=8)).traffic_bit_per_s == pytest.approx(40e9)


def test_the_files_use_at_most_half_of_the_free_disk_space(tmp_path):
    found = scale_of(write(tmp_path, LINK.format(rate="1 Gb/s"), size="10 GB"), free_bytes=4 * 10**9)
    # A file at each end.
    assert (found.disk_bytes, found.scale) == (20 * 10**9, 0.1)
    assert found.reason == "the files need 20 GB, and 4 GB are free"


def plan(*arguments):
    words = [str(Path(sys.executable).with_name("venturi")), "plan", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_plan_prints_the_automatic_scale_with_its_reason(tmp_path):
    path = write(tmp_path, LINK.format(rate="400 Gb/s"))
    code, output, messages = plan(path, "--scale", "auto", "--scratch", tmp_path)
    assert code == 0
    assert messages.startswith("scale 0.0")
    assert "carry up to 400 Gb/s in total, and " in messages
    assert "sizes scaled by 0.0" in output
    # A scale in the file does not matter: the choice is for the written sizes and rates.
    again = plan(path, "--scale", "auto", "--scratch", tmp_path, "--set", "scale=0.5")
    assert again == (code, output, messages)


@pytest.mark.parametrize("backend", ["sim", "hosts"])
def test_the_automatic_scale_is_rejected_for_other_backends(backend, tmp_path):
    code, _, messages = plan(write(tmp_path, LINK.format(rate="1 Gb/s")), "--scale", "auto", "--on", backend)
    assert code == 1
    assert f"--scale: expected a number, found auto for {backend}; auto is for labs" in messages


def test_the_automatic_scale_of_a_testbed_that_fits_is_1(tmp_path):
    code, _, messages = plan(write(tmp_path, LINK.format(rate="1 Mb/s")), "--scale", "auto", "--scratch", tmp_path)
    assert (code, messages) == (0, "scale 1: this machine can carry the links and files at full size\n")


def test_a_non_numeric_scale_is_rejected(tmp_path):
    code, _, messages = plan(write(tmp_path, LINK.format(rate="1 Gb/s")), "--scale", "half")
    assert code == 1
    assert 'expected a number, found "half"' in messages
