"""What tests of managed transfers build with: lists of real files, the command line, and tools that misbehave on purpose."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from venturi.managed import JobOptions, Queue, read_list

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
"""The command, whatever is on PATH."""


def make_files(folder, count, size_bytes=10_000, seed=1):
    """Make files of random content and return their paths."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05d}" for number in range(count)]
    for path in paths:
        path.write_bytes(draw.randbytes(size_bytes))
    return paths


def submitted(folder, pairs, **options):
    """Return a queue with one job."""
    queue = Queue(folder / "queue", create=True)
    lines = [f"'{source}' '{destination}'" for source, destination in pairs]
    queue.submit("job", read_list(lines, str(folder)), JobOptions(**options), 1.0)
    return queue


def copies(folder, sources):
    """Return pairs: each source and a destination of the same name in ``out``."""
    return [(source, folder / "out" / source.name) for source in sources]


def same(pairs):
    """Whether every destination holds what its source does."""
    return all(Path(to).exists() and Path(to).read_bytes() == Path(source).read_bytes() for source, to in pairs)


def start_worker(queue, **environment):
    """Start `venturi transfer run` on a queue."""
    return subprocess.Popen(
        [*VENTURI, "transfer", "run", "--queue", str(queue.folder), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, **environment},
    )  # fmt: skip


def run_worker(queue, **environment):
    """Carry a queue out in a process of its own and return what it said, and its exit code."""
    worker = start_worker(queue, **environment)
    out, err = worker.communicate(timeout=300)
    assert out, err
    return json.loads(out), worker.returncode


def tool(folder, name, script):
    """Write a tool that stands before the real one and return the PATH that finds it first."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    # Agents ask a tool for its version first.
    path.write_text(f'#!/bin/sh\n[ "$1" != --version ] || exit 0\n{script}\n')
    path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
