"""The lines of XRootD's configuration files. Pure: from numbers and paths to text.

A line holds no comment behind its value: XRootD takes it as part of the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["base", "cache", "cluster_member", "exports", "http", "monitor", "proxy", "redirector", "third_party"]


def base(folder: Path, port: int) -> list[str]:
    """Return what every instance needs: a folder of its own and its port."""
    return [f"all.adminpath {folder}/admin", f"all.pidpath {folder}/run", f"xrd.port {port} if exec xrootd"]


def exports(paths: Iterable[Path]) -> list[str]:
    """Return the paths that clients may use."""
    return [f"all.export {path}" for path in paths]


def http(port: int | None, *, tls: bool, certificate: Path, key: Path, trusted: Path) -> list[str]:
    """Return HTTP and WebDAV with third-party copies, on a port of its own or (None) on the one of root://.

    A certificate is there also without TLS: release 5.5 loads the plug-in of third-party copies only together with HTTPS.
    """
    # cmsd reads the same file, and would load the protocol too.
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
    """Return a log line for each opening and closing of a file, and counts of bytes as datagrams to a collector."""
    to = f"{address}:{port}"
    return [
        "if exec xrootd",
        "xrootd.trace fs",
        f"xrootd.monitor all auth flush {flush_s}s window {flush_s}s fstat {flush_s}s lfn ops xfr 1 dest fstat files user {to}",
        f"xrootd.mongstream {' '.join(streams)} use flush {flush_s}s send json dflthdr {to}",
        "fi",
    ]


def third_party(program: str, transfers: int) -> list[str]:
    """Return third-party copies over root://, so many at a time, and checksums."""
    return ["xrootd.chksum max 4 adler32 md5", f"ofs.tpc ttl 60 60 xfr {transfers} pgm {program} --server"]


def redirector(address: str, port: int, *, lookup_s: int) -> list[str]:
    """Return a manager: it listens for the ``cmsd`` of data servers on ``port``.

    Parameters
    ----------
    lookup_s
        Whole seconds that a client is told to wait when no data server has yet said to have a file.
    """
    # By default it serves 90 s after its start, to get to know hundreds of servers first.
    delays = f"cms.delay startup 1 servers 1 lookup {lookup_s} full 1"
    manager = ["all.role manager", f"all.manager {address}:{port}", f"xrd.port {port} if exec cmsd"]
    return [*manager, delays, "cms.allow host *"]


def cluster_member(address: str, port: int) -> list[str]:
    """Return a data server that refers to the manager at ``address``."""
    # By default it takes no new files with less than 10 GiB free, more than a lab's disk may have.
    return ["all.role server", f"all.manager {address}:{port}", "cms.allow host *", "cms.space min 10m 5m"]


def proxy(origin: str) -> list[str]:
    """Return a proxy of ``host:port``.

    With the default of ``xrootd.async``, the proxy of release 5.5 forwards each read of a client as serial reads of 64 KiB,
    and copies with several streams hang.
    """
    return ["ofs.osslib libXrdPss.so", f"pss.origin {origin}", "xrootd.async off"]


def cache(store: Path, *, memory_bytes: int, block_bytes: int, prefetch: int) -> list[str]:
    """Return a disk cache below ``store`` on top of a proxy."""
    return [
        "pss.cachelib libXrdPfc.so",
        f"oss.localroot {store}",
        f"pfc.ram {memory_bytes}",
        f"pfc.blocksize {block_bytes}",
        f"pfc.prefetch {prefetch}",
        "pfc.diskusage 0.9 0.95",
    ]
