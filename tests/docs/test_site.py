"""The first page lists all pages, and the checks of `make docs` find wrong links, remote files and wide pages."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from dockit import DOCS, ROOT

from testkit import needs_programs

INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^```\{include\} (\S+)\n:start-after: (.*)\n:end-before: (.*)\n", re.MULTILINE)
LISTED = re.compile(r"^- \[[^\]]+\]\(([^)]+)\.md\): (.+)\.$", re.MULTILINE)

PAGE = '<!doctype html><html><head><title>A page</title></head><body><div role="main">{}</div></body></html>'
GOOD = (
    '<a href="b.html#there">one</a> <a href="#here">two</a> <a href="data.csv">three</a> <a href="sub/">four</a>'
    ' <a href="https://example.org/x">another server</a> <a href="mailto:alice@example.org">mail</a>'
    ' <p id="here">text</p> <img src="data.csv" alt="">'
)
WRONG = {
    '<a href="missing.html">text</a>': "missing.html: no such file in the site",
    '<a href="b.html#nowhere">text</a>': "b.html#nowhere: no element with this identifier",
    '<a href="#nowhere">text</a>': "#nowhere: no element with this identifier",
    '<a href="../outside.html">text</a>': "../outside.html: this path is outside of the site",
    '<a href="file:///tmp/x">text</a>': "file:///tmp/x: this path exists only on one machine",
    '<img src="missing.png" alt="">': "missing.png: no such file in the site",
    '<script src="https://cdn.example.org/x.js"></script>': "the page loads this from another server",
    '<script src="//cdn.example.org/x.js"></script>': "the page loads this from another server",
    '<link rel="stylesheet" href="https://cdn.example.org/x.css">': "the page loads this from another server",
    '<style>p { background: url("https://cdn.example.org/x.png") }</style>': "the page loads this from another server",
    '<p style="background: url(//cdn.example.org/x.png)">text</p>': "the page loads this from another server",
}


def make_site(directory, body):
    """Write a site whose first page has a body."""
    (directory / "sub").mkdir()
    (directory / "index.html").write_text(PAGE.format(body), encoding="utf-8")
    (directory / "b.html").write_text(PAGE.format('<h2 id="there">Title</h2>'), encoding="utf-8")
    (directory / "sub" / "index.html").write_text(PAGE.format('<a href="../b.html">text</a>'), encoding="utf-8")
    (directory / "data.csv").write_text("a,b\n", encoding="utf-8")
    return directory


def check(script, site, *words):
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / script, site, *words], capture_output=True, text=True, check=False
    )


def test_the_check_of_links_accepts_files_identifiers_and_links_to_other_servers(tmp_path):
    done = check("check_site.py", make_site(tmp_path, GOOD))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("body", WRONG)
def test_the_check_of_links_finds_wrong_links_and_remote_files(tmp_path, body):
    done = check("check_site.py", make_site(tmp_path, body))
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("index.html: ")
    assert WRONG[body] in line


def test_the_check_of_links_finds_remote_fonts_in_styles(tmp_path):
    site = make_site(tmp_path, GOOD)
    (site / "theme.css").write_text('@import "https://fonts.example.org/x.css";', encoding="utf-8")
    done = check("check_site.py", site)
    assert done.returncode == 1
    assert "theme.css: https://fonts.example.org/x.css: " in done.stdout


def test_the_check_of_links_rejects_a_directory_without_pages(tmp_path):
    done = check("check_site.py", tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}: expected a built site, found no pages" in done.stderr


@needs_programs("chromium")
def test_the_check_of_widths_finds_pages_that_are_too_wide(tmp_path):
    wide = '<div style="width: 900px">text</div>'
    boxes = {
        "wide": wide,
        "scrolls": f'<div style="overflow-x: auto">{wide}</div>',
        "narrow": "text",
    }
    for name, body in boxes.items():
        (tmp_path / f"{name}.html").write_text(f"<style>body {{ margin: 0 }}</style>{PAGE.format(body)}")
    # A box around the whole text must not scroll either.
    (tmp_path / "around.html").write_text(f"<style>body {{ margin: 0; overflow-x: auto }}</style>{PAGE.format(wide)}")
    done = check("check_widths.py", tmp_path)
    assert done.returncode == 1, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{name}.html: 900 px wide in a window of {width} px" for name in ("around", "wide") for width in (400, 800)
    ]


def test_the_check_of_widths_rejects_a_page_that_does_not_exist(tmp_path):
    done = check("check_widths.py", make_site(tmp_path, GOOD), "--page", "missing.html", "--browser", "false")
    assert done.returncode == 1
    assert f"{tmp_path}: expected pages, found no missing.html" in done.stderr


def test_the_check_of_widths_names_a_browser_that_does_not_start(tmp_path):
    done = check("check_widths.py", make_site(tmp_path, GOOD), "--browser", "false")
    assert done.returncode == 1
    assert "false: ended with code 1 before it measured the pages; start it by hand: false " in done.stderr


def test_the_first_page_describes_each_page_of_its_tables_of_contents_in_the_same_order():
    named = [line for block in TOCTREE.findall(INDEX) for line in block.split("\n") if line and line[0] != ":"]
    assert len(named) > 60
    assert [path for path, _ in LISTED.findall(INDEX)] == named


def test_the_first_page_has_short_descriptions():
    long = {path: len(text.split()) for path, text in LISTED.findall(INDEX) if len(text.split()) > 14}
    assert long == {}


def test_the_first_page_shares_its_text_with_the_readme():
    """Each included part exists once, between its two markers."""
    found = INCLUDE.findall(INDEX)
    assert [file for file, *_ in found].count("../README.md") >= 3
    for file, start, end in found:
        text = (DOCS / file).read_text(encoding="utf-8")
        assert (text.count(start), text.count(end)) == (1, 1), (file, start, end)
        assert text.partition(start)[2].partition(end)[0].strip(), (file, start)


def test_the_table_of_studies_leaves_conditions_to_the_sections():
    text = (DOCS / "studies" / "index.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    sections = re.findall(r"^## (.+)\n\n.+\n\n(Backend: .+)$", text, re.MULTILINE)
    assert len(rows) - 2 == len(sections) == text.count("\n## ")
    assert all(row.count("|") == 9 and "Xeon" not in row for row in rows)
    for title, conditions in sections:
        assert re.search(r"; date: \d{4}-\d\d-\d\d(; machine: .+)?\.$", conditions), title
        assert ("; machine: " in conditions) == (not title.endswith(", simulated")), title


@needs_programs("chromium")
def test_the_check_of_reports_finds_wide_pages_requests_errors_and_a_missing_figure(tmp_path):
    pytest.importorskip("playwright", reason="not installed: playwright")
    pytest.importorskip("axe_playwright_python", reason="not installed: axe-playwright-python")
    start = (
        '<!doctype html><html lang="en"><head><title>A page</title></head><body style="margin: 0"><main><h1>{}</h1>'
    )
    figure = '<figure><svg role="img" aria-label="rates" viewBox="0 0 10 5" width="300"></svg></figure>'
    bodies = {
        "good": start.format("5 MB/s") + figure,
        "wide": start.format("5 MB/s") + figure + '<div style="width: 900px">text</div>',
        "loads": start.format("5 MB/s") + figure + '<img alt="a" src="missing.png">',
        "raises": start.format("5 MB/s") + figure + "<script>missing()</script>",
        "empty": start.format("Nothing"),
        "pale": start.format("5 MB/s") + figure + '<p style="color: #ccc; background: #fff">text</p>',
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.html").write_text(f"{body}</main></body></html>", encoding="utf-8")
    done = check("check_reports.py", tmp_path)
    assert done.returncode == 1, done.stderr
    for expected in (
        "wide.html: light: 900 px wide in a window of 400 px",
        "loads.html: dark: request: ",
        "raises.html: light: console: error: missing is not defined",
        "empty.html: light: no figure",
        "empty.html: light: the headline has no number",
        "pale.html: dark: axe color-contrast",
    ):
        assert expected in done.stdout
    assert "good.html" not in done.stdout
