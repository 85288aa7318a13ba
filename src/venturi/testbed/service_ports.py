"""Conversion of the services of a scenario to services of a plan: options, ports, start order and URL templates.

URL templates contain ``{host}`` instead of a host name, because the address of a server is unknown before its start.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from venturi.errors import UnitError
from venturi.messages import Problem, one_of, path_text, quote_value
from venturi.mover.base import Option
from venturi.plan.header import OptionValue, PlanService
from venturi.testbed.services.base import ServiceKind as ServiceKind
from venturi.testbed.services.base import ServiceSpec, find_validation_error
from venturi.testbed.services.table import SERVICES

if TYPE_CHECKING:
    from venturi.plan.network import Interface
    from venturi.scenario.testbed import ServiceTable as WrittenService
    from venturi.scenario.testbed import StorageTable, TestbedTable

__all__ = [
    "HOST_PLACEHOLDER",
    "LOOPBACK",
    "SCHEME_PORTS",
    "default_ports",
    "first_interface",
    "on_host",
    "resolve_services",
]

LOOPBACK = "lo"
"""Device of a service that only its own host can reach."""

HOST_PLACEHOLDER = "{host}"
"""Host of a URL template; an agent replaces it with the address of the started server."""


def on_host(storage: StorageTable, host: str) -> bool:
    """Return whether a storage is a directory of a host, or shared with it."""
    return not storage.url and (host == storage.host or host in storage.shared)


def resolve_services(
    testbed: TestbedTable, interfaces: Mapping[str, Interface], problems: list[Problem], scale: float = 1.0
) -> dict[str, PlanService]:
    """Return the services of a testbed; errors are appended to ``problems``.

    Parameters
    ----------
    interfaces
        Interfaces of the network by name, sorted by device for each host.
    scale
        Factor for rates in the options of services.
    """
    before = len(problems)
    found: dict[str, PlanService] = {}
    used: dict[str, set[int]] = {}
    for name, written in testbed.service.items():
        if not isinstance(written.ports, int) and written.host is not None:
            _claim(name, written, written.host, used, problems)
    for name, written in testbed.service.items():
        if written.url is None:
            service = _service(name, written, testbed, interfaces, used, problems, scale)
        else:
            service = _existing_server(name, written, written.url, testbed, problems, scale)
        if service is not None:
            found[name] = service
    if len(found) == len(testbed.service) and len(problems) == before:
        problems += _validation_errors(found)
    found = {name: _after_providers(name, service, found) for name, service in found.items()}
    if len(found) == len(testbed.service):
        _check_order(found, problems)
    return found


def _validation_errors(services: Mapping[str, PlanService]) -> Iterable[Problem]:
    """Yield the errors that kinds report about services without other errors."""
    specs = {
        name: ServiceSpec(
            name=name,
            kind=service.kind,
            host=service.host,
            interface=service.interface or f"{service.host}.{LOOPBACK}",
            storages=service.storages,
            options=service.options,
            after=service.after,
            ports=service.ports,
        )
        for name, service in services.items()
        if service.host is not None
    }
    for name, spec in specs.items():
        message = find_validation_error(SERVICES[spec.kind], spec, specs.__getitem__)
        if message is not None:
            yield path_text(("testbed", "service", name)), message


def _after_providers(name: str, service: PlanService, services: Mapping[str, PlanService]) -> PlanService:
    """Return a service that also waits for the providers of its storages (mounts)."""
    if getattr(SERVICES[service.kind], "provides_storages", False):
        return service
    providers = [
        other
        for other, candidate in services.items()
        if other != name
        and getattr(SERVICES[candidate.kind], "provides_storages", False)
        and set(candidate.storages) & set(service.storages)
    ]
    return dataclasses.replace(service, after=tuple(dict.fromkeys((*service.after, *providers))))


def _claim(name: str, written: WrittenService, host: str, used: dict[str, set[int]], problems: list[Problem]) -> None:
    used_ports = used.setdefault(host, set())
    ports = () if isinstance(written.ports, int) else written.ports
    for port in ports:
        if port in used_ports:
            where = path_text(("testbed", "service", name, "ports"))
            problems.append((where, f"expected ports that no other service of {host} uses, found {port}"))
        used_ports.add(port)


def _service(
    name: str,
    written: WrittenService,
    testbed: TestbedTable,
    interfaces: Mapping[str, Interface],
    used: dict[str, set[int]],
    problems: list[Problem],
    scale: float,
) -> PlanService | None:
    where = path_text(("testbed", "service", name))
    kind = _kind(where, written, problems)
    host = written.host
    if host is None:
        problems.append(
            (f"{where}.host", "expected the host of the service, or the url of an existing server, found neither; add host")
        )  # fmt: skip
    elif host not in testbed.host:
        problems.append((f"{where}.host", one_of("the hosts", testbed.host, host)))
    for index, other in enumerate(written.after):
        if other not in testbed.service:
            problems.append((f"{where}.after[{index}]", one_of("the services", testbed.service, other)))
    _check_storage_names(where, written, testbed, problems)
    if kind is None or host is None or host not in testbed.host:
        return None
    before = len(problems)
    interface = _interface(where, written, host, interfaces, problems)
    options = _options(where, written, kind, problems, scale)
    if len(problems) > before:
        return None
    spec = ServiceSpec(
        name=name,
        kind=written.kind,
        host=host,
        interface=interface or f"{host}.{LOOPBACK}",
        storages=written.storage,
        options=options,
        ports=_ports(written, kind, used.setdefault(host, set())),
    )
    needs = kind.needs(spec)
    if not getattr(kind, "serves_remote_storages", False):
        _check_storage(where, written, host, needs, testbed, problems)
    problems += [
        (f"{where}.options", f"{one_of('the services', testbed.service, dependency)}, which this service needs")
        for dependency in needs
        if dependency not in testbed.service
    ]
    problems += [
        (f"{where}.options", f"expected a service that Venturi starts, found {dependency}, an existing server; name another service")
        for dependency in needs
        if dependency in testbed.service and testbed.service[dependency].url is not None
    ]  # fmt: skip
    after = tuple(dict.fromkeys((*needs, *written.after)))
    spec = dataclasses.replace(spec, after=after)
    return PlanService(
        kind=spec.kind,
        host=spec.host,
        interface=interface,
        storages=spec.storages,
        options=options,
        after=after,
        ports=spec.ports,
        service_ports=dict(kind.service_ports(spec, HOST_PLACEHOLDER)),
    )


def _kind(where: str, written: WrittenService, problems: list[Problem]) -> ServiceKind | None:
    kind = SERVICES.get(written.kind)
    if kind is None:
        problems.append((f"{where}.kind", one_of("the kinds of service", SERVICES, written.kind)))
    return kind


SCHEME_PORTS = {
    "davs": 443, "ftp": 21, "gsiftp": 2811, "http": 80, "https": 443, "root": 1094, "roots": 1094, "sftp": 22, "ssh": 22,
    "xroot": 1094, "xroots": 1094,
}  # fmt: skip
"""Schemes of file servers with their default ports. An existing server can have any of them, regardless of its kind."""

_TEMPLATE = re.compile(r"(?P<scheme>[a-z0-9+.-]+)://[{]host[}](:([0-9]+|[{]port[}]))?(?P<tail>.*)")


def _existing_server(
    name: str, written: WrittenService, url: str, testbed: TestbedTable, problems: list[Problem], scale: float
) -> PlanService | None:
    """Return an existing server: Venturi does not start it, and its URL is fixed."""
    where = path_text(("testbed", "service", name))
    before = len(problems)
    kind = _kind(where, written, problems)
    for key, found in (("host", written.host), ("interface", written.interface), ("after", written.after)):
        if found:
            problems.append(
                (f"{where}.{key}", f"expected no {key} with url (Venturi does not start the server), found one; remove it")
            )  # fmt: skip
    if written.ports != 1:
        problems.append((f"{where}.ports", "expected the port in url, found ports; remove ports"))
    _check_storage_names(where, written, testbed, problems)
    options = {} if kind is None else _options(where, written, kind, problems, scale)
    if kind is None or len(problems) > before:
        return None
    templates = _url_templates(where, name, written, url, kind, options, problems)
    if len(problems) > before:
        return None
    parts = urlsplit(url)
    port = parts.port or SCHEME_PORTS.get(parts.scheme) or next(iter(kind.default_ports), None)
    return PlanService(
        kind=written.kind,
        host=None,
        storages=written.storage,
        options=options,
        ports=() if port is None else (port,),
        service_ports=templates,
    )


def _url_templates(
    where: str,
    name: str,
    written: WrittenService,
    url: str,
    kind: ServiceKind,
    options: Mapping[str, OptionValue],
    problems: list[Problem],
) -> dict[str, str]:
    """Return the URL templates of an existing server by protocol.

    The path of the URL is the directory of the storages. Without a path, the server serves the paths of its host.
    """
    parts = urlsplit(url)
    spec = ServiceSpec(name, written.kind, "", "", written.storage, options, (), kind.default_ports[:1])
    own = {
        protocol: match
        for protocol, template in kind.service_ports(spec, HOST_PLACEHOLDER).items()
        if (match := _TEMPLATE.fullmatch(template)) is not None
    }
    tails = {protocol: match["tail"] for protocol, match in own.items() if match["scheme"] == parts.scheme}
    if not tails and parts.scheme in SCHEME_PORTS:
        tails = {
            parts.scheme: "/{path}" if parts.scheme in ("root", "roots", "sftp", "xroot", "xroots") else "{path}"
        }
    if not tails:
        schemes = ", ".join(dict.fromkeys((*(match["scheme"] for match in own.values()), *SCHEME_PORTS)))
        problems.append(
            (f"{where}.url", f"expected a URL with one of the schemes {schemes}, found {quote_value(url)}")
        )
    if any("{path}" in tail for tail in tails.values()) and not written.storage:
        problems.append(
            (f"{where}.storage", "expected the storages whose files this server serves, found none; name them in storage")
        )  # fmt: skip
    origin = f"{parts.scheme}://{parts.netloc}"
    directory = parts.path.rstrip("/")
    return {
        protocol: origin + (f"{directory}/{{relative}}" if parts.path and "{path}" in tail else tail)
        for protocol, tail in tails.items()
    }


def default_ports(kind: ServiceKind, number: int, used: set[int]) -> tuple[int, ...]:
    """Return unused ports of a kind (its default ports, or the next free ones), and add them to ``used``."""
    found: list[int] = []
    ports: Sequence[int] = kind.default_ports
    for index in range(number if ports else 0):
        port = ports[index] if index < len(ports) else found[-1] + 1
        while port in used:
            port += 1
        used.add(port)
        found.append(port)
    return tuple(found)


def first_interface(interfaces: Mapping[str, Interface], host: str) -> str | None:
    """Return the first network interface of a host, or ``None``."""
    return next((name for name, interface in interfaces.items() if interface.host == host), None)


def _check_storage_names(where: str, written: WrittenService, testbed: TestbedTable, problems: list[Problem]) -> None:
    for index, name in enumerate(written.storage):
        if name not in testbed.storage:
            problems.append((f"{where}.storage[{index}]", one_of("the storages", testbed.storage, name)))
        elif testbed.storage[name].url:
            problems.append(
                (f"{where}.storage[{index}]", f"expected a storage with path, found {name} with url; remove {name}")
            )  # fmt: skip


def _check_storage(
    where: str,
    written: WrittenService,
    host: str,
    needs: Iterable[str],
    testbed: TestbedTable,
    problems: list[Problem],
) -> None:
    """Check that the storages of a service are on its host, or served by a service that it needs (the origin of a proxy)."""
    from_dependencies = {
        name for dependency in needs if dependency in testbed.service for name in testbed.service[dependency].storage
    }
    for index, name in enumerate(written.storage):
        storage = testbed.storage.get(name)
        if storage is not None and name not in from_dependencies and not on_host(storage, host):
            problems.append(
                (f"{where}.storage[{index}]", f"expected a storage of {host}, found {name} of {storage.host}; add "
                 f"{host} to its shared hosts if both hosts mount it")
            )  # fmt: skip


def _interface(
    where: str, written: WrittenService, host: str, interfaces: Mapping[str, Interface], problems: list[Problem]
) -> str | None:
    """Return the listening interface of a service; ``None``: loopback, or the address of a host without links."""
    if written.interface is None:
        return first_interface(interfaces, host)
    if written.interface == LOOPBACK:
        return None
    names = {interface.device: name for name, interface in interfaces.items() if interface.host == host}
    if written.interface not in names:
        options = [*names, LOOPBACK]
        problems.append((f"{where}.interface", one_of(f"the interfaces of {host}", options, written.interface)))
    return names.get(written.interface)


def _options(
    where: str, written: WrittenService, kind: ServiceKind, problems: list[Problem], scale: float
) -> dict[str, OptionValue]:
    options: dict[str, Option] = {option.name: option for option in kind.options}
    found: dict[str, OptionValue] = {option.key: option.default for option in kind.options}
    for name, value in written.options.items():
        where_option = f"{where}.{path_text(('options', name))}"
        option = options.get(name)
        if option is None:
            problems.append((where_option, one_of(f"the options of {kind.kind}", options, name)))
            continue
        try:
            parsed = option.parse(value)
        except UnitError:
            problems.append((where_option, f"expected {option.expected}, found {quote_value(value)}"))
            continue
        found[option.key] = (
            max(1, round(parsed * scale)) if option.kind == "rate" and isinstance(parsed, int) else parsed
        )
    return found


def _ports(written: WrittenService, kind: ServiceKind, used: set[int]) -> tuple[int, ...]:
    """Return the ports of a service: the ports in the scenario, or unused ports of its kind."""
    return default_ports(kind, written.ports, used) if isinstance(written.ports, int) else written.ports


def _check_order(services: Mapping[str, PlanService], problems: list[Problem]) -> None:
    """Reject services with cyclic dependencies."""
    finished: set[str] = set()
    for name in services:
        cycle = _find_cycle(name, services, finished, [])
        if cycle:
            where = path_text(("testbed", "service", cycle[0], "after"))
            problems.append((where, f"expected services without cyclic dependencies, found {' → '.join(cycle)}"))
            return


def _find_cycle(
    name: str, services: Mapping[str, PlanService], finished: set[str], chain: list[str]
) -> list[str] | None:
    if name in chain:
        return [*chain[chain.index(name) :], name]
    if name in finished or name not in services:
        return None
    for other in services[name].after:
        cycle = _find_cycle(other, services, finished, [*chain, name])
        if cycle:
            return cycle
    finished.add(name)
    return None
