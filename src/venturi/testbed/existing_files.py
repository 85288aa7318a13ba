"""Lists of existing files of a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from venturi.messages import Problem, path_text, quote_value

if TYPE_CHECKING:
    from venturi.scenario.testbed import StorageTable

__all__ = ["MAX_NAMES", "read_names"]

MAX_NAMES = 100_000
"""Maximum number of files in a list: the plan contains their names."""


def read_names(name: str, storage: StorageTable, problems: list[Problem]) -> tuple[str, ...]:
    """Return the paths in the list of a storage; errors are appended to ``problems``.

    Empty lines and lines that start with ``#`` are ignored.
    """
    where, path = path_text(("testbed", "storage", name, "existing")), storage.list_path
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        problems.append(
            (where, f"expected a readable file with one path per line, found {path} ({reason}); correct it")
        )
        return ()
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("/") or ".." in text.split("/") or text in found or not text.isprintable():
            problems.append(
                (
                    where,
                    f"{path}, line {number}: expected a new path below the storage without .., found {quote_value(text)};"
                    " correct the line",
                )
            )
            return ()
        found[text] = None
    if not found or len(found) > MAX_NAMES:
        problems.append((where, f"expected 1 to {MAX_NAMES} files in {path}, found {len(found)}; change the list"))
    return tuple(found)
