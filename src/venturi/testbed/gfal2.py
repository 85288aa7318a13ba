"""Protocols of gfal2 on a machine. Each protocol needs a plug-in, which has a separate package.

Without the plug-in, ``gfal-copy`` reports an unsupported protocol for each transfer, so gfal2 is queried in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["PACKAGES", "PLUGIN_QUERY", "packages_missing"]

PLUGIN_QUERY = ("/usr/bin/python3", "-c", "import gfal2; print(*gfal2.creat_context().get_plugin_names())")
"""Prints the plug-ins that gfal2 has loaded: ``file-2.21.3 srm-2.21.3``. Only the system's Python has the binding."""

PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("gsiftp", "ftp"), "gfal2-plugin-gridftp"),
    **dict.fromkeys(("root", "roots"), "gfal2-plugin-xrootd"),
    **dict.fromkeys(("http", "https", "davs"), "gfal2-plugin-http"),
    "file": "gfal2-plugin-file",
    "srm": "gfal2-plugin-srm",
}
"""Protocol → Debian package. The name of its plug-in is the package name without ``gfal2-plugin-``."""


def packages_missing(loaded: str, protocols: Iterable[str]) -> list[str]:
    """Return the missing packages of gfal2 for some protocols.

    Parameters
    ----------
    loaded
        Output of :data:`PLUGIN_QUERY`.
    protocols
        URL schemes; schemes without a gfal2 plug-in are ignored.

    Examples
    --------
    >>> packages_missing("file-2.21.3 http-2.21.3", ["srm", "https"])
    ['gfal2-plugin-srm']
    """
    installed = {f"gfal2-plugin-{name.partition('-')[0]}" for name in loaded.split()}
    required = dict.fromkeys(PACKAGES[protocol] for protocol in protocols if protocol in PACKAGES)
    return [package for package in required if package not in installed]
