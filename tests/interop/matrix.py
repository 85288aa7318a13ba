"""Run the interoperability matrix, and write the reference page *Interoperability*.

    python tests/interop/matrix.py [--short] [--only REGULAR-EXPRESSION] [--write docs/reference/interoperability.md]

The complete matrix takes minutes. For each pair of programs, it covers every channel with every security setting and
size, unusual file names, files of 2 GiB, and clients that are killed and started again. The exit code is 1 if a case is
neither identical nor a known defect.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from venturi.backend import find_engine

sys.path.append(str(Path(__file__).parents[1]))  # modules that all tests share; pytest adds this path itself
from interop_cases import NAMES, SIZES, InteropCase, cases
from interop_defects import DEFECTS, find_defect
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
"""Debian package with the version of each program."""

_CHANNELS = (
    ("`auto`", "The client chooses."),
    ("`E 4`", "MODE E over 4 data connections; other numbers likewise."),
    ("`S passive`, `S extended`, `S active`", "MODE S with PASV, EPSV or PORT."),
    ("`http`, `https`", "HTTP without or with TLS."),
    (
        "`https pull`, `https push`",
        "Third-party copy over HTTPS. The target pulls the file, or the server pushes it.",
    ),
)
"""Values of the column *channels*, with their meaning."""

_SECURITY = (
    ("`anonymous`", "No credential."),
    ("`password`", "User name and password."),
    ("`token`", "Bearer token (HTTP)."),
    ("`ssh`", "GridFTP over SSH (`sshftp:`)."),
    ("`gsi nodcau`", "Grid certificate; open data connections."),
    ("`gsi dcau`", "Grid certificate; authenticated data connections."),
    ("`gsi safe`", "Grid certificate; data connections with PROT S."),
    ("`gsi private`", "Grid certificate; data connections with PROT P."),
)
"""Values of the column *security*, with their meaning."""

Row = tuple[InteropCase, Outcome | None]
"""A case and its outcome; None if a program of the case is not installed."""


def run_all(table: Sequence[InteropCase], engine: Path, jobs: int) -> list[Row]:
    """Run the cases in parallel jobs. Each job starts its own servers."""
    with ProcessPoolExecutor(jobs) as pool:
        parts = list(pool.map(_run, [table[first::jobs] for first in range(jobs)], [engine] * jobs))
    found = {case: outcome for part in parts for case, outcome in part}
    return [(case, found[case]) for case in table]


def _run(table: Sequence[InteropCase], engine: Path) -> list[Row]:
    rows: list[Row] = []
    with Rig.up(engine) as rig:
        for case in table:
            lacks = rig.lacks(case)
            outcome = None if lacks else rig.execute(case)
            rows.append((case, outcome))
            if outcome is None or not outcome.identical:
                print(f"{verdict(case, outcome):10} {case.id}: {outcome.output if outcome else lacks}", flush=True)
    return rows


def verdict(case: InteropCase, outcome: Outcome | None) -> str:
    """Return the verdict on a case: "identical", "defect", "not run", "DIFFERS" or "NO DEFECT"."""
    defect = find_defect(case)
    if outcome is None:
        return "not run"
    if defect is not None and not defect.spares(outcome):
        return "defect" if defect.shown_by(outcome) else "NO DEFECT"
    return "identical" if outcome.identical else "DIFFERS"


def page(rows: Sequence[Row], *, took_s: float) -> str:
    """Return the reference page with the results."""
    return "\n".join([*_head(rows, took_s), *_programs(), *_cases(), *_pairings(rows), *_defects(rows), ""])


def _head(rows: Sequence[Row], took_s: float) -> list[str]:
    verdicts = [verdict(*row) for row in rows]
    identical, defects = verdicts.count("identical"), verdicts.count("defect")
    return [
        "# Interoperability",
        "",
        "<!-- Written by `python tests/interop/matrix.py --write docs/reference/interoperability.md`. To change this page, edit tests/interop. -->",
        "",
        "This page lists the programs that were tested with `venturi copy` and `venturi serve`, and the results of the test.",
        "",
        f"The test has {len(rows):,} cases. In each case, a client transfers one file, and the test compares the SHA-256 of the copy.",
        "",
        f"- {identical:,} files were identical.",
        f"- {defects:,} cases showed a known defect of another program (see [Defects of other programs](#defects-of-other-programs)).",
        f"- {len(rows) - identical - defects:,} cases had another result.",
        "",
        f"All programs ran on one host, over loopback. The test took {took_s / 60:.0f} minutes.",
        "",
    ]


def _programs() -> list[str]:
    return [
        "## Tested versions",
        "",
        "| program | version |",
        "|---|---|",
        *(f"| {name} | {_version(package)} |" for name, package in _VERSIONS.items()),
        "",
    ]


def _cases() -> list[str]:
    return [
        "## Test cases",
        "",
        *_wrapped(
            f"**Sizes.** {', '.join(SIZES)}. The size 512 MB is for clients that are killed at a random offset and started again."
        ),
        "",
        "**Names.** Most files are named `plain`. The other names are:",
        "",
        *(f"- {name}: `{_shown(value)}`" for name, value in NAMES.items() if name != "plain"),
        "",
        "**Channels.**",
        "",
        *(f"- {channel}: {meaning}" for channel, meaning in _CHANNELS),
        "",
        "**Security.**",
        "",
        *(f"- {security}: {meaning}" for security, meaning in _SECURITY),
        "",
    ]


def _wrapped(text: str) -> list[str]:
    """Return a paragraph as lines of at most 120 characters."""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace").strip("`")


def _pairings(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Results",
        "",
        *_wrapped(
            "Each row is one combination of programs. `get` is a download, `put` an upload. In a third-party transfer, the file goes from the server to the "
            "target. Rows without `venturi` check the test setup itself."
        ),
        "",
        *_wrapped(
            "The columns *sizes*, *odd names* and *killed* count the different sizes, the cases with an unusual name, and the cases with a killed client. The last "
            "three columns count the results. A case that was not run counts as *other*."
        ),
        "",
        "| client | transfer | server | target | channels | security | sizes | odd names | killed | identical | defect | other |",
        "|" + "---|" * 12,
    ]
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for case, outcome in rows:
        groups.setdefault((case.client, case.direction, case.server, case.target), []).append((case, outcome))
    for (client, direction, server, target), group in groups.items():
        verdicts = [verdict(*row) for row in group]
        listed = [_distinct(group, "channel"), _distinct(group, "security"), len({case.size for case, _ in group}),
                  sum(case.name != "plain" for case, _ in group), sum(case.killed for case, _ in group)]  # fmt: skip
        counts = [
            verdicts.count("identical"),
            verdicts.count("defect"),
            len(verdicts) - verdicts.count("identical") - verdicts.count("defect"),
        ]
        lines.append("| " + " | ".join(map(str, [client, direction, server, target, *listed, *counts])) + " |")
    return lines


def _distinct(group: Sequence[Row], key: str) -> str:
    return ", ".join(dict.fromkeys(getattr(case, key) for case, _ in group))


def _defects(rows: Sequence[Row]) -> list[str]:
    if not DEFECTS:
        return []
    lines = [
        "",
        "## Defects of other programs",
        "",
        *_wrapped(
            "A case with a known defect must fail with the expected evidence; otherwise the test fails. Some defects occur only sometimes. If such a defect does "
            "not occur, the file must be identical."
        ),
    ]
    for defect in DEFECTS:
        shown = [
            (case, outcome)
            for case, outcome in rows
            if outcome and find_defect(case) is defect and defect.shown_by(outcome)
        ]
        lines += [
            "",
            f"### {defect.of}",
            "",
            *_wrapped(defect.message),
            "",
            f"Cases with this defect in this run: {len(shown)}.",
        ]
        if shown:
            case, outcome = shown[0]
            output = outcome.output.replace("|", "¦").replace("`", "")[:200]
            lines += ["", f"Evidence from the case *{case.id}*:", "", "```text", output, "```"]
    return lines


def _version(package: str) -> str:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
    )
    return done.stdout or "(not installed)"


def main() -> None:
    """Run the cases that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="run the short matrix of the test suite")
    parser.add_argument("--only", default="", help="run only cases whose name matches this expression")
    parser.add_argument("--write", type=Path, help="page to write")
    parser.add_argument(
        "--jobs", type=int, default=3, help="parallel jobs, each with up to 4 GB of memory. Default: 3"
    )
    options = parser.parse_args()
    table = [case for case in cases(whole=not options.short) if re.search(options.only, case.id)]
    start_s = time.monotonic()
    rows = run_all(table, find_engine(), options.jobs)
    verdicts = [verdict(*row) for row in rows]
    print(
        ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts)),
        f"in {time.monotonic() - start_s:.0f} s",
    )
    if options.write:
        options.write.write_text(page(rows, took_s=time.monotonic() - start_s), encoding="utf-8")
    sys.exit(any(word.isupper() for word in verdicts))


if __name__ == "__main__":
    main()
