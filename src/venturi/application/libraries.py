"""Lazy imports of uproot and the XRootD client from ``venturi[root]``."""

from __future__ import annotations

import importlib
from typing import Any

from venturi.errors import VenturiError

__all__ = ["MissingLibraryError", "RootFileError", "uproot", "xrootd_source"]


class MissingLibraryError(VenturiError, ImportError):
    """Missing library."""


class RootFileError(VenturiError, OSError):
    """ROOT file that cannot be opened, read or written."""


def uproot() -> Any:  # noqa: ANN401 - uproot has no types
    """Return the module ``uproot``.

    Raises
    ------
    MissingLibraryError
        If it is not installed.
    """
    return _import_library("uproot")


def xrootd_source() -> Any:  # noqa: ANN401 - uproot has no types
    """Return the ``root://`` source of uproot, with the XRootD client.

    Raises
    ------
    MissingLibraryError
        If uproot or the XRootD client is not installed.
    """
    _import_library("XRootD.client")
    return _import_library("uproot.source.xrootd").XRootDSource


def _import_library(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"expected the Python package {name.partition('.')[0]}, found none ({error}); install venturi[root]"
        ) from error
