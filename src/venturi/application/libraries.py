"""uproot and the XRootD client, imported when they are needed: they come with ``venturi[root]``."""

from __future__ import annotations

import importlib
from typing import Any

from venturi.errors import VenturiError

__all__ = ["MissingLibraryError", "RootFileError", "uproot", "xrootd_source"]


class MissingLibraryError(VenturiError, ImportError):
    """A library that is not installed."""


class RootFileError(VenturiError, OSError):
    """A file that cannot be opened, read or written as one of ROOT."""


def uproot() -> Any:  # noqa: ANN401 - it has no types
    """Return the module ``uproot``.

    Raises
    ------
    MissingLibraryError
        If it is not installed.
    """
    return _imported("uproot")


def xrootd_source() -> Any:  # noqa: ANN401 - it has no types
    """Return how uproot reads ``root://``, the XRootD client loaded.

    Raises
    ------
    MissingLibraryError
        If that is not installed.
    """
    _imported("XRootD.client")
    return _imported("uproot.source.xrootd").XRootDSource


def _imported(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"expected the Python package {name.partition('.')[0]}, found none ({error}); install venturi[root]"
        ) from error
