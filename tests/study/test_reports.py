"""The data of the reproduced reports agree with the bibliography."""

import re
from pathlib import Path

import pytest

from venturi.study import reports, studies
from venturi.study.reports import BIBLIOGRAPHY

PAGE = Path(__file__).parents[2] / BIBLIOGRAPHY


def entries() -> dict[str, str]:
    """Return the text of each entry of the bibliography by its anchor, without line breaks and emphasis."""
    parts = re.split(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    names, texts = parts[1::2], parts[2::2]
    anchors = (re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names)
    return {
        anchor: " ".join(text.partition("Used by:")[0].replace("*", "").split())
        for anchor, text in zip(anchors, texts, strict=True)
    }


def test_every_report_of_the_bibliography_has_an_entry_in_reports_toml() -> None:
    assert {anchor for anchor in entries() if anchor.startswith("report-")} == {r.anchor for r in reports().values()}


@pytest.mark.parametrize("report", reports().values(), ids=reports())
def test_report_agrees_with_its_entry_in_the_bibliography(report) -> None:
    text = entries()[report.anchor]
    assert report.anchor == f"report-{report.id}"
    assert text.startswith(", ".join(report.authors))
    for value in (report.title, *report.publication.split(", ")):
        assert value in text
    if report.year is None:
        assert "no year" in text or re.search(r"no publication[^.]* no year", text)
    else:
        assert f"{report.year}." in text
    assert bool(report.authors) == ("no authors" not in text)


def test_every_study_has_its_report() -> None:
    for study in studies().values():
        assert study.report.id == study.document
        assert study.report.short_citation() and study.report.full_reference().endswith(".")
