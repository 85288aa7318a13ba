"""``python -m venturi.srm``: the server, or one srmPing.

``serve SETTINGS.json [--restart]``: with ``--restart`` a second process serves, and is started again when it ends by itself, as a service manager would.
``ping ADDRESS PORT HOST CREDENTIAL AUTHORITIES``: exit code 0 if the server answers, else 1 and why.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from venturi import __version__
from venturi.errors import VenturiError
from venturi.srm.client import ask
from venturi.srm.log import LogWriter
from venturi.srm.manager import Manager
from venturi.srm.server import Server
from venturi.srm.settings import Settings
from venturi.srm.store import Store

_RESTARTS = 100
_PAUSE_S = 0.2
_PING_S = 1.8


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m venturi.srm", description="An SRM v2.2 server.")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve")
    serving.add_argument("settings", type=Path)
    serving.add_argument("--restart", action="store_true")
    pinging = commands.add_parser("ping")
    for name in ("address", "port", "host", "credential", "authorities"):
        pinging.add_argument(name, type=int if name == "port" else str)
    told = parser.parse_args(arguments)
    try:
        if told.command == "ping":
            return _ping(told)
        return _keep(told.settings) if told.restart else _serve(told.settings)
    except (OSError, VenturiError) as error:
        sys.stderr.write(f"srm: {error}\n")
        return 1


def _serve(path: Path) -> int:
    settings = Settings.read(path)
    store, log = Store(Path(settings.database)), LogWriter(Path(settings.log))
    server = Server(settings, Manager(settings, store, __version__), log)

    def stop(number: int, frame: FrameType | None) -> None:
        # Not here: a signal may come while the log is locked by the thread that it interrupts.
        threading.Thread(target=server.close).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    log.write("start", unix_s=time.time(), pid=os.getpid(), ports=list(server.ports), version=__version__)
    server.serve()
    return 0


def _keep(path: Path) -> int:
    """Serve in a process of its own, and start it again when it ends by itself."""
    stopping = threading.Event()
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        if child is not None and child.poll() is None:
            child.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for _ in range(_RESTARTS + 1):
        child = subprocess.Popen([sys.executable, "-I", "-m", "venturi.srm", "serve", str(path)])
        code = child.wait()
        if stopping.is_set():
            return 0
        sys.stderr.write(f"srm: the server ended with exit code {code}; starting it again\n")
        sys.stderr.flush()
        stopping.wait(_PAUSE_S)
    sys.stderr.write(f"srm: it ended {_RESTARTS} times; giving up\n")
    return 1


def _ping(told: argparse.Namespace) -> int:
    answer = ask(
        "srmPing", (), address=told.address, port=told.port, host_name=told.host, credential=told.credential,
        authorities=told.authorities, timeout_s=_PING_S,
    )  # fmt: skip
    sys.stdout.write(f"{answer.text('versionInfo')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
