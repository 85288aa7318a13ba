"""Programs that movers run, and their packages."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TOOLS", "Tool", "install_hint"]


class Tool(NamedTuple):
    """Program, its Debian packages (empty: not in Debian), and its users."""

    program: str
    packages: str
    use: str


TOOLS = (
    Tool("cp", "coreutils", "mover cp"),
    Tool("dd", "coreutils", "movers read and write"),
    Tool("fio", "fio", "movers fio-read and fio-write"),
    Tool("bonnie++", "bonnie++", "mover bonnie"),
    Tool("rsync", "rsync", "mover rsync"),
    Tool("rclone", "rclone", "mover rclone"),
    Tool("globus-url-copy", "globus-gass-copy-progs", "mover globus-url-copy"),
    Tool("xrdcp", "xrootd-client", "mover xrdcp"),
    Tool("curl", "curl", "mover curl"),
    Tool("wget", "wget", "mover wget"),
    Tool("davix-get", "davix", "mover davix"),
    Tool("gfal-copy", "gfal2-util-scripts python3-gfal2-util", "mover gfal-copy"),
    Tool("scp", "openssh-client", "mover scp"),
    Tool("bbftp", "", "mover bbftp"),
    Tool("iperf3", "iperf3", "mover iperf3"),
    Tool("nuttcp", "nuttcp", "mover nuttcp"),
    Tool("ssh", "openssh-client", "hosts other than this one"),
)


def install_hint(program: str) -> str:
    """Return the installation hint for a program; empty if no mover uses the program.

    >>> install_hint("davix-get")
    'Debian: apt-get install davix'
    """
    for tool in TOOLS:
        if tool.program == program:
            return (
                f"Debian: apt-get install {tool.packages}"
                if tool.packages
                else "not in Debian: build it from its sources"
            )
    return ""
