"""The page of findings lists every code that there is, and none that there is not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "findings.md"


def made_in_python(folder: str, name: str) -> set[str]:
    """Return the first arguments of all calls of ``name`` in the sources of a folder."""
    calls = (
        node
        for path in (ROOT / "src" / "venturi" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    )
    first = [call.args[0] for call in calls if call.args]
    return {str(argument.value) for argument in first if isinstance(argument, ast.Constant)}


def made_by_the_lab() -> set[str]:
    """Return the codes that the lab hands to its journal: ``journal.finding(host, code, …)``."""
    calls = (
        node
        for path in (ROOT / "src" / "venturi" / "testbed").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "finding"
    )
    codes = [call.args[1] for call in calls if len(call.args) > 1]
    return {str(argument.value) for argument in codes if isinstance(argument, ast.Constant)}


def sources_of(crate: str) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "crates" / crate / "src").rglob("*.rs"))


def made_by_agents() -> set[str]:
    return set(re.findall(r'\bfinding\(\s*"([a-z-]+)"', sources_of("agent")))


def made_by_the_network() -> set[str]:
    return set(re.findall(r'\bcode: "([a-z-]+)"', sources_of("wire")))


def made_by_the_simulator() -> set[str]:
    """Return the codes of its own; what a preparation lacks it says as agents do."""
    return set(re.findall(r'\bcode: "([a-z-]+)"', sources_of("sim"))) - made_by_agents()


def listed(section: str) -> set[str]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("section", "made", "fewest"),
    [
        ("From the controller", made_in_python("backend", "Finding") | made_in_python("run", "Finding"), 4),
        ("From the agents", made_by_agents(), 4),
        ("From the simulator", made_by_the_simulator(), 2),
        ("From the lab", made_by_the_lab(), 3),
        ("From the network", made_by_the_network(), 4),
        ("From the analysis", made_in_python("analysis", "Notice"), 4),
    ],
)
def test_the_page_lists_the_codes_that_the_sources_make(section: str, made: set[str], fewest: int) -> None:
    assert len(made) >= fewest, "the sources are read wrongly"
    assert listed(section) == made


def test_the_concept_page_explains_only_findings_that_exist() -> None:
    text = (ROOT / "docs" / "concepts" / "analysis.md").read_text(encoding="utf-8")
    table = text.partition("## What makes numbers doubtful")[2].partition("\n## ")[0]
    explained = {
        code for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for code in re.findall("`([a-z-]+)`", row)
    }
    assert explained == made_in_python("analysis", "Notice")
