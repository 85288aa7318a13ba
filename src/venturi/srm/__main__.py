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
from venturi.srm.client import call_srm
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
  {{"address": "127.0.0.1", "ports": [8446], "hosts": ["srm.example.org"], "storages": {{"data": "/data"}},
   "doors": {{"gsiftp": ["gsiftp://door1.example.org:2811{{path}}", "gsiftp://door2.example.org:2811{{path}}"]}},
   "certificate": "hostcert.pem", "key": "hostkey.pem", "ca_directory": "/etc/grid-security/certificates",
   "mapfile": "grid-mapfile", "database": "srm.sqlite", "log": "srm.log"}}

All of these settings are required. Optional settings and their defaults:
  {", ".join(f"{one.name} {one.default}" for one in fields(Settings) if one.default is not MISSING)}
For descriptions: python -c "import venturi.srm; help(venturi.srm.Settings)"
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "ping":
            return _ping(options)
        return _serve_with_restarts(options.settings) if options.restart else _serve(options.settings)
    except (OSError, VenturiError) as error:
        sys.stderr.write(f"srm: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="SRM v2.2 server for a lab. It returns transfer URLs of other servers."
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    text = "Serve until SIGTERM or SIGINT."
    serving = commands.add_parser(
        "serve", help=text, description=text, epilog=_ABOUT_SETTINGS, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    serving.add_argument("settings", type=Path, metavar="SETTINGS.json", help="Settings file; see below.")
    serving.add_argument(
        "--restart", action="store_true",
        help=f"Serve in a child process and restart it if it exits, at most {_RESTARTS} times.",
    )  # fmt: skip
    text = "Send one srmPing. Prints the version of the server. If the server does not respond, prints the reason and exits with code 1."
    pinging = commands.add_parser(
        "ping", help=text, description=text,
        epilog=f"Example: {_PROGRAM} ping 127.0.0.1 8446 srm.example.org /tmp/x509up_u1000 /etc/grid-security/certificates",
    )  # fmt: skip
    pinging.add_argument("address", help="Address of the server.")
    pinging.add_argument("port", type=int, help="Port of the server.")
    pinging.add_argument("host", help="Host name in the server's certificate.")
    pinging.add_argument("credential", help="PEM file with the client's certificate or proxy, and its key.")
    pinging.add_argument("ca_directory", help="Directory of trusted CA certificates (HASH.0).")
    return parser


def _serve(path: Path) -> int:
    settings = Settings.read(path)
    store, log = Store(Path(settings.database)), LogWriter(Path(settings.log))
    server = Server(settings, Manager(settings, store, __version__), log)

    def stop(number: int, frame: FrameType | None) -> None:
        # In a thread, because the signal can interrupt a thread that holds the lock of the log.
        threading.Thread(target=server.close).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    log.write("start", unix_s=time.time(), pid=os.getpid(), ports=list(server.ports), version=__version__)
    server.serve()
    return 0


def _serve_with_restarts(path: Path) -> int:
    """Serve in a child process, and restart it if it exits unexpectedly."""
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
        sys.stderr.write(f"srm: the server exited with code {code}; restarting it\n")
        sys.stderr.flush()
        stopping.wait(_PAUSE_S)
    sys.stderr.write(f"srm: the server exited {_RESTARTS} times; no further restart\n")
    return 1


def _ping(options: argparse.Namespace) -> int:
    reply = call_srm(
        "srmPing", (), address=options.address, port=options.port, host_name=options.host, credential=options.credential,
        ca_directory=options.ca_directory, timeout_s=_PING_S,
    )  # fmt: skip
    sys.stdout.write(f"{reply.text('versionInfo')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
