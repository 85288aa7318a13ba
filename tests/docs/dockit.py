"""Reads pages of the documentation: their blocks, files and commands.

HTML comments, which readers do not see, control the tests of a page. ``<!-- testsetup`` has commands that prepare
input. ``<!-- test: parse only -->`` precedes a block whose commands are not run. ``<!-- test: needs PROGRAM... -->``
applies to the page.
"""

import os
import re
import shlex
import textwrap
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

PROGRAMS = frozenset((
    "venturi", "cat", "cd", "cmp", "cp", "diff", "echo", "export", "find", "grep", "head", "kill", "ls", "ln", "mkdir", "mv", "openssl",
    "printf", "python", "pwd", "rm", "seq", "sha256sum", "sleep", "sort", "stat", "tail", "test", "touch", "tree", "true", "truncate",
    "wait", "wc",
))  # fmt: skip
"""Programs that a tested command can call, in addition to those that its page needs."""

OWN_PATHS = ("/dev/", "/proc/", "/tmp/")
"""Absolute paths that a tested command can name."""

_PART = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$|<!--(?P<comment>.*?)-->",
    re.MULTILINE | re.DOTALL,
)
_HOST = re.compile(r"\.example\b|\bexample\.(?:com|net|org)\b")
_LONG = re.compile(r"\b(?:minutes?|hours?|days?)\b")
_EXIT_CODE = re.compile(r"\bexit code (\d+)")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_OPERATOR = re.compile(r"[|&;<>()]+")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``setup`` is the language of a comment that prepares input."""

    language: str
    text: str
    parse_only: bool = False

    @property
    def file(self):
        """Name of the file that the block shows, or None."""
        named = re.match(r"# file: (\S+)\n", self.text)
        return named.group(1) if named else None


@dataclass(frozen=True)
class Command:
    """One command line of a page.

    ``only_parsed`` is the reason why it is not run; it is empty if the command is run.
    """

    text: str
    only_parsed: str = ""
    exit_code: int = 0

    def __str__(self):
        return self.text


@dataclass(frozen=True)
class Page:
    """A page with its blocks in order."""

    path: Path
    blocks: list[Block]
    needs: list[str] = field(default_factory=list)
    prose: str = ""

    @property
    def id(self):
        """Name of the page in test names."""
        return str(self.path.relative_to(ROOT).with_suffix("")).removeprefix("docs/")

    @property
    def files(self):
        """Text of each file that the page shows, by name."""
        return {block.file: block.text for block in self.blocks if block.file}

    def commands(self, *, root=None):
        """Return the commands for the reader and those that prepare input, in order.

        ``root``: whether commands that need root can run; default: whether this process is root.
        """
        can_lab = os.geteuid() == 0 if root is None else root
        found = []
        for block in self.blocks:
            if block.file:
                continue
            if block.language == "setup":
                found += [Command(line) for line in _lines(block.text)]
            elif block.language == "sh":
                found += [
                    self._command(line, can_lab=can_lab, parse_only=block.parse_only) for line in _lines(block.text)
                ]
            elif block.language in ("", "text", "console"):
                shown = [line.removeprefix("$ ") for line in _lines(block.text) if re.match(r"\$ |venturi ", line)]
                found += [Command(without_comment(line)[0], "shown in a transcript") for line in shown]
        return [command for command in found if command.text]

    def inline_commands(self):
        """Return the code spans of the prose that are commands of Venturi, without ellipses."""
        spans = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", self.prose, re.DOTALL)
        commands = (" ".join(text.split()) for _, text in spans)
        return [re.sub(r"…|\.\.\.", "", command) for command in commands if command.startswith("venturi ")]

    def _command(self, line, *, can_lab, parse_only):
        text, comment = without_comment(line)
        code = _EXIT_CODE.search(comment)
        reason = "marked in the page" if parse_only else self._why_not(text, comment, can_lab=can_lab)
        return Command(text, reason, int(code.group(1)) if code else 0)

    def _why_not(self, text, comment, *, can_lab):
        """Return the reason why a command is not run, or an empty string."""
        if _HOST.search(text):
            return "names a host that does not exist"
        if _LONG.search(comment):
            return "takes minutes"
        for words in simple_commands(text):
            if words[0] not in PROGRAMS and words[0] not in self.needs:
                return f"calls {words[0]}"
            if words[:2] == ["venturi", "serve"] and words[-1] != "&":
                return "serves until it is stopped"
            if not can_lab and (words[0] == "ip" or self._needs_lab(words)):
                return "needs root"
        for word in _words(text):
            if _PLACEHOLDER.fullmatch(word):
                return f"has the placeholder {word}"
            if any(_foreign(path) for path in re.split("[=,]", word)):
                return f"names the path {word}"
        return ""

    def _needs_lab(self, words):
        """Return whether a command of Venturi creates a lab or enters namespaces, from its words or from a file of the page."""
        if words[:1] != ["venturi"] or "sim" in words or "plan" in words:
            return False
        if words[1:2] == ["lab"] or "lab" in words[2:]:
            return True
        documents = [
            tomllib.loads(self.files[word]) for word in words if word.endswith(".toml") and word in self.files
        ]
        connections = [
            host.get("connect", []) for document in documents for host in document.values() if isinstance(host, dict)
        ]
        return any(connect[:1] == ["ip"] for connect in connections) or any(
            {"link", "router", "service"} & document.get("testbed", {}).keys() for document in documents
        )


@cache
def read_page(path):
    """Read a page."""
    text = path.read_text(encoding="utf-8")
    blocks, needs, parse_only = [], [], False
    for part in _PART.finditer(text):
        comment = part.group("comment")
        if comment is None:
            blocks.append(Block(part.group("language"), textwrap.dedent(part.group("text")), parse_only))
            parse_only = False
        elif comment.startswith(" testsetup\n"):
            blocks.append(Block("setup", comment.partition("\n")[2]))
        elif comment.strip() == "test: parse only":
            parse_only = True
        elif comment.strip().startswith("test: needs "):
            needs += comment.split()[2:]
    return Page(path, blocks, needs, _PART.sub("", text))


def pages_with_commands():
    """Return the README, the tutorial and the how-to pages."""
    paths = [ROOT / "README.md", *sorted((DOCS / "tutorial").glob("*.md")), *sorted((DOCS / "howto").glob("*.md"))]
    return [read_page(path) for path in paths]


def all_pages():
    """Return all pages of the project except generated HTML."""
    paths = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    return [read_page(path) for path in sorted(paths) if "_build" not in path.parts]


def without_comment(line):
    """Return a command line without its comment, and the comment."""
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index].rstrip(), line[index:]
    return line.rstrip(), ""


def simple_commands(text):
    """Return the words of each simple command of a command line, without redirections and assignments.

    The last word of a background command is ``&``.
    """
    inner = _SUBSTITUTION.findall(text)
    commands, words, redirected = [], [], False
    for token in _tokens(_SUBSTITUTION.sub("substituted", text)):
        if not _OPERATOR.fullmatch(token):
            if not redirected:
                words.append(token)
            redirected = False
        elif "<" in token or ">" in token:
            if words and words[-1] in ("1", "2"):
                words.pop()
            redirected = True
        else:
            commands.append([*words, "&"] if token == "&" and words else words)
            words = []
    commands.append(words)
    found = [command for words in commands if (command := _without_assignments(words))]
    return found + [command for text in inner for command in simple_commands(text)]


def _without_assignments(words):
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        words = words[1:]
    return words


def _words(text):
    return [token for token in _tokens(text) if not _OPERATOR.fullmatch(token)]


def _tokens(text):
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _foreign(path):
    """Return whether a word is a path of this machine that a test must not touch."""
    path = path.removeprefix("file://")
    return path.startswith("~") or (path.startswith("/") and not path.startswith(OWN_PATHS))


def _lines(text):
    """Return the command lines of a block, with continued lines joined."""
    return [line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]
