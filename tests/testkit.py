"""Tools for tests: tiny hand-written plans, records like those of an agent, and checks for living processes."""

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="needs root and /dev/net/tun"
)


def needs_programs(*programs):
    """Return a mark that skips a test if programs are missing, and names them."""
    lacking = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}")


class Gate:
    """A ``cp`` that lets a number of calls pass and blocks all others until the gate is open.

    It makes tests deterministic on any machine.

    Attributes
    ----------
    directory
        Directory of the tool, for a search path.
    argv
        Command line of a call.
    """

    def __init__(self, directory, free, program="cp"):
        directory.mkdir()
        self.directory = directory
        self._open = directory / "open"
        tool, real = directory / program, shutil.which(program)
        tool.write_text(f"""#!/bin/sh
[ -e {self._open} ] && exec {real} "$@"
[ "$1" = --version ] && exec {real} --version  # which every agent asks before it begins
n=0; while [ $n -lt {free} ]; do mkdir {directory}/$n 2>/dev/null && exec {real} "$@"; n=$((n + 1)); done
until [ -e {self._open} ]; do sleep 0.02; done
exec {real} "$@"
""")
        tool.chmod(stat.S_IRWXU)
        self.argv = [str(tool), "{source}", "{destination}"]

    @property
    def calls(self):
        """The calls table of a plan with this ``cp``."""
        return {"cp": call_of(self.argv, timeout_s=120.0)}

    def open(self):
        """Release all waiting and future calls."""
        self._open.touch()


def wait_until(condition, what, most_s=60.0):
    """Wait for an effect of another process that no event reports.

    The limit only ends tests that hang; it is not a performance requirement.
    """
    deadline_s = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < deadline_s, f"expected {what} within {most_s:g} s"
        time.sleep(0.005)


def free_port():
    """Return a free loopback port below the ephemeral range.

    The kernel assigns it to no other program, even while a server restarts.
    """
    for _ in range(1000):
        port = secrets.choice(range(15_000, 32_000))
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port below 32000")


def make_sshd_directory():
    """Create the empty directory that sshd requires as root, if no service did so. It stays, because other tests have servers."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def throwaway_certificates(directory):
    """Create a CA and a host certificate for loopback; return the trust directory, certificate and key."""
    trust, cert, key = directory / "trust", directory / "host.pem", directory / "host.key"
    trust.mkdir(parents=True)

    def openssl(*words):
        return subprocess.run(
            ["openssl", *words], cwd=directory, check=True, capture_output=True, text=True
        ).stdout.strip()

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256", "-subj"]
    openssl(*new, "/O=Test/CN=Authority", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    openssl(*new, "/O=Test/CN=localhost", "-keyout", key, "-out", "host.csr")
    (directory / "names").write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    openssl("x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", cert)  # fmt: skip
    (trust / (openssl("x509", "-hash", "-noout", "-in", "ca.pem") + ".0")).write_bytes(
        (directory / "ca.pem").read_bytes()
    )
    return trust, cert, key


def call_of(argv, **changes):
    """Return a call of a plan for a command, with defaults for all other keys."""
    call = {"mover": argv[0] if isinstance(argv[0], str) else "tool", "options": {}, "argv": list(argv),
            "requires": [argv[0]], "timeout_s": 20.0, "capture": False, "expect": "destination"}  # fmt: skip
    return call | changes


def transfer_step(call, source, destination, size_bytes, **changes):
    """Return a transfer of one file."""
    step = {"step": "transfer", "call": call, "slot": 0, "source": source, "destination": destination, "files": 1,
            "bytes": size_bytes}  # fmt: skip
    return step | changes


def tiny_trials(count, *, call="cp", size_bytes=100_000, storage="data", host="node1", actor="sweep", first=0):
    """Yield actor lines with one trial each, which copies a file of a dataset."""
    for number in range(first, first + count):
        trial = f"t{number:07d}"
        transfer = transfer_step(call, f"{storage}:set/000000", f"{storage}:out/{trial}", size_bytes)
        prepare = {"step": "prepare", "dataset": f"set-{storage}", "first": 0, "files": 1, "cache": "as_is"}
        step = {"step": "trial", "id": trial, "point": number % 2, "repetition": number // 2, "block": number // 2,
                "factors": {"files": 1, "size_bytes": size_bytes, "half": number % 2}, "steps": [prepare, transfer]}  # fmt: skip
        yield {"actor": actor, "host": host, "steps": [step]}


def write_plan(path, lines, *, hosts=None, storages=None, calls=None, size_bytes=100_000, interval_s=None, **changes):
    """Write a hand-written plan and return its path; by default, it has one local host with one storage and one dataset."""
    hosts = hosts or {"node1": {"ssh": None, "memory_bytes": None}}
    storages = storages or {"data": {"host": next(iter(hosts)), "path": "data"}}
    lines = list(lines)
    trials = sum(step["step"] == "trial" for line in lines for step in line["steps"])
    header = {
        "format": "venturi-plan", "version": 2, "name": "tiny", "seed": 1, "scale": 1.0, "scenario": {}, "hosts": hosts,
        "storages": storages,
        "datasets": {f"set-{storage}": {"storage": storage, "path": "set", "files": 1, "size_bytes": size_bytes, "seed": 1}
                     for storage in storages},
        "calls": calls or {"cp": call_of(["cp", "{source}", "{destination}"])}, "draws": {}, "pools": {},
        "measure": {"interval_s": interval_s, "counters": ["cpu", "memory"]},
        "totals": {"trials": trials, "transfers": trials, "bytes": trials * size_bytes,
                   "disk_bytes": dict.fromkeys(storages, 2 * size_bytes)},
    }  # fmt: skip
    texts = [json.dumps(header | changes), *map(json.dumps, lines)]
    Path(path).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return Path(path)


def transfer_record(trial="t0000000", **changes):
    """Return a transfer record like that of an agent."""
    measured = dict.fromkeys(
        ("received_bytes", "intended_s", "start_s", "end_s", "duration_s", "exit_code", "signal", "error", "user_s",
         "system_s", "max_rss_bytes", "minor_faults", "major_faults", "voluntary_switches", "involuntary_switches",
         "read_call_bytes", "write_call_bytes", "read_disk_bytes", "write_disk_bytes", "stdout", "stderr")
    )  # fmt: skip
    fixed = {"trial": trial, "actor": "sweep", "slot": 0, "call": "cp", "source": "data:set/000000",
             "destination": f"data:out/{trial}", "files": 1, "requested_bytes": 100_000, "outcome": "ok", "labels": {}}  # fmt: skip
    return measured | fixed | {"start_s": 1.0, "end_s": 1.5, "duration_s": 0.5, "received_bytes": 100_000} | changes


def trial_record(trial="t0000000", *, transfers=None, **changes):
    """Return a trial record like that of an agent."""
    transfers = [transfer_record(trial)] if transfers is None else transfers
    record = {"record": "trial", "trial": trial, "actor": "sweep", "start_s": 1.0, "end_s": 1.5, "outcome": "ok",
              "cache": None, "transfers": transfers, "findings": []}  # fmt: skip
    return record | changes


def living_processes(token):
    """Return the PIDs of all living processes with ``VENTURI_TEST=token`` in their environment."""
    entry = f"VENTURI_TEST={token}".encode()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if entry in (directory / "environ").read_bytes().split(b"\0") and int(directory.name) != os.getpid():
                found.append(int(directory.name))
        except OSError:
            continue  # it has exited, or belongs to another user
    return found


def children_of(pid):
    """Return the PIDs of the children of a process. Threads and processes can exit meanwhile."""
    found = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found
    for task in tasks:
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def words_of(pid):
    """Return the command line of a process; an empty list if it has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def name_of(pid):
    """Return the kernel's name of a process, or "" if it has exited."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""
