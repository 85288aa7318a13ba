"""Shared code of the benches: verdicts, and short forms of figures."""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
FIGURES = runpy.run_path(str(BENCH / "figures.py"))


@pytest.mark.parametrize(
    ("found", "bounds", "machine", "word"),
    [
        (1.0, {"least": 1, "most": 1}, None, "pass"),
        (0.9, {"least": 1}, None, "FAIL"),
        (1.1, {"most": 1}, 1.0, "FAIL"),
        (1.1, {"most": 1}, 1.05, "void"),
        (0.9, {"least": 1}, 0.95, "void"),
        (0.5, {"most": 1}, 1.05, "pass"),
    ],
)
def test_a_bound_that_the_machine_itself_misses_is_void_unless_it_is_met(found, bounds, machine, word):
    held = FIGURES["Bounds"]()
    held.assess("case", found, machine=machine, **bounds)
    assert [verdict.word for verdict in held.verdicts] == [word]


def test_the_table_has_values_bounds_and_the_reason_of_a_void_verdict(capsys):
    held = FIGURES["Bounds"]()
    held.assess("rate", 0.7, least=0.6, most=1, unit=" Gb/s")
    held.assess("error", 40, most=30, unit=" µs", machine=35)
    held.show("asked")
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "",
        "asked",
        "pass rate 0.7 Gb/s ≥ 0.6 Gb/s and ≤ 1 Gb/s",
        "void error 40 µs ≤ 30 µs (the machine alone: 35 µs)",
        "1 of 2 within bounds, 1 void",
    ]


@pytest.mark.parametrize("bench", ["analysis", "faults", "fits", "harness", "mover", "services", "sim", "emulator"])
def test_every_benchmark_prints_its_usage(bench):
    done = subprocess.run(
        [sys.executable, BENCH / f"{bench}.py", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_reports_the_end_in_one_line(number):
    words = [sys.executable, BENCH / "fits.py"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.stderr.read() == "stopped: what is above was measured\n"
    assert process.returncode == 130
