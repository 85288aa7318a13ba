"""A server that is overloaded or fails repeatedly: its trials end, others run, and a resumed run completes."""

import http.server
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from venturi.backend import HostsBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

SCENARIO = """
venturi = 1
name = "two-servers"
seed = 1
[testbed.host.here]
[testbed.storage.exported]
host = "here"
path = "export"
[testbed.storage.disk]
host = "here"
path = "copies"
[testbed.service.good]
kind = "venturi-serve"
url = "http://127.0.0.1:{good}/"
storage = ["exported"]
[testbed.service.bad]
kind = "venturi-serve"
url = "http://127.0.0.1:{bad}/"
storage = ["exported"]
[workload]
kind = "sweep"
mover = "curl"
source = "exported"
destination = "disk"
repeat = 8
order = "given"
[workload.factors]
size = ["10 kB"]
source_service = ["bad", "good"]
"""


class Server:
    """An HTTP server that replies to GET with a file, or with an error status after ``fail_after`` files."""

    def __init__(self, directory, fail_after=None, status=503):
        self.requests, self.fail_after, self.status = 0, fail_after, status
        server = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                server.requests += 1
                if server.fail_after is not None and server.requests > server.fail_after:
                    self.send_error(server.status)
                else:
                    super().do_GET()

            def log_message(self, *words):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def servers(tmp_path):
    """Return a function that starts the bad and the good server."""
    export = tmp_path / "scratch" / "export"
    export.mkdir(parents=True)
    started = []

    def start(**bad):
        started.extend([Server(export, **bad), Server(export)])
        return started

    yield start
    for server in started:
        server.close()


@pytest.fixture
def execute(engine, tmp_path):
    def work(run):
        outcome = HostsBackend(engine=engine, scratch=tmp_path / "scratch").execute(run)
        return outcome, Run.open(run.path)

    return work


def new_run(tmp_path, bad, good, change=lambda text: text) -> RunWriter:
    (tmp_path / "two.toml").write_text(change(SCENARIO.format(bad=bad.port, good=good.port)))
    plan: Path = tmp_path / "plan.jsonl"
    write_plan(expand(load_scenario(tmp_path / "two.toml")), plan)
    return RunWriter.create(tmp_path / "runs", plan, backend="hosts")


def outcomes(run):
    """Return the outcomes of transfers by service."""
    rows = run.table("transfers")
    found = {}
    for via, outcome in zip(rows["source_via"], rows["outcome"], strict=True):
        found.setdefault(via.partition("/")[0], []).append(outcome)
    return found


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_server_gets_no_more_requests_and_the_run_can_be_resumed(servers, execute, tmp_path, status):
    bad, good = servers(fail_after=2, status=status)
    run = new_run(tmp_path, bad, good)
    outcome, result = execute(run)
    assert (outcome.state, outcome.trials_done, outcome.trials_total) == ("stopped", 11, 16)
    assert outcome.reason == f"5 trials at bad (HTTP {status}) were not run"
    assert bad.requests == 3
    assert outcomes(result) == {"bad": ["ok"] * 2 + ["failed"], "good": ["ok"] * 8}
    (finding,) = [finding for finding in result.findings() if finding.code == "server-failing"]
    assert finding.subject == "bad"
    assert f"HTTP {status}" in finding.evidence

    bad.fail_after = None
    outcome, result = execute(RunWriter.resume(run.path, retry_failed=True))
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", 16, 0)
    assert outcomes(result) == {"bad": ["ok"] * 8, "good": ["ok"] * 8}
    assert bad.requests == 9


def test_five_consecutive_failures_end_the_trials_at_a_server(servers, execute, tmp_path):
    bad, good = servers(fail_after=1, status=404)
    outcome, result = execute(new_run(tmp_path, bad, good))
    assert (outcome.state, outcome.failed) == ("stopped", 5)
    assert outcome.reason == "2 trials at bad (5 failures in a row) were not run"
    assert bad.requests == 6
    assert outcomes(result) == {"bad": ["ok"] + ["failed"] * 5, "good": ["ok"] * 8}


def test_the_trials_at_an_overloaded_server_end_on_all_hosts(servers, execute, tmp_path):
    bad, good = servers(fail_after=2, status=429)
    run = new_run(tmp_path, bad, good, change=on_two_hosts(tmp_path))
    outcome, result = execute(run)
    assert (outcome.state, outcome.failed, outcome.trials_total) == ("stopped", 1, 32)
    assert bad.requests == 3
    assert outcomes(result)["good"] == ["ok"] * 16
    assert set(result.table("transfers")["host"]) == {"here", "there"}
    assert outcome.trials_done + int(outcome.reason.split()[0]) == 32


def on_two_hosts(tmp_path):
    """Return a function that adds a second host to the scenario and copies to both."""
    homes = [tmp_path / name for name in ("here", "there")]
    for home in homes:
        home.mkdir()

    def change(text):
        hosts = "\n".join(
            f'[testbed.host.{home.name}]\nconnect = ["env", "HOME={home}"]\naddress = "127.0.0.1"' for home in homes
        )
        other = '[testbed.storage.other]\nhost = "there"\npath = "copies"\n'
        text = text.replace("[testbed.host.here]", hosts).replace(
            "[testbed.service.good]", other + "[testbed.service.good]"
        )
        text = text.replace('path = "export"', f'path = "{tmp_path}/scratch/export"')
        return text.replace('destination = "disk"\n', "") + 'destination = ["disk", "other"]\n'

    return change


def test_the_command_names_the_server_and_how_to_resume(servers, engine, tmp_path):
    bad, good = servers(fail_after=0, status=503)
    (tmp_path / "two.toml").write_text(SCENARIO.format(bad=bad.port, good=good.port))
    done = subprocess.run(
        [sys.executable, "-c", "from venturi.cli import main; main()", "run", "two.toml", "--yes",
         "--scratch", str(tmp_path / "scratch"), "--set", "workload.repeat=2", "--set", "workload.retries=2"],
        cwd=tmp_path, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "1 trial at bad (HTTP 503) was not run; 3 of 4 trials are done" in done.stderr
    assert "resume with: venturi run --resume runs/two-servers-" in done.stderr
    assert bad.requests == 1
