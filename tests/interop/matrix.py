"""Carries out the whole interoperability matrix and prints it.

    python tests/interop/matrix.py [--short] [--only REGULAR-EXPRESSION] [--write docs/reference/interoperability.md]

It takes minutes: every channel with every security and size of each pairing, odd names, files of 2 GiB, clients that are killed and called again. Ends with 1 if a cell
is neither identical nor a defect that is stated.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from venturi.backend import find_engine

sys.path.append(str(Path(__file__).parents[1]))  # what all tests share; pytest finds it by itself
from interop_cells import NAMES, SIZES, Cell, cells
from interop_defects import DEFECTS, defect_of
from interop_rig import Outcome, Rig

_VERSIONS = {
    "globus-url-copy": "globus-gass-copy-progs",
    "globus-gridftp-server": "globus-gridftp-server-progs",
    "gfal-copy": "libgfal2-2",
    "curl": "curl",
    "lftp": "lftp",
    "wget": "wget",
    "ftplib": "python3",
    "davix": "davix",
    "rclone": "rclone",
    "xrootd": "xrootd-server",
    "nginx": "nginx",
    "Apache": "apache2-bin",
}
"""Program → the Debian package whose version is told."""

Row = tuple[Cell, Outcome | None]
"""A cell and what came of it; nothing if its program is not installed."""


def carry_out_all(table: Sequence[Cell], engine: Path, jobs: int) -> list[Row]:
    """Carry cells out, so many at a time, each job with servers of its own."""
    with ProcessPoolExecutor(jobs) as pool:
        parts = list(pool.map(_carry_out, [table[first::jobs] for first in range(jobs)], [engine] * jobs))
    found = {cell: outcome for part in parts for cell, outcome in part}
    return [(cell, found[cell]) for cell in table]


def _carry_out(table: Sequence[Cell], engine: Path) -> list[Row]:
    rows: list[Row] = []
    with Rig.up(engine) as rig:
        for cell in table:
            lacks = rig.lacks(cell)
            outcome = None if lacks else rig.carry_out(cell)
            rows.append((cell, outcome))
            if outcome is None or not outcome.identical:
                print(f"{verdict(cell, outcome):10} {cell.id}: {outcome.said if outcome else lacks}", flush=True)
    return rows


def verdict(cell: Cell, outcome: Outcome | None) -> str:
    """Return what a cell comes to in a word."""
    defect = defect_of(cell)
    if outcome is None:
        return "not run"
    if defect is not None and not defect.spares(outcome):
        return "defect" if defect.shown_by(outcome) else "NO DEFECT"
    return "identical" if outcome.identical else "DIFFERS"


def page(rows: Sequence[Row], *, took_s: float) -> str:
    """Return the table as a page of the reference."""
    return "\n".join([*_head(rows, took_s), *_pairings(rows), *_defects(rows), ""])


def _head(rows: Sequence[Row], took_s: float) -> list[str]:
    words = [verdict(*row) for row in rows]
    versions = ", ".join(f"{name} {_version(package)}" for name, package in _VERSIONS.items())
    return [
        "# Interoperability",
        "",
        "<!-- Written by `python tests/interop/matrix.py --write`. Change the tables in tests/interop, not this page. -->",
        "",
        f"Of {len(rows):,} files moved between our client or server and programs of others, {words.count('identical'):,} arrived byte-identical (SHA-256), and "
        f"{words.count('defect'):,} met a defect of the other program that is stated below, with its evidence. {len(rows) - words.count('identical') - words.count('defect'):,} "
        f"were neither. Carried out on loopback in {took_s / 60:.0f} minutes with {versions}.",
        "",
        f"Sizes: {', '.join(SIZES)} (512 MB is for clients that are killed at a random offset and called again). Names: "
        + ", ".join(f"{name} `{value.decode(errors='backslashreplace').strip('`')}`" for name, value in NAMES.items())
        + ". A third-party transfer goes from the server to the target.",
        "",
    ]


def _pairings(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| client | | server | target | channels | security | sizes | odd names | killed | identical | defects | neither |",
        "|" + "---|" * 12,
    ]
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for cell, outcome in rows:
        groups.setdefault((cell.client, cell.way, cell.server, cell.target), []).append((cell, outcome))
    for (client, way, server, target), group in groups.items():
        words = [verdict(*row) for row in group]
        listed = [_distinct(group, "channel"), _distinct(group, "security"), len({cell.size for cell, _ in group}),
                  sum(cell.name != "plain" for cell, _ in group), sum(cell.killed for cell, _ in group)]  # fmt: skip
        counts = [
            words.count("identical"),
            words.count("defect"),
            len(words) - words.count("identical") - words.count("defect"),
        ]
        lines.append("| " + " | ".join(map(str, [client, way, server, target, *listed, *counts])) + " |")
    return lines


def _distinct(group: Sequence[Row], key: str) -> str:
    return ", ".join(dict.fromkeys(getattr(cell, key) for cell, _ in group))


def _defects(rows: Sequence[Row]) -> list[str]:
    lines = [
        "",
        "## Defects of others",
        "",
        "Each is a cell that must fail, and fail like that, for the suite to pass; where it does so at times it must be identical else.",
        "",
    ]
    lines += ["| program | what it does | cells | evidence of one |", "|---|---|---|---|"]
    for defect in DEFECTS:
        shown = [
            (cell, outcome)
            for cell, outcome in rows
            if outcome and defect_of(cell) is defect and defect.shown_by(outcome)
        ]
        example = (
            f"{shown[0][0].id}: `{shown[0][1].said.replace('|', '¦').replace('`', '')[:200]}`"
            if shown
            else "not met in this run"
        )
        lines.append(f"| {defect.of} | {defect.says} | {len(shown)} | {example} |")
    return lines if DEFECTS else []


def _version(package: str) -> str:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
    )
    return done.stdout or "(not installed)"


def main() -> None:
    """Carry out what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the table of every test run")
    parser.add_argument("--only", default="", help="cells whose names have this in them")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument(
        "--jobs", type=int, default=3, help="cells at a time (default 3); each may take 4 GB of memory"
    )
    given = parser.parse_args()
    table = [cell for cell in cells(whole=not given.short) if re.search(given.only, cell.id)]
    began_s = time.monotonic()
    rows = carry_out_all(table, find_engine(), given.jobs)
    words = [verdict(*row) for row in rows]
    print(
        ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)),
        f"in {time.monotonic() - began_s:.0f} s",
    )
    if given.write:
        given.write.write_text(page(rows, took_s=time.monotonic() - began_s), encoding="utf-8")
    sys.exit(any(word.isupper() for word in words))


if __name__ == "__main__":
    main()
