"""Comparison of error messages by facts instead of wording."""

from __future__ import annotations

import re


def reports(expected, error):
    """Return whether a line of an error has the location, the quoted texts and numbers, and the found value of a message."""
    where, _, message = expected.rpartition("expected ")
    required, _, found = message.partition(", found ")
    names = required.partition(": ")[2].split(", ") if required.startswith("one of") else []
    details = [*re.findall(r'"[^"]*"|(?<!\w)\d[\w.+]*', required), *(name for name in names if name)]
    for line in str(error).splitlines():
        head, _, tail = line.partition(", found ")
        if (
            f"{where}expected " in head
            and all(detail in head for detail in details)
            and found.partition("; ")[0] in tail
        ):
            return True
    return False
