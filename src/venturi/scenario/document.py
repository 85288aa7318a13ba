"""From files and ``--set`` to one document: TOML, includes, overrides, and where each value came from."""

# ruff: noqa: ANN401 - a TOML value is of any type until the models have looked at it
from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.plan.words import shown
from venturi.scenario.words import Problem, Where, path_text

__all__ = ["Document", "document_of", "read_document", "value_of"]

MAX_INCLUDES = 100
"""Files that one scenario may include in all; more is a mistake."""


_OVERRIDE = "--set "
_FIXED = (["workload"], ["workload", "options"])
"""Tables with values that a factor of the same name takes the place of."""


@dataclass
class Document:
    """A document, the problems met while it was put together, and the origin of values that are not the file's own."""

    data: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    origins: dict[Where, str] = field(default_factory=dict)
    folder: Path | None = None
    """Of the main file: what a scenario names is found relative to it."""

    def origin(self, where: str) -> str:
        """Return `` (from …)`` for the value at ``where`` if it is not the main file's own, otherwise nothing."""
        above = [
            known
            for known in self.origins
            if where == (text := path_text(known)) or where.startswith((f"{text}.", f"{text}["))
        ]
        origin = self.origins[max(above, key=len)] if above else ""
        return f" (from {origin})" if origin else ""


def read_document(path: Path, overrides: Iterable[str]) -> Document:
    """Return the document of a scenario file, its includes merged beneath it and the overrides set above it."""
    document = Document(folder=path.parent)
    _add_file(document, path, origin="", where="", chain=(path.resolve(),), count=[0])
    _override(document, overrides)
    return document


def document_of(data: Mapping[str, Any], overrides: Iterable[str], folder: Path | None = None) -> Document:
    """Return a document that is there already, the overrides set above it; ``data`` stays as it is."""
    document = Document(copy.deepcopy(dict(data)), folder=folder)
    _override(document, overrides)
    return document


def _add_file(
    document: Document, path: Path, origin: str, where: str, chain: tuple[Path, ...], count: list[int]
) -> None:
    data = _parse(document, path, where)
    if data is None:
        return
    includes = data.pop("include", [])
    here = f"{where}: include" if where else "include"
    if not isinstance(includes, list) or not all(isinstance(name, str) for name in includes):
        document.problems.append((here, f"expected a list of file names, found {shown(includes)}"))
        includes = []
    for index, name in enumerate(includes):
        _include(document, path.parent / name, name, f"{here}[{index}]", chain, count)
    version = data.get("venturi")
    if origin and version not in (None, 1):
        document.problems.append((f"{where}: venturi", f"expected 1, found {shown(version)}"))
    _merge(document, document.data, data, origin, ())


def _include(
    document: Document, path: Path, name: str, where: str, chain: tuple[Path, ...], count: list[int]
) -> None:
    count[0] += 1
    if path.resolve() in chain:
        names = " → ".join(step.name for step in (*chain[chain.index(path.resolve()) :], path))
        document.problems.append((where, f"expected includes without a circle, found {names}"))
    elif count[0] > MAX_INCLUDES:
        if count[0] == MAX_INCLUDES + 1:
            document.problems.append((where, f"expected at most {MAX_INCLUDES} includes in all, found more"))
    else:
        _add_file(document, path, name, f"{where} ({name})", (*chain, path.resolve()), count)


def _parse(document: Document, path: Path, where: str) -> dict[str, Any] | None:
    try:
        text = path.read_bytes().decode("utf-8-sig")  # editors of Windows put a mark before the first character
        return tomllib.loads(text)
    except OSError as error:
        problem = (where, f"expected a file that can be read, found none ({error.strerror})")
    except UnicodeDecodeError as error:
        problem = (where, f"expected UTF-8 text, found byte {error.object[error.start]:#04x} at offset {error.start}")
    except tomllib.TOMLDecodeError as error:
        place, what = _syntax(str(error), text)
        problem = (f"{where}: {place}" if where else place, what)
    except RecursionError:
        problem = (where, "expected lists and tables nested less deep, found a deeper nesting")
    document.problems.append(problem)
    return None


def _syntax(message: str, text: str) -> tuple[str, str]:
    lines = text.splitlines() or [""]
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    reason = match[1] if match else message
    line, column = (int(match[2]), int(match[3])) if match and match[2] else (len(lines), len(lines[-1]) + 1)
    found = lines[line - 1].strip() if line <= len(lines) else ""
    reason = reason[:1].lower() + reason[1:]
    return f"line {line}, column {column}", f"expected TOML, found {shown(found) if found else 'the end'} ({reason})"


def _merge(document: Document, below: dict[str, Any], above: dict[str, Any], origin: str, where: Where) -> None:
    """Put ``above`` into ``below``: tables are merged, everything else is replaced."""
    for key, value in above.items():
        here = (*where, key)
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _merge(document, below[key], value, origin, here)
            continue
        below[key] = value
        for known in [known for known in document.origins if known[: len(here)] == here]:
            del document.origins[known]
        document.origins[here] = origin


def _override(document: Document, overrides: Iterable[str]) -> None:
    """Set values, and refuse those that would do nothing, since a factor of that name takes their place."""
    for override in overrides:
        _set(document, override)
    workload = document.data.get("workload")
    factors = workload.get("factors") if isinstance(workload, dict) else None
    for where, origin in document.origins.items():
        *table, key = where
        if (
            origin.startswith(_OVERRIDE)
            and table in _FIXED
            and isinstance(factors, dict)
            and isinstance(factors.get(key), list)
        ):
            expected = f"expected none, since the factor {key} takes its place, found one; --set 'workload.factors.{key}=[…]'"
            document.problems.append(
                (path_text(where), f"{expected} is what counts{document.origin(path_text(where))}")
            )


def _set(document: Document, override: str) -> None:
    """Set one value as ``a.b.c=value`` asks for: TOML if it parses, otherwise text."""
    key, equals, text = override.partition("=")
    where = _key(key) if equals else None
    if where is None:
        document.problems.append(
            (f"--set {override}", f"expected KEY=VALUE such as workload.repeat=20, found {override}")
        )
        return
    table = document.data
    for depth, part in enumerate(where[:-1], 1):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            at = path_text(where[:depth])
            document.problems.append((f"--set {override}", f"expected a table at {at}, found {shown(table)}"))
            return
    table[str(where[-1])] = value_of(text)
    document.origins[where] = f"{_OVERRIDE}{key.strip()}"


def _key(text: str) -> tuple[str, ...] | None:
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    where: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        ((part, table),) = table.items()
        where.append(part)
    return tuple(where) if table == 0 else None


def value_of(text: str) -> Any:
    """Return what an override gives: TOML if the text parses as such, otherwise the text."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text.strip()
    return table["value"] if list(table) == ["value"] else text.strip()
