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


def made_in_rust() -> set[str]:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "crates" / "agent" / "src").rglob("*.rs"))
    return set(re.findall(r'\bfinding\(\s*"([a-z-]+)"', sources))


def listed(section: str) -> set[str]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("section", "made"),
    [
        ("From the controller", made_in_python("backend", "Finding")),
        ("From the agents", made_in_rust()),
        ("From the analysis", made_in_python("analysis", "Notice")),
    ],
)
def test_the_page_lists_the_codes_that_the_sources_make(section: str, made: set[str]) -> None:
    assert len(made) >= 4, "the sources are read wrongly"
    assert listed(section) == made


def test_the_concept_page_explains_only_findings_that_exist() -> None:
    text = (ROOT / "docs" / "concepts" / "analysis.md").read_text(encoding="utf-8")
    table = text.partition("## What makes numbers doubtful")[2].partition("\n## ")[0]
    explained = {
        code for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for code in re.findall("`([a-z-]+)`", row)
    }
    assert explained == made_in_python("analysis", "Notice")
