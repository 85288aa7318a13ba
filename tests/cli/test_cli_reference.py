"""The reference of the command line is generated from the commands."""

from pathlib import Path

from venturi.cli.reference import cli_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_published_page_matches_the_help_of_the_commands():
    assert PAGE.read_text(encoding="utf-8") == cli_reference(), "run: make reference"
