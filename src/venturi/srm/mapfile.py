"""The grid-mapfile: it maps subjects of user certificates to accounts."""

from __future__ import annotations

import re

__all__ = ["parse_mapfile"]

_LINE = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^"\s]\S*))\s+(\S+)\s*')


def parse_mapfile(text: str) -> dict[str, str]:
    """Return subject → its first account. Invalid lines and comments are ignored, as by the Globus library.

    Examples
    --------
    >>> parse_mapfile('# who\\n"/O=Grid/CN=A B" anna,berta\\n/O=Grid/CN=C carl')
    {'/O=Grid/CN=A B': 'anna', '/O=Grid/CN=C': 'carl'}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None and not line.lstrip().startswith("#"):
            subject = re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]
            found.setdefault(subject, match[3].split(",")[0])
    return found
