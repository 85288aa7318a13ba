"""Lines of XRootD configuration files, as pure functions of numbers and paths.

A line must not contain a comment after its value, because XRootD would make the comment part of the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

__all__ = ["base", "cache", "cluster_member", "exports", "http", "monitor", "proxy", "redirector", "third_party"]


def base(admin: PurePath, directory: PurePath, port: int) -> list[str]:
    """Return the lines of every instance: directories for sockets and files, and the port."""
    return [f"all.adminpath {admin}", f"all.pidpath {directory}/run", f"xrd.port {port} if exec xrootd"]


def exports(paths: Iterable[PurePath]) -> list[str]:
    """Return the lines for the paths that clients can use."""
    return [f"all.export {path}" for path in paths]


def http(port: int | None, *, tls: bool, certificate: PurePath, key: PurePath, trusted: PurePath) -> list[str]:
    """Return the lines for HTTP and WebDAV with third-party copies; ``port`` None: the port of root://.

    The certificate is necessary even without TLS: release 5.5 loads the plug-in of third-party copies only with HTTPS.
    """
    # cmsd reads the same file and must not load the protocol.
    return [
        "if exec xrootd",
        f"xrd.protocol XrdHttp{'' if port is None else f':{port}'} libXrdHttp.so",
        f"http.cert {certificate}",
        f"http.key {key}",
        f"http.cadir {trusted}",
        "http.listingdeny no",
        f"http.desthttps {'yes' if tls else 'no'}",
        "http.exthandler xrdtpc libXrdHttpTPC.so",
        "tpc.timeout 120",
        "fi",
    ]


def monitor(address: str, port: int, streams: Iterable[str], flush_s: int) -> list[str]:
    """Return the lines that log each opening and closing of a file and send byte counts as datagrams to a collector."""
    to = f"{address}:{port}"
    return [
        "if exec xrootd",
        "xrootd.trace fs",
        f"xrootd.monitor all auth flush {flush_s}s window {flush_s}s fstat {flush_s}s lfn ops xfr 1 dest fstat files user {to}",
        f"xrootd.mongstream {' '.join(streams)} use flush {flush_s}s send json dflthdr {to}",
        "fi",
    ]


def third_party(program: str, transfers: int) -> list[str]:
    """Return the lines for third-party copies over root://, with a limit of simultaneous copies, and for checksums."""
    return ["xrootd.chksum max 4 adler32 md5", f"ofs.tpc ttl 60 60 xfr {transfers} pgm {program} --server"]


def redirector(address: str, port: int, *, lookup_s: int) -> list[str]:
    """Return the lines of a manager that listens for the ``cmsd`` of data servers on ``port``.

    Parameters
    ----------
    lookup_s
        Time that a client must wait if no data server has reported the file yet, in whole seconds.
    """
    # With the default, it serves clients only 90 s after its start, to collect hundreds of servers first.
    delays = f"cms.delay startup 1 servers 1 lookup {lookup_s} full 1"
    manager = ["all.role manager", f"all.manager {address}:{port}", f"xrd.port {port} if exec cmsd"]
    return [*manager, delays, "cms.allow host *"]


def cluster_member(address: str, port: int) -> list[str]:
    """Return the lines of a data server of the manager at ``address``."""
    # The default rejects new files with less than 10 GiB free, which can exceed the size of a lab's disk.
    return ["all.role server", f"all.manager {address}:{port}", "cms.allow host *", "cms.space min 10m 5m"]


def proxy(origin: str) -> list[str]:
    """Return the lines of a proxy of ``host:port``.

    With the default of ``xrootd.async``, the proxy of release 5.5 forwards each read of a client as serial reads of 64 KiB,
    and copies with several streams hang.
    """
    return ["ofs.osslib libXrdPss.so", f"pss.origin {origin}", "xrootd.async off"]


def cache(store: PurePath, *, memory_bytes: int, block_bytes: int, prefetch: int) -> list[str]:
    """Return the lines of a disk cache below ``store``, in addition to the lines of a proxy."""
    return [
        "pss.cachelib libXrdPfc.so",
        f"oss.localroot {store}",
        f"pfc.ram {memory_bytes}",
        f"pfc.blocksize {block_bytes}",
        f"pfc.prefetch {prefetch}",
        "pfc.diskusage 0.9 0.95",
    ]
