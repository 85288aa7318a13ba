"""Our own server: ``venturi serve``, over FTP and GridFTP, for anonymous clients or with certificates, or over HTTP and WebDAV.

Whatever it speaks, it writes the transfer log of the Grid Community Toolkit's server, see :mod:`venturi.testbed.services.gridftp_witness`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from venturi.backend.engine import find_engine
from venturi.cost import MeasuredService, ServiceCost
from venturi.mover.base import Option
from venturi.testbed.pki import DEFAULT_USER
from venturi.testbed.services.base import Package, Peers, Process, Room, ServiceSpec, Use, files_only, refuse_mistake
from venturi.testbed.services.conversation import hear
from venturi.testbed.services.gridftp_witness import logged_transfers
from venturi.testbed.services.witness import ControlLine, ServerTransfer

__all__ = ["VenturiServe", "transfer_log"]

_BLOCK_BYTES = 1 << 20
_MACHINE = "Intel Xeon, loopback, November 2026"
_HTTP_MACHINE = "AMD EPYC, loopback, November 2026"
_COSTS = (
    MeasuredService(
        ServiceCost(session_core_s=8.5e-5, file_core_s=1.4e-5, byte_core_s=4.8e-10),
        "processor time of the server's threads: session: 5 times 400 anonymous logins; file: 5 times 5000 pipelined ones of 10 kB in MODE E; byte: of "
        f"files of 2 GB that it receives into memory, 3 times (one that it sends takes 0.09 ns); medians, {_MACHINE}",
    ),
    MeasuredService(
        ServiceCost(session_core_s=1.1e-4, file_core_s=9.3e-5, byte_core_s=2.3e-10),
        "the same by HTTP: session: 400 connections with a GET each, less a GET; file: 5000 GETs of 10 kB, one after the other (a PUT takes 0.2 ms); byte: of 1 GB that it sends "
        f"(one that it receives takes 1.8 ns, 1 ns of it where memory is new); medians of 5, {_HTTP_MACHINE}",
        {"http": True},
    ),
    MeasuredService(
        ServiceCost(session_core_s=1.5e-3, file_core_s=1.1e-4, byte_core_s=7.8e-10),
        f"the same within TLS 1.3, RSA of 2048 bits (a byte that it receives takes 2.1 ns); medians of 5, {_HTTP_MACHINE}",
        {"http": True, "tls": True},
    ),
    MeasuredService(
        ServiceCost(auth_core_s=0.0023, auth_scatter=0.06),
        f"processor time of the server for a login with delegation, less that of an anonymous one: mean and scatter of 25 calls, {_MACHINE}",
        {"auth": "gsi"},
    ),
)


def transfer_log(room: Room) -> Path:
    """Return the file with a line a transfer, as ``venturi.testbed.trace.parse_transfers`` reads it."""
    return room.folder / "transfer.log"


class VenturiServe:
    """``venturi serve``."""

    kind = "venturi-serve"
    summary = "Our own server (venturi serve): FTP and GridFTP, MODE S and E, anonymous or with certificates (GSI); or HTTP(S) and WebDAV."
    packages: tuple[Package, ...] = ()
    options = (
        Option(
            "auth",
            "choice",
            "none",
            "How clients prove who they are. Only with certificates two servers copy between each other.",
            choices=("none", "gsi"),
        ),
        Option("http", "boolean", False, "HTTP and WebDAV in place of FTP, for everybody (--http)."),
        Option(
            "tls", "boolean", False, "With `http`: https:// and davs://, with a certificate of the lab (--https)."
        ),
        Option("block", "size", _BLOCK_BYTES, "Bytes of a block of MODE E (--block).", minimum=4096, maximum=1 << 30),
        Option(
            "connections", "integer", None, "Clients at the same time, refused beyond; not set: 10,000 (--sessions)."
        ),
        Option(
            "threads",
            "integer",
            None,
            "Threads that have the sessions; not set: one a core, at most 8 (--threads).",
            maximum=64,
        ),
        Option(
            "memory",
            "size",
            256 << 20,
            "Large buffers of files that come; beyond, a connection has 4 KiB (--memory).",
            minimum=16 << 20,
        ),
        Option(
            "pacing",
            "rate",
            None,
            "What each data connection sends at most (--pacing).",
            minimum=8000,
            maximum=125_000_000_000,
        ),
        Option("sync", "boolean", False, "Have files on stable storage before they are answered (--sync)."),
    )
    default_ports = tuple(range(2811, 2827))
    costs = _COSTS

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``gsiftp`` with certificates, else ``ftp``; of HTTP ``http``, within TLS ``https`` and ``davs``."""
        if spec.options.get("http"):
            schemes: tuple[str, ...] = ("https", "davs") if spec.options.get("tls") else ("http",)
        else:
            schemes = ("gsiftp",) if _secure(spec) else ("ftp",)
        return {scheme: f"{scheme}://{host_name}:{{port}}{{path}}" for scheme in schemes}

    def refusal(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return which options do not go together."""
        if spec.options.get("http") and _secure(spec):
            return 'expected auth = "none" with http, found "gsi": certificates of clients are for FTP'
        if spec.options.get("tls") and not spec.options.get("http"):
            return 'expected http with tls, found FTP; say http = true, or auth = "gsi" for certificates with FTP'
        if spec.options.get("http") and spec.options.get("block_bytes", _BLOCK_BYTES) != _BLOCK_BYTES:
            return "expected no block with http, found one: it is that of MODE E, of FTP"
        return None

    def configure(self, room: Room) -> None:
        """Make certificates and the grid-mapfile, if it asks for them; all else is said on its command line.

        Raises
        ------
        BackendError
            If its options do not go together.
        """
        refuse_mistake(self, room)
        if room.spec.options["tls"]:
            room.client_environment.update(room.pki.trust())
        if _secure(room.spec):
            room.pki.host(room.host_name, [room.address])
            room.pki.grid_mapfile(_mapfile(room), {DEFAULT_USER: "lab"})
            room.client_environment.update(room.pki.client_environment())

    def start(self, room: Room) -> Sequence[Process]:
        """Start one server that listens on all ports."""
        options = room.spec.options
        argv = [os.fspath(find_engine()), "serve", "/", "--write", "--sessions-per-address", str(_CLIENTS)]
        listen = "--listen" if not options["http"] else "--https" if options["tls"] else "--http"
        for port in room.spec.ports:
            argv += [listen, f"{room.address}:{port}"]
        argv += ["--block", str(options["block_bytes"]), "--memory", str(options["memory_bytes"])]
        for name, option in (("connections", "--sessions"), ("threads", "--threads")):
            if options[name] is not None:
                argv += [option, str(options[name])]
        if options["pacing_bytes_per_s"] is not None:
            argv += ["--pacing", f"{options['pacing_bytes_per_s']}B/s"]
        if options["sync"]:
            argv.append("--sync")
        if _secure(room.spec):
            host = room.pki.host(room.host_name, [room.address])
            argv += ["--cert", str(host.certificate), "--key", str(host.key), "--ca-dir", str(room.pki.certificates)]
            argv += ["--grid-mapfile", str(_mapfile(room)), "--third-party"]
        if options["tls"]:
            host = room.pki.host(room.host_name, [room.address])
            argv += ["--tls-cert", str(host.certificate), "--tls-key", str(host.key)]
        argv += ["--transfer-log", str(transfer_log(room)), "--drain-time", "1"]
        return [room.machine.start(argv, log=_printed(room))]

    def ready(self, room: Room) -> str | None:
        """Log in on each port; with certificates, begin to; of HTTP ask for its options, within TLS connect."""
        said: list[tuple[str | None, str]]
        match room.spec.options:
            case {"http": True, "tls": True}:
                said = []
            case {"http": True}:
                said = [("OPTIONS / HTTP/1.0\r\n", "HTTP/1.")]
            case {"auth": "gsi"}:
                said = [(None, "220"), ("AUTH GSSAPI", "334")]
            case _:
                said = [(None, "220"), ("USER anonymous", "331"), ("PASS ready@lab.test", "230"), ("QUIT", "")]
        lacks = (hear(room.machine, room.address, port, said) for port in room.spec.ports)
        return next((lack for lack in lacks if lack is not None), None)

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server; all else is in the folder."""
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what it printed."""
        return [_printed(room)]

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield the files of its transfer log."""
        return logged_transfers(transfer_log(room))

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield nothing: it keeps no log of its control channels."""
        return ()


_CLIENTS = 100_000
"""Sessions of one host: in a lab a host stands for many clients."""


def _secure(spec: ServiceSpec) -> bool:
    return spec.options.get("auth") == "gsi"


def _mapfile(room: Room) -> Path:
    return room.folder / "grid-mapfile"


def _printed(room: Room) -> Path:
    return room.folder / "serve.out"
