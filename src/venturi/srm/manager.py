"""The storage resource manager: one request in, one reply out. The one type to read first: :class:`Manager`."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from venturi.srm.doors import Doors
from venturi.srm.errors import SoapError, SrmError
from venturi.srm.log import LogFile
from venturi.srm.namespace import Namespace
from venturi.srm.paths import Paths
from venturi.srm.reply import Caller, Reply, return_status, surls
from venturi.srm.settings import Settings
from venturi.srm.soap import Call, Fields, Part
from venturi.srm.store import Store
from venturi.srm.transfers import Transfers
from venturi.srm.words import OPERATIONS, Status

__all__ = ["Caller", "Manager", "Reply"]

_Handler = Callable[[Fields, Caller, float], Reply]


class Manager:
    """Answers requests. Safe to use from several threads: what it must not forget is in the store, one transaction at a time.

    Parameters
    ----------
    version
        Of this program, for srmPing.
    new_token
        Makes a name that no request has.
    """

    def __init__(
        self, settings: Settings, store: Store, version: str, new_token: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self._version = version
        self._doors = Doors(settings.doors)
        namespace = Namespace(settings.places)
        transfers = Transfers(settings, store, namespace, self._doors, new_token)
        paths = Paths(settings, namespace, transfers)
        self._handlers: dict[str, _Handler] = {
            "srmPing": lambda request, caller, now_s: self._ping(),
            "srmGetTransferProtocols": lambda request, caller, now_s: self._protocols(),
            "srmLs": lambda request, caller, now_s: paths.ls(request),
            "srmRm": lambda request, caller, now_s: paths.rm(request, caller),
            "srmMkdir": lambda request, caller, now_s: paths.mkdir(request),
            "srmRmdir": lambda request, caller, now_s: paths.rmdir(request),
            "srmPrepareToGet": transfers.prepare_to_get,
            "srmStatusOfGetRequest": lambda *asked: transfers.status_of("get", *asked),
            "srmReleaseFiles": transfers.release_files,
            "srmPrepareToPut": transfers.prepare_to_put,
            "srmStatusOfPutRequest": lambda *asked: transfers.status_of("put", *asked),
            "srmPutDone": transfers.put_done,
            "srmAbortRequest": lambda *asked: transfers.abort(*asked, whole=True),
            "srmAbortFiles": lambda *asked: transfers.abort(*asked, whole=False),
        }

    def handle(self, call: Call, caller: Caller, now_s: float) -> Reply:
        """Return the answer to a request that came at a time, in seconds since 1970.

        Raises
        ------
        SoapError
            If SRM v2.2 has no such operation.
        """
        if call.operation not in OPERATIONS:
            raise SoapError(f"expected an operation of SRM v2.2, found {call.operation[:40]}")
        try:
            return self._answer(call, caller, now_s)
        except SrmError as error:
            token = call.request.text("requestToken") or ""
            files = tuple(LogFile(surl, error.status.value) for surl in _named(call.request))
            return Reply(error.status, (return_status(error.status, str(error)),), token, files)

    def _answer(self, call: Call, caller: Caller, now_s: float) -> Reply:
        if caller.account is None and call.operation != "srmPing":
            raise SrmError(
                Status.AUTHORIZATION_FAILURE, f"expected a user of the grid-mapfile, found {caller.subject}"
            )
        handler = self._handlers.get(call.operation)
        if handler is None:
            raise SrmError(Status.NOT_SUPPORTED, f"{call.operation}: this server does not do that")
        return handler(call.request, caller, now_s)

    def _ping(self) -> Reply:
        # It has no status: whoever got through the handshake may ask.
        extra: list[Part] = [
            ("extraInfoArray", [("key", key), ("value", value)])
            for key, value in (("backend_type", "Venturi"), ("backend_version", self._version))
        ]
        return Reply(Status.SUCCESS, (("versionInfo", "v2.2"), ("otherInfo", extra)))

    def _protocols(self) -> Reply:
        array: list[Part] = [("protocolArray", [("transferProtocol", name)]) for name in self._doors.protocols]
        return Reply(Status.SUCCESS, (return_status(Status.SUCCESS), ("protocolInfo", array)))


def _named(request: Fields) -> list[str]:
    """Return all SURLs of a request, wherever its operation has them."""
    files = request.part("arrayOfFileRequests").parts("requestArray")
    return [
        *request.texts("SURL"),
        *surls(request),
        *(surl for one in files for key in ("sourceSURL", "targetSURL") for surl in one.texts(key)),
    ]
