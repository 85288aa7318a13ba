"""Check the reports of the gallery in Chromium, in light and dark.

    .venv/bin/python scripts/check_reports.py docs/_build/gallery [--browser PROGRAM]

- The first 900 pixels of a window of 1,280 × 900 have the headline, with a rate or the reason why there is none, and the
  start and two thirds of the main figure.
- No page is wider than a window of 400, 800 or 1,280 pixels, with all sections open.
- axe-core finds no serious or critical violation, with all sections open.
- The page writes no message to the console, and makes no request.
- A page has at most 1 MB; that of a million transfers 5 MB.

Prints one line for each problem and exits with 1 if there is one. It needs Chromium (Debian: `apt-get install chromium`)
and the packages of `pip install playwright axe-playwright-python`; without them, it prints a note and exits with 0.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTHS_PX = (400, 800, 1280)
HEIGHT_PX = 900
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MAX_BYTES = 1_000_000
MAX_BYTES_MILLION = 5_000_000
MILLION = "million"
"""Name of the report of a million transfers."""
LIMITS = {"serious", "critical"}
"""Impacts of violations that are problems."""
_SHAPE = """() => {
  const title = document.querySelector("h1"), figure = document.querySelector("figure svg");
  const box = figure && figure.getBoundingClientRect();
  return { title: title ? title.innerText : "", titleEnd: title ? title.getBoundingClientRect().bottom : Infinity,
           figureTop: box ? box.top : null, figureHeight: box ? box.height : 0 };
}"""


def problems(page: Path, browser: Any, axe: str) -> Iterator[str]:  # noqa: ANN401 - of an optional package
    """Return one line for each problem of a page."""
    size, limit = page.stat().st_size, MAX_BYTES_MILLION if page.stem == MILLION else MAX_BYTES
    if size > limit:
        yield f"{size} bytes, more than {limit}"
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme, viewport={"width": WIDTHS_PX[-1], "height": HEIGHT_PX})
        messages: list[str] = []
        requests: list[str] = []
        tab.on("console", lambda message, found=messages: found.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error, found=messages: found.append(f"error: {error}"))
        tab.on("request", lambda request, found=requests: found.append(request.url))
        tab.goto(page.resolve().as_uri())
        yield from (f"{scheme}: {problem}" for problem in first_screen(tab.evaluate(_SHAPE)))
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        for width in WIDTHS_PX:
            tab.set_viewport_size({"width": width, "height": HEIGHT_PX})
            content = tab.evaluate("document.documentElement.scrollWidth")
            if content > width:
                yield f"{scheme}: {content} px wide in a window of {width} px"
        yield from (f"{scheme}: console: {message}" for message in messages)
        yield from (f"{scheme}: request: {url}" for url in requests[1:])  # the first one is the page
        tab.evaluate(axe)
        for one in tab.evaluate("axe.run()")["violations"]:
            if one["impact"] in LIMITS:
                yield f"{scheme}: axe {one['id']}, {len(one['nodes'])} times; first: {one['nodes'][0]['html'][:160]}"
        tab.close()


def first_screen(shape: dict[str, Any]) -> Iterator[str]:
    """Return the problems of the first screen, from the positions in the window in px."""
    if not any(letter.isdigit() for letter in shape["title"]):
        yield f"the headline has no number: {shape['title']!r}"
    if shape["titleEnd"] > HEIGHT_PX:
        yield f"the headline ends at {shape['titleEnd']:.0f} px"
    if shape["figureTop"] is None:
        yield "no figure"
    elif shape["figureTop"] + min(shape["figureHeight"] * 2 / 3, HEIGHT_PX / 2) > HEIGHT_PX:
        yield f"the figure starts at {shape['figureTop']:.0f} px and is {shape['figureHeight']:.0f} px high"


def main() -> int:
    """Print the problems of the reports in a directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("reports", type=Path, help="directory with reports, such as docs/_build/gallery")
    parser.add_argument("--browser", default="", help=f"program; default: the first of {', '.join(BROWSERS)}")
    options = parser.parse_args()
    pages = sorted(options.reports.glob("*.html"))
    if not pages:
        sys.exit(f"check-reports: {options.reports}: expected reports, found none; run `make docs`")
    program = (
        shutil.which(options.browser) if options.browser else next(filter(None, map(shutil.which, BROWSERS)), None)
    )
    lacking = [name for name in ("playwright", "axe_playwright_python") if importlib.util.find_spec(name) is None]
    if not program or lacking:
        print(
            f"check-reports: not installed: {', '.join(lacking) or 'Chromium'}, so the reports are not checked; run"
            " `apt-get install chromium` and `pip install playwright axe-playwright-python`", file=sys.stderr
        )  # fmt: skip
        return 0
    from axe_playwright_python import base
    from playwright.sync_api import sync_playwright

    axe = Path(base.__file__).with_name("axe.min.js")
    found = 0
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has no sandbox for root
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        for page in pages:
            for problem in problems(page, browser, axe.read_text(encoding="utf-8")):
                print(f"{page.name}: {problem}", flush=True)
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
