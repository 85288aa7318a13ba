"""Paths of site URLs: ``srm://host:port/srm/managerv2?SFN=/path`` or ``srm://host/path``. Pure text."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from venturi.srm.errors import SrmError
from venturi.srm.protocol import SrmStatus

__all__ = ["surl_path"]

_MARK = "?SFN="


def surl_path(surl: str, hosts: Collection[str]) -> PurePosixPath:
    """Return the path of a SURL, without double slashes. It is not percent-decoded, because SRM servers use paths literally.

    Parameters
    ----------
    hosts
        Names and addresses of this server.

    Raises
    ------
    SrmError
        If the text is not a SURL of this server, or its path contains ``..``.

    Examples
    --------
    >>> surl_path("srm://a.lab.test:8446/srm/managerv2?SFN=//data/x", ["a.lab.test"]).as_posix()
    '/data/x'
    """
    scheme, colon, _ = surl.partition("://")
    if not colon or scheme.lower() != "srm":
        raise SrmError(SrmStatus.INVALID_PATH, f"expected srm://HOST/PATH, found {surl[:200]}")
    try:
        host = urlsplit(surl).hostname or ""
    except ValueError as error:
        raise SrmError(SrmStatus.INVALID_PATH, f"expected srm://HOST/PATH, found {surl[:200]}") from error
    if host not in hosts:
        raise SrmError(
            SrmStatus.INVALID_PATH, f"expected a SURL of {', '.join(hosts)}, found one of {host[:100] or 'none'}"
        )
    _, marked, path = surl.partition(_MARK)
    if not marked:
        _, slash, rest = surl[len(scheme) + 3 :].partition("/")
        path = slash + rest
    if any(not character.isprintable() for character in path):
        raise SrmError(SrmStatus.INVALID_PATH, "expected a path of printable characters, found others")
    parts = path.split("/")
    if ".." in parts or not path.startswith("/"):
        raise SrmError(SrmStatus.INVALID_PATH, f"expected an absolute path without .., found {path[:200] or 'none'}")
    return PurePosixPath("/", *(part for part in parts if part not in ("", ".")))
