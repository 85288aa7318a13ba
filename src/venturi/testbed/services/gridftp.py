"""GridFTP (Grid Community Toolkit): anonymous or with certificates, on one server or striped over data nodes.

A server always writes two logs (see :mod:`venturi.testbed.gridftp_log`): each line of the control channel, and each
transfer. The option ``trace = "packets"`` also captures the control channel, because only packets show pipelining.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from venturi.cost import MeasuredService, ServiceCost
from venturi.mover.base import Option
from venturi.testbed.pki import DEFAULT_USER
from venturi.testbed.services.base import Package, Peers, Process, ServiceContext, ServiceSpec, reject_invalid_options
from venturi.testbed.services.exposure import (
    OPEN,
    admitted_addresses,
    local_address,
    require_ordinary_user,
)
from venturi.testbed.services.gridftp_logs import captured_control, logged_control, logged_transfers
from venturi.testbed.services.line_protocol import expect_replies
from venturi.testbed.services.log_source import ControlLine, ServerTransfer
from venturi.testbed.services.programs import account, require

__all__ = ["GridFtp", "GridFtpNode", "control_capture", "control_log", "transfer_log"]

_TCPDUMP = Package("tcpdump", "tcpdump")
_SERVER = Package("globus-gridftp-server", "globus-gridftp-server-progs")
_ANONYMOUS_USER, _ANONYMOUS_GROUP = "nobody", "nogroup"
_LAYOUTS = {"partitioned": "1", "blocked": "2"}
_COSTS = (
    MeasuredService(
        ServiceCost(auth_core_s=0.213, auth_scatter=0.58),
        "CPU time to create a 2048-bit RSA key, which each login with delegation needs: openssl genrsa, mean of 60 (0.07 to 0.48 s), scatter of 60 "
        "others, Intel Xeon, OpenSSL 3.0, November 2026",
        {"auth": "gsi"},
    ),
)
_AUTH = Option("auth", "choice", "none", "Client authentication.", choices=("none", "gsi"))
_BLOCK = Option("block", "size", 262144, "Bytes per read or write (-bs).")


def control_log(context: ServiceContext) -> PurePath:
    """Return the file with each line of the control channels, for :func:`venturi.testbed.gridftp_log.read_control`."""
    return context.directory / "control.log"


def transfer_log(context: ServiceContext) -> PurePath:
    """Return the file with one line per transfer, for :func:`venturi.testbed.gridftp_log.read_transfers`."""
    return context.directory / "transfer.log"


def control_capture(context: ServiceContext) -> PurePath:
    """Return the file with the packets of the control channels, which exists if the option ``trace`` requests it."""
    return context.directory / "control.pcap"


class _GridFtpServer:
    """Common base of front end and data node."""

    packages: tuple[Package, ...] = (_SERVER,)

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start one server per port."""
        common = [
            # A proxy in the environment, even the user's own, would have priority over the certificate of the host.
            *("env", "-u", "X509_USER_PROXY"),
            *(_SERVER.program, "-c", "none", *_interfaces(context)),
            *("-bs", str(context.spec.options["block_bytes"]), "-perms", "0666"),
            *("-l", str(control_log(context)), "-d", "ALL", "-log-module", "stdio:buffer=0"),
            *("-Z", str(transfer_log(context))),
            *_leaving_by(context),
            *_confinement(context),
            *self._arguments(context),
        ]
        # The control log has local times without a time zone.
        environment = {"TZ": "UTC", **_environment(context)}
        return [
            context.shell.start(
                [*common, "-p", str(port)], log=context.directory / f"{port}.out", environment=environment
            )
            for port in context.spec.ports
        ]

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the servers and their sessions; their other resources are in the directory."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output files of the servers and their control log."""
        return [*(context.directory / f"{port}.out" for port in context.spec.ports), control_log(context)]

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield the files of the transfer log."""
        return logged_transfers(context.fetch(transfer_log(context)))

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield nothing: a front end controls its data nodes with a separate protocol."""
        return ()

    def _arguments(self, context: ServiceContext) -> list[str]:
        raise NotImplementedError


class GridFtp(_GridFtpServer):
    """GridFTP server, or the front end of a striped server."""

    kind = "gridftp"
    summary = (
        "GridFTP server, anonymous or with certificates (GSI). With data nodes, the front end of a striped server."
    )
    options = (
        _AUTH,
        _BLOCK,
        Option("data_nodes", "text", None, "Services of kind gridftp-node, separated by commas."),
        Option("stripe_block", "size", 1 << 20, "Bytes of a contiguous block of a data node (-sbs)."),
        Option("stripe_layout", "choice", "blocked", "Layout of a file on data nodes.", choices=tuple(_LAYOUTS)),
        Option(
            "connections", "integer", None, "Limit of simultaneous clients; more are rejected. Not set: no limit."
        ),
        Option(
            "trace",
            "choice",
            "log",
            "Source of the control commands in a run: the server's log (to the second, with encrypted sessions), or captured "
            "packets (to the microsecond, without them).",
            choices=("log", "packets"),
        ),
        OPEN,
    )
    default_ports = tuple(range(2811, 2827))
    costs = _COSTS

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return the data nodes."""
        listed = str(spec.options.get("data_nodes") or "")
        return tuple(name for name in listed.replace(",", " ").split() if name)

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return why one of the named services cannot be its data node."""
        for node in map(peers, self.needs(spec)):
            if node.kind != GridFtpNode.kind:
                return f"expected data_nodes to name services of kind {GridFtpNode.kind}, found {node.name} of kind {node.kind}"
            own, other = spec.options.get("auth"), node.options.get("auth")
            if _secure(node) != _secure(spec):
                return f'expected data_nodes with auth = "{own}" as its own, found {node.name} with "{other}"'
        return None

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``gsiftp`` with certificates, otherwise ``ftp``."""
        scheme = "gsiftp" if spec.options.get("auth") == "gsi" else "ftp"
        return {scheme: f"{scheme}://{host_name}:{{port}}{{path}}"}

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return why it cannot run on a real host."""
        if _traced(spec):
            return 'trace = "packets" works only in a lab, because it needs the right to capture packets'
        return _nothing_to_serve(spec)

    def configure(self, context: ServiceContext) -> None:
        """Create certificates and the grid-mapfile if the options need them.

        Raises
        ------
        BackendError
            If a program is missing, or a data node has another kind or another client authentication.
        """
        require(context, (*self.packages, *((_TCPDUMP,) if _traced(context.spec) else ())))
        reject_invalid_options(self, context)
        if _secure(context.spec):
            _make_certificate(context)
            context.client_environment.update(context.pki.client_environment())
        else:
            require_ordinary_user(context, "an anonymous GridFTP server")
        if context.exposed:
            for storage in context.spec.storages:
                context.make_directory(context.path(storage))

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the capture of the control channels if requested, and one server per port."""
        return [*([_start_capture(context)] if _traced(context.spec) else []), *super().start(context)]

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output files, the control log and the captured packets."""
        return [*super().logs(context), *((control_capture(context),) if _traced(context.spec) else ())]

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield the lines of the control channels."""
        if _traced(context.spec):
            return captured_control(context.fetch(control_capture(context)), context)
        return logged_control(context.fetch(control_log(context)))

    def ready(self, context: ServiceContext) -> str | None:
        """Read the banner and the reply to the start of a login.

        Complete the login only for anonymous clients of a server with data nodes, which must then open one port each.
        """
        if _traced(context.spec) and "listening on" not in context.read(_capture_log(context)):
            return "tcpdump: not listening yet"
        dialogue: list[tuple[str | None, str]] = [(None, "220")]
        dialogue.append(("AUTH GSSAPI", "334") if _secure(context.spec) else ("USER anonymous", "331"))
        if self.needs(context.spec) and not _secure(context.spec):
            dialogue += [("PASS ready@lab.test", "230"), ("SPAS", "229")]
        lacks = (
            expect_replies(context.shell, local_address(context), port, [*dialogue, ("QUIT", "")])
            for port in context.spec.ports
        )
        return next((lack for lack in lacks if lack is not None), None)

    def _arguments(self, context: ServiceContext) -> list[str]:
        options = context.spec.options
        arguments = _identity(context)
        if options["connections"] is not None:
            arguments += ["-connections-max", str(options["connections"])]
        nodes = [context.peer(name) for name in self.needs(context.spec)]
        if nodes:
            contacts = ",".join(f"{node.host_name}:{port}" for node in nodes for port in node.spec.ports)
            layout = _LAYOUTS[str(options["stripe_layout"])]
            arguments += ["-r", contacts, "-sbs", str(options["stripe_block_bytes"]), "-sl", layout]
        return arguments


class GridFtpNode(_GridFtpServer):
    """Data node of a striped GridFTP server, which transfers data but has no direct clients."""

    kind = "gridftp-node"
    summary = "Data node of a striped GridFTP server. The gridftp service names it in data_nodes."
    options = (_AUTH, _BLOCK)
    default_ports = tuple(range(6000, 6016))

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return why it cannot run on a real host."""
        return _nothing_to_serve(spec)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: the front end depends on the data node."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: clients connect to the front end."""
        return {}

    def configure(self, context: ServiceContext) -> None:
        """Create the certificate if the front end authenticates clients by certificates.

        Raises
        ------
        BackendError
            If a program is missing.
        """
        require(context, self.packages)
        if _secure(context.spec):
            _make_certificate(context)

    def ready(self, context: ServiceContext) -> str | None:
        """Connect to each port without a dialogue, because a data node only answers its front end."""
        lacks = (expect_replies(context.shell, local_address(context), port, []) for port in context.spec.ports)
        return next((lack for lack in lacks if lack is not None), None)

    def _arguments(self, context: ServiceContext) -> list[str]:
        # Level 0: the front end has already authenticated and authorized the user.
        return ["-dn", "-auth-level", "0", *_identity(context)]


def _leaving_by(context: ServiceContext) -> list[str]:
    """Return the options that bind outgoing connections to its interface; -data-interface binds incoming ones.

    A server that sends data opens the connection (MODE E). Without these options, it would use the host's first interface.
    """
    if context.exposed or context.address == context.shell.address:
        return []
    # Data channel protection is a separate driver, which has no effect on clients without protection.
    drivers = [f"tcp:iface={context.address}", *(["gsi"] if _secure(context.spec) else [])]
    return ["-dc-default", ",".join(drivers)]


def _interfaces(context: ServiceContext) -> list[str]:
    """Return the listening addresses. Without them, the server needs a host name that resolves."""
    if context.access is None:
        address: str | None = context.address
    else:
        address = context.access.bind_address
    return ["-control-interface", address, "-data-interface", address] if address is not None else []


def _confinement(context: ServiceContext) -> list[str]:
    """Return the restriction to storages, addresses and ports on a real host."""
    if context.access is None:
        return []
    # `/dev/null` is the destination `null:` of a plan.
    paths = ",".join(f"RW{path}" for path in (*map(context.path, context.spec.storages), "/dev/null"))
    arguments = ["-restrict-paths", paths]
    if context.access.data_ports is not None:
        arguments += ["-port-range", ",".join(map(str, context.access.data_ports))]
    node = context.spec.kind == GridFtpNode.kind
    addresses = admitted_addresses(context) if node or not _secure(context.spec) else None
    if addresses is not None:
        accepted = ",".join(prefix for address in addresses for prefix in _contact_prefixes(address))
        for option in ("-allow-from", "-ipc-allow-from") if node else ("-allow-from",):
            arguments += [option, accepted]
    return arguments


def _contact_prefixes(address: str) -> tuple[str, ...]:
    """Return the prefixes of ``ADDRESS:PORT`` that select a client.

    They include the colon before the port, because ``10.0.0.2`` alone would also match ``10.0.0.20``. A server that listens on
    all addresses sees IPv4 clients with IPv6 addresses.
    """
    return (f"[{address}]:",) if ":" in address else (f"{address}:", f"[::ffff:{address}]:")


def _nothing_to_serve(spec: ServiceSpec) -> str | None:
    return None if spec.storages else "on a real host it serves only its storages: expected `storage`, found none"


def _traced(spec: ServiceSpec) -> bool:
    return spec.options.get("trace") == "packets"


def _capture_log(context: ServiceContext) -> PurePath:
    return context.directory / "tcpdump.out"


def _start_capture(context: ServiceContext) -> Process:
    device = context.spec.interface.rpartition(".")[2] or "lo"
    ports = " or ".join(f"tcp port {port}" for port in context.spec.ports)
    return context.shell.start(
        [
            # Each command fits in 4096 bytes. The buffer holds as many packets as fit in 16 MiB at that length.
            *(_TCPDUMP.program, "--immediate-mode", "-U", "-n", "-B", "16384", "-s", "4096", "-i", device),
            *(("-Z", "root") if context.switches_user else ()),
            *("-w", str(control_capture(context)), ports),
        ],
        log=_capture_log(context),
    )


def _secure(spec: ServiceSpec) -> bool:
    return spec.options.get("auth") == "gsi"


def _make_certificate(context: ServiceContext) -> None:
    context.pki.host(context.host_name, [context.address])
    context.pki.grid_mapfile(_mapfile(context), {DEFAULT_USER: account(context)})


def _environment(context: ServiceContext) -> dict[str, str]:
    if not _secure(context.spec):
        return {}
    host = context.pki.host(context.host_name, [context.address])
    return {
        "X509_CERT_DIR": str(context.pki.certificates),
        "X509_USER_CERT": str(host.certificate),
        "X509_USER_KEY": str(host.key),
        "GRIDMAP": str(_mapfile(context)),
    }


def _identity(context: ServiceContext) -> list[str]:
    """Return the login options: with certificates, permission for root; otherwise anonymous clients and their account.

    -no-si: without certificates, front end and data nodes cannot authenticate to each other.
    """
    if _secure(context.spec):
        return ["-allow-root"] if context.shell.privileged else []
    anonymous = ["-anonymous-user", _ANONYMOUS_USER, "-anonymous-group", _ANONYMOUS_GROUP]
    return ["-aa", "-no-si", *(anonymous if context.switches_user else [])]


def _mapfile(context: ServiceContext) -> PurePath:
    return context.directory / "grid-mapfile"
