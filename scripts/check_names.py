#!/usr/bin/env python3
"""List names that a reader cannot tell apart or cannot search for.

Usage: check_names.py [CHECKOUT]

Prints one line for each problem and exits with 1 if there is one:

- a type name that two modules define: every class of ``src/venturi``, and every Rust type that is visible outside of its file;
- a type or module with a banned name, such as ``Line`` or ``words``;
- an identifier with a word that the glossary replaces (``scripts/banned_words.toml`` lists them, with the standard terms
  and stored keys that may use them).
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
BANNED_TYPES = frozenset(
    [
        "Line",
        "Way",
        "End",
        "Place",
        "Door",
        "Strand",
        "Asked",
        "Told",
        "Thing",
        "Words",
        "Given",
        "Seen",
        "Heard",
        "Said",
    ]
)
BANNED_MODULES = frozenset(
    [
        "words",
        "plain",
        "thing",
        "told",
        "given",
        "beside",
        "asked",
        "said",
        "desk",
        "crew",
        "manner",
        "pilot",
        "field",
        "utils",
        "helpers",
        "things",
    ]
)

MAX_WORDS = 5
"""Maximum number of words of an ordinary identifier.

Longer ones are test sentences, where ``short_words`` are allowed as verbs.
"""

_RUST_TYPE = re.compile(
    r"^[ \t]*(?P<visible>pub(?:\([^)]*\))?[ \t]+)?(?:struct|enum|trait|union|type)[ \t]+(?P<name>[A-Z]\w*)",
    re.MULTILINE,
)
_RUST_NOISE = re.compile(r"""//[^\n]*|/\*.*?\*/|b?'(?:\\.|[^'\\])'|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*\"""", re.DOTALL)
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def main() -> int:
    """Print the problems of the checkout."""
    problems = [*duplicates(), *banned(), *replaced_words()]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def python_files(*tops: str) -> Iterator[Path]:
    """Yield the Python files below some directories."""
    for top in tops:
        yield from sorted(path for path in (ROOT / top).rglob("*.py") if "data" not in path.relative_to(ROOT).parts)


def rust_files() -> Iterator[Path]:
    """Yield the Rust files of the crates and of the fuzz targets."""
    for top in ("crates", "fuzz/src"):
        yield from sorted((ROOT / top).rglob("*.rs"))


def duplicates() -> Iterator[str]:
    """Yield the type names that several modules define."""
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in python_files("src"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                where["Python", node.name].append(shown(path))
    for path in rust_files():
        if "tests" in path.parts or path.name == "tests.rs":
            continue
        for match in _RUST_TYPE.finditer(_RUST_NOISE.sub("", path.read_text(encoding="utf-8"))):
            if match["visible"]:
                where["Rust", match["name"]].append(shown(path))
    for (language, name), paths in sorted(where.items()):
        if len(paths) > 1:
            yield f"{language} type {name}: defined in {', '.join(paths)}; name each after its owner"


def banned() -> Iterator[str]:
    """Yield types and modules with banned names."""
    for path in python_files("src"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name in BANNED_TYPES:
                yield f"{shown(path)}:{node.lineno}: class {node.name}: choose the field's word"
    for path in rust_files():
        for match in _RUST_TYPE.finditer(_RUST_NOISE.sub("", path.read_text(encoding="utf-8"))):
            if match["name"] in BANNED_TYPES:
                yield f"{shown(path)}: type {match['name']}: choose the field's word"
    for path in (*python_files("src"), *rust_files()):
        if path.stem in BANNED_MODULES:
            yield f"{shown(path)}: choose a file name that says what the module holds"


def replaced_words() -> Iterator[str]:
    """Yield identifiers with words that the glossary replaces, by file, most frequent first."""
    rules = WordRules(tomllib.loads((ROOT / "scripts" / "banned_words.toml").read_text(encoding="utf-8")))
    for path in (*python_files("src", "tests", "bench", "scripts"), *rust_files()):
        identifiers = _python_identifiers(path) if path.suffix == ".py" else _rust_identifiers(path)
        counts = Counter(identifiers)
        found = Counter({name: counts[name] for name in counts if rules.is_replaced(name, shown(path))})
        for name, count in found.most_common():
            yield f"{shown(path)}: identifier {name} ({count}): see docs/reference/glossary.md"


class WordRules:
    """The replaced words and phrases, with the names and files that may use them.

    Parameters
    ----------
    rules
        Content of ``scripts/banned_words.toml``.
    """

    def __init__(self, rules: dict[str, Any]) -> None:
        allowed: list[dict[str, Any]] = rules["allowed"]
        self._words = frozenset(rules["words"])
        self._short_words = frozenset(rules["short_words"])
        self._phrases = tuple(rules["phrases"])
        self._allowed_names = frozenset(name for rule in allowed for name in rule.get("names", ()))
        self._allowed_phrases = tuple(phrase for rule in allowed for phrase in rule.get("phrases", ()))
        self._allowed_paths = tuple((path, rule["words"]) for rule in allowed for path in rule.get("paths", ()))

    def is_replaced(self, name: str, path: str) -> bool:
        """Return whether an identifier of a file has a replaced word or phrase."""
        if name in self._allowed_names:
            return False
        parts = [part.lower() for part in _WORD.findall(name)]
        text = f"_{'_'.join(parts)}_"
        for phrase in self._allowed_phrases:
            text = text.replace(f"_{phrase}_", "_")
        if any(f"_{phrase}_" in text for phrase in self._phrases):
            return True
        found = self._words.intersection(text.split("_"))
        if len(parts) <= MAX_WORDS:
            found |= self._short_words.intersection(parts)
        if not found:
            return False
        return not found <= {word for start, words in self._allowed_paths if path.startswith(start) for word in words}


def shown(path: Path) -> str:
    """Return a path relative to the checkout."""
    return str(path.relative_to(ROOT))


def _python_identifiers(path: Path) -> Iterable[str]:
    with tokenize.open(path) as lines:
        return [token.string for token in tokenize.generate_tokens(lines.readline) if token.type == tokenize.NAME]


def _rust_identifiers(path: Path) -> Iterable[str]:
    return re.findall(r"[A-Za-z_]\w*", _RUST_NOISE.sub('""', path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
