"""Batch systems and the engine run the same job commands, for any options."""

import random
from pathlib import Path

from venturi.backend import HostsBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.submit import list_batches
from venturi.workload import expand

CALLS = 60
KINDS = {"text": "text", "count": "integer", "speed": "rate", "wait": "time", "window": "size", "loud": "boolean"}
PLACEHOLDERS = ["{source}", "{bytes}", "{files}", "{slot}", "{scratch}", "{text}", "{count}", "{speed_bytes_per_s}", "{wait_s}",
                "{window_bytes}", "{loud}"]  # fmt: skip
# Placeholders without a value in a job. They only occur in groups, which are removed.
ABSENT = ["{source_host}", "{source_port}"]
LITERALS = ["--x", "a b", "it's", "{{", "}}", "$HOME", "*", "", "ä", "-", '"']
OUT = "said"


def value(draw, kind):
    """Return a value of an option in scenario syntax."""
    return {
        "text": lambda: draw.choice(["plain", "with blank", "{source}", "}", "ß", "--flag"]),
        "integer": lambda: draw.choice([1, 7, 2**53 + 1, 10**15]),
        "rate": lambda: draw.choice(["1 b/s", "8 Mb/s", "1.5 GB/s"]),
        "time": lambda: draw.choice(
            ["10 us", "0.1 s", "0.30000000000000004 s", "1 h", "20 s", "123456789 s", "1 ns"]
        ),
        "size": lambda: draw.choice(["1 B", "64 KiB", "1.5 MB"]),
        "boolean": lambda: draw.choice([True, False]),
    }[kind]()


def argument(draw):
    """Return an element of a command line: literals and placeholders in any mixture, alone or in a group."""

    def text(placeholders):
        return "".join(draw.choice(draw.choice([LITERALS, placeholders])) for _ in range(draw.randint(1, 3)))

    # Only some options have values, so their placeholders are in groups that can be removed.
    if draw.random() < 0.4:
        return text(PLACEHOLDERS[:5])
    return [text(PLACEHOLDERS + ABSENT) for _ in range(draw.randint(1, 3))]


def scenario_of(draw):
    """Return a scenario with one batch of one job per call, each with its own mover, which records its arguments."""
    movers, applications = {}, {}
    for number in range(CALLS):
        script = 'printf "%s\\0" "$@" > "$1/$2"'
        argv = ["sh", "-c", script, "sh", "{scratch}/" + OUT, f"call{number}"]
        movers[f"m{number}"] = {
            "argv": [*argv, "{source}", *(argument(draw) for _ in range(draw.randint(1, 8)))],
            "options": KINDS,
        }
        options = {name: value(draw, kind) for name, kind in KINDS.items() if draw.random() < 0.6}
        applications[f"a{number}"] = {"mover": f"m{number}", "size": "1 kB", "options": options}
    return scenario_from(
        {
            "venturi": 1,
            "name": "said",
            "testbed": {"host": {"here": {}}, "storage": {"disk": {"host": "here", "path": "a disk {x}"}}},
            "mover": movers,
            "workload": {"kind": "jobs", "jobs": [1], "workers": ["here"], "slots": 1, "repeat": 1, "timeout": "20 s",
                         "configuration": {"disk": {"storage": ["disk"]}}, "application": applications},
            "analyse": {"against": ["jobs"]},
        }
    )  # fmt: skip


def test_the_engine_runs_each_job_with_the_command_of_its_submit_file(tmp_path, engine):
    plan = expand(scenario_of(random.Random(20261122)))
    scratch = tmp_path / "scratch"
    (scratch / OUT).mkdir(parents=True)
    expected = {argv[5]: argv[4:] for batch in list_batches(plan, scratch) for argv in batch.argv}
    write_plan(plan, tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="hosts")
    HostsBackend(scratch=scratch, engine=engine).execute(run)
    with Run.open(run.path) as done:
        assert set(done.query("SELECT outcome FROM transfers")["outcome"]) == {"ok"}
    called = {path.name: tuple(path.read_text().split("\0")[:-1]) for path in Path(scratch / OUT).iterdir()}
    assert len(called) == CALLS
    assert called == expected
    # The draw contains groups that are kept and groups that are removed.
    assert 2 * CALLS < sum(map(len, called.values())) < 12 * CALLS
