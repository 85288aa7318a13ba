"""Listen on an address and start a program for each connection, which it finds as its standard input and output.

A program by itself, for servers that are made for inetd: ``python listener.py ADDRESS PORT PROGRAM [ARGUMENT …]``. The
socket listens all the time, so that a client that comes between two others, or with them, is not refused. Ends with SIGTERM.
Uses the standard library only: it runs on the lab's hosts without anything else of this project.
"""

from __future__ import annotations

import socket
import subprocess
import sys

_BACKLOG = 128


def serve(address: str, port: int, argv: list[str]) -> None:
    """Accept connections until the process is ended; several are served at the same time."""
    running: list[subprocess.Popen[bytes]] = []
    with socket.create_server((address, port), backlog=_BACKLOG) as listening:
        while True:
            connection, _ = listening.accept()
            # To poll is to reap. With SIGCHLD ignored the kernel would, but the programs would inherit that.
            running = [program for program in running if program.poll() is None]
            with connection:
                # What is not for the client goes to the log.
                running.append(subprocess.Popen(argv, stdin=connection.fileno(), stdout=connection.fileno()))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
