"""Run directory: names of its files, contents of ``run.json``, and lookup of runs by name."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from venturi.errors import RunError
from venturi.plan.upgrade import upgrade_header

__all__ = [
    "RUN_VERSION",
    "RunInfo",
    "RunState",
    "latest_run",
    "new_run_path",
    "read_info",
    "resolve_run",
    "write_info",
]

RUN_FORMAT = "venturi-run"
RUN_VERSION = 2

INFO = "run.json"
PLAN = "plan.jsonl"
JOURNAL = "journal.jsonl"
SAMPLES = "samples.jsonl"
SOCKETS = "sockets.jsonl"
EVENTS = "events.jsonl"
LOCK = "lock"

RunState = Literal["running", "stopped", "complete"]
"""A killed run also has the state ``"running"`` and can be resumed like a stopped run."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Contents of ``run.json``."""

    name: str
    plan_sha256: str
    created_unix_ns: int
    state: RunState
    backend: str
    version: int = RUN_VERSION

    def with_state(self, state: RunState) -> RunInfo:
        """Return a copy with another state."""
        return replace(self, state=state)


def new_run_path(base: Path, name: str, created_unix_ns: int) -> Path:
    """Return ``base/NAME-YYYYmmddTHHMMSSZ``, with a number appended if this path exists.

    Characters of the name that are unsafe in a file name become ``-``.
    """
    time = datetime.fromtimestamp(created_unix_ns // 10**9, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    stem = _file_name(name) or "run"
    path = base / f"{stem}-{time}"
    number = 2
    while path.exists():
        path = base / f"{stem}-{time}-{number}"
        number += 1
    return path


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.")


def read_info(path: Path) -> RunInfo:
    """Return the contents of ``run.json`` in a run directory.

    Raises
    ------
    RunError
        If the file is missing or damaged, or its version is newer than this program.
    """
    try:
        text = (path / INFO).read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{path}: expected a run directory with {INFO}, found none ({error.strerror}). Give the path or name of a run."
        ) from error
    try:
        content = json.loads(text)
        if content["format"] != RUN_FORMAT:
            raise RunError(f"{path / INFO}: expected the format {RUN_FORMAT!r}, found {content['format']!r}")
        version = int(content["version"])
        if version > RUN_VERSION:
            raise RunError(
                f"{path / INFO}: expected a run of version {RUN_VERSION} or older, found version {version};"
                " read it with the Venturi version that created it, or a newer version"
            )
        return _info(content, version)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path / INFO}: expected the keys that docs/reference/run.md describes, found {error!r}"
        ) from error


def read_plan_header(path: Path) -> dict[str, Any]:
    """Return the header of the plan of a run, in the keys of the current version.

    Raises
    ------
    RunError
        If the plan cannot be read.
    """
    try:
        with (path / PLAN).open(encoding="utf-8") as lines:
            header: dict[str, Any] = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise RunError(f"{path / PLAN}: cannot read the plan of the run: {error}. Restore the file.") from error
    return upgrade_header(header)


def read_first_hosts(path: Path) -> dict[str, dict[str, Any]]:
    """Return the properties of each host at the start of the run, or an empty dict before the first session."""
    try:
        with (path / JOURNAL).open(encoding="utf-8") as lines:
            hosts = json.loads(lines.readline())["session"]["hosts"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return hosts if isinstance(hosts, dict) else {}


def _info(content: dict[str, Any], version: int) -> RunInfo:
    state = content["state"]
    if state not in get_args(RunState):
        raise ValueError(f"state {state!r}")
    return RunInfo(
        name=str(content["name"]),
        plan_sha256=str(content["plan_sha256"]),
        created_unix_ns=int(content["created_unix_ns"]),
        state=state,
        backend=str(content["backend"]),
        version=version,
    )


def write_info(path: Path, info: RunInfo) -> None:
    """Replace ``run.json`` atomically: a reader sees the old file or the new file, even after a crash."""
    content = {"format": RUN_FORMAT, **asdict(info)}
    replace_text(path / INFO, json.dumps(content, indent=2) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Write a durable temporary file next to ``path`` and rename it to ``path``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make created and replaced names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def latest_run(base: Path | str = "runs") -> Path:
    """Return the directory of the newest run below ``base``.

    Raises
    ------
    RunError
        If no run exists below ``base``.
    """
    found = _runs_below(Path(base))
    if not found:
        raise RunError(f"{base}: expected at least one run, found none; create one with `venturi run SCENARIO`")
    return found[-1][1]


_SHOWN = 5
"""Number of newest runs in the error message about an unknown run."""


def resolve_run(name: Path | str, base: Path | str = "runs") -> Path:
    """Return the directory of a run from its path, its name below ``base``, or a prefix of its name.

    The name of a scenario selects its newest run, even if other names start with it. A prefix selects the newest
    matching run if all matching runs are of one scenario; otherwise it is ambiguous and rejected.

    Raises
    ------
    RunError
        If no run matches, or the prefix is ambiguous.
    """
    base = Path(base)
    for direct in (Path(name), base / name):
        if os.path.exists(direct / INFO):  # noqa: PTH110 - returns False instead of raising if permissions are missing
            return direct
    runs, start = _runs_below(base), _file_name(str(name))
    exact = [path for info, path in runs if str(name) == info.name or start == _file_name(info.name)]
    if exact and start:
        return exact[-1]
    matches = [(info, path) for info, path in runs if start and path.name.startswith(start)]
    if not matches:
        newest = ", ".join([path.name for _, path in reversed(runs[-_SHOWN:])]) or "none"
        raise RunError(
            f"{name}: expected the path of a run, or the prefix of a run name below {base}/, found no such run"
            f" (newest runs: {newest}{', …' if len(runs) > _SHOWN else ''}); name one of them, or another directory with --runs"
        )
    if len({info.name for info, _ in matches}) > 1:
        names = ", ".join(path.name for _, path in matches)
        raise RunError(
            f"{name}: expected a prefix of one run name below {base}/, found {names}; give a longer prefix"
        )
    return matches[-1][1]


def _runs_below(base: Path) -> list[tuple[RunInfo, Path]]:
    """Return the readable runs below ``base``, oldest first."""
    found = []
    for path in sorted(base.glob(f"*/{INFO}")):
        try:
            found.append((read_info(path.parent), path.parent))
        except RunError:
            continue  # one damaged run must not hide the others
    return sorted(found, key=lambda entry: (entry[0].created_unix_ns, entry[1].name))
