"""A short conversation in lines of text with a server, from a machine of the lab: banners, FTP replies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from venturi.testbed.services.base import Machine

__all__ = ["hear"]

_LIMIT_S = 2.0

# Runs on the machine, in the network namespace that only its processes see. A reply goes on while its lines are of the form
# `220-text` (RFC 959, section 4.2).
_TALK = """
import socket, sys
address, port, first, *lines = sys.argv[1:]
with socket.create_connection((address, int(port)), 1.0) as link:
    link.settimeout(1.0)
    stream = link.makefile("rw", newline="", errors="replace")
    for line in [*([None] if first else []), *lines]:
        if line is not None:
            stream.write(line + "\\r\\n")
            stream.flush()
        reply = stream.readline(4096)
        while reply[:3].isdigit() and reply[3:4] != " ":
            more = stream.readline(4096)
            if not more or more[:4] == reply[:3] + " ":
                reply = more
                break
        print(reply.strip())
"""


def hear(machine: Machine, address: str, port: int, said: Sequence[tuple[str | None, str]]) -> str | None:
    """Connect, say lines, and compare the beginnings of the replies.

    Parameters
    ----------
    said
        Pairs of a line to say and how the reply to it must begin; the first line is None if the server speaks first.
        Nothing: whether it accepts connections.

    Returns
    -------
    str or None
        None if all replies were as expected, else what was expected and what was heard.
    """
    lines = [line for line, _ in said if line is not None]
    where = f"{address}:{port}"
    try:
        # -I -S: nothing of anybody's environment or site is loaded, which also makes it quick.
        first = "first" if len(lines) < len(said) else ""
        argv = [sys.executable, "-I", "-S", "-c", _TALK, address, str(port), first, *lines]
        done = machine.run(argv, timeout_s=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"{where}: no reply within {_LIMIT_S:g} s"
    replies = done.stdout.splitlines()
    for (line, expected), reply in zip(said, replies, strict=False):
        if not reply.startswith(expected):
            after = "a banner" if line is None else f"a reply to {line}"
            return f"{where}: expected {after} that begins with {expected}, found {reply or 'nothing'}"
    if done.returncode or len(replies) < len(said):
        why = done.stderr.strip().splitlines()
        return f"{where}: {why[-1] if why else 'the connection ended'}"
    return None
