"""What the server is told: a JSON file, checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from venturi.srm.errors import SettingsError

__all__ = ["Settings"]

_WHOLE = ("connections", "ready", "queue", "files_per_request", "entries", "body_bytes")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the server is told.

    Attributes
    ----------
    address, ports
        Where it listens.
    hosts
        Names and addresses that SURLs may carry.
    places
        Folders that it serves; nothing else can be reached. Absolute, by name.
    doors
        Protocol → templates of transfer URLs, with ``{path}`` or ``{relative}`` (below its place), which are given out in turn.
    certificate, key, authorities
        Its own certificate, and the folder of trusted ones (``HASH.0``), PEM.
    mapfile
        Grid-mapfile; read again when it changes.
    database, log
        Files that it writes.
    answer
        ``"ready"``: a transfer URL comes with the first answer if there is a slot; ``"queued"``: the first answer is always that the request is
        queued, as servers with a scheduler of their own give.
    ready
        Transfer URLs that may be out at once; who comes beyond is queued.
    queue
        Files that may wait; beyond, requests are answered with SRM_INTERNAL_ERROR, which tells clients to come again later.
    connections
        Served at once; others wait to be accepted.
    files_per_request, entries, body_bytes
        Files of a request, entries of a listing, bytes of a request, at most.
    pin_s, request_s
        How long a transfer URL holds, and a request may wait, unless the client asks for less.
    idle_s, handshake_s
        How long a connection may be silent, and a TLS handshake may take.
    keep_s
        How long finished requests are remembered.
    """

    address: str
    ports: tuple[int, ...]
    hosts: tuple[str, ...]
    places: Mapping[str, str]
    doors: Mapping[str, tuple[str, ...]]
    certificate: str
    key: str
    authorities: str
    mapfile: str
    database: str
    log: str
    answer: Literal["ready", "queued"] = "ready"
    ready: int = 4096
    queue: int = 100_000
    connections: int = 1024
    files_per_request: int = 10_000
    entries: int = 10_000
    body_bytes: int = 16 << 20
    pin_s: float = 4 * 3600.0
    request_s: float = 4 * 3600.0
    idle_s: float = 3600.0
    handshake_s: float = 30.0
    keep_s: float = 86400.0

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Return the settings in a file.

        Raises
        ------
        SettingsError
            If they are not of the form above.
        """
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path}: expected settings as JSON, found: {error}") from error
        if not isinstance(written, dict):
            raise SettingsError(f"{path}: expected an object, found {type(written).__name__}")
        return cls.of(written)

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Settings:
        """Return the settings in an object as JSON has it; see :meth:`read`."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(written) - known)
        if unknown:
            raise SettingsError(f"expected the settings {', '.join(sorted(known))}, found {', '.join(unknown)}")
        values = dict(written)
        for name in ("ports", "hosts"):
            values[name] = tuple(values.get(name, ()))
        values["doors"] = {key: tuple(value) for key, value in values.get("doors", {}).items()}
        try:
            made = cls(**values)
        except TypeError as error:
            raise SettingsError(f"expected all settings without a default, found: {error}") from error
        made._check()
        return made

    def _check(self) -> None:
        if not self.ports or not all(isinstance(port, int) and 0 <= port < 65536 for port in self.ports):
            raise SettingsError(f"ports: expected numbers from 0 to 65535, found {self.ports}")
        if not self.places or not all(Path(path).is_absolute() for path in self.places.values()):
            raise SettingsError(f"places: expected absolute folders by name, found {dict(self.places)}")
        if not self.doors or not all(self.doors.values()):
            raise SettingsError(f"doors: expected protocols with templates of URLs, found {dict(self.doors)}")
        for template in (template for listed in self.doors.values() for template in listed):
            if "{path}" not in template and "{relative}" not in template:
                raise SettingsError(f"doors: expected {{path}} or {{relative}} in each URL, found {template}")
        if self.answer not in ("ready", "queued"):
            raise SettingsError(f'answer: expected "ready" or "queued", found {self.answer!r}')
        for name in _WHOLE:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise SettingsError(f"{name}: expected a whole number, 1 or more, found {value!r}")
        for name in ("pin_s", "request_s", "idle_s", "handshake_s", "keep_s"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
                raise SettingsError(f"{name}: expected seconds, more than 0, found {value!r}")
