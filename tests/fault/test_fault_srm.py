"""Faults behind SRM during a run: a killed server that restarts, an expired proxy, a full disk, a cut link."""

import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from test_fault_lab import TESTBED, execute, rows_of, when

from testkit import needs_root
from venturi.analysis import analyse
from venturi.analysis.sections.srm import srm_section
from venturi.testbed.pki import Pki

__all__ = ["execute"]

PLUGINS = [Path(f"/usr/lib/{shell}-linux-gnu/gfal2-plugins/libgfal_plugin_srm.so") for shell in ("x86_64", "aarch64")]
pytestmark = [
    needs_root,
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("gfal-copy", "globus-gridftp-server"))
        or not any(one.exists() for one in PLUGINS),
        reason="needs gfal-copy with gfal2-plugin-srm, and globus-gridftp-server",
    ),
]
FETCHING = """
client = "b"
repeat = 9
source_service = "srm"
[workload.options]
exit = "at once"
[workload.factors]
size = ["100 kB"]
[testbed.service]
doors = { kind = "gridftp", host = "a", storage = ["source"], options = { auth = "gsi" } }
srm = { kind = "srm", host = "a", storage = ["source"], options = { doors = "doors", restart = true } }
"""
PUTTING = """
client = "a"
repeat = 7
destination_service = "srm"
[workload.factors]
size = ["4 MB"]
[workload.options]
exit = "at once"
[testbed.service]
doors = { kind = "gridftp", host = "b", storage = ["sink"], options = { auth = "gsi" } }
srm = { kind = "srm", host = "b", storage = ["sink"], options = { doors = "doors", restart = true } }
"""
CUT = """
[[testbed.change]]
at = "6 s"
link = "b-r"
up = false
[[testbed.change]]
at = "8 s"
link = "b-r"
up = true
"""
GFAL = TESTBED.replace('"globus-url-copy"', '"gfal-copy"')


def srm_pid(labs):
    """Return the PID of the process that serves requests, not of its supervisor."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if (
            "venturi.srm" in words
            and "serve" in words
            and "--restart" not in words
            and any(word.startswith(str(labs)) for word in words)
        ):
            return int(directory.name)
    raise AssertionError("no SRM server")


@pytest.mark.alone
def test_a_killed_srm_server_restarts_and_fails_only_requests_during_its_absence(execute, labs):
    often = FETCHING.replace("repeat = 9", "repeat = 18")
    run = execute(often, when(2, lambda: os.kill(srm_pid(labs), signal.SIGKILL)), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert len(rows) == len({row["trial"] for row in rows}) == 18
    # The server is away once. Requests fail during that time only.
    assert re.fullmatch("(ok ){2,}(failed )+(ok ){3,}", "".join(f"{outcome} " for outcome in outcomes)), outcomes
    failed = [row for row in rows if row["outcome"] != "ok"]
    back_s = min(row["start_s"] for row in rows if row["start_s"] > failed[-1]["start_s"]) - failed[0]["start_s"]
    assert back_s < 1.0, "whom nobody answers fails in 0.07 s: how many do is a matter of that"
    # Its supervisor is still running, so the lab does not report an exited service.
    assert not len(run.query("SELECT 1 AS n FROM events WHERE kind = 'service-exited'")["n"])
    section = srm_section(run, analyse(run).about)
    (urls,) = [table.rows for table in section.tables if table.name == "srm-turls"]
    # The log has records from before and after the kill. Each file was negotiated once.
    assert outcomes.count("ok") <= urls[0][2] <= 18
    assert "PrepareToGet" in urls[0][1]


def test_an_expired_proxy_fails_all_later_srm_requests(execute, labs):
    def expire():
        (directory,) = labs.glob("venturi-*/pki")
        Pki(directory).proxy(lifetime_s=-1)

    run = execute(FETCHING, when(2, expire), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert outcomes[:2] == ["ok"] * 2 and outcomes[-4:] == ["failed"] * 4
    assert outcomes == sorted(outcomes, reverse=True)
    # In TLS 1.3, the client completes its handshake before the server verifies the certificate. Only the server reports
    # the reason.
    rejected = run.query(
        "SELECT count(*) AS n FROM events WHERE kind = 'control' AND detail->>'line' = 'refused: certificate has expired'"
    )["n"][0]
    assert rejected >= outcomes.count("failed") - 1


def sink_of(labs):
    """Return the writable directory of the server.

    It is mounted only in the lab, so its files are reached through a process in the lab.
    """
    inside = Path(f"/proc/{srm_pid(labs)}/root") / labs.relative_to("/")
    (directory,) = inside.glob("venturi-*/hosts/b/sink")
    return directory


def test_a_full_disk_behind_srm_fails_uploads_until_space_is_freed(execute, labs):
    left = []

    def fill():
        with (sink_of(labs) / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            for _ in range(100):
                filler.write(b"x" * 1_000_000)

    def empty():
        (sink_of(labs) / "filler").unlink()
        left.extend(path.name for path in sink_of(labs).rglob("*") if path.is_file())

    full, free = when(2, fill), when(4, empty)
    run = execute(PUTTING, lambda progress: (full(progress), free(progress)), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert len(rows) == len({row["trial"] for row in rows}) == 7
    assert outcomes[:2] == ["ok"] * 2 and outcomes[-1] == "ok"
    failed = [row for row in rows if row["outcome"] != "ok"]
    assert failed
    assert {row["outcome"] for row in failed} <= {"failed", "short"}
    assert all(row["received_bytes"] < row["requested_bytes"] for row in failed)
    # Failed uploads leave no partial file. At most the transfer in flight has a file.
    assert len(left) <= 1


def test_a_cut_link_under_srm_affects_only_transfers_during_the_cut(execute):
    # The timeout is long enough for transfers that start after the link is restored, even on a busy machine.
    run = execute(FETCHING.replace("repeat = 9", 'repeat = 24\ntimeout = "30 s"') + CUT, testbed=GFAL)
    changes = run.query("SELECT time_s FROM events WHERE kind = 'network-change' ORDER BY time_s")["time_s"]
    rows = rows_of(run)
    assert len(rows) == len({row["trial"] for row in rows}) == 24
    assert {row["outcome"] for row in rows if row["end_s"] < changes[0]} == {"ok"}
    assert {row["outcome"] for row in rows if row["start_s"] > changes[-1]} == {"ok"}
    touched = [row for row in rows if row["start_s"] < changes[-1] and row["end_s"] > changes[0]]
    assert touched
    assert {row["outcome"] for row in touched} <= {"ok", "timeout", "failed"}
