"""Addresses of endpoints as users write them: a local path or a URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from venturi.errors import VenturiError
from venturi.messages import quote_value

__all__ = ["FILE", "Address", "AddressError"]

FILE = "file"
"""The scheme of local files."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?")
_PLAIN = re.compile(r"[A-Za-z0-9/\-._~+,=@:]*")
"""Characters that are allowed in the path of a URL, because the plan encodes nothing (``docs/reference/plan.md``)."""


class AddressError(VenturiError, ValueError):
    """Text that is not the path or URL of a file that can be transferred."""


@dataclass(frozen=True, slots=True)
class Address:
    """A local file or a file on a server.

    Attributes
    ----------
    scheme
        ``"file"`` or the protocol.
    authority
        ``host`` or ``host:port``; empty for a local file.
    path
        Path as written after the authority. It starts with ``/``, or with ``//`` for an absolute path in XRootD.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str, directory: str) -> Address:
        """Parse an address. A relative path is resolved against ``directory``.

        Raises
        ------
        AddressError
            If the text is not a valid address. The message has the expected and the found value.

        Examples
        --------
        >>> Address.parse("data/x", "/home/me").text
        '/home/me/data/x'
        >>> Address.parse("GSIFTP://dtn.example.org:2811/x", "/").host
        'dtn.example.org'
        """
        if not text or "\0" in text or "\n" in text:
            raise AddressError(f"expected a path or a URL on one line, found {quote_value(text)}")
        if "://" not in text:
            return cls._file(text, os.path.normpath(text if text.startswith("/") else f"{directory}/{text}"))
        match = _URL.fullmatch(text)
        if match is None:
            raise AddressError(f"expected a URL such as gsiftp://host/path, found {quote_value(text)}")
        scheme, authority, path = match[1].lower(), match[2], match[3] or ""
        if scheme == FILE:
            if authority not in ("", "localhost"):
                raise AddressError(f"expected file:///path for a file of this host, found {quote_value(text)}")
            return cls._file(text, os.path.normpath(path or "/"))
        if not _AUTHORITY.fullmatch(authority):
            raise AddressError(f"expected host or host:port after {scheme}://, found {quote_value(text)}")
        parts = path.lstrip("/").split("/")
        if not _PLAIN.fullmatch(path) or parts == [""] or parts[-1] == "" or {".", ".."} & set(parts):
            raise AddressError(
                "expected the path of a file in letters, digits and -._~+,=@: after the host (no percent-encoding),"
                f" found {quote_value(text)}"
            )
        return cls(scheme, authority, path)

    @classmethod
    def _file(cls, text: str, path: str) -> Address:
        if text.endswith("/") or path in ("/", "//"):
            raise AddressError(f"expected the path of a file, found the directory {quote_value(text)}")
        return cls(FILE, "", "/" + path.lstrip("/"))

    @property
    def is_file(self) -> bool:
        """Whether it is a local file."""
        return self.scheme == FILE

    @property
    def host(self) -> str:
        """The server's host in lower case, without port; empty for a local file."""
        name = self.authority
        if name.startswith("["):
            return name[: name.index("]") + 1].lower()
        return name.partition(":")[0].lower()

    @property
    def text(self) -> str:
        """The path of a local file, or the URL. :meth:`parse` returns the same address for it."""
        return self.path if self.is_file else f"{self.scheme}://{self.authority}{self.path}"
