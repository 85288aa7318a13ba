"""Short text dialogues with a server, from a host of the testbed: banners, FTP replies."""

from __future__ import annotations

from collections.abc import Sequence

from venturi.testbed.host_shell import HostShell

__all__ = ["expect_replies"]

_LIMIT_S = 1.0


def expect_replies(
    shell: HostShell, address: str, port: int, dialogue: Sequence[tuple[str | None, str]]
) -> str | None:
    """Connect, send lines, and check the prefixes of the replies.

    Parameters
    ----------
    dialogue
        Pairs of a line to send and the expected prefix of its reply. The line is None if the server speaks first. Empty: only
        check that the server accepts connections.

    Returns
    -------
    str or None
        None if all replies match, otherwise the difference.
    """
    where = f"{address}:{port}"
    try:
        replies = shell.converse(address, port, [line for line, _ in dialogue], _LIMIT_S)
    except OSError as error:
        return f"{where}: {error}"
    for (line, expected), reply in zip(dialogue, replies, strict=False):
        if not reply.startswith(expected):
            after = "a banner" if line is None else f"a reply to {line}"
            return f"{where}: expected {after} that begins with {expected}, found {reply or 'nothing'}"
    if len(replies) < len(dialogue):
        return f"{where}: expected {len(dialogue)} replies, found {len(replies)}"
    return None
