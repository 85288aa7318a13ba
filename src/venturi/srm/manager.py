"""The storage resource manager: it returns one reply for each request. Read :class:`Manager` first."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from venturi.srm.doors import DoorRotation
from venturi.srm.errors import SoapError, SrmError
from venturi.srm.log import LogFile
from venturi.srm.namespace import Namespace
from venturi.srm.paths import SrmPaths
from venturi.srm.protocol import OPERATIONS, SrmStatus
from venturi.srm.reply import ClientIdentity, Reply, return_status, surls
from venturi.srm.settings import Settings
from venturi.srm.soap import Fields, Part, SoapCall
from venturi.srm.store import Store
from venturi.srm.transfers import TransferRequests

__all__ = ["ClientIdentity", "Manager", "Reply"]

_Handler = Callable[[Fields, ClientIdentity, float], Reply]


class Manager:
    """Handler of requests. Safe to use from several threads.

    Persistent state is in the store, which executes one transaction at a time.

    Parameters
    ----------
    version
        Version of this program, for srmPing.
    new_token
        Function that returns a unique name for a request.
    """

    def __init__(
        self, settings: Settings, store: Store, version: str, new_token: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self._version = version
        self._doors = DoorRotation(settings.doors)
        namespace = Namespace(settings.storages)
        transfers = TransferRequests(settings, store, namespace, self._doors, new_token)
        paths = SrmPaths(settings, namespace, transfers)
        self._handlers: dict[str, _Handler] = {
            "srmPing": lambda request, client, now_s: self._ping(),
            "srmGetTransferProtocols": lambda request, client, now_s: self._protocols(),
            "srmLs": lambda request, client, now_s: paths.ls(request),
            "srmRm": lambda request, client, now_s: paths.rm(request, client),
            "srmMkdir": lambda request, client, now_s: paths.mkdir(request),
            "srmRmdir": lambda request, client, now_s: paths.rmdir(request),
            "srmPrepareToGet": transfers.prepare_to_get,
            "srmStatusOfGetRequest": lambda *arguments: transfers.request_status_reply("get", *arguments),
            "srmReleaseFiles": transfers.release_files,
            "srmPrepareToPut": transfers.prepare_to_put,
            "srmStatusOfPutRequest": lambda *arguments: transfers.request_status_reply("put", *arguments),
            "srmPutDone": transfers.finish_put,
            "srmAbortRequest": lambda *arguments: transfers.abort(*arguments, entire_request=True),
            "srmAbortFiles": lambda *arguments: transfers.abort(*arguments, entire_request=False),
        }

    def handle(self, call: SoapCall, client: ClientIdentity, now_s: float) -> Reply:
        """Return the reply to a request that was received at ``now_s``, in seconds since 1970.

        Raises
        ------
        SoapError
            If SRM v2.2 has no such operation.
        """
        if call.operation not in OPERATIONS:
            raise SoapError(f"expected an operation of SRM v2.2, found {call.operation[:40]}")
        try:
            return self._dispatch(call, client, now_s)
        except SrmError as error:
            token = call.request.text("requestToken") or ""
            files = tuple(LogFile(surl, error.status.value) for surl in _named(call.request))
            return Reply(error.status, (return_status(error.status, str(error)),), token, files)

    def _dispatch(self, call: SoapCall, client: ClientIdentity, now_s: float) -> Reply:
        if client.account is None and call.operation != "srmPing":
            raise SrmError(
                SrmStatus.AUTHORIZATION_FAILURE, f"expected a user of the grid-mapfile, found {client.subject}"
            )
        handler = self._handlers.get(call.operation)
        if handler is None:
            raise SrmError(SrmStatus.NOT_SUPPORTED, f"{call.operation}: not supported by this server")
        return handler(call.request, client, now_s)

    def _ping(self) -> Reply:
        # It has no status, because every client that completed the handshake is allowed to send it.
        extra: list[Part] = [
            ("extraInfoArray", [("key", key), ("value", value)])
            for key, value in (("backend_type", "Venturi"), ("backend_version", self._version))
        ]
        return Reply(SrmStatus.SUCCESS, (("versionInfo", "v2.2"), ("otherInfo", extra)))

    def _protocols(self) -> Reply:
        array: list[Part] = [("protocolArray", [("transferProtocol", name)]) for name in self._doors.protocols]
        return Reply(SrmStatus.SUCCESS, (return_status(SrmStatus.SUCCESS), ("protocolInfo", array)))


def _named(request: Fields) -> list[str]:
    """Return all SURLs of a request, from any of the elements that operations use."""
    files = request.part("arrayOfFileRequests").parts("requestArray")
    return [
        *request.texts("SURL"),
        *surls(request),
        *(surl for one in files for key in ("sourceSURL", "targetSURL") for surl in one.texts(key)),
    ]
