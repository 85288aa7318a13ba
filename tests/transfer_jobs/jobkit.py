"""Tools for tests of transfer jobs: lists of real files, the command line, and deliberately faulty tools."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from venturi.transfer_jobs import JobOptions, TransferQueue, read_list

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
"""The command, independent of PATH."""


def make_files(directory, count, size_bytes=10_000, seed=1):
    """Create files with random content and return their paths."""
    draw = random.Random(seed)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:05d}" for number in range(count)]
    for path in paths:
        path.write_bytes(draw.randbytes(size_bytes))
    return paths


def submitted(directory, pairs, **options):
    """Return a queue with one job."""
    queue = TransferQueue(directory / "queue", create=True)
    lines = [f"'{source}' '{destination}'" for source, destination in pairs]
    queue.submit("job", read_list(lines, str(directory)), JobOptions(**options), 1.0)
    return queue


def copies(directory, sources):
    """Return pairs of each source and a destination with the same name in ``out``."""
    return [(source, directory / "out" / source.name) for source in sources]


def same(pairs):
    """Return whether every destination has the content of its source."""
    return all(Path(to).exists() and Path(to).read_bytes() == Path(source).read_bytes() for source, to in pairs)


def start_worker(queue, **environment):
    """Start `venturi transfer run` on a queue."""
    return subprocess.Popen(
        [*VENTURI, "transfer", "run", "--queue", str(queue.directory), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, **environment},
    )  # fmt: skip


def run_worker(queue, **environment):
    """Run a queue in its own process, and return its output and its exit code."""
    worker = start_worker(queue, **environment)
    out, err = worker.communicate(timeout=300)
    assert out, err
    return json.loads(out), worker.returncode


def tool(directory, name, script):
    """Write a tool that replaces the real one, and return a PATH that finds it first."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    # Agents first query the version of a tool.
    path.write_text(f'#!/bin/sh\n[ "$1" != --version ] || exit 0\n{script}\n')
    path.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"
