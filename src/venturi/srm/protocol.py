"""Constants of SRM v2.2 that the server uses: status codes, operations, XML namespace.

Source: The Storage Resource Manager Interface Specification, version 2.2 (OGF GFD.129), sections 2.2 and 4 to 6.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["NAMESPACE", "OPERATIONS", "PATH", "SrmStatus"]

NAMESPACE = "http://srm.lbl.gov/StorageResourceManager"
PATH = "/srm/managerv2"
"""Path of the URL for requests."""

OPERATIONS = frozenset(
    {
        *(
            "srmPing",
            "srmGetTransferProtocols",
            "srmLs",
            "srmMkdir",
            "srmRmdir",
            "srmRm",
            "srmMv",
            "srmStatusOfLsRequest",
        ),
        *(
            "srmPrepareToGet",
            "srmStatusOfGetRequest",
            "srmReleaseFiles",
            "srmBringOnline",
            "srmStatusOfBringOnlineRequest",
        ),
        *("srmPrepareToPut", "srmStatusOfPutRequest", "srmPutDone", "srmCopy", "srmStatusOfCopyRequest"),
        *("srmAbortRequest", "srmAbortFiles", "srmSuspendRequest", "srmResumeRequest"),
        *("srmGetRequestSummary", "srmGetRequestTokens", "srmExtendFileLifeTime", "srmExtendFileLifeTimeInSpace"),
        *("srmReserveSpace", "srmStatusOfReserveSpaceRequest", "srmReleaseSpace", "srmUpdateSpace"),
        *("srmStatusOfUpdateSpaceRequest", "srmGetSpaceMetaData", "srmGetSpaceTokens", "srmPurgeFromSpace"),
        *("srmChangeSpaceForFiles", "srmStatusOfChangeSpaceForFilesRequest"),
        *("srmSetPermission", "srmCheckPermission", "srmGetPermission"),
    }
)
"""All 39 operations of version 2.2. The reply to an unsupported one is SRM_NOT_SUPPORTED."""


class SrmStatus(StrEnum):
    """Status codes that the server returns."""

    SUCCESS = "SRM_SUCCESS"
    PARTIAL_SUCCESS = "SRM_PARTIAL_SUCCESS"
    FAILURE = "SRM_FAILURE"
    AUTHORIZATION_FAILURE = "SRM_AUTHORIZATION_FAILURE"
    INVALID_REQUEST = "SRM_INVALID_REQUEST"
    INVALID_PATH = "SRM_INVALID_PATH"
    DUPLICATION_ERROR = "SRM_DUPLICATION_ERROR"
    NON_EMPTY_DIRECTORY = "SRM_NON_EMPTY_DIRECTORY"
    NO_FREE_SPACE = "SRM_NO_FREE_SPACE"
    TOO_MANY_RESULTS = "SRM_TOO_MANY_RESULTS"
    INTERNAL_ERROR = "SRM_INTERNAL_ERROR"
    NOT_SUPPORTED = "SRM_NOT_SUPPORTED"
    REQUEST_QUEUED = "SRM_REQUEST_QUEUED"
    REQUEST_INPROGRESS = "SRM_REQUEST_INPROGRESS"
    REQUEST_TIMED_OUT = "SRM_REQUEST_TIMED_OUT"
    FILE_PINNED = "SRM_FILE_PINNED"
    SPACE_AVAILABLE = "SRM_SPACE_AVAILABLE"
    FILE_BUSY = "SRM_FILE_BUSY"
    FILE_LIFETIME_EXPIRED = "SRM_FILE_LIFETIME_EXPIRED"
    RELEASED = "SRM_RELEASED"
    ABORTED = "SRM_ABORTED"
