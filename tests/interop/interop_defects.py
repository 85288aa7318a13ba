"""Known defects of other programs. A case with a known defect must fail with the evidence listed here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from interop_cases import GLOBUS, NAMES, PUT, XROOTD, InteropCase
from interop_rig import Outcome


@dataclass(frozen=True)
class Defect:
    """A defect of another program that Venturi cannot work around.

    Attributes
    ----------
    of
        Program and version.
    message
        Description, for the reference page.
    applies
        Whether the defect affects a case.
    evidence
        Regular expression that the output of an affected case matches.
    sometimes
        Whether the defect occurs only in some runs. In the other runs, the file must be identical.
    """

    of: str
    message: str
    applies: Callable[[InteropCase], bool]
    evidence: str
    sometimes: bool = False

    def shown_by(self, outcome: Outcome) -> bool:
        """Return whether the defect occurred."""
        return not outcome.identical and re.search(self.evidence, outcome.output) is not None

    def spares(self, outcome: Outcome) -> bool:
        """Return whether the defect was absent, if it occurs only in some runs."""
        return self.sometimes and outcome.identical


def _loses_bytes(case: InteropCase) -> bool:
    plain = not case.security.startswith("gsi")
    return case.server == GLOBUS and plain and any(byte > 0x7F for byte in NAMES[case.name])


DEFECTS = (
    Defect(
        "XRootD 5.5.3",
        "Over HTTP, XRootD treats the part of a path after `%3F` as its own parameters. It does not find a file with a question mark in its name. An upload of such "
        "a file creates a file whose name ends before the question mark, without an error.",
        lambda case: case.is_web and case.server == XROOTD and b"?" in NAMES[case.name],
        r"404|found \['a'\]|failure|failed",
    ),
    Defect(
        "lftp 4.9.2",
        "`put -o` treats `%2F` at the end of the destination name as a slash, without a request to the server. It uploads into a directory of that name.",
        lambda case: case.client == "lftp" and case.direction == PUT and NAMES[case.name].endswith(b"%2F"),
        r"Access failed: 550.*%2F/local",
    ),
    Defect(
        "globus-gridftp-server 13.24",
        "On an unencrypted control connection, the server drops bytes from 0x80 on, although its FEAT reply lists UTF8: `Müon→π` becomes `Mon`. Downloads do not "
        "find the file. Uploads create a file with another name. `venturi copy` rejects both.",
        _loses_bytes,
        r"served/\d+/(Mon|caf) |found \['(Mon|caf)'\]|found nothing|Globus servers drop from names",
    ),
    Defect(
        "gfal-copy 2.21.3",
        "With certificates, `gfal-copy` sometimes dies of SIGABRT or SIGSEGV after the copy is complete (the SHA-256 matches). On a busy host, this happened in 6 of "
        "360 copies with globus-gridftp-server, in 5 of 360 with `venturi serve`, and in none of 720 anonymous copies. Threads of its libraries close GridFTP "
        'connections while OpenSSL shuts down. In scenarios, the option `exit = "at once"` of the mover prevents this.',
        lambda case: case.client == "gfal-copy" and case.security.startswith("gsi"),
        r"^died of SIG(ABRT|SEGV) with the copy whole$",
        sometimes=True,
    ),
)


def find_defect(case: InteropCase) -> Defect | None:
    """Return the first defect that affects a case, or None."""
    return next((defect for defect in DEFECTS if defect.applies(case)), None)
