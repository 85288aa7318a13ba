"""Addresses, routes, TCP tuning and NAT of one host, as one shell script.

With one script per host, 26 hosts start in one second. Congestion control is a property of the routes (``congctl``,
ip-route(8)), because defaults differ between kernels. If the kernel's default is not cubic, the system-wide setting
cannot be set to cubic in a network namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from venturi.testbed.lab.spec import LabHostSpec

__all__ = ["FoundSettings", "host_script", "read_found", "tcp_settings"]

QUEUE_PACKETS = 10_000
"""Packets that a TUN device queues while the emulator is busy. An overflow would drop packets outside of the model."""

PRIVATE_ADDRESSES = "192.168.0.0/16"
"""Source addresses that NAT masquerades."""

MAX_SOCKET_BYTES = 2**30
"""The kernel rejects 2 GiB."""

_TABLES_FROM = 100
_SEPARATOR = "--"


def tcp_settings(host: LabHostSpec, in_flight_bytes: int) -> dict[str, str]:
    """Return the kernel settings of a host: the defaults of the lab, overridden by the plan.

    Parameters
    ----------
    in_flight_bytes
        Largest bandwidth-delay product plus queue of all routes. Socket buffers can be three times as large, so that the
        network limits throughput unless the plan sets other values.
    """
    window_bytes = min(3 * in_flight_bytes, MAX_SOCKET_BYTES)
    settings = {
        # Metrics cached from earlier connections would make repetitions dependent.
        "net.ipv4.tcp_no_metrics_save": "1",
        "net.ipv4.tcp_slow_start_after_idle": "0",
        "net.ipv4.tcp_rmem": f"4096 131072 {max(window_bytes, 2**25)}",
        "net.ipv4.tcp_wmem": f"4096 16384 {max(window_bytes, 2**22)}",
        # Several interfaces can lead to the same address.
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "0",
        # No router solicitations on the emulated links, which carry IPv4.
        "net.ipv6.conf.default.disable_ipv6": "1",
    }
    if host.lab.nat:
        settings["net.ipv4.ip_forward"] = "1"
    return {**settings, **host.lab.sysctls}


def host_script(host: LabHostSpec, settings: Mapping[str, str]) -> str:
    """Return the script that configures a host and prints the resulting settings, for :func:`read_found`."""
    lines = [f"echo {_quoted(value)} > {_path(key)} 2>/dev/null" for key, value in settings.items()]
    # The defaults above do not apply to devices that the emulator has already created.
    lines += [
        f"echo 1 > /proc/sys/net/ipv6/conf/{nic.device}/disable_ipv6 2>/dev/null"
        if "net.ipv6.conf.default.disable_ipv6" in settings
        else ":"
        for nic in host.nics
    ]
    lines += ["ip -batch - <<'END' || exit 1", *_addresses(host), "END"]
    if host.lab.nat:
        lines += ["nft -f - <<'END' || exit 1", *_masquerade(host), "END"]
    lines += [f"echo {_quoted(key)} $(cat {_path(key)} 2>/dev/null)" for key in settings]
    lines += [f"echo {_SEPARATOR}", "ip -o link show", f"echo {_SEPARATOR}", "ip -4 route show table all"]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """Actual configuration of a host: settings by name, MTU by device, and routes as printed by the kernel."""

    settings: Mapping[str, str]
    mtu: Mapping[str, int]
    routes: tuple[str, ...]


def read_found(output: str) -> FoundSettings:
    """Return the configuration that the script of :func:`host_script` printed.

    Examples
    --------
    >>> read_found('net.ipv4.ip_forward 1\\n--\\n2: eth0: <UP> mtu 1500 qdisc\\n--\\ndefault dev eth0\\n').mtu
    {'eth0': 1500}
    """
    settings, links, routes = (part.strip().splitlines() for part in output.split(f"{_SEPARATOR}\n", 2))
    mtu = {}
    for line in links:
        _, device, rest = line.split(": ", 2)
        fields = rest.split()
        mtu[device.partition("@")[0]] = int(fields[fields.index("mtu") + 1])
    known = {key: " ".join(value.split()) for key, _, value in (line.partition(" ") for line in settings)}
    return FoundSettings(known, mtu, tuple(line.strip() for line in routes))


def _addresses(host: LabHostSpec) -> Iterator[str]:
    control = f"congctl {host.lab.congestion_control}"
    for nic in host.nics:
        yield f"address add {nic.address}/32 dev {nic.device}"
        yield f"link set dev {nic.device} mtu {nic.mtu} txqueuelen {QUEUE_PACKETS} up"
    # Traffic from a host to itself uses separate routes, which would have the kernel's default congestion control.
    for device, address in (("lo", "127.0.0.0/8"), ("lo", "127.0.0.1"), *((n.device, n.address) for n in host.nics)):
        source = address.partition("/")[0].replace("127.0.0.0", "127.0.0.1")
        yield (
            f"route replace local {address} dev {device} proto kernel scope host src {source} table local {control}"
        )
    if host.default_device is not None:
        yield f"route replace default dev {host.default_device} {control}"
    for address, device in host.lab.routes.items():
        own = host.device(device)
        source = f"src {own.address} " if own is not None else ""
        yield f"route replace {address} dev {device} {source}{control}"
    # Sockets bound to the address of an interface send through it, regardless of the default route.
    for number, nic in enumerate(host.nics if len(host.nics) > 1 else ()):
        yield f"route replace default dev {nic.device} table {_TABLES_FROM + number} {control}"
        yield f"rule add from {nic.address} lookup {_TABLES_FROM + number}"


def _masquerade(host: LabHostSpec) -> Iterator[str]:
    yield "table ip venturi {"
    yield "  chain hide {"
    yield "    type nat hook postrouting priority srcnat; policy accept;"
    for device in host.lab.nat:
        yield f'    oifname "{device}" ip saddr {PRIVATE_ADDRESSES} masquerade'
    yield "  }"
    yield "}"


def _path(key: str) -> str:
    return _quoted(f"/proc/sys/{key.replace('.', '/')}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
