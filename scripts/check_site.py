"""Check the links of the built documentation, and that its pages load nothing from another server.

    .venv/bin/python scripts/check_site.py docs/_build

- Each link of a page to the site leads to a file, and its fragment to an element of that file.
- No page and no style of the site loads a script, a style, a font or a picture from another server.

Prints one line for each problem and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

NOT_PAGES = ("_downloads", "_static", "_sources")
"""Directories of a site with files that are not pages of the documentation."""
_LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "image": ("href",),
    "use": ("href",),
}
"""Attributes with addresses that a browser loads when it opens a page, by element."""
_LOADED_LINKS = frozenset(
    ("stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch")
)
"""Values of ``rel`` of a ``<link>`` whose address a browser loads."""
_STYLE_ADDRESS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


class PageContent(HTMLParser):
    """The identifiers and addresses of an HTML page.

    ``links`` are the addresses of ``<a>``. ``loaded`` are the addresses that a browser loads when it opens the page.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the identifiers and addresses of an element."""
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        names = _LOADED.get(tag, ())
        if tag == "link" and _LOADED_LINKS & set(values.get("rel", "").split()):
            names = ("href",)
        for name in names:
            several = values.get(name, "").split(",") if name == "srcset" else [values.get(name, "")]
            self.loaded += [address.split()[0] for address in several if address.strip()]
        self.loaded += style_addresses(values.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Record the addresses in a ``<style>``."""
        if self._in_style:
            self.loaded += style_addresses(data)

    def handle_endtag(self, tag: str) -> None:
        """End a ``<style>``."""
        self._in_style = self._in_style and tag != "style"


def style_addresses(text: str) -> list[str]:
    """Return the addresses that a style loads."""
    return [first or second for first, second in _STYLE_ADDRESS.findall(text)]


def pages(site: Path) -> list[Path]:
    """Return the pages of a site in order, without downloads and parts of the theme."""
    return [
        path for path in sorted(site.rglob("*.html")) if not path.relative_to(site).parts[0].startswith(NOT_PAGES)
    ]


def problems(site: Path) -> Iterator[str]:
    """Return one line for each wrong link and each address of another server.

    Raises
    ------
    ValueError
        If the directory has no pages.
    """
    site = site.resolve()
    if not pages(site):
        raise ValueError(f"{site}: expected a built site, found no pages; run `make docs`")
    for page in pages(site):
        content = read_page(page)
        wrong = [(address, wrong_link(site, page, address)) for address in content.links]
        wrong += [(address, is_remote(address) or wrong_link(site, page, address)) for address in content.loaded]
        yield from (f"{page.relative_to(site)}: {address}: {problem}" for address, problem in wrong if problem)
    for style in sorted(site.rglob("*.css")):
        for address in style_addresses(style.read_text(encoding="utf-8")):
            if problem := is_remote(address):
                yield f"{style.relative_to(site)}: {address}: {problem}"


@cache
def read_page(path: Path) -> PageContent:
    """Return the content of a page."""
    return PageContent(path.read_text(encoding="utf-8"))


def is_remote(address: str) -> str:
    """Return a problem if an address that a page loads is on another server, otherwise an empty string."""
    return "the page loads this from another server" if urlsplit(address).netloc else ""


def wrong_link(site: Path, page: Path, address: str) -> str:
    """Return the problem of a link of a page, or an empty string. Links to other servers have none."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return "this path exists only on one machine" if parts.scheme == "file" else ""
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site):
        return "this path is outside of the site"
    if not target.is_file():
        return "no such file in the site"
    fragment = unquote(parts.fragment)
    if fragment and target.suffix == ".html" and fragment not in read_page(target).ids:
        return "no element with this identifier"
    return ""


def main() -> int:
    """Print the problems of a site."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("site", type=Path, help="directory with the built site, such as docs/_build")
    site = parser.parse_args().site
    try:
        found = list(problems(site))
    except (OSError, ValueError) as error:
        sys.exit(f"check-site: {error}")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
