"""Calls of movers in tests: command lines by the rules of the plan, and records like those of an agent."""

from __future__ import annotations

import os
import subprocess
from urllib.parse import urlsplit

from venturi.mover import resolve_options
from venturi.mover.command import placeholders


def call_with(mover, **options):
    """Return the call of a mover with options in scenario syntax."""
    unknown = set(options) - {option.name for option in mover.options}
    assert not unknown, unknown
    written = {option.name: option.parse(options[option.name]) for option in mover.options if option.name in options}
    return mover.call(resolve_options(mover, written))


def argv_of(call, **values):
    """Return the command line of a call, without groups that have a placeholder without a value."""
    known = {key: _word(value) for key, value in call.options.items() if value is not None}
    known |= {key: str(value) for key, value in values.items() if value is not None}
    argv = []
    for argument in call.argv:
        texts = [argument] if isinstance(argument, str) else argument
        names = [name for text in texts for name in placeholders(text)]
        if isinstance(argument, str) or all(name in known for name in names):
            argv += [text.format(**known) for text in texts]
    return argv


def transfer_argv(
    call, source, destination, size_bytes, *, files=1, list_path=None, directory=None, offset_bytes=None, slot=0
):
    """Return the command line of a transfer between two endpoints, each a local path or a URL."""
    values = {
        "bytes": size_bytes,
        "files": files,
        "slot": slot,
        "scratch": "/tmp",
        "list": list_path,
        "folder": directory,
        "offset_bytes": offset_bytes,
    }
    for name, end in (("source", source), ("destination", destination)):
        end = str(end)
        url = urlsplit(end)
        values[name] = end if url.scheme else call.local.format(path=end)
        values |= {f"{name}_host": url.hostname, f"{name}_port": url.port}
    return argv_of(call, **values)


def execute(argv, *, prefix=(), environment=None, timeout_s=30):
    """Run a command as an agent does, and return the parts of its record that a parser sees."""
    done = subprocess.run(
        [*prefix, *argv], capture_output=True, check=False, timeout=timeout_s, stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {}), "LC_ALL": "C"},
    )  # fmt: skip
    streams = {"stdout": done.stdout.decode(errors="replace"), "stderr": done.stderr.decode(errors="replace")}
    return {"outcome": "failed" if done.returncode else "ok", "exit_code": done.returncode, **streams}


def _word(value):
    return str(value).lower() if isinstance(value, bool) else str(value)
