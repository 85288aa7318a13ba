"""Storages on existing servers: their URLs, and their services in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from venturi.messages import Problem, path_text
from venturi.plan.header import URL_SERVICE, PlanService, Storage

if TYPE_CHECKING:
    from venturi.scenario.testbed import StorageTable, TestbedTable

__all__ = ["add_url_services", "url_schemes", "url_storage"]

_PROTOCOLS: Mapping[str, Mapping[str, str]] = {
    "http": {"http": "http"},
    "dav": {"http": "http"},
    "https": {"https": "https", "davs": "davs"},
    "davs": {"davs": "davs", "https": "https"},
    "sftp": {"ssh": "sftp"},
}
"""Scheme of a URL → protocol of movers → scheme of their URLs. Other schemes are protocols with the same name."""


def url_schemes(storage: StorageTable) -> tuple[str, ...]:
    """Return the schemes of a storage."""
    return tuple(urlsplit(url).scheme for url in storage.url)


def url_storage(name: str, storage: StorageTable, testbed: TestbedTable, problems: list[Problem]) -> Storage:
    """Return a storage on existing servers; errors are appended to ``problems``."""
    where = path_text(("testbed", "storage", name))
    if not storage.host:
        problems.append(
            (
                f"{where}.host",
                f"expected the host whose programs and credentials handle the files of {name}, found nothing, and"
                f" several hosts: {', '.join(testbed.host) or '(none defined)'}; add host",
            )
        )
    problems += [
        (f"{where}.{key}", f"expected no {key} with url, found one; remove it, or remove url")
        for key in ("path", "kind", "size", "read_rate", "write_rate", "shared")
        if getattr(storage, key)
    ]
    # The root of an XRootD server is `//`.
    url = storage.url[0]
    return Storage(
        storage.host,
        "",
        url=url if url.endswith("//") else url.rstrip("/"),
        checksum=storage.checksum,
        existing=storage.existing is not None,
    )


def add_url_services(testbed: TestbedTable, services: dict[str, PlanService]) -> None:
    """Add the servers of all storages with a URL to the services of a plan. Each service has the name of its storage."""
    for storage, written in testbed.storage.items():
        if written.url:
            name = storage if storage not in services else f"{storage}-url"
            services[name] = PlanService(
                kind=URL_SERVICE, host=None, storages=(storage,), service_ports=_templates(written.url)
            )


def _templates(urls: tuple[str, ...]) -> dict[str, str]:
    """Return the URL template by protocol. A URL with the scheme of a protocol has priority over an equivalent scheme."""
    found: dict[str, str] = {}
    for exact in (True, False):
        for url in urls:
            scheme, _, rest = url.partition("://")
            for protocol, own in _PROTOCOLS.get(scheme, {scheme: scheme}).items():
                if exact == (protocol == scheme) and protocol not in found:
                    directory = rest if rest.endswith("//") else f"{rest.rstrip('/')}/"
                    found[protocol] = f"{own}://{directory}{{relative}}"
    return found
