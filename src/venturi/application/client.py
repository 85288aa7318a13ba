"""Program ``venturi-root``: it sends a read job to the server of its host, or runs the command itself.

The import of uproot, numpy and the XRootD client takes half a second of CPU time, which would dominate a batch of 200 jobs.
With ``venturi-root serve``, each job is a fork with loaded libraries. So this module has few imports.
"""

from __future__ import annotations

import os
import sys

__all__ = ["SOCKET", "SOCKET_VARIABLE", "address", "main"]

SOCKET_VARIABLE = "VENTURI_ROOT_SOCKET"
SOCKET = "@venturi-root"
"""Abstract socket (``@``) of the server. Abstract names belong to a network namespace, so to one host of a lab.

All hosts of a lab share the file system: with a path, the jobs of all workers would use one server and its network card."""

FORWARDED_PREFIXES = ("KRB5", "X509_", "XRD_", "Xrd", "HOME")
"""Prefixes of environment variables for the fork: credentials, and settings of the XRootD client."""

LENGTH_BYTES = 8
_USAGE = """\
usage: venturi-root read URL [--rate BYTES_PER_S] [--compute CORE_S]
       venturi-root ask URL ...    (like read, but only with venturi-root serve on this host)
       venturi-root write PATH --total BYTES [--names N] [--unique N] [--containers N] [--branches N] [--baskets N] [--seed N]
       venturi-root serve [SOCKET]
"""


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 1 after a failure (see standard error), 2 for wrong usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] in (["read"], ["ask"]):
        exit_code = _send_request(["read", *arguments[1:]])
        if exit_code is not None:
            return exit_code
    if arguments[:1] == ["ask"]:
        sys.stderr.write(
            "venturi-root: expected venturi-root serve on this host, found none; start it, or use venturi-root read\n"
        )
        return 1
    if arguments[:1] not in (["read"], ["write"], ["serve"]):
        sys.stderr.write(_USAGE)
        return 2
    return _run_locally(arguments)


def address(name: str) -> str:
    """Return the address of a socket: a path, or an abstract name after ``@``."""
    return "\0" + name[1:] if name.startswith("@") else name


def _run_locally(arguments: list[str]) -> int:
    from venturi.application import commands

    code, text = commands.execute(arguments)
    (sys.stderr if code else sys.stdout).write(text)
    return code


def _send_request(arguments: list[str]) -> int | None:
    """Send the command to the server of this host and return the exit code; ``None`` without a server."""
    # The C module below `socket`: the import of `socket` takes 5 ms, a fifth of the cost of a job.
    from _socket import AF_UNIX, SOCK_STREAM, socket

    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(address(os.environ.get(SOCKET_VARIABLE, SOCKET)))
    except OSError:
        return None
    forwarded = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(FORWARDED_PREFIXES)]
    request = b"\0".join(os.fsencode(text) for text in (str(len(arguments)), *arguments, *forwarded))
    connection.sendall(len(request).to_bytes(LENGTH_BYTES, "little") + request)
    response = b""
    while part := connection.recv(1 << 16):
        response += part
    code, newline, text = response.partition(b"\n")
    if not newline:
        sys.stderr.write(
            "venturi-root: expected a response of venturi-root serve, found none; check the log of the server\n"
        )
        return 1
    failed = int(code)
    (sys.stderr if failed else sys.stdout).write(text.decode())
    return failed
