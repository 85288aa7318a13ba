"""Requests for transfer URLs: srmPrepareToGet, srmPrepareToPut, and what follows them. Time comes in as an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from venturi.srm.doors import Doors
from venturi.srm.errors import SrmError
from venturi.srm.log import LogFile
from venturi.srm.namespace import Namespace
from venturi.srm.reply import Caller, Reply, return_status, status_part, surl_statuses, surls
from venturi.srm.settings import Settings
from venturi.srm.soap import Fields, Part
from venturi.srm.state import LIVE, FileRequest, Kind, State, due, file_status, promoted, request_status
from venturi.srm.store import Store, StoredRequest
from venturi.srm.surl import surl_path
from venturi.srm.words import Status

__all__ = ["Transfers"]

_POLL_S = 1
"""What who waits is told to wait, whole seconds: nobody knows when a slot becomes free."""
_CLOCK_S = 0.05
"""Time stamps of files are those of the kernel's last tick, and may lie so much behind the clock."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A file of a request as it was written."""

    surl: str
    size_bytes: int | None = None


class Transfers:
    """Answers all requests about transfer URLs.

    Parameters
    ----------
    new_token
        Makes a name that no request has.
    """

    def __init__(
        self, settings: Settings, store: Store, namespace: Namespace, doors: Doors, new_token: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._store = store
        self._namespace = namespace
        self._doors = doors
        self._new_token = new_token

    def prepare_to_get(self, request: Fields, caller: Caller, now_s: float) -> Reply:
        """Answer srmPrepareToGet."""
        array = request.part("arrayOfFileRequests").parts("requestArray")
        asked = [_Asked(one.text("sourceSURL") or "") for one in array]
        return self._prepare("get", asked, request, caller, now_s)

    def prepare_to_put(self, request: Fields, caller: Caller, now_s: float) -> Reply:
        """Answer srmPrepareToPut."""
        array = request.part("arrayOfFileRequests").parts("requestArray")
        asked = [_Asked(one.text("targetSURL") or "", _whole(one.text("expectedFileSize"))) for one in array]
        return self._prepare("put", asked, request, caller, now_s)

    def status_of(self, kind: Kind, request: Fields, caller: Caller, now_s: float) -> Reply:
        """Answer srmStatusOfGetRequest and srmStatusOfPutRequest, of all files or of those that are named."""
        with self._store.transaction():
            stored = self._own(request, caller, kind)
            self.advance(now_s)
            files = self._named(stored.token, surls(request, _NAMED[kind]))
        return _answer(kind, stored.token, files, now_s, with_token=False)

    def put_done(self, request: Fields, caller: Caller, now_s: float) -> Reply:
        """Answer srmPutDone: what was announced must be there."""
        with self._store.transaction():
            stored = self._own(request, caller, "put")
            self.advance(now_s)
            files = self._named(stored.token, surls(request))
            ended = [self._finish(file) for file in files]
            self._store.change([file for file, _, _ in ended])
            self.advance(now_s)
        return _outcome([(file.surl, status, explanation) for file, status, explanation in ended], stored.token)

    def release_files(self, request: Fields, caller: Caller, now_s: float) -> Reply:
        """Answer srmReleaseFiles: by token, by token and SURLs, or by SURLs alone, which releases all that the caller has of them."""
        named = surls(request)
        with self._store.transaction():
            if request.text("requestToken"):
                token = self._own(request, caller, "get").token
                files = self._named(token, named)
            elif named:
                token, files = "", [file for surl in named for file in self._reading(surl, caller)]
            else:
                raise SrmError(Status.INVALID_REQUEST, "expected a requestToken or SURLs, found neither")
            released = [file for file in files if file.state in LIVE]
            self._store.change(replace(file, state=State.RELEASED) for file in released)
            self.advance(now_s)
        statuses = {(file.token, file.position): Status.SUCCESS for file in released}
        return _outcome(
            [(f.surl, statuses.get((f.token, f.position), _unreleased(f)), None) for f in files], token
        )  # fmt: skip

    def abort(self, request: Fields, caller: Caller, now_s: float, *, whole: bool) -> Reply:
        """Answer srmAbortRequest (whole) and srmAbortFiles; what had been written of an upload is removed."""
        with self._store.transaction():
            stored = self._own(request, caller, None)
            files = self._named(stored.token, [] if whole else surls(request))
            if not whole and not surls(request):
                raise SrmError(Status.INVALID_REQUEST, "expected SURLs, found none")
            self._abort([file for file in files if file.state in LIVE])
            self.advance(now_s)
        reply = _outcome([(file.surl, Status.SUCCESS, None) for file in files], stored.token)
        return replace(reply, parts=(return_status(Status.SUCCESS),)) if whole else reply

    def abort_writing(self, path: PurePosixPath, caller: Caller) -> None:
        """Give up the caller's uploads to a path, which is going to be removed.

        Raises
        ------
        SrmError
            SRM_FILE_BUSY, if it is somebody else's.
        """
        with self._store.transaction():
            files = self._store.writing(path.as_posix())
            for file in files:
                stored = self._store.request(file.token)
                if stored is None or stored.subject != caller.subject:
                    raise SrmError(
                        Status.FILE_BUSY, f"{path}: expected a file that nobody writes, found one being written"
                    )
            self._store.change(replace(file, state=State.ABORTED) for file in files)

    def busy(self, path: str) -> bool:
        """Return whether a path is being written."""
        return bool(self._store.writing(path))

    def advance(self, now_s: float) -> None:
        """End what is overdue, and give free slots to those who wait, the first come first."""
        with self._store.transaction():
            ended = [(file, after) for file in self._store.overdue(now_s) if (after := due(file, now_s)) is not None]
            for file, _ in ended:
                self._remove_partial(file)
            self._store.change(after for _, after in ended)
            free = self._settings.ready - self._store.count(State.READY)
            if free > 0:
                self._store.change([self._promote(file, now_s) for file in self._store.queued(free)])

    # ---- requests

    def _prepare(self, kind: Kind, asked: Sequence[_Asked], request: Fields, caller: Caller, now_s: float) -> Reply:
        most = self._settings.files_per_request
        if not 1 <= len(asked) <= most:
            raise SrmError(Status.INVALID_REQUEST, f"expected 1 to {most} files, found {len(asked)}")
        wanted = request.part("transferParameters").part("arrayOfTransferProtocols").texts("stringArray")
        protocol = self._doors.protocol(wanted)
        overwrite = (request.text("overwriteOption") or "NEVER") != "NEVER"
        lifetime_s = _time(request.text("desiredPinLifeTime"), self._settings.pin_s)
        until_s = now_s + _time(request.text("desiredTotalRequestTime"), self._settings.request_s)
        with self._store.transaction():
            token = f"{kind}:{self._new_token()}"
            self.advance(now_s)
            # Memory of what is over is not for ever, and a request is a good time to look.
            self._store.forget(now_s - self._settings.keep_s)
            waiting = self._store.count(State.QUEUED)
            if waiting + len(asked) > self._settings.queue:
                raise SrmError(
                    Status.INTERNAL_ERROR,
                    f"expected room for {len(asked)} more files in the queue, found {waiting} waiting",
                )
            taken: set[str] = set()
            files = [
                self._admit(FileRequest(token, position, kind, one.surl, "", protocol, State.QUEUED, until_s, one.size_bytes), overwrite, taken)
                for position, one in enumerate(asked)
            ]  # fmt: skip
            self._store.add(StoredRequest(token, kind, caller.subject, now_s, lifetime_s), files)
            if self._settings.answer == "ready":
                self.advance(now_s)
                files = self._store.files(token)
        return _answer(kind, token, files, now_s, with_token=True)

    def _admit(self, file: FileRequest, overwrite: bool, taken: set[str]) -> FileRequest:
        """Return a file that may wait for its slot, or one that has failed at once."""
        try:
            path = surl_path(file.surl, self._settings.hosts)
            # Before anything is told of the path: whether it is one of ours at all.
            self._namespace.relative(path)
            if self._store.writing(path.as_posix()) or (file.kind == "put" and path.as_posix() in taken):
                raise SrmError(
                    Status.FILE_BUSY, f"{path}: expected a file that nobody writes, found one being written"
                )
            taken.add(path.as_posix())
            if file.kind == "put":
                self._namespace.check_writable(path, file.size_bytes, overwrite=overwrite)
                return replace(file, path=path.as_posix())
            found = self._namespace.entry(path)
            if found.kind != "FILE":
                raise SrmError(Status.INVALID_PATH, f"{path}: expected a file, found a folder")
            return replace(file, path=found.path, size_bytes=found.size_bytes)
        except SrmError as error:
            return replace(file, state=State.FAILED, status=error.status, explanation=str(error))

    def _promote(self, file: FileRequest, now_s: float) -> FileRequest:
        stored = self._store.request(file.token)
        lifetime_s = self._settings.pin_s if stored is None else stored.lifetime_s
        try:
            relative = self._namespace.relative(PurePosixPath(file.path))
            return promoted(file, self._doors.turl(file.protocol, file.path, relative), now_s, lifetime_s)
        except SrmError as error:  # the server was started again with other places or doors
            return replace(file, state=State.FAILED, status=error.status, explanation=str(error))

    def _finish(self, file: FileRequest) -> tuple[FileRequest, Status, str | None]:
        """Return a file whose upload is said to be done, and what to answer."""
        if file.state is State.DONE:
            return file, Status.DUPLICATION_ERROR, "expected an upload under way, found that it was done before"
        if file.state is not State.READY:
            return file, file_status(file), "expected an upload under way, found none"
        try:
            found = self._namespace.entry(PurePosixPath(file.path))
        except SrmError as error:
            return file, error.status, str(error)
        if file.size_bytes and found.size_bytes != file.size_bytes:
            # It stays as it is: the client may send it again, or give it up.
            told = f"{file.path}: expected the {file.size_bytes} bytes that were announced, found {found.size_bytes}"
            return file, Status.FAILURE, told
        return replace(file, state=State.DONE, size_bytes=found.size_bytes), Status.SUCCESS, None

    # ---- files

    def _own(self, request: Fields, caller: Caller, kind: Kind | None) -> StoredRequest:
        token = request.text("requestToken") or ""
        stored = self._store.request(token)
        if stored is None or kind not in (None, stored.kind):
            raise SrmError(
                Status.INVALID_REQUEST, f"expected the token of a request of this kind, found {token[:100] or 'none'}"
            )
        if stored.subject != caller.subject:
            raise SrmError(
                Status.AUTHORIZATION_FAILURE, f"expected a request of one's own, found somebody else's: {token}"
            )
        return stored

    def _named(self, token: str, named: Sequence[str]) -> list[FileRequest]:
        """Return the files of a request, or of them those that are named; one that is not in it has failed."""
        files = self._store.files(token)
        if not named:
            return files
        known: dict[str, list[FileRequest]] = {}
        for file in files:
            for name in {file.surl, file.path} - {""}:
                known.setdefault(name, []).append(file)
        found = ((surl, known.get(surl) or known.get(self._path(surl))) for surl in dict.fromkeys(named))
        return [file for surl, own in found for file in own or [_stranger(token, surl)]]

    def _path(self, surl: str) -> str:
        try:
            return surl_path(surl, self._settings.hosts).as_posix()
        except SrmError:
            return ""

    def _reading(self, surl: str, caller: Caller) -> list[FileRequest]:
        found = self._store.reading(self._path(surl), caller.subject)
        return found or [_stranger("", surl)]

    def _abort(self, files: Iterable[FileRequest]) -> None:
        aborted = list(files)
        for file in aborted:
            self._remove_partial(file)
        self._store.change(replace(file, state=State.ABORTED) for file in aborted)

    def _remove_partial(self, file: FileRequest) -> None:
        """Remove what was written of an upload that nobody finished; a file that was there before and was not touched stays."""
        if file.kind != "put" or file.state is not State.READY:
            return
        stored = self._store.request(file.token)
        path = PurePosixPath(file.path)
        try:
            if stored is None or self._namespace.entry(path).modified_s >= stored.created_s - _CLOCK_S:
                self._namespace.remove(path)
        except SrmError:
            return  # it never came to be, or somebody was faster


_NAMED: dict[Kind, str] = {"get": "arrayOfSourceSURLs", "put": "arrayOfTargetSURLs"}


def _stranger(token: str, surl: str) -> FileRequest:
    told = "expected a file of this request, found another"
    return FileRequest(
        token, -1, "get", surl, "", "", State.FAILED, 0.0, status=Status.INVALID_PATH, explanation=told
    )


def _unreleased(file: FileRequest) -> Status:
    status = file_status(file)
    return Status.SUCCESS if status is Status.RELEASED else status


def _answer(kind: Kind, token: str, files: Sequence[FileRequest], now_s: float, *, with_token: bool) -> Reply:
    statuses = [file_status(file) for file in files]
    status = request_status(statuses)
    array: list[Part] = [("statusArray", _file_parts(kind, file, now_s)) for file in files]
    failed = next((file.explanation for file in files if file.explanation), None)
    parts: tuple[Part, ...] = (
        return_status(status, failed if status in (Status.FAILURE, Status.PARTIAL_SUCCESS) else None),
        ("requestToken", token if with_token else None),
        ("arrayOfFileStatuses", array),
    )
    logged = tuple(LogFile(file.surl, one.value, file.turl) for file, one in zip(files, statuses, strict=True))
    return Reply(status, parts, token, logged)


def _file_parts(kind: Kind, file: FileRequest, now_s: float) -> list[Part]:
    status = file_status(file)
    left_s = max(0, int(file.until_s - now_s)) if file.state is State.READY else None
    turl = file.turl if file.state is State.READY else None
    wait_s = _POLL_S if file.state is State.QUEUED else None
    told = status_part(status, file.explanation)
    if kind == "get":
        return [
            *(("sourceSURL", file.surl), ("fileSize", file.size_bytes), told),
            *(("estimatedWaitTime", wait_s), ("remainingPinTime", left_s), ("transferURL", turl)),
        ]
    return [
        *(("SURL", file.surl), told, ("fileSize", file.size_bytes), ("estimatedWaitTime", wait_s)),
        *(("remainingPinLifetime", left_s), ("transferURL", turl)),
    ]


def _outcome(found: Sequence[tuple[str, Status, str | None]], token: str) -> Reply:
    status = request_status(status for _, status, _ in found)
    told = next((explanation for _, _, explanation in found if explanation), None)
    parts = (return_status(status, told), surl_statuses(found))
    return Reply(status, parts, token, tuple(LogFile(surl, one.value) for surl, one, _ in found))


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


def _time(text: str | None, most_s: float) -> float:
    """Return a time that a client asks for, at most what the server gives; 0 and less ask for nothing."""
    asked = _whole(text)
    return min(float(asked), most_s) if asked else most_s
