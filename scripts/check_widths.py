"""Check that no page of the built documentation is wider than the window of a browser.

    .venv/bin/python scripts/check_widths.py docs/_build [--browser PROGRAM] [--page PATH]...

Serves the site on the loopback interface and opens each page in headless Chromium, in frames of 400, 800 and 1,280
pixels. A wide table, code block or formula must scroll in its own box. Prints one line for each page that is wider than
its frame and exits with 1 if there is one. Without a browser, prints a note and exits with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from check_site import pages

WIDTHS_PX = (400, 800, 1280)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 600
"""Time to measure all pages; a page takes about 0.2 s on an idle core."""
_SCRIPT = """<!doctype html><meta charset="utf-8"><title>widths</title><link rel="icon" href="data:,"><body><script>
(async () => {
  const found = [];
  for (const page of PAGES) {
    const frame = document.createElement("iframe");
    frame.style = "height: 900px; border: 0";
    frame.src = page;
    const loaded = new Promise(done => { frame.onload = done; });
    document.body.append(frame);
    await loaded;
    const root = frame.contentDocument.documentElement;
    for (const width of WIDTHS) {
      frame.style.width = `${width}px`;
      // The page, or a box around its text, scrolls sideways or hides a part of the text.
      let hidden = root.scrollWidth - root.clientWidth;
      for (let box = root.querySelector("[role=main]"); box; box = box.parentElement)
        if (frame.contentWindow.getComputedStyle(box).overflowX != "visible")
          hidden = Math.max(hidden, box.scrollWidth - box.clientWidth);
      found.push({ page, width, content: width + hidden });
    }
    frame.remove();
  }
  await fetch("/measured", { method: "POST", body: JSON.stringify(found) });
})();
</script>"""


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves a site and the page that measures it, and receives the measurements."""

    def __init__(
        self, *words: object, script: str, measured: SimpleQueue[list[dict[str, Any]]], directory: str
    ) -> None:
        self.script, self.measured = script, measured
        super().__init__(*words, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Send the measuring page or a file."""
        if self.path != "/measure":
            super().do_GET()
            return
        body = self.script.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Receive the measurements."""
        self.measured.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class SiteServer(ThreadingHTTPServer):
    """The server of a site."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that the browser closed when it ended."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def measure(site: Path, browser: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return page, window width and content width in px for each page and width.

    Raises
    ------
    ValueError
        If a page does not exist, or if the browser ends or measures nothing within the time.
    """
    missing = [name for name in names if not (site / name).is_file()]
    if missing or not names:
        raise ValueError(f"{site}: expected pages, found no {', '.join(missing) or 'page'}; run `make docs`")
    script = _SCRIPT.replace("PAGES", json.dumps(list(names)), 1).replace("WIDTHS", json.dumps(WIDTHS_PX), 1)
    measured: SimpleQueue[list[dict[str, Any]]] = SimpleQueue()
    handler = partial(SiteHandler, script=script, measured=measured, directory=str(site))
    with SiteServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory() as profile:
        Thread(target=server.serve_forever, daemon=True).start()
        command = [browser, "--headless=new", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has no sandbox for root
        command.append(f"http://127.0.0.1:{server.server_port}/measure")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return wait_for(measured, process)
        except ValueError as error:
            raise ValueError(f"{browser}: {error}; start it by hand: {' '.join(command)}") from None
        finally:
            process.terminate()
            process.wait(30)
            server.shutdown()


def wait_for(measured: SimpleQueue[list[dict[str, Any]]], process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Return the measurements of a browser.

    Raises
    ------
    ValueError
        If the browser ends or measures nothing within the time.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            return measured.get(timeout=1)
        except Empty:
            if process.poll() is not None:
                raise ValueError(f"ended with code {process.returncode} before it measured the pages") from None
    raise ValueError(f"measured no page within {TIMEOUT_S} s")


def main() -> int:
    """Print the pages that are wider than a window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("site", type=Path, help="directory with the built site, such as docs/_build")
    parser.add_argument("--browser", default="", help=f"program; default: the first of {', '.join(BROWSERS)}")
    parser.add_argument("--page", action="append", default=[], help="path of a page in the site; default: all pages")
    options = parser.parse_args()
    browser = options.browser or next(filter(shutil.which, BROWSERS), "")
    if not browser:
        print("check-widths: found no Chromium, so the widths of the pages are not checked", file=sys.stderr)
        return 0
    site = options.site.resolve()
    names = options.page or [path.relative_to(site).as_posix() for path in pages(site)]
    try:
        found = measure(site, browser, names)
    except (OSError, ValueError) as error:
        sys.exit(f"check-widths: {error}")
    wide = [one for one in found if one["content"] > one["width"]]
    for one in wide:
        print(f"{one['page']}: {one['content']} px wide in a window of {one['width']} px")
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
