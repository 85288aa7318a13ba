"""`venturi measure` between two hosts behind ssh: result, saved scenario, lost connections, and blocked directions."""

import json
import os
import signal

import pytest

from testkit import needs_root, wait_until

pytestmark = needs_root

A, B = "a:/home/alice/from", "b:/home/alice/to"


@pytest.fixture
def directories(real_hosts):
    """Directories of the user with one file each, which must not change."""
    for host, name in (("a", "from"), ("b", "to")):
        real_hosts.sh(host, f"mkdir -p ~/{name} && echo keep > ~/{name}/mine")
    yield
    for host, name in (("a", "from"), ("b", "to")):
        wait_until(lambda host=host, name=name: files(real_hosts, host, name) == ["mine"], "only the user's file", 90)
        assert real_hosts.sh(host, f"cat ~/{name}/mine").strip() == "keep"
        real_hosts.wait_for_nothing_left(host)


def files(real_hosts, host, name):
    """Return the names in a directory of the user."""
    return real_hosts.sh(host, f"ls -A ~/{name}").split()


def measured(real_hosts, *arguments):
    """Return the result as JSON."""
    return json.loads(real_hosts.venturi("measure", "--time", "20 s", "--json", *arguments).stdout)


@pytest.mark.alone
def test_an_ordinary_user_measures_between_two_hosts(real_hosts, directories):
    result = measured(real_hosts, A, B)
    [path] = result["paths"]
    assert result["complete"] is True
    # The emulator limits the rate to 1 Gb/s; load on this machine can slow everything down.
    assert 0 < path["parts"]["network"]["rate_bytes_per_s"] < 1.05 * 125e6
    assert all(part["rate_bytes_per_s"] > 0 for part in path["parts"].values())
    assert result["environment"]["paths"][0]["protocol"] == "gsiftp"
    assert "alice" not in json.dumps(result["environment"]["paths"]), "no user name in the properties of the path"


@pytest.mark.alone
def test_the_saved_scenario_runs_on_the_hosts(real_hosts, directories):
    result = measured(real_hosts, A, B)
    scenario = real_hosts.work / result["saved"] / "scenario.toml"
    done = real_hosts.venturi("plan", scenario)
    assert "venturi-serve" in done.stdout
    ran = real_hosts.venturi(
        "run",
        scenario,
        "--on",
        "hosts",
        "--yes",
        "--set",
        "workload.repeat=1",
        "--set",
        'workload.factors.size=["1 MB"]',
    )
    assert ran.returncode == 0
    for host, name in (("a", "from"), ("b", "to")):
        real_hosts.sh(host, f"rm -rf ~/{name}/venturi")


@pytest.mark.alone
def test_a_source_that_cannot_connect_is_measured_by_downloads(real_hosts, directories):
    block(real_hosts, "b")
    try:
        result = measured(real_hosts, A, B)
    finally:
        unblock(real_hosts, "b")
    assert result["environment"]["paths"][0]["protocol"] == "https"
    assert any("cannot connect" in note and "HTTPS" in note for note in result["paths"][0]["notes"])
    assert result["paths"][0]["parts"]["copy"]["rate_bytes_per_s"] > 0


def test_the_host_of_the_path_accesses_the_server_of_a_url_with_its_own_credentials(real_hosts, directories):
    url = f"sftp://{real_hosts.address('b')}/home/alice/to"
    result = measured(real_hosts, "--yes", "--rounds", "1", "--connections", "2", A, url)
    [path] = result["paths"]
    assert (result["complete"], result["remains"]) == (True, None)
    assert {part: found["rate_bytes_per_s"] > 0 for part, found in path["parts"].items()} == {
        "read": True, "write": True, "copy": True,
    }  # fmt: skip
    assert result["environment"]["paths"][0]["client"] == "a"
    # Delay of the two links in both directions.
    assert result["environment"]["paths"][0]["connect_rtt_s"] >= 4 * 0.2e-3


def test_two_blocked_directions_are_an_error_with_all_attempts(real_hosts, directories):
    for host in "ab":
        block(real_hosts, host)
    try:
        done = real_hosts.venturi("measure", A, B, check=False)
    finally:
        for host in "ab":
            unblock(real_hosts, host)
    assert done.returncode == 1
    text = " ".join(done.stderr.split())
    assert "neither host can connect to the other" in text
    assert f"a to b at {real_hosts.address('b')}, port" in text
    assert f"b to a at {real_hosts.address('a')}, port" in text
    assert "--ports" in text


@pytest.mark.parametrize("how", ["ctrl-c", "kill-controller", "kill-shells", "cut-link"])
def test_no_file_remains_after_any_end_of_a_measurement(real_hosts, directories, how):
    process = real_hosts.start_venturi("measure", A, B)
    try:
        for line in process.stderr:
            if line.startswith("round 1"):
                break
        else:
            pytest.fail("no round started")
        assert any(name.startswith(".venturi-measure-") for name in files(real_hosts, "b", "to"))
        match how:
            case "ctrl-c":
                os.killpg(process.pid, signal.SIGINT)
            case "kill-controller":
                os.killpg(process.pid, signal.SIGKILL)
            case "kill-shells":
                for host in "ab":
                    real_hosts.sh(host, "kill -9 $(pgrep -u alice -f -- 'engine-[^ ]* shell') || true", user=False)
            case "cut-link":
                real_hosts.cut("b")
        _, err = process.communicate(timeout=240)
        # The wrapper of the test also gets the signals, so its exit code has no meaning here.
        assert "Traceback" not in err
        if how in ("kill-shells", "cut-link"):
            assert process.returncode == 1, err
            assert "measurement ended early" in err or "connection" in err
    finally:
        real_hosts.repair("b")
        process.kill()
        process.communicate()
    if how == "kill-shells":
        # No process was left to remove the files, so the next session removes them.
        real_hosts.venturi("measure", "--time", "15 s", "--rounds", "1", A, B)


def block(real_hosts, host):
    """Reject all connections to ports of a host except those of ssh."""
    rule = (
        "add rule inet guard input iifname eth0 tcp dport != 22 tcp flags & (syn | ack) == syn reject with tcp reset"
    )
    chain = "add chain inet guard input { type filter hook input priority 0; policy accept; }"
    real_hosts.lab.shell(host).run(["nft", f"add table inet guard; {chain}; {rule}"], timeout_s=20).check_returncode()


def unblock(real_hosts, host):
    """Remove the rule."""
    real_hosts.lab.shell(host).run(["nft", "delete table inet guard"], timeout_s=20).check_returncode()
