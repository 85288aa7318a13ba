"""Journal of the files and directories that a run creates on existing servers: ``created.jsonl``.

Each line is durable before its file is created. So a killed run leaves no file without a line, and ``venturi clean`` can
remove all of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import RunError
from venturi.run.journal import AppendFile, complete_bytes

__all__ = ["CREATED", "CreatedFile", "CreatedJournal", "read_created"]

CREATED = "created.jsonl"


@dataclass(frozen=True, slots=True)
class CreatedFile:
    """A file or directory that may exist on a server.

    Attributes
    ----------
    host
        Host whose programs and credentials handle it.
    url
        Its URL.
    directory
        Whether it is a directory.
    """

    host: str
    url: str
    directory: bool = False


class CreatedJournal:
    """Appends to the journal of a run; thread-safe.

    Parameters
    ----------
    path
        Directory of the run.

    Raises
    ------
    RunError
        If the journal cannot be read or opened.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._remaining = {one.url: one for one in read_created(path)}
        self._file = AppendFile(path / CREATED, durable=True)

    @property
    def remaining(self) -> tuple[CreatedFile, ...]:
        """Files and directories that may exist, in the order of their creation."""
        with self._lock:
            return tuple(self._remaining.values())

    def __contains__(self, url: str) -> bool:
        with self._lock:
            return url in self._remaining

    def add(self, files: Iterable[CreatedFile]) -> None:
        """Record files that will be created; return when the lines are durable.

        Raises
        ------
        RunError
            If the journal cannot be written.
        """
        with self._lock:
            new = {one.url: one for one in files if one.url not in self._remaining}
            for one in new.values():
                self._file.append(
                    {"created": one.url, "host": one.host} | ({"directory": True} if one.directory else {})
                )
            self._remaining |= new
        self._file.flush()

    def remove(self, urls: Iterable[str]) -> None:
        """Record files that do not exist any more.

        Raises
        ------
        RunError
            If the journal cannot be written.
        """
        with self._lock:
            for url in urls:
                if self._remaining.pop(url, None) is not None:
                    self._file.append({"removed": url})

    def close(self) -> None:
        """Write all lines and close the file.

        Raises
        ------
        RunError
            If the journal cannot be written.
        """
        self._file.close()


def read_created(path: Path) -> list[CreatedFile]:
    """Return the files and directories of a run that may exist on servers, in the order of their creation.

    Raises
    ------
    RunError
        If the journal cannot be read.
    """
    file = path / CREATED
    try:
        size = complete_bytes(file)
        text = file.read_bytes()[:size] if size else b""
    except OSError as error:
        raise RunError(f"{file}: cannot read the file: {error.strerror}. Make it readable.") from error
    found: dict[str, CreatedFile] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            content: dict[str, Any] = json.loads(line)
            if "removed" in content:
                found.pop(content["removed"], None)
            else:
                url = str(content["created"])
                found[url] = CreatedFile(str(content["host"]), url, bool(content.get("directory")))
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{file}, line {number}: expected a JSON object with created or removed, found {line[:80]!r}."
                " Restore the file."
            ) from error
    return list(found.values())
