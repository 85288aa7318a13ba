"""Which protocols gfal2 speaks on a machine: each is a plug-in, in a package of its own.

Without one, `gfal-copy` is there and only says of each transfer that a protocol is not supported; so gfal2 is asked beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["ASK", "PACKAGES", "packages_missing"]

ASK = ("/usr/bin/python3", "-c", "import gfal2; print(*gfal2.creat_context().get_plugin_names())")
"""Prints the plug-ins that gfal2 has loaded: ``file-2.21.3 srm-2.21.3``. Its binding is for the system's Python only."""

PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("gsiftp", "ftp"), "gfal2-plugin-gridftp"),
    **dict.fromkeys(("root", "roots"), "gfal2-plugin-xrootd"),
    **dict.fromkeys(("http", "https", "davs"), "gfal2-plugin-http"),
    "file": "gfal2-plugin-file",
    "srm": "gfal2-plugin-srm",
}
"""Protocol → Debian package. The plug-in in it has its name without ``gfal2-plugin-``."""


def packages_missing(loaded: str, protocols: Iterable[str]) -> list[str]:
    """Return the packages that gfal2 lacks for some protocols.

    Parameters
    ----------
    loaded
        What :data:`ASK` has printed.
    protocols
        As URLs begin with them; those that gfal2 has no plug-in for are passed over.

    Examples
    --------
    >>> packages_missing("file-2.21.3 http-2.21.3", ["srm", "https"])
    ['gfal2-plugin-srm']
    """
    there = {f"gfal2-plugin-{name.partition('-')[0]}" for name in loaded.split()}
    wanted = dict.fromkeys(PACKAGES[protocol] for protocol in protocols if protocol in PACKAGES)
    return [package for package in wanted if package not in there]
