"""Make the runs and reports of the gallery.

    .venv/bin/python docs/gallery/build.py docs/_build/gallery [--only NAME]...

Runs the commands of `gallery.toml` in a temporary directory and writes one page per report into the directory. A report
can use the runs of the reports before it. Prints the time and size of each report.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parent
_FILE = re.compile(r"^```(?:toml|text)\n# file: (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 120
"""Time of one command. The slowest took about 70 s on two cores, at idle priority."""


def write_examples(pages: Sequence[str], directory: Path) -> None:
    """Write the scenarios of this directory and the example files of pages into a directory.

    Raises
    ------
    ValueError
        If two pages have different examples with the same name.
    """
    for path in HERE.glob("*.toml"):
        shutil.copy(path, directory)
    for page in pages:
        for name, text in _FILE.findall((DOCS / page).read_text(encoding="utf-8")):
            target = directory / name
            if target.exists() and target.read_text(encoding="utf-8") != text:
                raise ValueError(f"{page}: {name} exists with other content; rename one example")
            target.write_text(text, encoding="utf-8")


def make(report: dict[str, Any], directory: Path, output: Path) -> None:
    """Run the commands of a report in a directory and copy its page to the output directory.

    Raises
    ------
    ValueError
        If a command fails, takes too long or writes no page.
    """
    name = report["name"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    started = time.monotonic()
    for command in report["commands"]:
        try:
            done = subprocess.run(
                ["sh", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, check=False,
                timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"{name}: {command}: not finished after {TIMEOUT_S} s") from None
        if done.returncode:
            raise ValueError(f"{name}: {command}: exit code {done.returncode}\n{done.stderr}")
    page = directory / f"{name}.html"
    if not page.is_file():
        raise ValueError(f"{name}: the commands wrote no {page.name}")
    shutil.copy(page, output)
    sys.stdout.write(f"{name}: {time.monotonic() - started:.1f} s, {page.stat().st_size / 1e3:,.0f} kB\n")
    sys.stdout.flush()


def main() -> int:
    """Make the reports of the gallery."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("output", type=Path, help="directory for the pages, such as docs/_build/gallery")
    parser.add_argument("--only", action="append", default=[], help="name of a report; default: all")
    options = parser.parse_args()
    gallery = tomllib.loads((HERE / "gallery.toml").read_text(encoding="utf-8"))
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="venturi-gallery-") as directory:
            write_examples(gallery["pages"], Path(directory))
            for report in gallery["report"]:
                if not options.only or report["name"] in options.only:
                    make(report, Path(directory), options.output)
    except (OSError, ValueError) as error:
        sys.exit(f"gallery: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
