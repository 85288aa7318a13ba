"""Merge files, includes and ``--set`` overrides to one document, with the origin of each value."""

# ruff: noqa: ANN401 - a TOML value has any type before the models validate it
from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.messages import Problem, Where, path_text, quote_value

__all__ = ["Document", "build_document", "parse_override_value", "read_document"]

MAX_INCLUDES = 100
"""Maximum number of included files of one scenario."""


_OVERRIDE_PREFIX = "--set "
_FIXED = (["workload"], ["workload", "options"])
"""Tables whose values a factor of the same name replaces."""


@dataclass
class Document:
    """Merged document, with the problems of the merge and the origin of values from other files."""

    data: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    origins: dict[Where, str] = field(default_factory=dict)
    directory: Path | None = None
    """Directory of the main file; base of all relative paths in the scenario."""

    def origin(self, where: str) -> str:
        """Return `` (from …)`` for a value that is not from the main file, otherwise an empty text."""
        above = [
            known
            for known in self.origins
            if where == (text := path_text(known)) or where.startswith((f"{text}.", f"{text}["))
        ]
        origin = self.origins[max(above, key=len)] if above else ""
        return f" (from {origin})" if origin else ""


def read_document(path: Path, overrides: Iterable[str]) -> Document:
    """Return the document of a scenario file. The file overrides its includes; ``--set`` overrides the file."""
    document = Document(directory=path.parent)
    _add_file(document, path, origin="", where="", chain=(path.resolve(),), count=[0])
    _override(document, overrides)
    return document


def build_document(data: Mapping[str, Any], overrides: Iterable[str], directory: Path | None = None) -> Document:
    """Return a document from ``data`` with overrides; ``data`` is not changed."""
    document = Document(copy.deepcopy(dict(data)), directory=directory)
    _override(document, overrides)
    return document


def _add_file(
    document: Document, path: Path, origin: str, where: str, chain: tuple[Path, ...], count: list[int]
) -> None:
    data = _parse(document, path, where)
    if data is None:
        return
    includes = data.pop("include", [])
    key_path = f"{where}: include" if where else "include"
    if not isinstance(includes, list) or not all(isinstance(name, str) for name in includes):
        document.problems.append(
            (
                key_path,
                f'expected a list of file names, found {quote_value(includes)}; write a list such as ["common.toml"]',
            )
        )
        includes = []
    for index, name in enumerate(includes):
        _include(document, path.parent / name, name, f"{key_path}[{index}]", chain, count)
    version = data.get("venturi")
    if origin and version not in (None, 1):
        document.problems.append(
            (f"{where}: venturi", f"expected 1, found {quote_value(version)}; remove the version or write 1")
        )
    _merge(document, document.data, data, origin, ())


def _include(
    document: Document, path: Path, name: str, where: str, chain: tuple[Path, ...], count: list[int]
) -> None:
    count[0] += 1
    if path.resolve() in chain:
        names = " → ".join(step.name for step in (*chain[chain.index(path.resolve()) :], path))
        document.problems.append(
            (where, f"expected includes without a circle, found {names}; remove one of these includes")
        )
    elif count[0] > MAX_INCLUDES:
        if count[0] == MAX_INCLUDES + 1:
            document.problems.append(
                (where, f"expected at most {MAX_INCLUDES} included files, found more; merge some of them")
            )
    else:
        _add_file(document, path, name, f"{where} ({name})", (*chain, path.resolve()), count)


def _parse(document: Document, path: Path, where: str) -> dict[str, Any] | None:
    try:
        text = path.read_bytes().decode("utf-8-sig")  # editors of Windows write a byte-order mark
        return tomllib.loads(text)
    except OSError as error:
        problem = (
            where,
            f"expected a readable file, found none ({error.strerror}); check the path and its permissions",
        )
    except UnicodeDecodeError as error:
        problem = (
            where,
            f"expected UTF-8 text, found byte {error.object[error.start]:#04x} at offset {error.start}; save the file as UTF-8",
        )
    except tomllib.TOMLDecodeError as error:
        location, what = _syntax(str(error), text)
        problem = (f"{where}: {location}" if where else location, what)
    except RecursionError:
        problem = (where, "expected fewer levels of lists and tables, found deeper nesting; flatten the document")
    document.problems.append(problem)
    return None


def _syntax(message: str, text: str) -> tuple[str, str]:
    lines = text.splitlines() or [""]
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    reason = match[1] if match else message
    line, column = (int(match[2]), int(match[3])) if match and match[2] else (len(lines), len(lines[-1]) + 1)
    found = lines[line - 1].strip() if line <= len(lines) else ""
    reason = reason[:1].lower() + reason[1:]
    return (
        f"line {line}, column {column}",
        f"expected TOML, found {quote_value(found) if found else 'the end'} ({reason}); correct this line",
    )


def _merge(document: Document, below: dict[str, Any], above: dict[str, Any], origin: str, where: Where) -> None:
    """Merge ``above`` into ``below``: tables are merged, other values are replaced."""
    for key, value in above.items():
        key_path = (*where, key)
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _merge(document, below[key], value, origin, key_path)
            continue
        below[key] = value
        for known in [known for known in document.origins if known[: len(key_path)] == key_path]:
            del document.origins[known]
        document.origins[key_path] = origin


def _override(document: Document, overrides: Iterable[str]) -> None:
    """Set values, and reject overrides without effect, because a factor of the same name replaces them."""
    for override in overrides:
        _set(document, override)
    workload = document.data.get("workload")
    factors = workload.get("factors") if isinstance(workload, dict) else None
    for where, origin in document.origins.items():
        *table, key = where
        if (
            origin.startswith(_OVERRIDE_PREFIX)
            and table in _FIXED
            and isinstance(factors, dict)
            and isinstance(factors.get(key), list)
        ):
            found = f"expected no fixed value with a factor {key}, found one{document.origin(path_text(where))}"
            document.problems.append((path_text(where), f"{found}; use --set 'workload.factors.{key}=[…]'"))


def _set(document: Document, override: str) -> None:
    """Set one value from ``a.b.c=value``; the value is TOML if it parses, otherwise text. ``a.b.c+=[value]`` extends a list."""
    key, equals, text = override.partition("=")
    extends, key = key.endswith("+"), key.removesuffix("+")
    where = _key(key) if equals else None
    if where is None:
        document.problems.append(
            (f"--set {override}", f"expected KEY=VALUE, found {override}; write for example workload.repeat=20")
        )
        return
    table = document.data
    for depth, part in enumerate(where[:-1], 1):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            at = path_text(where[:depth])
            document.problems.append(
                (f"--set {override}", f"expected a table at {at}, found {quote_value(table)}; set a key of a table")
            )
            return
    value = parse_override_value(text)
    if extends:
        known = table.get(str(where[-1]), [])
        if not isinstance(known, list) or not isinstance(value, list):
            found = f"{quote_value(known)} and {quote_value(value)}"
            document.problems.append(
                (f"--set {override}", f"expected two lists for +=, found {found}; use = instead")
            )
            return
        value = [*known, *value]
    table[str(where[-1])] = value
    document.origins[where] = f"{_OVERRIDE_PREFIX}{key.strip()}"


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


def parse_override_value(text: str) -> Any:
    """Return the value of an override: TOML if the text parses, otherwise the text."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text.strip()
    return table["value"] if list(table) == ["value"] else text.strip()
