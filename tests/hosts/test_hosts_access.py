"""Servers of a run on real hosts accept only the run's own clients, and its keys do not appear elsewhere."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from testkit import needs_root, wait_until

pytestmark = needs_root

SIZE = 1_500_000
TRIALS = 10_000
"""More trials than any machine finishes while the test tries the servers; the test then stops the run."""

SCENARIO = """
venturi = 1
name = "{name}"
seed = 1
[testbed.host.a]
ssh = "a"
address = "{a}"
[testbed.host.b]
ssh = "b"
address = "{b}"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
[testbed.service.server]
kind = "{kind}"
host = "b"
storage = ["sb"]
options = {{ {options} }}
[workload]
kind = "sweep"
mover = "{mover}"
source = "sa"
destination = "sb"
repeat = {trials}
[workload.factors]
size = ["{size} B"]
"""

SERVERS = {
    "gridftp-anonymous": ("gridftp", "", "globus-url-copy", "ftp"),
    "gridftp-gsi": ("gridftp", 'auth = "gsi"', "globus-url-copy", "ftp"),
    "venturi-serve": ("venturi-serve", "", "venturi", "ftp"),
    "webdav": ("venturi-serve", "http = true", "curl", "http"),
    "nginx": ("nginx", "", "curl", "http"),
    "xrootd": ("xrootd", "", "xrdcp", "root"),
}
"""Kind, options, mover, and the protocol that an unauthorized client tries."""

COMMAND_TIMEOUT_S = 60


def attempts(scheme, address, port, path):
    """Return commands that read and write a file without any credential."""
    # After the slash that ends the authority, FTP and root have an absolute path.
    url = f"{scheme}://{address}:{port}{path}" if scheme == "http" else f"{scheme}://{address}:{port}/{path}"
    if scheme == "root":
        quick = ["env", "XRD_CONNECTIONWINDOW=5", "XRD_CONNECTIONRETRY=1", "XRD_REQUESTTIMEOUT=10"]
        return [
            [*quick, "xrdcp", "--force", "--nopbar", url, "/dev/null"],
            [*quick, "xrdcp", "--nopbar", "/etc/hostname", f"{url}.stranger"],
        ]
    curl = ["curl", "--fail", "--silent", "--ftp-method", "nocwd", "--max-time", "30"]
    return [[*curl, "--output", "/dev/null", url], [*curl, "--upload-file", "/etc/hostname", f"{url}.stranger"]]


KEYS = r"""
grep -rls 'PRIVATE KEY' ~/.cache/venturi/sessions | xargs -r cat | sed -n '/BEGIN.*PRIVATE KEY/,/END/p' | grep -v -e '-----' || true
"""


def key_lines(real_hosts):
    """Return the lines of all private keys that a run has on the hosts."""
    return {line for host in "ab" for line in real_hosts.sh(host, KEYS).split() if len(line) > 20}


def command_lines():
    """Return command lines and environments of all processes of this machine, which include those of the hosts."""
    found = []
    for path in (path / name for path in Path("/proc").glob("[0-9]*") for name in ("cmdline", "environ")):
        with suppress(OSError):  # the process has exited
            found.append(path.read_bytes())
    return b"\n".join(found).decode(errors="replace")


def finished_trials(runs, name):
    """Return the number of trials in the journal of a run."""
    return sum(path.read_text().count('"trial"') for path in runs.glob(f"{name}-2*/journal.jsonl"))


@pytest.mark.parametrize("server", SERVERS)
def test_a_third_host_can_neither_read_nor_write(server, real_hosts):
    kind, options, mover, scheme = SERVERS[server]
    scenario = real_hosts.work / f"{server}.toml"
    scenario.write_text(
        SCENARIO.format(
            name=server, kind=kind, options=options, mover=mover, size=SIZE, trials=TRIALS,
            a=real_hosts.address("a"), b=real_hosts.address("b"),
        )
    )  # fmt: skip
    secret = "/home/alice/.cache/venturi/scratch/b/data/secret"
    real_hosts.sh("b", f"mkdir -p $(dirname {secret}); echo secret > {secret}")
    runs = real_hosts.work / "runs"
    process = real_hosts.start_venturi(
        "run", scenario, "--on", "hosts", "--yes", "--keep-logs", "--runs", runs, "--json"
    )
    try:
        wait_until(lambda: finished_trials(runs, server) > 0 or process.poll() is not None, "a finished trial", 120)
        ports = {line.rpartition(":")[2] for line in real_hosts.leftovers("b")["ports"]}
        commands = [c for port in sorted(ports) for c in attempts(scheme, real_hosts.address("b"), port, secret)]
        if "gsi" not in options:
            # The same commands work from a host of the testbed, so it is the server that rejects them.
            codes = [real_hosts.lab.shell("a").run(c, timeout_s=COMMAND_TIMEOUT_S).returncode for c in commands]
            assert codes.count(0) == 2, codes
            real_hosts.sh("b", f"rm {secret}.stranger")
        for command in commands:
            done = real_hosts.lab.shell("c").run(command, timeout_s=COMMAND_TIMEOUT_S)
            assert done.returncode != 0, f"{command}\n{done.stdout}\n{done.stderr}"
        keys, commands = key_lines(real_hosts), command_lines()
        assert keys or "gsi" not in options, "the run has keys"
        assert not [key for key in keys if key in commands]
        assert process.poll() is None, process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    (run,) = runs.glob(f"{server}-2*")
    written = [path.read_text(errors="replace") for path in run.rglob("*") if path.is_file()]
    logs = [(real_hosts.base / host / "sshd.log").read_text(errors="replace") for host in "ab"]
    assert not [key for key in keys if any(key in text for text in (out, err, *written, *logs))]
    assert ports, "the server was up while the stranger tried"
    assert "stranger" not in real_hosts.sh("b", "find ~ -name '*stranger*'")
