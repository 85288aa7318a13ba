"""CONTRIBUTING.md answers ten questions "where do I change …?", and all paths in it and in ARCHITECTURE.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "ARCHITECTURE.md")
ADVICE = (
    "a mover",
    "a server",
    "a counter",
    "a workload",
    "a curve family",
    "a finding",
    "a report section",
    "the concurrency rule of a copy",
    "the resume of a copy",
    "the queue of the emulator",
)
PLACEHOLDERS = re.compile(r"NAME|KIND|VERSION")
ROOTS = ("bench", "crates", "docs", "fuzz", "scripts", "src", "tests")
PATH = re.compile(rf"`((?:{'|'.join(ROOTS)})/[^`\s]*)`")


def paths_in(text: str) -> list[str]:
    return PATH.findall(text)


def table() -> dict[str, list[str]]:
    """Return the paths of each row of the table, by subject."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where do I change …?\n")[2].partition("\n#")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return {cells[0]: paths_in(" ".join(cells[1:])) for cells in rows[2:]}


def test_the_table_has_ten_rows_of_advice() -> None:
    assert tuple(table()) == ADVICE


@pytest.mark.parametrize("advice", ADVICE)
def test_each_row_of_advice_names_files(advice: str) -> None:
    paths = table()[advice]
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_all_paths_on_the_page_exist(page: str) -> None:
    """A path can contain placeholders (``NAME``) or a wildcard, which must match files."""
    paths = paths_in((ROOT / page).read_text(encoding="utf-8"))
    assert paths
    missing = [path for path in paths if not any(ROOT.glob(PLACEHOLDERS.sub("*", path).rstrip("/")))]
    assert missing == []
