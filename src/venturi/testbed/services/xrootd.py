"""XRootD: data server, redirector for data servers, proxy of an origin, and disk cache of an origin.

Each of these servers provides a file under its own absolute path. With the option ``shared`` (on all servers of a cluster),
there is a single name space instead, and each data server exports its storage as ``/``. Several data servers can have the same
file. The redirector chooses among them, and chooses the server of a new file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePath

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services import xrootd_access as access
from venturi.testbed.services import xrootd_config as config
from venturi.testbed.services.base import Package, Peers, ServiceContext, ServiceSpec, Use
from venturi.testbed.services.client_calls import read_output, run_checked
from venturi.testbed.services.xrootd_instance import SHARED, Instance

__all__ = ["Cache", "DataServer", "Proxy", "Redirector"]

_GIBIBYTE = 1 << 30
_ORIGIN = Option("origin", "text", None, "its origin, a service of kind xrootd")


class DataServer(Instance):
    """Data server, alone or behind a redirector."""

    kind = "xrootd"
    summary = "XRootD data server: root://, optionally TLS and HTTP/WebDAV; checksums and third-party copies."
    options = (
        *Instance.options,
        Option("transfers", "integer", 10, "limit of simultaneous third-party copies to this server"),
        Option("redirector", "text", None, "its service of kind xrootd-redirector"),
        SHARED,
    )
    refers_to = "redirector"

    def _programs(self, context: ServiceContext) -> tuple[str, ...]:
        return ("cmsd", "xrootd") if self._peers(context) else ("xrootd",)

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the conflict of its storages with its options or its redirector, or ``None``."""
        if validation_error := super().validation_error(spec, peers):
            return validation_error
        if spec.options.get("shared") and len(spec.storages) != 1:
            return f"expected one storage with shared = true, found {len(spec.storages)}; remove the others"
        redirector = self._other(spec)
        return _misfit(spec, peers(redirector), ("xrootd-redirector",)) if redirector else None

    def _lines(self, context: ServiceContext) -> list[str]:
        storages = [str(context.path(storage)) for storage in context.spec.storages]
        run_checked(context.shell, ["mkdir", "-p", *storages], where=context.spec.name, package="coreutils")
        copier = context.shell.which("xrdcp")
        if copier is None:
            raise BackendError(f"{context.spec.name}: expected the program xrdcp, found none; install xrootd-client")
        lines = config.third_party(copier, int(str(context.spec.options.get("transfers") or 10)))
        if context.spec.options.get("shared"):
            lines.append(f"oss.localroot {storages[0]}")
        for redirector in self._peers(context):
            lines += config.cluster_member(redirector.host_name, Redirector().cluster_port(redirector))
        return lines

    def _lack(self, context: ServiceContext, environment: Mapping[str, str]) -> str | None:
        """Query the data servers of the redirector: the list must contain this one."""
        for redirector in self._peers(context):
            redirector_address = f"{redirector.host_name}:{self._ports(redirector.spec)[0]}"
            listed = read_output(context.shell, ["xrdfs", redirector_address, "locate", "*"], environment=environment)
            own = re.compile(rf"\b{re.escape(context.address)}\]?:{self._ports(context.spec)[0]}\b")
            if not own.search(listed or ""):
                return f"not yet among the data servers of {redirector.spec.name}"
        return None


class Redirector(Instance):
    """Manager of data servers, which stores no data and redirects clients."""

    kind = "xrootd-redirector"
    summary = "XRootD redirector: redirects clients to the data servers that name it."
    options = (
        *Instance.options,
        SHARED,
        Option(
            "lookup",
            "time",
            1.0,
            "time after which a client requests a file again that no server has; each new file takes at least this time",
        ),
    )
    default_ports = (1094, 1213)
    required_ports = 2
    serves_remote_storages = True
    """Its storages belong to its data servers, on other hosts."""

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return the service ports of data servers without ``roots``: release 5.5 finds no readable server for it."""
        return {
            service_port: url
            for service_port, url in super().service_ports(spec, host_name).items()
            if service_port != "roots"
        }

    def unsupported_use(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it accepts no new files if it could create them on several storages."""
        if use == "write" and spec.options.get("shared") and len(spec.storages) > 1:
            return f"with shared = true it creates a new file on any of its storages ({', '.join(spec.storages)}), where clients do not find it"
        return super().unsupported_use(spec, use)

    def cluster_port(self, context: ServiceContext) -> int:
        """Return the port where data servers register."""
        return self._ports(context.spec)[1]

    def _programs(self, context: ServiceContext) -> tuple[str, ...]:
        return ("cmsd", "xrootd")

    def _inquiry(self, path: str) -> tuple[str, ...]:
        # A redirector has no paths before a data server has registered.
        return ("query", "config", "role")

    def _http_inquiry(self, url: str) -> tuple[str, ...]:
        return ("-X", "OPTIONS", url)

    def _lines(self, context: ServiceContext) -> list[str]:
        lookup_s = math.ceil(max(1.0, float(str(context.spec.options.get("lookup_s") or 1.0))))
        return config.redirector(context.host_name, self.cluster_port(context), lookup_s=lookup_s)


class Proxy(Instance):
    """Proxy that opens each file at the origin for its clients."""

    kind = "xrootd-proxy"
    summary = "XRootD proxy: fetches requested files from the origin, without a cache."
    options = (*Instance.options, _ORIGIN, SHARED)
    refers_to = "origin"

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return why it cannot fetch from its origin."""
        if validation_error := super().validation_error(spec, peers):
            return validation_error
        origin = self._other(spec)
        if origin is None:
            return "expected the option origin, found none; name an xrootd service"
        return _misfit(spec, peers(origin), ("xrootd", "xrootd-redirector", "xrootd-proxy", "xrootd-cache"))

    def _lines(self, context: ServiceContext) -> list[str]:
        origin = self._peers(context)[0]
        return config.proxy(f"{origin.host_name}:{self._ports(origin.spec)[0]}")


class Cache(Proxy):
    """Proxy that keeps the blocks that it has read on disk (XCache)."""

    kind = "xrootd-cache"
    summary = "XRootD disk cache (XCache): a proxy that keeps fetched blocks."
    options = (
        *Proxy.options,
        Option("store", "text", None, "storage for the cached blocks; by default its own directory"),
        Option("memory", "size", _GIBIBYTE, "memory for blocks in flight", minimum=_GIBIBYTE),
        Option("block", "size", 1 << 20, "block size of fetches and of the cache", minimum=1 << 12),
        Option("prefetch", "integer", 8, "blocks of read-ahead; 0: none", minimum=0),
    )
    packages = (*Instance.packages, Package("xrdpfc_print", "xrootd-server"))
    event_streams = ("pfc",)

    def unsupported_use(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it accepts no uploads."""
        return (
            "it caches files for readers and accepts no uploads"
            if use == "write"
            else super().unsupported_use(spec, use)
        )

    def store(self, context: ServiceContext) -> PurePath:
        """Return the directory of cached files, which have the same paths below it as at the origin."""
        storage = context.spec.options.get("store")
        return context.path(str(storage)) if storage else context.directory / "blocks"

    def _lines(self, context: ServiceContext) -> list[str]:
        store, options = self.store(context), context.spec.options
        owner = access.account(context)
        prepare = 'mkdir -p "$1"' + (f' && chown {owner} "$1"' if owner else "")
        run_checked(
            context.shell, ["sh", "-c", prepare, "sh", str(store)], where=context.spec.name, package="coreutils"
        )
        sizes = {option.key: int(str(options.get(option.key, option.default))) for option in self.options[-3:]}
        return [*super()._lines(context), *config.cache(store, **sizes)]


def _misfit(spec: ServiceSpec, other: ServiceSpec, kinds: tuple[str, ...]) -> str | None:
    """Return why another service has an unsuitable kind or a different name space, or None."""
    if other.kind not in kinds:
        return f"expected {other.name} to be a service of kind {' or '.join(kinds)}, found {other.kind}"
    own_shared, other_shared = (bool(one.options.get("shared")) for one in (spec, other))
    if own_shared == other_shared:
        return None
    return f"expected {other.name} to have shared = {str(own_shared).lower()}, found {str(other_shared).lower()}; set both alike"
