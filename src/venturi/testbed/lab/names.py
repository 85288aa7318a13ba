"""Who is who in the lab: the files that names are looked up in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from venturi.testbed.lab.asked import AskedHost

__all__ = ["hosts_file", "name_binds", "switch_file"]

_HOSTS = re.compile(r"^hosts:.*$", re.MULTILINE)


def hosts_file(hosts: Iterable[AskedHost]) -> str:
    """Return ``/etc/hosts`` of the lab: every interface by its full name, and hosts by their short one too.

    A host without links is to itself what it is to nobody else: its loopback.

    Examples
    --------
    >>> from venturi.plan.header import LabHost
    >>> from venturi.testbed.lab.asked import AskedHost, Nic
    >>> nics = Nic("a.eth0", "eth0", "10.77.0.1", 1500), Nic("a.eth1", "eth1", "10.77.0.2", 1500)
    >>> a = AskedHost("a", LabHost(), nics)
    >>> print(hosts_file([a]), end="")
    127.0.0.1 localhost
    10.77.0.1 a.lab.test a
    10.77.0.2 a-eth1.lab.test a-eth1
    """
    lines = ["127.0.0.1 localhost"]
    for host in hosts:
        for nic in host.nics:
            name = host.name_of(nic)
            lines.append(f"{nic.address} {name} {name.partition('.')[0]}")
        if not host.nics:
            lines.append(f"127.0.0.1 {host.host_name} {host.name}")
    return "\n".join(lines) + "\n"


def switch_file(usual: str) -> str:
    """Return ``/etc/nsswitch.conf`` with which hosts are looked up in the file alone.

    Examples
    --------
    >>> switch_file("passwd: files\\nhosts: files dns myhostname\\n")
    'passwd: files\\nhosts: files\\n'
    """
    return _HOSTS.sub("hosts: files", usual) if _HOSTS.search(usual) else f"{usual}hosts: files\n"


def name_binds(folder: Path, hosts: Iterable[AskedHost]) -> list[tuple[Path, Path]]:
    """Write the files below ``folder`` and return what is to be seen where."""
    folder.mkdir()
    usual = Path("/etc/nsswitch.conf")
    texts = {
        Path("/etc/hosts"): hosts_file(hosts),
        usual: switch_file(usual.read_text() if usual.exists() else ""),
        Path("/etc/resolv.conf"): "",
    }
    binds = []
    for path, text in texts.items():
        # A link leads to a folder that the lab has empty: nothing is found there, which is as good as an empty file.
        if path.is_file() and not path.is_symlink():
            mine = folder / path.name
            mine.write_text(text, encoding="utf-8")
            mine.chmod(0o644)
            binds.append((mine, path))
    return binds
