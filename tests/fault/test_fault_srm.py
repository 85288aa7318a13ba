"""An SRM server that is killed and comes back, and a proxy that expires, while a run goes on."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from test_fault_lab import TESTBED, carry_out, labs, rows_of, when

from venturi.analysis import analyse
from venturi.analysis.chapters.srm import srm_chapter
from venturi.testbed.pki import Pki

__all__ = ["carry_out", "labs"]

PLUGINS = [
    Path(f"/usr/lib/{machine}-linux-gnu/gfal2-plugins/libgfal_plugin_srm.so") for machine in ("x86_64", "aarch64")
]
pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="needs root and /dev/net/tun"
    ),
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
[workload.factors]
size = ["100 kB"]
[testbed.service]
doors = { kind = "gridftp", host = "a", storage = ["source"], options = { auth = "gsi" } }
srm = { kind = "srm", host = "a", storage = ["source"], options = { doors = "doors", restart = true } }
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


def test_an_srm_server_that_is_killed_comes_back_and_costs_what_was_asked_meanwhile(carry_out, labs):
    run = carry_out(FETCHING, when(2, lambda: os.kill(srm_pid(labs), signal.SIGKILL)), testbed=GFAL)
    rows = rows_of(run)
    outcomes = [row["outcome"] for row in rows]
    assert len(rows) == len({row["trial"] for row in rows}) == 9
    # It is away once: what is asked meanwhile fails, and nothing before or after.
    assert re.fullmatch("(ok ){2,}(failed )*(ok ){3,}", "".join(f"{outcome} " for outcome in outcomes)), outcomes
    # Its keeper has not ended, so that for the lab the service is still there.
    assert not len(run.query("SELECT 1 AS n FROM events WHERE kind = 'service-ended'")["n"])
    chapter = srm_chapter(run, analyse(run).about)
    (urls,) = [table.rows for table in chapter.tables if table.name == "srm-turls"]
    # What it logged before and after it was killed; each file was negotiated once.
    assert outcomes.count("ok") <= urls[0][2] <= 9
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
