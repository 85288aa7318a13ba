"""One end of a transfer as users write it: a path of this host, or a URL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from venturi.errors import VenturiError
from venturi.plan.words import shown

__all__ = ["FILE", "Address", "AddressError"]

FILE = "file"
"""The scheme of files of this host."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?")
_PLAIN = re.compile(r"[A-Za-z0-9/\-._~+,=@:]*")
"""What may stand in the path of a URL: the plan encodes nothing (``docs/reference/plan.md``)."""


class AddressError(VenturiError, ValueError):
    """Text that is no path or URL that can be transferred."""


@dataclass(frozen=True, slots=True)
class Address:
    """A file of this host or behind a server.

    Attributes
    ----------
    scheme
        ``"file"`` or the protocol.
    authority
        ``host`` or ``host:port``; empty for a file.
    path
        As it stands behind the authority: it begins with ``/``, with ``//`` where XRootD wants an absolute path.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str, folder: str) -> Address:
        """Return the address that the text means; a relative path is one of ``folder``.

        Raises
        ------
        AddressError
            Saying what was expected and what was found.

        Examples
        --------
        >>> Address.parse("data/x", "/home/me").text
        '/home/me/data/x'
        >>> Address.parse("GSIFTP://dtn.example.org:2811/x", "/").host
        'dtn.example.org'
        """
        if not text or "\0" in text or "\n" in text:
            raise AddressError(f"expected a path or a URL in one line, found {shown(text)}")
        if "://" not in text:
            return cls._file(text, os.path.normpath(text if text.startswith("/") else f"{folder}/{text}"))
        match = _URL.fullmatch(text)
        if match is None:
            raise AddressError(f"expected a URL such as gsiftp://host/path, found {shown(text)}")
        scheme, authority, path = match[1].lower(), match[2], match[3] or ""
        if scheme == FILE:
            if authority not in ("", "localhost"):
                raise AddressError(f"expected file:///path, a file of this host, found {shown(text)}")
            return cls._file(text, os.path.normpath(path or "/"))
        if not _AUTHORITY.fullmatch(authority):
            raise AddressError(f"expected host or host:port behind {scheme}://, found {shown(text)}")
        parts = path.lstrip("/").split("/")
        if not _PLAIN.fullmatch(path) or parts == [""] or parts[-1] == "" or {".", ".."} & set(parts):
            raise AddressError(
                "expected the path of a file in letters, digits and -._~+,=@: behind the host (nothing is encoded),"
                f" found {shown(text)}"
            )
        return cls(scheme, authority, path)

    @classmethod
    def _file(cls, text: str, path: str) -> Address:
        if text.endswith("/") or path in ("/", "//"):
            raise AddressError(f"expected the path of a file, found a folder, {shown(text)}")
        return cls(FILE, "", "/" + path.lstrip("/"))

    @property
    def is_file(self) -> bool:
        """Whether it is a file of this host."""
        return self.scheme == FILE

    @property
    def host(self) -> str:
        """The host behind which it is, in small letters and without port; empty for a file."""
        name = self.authority
        if name.startswith("["):
            return name[: name.index("]") + 1].lower()
        return name.partition(":")[0].lower()

    @property
    def text(self) -> str:
        """The path of a file, or the URL: what :meth:`parse` makes the same address of."""
        return self.path if self.is_file else f"{self.scheme}://{self.authority}{self.path}"
