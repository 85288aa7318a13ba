"""Name resolution in the lab: hosts file and its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from venturi.testbed.lab.spec import LabHostSpec

__all__ = ["hosts_file", "name_binds", "switch_file"]

_HOSTS = re.compile(r"^hosts:.*$", re.MULTILINE)


def hosts_file(hosts: Iterable[LabHostSpec]) -> str:
    """Return ``/etc/hosts`` of the lab: every interface with its full and short name.

    The name of a host without links resolves to the loopback address.

    Examples
    --------
    >>> from venturi.plan.header import LabHost
    >>> from venturi.testbed.lab.spec import LabHostSpec, Nic
    >>> nics = Nic("a.eth0", "eth0", "10.77.0.1", 1500), Nic("a.eth1", "eth1", "10.77.0.2", 1500)
    >>> a = LabHostSpec("a", LabHost(), nics)
    >>> print(hosts_file([a]), end="")
    127.0.0.1 localhost
    10.77.0.1 a.lab.test a
    10.77.0.2 a-eth1.lab.test a-eth1
    """
    lines = ["127.0.0.1 localhost"]
    for host in hosts:
        for nic in host.nics:
            name = host.interface_name(nic)
            lines.append(f"{nic.address} {name} {name.partition('.')[0]}")
        if not host.nics:
            lines.append(f"127.0.0.1 {host.host_name} {host.name}")
    return "\n".join(lines) + "\n"


def switch_file(usual: str) -> str:
    """Return ``/etc/nsswitch.conf`` that looks up hosts only in the hosts file.

    Examples
    --------
    >>> switch_file("passwd: files\\nhosts: files dns myhostname\\n")
    'passwd: files\\nhosts: files\\n'
    """
    return _HOSTS.sub("hosts: files", usual) if _HOSTS.search(usual) else f"{usual}hosts: files\n"


def name_binds(directory: Path, hosts: Iterable[LabHostSpec]) -> list[tuple[Path, Path]]:
    """Write the files below ``directory`` and return bind mounts as pairs of source and target."""
    directory.mkdir()
    usual = Path("/etc/nsswitch.conf")
    texts = {
        Path("/etc/hosts"): hosts_file(hosts),
        usual: switch_file(usual.read_text() if usual.exists() else ""),
        Path("/etc/resolv.conf"): "",
    }
    binds = []
    for path, text in texts.items():
        # A symbolic link points into a directory that is empty in the lab. A missing file has the effect of an empty one.
        if path.is_file() and not path.is_symlink():
            mine = directory / path.name
            mine.write_text(text, encoding="utf-8")
            mine.chmod(0o644)
            binds.append((mine, path))
    return binds
