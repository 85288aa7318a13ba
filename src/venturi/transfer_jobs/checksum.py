"""Checksums: names and values, calculation for local files, and queries by tools for other files.

| tool | query | output |
|---|---|---|
| ``xrdfs URL query checksum PATH`` | XRootD, for the one algorithm that it is configured with | ``adler32 03da0195`` |
| ``gfal-sum URL ALGORITHM`` | GridFTP (CKSM), WebDAV (Want-Digest) | ``URL 03da0195`` |
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from venturi.errors import VenturiError
from venturi.messages import quote_value
from venturi.plan import Call
from venturi.transfer_jobs.address import Address

__all__ = ["ALGORITHMS", "Checksum", "ChecksumError", "checksum_call", "file_checksum", "parse_checksum_reply"]

ALGORITHMS: Mapping[str, int] = {"adler32": 8, "md5": 32, "sha256": 64}
"""Name → number of hexadecimal digits."""

_BLOCK_BYTES = 1 << 20
_GFAL = ("gsiftp", "ftp", "http", "https", "davs", "srm")


class ChecksumError(VenturiError, ValueError):
    """Text that is not a checksum."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """``algorithm`` and the value in lower-case hexadecimal digits, padded because some servers omit leading zeros."""

    algorithm: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Checksum:
        """Parse a checksum in the form ``adler32:3da0195``.

        Raises
        ------
        ChecksumError
            If the text is not a checksum.

        Examples
        --------
        >>> Checksum.parse("ADLER32:3DA0195")
        Checksum(algorithm='adler32', value='03da0195')
        """
        algorithm, _, value = text.lower().partition(":")
        digits = ALGORITHMS.get(algorithm)
        if digits is None or not re.fullmatch(rf"[0-9a-f]{{1,{digits}}}", value):
            raise ChecksumError(
                f"expected a checksum such as adler32:03da0195, md5:… or sha256:…, found {quote_value(text)}"
            )
        return cls(algorithm, value.zfill(digits))

    @property
    def text(self) -> str:
        """The checksum as text that :meth:`parse` accepts."""
        return f"{self.algorithm}:{self.value}"


def file_checksum(path: Path, algorithm: str) -> Checksum:
    """Read a file and return its checksum.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    if algorithm == "adler32":
        return Checksum(algorithm, f"{_adler32(path):08x}")
    with path.open("rb") as stream:
        return Checksum(algorithm, hashlib.file_digest(stream, algorithm).hexdigest())


def _adler32(path: Path) -> int:
    value = 1  # RFC 1950, section 8.2: of nothing
    buffer = bytearray(_BLOCK_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            value = zlib.adler32(view[:count], value)
    return value


def checksum_call(address: Address, algorithm: str, timeout_s: float, has: Callable[[str], bool]) -> Call | None:
    """Return the call that queries the server of a file for its checksum; None if there is no tool for it.

    Parameters
    ----------
    address
        A file on a server.
    algorithm
        One of :data:`ALGORITHMS`.
    timeout_s
        Timeout of the call in seconds.
    has
        Function that returns whether a program is installed.
    """
    argv: tuple[str, ...]
    if address.scheme in ("root", "roots") and has("xrdfs"):
        server, path = f"{address.scheme}://{address.authority}", address.path
        argv = (
            "xrdfs",
            server,
            "query",
            "checksum",
            f"{path[1:] if path.startswith('//') else path}?cks.type={algorithm}",
        )
    elif address.scheme in _GFAL and has("gfal-sum"):
        limit = str(max(round(timeout_s), 1))
        argv = ("env", "GFAL_PYTHONBIN=/usr/bin/python3", "gfal-sum", "-t", limit, address.text, algorithm.upper())
    else:
        return None
    return Call("checksum", {}, argv, (), timeout_s, capture=True, expect="nothing")


def parse_checksum_reply(stdout: str, algorithm: str) -> Checksum | None:
    """Parse the output of such a call. None if it has another form or another algorithm.

    Examples
    --------
    >>> parse_checksum_reply("adler32 3da0195\\n", "adler32")
    Checksum(algorithm='adler32', value='03da0195')
    >>> parse_checksum_reply("gsiftp://a/x 03da0195\\n", "adler32").text
    'adler32:03da0195'
    """
    words = stdout.split()
    if len(words) != 2 or (words[0].lower() in ALGORITHMS and words[0].lower() != algorithm):
        return None
    try:
        return Checksum.parse(f"{algorithm}:{words[1]}")
    except ChecksumError:
        return None
