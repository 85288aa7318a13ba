"""GridFTP (Grid Community Toolkit): anonymous or with certificates, whole or striped over data nodes.

It always writes two logs, see :mod:`venturi.testbed.trace`: each line of the control channel, and each transfer. With the option
``trace = "packets"`` what is on the control channel is captured besides: only there pipelining can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from venturi.cost import MeasuredService, ServiceCost
from venturi.mover.base import Option
from venturi.testbed.pki import DEFAULT_USER
from venturi.testbed.services.base import Package, Peers, Process, Room, ServiceSpec, refuse_mistake
from venturi.testbed.services.conversation import hear
from venturi.testbed.services.gridftp_witness import logged_control, logged_transfers, seen_control
from venturi.testbed.services.programs import account, require
from venturi.testbed.services.witness import ControlLine, ServerTransfer

__all__ = ["GridFtp", "GridFtpNode", "control_capture", "control_log", "transfer_log"]

_TCPDUMP = Package("tcpdump", "tcpdump")
_SERVER = Package("globus-gridftp-server", "globus-gridftp-server-progs")
_ANONYMOUS_USER, _ANONYMOUS_GROUP = "nobody", "nogroup"
_LAYOUTS = {"partitioned": "1", "blocked": "2"}
_COSTS = (
    MeasuredService(
        ServiceCost(auth_core_s=0.213, auth_scatter=0.58),
        "processor time of one 2048-bit RSA key, as each login with delegation takes: openssl genrsa, mean of 60 (0.07 to 0.48 s), Intel Xeon, "
        "OpenSSL 3.0, November 2026; scatter: of 60 more",
        {"auth": "gsi"},
    ),
)
_AUTH = Option("auth", "choice", "none", "How clients prove who they are.", choices=("none", "gsi"))
_BLOCK = Option("block", "size", 262144, "Bytes that the server reads or writes at a time (-bs).")


def control_log(room: Room) -> Path:
    """Return the file with each line of the control channels, as ``venturi.testbed.trace.read_control`` reads it."""
    return room.folder / "control.log"


def transfer_log(room: Room) -> Path:
    """Return the file with a line a transfer, as ``venturi.testbed.trace.parse_transfers`` reads it."""
    return room.folder / "transfer.log"


def control_capture(room: Room) -> Path:
    """Return the file with the packets of the control channels, there if the service is asked for it."""
    return room.folder / "control.pcap"


class _Server:
    """What a front end and a data node share."""

    packages: tuple[Package, ...] = (_SERVER,)

    def start(self, room: Room) -> Sequence[Process]:
        """Start one server a port."""
        common = [
            # A proxy in the environment, somebody's own even, would go before the host's certificate.
            *("env", "-u", "X509_USER_PROXY"),
            *(_SERVER.program, "-c", "none", "-control-interface", room.address, "-data-interface", room.address),
            *("-bs", str(room.spec.options["block_bytes"]), "-perms", "0666"),
            *("-l", str(control_log(room)), "-d", "ALL", "-log-module", "stdio:buffer=0"),
            *("-Z", str(transfer_log(room))),
            *_leaving_by(room),
            *self._arguments(room),
        ]
        # The control log has local time and no zone.
        environment = {"TZ": "UTC", **_environment(room)}
        return [
            room.machine.start([*common, "-p", str(port)], log=room.folder / f"{port}.out", environment=environment)
            for port in room.spec.ports
        ]

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the servers, and with them their sessions; all else is in the folder."""
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what the servers printed and their control log."""
        return [*(room.folder / f"{port}.out" for port in room.spec.ports), control_log(room)]

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield the files of its transfer log."""
        return logged_transfers(transfer_log(room))

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield nothing: a data node is told what to do by its front end, in a protocol of their own."""
        return ()

    def _arguments(self, room: Room) -> list[str]:
        raise NotImplementedError


class GridFtp(_Server):
    """A GridFTP server, or the front end of a striped one."""

    kind = "gridftp"
    summary = "GridFTP server, anonymous or with certificates (GSI); with data nodes, the front end of a striped one."
    options = (
        _AUTH,
        _BLOCK,
        Option("data_nodes", "text", None, "Services of kind gridftp-node that move its data, separated by commas."),
        Option("stripe_block", "size", 1 << 20, "Bytes in sequence that a data node moves (-sbs)."),
        Option("stripe_layout", "choice", "blocked", "How a file is laid over data nodes.", choices=tuple(_LAYOUTS)),
        Option("connections", "integer", None, "Clients at the same time, refused beyond; not set: any number."),
        Option(
            "trace",
            "choice",
            "log",
            "Where the control channels in a run come from: the server's log (also of encrypted ones, to the second, a command when "
            "its turn comes), or packets captured beside it (in the clear only, to the microsecond, a command when it arrives).",
            choices=("log", "packets"),
        ),
    )
    default_ports = tuple(range(2811, 2827))
    costs = _COSTS

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return its data nodes."""
        listed = str(spec.options.get("data_nodes") or "")
        return tuple(name for name in listed.replace(",", " ").split() if name)

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return why a service cannot be one of its data nodes."""
        for node in map(peers, self.needs(spec)):
            if node.kind != GridFtpNode.kind:
                return f"expected data_nodes to name services of kind {GridFtpNode.kind}, found {node.name} of kind {node.kind}"
            own, other = spec.options.get("auth"), node.options.get("auth")
            if _secure(node) != _secure(spec):
                return f'expected data_nodes with auth = "{own}" as its own, found {node.name} with "{other}"'
        return None

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``gsiftp`` with certificates, else ``ftp``."""
        scheme = "gsiftp" if spec.options.get("auth") == "gsi" else "ftp"
        return {scheme: f"{scheme}://{host_name}:{{port}}{{path}}"}

    def configure(self, room: Room) -> None:
        """Make certificates and the grid-mapfile, if it asks for them.

        Raises
        ------
        BackendError
            If a program is missing, or a data node is of another kind or asks clients for something else.
        """
        require(room, (*self.packages, *((_TCPDUMP,) if _traced(room.spec) else ())))
        refuse_mistake(self, room)
        if _secure(room.spec):
            _make_certificate(room)
            room.client_environment.update(room.pki.client_environment())

    def start(self, room: Room) -> Sequence[Process]:
        """Start what captures the control channels, if it is asked for, and one server a port."""
        return [*([_start_capture(room)] if _traced(room.spec) else []), *super().start(room)]

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what it printed, its control log and the packets captured."""
        return [*super().logs(room), *((control_capture(room),) if _traced(room.spec) else ())]

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield what was said on its control channels."""
        if _traced(room.spec):
            return seen_control(control_capture(room), room)
        return logged_control(control_log(room))

    def ready(self, room: Room) -> str | None:
        """Hear the banner and the reply to the beginning of a login.

        A login is completed only where clients are anonymous and there are data nodes, which must open a port each then.
        """
        if _traced(room.spec) and "listening on" not in _capture_log(room).read_text(errors="replace"):
            return "tcpdump: not listening yet"
        said: list[tuple[str | None, str]] = [(None, "220")]
        said.append(("AUTH GSSAPI", "334") if _secure(room.spec) else ("USER anonymous", "331"))
        if self.needs(room.spec) and not _secure(room.spec):
            said += [("PASS ready@lab.test", "230"), ("SPAS", "229")]
        lacks = (hear(room.machine, room.address, port, [*said, ("QUIT", "")]) for port in room.spec.ports)
        return next((lack for lack in lacks if lack is not None), None)

    def _arguments(self, room: Room) -> list[str]:
        options = room.spec.options
        arguments = _identity(room)
        if options["connections"] is not None:
            arguments += ["-connections-max", str(options["connections"])]
        nodes = [room.peer(name) for name in self.needs(room.spec)]
        if nodes:
            contacts = ",".join(f"{node.host_name}:{port}" for node in nodes for port in node.spec.ports)
            layout = _LAYOUTS[str(options["stripe_layout"])]
            arguments += ["-r", contacts, "-sbs", str(options["stripe_block_bytes"]), "-sl", layout]
        return arguments


class GridFtpNode(_Server):
    """A data node of a striped GridFTP server: it moves data and knows no clients."""

    kind = "gridftp-node"
    summary = "Data node of a striped GridFTP server; the gridftp service names it in data_nodes."
    options = (_AUTH, _BLOCK)
    default_ports = tuple(range(6000, 6016))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: its front end needs it."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: clients go to the front end."""
        return {}

    def configure(self, room: Room) -> None:
        """Make its certificate, if its front end asks clients for theirs.

        Raises
        ------
        BackendError
            If a program is missing.
        """
        require(room, self.packages)
        if _secure(room.spec):
            _make_certificate(room)

    def ready(self, room: Room) -> str | None:
        """Connect to each port: it says nothing before its front end does, which is asked for both."""
        lacks = (hear(room.machine, room.address, port, []) for port in room.spec.ports)
        return next((lack for lack in lacks if lack is not None), None)

    def _arguments(self, room: Room) -> list[str]:
        # Level 0: who the user is, and what he may do, its front end has decided.
        return ["-dn", "-auth-level", "0", *_identity(room)]


def _leaving_by(room: Room) -> list[str]:
    """Return what has connections that the server opens leave by its interface: -data-interface is for those that it accepts.

    A server that sends data opens the connection (MODE E); without this it would leave by the host's first interface.
    """
    if room.address == room.machine.address:
        return []
    # What protects data channels is a driver above; it stays out of those that ask for nothing.
    drivers = [f"tcp:iface={room.address}", *(["gsi"] if _secure(room.spec) else [])]
    return ["-dc-default", ",".join(drivers)]


def _traced(spec: ServiceSpec) -> bool:
    return spec.options.get("trace") == "packets"


def _capture_log(room: Room) -> Path:
    return room.folder / "tcpdump.out"


def _start_capture(room: Room) -> Process:
    device = room.spec.interface.rpartition(".")[2] or "lo"
    ports = " or ".join(f"tcp port {port}" for port in room.spec.ports)
    return room.machine.start(
        [
            # A command is whole in 4096 bytes; the buffer holds as many packets as 16 MiB have room for of that length.
            *(_TCPDUMP.program, "--immediate-mode", "-U", "-n", "-B", "16384", "-s", "4096", "-i", device),
            *(("-Z", "root") if room.machine.privileged else ()),
            *("-w", str(control_capture(room)), ports),
        ],
        log=_capture_log(room),
    )


def _secure(spec: ServiceSpec) -> bool:
    return spec.options.get("auth") == "gsi"


def _make_certificate(room: Room) -> None:
    room.pki.host(room.host_name, [room.address])
    room.pki.grid_mapfile(_mapfile(room), {DEFAULT_USER: account(room)})


def _environment(room: Room) -> dict[str, str]:
    if not _secure(room.spec):
        return {}
    host = room.pki.host(room.host_name, [room.address])
    return {
        "X509_CERT_DIR": str(room.pki.certificates),
        "X509_USER_CERT": str(host.certificate),
        "X509_USER_KEY": str(host.key),
        "GRIDMAP": str(_mapfile(room)),
    }


def _identity(room: Room) -> list[str]:
    """Return who may log in, and as whom: the account that starts the servers, or nobody for anonymous clients.

    -no-si: without certificates, front end and data nodes have none to show each other.
    """
    if _secure(room.spec):
        return ["-allow-root"] if room.machine.privileged else []
    anonymous = ["-anonymous-user", _ANONYMOUS_USER, "-anonymous-group", _ANONYMOUS_GROUP]
    return ["-aa", "-no-si", *(anonymous if room.machine.privileged else [])]


def _mapfile(room: Room) -> Path:
    return room.folder / "grid-mapfile"
