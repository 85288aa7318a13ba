"""The page of findings has one table per component, which lists each code that the component reports exactly once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "findings.md"
CONCEPT_PAGE = ROOT / "docs" / "concepts" / "report-checks.md"


def calls_in(package: str) -> Iterator[ast.Call]:
    for path in (ROOT / "src" / "venturi" / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield node


def python_codes(package: str, class_name: str) -> set[str]:
    """Return the constant first arguments of all calls of a class in a package."""
    calls = [call for call in calls_in(package) if isinstance(call.func, ast.Name) and call.func.id == class_name]
    first = [call.args[0] for call in calls if call.args]
    return {str(argument.value) for argument in first if isinstance(argument, ast.Constant)}


def lab_codes() -> set[str]:
    """Return the codes that the lab passes to its record buffer: ``.finding(host, code, …)``."""
    calls = [
        call for call in calls_in("testbed") if isinstance(call.func, ast.Attribute) and call.func.attr == "finding"
    ]
    second = [call.args[1] for call in calls if len(call.args) > 1]
    return {str(argument.value) for argument in second if isinstance(argument, ast.Constant)}


def rust_codes(crate: str, pattern: str) -> set[str]:
    paths = (ROOT / "crates" / crate / "src").rglob("*.rs")
    return {code for path in paths for code in re.findall(pattern, path.read_text(encoding="utf-8"))}


AGENT_CODES = rust_codes("agent", r'\bfinding\(\s*"([a-z-]+)"')
FIELD = r'\bcode: "([a-z-]+)"'
REPORTED = {
    "From the controller": python_codes("backend", "Finding") | python_codes("run", "Finding"),
    "From the agents": AGENT_CODES,
    # A failed preparation has the code of the agents, which the page explains below the table.
    "From the simulator": rust_codes("sim", FIELD) - AGENT_CODES,
    "From the lab": lab_codes(),
    "From the network emulator": rust_codes("emulator", FIELD),
    "From the analysis": python_codes("analysis", "FindingSummary"),
}
FEWEST = 2
SINGLE_WORDS = {code for code in REPORTED["From the analysis"] if "-" not in code}


def sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the sections of a page with the codes of their tables, in order, duplicates included."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return [
        (heading, re.findall(r"^\| `([a-z-]+)` \|", body, re.MULTILINE))
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def problems(text: str) -> list[str]:
    """Return the mistakes of a page: missing, repeated and unknown sections and codes."""
    found = sections(text)
    listed: dict[str, list[str]] = {}
    wrong = []
    for heading, codes in found:
        if heading not in REPORTED:
            wrong.append(f"unknown section {heading!r}")
        elif heading in listed:
            wrong.append(f"repeated section {heading!r}")
        listed.setdefault(heading, []).extend(codes)
    for heading, reported in REPORTED.items():
        counts = Counter(listed.get(heading, []))
        wrong += [f"{heading}: {code} is listed {n} times" for code, n in sorted(counts.items()) if n > 1]
        wrong += [f"{heading}: {code} is missing" for code in sorted(reported - set(counts))]
        for code in sorted(set(counts) - reported):
            owners = [name for name, codes in REPORTED.items() if code in codes]
            wrong.append(f"{heading}: {code} belongs to {owners or 'no component'}")
    return wrong


@pytest.mark.parametrize("section", REPORTED)
def test_the_sources_of_findings_are_parsed(section: str) -> None:
    assert len(REPORTED[section]) >= FEWEST


def test_the_page_lists_each_code_once_in_the_table_of_its_component() -> None:
    assert problems(PAGE.read_text(encoding="utf-8")) == []


def test_the_check_detects_duplicates_and_wrong_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `cost-unknown` |"))
    assert problems(text.replace(row, f"{row}\n{row}")) == ["From the simulator: cost-unknown is listed 2 times"]
    assert problems(f"{text}\n## From the lab\n") == ["repeated section 'From the lab'"]
    assert problems(f"{text}\n## From the wire\n") == ["unknown section 'From the wire'"]
    moved = text.replace(f"{row}\n", "").replace("| `no-data` |", f"{row}\n| `no-data` |")
    assert problems(moved) == [
        "From the simulator: cost-unknown is missing",
        "From the analysis: cost-unknown belongs to ['From the simulator']",
    ]


def test_the_concept_page_explains_only_findings_of_the_analysis() -> None:
    """All tables of codes on the page together explain each finding of the analysis."""
    rows = re.findall(r"^\| ((?:`[a-z-]+`[, ]*)+) \|", CONCEPT_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    explained = {
        code for row in rows for code in re.findall("`([a-z-]+)`", row) if "-" in code or code in SINGLE_WORDS
    }
    assert explained == REPORTED["From the analysis"]
