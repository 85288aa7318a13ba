"""XRootD: a data server, a redirector in front of data servers, a proxy of an origin, and a disk cache of one.

A door gives a file at its own absolute path, whichever of these servers is asked. With the option ``shared`` (on all
of a cluster) there is one name space instead: each data server exports its place as ``/``, a file may be on several of
them, and the redirector chooses among those that hold it, or where a new one goes.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services import xrootd_access as access
from venturi.testbed.services import xrootd_config as config
from venturi.testbed.services.base import Package, Peers, Room, ServiceSpec, Use
from venturi.testbed.services.calls import answer, must
from venturi.testbed.services.xrootd_instance import SHARED, Instance

__all__ = ["Cache", "DataServer", "Proxy", "Redirector"]

_GIBIBYTE = 1 << 30
_ORIGIN = Option("origin", "text", None, "the xrootd service that it reads from")


class DataServer(Instance):
    """A data server, alone or behind a redirector."""

    kind = "xrootd"
    summary = "XRootD data server: root://, optionally TLS and HTTP/WebDAV; checksums and third-party copies."
    options = (
        *Instance.options,
        Option("transfers", "integer", 10, "third-party copies that it receives at the same time"),
        Option("redirector", "text", None, "the service of kind xrootd-redirector that it refers to"),
        SHARED,
    )
    refers_to = "redirector"

    def _programs(self, room: Room) -> tuple[str, ...]:
        return ("cmsd", "xrootd") if self._peers(room) else ("xrootd",)

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return why it cannot serve what it is to serve, in the name space of its redirector."""
        if mistake := super().mistake(spec, peers):
            return mistake
        if spec.options.get("shared") and len(spec.places) != 1:
            return f"expected one storage with shared = true, found {len(spec.places)}; leave one"
        redirector = self._other(spec)
        return _misfit(spec, peers(redirector), ("xrootd-redirector",)) if redirector else None

    def _lines(self, room: Room) -> list[str]:
        places = [str(room.path(place)) for place in room.spec.places]
        must(room.machine, ["mkdir", "-p", *places], where=room.spec.name, package="coreutils")
        copier = shutil.which("xrdcp")
        if copier is None:
            raise BackendError(f"{room.spec.name}: expected the program xrdcp, found none; install xrootd-client")
        lines = config.third_party(copier, int(str(room.spec.options.get("transfers") or 10)))
        if room.spec.options.get("shared"):
            lines.append(f"oss.localroot {places[0]}")
        for redirector in self._peers(room):
            lines += config.cluster_member(redirector.host_name, Redirector().cluster_port(redirector))
        return lines

    def _lack(self, room: Room, environment: Mapping[str, str]) -> str | None:
        """Ask the redirector for its data servers: it must know this one."""
        for redirector in self._peers(room):
            asked = f"{redirector.host_name}:{self._ports(redirector.spec)[0]}"
            listed = answer(room.machine, ["xrdfs", asked, "locate", "*"], environment=environment)
            own = re.compile(rf"\b{re.escape(room.address)}\]?:{self._ports(room.spec)[0]}\b")
            if not own.search(listed or ""):
                return f"not yet among the data servers of {redirector.spec.name}"
        return None


class Redirector(Instance):
    """A manager of data servers: it holds no data, and sends clients on."""

    kind = "xrootd-redirector"
    summary = "XRootD redirector: sends clients on to the data servers that refer to it."
    options = (
        *Instance.options,
        SHARED,
        Option(
            "lookup",
            "time",
            1.0,
            "how long a client waits before it asks again for a file that no server has: what each new file takes at least",
        ),
    )
    default_ports = (1094, 1213)
    shares = True
    """Its storages are those of its data servers, on other hosts."""

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return those of its data servers but ``roots``, for which release 5.5 finds none with read access."""
        return {door: url for door, url in super().doors(spec, host_name).items() if door != "roots"}

    def refusal(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it takes no new file where nobody could say on which storage that ends."""
        if use == "write" and spec.options.get("shared") and len(spec.places) > 1:
            return f"with shared = true it puts a new file on any of its storages ({', '.join(spec.places)}), where it would not be found"
        return super().refusal(spec, use)

    def cluster_port(self, room: Room) -> int:
        """Return the port on which data servers register."""
        return self._ports(room.spec)[1]

    def _programs(self, room: Room) -> tuple[str, ...]:
        return ("cmsd", "xrootd")

    def _inquiry(self, path: str) -> tuple[str, ...]:
        # It knows of no path before a data server has registered.
        return ("query", "config", "role")

    def _http_inquiry(self, url: str) -> tuple[str, ...]:
        return ("-X", "OPTIONS", url)

    def _lines(self, room: Room) -> list[str]:
        lookup_s = math.ceil(max(1.0, float(str(room.spec.options.get("lookup_s") or 1.0))))
        return config.redirector(room.host_name, self.cluster_port(room), lookup_s=lookup_s)


class Proxy(Instance):
    """A proxy: it opens each file at the origin for its clients."""

    kind = "xrootd-proxy"
    summary = "XRootD proxy: fetches from the origin what its clients ask for, and keeps nothing."
    options = (*Instance.options, _ORIGIN, SHARED)
    refers_to = "origin"

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return why it cannot fetch from its origin."""
        if mistake := super().mistake(spec, peers):
            return mistake
        origin = self._other(spec)
        if origin is None:
            return "expected the option origin, found none; name an xrootd service"
        return _misfit(spec, peers(origin), ("xrootd", "xrootd-redirector", "xrootd-proxy", "xrootd-cache"))

    def _lines(self, room: Room) -> list[str]:
        origin = self._peers(room)[0]
        return config.proxy(f"{origin.host_name}:{self._ports(origin.spec)[0]}")


class Cache(Proxy):
    """A proxy that keeps what it has read, in blocks on disk (XCache)."""

    kind = "xrootd-cache"
    summary = "XRootD disk cache (XCache): a proxy that keeps the blocks it has read."
    options = (
        *Proxy.options,
        Option("store", "text", None, "the storage that holds the cached blocks; by default a folder of its own"),
        Option("memory", "size", _GIBIBYTE, "memory for blocks in flight", minimum=_GIBIBYTE),
        Option("block", "size", 1 << 20, "bytes that are fetched and kept together", minimum=1 << 12),
        Option("prefetch", "integer", 8, "blocks that are fetched ahead; 0: only what is asked for", minimum=0),
    )
    packages = (*Instance.packages, Package("xrdpfc_print", "xrootd-server"))
    event_streams = ("pfc",)

    def refusal(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it takes no files."""
        return "it keeps what it has read, and takes no files" if use == "write" else super().refusal(spec, use)

    def store(self, room: Room) -> Path:
        """Return the folder below which a cached file has the path that it has at the origin."""
        place = room.spec.options.get("store")
        return room.path(str(place)) if place else room.folder / "blocks"

    def _lines(self, room: Room) -> list[str]:
        store, options = self.store(room), room.spec.options
        owner = access.account(room)
        prepare = 'mkdir -p "$1"' + (f' && chown {owner} "$1"' if owner else "")
        must(room.machine, ["sh", "-c", prepare, "sh", str(store)], where=room.spec.name, package="coreutils")
        sizes = {option.key: int(str(options.get(option.key, option.default))) for option in self.options[-3:]}
        return [*super()._lines(room), *config.cache(store, **sizes)]


def _misfit(spec: ServiceSpec, other: ServiceSpec, kinds: tuple[str, ...]) -> str | None:
    """Return why another service is not of a fitting kind, with the same name space."""
    if other.kind not in kinds:
        return f"expected {other.name} to be a service of kind {' or '.join(kinds)}, found {other.kind}"
    mine, theirs = (bool(one.options.get("shared")) for one in (spec, other))
    if mine == theirs:
        return None
    return f"expected {other.name} to have shared = {str(mine).lower()}, found {str(theirs).lower()}; set both alike"
