#!/usr/bin/env python3
"""Measure how readable the project's English is: Markdown, docstrings, comments, help texts, messages, templates.

Usage:
    prose_check.py [--root DIR] [PATH ...]        every text, totals per area
    prose_check.py --files                        one line per file as well, worst first
    prose_check.py --list [--only long,free,...]  every hit as path:line: kind: text
    prose_check.py --changed [REF]                only lines added since REF (default: HEAD)
    prose_check.py --terms replaced_words.tsv     also count replaced words (regex<TAB>word to use)
    prose_check.py --goals prose_goals.toml       exit with 1 if a group of texts misses its goal
    prose_check.py --max-mean 20 --max-free 4     exit with 1 if a total is over a limit

Without ``--goals`` and ``--max-*`` the exit code is 0. The check does not judge grammar: a clear sentence may count,
and an unclear one may not.

Kinds of text: md (Markdown), doc (docstrings, /// and //!), comment (# and //), help (help= strings), msg (raised and
printed sentences in Python; string literals of five words or more in Rust), html (templates).

Columns: words; mean (words per sentence); long% (sentences over 35 words); free (free relatives per 1000 words); idiom
(house idioms per 1000 words); cells (table cells over 25 words); code (sentences dense with code spans).
"""

from __future__ import annotations

import argparse
import ast
import bisect
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

LONG_WORDS = 35
CELL_WORDS = 25
CODE_SPANS = 4
CHANGE_WORDS = 500
SKIP = re.compile(r"(^|/)(target|\.venv|_build|node_modules|corpus|__pycache__)(/|$)|^docs/studies/.*/")
DEFAULT_PATHS = ("*.md", "docs", "src", "crates")
AREAS = ("README.md", "CHANGELOG.md", "docs/howto", "docs/concepts", "docs/reference", "docs/adr", "docs/tutorial",
         "docs/studies", "docs", "src", "crates", "tests", "bench")  # fmt: skip

# Free relatives: clauses in place of nouns. "what" counts unless it starts a question.
FREE_WORDS = frozenset(["what", "whatever", "whoever", "whichever", "whom", "whomever"])
FREE_PAIRS = frozenset(
    [f"{one} which" for one in ["of", "in", "by", "with", "from", "at", "on", "for", "to", "behind", "beside", "through", "after"]]
    + [f"{one} {two}" for one in ["that", "those", "one", "ones", "all", "nothing", "anything", "something", "everything"]
       for two in ["that", "which", "who", "of"]]
) - {"one of", "all of", "something of"}  # fmt: skip
FREE_FIRST = frozenset(["who", "where", "how", "whether", "that", "which"])
FREE_FIRST_NOT = frozenset(["do", "does", "did", "can", "is", "are", "to", "file", "page"])

# House idioms: words used in place of a precise verb or noun. All are English, but a text full of them is hard to read.
IDIOM_WORDS = frozenset(
    [
        "told",
        "tell",
        "tells",
        "telling",
        "ask",
        "asks",
        "asked",
        "asking",
        "say",
        "says",
        "said",
        "saying",
        "nobody",
        "stand",
        "stands",
        "beside",
        "besides",
        "meanwhile",
        "anew",
        "else",
        "thereby",
        "hence",
    ]
)
IDIOM_PAIRS = frozenset(
    [
        "is given",
        "are given",
        "was given",
        "be given",
        "given up",
        "goes on",
        "go on",
        "went on",
        "going on",
        "in passing",
        "at hand",
        "held against",
        "so many",
        "so much",
        "is had",
        "are had",
        "there is no",
        "by itself",
        "by themselves",
        "under way",
        "none of",
        "let it",
        "let them",
        "taken for",
        "at once",
        "nothing but",
        "but for",
        "is such",
        "are such",
        "come to",
        "comes to",
        "came to",
        "in case",
        "as well",
    ]
) - {"in case", "as well"}
IDIOM_TRIPLES = frozenset(["as many as", "in place of", "of its own", "has to be", "come to be", "comes to be"])
TOKEN = re.compile(r"[a-z][a-z'’-]*")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|resp|No|Fig|fig|eq|eqs|Eq|al|St|Dr|pp|p|incl)\.$")
SENTENCE_END = re.compile(r"[.!?](?:[\"')\]”’*_]+)?(?=\s+[\"'(\[“‘*_`A-Z0-9§$]|\s*$)")
WORD = re.compile(r"[A-Za-z0-9À-ÿ][\w'’./:%+-]*")
CODE_SPAN = re.compile(r"``?[^`]+``?")
RST_ROLE = re.compile(r":[a-z:]+:`~?([^`]*)`")
LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
MATH = re.compile(r"\$[^$\n]+\$")
TAG = re.compile(r"</?[a-zA-Z][^>]*>|<https?:[^>]*>|\{[a-z]+\}(?=`)")
CODE_MARK, MATH_MARK = "\x01", "\x02"


@dataclass
class Unit:
    """One sentence (never a heading), with its first and last line."""

    text: str
    first: int
    last: int
    kind: str
    cell: bool = False
    spans: int = 0
    words: int = 0


@dataclass
class Tally:
    """Counts over many sentences."""

    words: int = 0
    running: int = 0  # words outside of table cells; the mean is computed from them
    sentences: int = 0
    long: int = 0
    free: int = 0
    idiom: int = 0
    cells: int = 0
    code: int = 0
    terms: Counter = field(default_factory=Counter)
    least_words: int = 0  # minimum denominator of rates, so that one hit in a short change does not give a high rate

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for name in ("words", "running", "sentences", "long", "free", "idiom", "cells", "code"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.terms.update(other.terms)

    def measured(self) -> dict[str, float]:
        """Return the values of the columns for which limits exist."""
        return {
            "mean": self.mean,
            "long": self.long_percent,
            "free": self.per_thousand("free"),
            "idiom": self.per_thousand("idiom"),
            "cells": self.cells,
            "code": self.code,
            "words": self.words,
        }

    @property
    def mean(self) -> float:
        """Words per sentence."""
        return self.running / self.sentences if self.sentences else 0.0

    @property
    def long_percent(self) -> float:
        """Sentences over the limit, in percent."""
        return 100 * self.long / self.sentences if self.sentences else 0.0

    def per_thousand(self, name: str) -> float:
        """Return a count per 1000 words."""
        return 1000 * getattr(self, name) / max(self.words, self.least_words) if self.words else 0.0


# ---- text to sentences ----------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return the text without markup; a code span becomes one mark, which counts as one word."""
    text = RST_ROLE.sub(CODE_MARK, text)
    text = CODE_SPAN.sub(CODE_MARK, text)
    text = LINK.sub(r"\1", text)
    text = MATH.sub(MATH_MARK, text)
    return TAG.sub(" ", text).replace("**", "")


def count_words(text: str) -> int:
    """Return the number of words; a code span or a formula counts as one."""
    return len(WORD.findall(text)) + text.count(CODE_MARK) + text.count(MATH_MARK)


def sentences(fragments: list[tuple[int, str]], kind: str, cell: bool = False) -> Iterator[Unit]:
    """Split the lines of one block into sentences."""
    starts, parts, at = [], [], 0
    whole = ""
    for line, text in fragments:
        text = text.strip()
        if not text:
            continue
        starts.append((at, line))
        parts.append(text)
        at += len(text) + 1
    if not parts:
        return
    whole = plain_keeping(parts)
    offsets = [offset for offset, _ in whole[1]]
    lines = [starts[index][1] for index in range(len(starts))]
    text, opening = whole[0], 0

    def line_of(position: int) -> int:
        return lines[max(0, bisect.bisect_right(offsets, position) - 1)]

    def unit(start: int, stop: int) -> Unit | None:
        body = text[start:stop].strip()
        number = count_words(body)
        if number < 2:
            return None
        return Unit(body, line_of(start), line_of(max(start, stop - 1)), kind, cell, body.count(CODE_MARK), number)

    for match in SENTENCE_END.finditer(text):
        if ABBREVIATION.search(text[opening : match.start() + 1]):
            continue
        if (found := unit(opening, match.end())) is not None:
            yield found
        opening = match.end()
    if (found := unit(opening, len(text))) is not None:
        yield found


def plain_keeping(parts: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return the joined plain text and the start offset of each line. Code spans over line ends are joined first."""
    joined = "\n".join(parts)
    cleaned = plain(joined)
    if cleaned.count("\n") == len(parts) - 1:
        text_lines = cleaned.split("\n")
    else:  # a code span crossed a line end: fall back to one line
        return cleaned.replace("\n", " "), [(0, 0)] * len(parts)
    offsets, at = [], 0
    for index, line in enumerate(text_lines):
        offsets.append((at, index))
        at += len(line) + 1
    return " ".join(text_lines), offsets


FENCE = re.compile(r"^\s*(```|~~~|:::)")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")


def markdown(lines: list[str], kind: str, first: int = 1) -> Iterator[Unit]:
    """Yield the sentences of a Markdown or reStructuredText text; skip code, headings and table rules."""
    block: list[tuple[int, str]] = []
    fenced = ""
    indent_code = False

    def flush() -> Iterator[Unit]:
        nonlocal block
        yield from sentences(block, kind)
        block = []

    for number, line in enumerate(lines, first):
        stripped = line.strip()
        if match := FENCE.match(line):
            if not fenced:
                yield from flush()
                fenced = match.group(1)
            elif stripped.startswith(fenced):
                fenced = ""
            continue
        if fenced:
            continue
        if not stripped:
            yield from flush()
            indent_code = False
            continue
        if stripped.startswith((">>>", "...")) and kind != "md":
            yield from flush()
            continue
        if not block and line.startswith("    ") and kind == "md" and not ITEM.match(line):
            indent_code = True
        if indent_code and line.startswith("    "):
            continue
        if stripped.startswith("#") or re.fullmatch(r"[-=~^*_]{3,}", stripped):
            if not stripped.startswith("#"):
                block = []  # an underlined heading
            else:
                yield from flush()
            continue
        if stripped.startswith("|"):
            yield from flush()
            if re.fullmatch(r"\|?[\s:|-]+\|?", stripped):
                continue
            for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                yield from cell_units(cell, number, kind)
            continue
        if ITEM.match(line):
            yield from flush()
            block = [(number, ITEM.sub("", line))]
            continue
        block.append((number, stripped.lstrip("> ")))
    yield from flush()


def cell_units(cell: str, number: int, kind: str) -> Iterator[Unit]:
    """Yield the sentences of a table cell, and the cell itself if it is too long."""
    found = list(sentences([(number, cell)], kind, cell=True))
    yield from found
    total = sum(unit.words for unit in found)
    if total > CELL_WORDS:
        yield Unit(
            plain(cell).strip(), number, number, kind, True, -1, total
        )  # spans < 0 marks a whole cell, not a sentence


# ---- files to sentences ---------------------------------------------------------------------------------------------

PRINTERS = {"print_status", "print_data", "echo", "warn", "secho", "print", "BadParameter", "fail"}


def walk(tree: ast.AST, deep: bool) -> Iterator[ast.AST]:
    """Yield statements, and calls that are statements; if ``deep``, yield every node.

    Annotations contain ``help=``, so help texts need ``deep``.
    """
    if deep:
        yield from ast.walk(tree)
        return
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            part = getattr(node, name, None)
            if isinstance(part, list):
                for child in part:
                    yield child
                    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
                        yield child.value
                    stack.append(child)


def python(text: str) -> Iterator[Unit]:
    """Yield the sentences of a Python file."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    docs: list[tuple[int, int]] = []
    deep = any(word in text for word in ("help=", "description=", "epilog="))
    for node in walk(tree, deep):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs.append((node.lineno, node.end_lineno or node.lineno))
            yield from docstring(node.value.value, node.lineno)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from messages(node.exc.args, "msg")
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in PRINTERS:
                yield from messages(node.args, "msg")
            for keyword in node.keywords:
                if keyword.arg in ("help", "description", "epilog"):
                    yield from messages([keyword.value], "help")
    docs.sort()
    heads = [opening for opening, _ in docs]
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip()
        index = bisect.bisect_right(heads, number) - 1
        inside = index >= 0 and docs[index][0] <= number <= docs[index][1]
        if stripped.startswith("#") and not stripped.startswith("#!") and not inside:
            comment = stripped.lstrip("#").strip()
            if not re.match(r"(?:type:|noqa|fmt:|ruff|mypy|pragma)", comment):
                block.append((number, comment))
                continue
        if block:
            yield from sentences(block, "comment")
            block = []


SECTION = re.compile(r"^(Parameters|Returns|Raises|Examples|Yields|Notes|Attributes|References|Warns|See Also)$")


def docstring(text: str, line: int) -> Iterator[Unit]:
    """Yield the sentences of a docstring; skip examples and numpydoc headers."""
    kept, skipping = [], False
    rows = text.split("\n")
    for index, row in enumerate(rows):
        bare = row.strip()
        if SECTION.match(bare) and index + 1 < len(rows) and set(rows[index + 1].strip()) == {"-"}:
            skipping = bare in ("Examples", "References")
            kept.append("")
            continue
        if bare and set(bare) == {"-"}:
            kept.append("")
            continue
        if skipping or bare.startswith(">>>"):
            kept.append("")
            continue
        if re.match(r"^[\w, *]+ : ", bare):  # numpydoc parameter line
            kept.append("")
            continue
        kept.append(bare)
    yield from markdown(kept, "doc", line)


def messages(nodes: list[ast.expr], kind: str) -> Iterator[Unit]:
    """Yield the sentences of the string arguments of a call."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from messages(node.args, kind)
            continue
        for text, line in strings(node):
            if count_words(text) >= 3:
                rows = text.split("\n")
                yield from markdown(rows, kind, line) if len(rows) > 1 else sentences([(line, text)], kind)


def strings(node: ast.expr) -> Iterator[tuple[str, int]]:
    """Yield the texts of an expression with their lines; a value in an f-string becomes N."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value, node.lineno
    elif isinstance(node, ast.JoinedStr):
        parts = [value.value if isinstance(value, ast.Constant) else "N" for value in node.values]
        yield "".join(map(str, parts)), node.lineno
    elif isinstance(node, ast.BinOp):
        left, right = list(strings(node.left)), list(strings(node.right))
        yield "".join(text for text, _ in left + right), node.lineno
    elif isinstance(node, ast.IfExp):
        yield from strings(node.body)
        yield from strings(node.orelse)


RUST_COMMENT = re.compile(r"^\s*(//[/!]?)\s?(.*)$")
RUST_STRING = re.compile(r'(?<![\'\\#b])"((?:[^"\\\n]|\\.|\\\n)*)"')


def rust(text: str) -> Iterator[Unit]:
    """Yield the sentences of a Rust file."""
    block: list[str] = []
    opening, mark = 0, ""
    code: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        match = RUST_COMMENT.match(line)
        if match and (not block or match.group(1) == mark):
            if not block:
                opening, mark = number, match.group(1)
            block.append(match.group(2))
            code.append("")
            continue
        if block:
            yield from markdown(block, "comment" if mark == "//" else "doc", opening)
            block = []
        if match:
            opening, mark = number, match.group(1)
            block.append(match.group(2))
            code.append("")
        else:
            code.append(line)
    body = "\n".join(code)
    newlines = list(accumulate(len(row) + 1 for row in code))
    for match in RUST_STRING.finditer(body):
        literal = re.sub(r"\\\n\s*", " ", match.group(1))
        literal = re.sub(r"\{[^}]*\}", "N", literal).replace('\\"', '"').replace("\\n", "\n")
        if (
            literal.count(" ") >= 4
            and count_words(literal) >= 5
            and not re.search(r"[=;{}|]{2}|^\s*[A-Z]{3,} ", literal)
        ):
            line = bisect.bisect_right(newlines, match.start()) + 1
            for row in literal.split("\n"):
                yield from sentences([(line, row)], "msg")


HTML_GONE = re.compile(r"<(style|script)\b.*?</\1>|<!--.*?-->|\{[%#].*?[%#]\}", re.DOTALL)


def html(text: str) -> Iterator[Unit]:
    """Yield the sentences between the tags of a page or a template; values become one word."""
    blank = HTML_GONE.sub(lambda match: "\n" * match.group().count("\n"), text)
    blank = re.sub(r"\{\{.*?\}\}", "N", blank)
    for number, line in enumerate(blank.split("\n"), 1):
        for fragment in re.split(r"</?(?!b\b|i\b|em\b|code\b)[a-zA-Z][^>]*>", line):
            if count_words(fragment) >= 3:
                yield from sentences([(number, fragment)], "html")


READERS = {".html": html, ".md": lambda text: markdown(text.split("\n"), "md"), ".py": python, ".rs": rust}


# ---- measuring ------------------------------------------------------------------------------------------------------


def free_and_idiom(text: str) -> tuple[int, int]:
    """Return the numbers of free relatives and house idioms in a sentence."""
    tokens = TOKEN.findall(text.lower())
    if not tokens:
        return 0, 0
    pairs = [f"{one} {two}" for one, two in pairwise(tokens)]
    idiom = sum(map(IDIOM_WORDS.__contains__, tokens)) + sum(map(IDIOM_PAIRS.__contains__, pairs))
    idiom += sum(f"{pair} {third}" in IDIOM_TRIPLES for pair, third in zip(pairs, tokens[2:], strict=False))
    if text.endswith("?"):
        return 0, idiom
    free = sum(map(FREE_WORDS.__contains__, tokens)) + sum(map(FREE_PAIRS.__contains__, pairs))
    if tokens[0] in FREE_FIRST and len(tokens) > 1 and tokens[1] not in FREE_FIRST_NOT:
        free += 1
    return free, idiom


def hits(unit: Unit) -> Iterator[tuple[str, int]]:
    """Yield (kind of hit, count) for one sentence or one table cell."""
    if unit.spans < 0:
        yield "cells", 1
        return
    if unit.words > LONG_WORDS:
        yield "long", 1
    free, idiom = free_and_idiom(unit.text)
    if free:
        yield "free", free
    if idiom:
        yield "idiom", idiom
    if unit.spans > CODE_SPANS or (unit.spans >= 3 and unit.spans > 0.4 * unit.words):
        yield "code", 1


def measure(unit: Unit, tally: Tally, terms: list[tuple[re.Pattern[str], str]]) -> None:
    """Count one sentence."""
    if unit.spans >= 0:
        tally.words += unit.words
        if not unit.cell:
            tally.sentences += 1
            tally.running += unit.words
        for pattern, new in terms:
            if number := len(pattern.findall(unit.text)):
                tally.terms[f"{pattern.pattern} → {new}"] += number
    for name, number in hits(unit):
        if name != "long" or not unit.cell:  # long cells have their own column
            setattr(tally, name, getattr(tally, name) + number)


def added_lines(root: Path, ref: str) -> dict[str, Container[int]]:
    """Return the numbers of the lines added since a commit, by path; untracked files count as added."""
    diff = subprocess.run(["git", "-C", str(root), "diff", "-U0", "--no-color", ref, "--"], capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    changed: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in diff.split("\n"):
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else ""
        elif path and (match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)):
            opening, count = int(match.group(1)), int(match.group(2) or 1)
            changed[path].update(range(opening, opening + count))
    new = subprocess.run(["git", "-C", str(root), "ls-files", "-o", "--exclude-standard"], capture_output=True, text=True,
                         check=True).stdout  # fmt: skip
    untracked = {path: range(1, 1_000_000) for path in new.split("\n") if path}
    return {**changed, **untracked}


def tracked(root: Path, selected: list[str]) -> list[str]:
    """Return the files to read, relative to the root."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "--", *selected],
                            capture_output=True, text=True)  # fmt: skip
    if listed.returncode == 0:
        names = listed.stdout.split("\n")
    else:
        names = [os.path.relpath(Path(directory) / name, root) for top in (selected or ["."])
                 for directory, _, files in os.walk(root / top) for name in files]  # fmt: skip
        names += [name for name in selected if (root / name).is_file()]
    return sorted({name for name in names if Path(name).suffix in READERS and not SKIP.search(name)})


def area_of(path: str) -> str:
    """Return the area that a file belongs to."""
    for area in AREAS:
        if path == area or path.startswith(area + "/"):
            return area
    return "other"


HEAD = f"{'':<34}{'words':>8}{'sent.':>7}{'mean':>7}{'long%':>7}{'free':>7}{'idiom':>7}{'cells':>7}{'code':>6}"


def row(name: str, tally: Tally) -> str:
    """Return one line of the table."""
    return (
        f"{name:<34}{tally.words:>8}{tally.sentences:>7}{tally.mean:>7.1f}{tally.long_percent:>7.1f}"
        f"{tally.per_thousand('free'):>7.1f}{tally.per_thousand('idiom'):>7.1f}{tally.cells:>7}{tally.code:>6}"
    )


def missed_goals(path: Path, parts: dict[tuple[str, str], Tally]) -> Iterator[str]:
    """Yield a line for each goal that the texts miss.

    The file has tables ``[[goal]]`` with ``name``, ``paths`` (prefixes), ``kinds``, ``max`` (column to limit) and ``max_page_words``.
    """
    for goal in tomllib.loads(path.read_text(encoding="utf-8"))["goal"]:
        total, by_file = Tally(), defaultdict(Tally)
        for (name, kind), tally in parts.items():
            if kind in goal["kinds"] and any(name == top or name.startswith(top + "/") for top in goal["paths"]):
                total.add(tally)
                by_file[name].add(tally)
        if not total.words:
            yield f"{goal['name']}: no text found; check the paths of {path}"
        for column, limit in goal["max"].items():
            if (value := total.measured()[column]) > limit:
                yield f"{goal['name']}: {column} {value:.1f} > {limit:g}"
        for name, tally in by_file.items():
            if tally.words > goal.get("max_page_words", tally.words):
                yield f"{name}: {tally.words} words > {goal['max_page_words']}"


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(description="Measure how readable the project's English is.")
    parser.add_argument("paths", nargs="*", help="files and directories; default: *.md, docs, src and crates")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the checkout")
    parser.add_argument("--changed", nargs="?", const="HEAD", metavar="REF", help="only lines added since REF")
    parser.add_argument("--files", action="store_true", help="one line per file as well, worst first")
    parser.add_argument("--list", action="store_true", help="print every hit")
    parser.add_argument("--only", default="long,free,idiom,cells,code", help="kinds of hits that --list prints")
    parser.add_argument("--kinds", default="md,doc,comment,help,msg,html", help="kinds of text to read")
    parser.add_argument("--terms", type=Path, help="replaced words: a regex, a tab, the word to use instead")
    parser.add_argument("--goals", type=Path, help="limits for groups of texts, as TOML; reads every text")
    for name in ("mean", "long", "free", "idiom", "cells", "code"):
        parser.add_argument(
            f"--max-{name}", type=float, metavar="N", help=f"exit with 1 if the total of {name} is over N"
        )
    options = parser.parse_args()
    kinds, only = set(options.kinds.split(",")), set(options.only.split(","))
    changed = added_lines(options.root, options.changed) if options.changed else None
    terms = []
    if options.terms:
        for line in options.terms.read_text(encoding="utf-8").splitlines():
            old, _, new = line.partition("\t")
            if old and not old.startswith("#"):
                terms.append((re.compile(rf"\b(?:{old})\b", re.IGNORECASE), new))
    parts: dict[tuple[str, str], Tally] = defaultdict(Tally)
    selected = options.paths or [name for name in DEFAULT_PATHS if list(options.root.glob(name))]
    for name in tracked(options.root, selected):
        if changed is not None and name not in changed:
            continue
        try:
            text = (options.root / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for unit in READERS[Path(name).suffix](text):
            if unit.kind not in kinds:
                continue
            if changed is not None and not any(line in changed[name] for line in range(unit.first, unit.last + 1)):
                continue
            measure(unit, parts[name, unit.kind], terms)
            if options.list:
                shown = unit.text.replace(CODE_MARK, "`…`").replace(MATH_MARK, "$…$")
                for hit, number in hits(unit):
                    if hit in only:
                        print(f"{name}:{unit.first}: {hit} {number}: {shown[:200]}")
    total, by_area, by_kind, by_file = (
        Tally(least_words=CHANGE_WORDS if options.changed else 0),
        defaultdict(Tally),
        defaultdict(Tally),
        defaultdict(Tally),
    )
    for (name, kind), tally in parts.items():
        for one in (total, by_area[area_of(name)], by_kind[f"{Path(name).suffix[1:]} {kind}"], by_file[name]):
            one.add(tally)
    if options.files:
        print(HEAD)
        ranked = sorted(by_file.items(), key=lambda item: -(item[1].free + item[1].idiom + 3 * item[1].long))
        for name, tally in ranked:
            print(row(name if len(name) < 34 else "…" + name[-32:], tally))
        print()
    if not options.list:
        print(HEAD)
        for group in (by_area, by_kind):
            for name in sorted(group):
                print(row(name, group[name]))
            print()
    print(row("TOTAL", total), file=sys.stderr if options.list else sys.stdout)
    for term, number in total.terms.most_common():
        print(f"{number:>7}  {term}")
    over = [
        f"{name} {value:.1f} > {limit:g}"
        for name, value in total.measured().items()
        if (limit := getattr(options, f"max_{name}", None)) is not None and value > limit
    ]
    if options.goals:
        over += missed_goals(options.goals, parts)
    for line in over:
        print(f"prose_check: over the limit: {line}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `prose_check.py --list | head` ends quietly
    sys.exit(main())
