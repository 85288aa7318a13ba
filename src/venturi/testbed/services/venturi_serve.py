"""Venturi's server, ``venturi serve``: FTP and GridFTP, anonymous or with certificates, or HTTP and WebDAV.

With each protocol, it writes the transfer log of the Grid Community Toolkit's server; see
:mod:`venturi.testbed.services.gridftp_logs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from venturi.cost import MeasuredService, ServiceCost
from venturi.mover.base import Option
from venturi.testbed.pki import DEFAULT_USER
from venturi.testbed.services.base import (
    Package,
    Peers,
    Process,
    ServiceContext,
    ServiceSpec,
    Use,
    files_only,
    reject_invalid_options,
)
from venturi.testbed.services.exposure import OPEN, admitted_addresses, listen_address, local_address, socket_address
from venturi.testbed.services.gridftp_logs import logged_transfers
from venturi.testbed.services.line_protocol import expect_replies
from venturi.testbed.services.log_source import ControlLine, ServerTransfer

__all__ = ["VenturiServe", "transfer_log"]

_BLOCK_BYTES = 1 << 20
_MACHINE = "Intel Xeon, loopback, November 2026"
_HTTP_MACHINE = "AMD EPYC, loopback, November 2026"
_COSTS = (
    MeasuredService(
        ServiceCost(session_core_s=8.5e-5, file_core_s=1.4e-5, byte_core_s=4.8e-10),
        "CPU time of the server's threads. Session: 400 anonymous logins, 5 times. File: 5000 pipelined files of 10 kB in MODE E, 5 times. Byte: files of "
        f"2 GB that the server receives into memory, 3 times (a sent byte takes 0.09 ns). Medians, {_MACHINE}",
    ),
    MeasuredService(
        ServiceCost(session_core_s=1.1e-4, file_core_s=9.3e-5, byte_core_s=2.3e-10),
        "CPU time of the server's threads with HTTP. Session: 400 connections with one GET each, minus the GETs. File: 5000 sequential GETs of 10 kB (a PUT takes 0.2 ms). Byte: "
        f"1 GB that the server sends (a received byte takes 1.8 ns, including 1 ns if memory is new). Medians of 5, {_HTTP_MACHINE}",
        {"http": True},
    ),
    MeasuredService(
        ServiceCost(session_core_s=1.5e-3, file_core_s=1.1e-4, byte_core_s=7.8e-10),
        f"as with HTTP, in TLS 1.3 with a 2048-bit RSA key (a received byte takes 2.1 ns); medians of 5, {_HTTP_MACHINE}",
        {"http": True, "tls": True},
    ),
    MeasuredService(
        ServiceCost(auth_core_s=0.0023, auth_scatter=0.06),
        f"CPU time of the server for a login with delegation, minus that of an anonymous one: mean and scatter of 25 calls, {_MACHINE}",
        {"auth": "gsi"},
    ),
)


def transfer_log(context: ServiceContext) -> PurePath:
    """Return the file with one line per transfer, for :func:`venturi.testbed.gridftp_log.read_transfers`."""
    return context.directory / "transfer.log"


class VenturiServe:
    """Service that runs ``venturi serve``."""

    kind = "venturi-serve"
    summary = "Venturi's server (venturi serve): FTP and GridFTP in MODE S and E, anonymous or with certificates (GSI), or HTTP(S) and WebDAV."
    packages: tuple[Package, ...] = ()
    options = (
        Option(
            "auth",
            "choice",
            "none",
            "Client authentication. Copies between two servers need certificates.",
            choices=("none", "gsi"),
        ),
        Option("http", "boolean", False, "Serve HTTP and WebDAV instead of FTP, without authentication (--http)."),
        Option(
            "tls",
            "boolean",
            False,
            "With `http`: serve https:// and davs://, with a temporary certificate (--https).",
        ),
        Option("block", "size", _BLOCK_BYTES, "Block size in MODE E (--block).", minimum=4096, maximum=1 << 30),
        Option(
            "connections",
            "integer",
            None,
            "Limit of simultaneous clients; more are rejected. Not set: 10,000 (--sessions).",
        ),
        Option(
            "threads",
            "integer",
            None,
            "Threads for sessions. Not set: one per core, at most 8 (--threads).",
            maximum=64,
        ),
        Option(
            "memory",
            "size",
            256 << 20,
            "Memory for large receive buffers; beyond it, a connection has 4 KiB (--memory).",
            minimum=16 << 20,
        ),
        Option(
            "pacing",
            "rate",
            None,
            "Limit of the send rate of each data connection (--pacing).",
            minimum=8000,
            maximum=125_000_000_000,
        ),
        Option("sync", "boolean", False, "Write files to stable storage before the reply (--sync)."),
        OPEN,
    )
    default_ports = tuple(range(2811, 2827))
    costs = _COSTS

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``gsiftp`` with certificates, otherwise ``ftp``; for HTTP ``http``, with TLS ``https`` and ``davs``."""
        if spec.options.get("http"):
            schemes: tuple[str, ...] = ("https", "davs") if spec.options.get("tls") else ("http",)
        else:
            schemes = ("gsiftp",) if _secure(spec) else ("ftp",)
        return {scheme: f"{scheme}://{host_name}:{{port}}{{path}}" for scheme in schemes}

    def unsupported_use(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return a conflict between its options."""
        if spec.options.get("http") and _secure(spec):
            return 'expected auth = "none" with http, found "gsi": certificates of clients are for FTP'
        if spec.options.get("tls") and not spec.options.get("http"):
            return (
                'expected http = true with tls, found FTP; set http = true, or auth = "gsi" for certificates with FTP'
            )
        if spec.options.get("http") and spec.options.get("block_bytes", _BLOCK_BYTES) != _BLOCK_BYTES:
            return "expected no block with http, found one; remove it: blocks are for MODE E of FTP"
        return None

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return why it cannot run on a real host: it has no storage."""
        return None if spec.storages else "on a real host it serves only its storages: expected `storage`, found none"

    def configure(self, context: ServiceContext) -> None:
        """Create certificates and the grid-mapfile if necessary; all other settings are on its command line.

        Raises
        ------
        BackendError
            If its options conflict.
        """
        reject_invalid_options(self, context)
        if context.spec.options["tls"]:
            context.client_environment.update(context.pki.trust())
        if _secure(context.spec):
            context.pki.host(context.host_name, [context.address])
            context.pki.grid_mapfile(_mapfile(context), {DEFAULT_USER: "lab"})
            context.client_environment.update(context.pki.client_environment())
        if context.exposed:
            for storage in context.spec.storages:
                context.make_directory(context.path(storage))

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start one server that listens on all ports."""
        options = context.spec.options
        argv = [context.shell.engine, "serve", "/", "--write", "--sessions-per-address", str(_CLIENTS)]
        argv += _confinement(context)
        listen = "--listen" if not options["http"] else "--https" if options["tls"] else "--http"
        for port in context.spec.ports:
            argv += [listen, socket_address(listen_address(context, "::"), port)]
        argv += ["--block", str(options["block_bytes"]), "--memory", str(options["memory_bytes"])]
        for name, option in (("connections", "--sessions"), ("threads", "--threads")):
            if options[name] is not None:
                argv += [option, str(options[name])]
        if options["pacing_bytes_per_s"] is not None:
            argv += ["--pacing", f"{options['pacing_bytes_per_s']}B/s"]
        if options["sync"]:
            argv.append("--sync")
        if _secure(context.spec):
            host = context.pki.host(context.host_name, [context.address])
            argv += [
                "--cert",
                str(host.certificate),
                "--key",
                str(host.key),
                "--ca-dir",
                str(context.pki.certificates),
            ]
            argv += ["--grid-mapfile", str(_mapfile(context)), "--third-party"]
        if options["tls"]:
            host = context.pki.host(context.host_name, [context.address])
            argv += ["--tls-cert", str(host.certificate), "--tls-key", str(host.key)]
        argv += ["--transfer-log", str(transfer_log(context)), "--drain-time", "1"]
        return [context.shell.start(argv, log=_printed(context))]

    def ready(self, context: ServiceContext) -> str | None:
        """Log in on each port. With certificates, only start the login. HTTP: request OPTIONS; with TLS, only connect."""
        dialogue: list[tuple[str | None, str]]
        match context.spec.options:
            case {"http": True, "tls": True}:
                dialogue = []
            case {"http": True}:
                dialogue = [("OPTIONS / HTTP/1.0\r\n", "HTTP/1.")]
            case {"auth": "gsi"}:
                dialogue = [(None, "220"), ("AUTH GSSAPI", "334")]
            case _:
                dialogue = [(None, "220"), ("USER anonymous", "331"), ("PASS ready@lab.test", "230"), ("QUIT", "")]
        address = local_address(context)
        lacks = (expect_replies(context.shell, address, port, dialogue) for port in context.spec.ports)
        return next((lack for lack in lacks if lack is not None), None)

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server; its other resources are in its directory."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return its output file."""
        return [_printed(context)]

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield the files of its transfer log."""
        return logged_transfers(context.fetch(transfer_log(context)))

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield nothing: it has no log of control connections."""
        return ()


_CLIENTS = 100_000
"""Limit of sessions per client host, because a host of a lab emulates many clients."""


def _secure(spec: ServiceSpec) -> bool:
    return spec.options.get("auth") == "gsi"


def _confinement(context: ServiceContext) -> list[str]:
    """Return the restriction to storages, addresses and ports on a real host."""
    if context.access is None:
        return []
    arguments = [word for storage in context.spec.storages for word in ("--only", str(context.path(storage)))]
    addresses = None if _secure(context.spec) else admitted_addresses(context)
    for address in addresses or ():
        arguments += ["--allow", address]
    if context.access.data_ports is not None and not context.spec.options.get("http"):
        arguments += ["--data-ports", "-".join(map(str, context.access.data_ports))]
    return arguments


def _mapfile(context: ServiceContext) -> PurePath:
    return context.directory / "grid-mapfile"


def _printed(context: ServiceContext) -> PurePath:
    return context.directory / "serve.out"
