"""Behind SRM while a run goes on: a server killed that comes back, a proxy that expires, a disk that fills up, a link that is cut."""

import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from test_fault_lab import TESTBED, carry_out, rows_of, when

from testkit import needs_root
from venturi.analysis import analyse
from venturi.analysis.chapters.srm import srm_chapter
from venturi.testbed.pki import Pki

__all__ = ["carry_out"]

PLUGINS = [
    Path(f"/usr/lib/{machine}-linux-gnu/gfal2-plugins/libgfal_plugin_srm.so") for machine in ("x86_64", "aarch64")
]
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
    """Return the PID of the process that serves, not of the one that starts it again."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if (
            "venturi.srm" in words
            and "serve" in words
            and "--restart" not in words
            and any(word.startswith(str(labs)) for word in words)
        ):
            return int(folder.name)
    raise AssertionError("no SRM server")


@pytest.mark.alone
def test_an_srm_server_that_is_killed_comes_back_and_costs_what_was_asked_meanwhile(carry_out, labs):
    often = FETCHING.replace("repeat = 9", "repeat = 18")
    run = carry_out(often, when(2, lambda: os.kill(srm_pid(labs), signal.SIGKILL)), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert len(rows) == len({row["trial"] for row in rows}) == 18
    # It is away once: what is asked meanwhile fails, and nothing before or after.
    assert re.fullmatch("(ok ){2,}(failed )+(ok ){3,}", "".join(f"{outcome} " for outcome in outcomes)), outcomes
    failed = [row for row in rows if row["outcome"] != "ok"]
    back_s = min(row["start_s"] for row in rows if row["start_s"] > failed[-1]["start_s"]) - failed[0]["start_s"]
    assert back_s < 1.0, "whom nobody answers fails in 0.07 s: how many do is a matter of that"
    # Its keeper has not ended, so that for the lab the service is still there.
    assert not len(run.query("SELECT 1 AS n FROM events WHERE kind = 'service-ended'")["n"])
    chapter = srm_chapter(run, analyse(run).about)
    (urls,) = [table.rows for table in chapter.tables if table.name == "srm-turls"]
    # What it logged before and after it was killed; each file was negotiated once.
    assert outcomes.count("ok") <= urls[0][2] <= 18
    assert "PrepareToGet" in urls[0][1]


def test_a_proxy_that_expires_fails_all_that_srm_is_asked_afterwards(carry_out, labs):
    def expire():
        (folder,) = labs.glob("venturi-*/pki")
        Pki(folder).proxy(lifetime_s=-1)

    run = carry_out(FETCHING, when(2, expire), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert outcomes[:2] == ["ok"] * 2 and outcomes[-4:] == ["failed"] * 4
    assert outcomes == sorted(outcomes, reverse=True)
    # With TLS 1.3 the client is done with the handshake before the server has looked at its certificate: why, only the server says.
    refused = run.query(
        "SELECT count(*) AS n FROM events WHERE kind = 'control' AND detail->>'line' = 'refused: certificate has expired'"
    )["n"][0]
    assert refused >= outcomes.count("failed") - 1


def sink_of(labs):
    """Return the folder that the lab serves for writing: it is mounted in the lab alone, whose files are seen through a process in it."""
    inside = Path(f"/proc/{srm_pid(labs)}/root") / labs.relative_to("/")
    (folder,) = inside.glob("venturi-*/hosts/b/sink")
    return folder


def test_a_disk_that_is_full_behind_srm_fails_what_is_put_there_until_there_is_room(carry_out, labs):
    left = []

    def fill():
        with (sink_of(labs) / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            for _ in range(100):
                filler.write(b"x" * 1_000_000)

    def empty():
        (sink_of(labs) / "filler").unlink()
        left.extend(path.name for path in sink_of(labs).rglob("*") if path.is_file())

    full, free = when(2, fill), when(4, empty)
    run = carry_out(PUTTING, lambda progress: (full(progress), free(progress)), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert len(rows) == len({row["trial"] for row in rows}) == 7
    assert outcomes[:2] == ["ok"] * 2 and outcomes[-1] == "ok"
    failed = [row for row in rows if row["outcome"] != "ok"]
    assert failed
    assert {row["outcome"] for row in failed} <= {"failed", "short"}
    assert all(row["received_bytes"] < row["asked_bytes"] for row in failed)
    # Of what did not fit no part is left, and of what did nothing outlives its trial but the one under way.
    assert len(left) <= 1


def test_a_link_that_is_cut_under_srm_costs_what_was_under_way_and_no_more(carry_out):
    # Whoever begins when it is restored has his time, on a busy machine too.
    run = carry_out(FETCHING.replace("repeat = 9", 'repeat = 24\ntimeout = "30 s"') + CUT, testbed=GFAL)
    changes = run.query("SELECT time_s FROM events WHERE kind = 'network-change' ORDER BY time_s")["time_s"]
    rows = rows_of(run)
    assert len(rows) == len({row["trial"] for row in rows}) == 24
    assert {row["outcome"] for row in rows if row["end_s"] < changes[0]} == {"ok"}
    assert {row["outcome"] for row in rows if row["start_s"] > changes[-1]} == {"ok"}
    touched = [row for row in rows if row["start_s"] < changes[-1] and row["end_s"] > changes[0]]
    assert touched
    assert {row["outcome"] for row in touched} <= {"ok", "timeout", "failed"}
