"""What programs of others cannot do, with the evidence that a run must show: a cell here must fail, and fail like that."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from interop_cells import GLOBUS, NAMES, PUT, XROOTD, Cell
from interop_rig import Outcome


@dataclass(frozen=True)
class Defect:
    """Cells that no program on our side can make identical.

    Attributes
    ----------
    of
        The program.
    says
        What it does, and why that is its own doing.
    applies
        Which cells it touches.
    evidence
        What a run of such a cell says (a regular expression).
    sometimes
        Whether only some runs show it; the others must be identical.
    """

    of: str
    says: str
    applies: Callable[[Cell], bool]
    evidence: str
    sometimes: bool = False

    def shown_by(self, outcome: Outcome) -> bool:
        """Return whether a run has shown it."""
        return not outcome.identical and re.search(self.evidence, outcome.said) is not None

    def spares(self, outcome: Outcome) -> bool:
        """Return whether it need not show in a run, and has not."""
        return self.sometimes and outcome.identical


def _loses_bytes(cell: Cell) -> bool:
    plain = not cell.security.startswith("gsi")
    return cell.server == GLOBUS and plain and any(byte > 0x7F for byte in NAMES[cell.name])


DEFECTS = (
    Defect(
        "XRootD 5.5.3",
        "By HTTP it takes what follows `%3F` in a path for its own parameters: a file with a question mark in its name is not found, and one that is uploaded comes to be "
        "under what is before it, without an error.",
        lambda cell: cell.is_web and cell.server == XROOTD and b"?" in NAMES[cell.name],
        r"404|found \['a'\]|failure|failed",
    ),
    Defect(
        "lftp 4.9.2",
        "It takes `%2F` at the end of the name that `put -o` is given for a slash, without asking the server, and uploads into a directory of that name.",
        lambda cell: cell.client == "lftp" and cell.way == PUT and NAMES[cell.name].endswith(b"%2F"),
        r"Access failed: 550.*%2F/local",
    ),
    Defect(
        "globus-gridftp-server 13.24",
        "On a control connection in the clear it drops bytes from 0x80 on, though it lists UTF8 in FEAT: `Müon→π` becomes `Mon`. Downloads do "
        "not find the file, uploads come to be under another name; our client refuses both.",
        _loses_bytes,
        r"served/\d+/(Mon|caf) |found \['(Mon|caf)'\]|found nothing|drops from names",
    ),
    Defect(
        "gfal-copy 2.21.3",
        "With certificates it dies at times of SIGABRT or SIGSEGV when all is done and the copy is whole (its SHA-256 is that of the source): 6 of 360 copies with "
        "globus-gridftp-server, 5 of 360 with `venturi serve`, none of 720 anonymous ones, on a busy machine. Threads of its libraries close GridFTP connections while OpenSSL is "
        'taken down. Scenarios have `exit = "at once"` against that.',
        lambda cell: cell.client == "gfal-copy" and cell.security.startswith("gsi"),
        r"^died of SIG(ABRT|SEGV) with the copy whole$",
        sometimes=True,
    ),
)


def defect_of(cell: Cell) -> Defect | None:
    """Return the first that touches a cell."""
    return next((defect for defect in DEFECTS if defect.applies(cell)), None)
