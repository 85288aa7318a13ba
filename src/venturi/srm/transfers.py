"""Requests for transfer URLs: srmPrepareToGet, srmPrepareToPut, and their follow-up requests. The time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from venturi.srm.doors import DoorRotation
from venturi.srm.errors import SrmError
from venturi.srm.log import LogFile
from venturi.srm.namespace import Namespace
from venturi.srm.protocol import SrmStatus
from venturi.srm.reply import ClientIdentity, Reply, return_status, status_part, surl_statuses, surls
from venturi.srm.settings import Settings
from venturi.srm.soap import Fields, Part
from venturi.srm.state import (
    LIVE,
    FileRequest,
    Kind,
    State,
    activate_queued,
    expire_if_due,
    file_status,
    request_status,
)
from venturi.srm.store import Store, StoredRequest
from venturi.srm.surl import surl_path

__all__ = ["TransferRequests"]

_POLL_S = 1
"""Waiting time in whole seconds for clients with queued files, because the time of the next free slot is unknown."""
_CLOCK_S = 0.05
"""Maximum lag of file timestamps behind the clock, because the kernel uses the time of its last tick."""


@dataclass(frozen=True, slots=True)
class _RequestedFile:
    """A file in a request, as sent by the client."""

    surl: str
    size_bytes: int | None = None


class TransferRequests:
    """Handler of all requests about transfer URLs.

    Parameters
    ----------
    new_token
        Function that returns a unique name for a request.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        namespace: Namespace,
        doors: DoorRotation,
        new_token: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._store = store
        self._namespace = namespace
        self._doors = doors
        self._new_token = new_token

    def prepare_to_get(self, request: Fields, client: ClientIdentity, now_s: float) -> Reply:
        """Handle srmPrepareToGet."""
        array = request.part("arrayOfFileRequests").parts("requestArray")
        requested = [_RequestedFile(one.text("sourceSURL") or "") for one in array]
        return self._prepare("get", requested, request, client, now_s)

    def prepare_to_put(self, request: Fields, client: ClientIdentity, now_s: float) -> Reply:
        """Handle srmPrepareToPut."""
        array = request.part("arrayOfFileRequests").parts("requestArray")
        requested = [
            _RequestedFile(one.text("targetSURL") or "", _parse_count(one.text("expectedFileSize"))) for one in array
        ]
        return self._prepare("put", requested, request, client, now_s)

    def request_status_reply(self, kind: Kind, request: Fields, client: ClientIdentity, now_s: float) -> Reply:
        """Handle srmStatusOfGetRequest and srmStatusOfPutRequest, for all files or the named files."""
        with self._store.transaction():
            stored = self._own_request(request, client, kind)
            self.advance(now_s)
            files = self._named(stored.token, surls(request, _SURL_ARRAYS[kind]))
        return _prepare_reply(kind, stored.token, files, now_s, with_token=False)

    def finish_put(self, request: Fields, client: ClientIdentity, now_s: float) -> Reply:
        """Handle srmPutDone. The file must exist with its announced size."""
        with self._store.transaction():
            stored = self._own_request(request, client, "put")
            self.advance(now_s)
            files = self._named(stored.token, surls(request))
            ended = [self._finish_file(file) for file in files]
            self._store.change([file for file, _, _ in ended])
            self.advance(now_s)
        return _surl_reply([(file.surl, status, explanation) for file, status, explanation in ended], stored.token)

    def release_files(self, request: Fields, client: ClientIdentity, now_s: float) -> Reply:
        """Handle srmReleaseFiles by token, by token and SURLs, or by SURLs alone.

        SURLs alone release all of the client's gets of them.
        """
        named = surls(request)
        with self._store.transaction():
            if request.text("requestToken"):
                token = self._own_request(request, client, "get").token
                files = self._named(token, named)
            elif named:
                token, files = "", [file for surl in named for file in self._pinned_files(surl, client)]
            else:
                raise SrmError(SrmStatus.INVALID_REQUEST, "expected a requestToken or SURLs, found neither")
            released = [file for file in files if file.state in LIVE]
            self._store.change(replace(file, state=State.RELEASED) for file in released)
            self.advance(now_s)
        statuses = {(file.token, file.position): SrmStatus.SUCCESS for file in released}
        return _surl_reply(
            [(f.surl, statuses.get((f.token, f.position), _release_status(f)), None) for f in files], token
        )  # fmt: skip

    def abort(self, request: Fields, client: ClientIdentity, now_s: float, *, entire_request: bool) -> Reply:
        """Handle srmAbortRequest (``entire_request``) and srmAbortFiles. Partial uploads are removed."""
        with self._store.transaction():
            stored = self._own_request(request, client, None)
            files = self._named(stored.token, [] if entire_request else surls(request))
            if not entire_request and not surls(request):
                raise SrmError(SrmStatus.INVALID_REQUEST, "expected SURLs, found none")
            self._abort([file for file in files if file.state in LIVE])
            self.advance(now_s)
        reply = _surl_reply([(file.surl, SrmStatus.SUCCESS, None) for file in files], stored.token)
        return replace(reply, parts=(return_status(SrmStatus.SUCCESS),)) if entire_request else reply

    def abort_writing(self, path: PurePosixPath, client: ClientIdentity) -> None:
        """Abort the client's uploads to a path that will be removed.

        Raises
        ------
        SrmError
            SRM_FILE_BUSY, if another client uploads to the path.
        """
        with self._store.transaction():
            files = self._store.writing(path.as_posix())
            for file in files:
                stored = self._store.request(file.token)
                if stored is None or stored.subject != client.subject:
                    raise SrmError(
                        SrmStatus.FILE_BUSY,
                        f"{path}: expected a file that is not being written, found an upload in progress",
                    )
            self._store.change(replace(file, state=State.ABORTED) for file in files)

    def busy(self, path: str) -> bool:
        """Return whether an upload to a path is in progress."""
        return bool(self._store.writing(path))

    def advance(self, now_s: float) -> None:
        """Expire overdue files, and give free slots to queued files, the oldest first."""
        with self._store.transaction():
            ended = [
                (file, after)
                for file in self._store.overdue(now_s)
                if (after := expire_if_due(file, now_s)) is not None
            ]
            for file, _ in ended:
                self._remove_partial(file)
            self._store.change(after for _, after in ended)
            free = self._settings.ready - self._store.count(State.READY)
            if free > 0:
                self._store.change([self._activate(file, now_s) for file in self._store.queued(free)])

    # ---- requests

    def _prepare(
        self, kind: Kind, requested: Sequence[_RequestedFile], request: Fields, client: ClientIdentity, now_s: float
    ) -> Reply:
        max_files = self._settings.files_per_request
        if not 1 <= len(requested) <= max_files:
            raise SrmError(SrmStatus.INVALID_REQUEST, f"expected 1 to {max_files} files, found {len(requested)}")
        protocols = request.part("transferParameters").part("arrayOfTransferProtocols").texts("stringArray")
        protocol = self._doors.protocol(protocols)
        overwrite = (request.text("overwriteOption") or "NEVER") != "NEVER"
        lifetime_s = _parse_duration(request.text("desiredPinLifeTime"), self._settings.pin_s)
        until_s = now_s + _parse_duration(request.text("desiredTotalRequestTime"), self._settings.request_s)
        with self._store.transaction():
            token = f"{kind}:{self._new_token()}"
            self.advance(now_s)
            # Finished requests are not kept forever. A new request is a good time to remove old ones.
            self._store.forget(now_s - self._settings.keep_s)
            waiting = self._store.count(State.QUEUED)
            if waiting + len(requested) > self._settings.queue:
                raise SrmError(
                    SrmStatus.INTERNAL_ERROR,
                    f"expected capacity for {len(requested)} more files in the queue, found {waiting} queued files",
                )
            paths: set[str] = set()
            files = [
                self._admit(FileRequest(token, position, kind, one.surl, "", protocol, State.QUEUED, until_s, one.size_bytes), overwrite, paths)
                for position, one in enumerate(requested)
            ]  # fmt: skip
            self._store.add(StoredRequest(token, kind, client.subject, now_s, lifetime_s), files)
            if self._settings.answer == "ready":
                self.advance(now_s)
                files = self._store.files(token)
        return _prepare_reply(kind, token, files, now_s, with_token=True)

    def _admit(self, file: FileRequest, overwrite: bool, paths: set[str]) -> FileRequest:
        """Return a file that can wait for a slot, or that has failed immediately."""
        try:
            path = surl_path(file.surl, self._settings.hosts)
            # Check the storage first, so that errors reveal nothing about other paths.
            self._namespace.relative(path)
            if self._store.writing(path.as_posix()) or (file.kind == "put" and path.as_posix() in paths):
                raise SrmError(
                    SrmStatus.FILE_BUSY,
                    f"{path}: expected a file that is not being written, found an upload in progress",
                )
            paths.add(path.as_posix())
            if file.kind == "put":
                self._namespace.check_writable(path, file.size_bytes, overwrite=overwrite)
                return replace(file, path=path.as_posix())
            found = self._namespace.entry(path)
            if found.kind != "FILE":
                raise SrmError(SrmStatus.INVALID_PATH, f"{path}: expected a file, found a directory")
            return replace(file, path=found.path, size_bytes=found.size_bytes)
        except SrmError as error:
            return replace(file, state=State.FAILED, status=error.status, explanation=str(error))

    def _activate(self, file: FileRequest, now_s: float) -> FileRequest:
        stored = self._store.request(file.token)
        lifetime_s = self._settings.pin_s if stored is None else stored.lifetime_s
        try:
            relative = self._namespace.relative(PurePosixPath(file.path))
            return activate_queued(file, self._doors.turl(file.protocol, file.path, relative), now_s, lifetime_s)
        except SrmError as error:  # the server was restarted with other storages or doors
            return replace(file, state=State.FAILED, status=error.status, explanation=str(error))

    def _finish_file(self, file: FileRequest) -> tuple[FileRequest, SrmStatus, str | None]:
        """Return a file after srmPutDone, with the status and explanation for the reply."""
        if file.state is State.DONE:
            return file, SrmStatus.DUPLICATION_ERROR, "expected an upload in progress, found a completed one"
        if file.state is not State.READY:
            return file, file_status(file), "expected an upload in progress, found none"
        try:
            found = self._namespace.entry(PurePosixPath(file.path))
        except SrmError as error:
            return file, error.status, str(error)
        if file.size_bytes and found.size_bytes != file.size_bytes:
            # The file stays unchanged: the client can send it again or abort.
            explanation = (
                f"{file.path}: expected the {file.size_bytes} bytes of the request, found {found.size_bytes}"
            )
            return file, SrmStatus.FAILURE, explanation
        return replace(file, state=State.DONE, size_bytes=found.size_bytes), SrmStatus.SUCCESS, None

    # ---- files

    def _own_request(self, request: Fields, client: ClientIdentity, kind: Kind | None) -> StoredRequest:
        token = request.text("requestToken") or ""
        stored = self._store.request(token)
        if stored is None or kind not in (None, stored.kind):
            raise SrmError(
                SrmStatus.INVALID_REQUEST,
                f"expected the token of a request of this kind, found {token[:100] or 'none'}",
            )
        if stored.subject != client.subject:
            raise SrmError(
                SrmStatus.AUTHORIZATION_FAILURE,
                f"expected a request of this user, found a request of another user: {token}",
            )
        return stored

    def _named(self, token: str, named: Sequence[str]) -> list[FileRequest]:
        """Return all files of a request, or only the named ones. A name that is not in the request is returned as failed."""
        files = self._store.files(token)
        if not named:
            return files
        known: dict[str, list[FileRequest]] = {}
        for file in files:
            for name in {file.surl, file.path} - {""}:
                known.setdefault(name, []).append(file)
        found = ((surl, known.get(surl) or known.get(self._path(surl))) for surl in dict.fromkeys(named))
        return [file for surl, files_of_surl in found for file in files_of_surl or [_unknown_file(token, surl)]]

    def _path(self, surl: str) -> str:
        try:
            return surl_path(surl, self._settings.hosts).as_posix()
        except SrmError:
            return ""

    def _pinned_files(self, surl: str, client: ClientIdentity) -> list[FileRequest]:
        found = self._store.reading(self._path(surl), client.subject)
        return found or [_unknown_file("", surl)]

    def _abort(self, files: Iterable[FileRequest]) -> None:
        aborted = list(files)
        for file in aborted:
            self._remove_partial(file)
        self._store.change(replace(file, state=State.ABORTED) for file in aborted)

    def _remove_partial(self, file: FileRequest) -> None:
        """Remove the partial file of an unfinished upload. A file that existed before and was not changed stays."""
        if file.kind != "put" or file.state is not State.READY:
            return
        stored = self._store.request(file.token)
        path = PurePosixPath(file.path)
        try:
            if stored is None or self._namespace.entry(path).modified_s >= stored.created_s - _CLOCK_S:
                self._namespace.remove(path)
        except SrmError:
            return  # the file was never created, or has already been removed


_SURL_ARRAYS: dict[Kind, str] = {"get": "arrayOfSourceSURLs", "put": "arrayOfTargetSURLs"}


def _unknown_file(token: str, surl: str) -> FileRequest:
    explanation = "expected a file of this request, found another"
    return FileRequest(
        token, -1, "get", surl, "", "", State.FAILED, 0.0, status=SrmStatus.INVALID_PATH, explanation=explanation
    )


def _release_status(file: FileRequest) -> SrmStatus:
    status = file_status(file)
    return SrmStatus.SUCCESS if status is SrmStatus.RELEASED else status


def _prepare_reply(kind: Kind, token: str, files: Sequence[FileRequest], now_s: float, *, with_token: bool) -> Reply:
    statuses = [file_status(file) for file in files]
    status = request_status(statuses)
    array: list[Part] = [("statusArray", _file_parts(kind, file, now_s)) for file in files]
    failed = next((file.explanation for file in files if file.explanation), None)
    parts: tuple[Part, ...] = (
        return_status(status, failed if status in (SrmStatus.FAILURE, SrmStatus.PARTIAL_SUCCESS) else None),
        ("requestToken", token if with_token else None),
        ("arrayOfFileStatuses", array),
    )
    logged = tuple(LogFile(file.surl, one.value, file.turl) for file, one in zip(files, statuses, strict=True))
    return Reply(status, parts, token, logged)


def _file_parts(kind: Kind, file: FileRequest, now_s: float) -> list[Part]:
    status = file_status(file)
    remaining_s = max(0, int(file.until_s - now_s)) if file.state is State.READY else None
    turl = file.turl if file.state is State.READY else None
    wait_s = _POLL_S if file.state is State.QUEUED else None
    status_element = status_part(status, file.explanation)
    if kind == "get":
        return [
            *(("sourceSURL", file.surl), ("fileSize", file.size_bytes), status_element),
            *(("estimatedWaitTime", wait_s), ("remainingPinTime", remaining_s), ("transferURL", turl)),
        ]
    return [
        *(("SURL", file.surl), status_element, ("fileSize", file.size_bytes), ("estimatedWaitTime", wait_s)),
        *(("remainingPinLifetime", remaining_s), ("transferURL", turl)),
    ]


def _surl_reply(found: Sequence[tuple[str, SrmStatus, str | None]], token: str) -> Reply:
    status = request_status(status for _, status, _ in found)
    first = next((explanation for _, _, explanation in found if explanation), None)
    parts = (return_status(status, first), surl_statuses(found))
    return Reply(status, parts, token, tuple(LogFile(surl, one.value) for surl, one, _ in found))


def _parse_count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


def _parse_duration(text: str | None, max_s: float) -> float:
    """Return the requested time, at most the server's maximum. Without a positive request, return the maximum."""
    requested = _parse_count(text)
    return min(float(requested), max_s) if requested else max_s
