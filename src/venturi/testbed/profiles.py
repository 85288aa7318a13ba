"""Named TCP profiles of hosts: kernel settings (sysctls) of a network namespace.

A profile sets all values that matter to it, because defaults differ between kernels and machines. Congestion control is
a separate key. Settings of the whole machine (``rmem_max``, ``tcp_mem``, ``netdev_max_backlog``) cannot be set for one
host of a lab.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEFAULT_PROFILE", "PROFILES", "problem_of_setting"]

DEFAULT_PROFILE = "default"

PROFILES: Mapping[str, Mapping[str, str]] = {
    # Defaults of Linux on a machine with 4 GiB of memory or more (tcp_init, net/ipv4/tcp.c): read buffers up to 6 MiB, write
    # buffers up to 4 MiB. Some distributions increase them, and network namespaces inherit the increased values.
    "default": {
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
        "net.ipv4.tcp_wmem": "4096 16384 4194304",
    },
    # Report 003, network tuning (F50): buffers up to 32 MiB and path-MTU probing. Its other values are not part of a profile:
    # H-TCP (congestion_control), an MTU of 9000 (mtu of links), rmem_max, wmem_max, txqueuelen and netdev_max_backlog.
    "wan": {
        "net.ipv4.tcp_mtu_probing": "1",
        "net.ipv4.tcp_rmem": "4096 87380 33554432",
        "net.ipv4.tcp_wmem": "4096 65536 33554432",
    },
}  # fmt: skip
"""Profile name in scenarios → settings by name."""

_OF_THE_MACHINE = (
    "net.core.rmem_max", "net.core.wmem_max", "net.core.rmem_default", "net.core.wmem_default", "net.core.netdev_max_backlog",
    "net.core.default_qdisc", "net.ipv4.tcp_mem", "net.ipv4.tcp_allowed_congestion_control",
)  # fmt: skip


def problem_of_setting(name: str) -> str | None:
    """Return why a kernel setting is invalid for a host of a lab; ``None`` if it is valid.

    Examples
    --------
    >>> problem_of_setting("net.ipv4.tcp_rmem")
    >>> problem_of_setting("vm.swappiness")
    'expected a setting of a network namespace such as net.ipv4.tcp_rmem, found vm.swappiness'
    """
    if name == "net.ipv4.tcp_congestion_control":
        return f"expected the host key congestion_control instead of {name}, found {name} in a profile"
    if name in _OF_THE_MACHINE:
        return f"expected a setting of a network namespace, found {name}, which applies to the whole machine"
    if not name.startswith(("net.ipv4.", "net.ipv6.", "net.core.")) or "/" in name or " " in name:
        return f"expected a setting of a network namespace such as net.ipv4.tcp_rmem, found {name}"
    return None
