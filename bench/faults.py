"""Does every study finish if a server is killed or a link is cut during its run?

    python bench/faults.py [--fault server link] [--cut 30] [--at-once 2] [--only STUDY …]

Each study of the lab runs with ``venturi study run STUDY --quick`` in separate directories. After some of its trials, one
of its servers is killed by SIGKILL (*server*), or the link with the most bytes is down for some seconds (*link*,
``venturi lab link``).

The run must end without help in the state complete. Its events must contain the fault, and its journal every trial
exactly once. Of the transfers that start after the fault and do not use the killed server, some must succeed. The lab
must leave no remains. The table has the number of failed transfers by outcome, which depends on the study and the fault.

Requires root and the requirements of the lab in ``venturi doctor``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from figures import execute

from venturi.plan import read_header, trials
from venturi.run import Run
from venturi.study import studies

VENTURI = str(Path(sys.executable).with_name("venturi"))
FAULTS = ("server", "link")
ENDED = {"server": "service-exited", "link": "network-change"}
TIMEOUT_S = 1800.0
TRIALS_BEFORE = 0.2
"""Fraction of the trials before the fault."""
GONE_S = 10.0
NO_LINK = "one host, no link"


class Trying:
    """Run of a study with a fault."""

    def __init__(self, study: str, fault: str, cut_s: float, base: Path) -> None:
        self.study, self.fault, self.cut_s = study, fault, cut_s
        self.hit = "nothing"
        self._base = base
        self._process: subprocess.Popen[str] | None = None
        (self._base / "labs").mkdir(parents=True)
        self._environment = os.environ | {
            "VENTURI_LAB": str(self._base / "labs"),
            "VENTURI_SCRATCH": str(self._base / "scratch"),
        }

    def line(self) -> str:
        """Run the study and return its line of the table."""
        started_s = time.monotonic()
        process = self._process = subprocess.Popen(
            [VENTURI, "study", "run", self.study, "--quick", "--quiet"], cwd=self._base, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        with ThreadPoolExecutor(1) as other:
            printed = other.submit(process.communicate)
            try:
                self._harm(process)
                out, _ = printed.result(TIMEOUT_S)
                problems = [*self._problems(process.returncode), *self._left()]
            except Exception as error:  # reported in the table; the other studies continue
                self.end()
                out, _ = printed.result(TIMEOUT_S)
                problems = [f"{type(error).__name__}: {error}; it said: {out.strip()[-300:]}"]
        failed, after = self._counts()
        verdict = "; ".join(problems) or "whole"
        shutil.rmtree(self._base, ignore_errors=True)
        took_s = time.monotonic() - started_s
        return f"{self.study:24} {self.fault:7} {self.hit:28} {failed:34} {after:6} {took_s:6.0f} s  {verdict}"

    def end(self) -> None:
        """Terminate the study, which then cleans up as after Ctrl-C."""
        if self._process is not None:
            self._process.terminate()

    def _harm(self, process: subprocess.Popen[str]) -> None:
        run = self._wait(process, self._run)
        pending = max(1, int(TRIALS_BEFORE * sum(1 for _ in trials(run / "plan.jsonl"))))
        self._wait(process, lambda: sum(1 for _ in self._trials(run)) >= pending)
        (lab,) = json.loads(self._venturi("lab", "status", "--json"))
        if self.fault == "server":
            serving = [(name, service["pids"]) for name, service in lab["services"].items() if service["pids"]]
            self.hit, (pid, *_) = random.Random(self.study).choice(serving)
            os.kill(pid, signal.SIGKILL)
            return
        if not lab["links"]:
            self.hit = NO_LINK
            return
        self.hit = max(lab["links"], key=lambda name: lab["links"][name]["counters"]["bytes"])
        self._venturi("lab", "link", self.hit, "up=false", "--lab", lab["id"])
        self._wait(process, lambda: False, self.cut_s)
        if process.poll() is None:
            self._venturi("lab", "link", self.hit, "up=true", "--lab", lab["id"])

    def _venturi(self, *words: str) -> str:
        return subprocess.run(
            [VENTURI, *words], cwd=self._base, env=self._environment, capture_output=True, text=True, check=True
        ).stdout

    def _wait(self, process: subprocess.Popen[str], until: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the first true result of ``until``, or None after the timeout or the end of the study."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and process.poll() is None:
            if found := until():
                return found
            time.sleep(0.05)
        return None

    def _run(self) -> Path | None:
        return next((path.parent for path in (self._base / "runs").glob("*/journal.jsonl")), None)

    def _trials(self, run: Path) -> Iterator[Mapping[str, Any]]:
        for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and "trial" in (record := json.loads(line)):
                yield record["trial"]

    def _problems(self, code: int) -> Iterator[str]:
        run = self._run()
        if run is None or self.hit == "nothing":
            yield f"it ended with {code} before anything was done to it"
            return
        if self.hit == NO_LINK:
            return
        if code not in (0, 3):  # 3: some transfers failed
            yield f"exit code {code}"
        if (state := json.loads((run / "run.json").read_text())["state"]) != "complete":
            yield f"the run is {state}"
        # Some studies repeat failed trials, with one line per attempt.
        done = Counter(trial["trial"] for trial in self._trials(run) if trial.get("attempt", 1) == 1)
        planned: dict[str, list[str]] = {}
        for trial in trials(run / "plan.jsonl"):
            planned.setdefault(trial.actor, []).append(trial.trial)
        # Peers run for a fixed time, each in its order, so the plan does not define the number of trials.
        timed = read_header(run / "plan.jsonl").scenario["workload"]["kind"] == "peers"
        whole = [own[: len(done.keys() & own)] if timed else own for own in planned.values()]
        if done != Counter(name for own in whole for name in own):
            yield "trials that are missing, or counted twice"
        with Run.open(run) as found:
            if not len(found.query(f"SELECT 1 AS one FROM events WHERE kind = '{ENDED[self.fault]}'")["one"]):
                yield f"no event {ENDED[self.fault]}"
            after = found.query(
                f"""SELECT count(*) FILTER (outcome = 'ok') AS ok, count(*) AS n FROM transfers
                    WHERE start_s > (SELECT max(time_s) FROM events WHERE kind = '{ENDED[self.fault]}')
                    AND NOT starts_with(coalesce(source_via, ''), '{self.hit}/')
                    AND NOT starts_with(coalesce(destination_via, ''), '{self.hit}/')"""
            )
        if after["n"][0] and not after["ok"][0]:
            yield f"nothing went well afterwards, of {after['n'][0]}"

    def _left(self) -> Iterator[str]:
        labs, deadline_s = self._base / "labs", time.monotonic() + GONE_S
        while (left := list(_traces(labs))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        yield from left

    def _counts(self) -> tuple[str, str]:
        if (run := self._run()) is None:
            return "-", "-"
        with Run.open(run) as found:
            rows = found.query("SELECT outcome, count(*) AS n FROM transfers GROUP BY ALL ORDER BY n DESC")
        counts = [f"{n} {outcome}" for outcome, n in zip(rows["outcome"], rows["n"], strict=True)]
        return ", ".join(counts), str(sum(rows["n"]))


def _traces(labs: Path) -> Iterator[str]:
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if str(labs) in (directory / "cmdline").read_bytes().decode(errors="replace"):
                yield f"process {directory.name} is left"
        except OSError:
            continue
    yield from (
        f"mount {line.split()[4]} is left"
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(labs) in line
    )
    yield from (f"{path} is left" for path in labs.rglob("*"))


def main() -> None:
    """Run all studies of the lab, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of_the_lab = [name for name, study in studies().items() if study.on == "lab"]
    parser.add_argument("--fault", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--cut", type=float, default=30.0, metavar="S", help="how long a link is down (default 30)")
    parser.add_argument("--at-once", type=int, default=2, help="studies at the same time (default 2)")
    parser.add_argument(
        "--only", nargs="*", choices=of_the_lab, metavar="STUDY", default=of_the_lab, help=", ".join(of_the_lab)
    )
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("expected to be root: labs of a plain user have no control groups to look for")
    print(f"{'study':24} {'fault':7} {'hit':28} {'transfers':34} {'in all':6} {'took':>8}  verdict")
    with (
        tempfile.TemporaryDirectory(prefix="venturi-faults-", ignore_cleanup_errors=True) as directory,
        ThreadPoolExecutor(given.at_once) as pool,
    ):
        Path(directory).chmod(0o755)
        pending = [(study, fault) for study in given.only for fault in given.fault]
        requested = [Trying(*one, given.cut, Path(directory, str(number))) for number, one in enumerate(pending)]
        try:
            for line in pool.map(Trying.line, requested):
                print(line, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for one in requested:
                one.end()
            raise


if __name__ == "__main__":
    execute(main)
