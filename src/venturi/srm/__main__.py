"""``python -m venturi.srm``: the server, or one srmPing."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import MISSING, fields
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
_PROGRAM = "python -m venturi.srm"
_ABOUT_SETTINGS = f"""\
Example: {_PROGRAM} serve srm.json --restart
with srm.json:
  {{"address": "127.0.0.1", "ports": [8446], "hosts": ["srm.example.org"], "places": {{"data": "/data"}},
   "doors": {{"gsiftp": ["gsiftp://door1.example.org:2811{{path}}", "gsiftp://door2.example.org:2811{{path}}"]}},
   "certificate": "hostcert.pem", "key": "hostkey.pem", "authorities": "/etc/grid-security/certificates",
   "mapfile": "grid-mapfile", "database": "srm.sqlite", "log": "srm.log"}}

All of these are needed. Others, and what they are by default:
  {", ".join(f"{one.name} {one.default}" for one in fields(Settings) if one.default is not MISSING)}
What each means stands in venturi.srm.Settings: python -c "import venturi.srm; help(venturi.srm.Settings)"
"""


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    told = _parser().parse_args(arguments)
    try:
        if told.command == "ping":
            return _ping(told)
        return _keep(told.settings) if told.restart else _serve(told.settings)
    except (OSError, VenturiError) as error:
        sys.stderr.write(f"srm: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="An SRM v2.2 server for a lab, which hands out transfer URLs; and a question whether it answers."
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    told = "Serve until SIGTERM or SIGINT."
    serving = commands.add_parser(
        "serve", help=told, description=told, epilog=_ABOUT_SETTINGS, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    serving.add_argument(
        "settings", type=Path, metavar="SETTINGS.json", help="What it serves, where and to whom; see below."
    )
    serving.add_argument(
        "--restart", action="store_true",
        help=f"Serve in a second process, and start it again when it ends by itself, at most {_RESTARTS} times, as a service manager would.",
    )  # fmt: skip
    told = "Send one srmPing. Prints the version that the server tells; exit code 1, and why, if none comes."
    pinging = commands.add_parser(
        "ping", help=told, description=told,
        epilog=f"Example: {_PROGRAM} ping 127.0.0.1 8446 srm.example.org /tmp/x509up_u1000 /etc/grid-security/certificates",
    )  # fmt: skip
    pinging.add_argument("address", help="Address that it listens at.")
    pinging.add_argument("port", type=int, help="Port that it listens at.")
    pinging.add_argument("host", help="Name of the host that its certificate must carry.")
    pinging.add_argument("credential", help="File with the certificate or proxy of who asks, and its key (PEM).")
    pinging.add_argument("authorities", help="Folder of the trusted certificates (HASH.0).")
    return parser


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
