"""TCP settings of hosts as named profiles: kernel settings (sysctls) of one network namespace each.

A profile sets what it means to set in full, because kernels and machines differ in their defaults. Congestion control is
chosen beside it, not in it. What belongs to the whole machine (``rmem_max``, ``tcp_mem``, ``netdev_max_backlog``) cannot be a
setting of one host of a lab.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEFAULT_PROFILE", "PROFILES", "problem_of_setting"]

DEFAULT_PROFILE = "default"

PROFILES: Mapping[str, Mapping[str, str]] = {
    # What Linux sets up on a machine with 4 GiB of memory or more (tcp_init, net/ipv4/tcp.c): read buffers up to 6 MiB, write
    # buffers up to 4 MiB. Some distributions raise them, and network namespaces inherit that.
    "default": {
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
        "net.ipv4.tcp_wmem": "4096 16384 4194304",
    },
    # Report 003, network tuning (F50): buffers up to 32 MiB and path-MTU probing. Its further values are not settings of a host
    # here: H-TCP (congestion_control), an MTU of 9000 (mtu of links), rmem_max, wmem_max, txqueuelen and netdev_max_backlog.
    "wan": {
        "net.ipv4.tcp_mtu_probing": "1",
        "net.ipv4.tcp_rmem": "4096 87380 33554432",
        "net.ipv4.tcp_wmem": "4096 65536 33554432",
    },
}  # fmt: skip
"""Name, as it stands in a scenario → settings by name."""

_OF_THE_MACHINE = (
    "net.core.rmem_max", "net.core.wmem_max", "net.core.rmem_default", "net.core.wmem_default", "net.core.netdev_max_backlog",
    "net.core.default_qdisc", "net.ipv4.tcp_mem", "net.ipv4.tcp_allowed_congestion_control",
)  # fmt: skip


def problem_of_setting(name: str) -> str | None:
    """Return what is wrong with a kernel setting as one of a host of a lab, ``None`` if it may be one.

    Examples
    --------
    >>> problem_of_setting("net.ipv4.tcp_rmem")
    >>> problem_of_setting("vm.swappiness")
    'expected a setting of a network namespace such as net.ipv4.tcp_rmem, found vm.swappiness'
    """
    if name == "net.ipv4.tcp_congestion_control":
        return f"expected congestion_control of a host in place of {name}, found it in a profile"
    if name in _OF_THE_MACHINE:
        return f"expected a setting of a network namespace, found {name}, which the whole machine has in common"
    if not name.startswith(("net.ipv4.", "net.ipv6.", "net.core.")) or "/" in name or " " in name:
        return f"expected a setting of a network namespace such as net.ipv4.tcp_rmem, found {name}"
    return None
