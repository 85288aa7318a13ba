"""One small lab for each kind of service, with the command of a real client."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HOSTS", "LABS", "ServiceLab"]

HOSTS = """
[host.a]
cpu_limit = 2
[host.b]
[host.c]
[router.core]
[link.a-core]
between = ["a", "core"]
rate = "1 Gb/s"
delay = "0.5 ms"
[link.b-core]
between = ["b", "core"]
rate = "1 Gb/s"
delay = "0.5 ms"
[link.c-core]
between = ["c", "core"]
rate = "1 Gb/s"
delay = "0.5 ms"
[storage.disk]
host = "a"
path = "data"
kind = "disk"
size = "64 MB"
[storage.chunks]
host = "b"
path = "chunks"
[storage.mounted]
host = "c"
path = "mounted"
"""
"""Three hosts and a router, with a separate disk and a limit, so that all labs use loop devices, mounts and control groups."""


@dataclass(frozen=True)
class ServiceLab:
    """A testbed with servers, and the command of a client on host c that uses the service ``server``.

    Attributes
    ----------
    services
        Tables of a scenario's testbed.
    client
        A command of ``sh``: ``{url}`` is a file of the disk at the service port, ``{copy}`` the path of its copy,
        ``{file}`` its path.
    service_port
        Protocol of ``{url}``.
    copies
        Whether ``{copy}`` must be identical to the file afterwards.
    """

    services: str
    client: str
    service_port: str | None = None
    copies: bool = True


def _service(name: str, kind: str, host: str = "a", storage: str = "disk", **options: str) -> str:
    listed = ", ".join(f"{key} = {value}" for key, value in options.items())
    served = f'storage = ["{storage}"]\n' if storage else ""
    return f'[service.{name}]\nkind = "{kind}"\nhost = "{host}"\n{served}options = {{ {listed} }}\n'


_KDC = _service("kdc", "kdc", "b", "")
_XRDCP = "xrdcp -f -N {url} {copy}"
_GRIDFTP = "globus-url-copy {url} file://{copy}"
_MOOSEFS = (
    _service("master", "moosefs-master", "a", "")
    + _service("chunks", "moosefs-chunkserver", "b", "chunks", master='"master"', leave='"1 MiB"')
    + _service("server", "moosefs-mount", "c", "mounted", master='"master"', chunkservers='"chunks"')
)

LABS: dict[str, ServiceLab] = {
    "gridftp": ServiceLab(_service("server", "gridftp"), _GRIDFTP, "ftp"),
    "gridftp, gsi": ServiceLab(_service("server", "gridftp", auth='"gsi"'), _GRIDFTP, "gsiftp"),
    "gridftp-node, striped": ServiceLab(
        _service("node1", "gridftp-node")
        + _service("node2", "gridftp-node")
        + _service("server", "gridftp", data_nodes='"node1,node2"'),
        "globus-url-copy -p 2 -stripe {url} file://{copy}",
        "ftp",
    ),
    "iperf3": ServiceLab(
        _service("server", "iperf3", storage=""), "iperf3 -c a.lab.test -n 1M -J", None, copies=False
    ),
    "kdc": ServiceLab(
        _service("server", "kdc", storage=""), "kvno krbtgt/LAB.TEST@LAB.TEST && klist", None, copies=False
    ),
    "moosefs, three kinds": ServiceLab(
        _MOOSEFS, "cp {file} {mounted}/x && cat {mounted}/x > {copy} && rm {mounted}/x", None
    ),
    "nginx": ServiceLab(_service("server", "nginx"), "curl -sSf -o {copy} {url}", "http"),
    "nuttcp": ServiceLab(_service("server", "nuttcp", storage=""), "nuttcp -n16 a.lab.test", None, copies=False),
    "squid": ServiceLab(
        _service("origin", "nginx") + _service("proxy", "squid", "b", "", workers="2"),
        "curl -sSf -x http://b.lab.test:3128 -o {copy} {url}",
        "http",
    ),
    "sshd": ServiceLab(
        _service("server", "sshd"), 'scp -q -B -F "$VENTURI_SSH_CONFIG" a.lab.test:{file} {copy}', "ssh"
    ),
    "xrootd": ServiceLab(_service("server", "xrootd", http="true"), _XRDCP, "root"),
    "xrootd, sss": ServiceLab(_service("server", "xrootd", auth='"sss"'), _XRDCP, "root"),
    "xrootd, krb5": ServiceLab(_KDC + _service("server", "xrootd", auth='"krb5"', kdc='"kdc"'), _XRDCP, "root"),
    "xrootd, gsi and TLS": ServiceLab(
        _service("server", "xrootd", auth='"gsi"', tls="true", http="true"), _XRDCP, "root"
    ),
    "xrootd-cache": ServiceLab(
        _service("origin", "xrootd") + _service("server", "xrootd-cache", "b", origin='"origin"'), _XRDCP, "root"
    ),
    "xrootd-proxy": ServiceLab(
        _service("origin", "xrootd") + _service("server", "xrootd-proxy", "b", origin='"origin"'), _XRDCP, "root"
    ),
    "xrootd-redirector": ServiceLab(
        _service("server", "xrootd-redirector", "b") + _service("member", "xrootd", redirector='"server"'),
        _XRDCP,
        "root",
    ),
}
"""Labs by name: the kind of service, and its variant."""
