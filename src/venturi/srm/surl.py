"""Site URLs, ``srm://host:port/srm/managerv2?SFN=/path`` or ``srm://host/path``: which path they mean. Pure text."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from venturi.srm.errors import SrmError
from venturi.srm.words import Status

__all__ = ["surl_path"]

_MARK = "?SFN="


def surl_path(surl: str, hosts: Collection[str]) -> PurePosixPath:
    """Return the path of a SURL, without double slashes. Nothing in it is decoded: SRM servers take paths as they are.

    Parameters
    ----------
    hosts
        Names and addresses of this server.

    Raises
    ------
    SrmError
        If it is no SURL, one of another server, or its path leaves a folder upwards.

    Examples
    --------
    >>> surl_path("srm://a.lab.test:8446/srm/managerv2?SFN=//data/x", ["a.lab.test"]).as_posix()
    '/data/x'
    """
    scheme, colon, _ = surl.partition("://")
    if not colon or scheme.lower() != "srm":
        raise SrmError(Status.INVALID_PATH, f"expected srm://HOST/PATH, found {surl[:200]}")
    try:
        host = urlsplit(surl).hostname or ""
    except ValueError as error:
        raise SrmError(Status.INVALID_PATH, f"expected srm://HOST/PATH, found {surl[:200]}") from error
    if host not in hosts:
        raise SrmError(
            Status.INVALID_PATH, f"expected a SURL of {', '.join(hosts)}, found one of {host[:100] or 'none'}"
        )
    _, marked, path = surl.partition(_MARK)
    if not marked:
        _, slash, rest = surl[len(scheme) + 3 :].partition("/")
        path = slash + rest
    if any(not character.isprintable() for character in path):
        raise SrmError(Status.INVALID_PATH, "expected a path of printable characters, found others")
    parts = path.split("/")
    if ".." in parts or not path.startswith("/"):
        raise SrmError(Status.INVALID_PATH, f"expected an absolute path without .., found {path[:200] or 'none'}")
    return PurePosixPath("/", *(part for part in parts if part not in ("", ".")))
