"""Settings of the server: a JSON file that is validated on reading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from venturi.srm.errors import SettingsError

__all__ = ["Settings"]

_COUNTS = ("connections", "ready", "queue", "files_per_request", "entries", "body_bytes")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the server.

    Attributes
    ----------
    address, ports
        Listening address and ports.
    hosts
        Host names and addresses that are accepted in SURLs.
    storages
        Served directories: absolute paths by name. Other files cannot be reached.
    doors
        Protocol → templates of transfer URLs, which are used in turn. They contain ``{path}``, or ``{relative}`` for
        the path below its storage.
    certificate, key, ca_directory
        Certificate and key of the server, and the directory of trusted CA certificates (``HASH.0``), PEM.
    mapfile
        Grid-mapfile. It is read again after changes.
    database, log
        Output files.
    answer
        ``"ready"``: the first reply has a transfer URL if a slot is free. ``"queued"``: the first reply always reports
        the request as queued, as servers with their own scheduler do.
    ready
        Maximum number of valid transfer URLs. Further requests are queued.
    queue
        Maximum number of queued files. Further requests get SRM_INTERNAL_ERROR, so that clients retry later.
    connections
        Maximum number of concurrent connections. Further clients wait to be accepted.
    files_per_request, entries, body_bytes
        Maximum numbers of files in a request, entries in a listing, and bytes in a request.
    pin_s, request_s
        Lifetimes of a transfer URL and of a waiting request, unless the client requests shorter ones.
    idle_s, handshake_s
        Timeouts of an idle connection and of a TLS handshake.
    keep_s
        Time for which finished requests are kept.
    """

    address: str
    ports: tuple[int, ...]
    hosts: tuple[str, ...]
    storages: Mapping[str, str]
    doors: Mapping[str, tuple[str, ...]]
    certificate: str
    key: str
    ca_directory: str
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
        """Read the settings from a file.

        Raises
        ------
        SettingsError
            If they do not have the form above.
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
        """Return the settings in a JSON object; see :meth:`read`."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(written) - known)
        if unknown:
            raise SettingsError(f"expected the settings {', '.join(sorted(known))}, found {', '.join(unknown)}")
        values = dict(written)
        for name in ("ports", "hosts"):
            values[name] = tuple(values.get(name, ()))
        values["doors"] = {key: tuple(value) for key, value in values.get("doors", {}).items()}
        try:
            parsed = cls(**values)
        except TypeError as error:
            raise SettingsError(f"expected all settings without a default, found: {error}") from error
        parsed._check()
        return parsed

    def _check(self) -> None:
        if not self.ports or not all(isinstance(port, int) and 0 <= port < 65536 for port in self.ports):
            raise SettingsError(f"ports: expected numbers from 0 to 65535, found {self.ports}")
        if not self.storages or not all(Path(path).is_absolute() for path in self.storages.values()):
            raise SettingsError(f"storages: expected absolute directories by name, found {dict(self.storages)}")
        if not self.doors or not all(self.doors.values()):
            raise SettingsError(f"doors: expected protocols with templates of URLs, found {dict(self.doors)}")
        for template in (template for listed in self.doors.values() for template in listed):
            if "{path}" not in template and "{relative}" not in template:
                raise SettingsError(f"doors: expected {{path}} or {{relative}} in each URL, found {template}")
        if self.answer not in ("ready", "queued"):
            raise SettingsError(f'answer: expected "ready" or "queued", found {self.answer!r}')
        for name in _COUNTS:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise SettingsError(f"{name}: expected a whole number, 1 or more, found {value!r}")
        for name in ("pin_s", "request_s", "idle_s", "handshake_s", "keep_s"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
                raise SettingsError(f"{name}: expected seconds, more than 0, found {value!r}")
