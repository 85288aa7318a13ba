"""The program ``venturi-root``: hands a reading job to the server of its host, or does what it is told by itself.

A Python that loads uproot, numpy and the XRootD client takes half a second of processor time; a batch of 200 jobs would measure
that. Where ``venturi-root serve`` runs, the libraries are there already and each job is a fork of it. So this module imports next to nothing.
"""

from __future__ import annotations

import os
import sys

__all__ = ["SOCKET", "SOCKET_VARIABLE", "address", "main"]

SOCKET_VARIABLE = "VENTURI_ROOT_SOCKET"
SOCKET = "@venturi-root"
"""Where the server of a host listens: an abstract socket, as ``@`` says, because such names belong to a network, and so to one host of a lab. All hosts
of a lab see the same files: a path would lead the jobs of all workers to the server of one of them, and through its network card."""

PASSED_ON = ("KRB5", "X509_", "XRD_", "Xrd", "HOME")
"""Beginnings of the variables of a job that its fork is to have: who it is, and how its XRootD client is set."""

LENGTH_BYTES = 8
_USAGE = """\
usage: venturi-root read URL [--rate BYTES_PER_S] [--compute CORE_S]
       venturi-root ask URL ...    (as read, but only where venturi-root serve runs)
       venturi-root write PATH --total BYTES [--names N] [--unique N] [--containers N] [--branches N] [--baskets N] [--seed N]
       venturi-root serve [SOCKET]
"""


def main(argv: list[str] | None = None) -> int:
    """Carry out a command line and return its exit code: 0, 1 after a failure that is told on standard error, 2 for a usage that is wrong."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] in (["read"], ["ask"]):
        asked = _ask(["read", *arguments[1:]])
        if asked is not None:
            return asked
    if arguments[:1] == ["ask"]:
        sys.stderr.write("expected venturi-root serve on this host, found none\n")
        return 1
    if arguments[:1] not in (["read"], ["write"], ["serve"]):
        sys.stderr.write(_USAGE)
        return 2
    return _here(arguments)


def address(name: str) -> str:
    """Return the address of a socket: a path, or a name in the network behind ``@``."""
    return "\0" + name[1:] if name.startswith("@") else name


def _here(arguments: list[str]) -> int:
    from venturi.application import commands

    code, text = commands.carry_out(arguments)
    (sys.stderr if code else sys.stdout).write(text)
    return code


def _ask(arguments: list[str]) -> int | None:
    """Have the server of this host do it; ``None`` if there is none."""
    # The C module beneath `socket`: that one takes 5 ms to import, a fifth of what such a job costs.
    from _socket import AF_UNIX, SOCK_STREAM, socket

    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(address(os.environ.get(SOCKET_VARIABLE, SOCKET)))
    except OSError:
        return None
    passed = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(PASSED_ON)]
    request = b"\0".join(os.fsencode(text) for text in (str(len(arguments)), *arguments, *passed))
    connection.sendall(len(request).to_bytes(LENGTH_BYTES, "little") + request)
    answer = b""
    while part := connection.recv(1 << 16):
        answer += part
    code, newline, text = answer.partition(b"\n")
    if not newline:
        sys.stderr.write("expected an answer of venturi-root serve, found none: the job ended before it had one\n")
        return 1
    failed = int(code)
    (sys.stderr if failed else sys.stdout).write(text.decode())
    return failed
