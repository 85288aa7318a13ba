"""Causes of failed transfers, and whether a retry can help.

Each tool reports errors by its own messages and exit codes. The end of stderr and the exit code are matched against
patterns, from the most to the least specific, because a message often contains a general word too ("500 … No such
file").
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

__all__ = ["Cause", "cause_of"]


class Cause(StrEnum):
    """Cause of a failed attempt or transfer.

    The first six and ``CANCELLED`` are permanent: a retry would fail in the same way.
    """

    NO_SUCH_FILE = "no-such-file"
    DENIED = "denied"
    NO_SPACE = "no-space"
    NOT_AS_LISTED = "not-as-listed"
    """The source has another size or checksum than the list."""
    NO_TOOL = "no-tool"
    DEADLINE = "deadline"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CORRUPT = "corrupt"
    """The destination differs from the source."""
    INTERRUPTED = "interrupted"
    """The worker ended, was stopped, or lost its agent. Such an attempt does not count as a failure."""
    CANCELLED = "cancelled"
    OTHER = "other"

    @property
    def is_permanent(self) -> bool:
        """Whether a retry would fail in the same way."""
        return self in _PERMANENT


_PERMANENT = frozenset(
    {
        Cause.NO_SUCH_FILE,
        Cause.DENIED,
        Cause.NO_SPACE,
        Cause.NOT_AS_LISTED,
        Cause.NO_TOOL,
        Cause.DEADLINE,
        Cause.CANCELLED,
    }
)

_BY_ERRNO = {
    errno.ENOENT: Cause.NO_SUCH_FILE,
    errno.EACCES: Cause.DENIED,
    errno.EPERM: Cause.DENIED,
    errno.EROFS: Cause.DENIED,
    errno.ENOSPC: Cause.NO_SPACE,
    errno.EDQUOT: Cause.NO_SPACE,
    errno.ECONNREFUSED: Cause.UNREACHABLE,
    errno.ECONNRESET: Cause.UNREACHABLE,
    errno.EHOSTUNREACH: Cause.UNREACHABLE,
    errno.ENETUNREACH: Cause.UNREACHABLE,
    errno.ETIMEDOUT: Cause.TIMEOUT,
}
_OF_CURL = {6: Cause.UNREACHABLE, 7: Cause.UNREACHABLE, 9: Cause.DENIED, 28: Cause.TIMEOUT, 52: Cause.UNREACHABLE,
            55: Cause.UNREACHABLE, 56: Cause.UNREACHABLE, 67: Cause.DENIED, 78: Cause.NO_SUCH_FILE}  # fmt: skip
"""Unambiguous exit codes of ``curl`` (its manual, EXIT CODES)."""

_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), cause)
    for pattern, cause in (
        (r"no space left|disk quota exceeded|not enough space|insufficient storage|error: 507|\[3009\]|enospc", Cause.NO_SPACE),
        # Before the next pattern, because a missing proxy certificate is also reported as "no such file".
        (r"x509_user_|credential|certificate", Cause.DENIED),
        (r"no such file|does not exist|not found on|\[3011\]|(error|http|code|status|returned error):? ?404|404 not found|file not found",
         Cause.NO_SUCH_FILE),
        (r"permission denied|not authorized|is disallowed|access denied|read-only file system|\[3010\]|operation not permitted"
         r"|(error|http|code|status):? ?40[13]|40[13] (forbidden|unauthorized)|login (incorrect|failed)|530[ -]"
         r"|authentication (failed|error)|auth failed|no protocols left to try", Cause.DENIED),
        (r"connection refused|connection reset|connection closed|no route to host|network is unreachable|broken pipe"
         r"|could not (resolve|connect)|couldn't connect|failed to connect|unable to connect|name or service not known|end-of-file"
         r"|end of file|eof has been reached|transfer closed|connection error|socket error|operation expired|connection attempt failed"
         r"|empty reply|peer (has )?closed|\b421\b|(error|http|code|status):? ?50[234]", Cause.UNREACHABLE),
        (r"timed out|time-?out", Cause.TIMEOUT),
        (r"checksum", Cause.CORRUPT),
    )
)  # fmt: skip


def cause_of(record: Mapping[str, Any]) -> Cause:
    """Return the cause of a failed transfer in an agent's record.

    Parameters
    ----------
    record
        Record with ``outcome``, ``call`` or ``mover``, ``exit_code``, ``error``, ``stdout``, ``stderr``
        (``docs/reference/agent.md``). ``outcome`` is not ``ok``.

    Examples
    --------
    >>> cause_of({"outcome": "failed", "exit_code": 1, "error": "exit code 1: cp: cannot stat 'x': No such file or directory"})
    <Cause.NO_SUCH_FILE: 'no-such-file'>
    >>> cause_of({"outcome": "failed", "mover": "curl", "exit_code": 7, "error": "exit code 7: curl: (7)"}).is_permanent
    False
    """
    match record.get("outcome"):
        case "missing":
            return Cause.NO_TOOL
        case "timeout":
            return Cause.TIMEOUT
        case "stopped":
            return Cause.INTERRUPTED
        case "short":
            return Cause.CORRUPT
        case _:
            return _cause_of_output(record)


def _cause_of_output(record: Mapping[str, Any]) -> Cause:
    # A line of JSON holds curl's measurements. With HTTPS it contains the server's certificates, which are not the cause.
    plain_lines = [line for line in str(record.get("stdout") or "").splitlines() if not line.startswith("{")]
    text = "\n".join([*(str(record.get(name) or "") for name in ("error", "stderr")), *plain_lines])
    for pattern, cause in _PATTERNS:
        if pattern.search(text):
            return cause
    code = record.get("exit_code")
    if record.get("mover") == "curl" and code in _OF_CURL:
        return _OF_CURL[code]
    if record.get("mover") == "gfal-copy" and code in _BY_ERRNO:
        return _BY_ERRNO[code]
    return Cause.NO_TOOL if code == 127 else Cause.OTHER
