"""Requests about paths: srmLs, srmRm, srmMkdir, srmRmdir."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from venturi.srm.errors import SrmError
from venturi.srm.log import LogFile
from venturi.srm.namespace import DirectoryEntry, Namespace
from venturi.srm.protocol import SrmStatus
from venturi.srm.reply import ClientIdentity, Reply, return_status, status_part, surl_statuses, surls
from venturi.srm.settings import Settings
from venturi.srm.soap import Fields, Part
from venturi.srm.state import request_status
from venturi.srm.surl import surl_path
from venturi.srm.transfers import TransferRequests

__all__ = ["SrmPaths"]

_PERMISSIONS = ("NONE", "X", "W", "WX", "R", "RX", "RW", "RWX")
_LEVELS = 64
"""Maximum depth of a listing of all levels."""


@dataclass
class _Listing:
    """State of a listing: number of entries to skip and to return, and whether it was truncated."""

    detailed: bool
    skip: int
    remaining: int
    cut: bool = False


class SrmPaths:
    """Handler of all requests about paths."""

    def __init__(self, settings: Settings, namespace: Namespace, transfers: TransferRequests) -> None:
        self._settings = settings
        self._namespace = namespace
        self._transfers = transfers

    def ls(self, request: Fields) -> Reply:
        """Handle srmLs synchronously, because a listing is limited by the setting ``entries``."""
        named = surls(request)
        if not named:
            raise SrmError(SrmStatus.INVALID_REQUEST, "expected SURLs, found none")
        levels = _number(request.text("numOfLevels"), 1)
        if request.text("allLevelRecursive") in ("true", "1"):
            levels = _LEVELS
        count = _number(request.text("count"), 0)
        max_entries = self._settings.entries
        listing = _Listing(
            detailed=request.text("fullDetailedList") in ("true", "1"),
            skip=_number(request.text("offset"), 0),
            remaining=min(count or max_entries, max_entries),
        )
        found = [self._detail(surl, min(levels, _LEVELS), listing) for surl in named]
        statuses = [status for status, _, _ in found]
        status = request_status(statuses)
        if listing.cut and status is SrmStatus.SUCCESS and not count:
            status = SrmStatus.TOO_MANY_RESULTS
        first = next((explanation for _, explanation, _ in found if explanation), None)
        array: list[Part] = [("pathDetailArray", parts) for _, _, parts in found]
        logged = tuple(LogFile(surl, one.value) for surl, one in zip(named, statuses, strict=True))
        return Reply(status, (return_status(status, first), ("details", array)), files=logged)

    def rm(self, request: Fields, client: ClientIdentity) -> Reply:
        """Handle srmRm. The client's own uploads to a removed path are aborted."""
        named = surls(request)
        if not named:
            raise SrmError(SrmStatus.INVALID_REQUEST, "expected SURLs, found none")
        found = [(surl, *self._remove(surl, client)) for surl in named]
        status = request_status(status for _, status, _ in found)
        first = next((explanation for _, _, explanation in found if explanation), None)
        logged = tuple(LogFile(surl, one.value) for surl, one, _ in found)
        return Reply(status, (return_status(status, first), surl_statuses(found)), files=logged)

    def mkdir(self, request: Fields) -> Reply:
        """Handle srmMkdir."""
        surl = request.text("SURL") or ""
        self._namespace.create_directory(self._path(surl))
        return _result(surl)

    def rmdir(self, request: Fields) -> Reply:
        """Handle srmRmdir."""
        surl = request.text("SURL") or ""
        self._namespace.remove_directory(self._path(surl), recursive=request.text("recursive") in ("true", "1"))
        return _result(surl)

    def _path(self, surl: str) -> PurePosixPath:
        path = surl_path(surl, self._settings.hosts)
        self._namespace.relative(path)
        return path

    def _remove(self, surl: str, client: ClientIdentity) -> tuple[SrmStatus, str | None]:
        try:
            path = self._path(surl)
            self._transfers.abort_writing(path, client)
            self._namespace.remove(path)
        except SrmError as error:
            return error.status, str(error)
        return SrmStatus.SUCCESS, None

    def _detail(self, surl: str, levels: int, listing: _Listing) -> tuple[SrmStatus, str | None, list[Part]]:
        try:
            path = self._path(surl)
            entry = self._namespace.entry(path)
            below = self._below(path, levels, listing) if entry.kind == "DIRECTORY" and levels else None
        except SrmError as error:
            return error.status, str(error), [("path", surl), status_part(error.status, str(error))]
        status = self._status(entry)
        return status, None, _entry_parts(entry, status, below, detailed=listing.detailed)

    def _below(self, path: PurePosixPath, levels: int, listing: _Listing) -> list[Part]:
        found: list[Part] = []
        for entry in self._namespace.entries(path):
            if listing.skip:
                listing.skip -= 1
                continue
            if not listing.remaining:
                listing.cut = True
                break
            listing.remaining -= 1
            deeper = None
            if entry.kind == "DIRECTORY" and levels > 1:
                deeper = self._below(PurePosixPath(entry.path), levels - 1, listing)
            parts = _entry_parts(entry, self._status(entry), deeper, detailed=listing.detailed)
            found.append(("pathDetailArray", parts))
        return found

    def _status(self, entry: DirectoryEntry) -> SrmStatus:
        busy = entry.kind == "FILE" and self._transfers.busy(entry.path)
        return SrmStatus.FILE_BUSY if busy else SrmStatus.SUCCESS


def _result(surl: str) -> Reply:
    return Reply(
        SrmStatus.SUCCESS, (return_status(SrmStatus.SUCCESS),), files=(LogFile(surl, SrmStatus.SUCCESS.value),)
    )


def _entry_parts(
    entry: DirectoryEntry, status: SrmStatus, below: Iterable[Part] | None, *, detailed: bool
) -> list[Part]:
    """Return the elements of an entry in the order of TMetaDataPathDetail."""
    time = datetime.fromtimestamp(entry.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    user, group, other = (_PERMISSIONS[entry.mode >> shift & 7] for shift in (6, 3, 0))
    more: list[Part] = [
        ("createdAtTime", time),
        ("lastModificationTime", time),
        ("fileStorageType", "PERMANENT"),
        ("retentionPolicyInfo", [("retentionPolicy", "REPLICA"), ("accessLatency", "ONLINE")]),
        ("fileLocality", "ONLINE" if entry.kind == "FILE" else None),
    ]
    permissions: list[Part] = [
        ("ownerPermission", [("userID", entry.owner), ("mode", user)]),
        ("groupPermission", [("groupID", entry.group), ("mode", group)]),
        ("otherPermission", other),
    ]
    array = list(below) if below is not None else []
    return [
        *(("path", entry.path), status_part(status), ("size", entry.size_bytes if entry.kind == "FILE" else 0)),
        *(more if detailed else ()),
        ("type", entry.kind),
        *(permissions if detailed else ()),
        ("arrayOfSubPaths", array or None),
    ]


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SrmError(SrmStatus.INVALID_REQUEST, f"expected a whole number, 0 or more, found {text[:20]}")
    return int(text)
