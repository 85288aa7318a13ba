"""The tutorial works as pasted: its files are written and its commands typed, in order, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from venturi.scenario import load_scenario

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 300


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page as pairs of language and text."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", sorted((DOCS / "tutorial").glob("*.md")), ids=lambda page: page.stem)
def test_the_tutorial_works_as_pasted(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "VENTURI_SCRATCH": str(tmp_path / "scratch"),
    }
    commands = 0
    for language, text in blocks(page):
        named = re.match(r"# file: (\S+)\n", text)
        if named:
            (tmp_path / named.group(1)).write_text(text, encoding="utf-8")
        elif language == "sh":
            for line in text.splitlines():
                done = subprocess.run(
                    ["bash", "-c", line],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=_TIMEOUT_S,
                )
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
                commands += 1
    assert commands > 0


def test_every_scenario_in_the_documents_is_valid(tmp_path: Path) -> None:
    """Each TOML block that begins with the version is loaded as it stands."""
    found = 0
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for language, text in blocks(page):
            if language == "toml" and re.search(r"^venturi = 1", text, re.MULTILINE) and "include" not in text:
                path = tmp_path / f"{found}.toml"
                path.write_text(text, encoding="utf-8")
                load_scenario(path)
                found += 1
    assert found >= 2


def test_every_link_in_the_documents_leads_to_a_file() -> None:
    pages = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        if "_build" not in page.parts
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken
