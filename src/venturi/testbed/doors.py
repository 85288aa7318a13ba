"""The services of a scenario as those of a plan: options, ports, what starts before what, and the doors of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from venturi.errors import UnitError
from venturi.mover.base import Option
from venturi.plan.header import OptionValue, Service
from venturi.plan.words import shown
from venturi.testbed.network import host_name
from venturi.testbed.services.base import Service as Kind
from venturi.testbed.services.base import ServiceSpec, mistake_of
from venturi.testbed.services.table import SERVICES
from venturi.wording import Problem, one_of, path_text

if TYPE_CHECKING:
    from venturi.plan.network import Interface
    from venturi.scenario.testbed import Service as WrittenService
    from venturi.scenario.testbed import Storage, Testbed

__all__ = ["LOOPBACK", "on_host", "resolve_services"]

LOOPBACK = "lo"
"""The device of a service that is reached from its own host alone."""


def on_host(storage: Storage, host: str) -> bool:
    """Return whether a storage is one of this host: there, or shared with it."""
    return host == storage.host or host in storage.shared


def resolve_services(
    testbed: Testbed, interfaces: Mapping[str, Interface], problems: list[Problem], scale: float = 1.0
) -> dict[str, Service]:
    """Return the services of a testbed; what is wrong is appended to ``problems``.

    Parameters
    ----------
    interfaces
        Of the network, by name, those of each host in the order of its devices.
    scale
        Multiplies rates among the options of services.
    """
    before = len(problems)
    found: dict[str, Service] = {}
    used: dict[str, set[int]] = {}
    for name, written in testbed.service.items():
        if not isinstance(written.ports, int):
            _claim(name, written, used, problems)
    for name, written in testbed.service.items():
        service = _service(name, written, testbed, interfaces, used, problems, scale)
        if service is not None:
            found[name] = service
    if len(found) == len(testbed.service) and len(problems) == before:
        problems += _mistakes(found)
    found = {name: _after_providers(name, service, found) for name, service in found.items()}
    if len(found) == len(testbed.service):
        _check_order(found, problems)
    return found


def _mistakes(services: Mapping[str, Service]) -> Iterable[Problem]:
    """Yield what kinds say against services that are each by themselves as they must be."""
    specs = {
        name: ServiceSpec(
            name=name,
            kind=service.kind,
            host=service.host,
            interface=service.interface or f"{service.host}.{LOOPBACK}",
            places=service.places,
            options=service.options,
            after=service.after,
            ports=service.ports,
        )
        for name, service in services.items()
    }
    for name, spec in specs.items():
        mistake = mistake_of(SERVICES[spec.kind], spec, specs.__getitem__)
        if mistake is not None:
            yield path_text(("testbed", "service", name)), mistake


def _after_providers(name: str, service: Service, services: Mapping[str, Service]) -> Service:
    """Return a service that also waits for those that provide its storages (mounts)."""
    if getattr(SERVICES[service.kind], "provides_places", False):
        return service
    providers = [
        other
        for other, candidate in services.items()
        if other != name
        and getattr(SERVICES[candidate.kind], "provides_places", False)
        and set(candidate.places) & set(service.places)
    ]
    return dataclasses.replace(service, after=tuple(dict.fromkeys((*service.after, *providers))))


def _claim(name: str, written: WrittenService, used: dict[str, set[int]], problems: list[Problem]) -> None:
    taken = used.setdefault(written.host, set())
    ports = () if isinstance(written.ports, int) else written.ports
    for port in ports:
        if port in taken:
            where = path_text(("testbed", "service", name, "ports"))
            problems.append((where, f"expected ports that no other service of {written.host} has, found {port}"))
        taken.add(port)


def _service(
    name: str,
    written: WrittenService,
    testbed: Testbed,
    interfaces: Mapping[str, Interface],
    used: dict[str, set[int]],
    problems: list[Problem],
    scale: float,
) -> Service | None:
    where = path_text(("testbed", "service", name))
    kind = SERVICES.get(written.kind)
    if kind is None:
        problems.append((f"{where}.kind", one_of("the kinds of service", SERVICES, written.kind)))
    if written.host not in testbed.host:
        problems.append((f"{where}.host", one_of("the hosts", testbed.host, written.host)))
    for index, other in enumerate(written.after):
        if other not in testbed.service:
            problems.append((f"{where}.after[{index}]", one_of("the services", testbed.service, other)))
    _check_storage_names(where, written, testbed, problems)
    if kind is None or written.host not in testbed.host:
        return None
    before = len(problems)
    interface, door_name = _door(where, written, interfaces, problems)
    options = _options(where, written, kind, problems, scale)
    if len(problems) > before:
        return None
    spec = ServiceSpec(
        name=name,
        kind=written.kind,
        host=written.host,
        interface=interface or f"{written.host}.{LOOPBACK}",
        places=written.storage,
        options=options,
        ports=_ports(written, kind, used.setdefault(written.host, set())),
    )
    needs = kind.needs(spec)
    if not getattr(kind, "shares", False):
        _check_storage(where, written, needs, testbed, problems)
    problems += [
        (f"{where}.options", f"{one_of('the services', testbed.service, need)}, which it needs")
        for need in needs
        if need not in testbed.service
    ]
    after = tuple(dict.fromkeys((*needs, *written.after)))
    spec = dataclasses.replace(spec, after=after)
    return Service(
        kind=spec.kind,
        host=spec.host,
        interface=interface,
        places=spec.places,
        options=options,
        after=after,
        ports=spec.ports,
        doors=dict(kind.doors(spec, door_name)),
    )


def _check_storage_names(where: str, written: WrittenService, testbed: Testbed, problems: list[Problem]) -> None:
    for index, name in enumerate(written.storage):
        if name not in testbed.storage:
            problems.append((f"{where}.storage[{index}]", one_of("the storages", testbed.storage, name)))


def _check_storage(
    where: str, written: WrittenService, needs: Iterable[str], testbed: Testbed, problems: list[Problem]
) -> None:
    """Check that what a service serves is on its host, or served by a service that it draws on (a proxy's origin)."""
    drawn = {name for need in needs if need in testbed.service for name in testbed.service[need].storage}
    for index, name in enumerate(written.storage):
        storage = testbed.storage.get(name)
        if storage is not None and name not in drawn and not on_host(storage, written.host):
            problems.append(
                (f"{where}.storage[{index}]", f"expected a storage of {written.host}, found {name} of {storage.host}; add "
                 f"{written.host} to its shared hosts if both have it")
            )  # fmt: skip


def _door(
    where: str, written: WrittenService, interfaces: Mapping[str, Interface], problems: list[Problem]
) -> tuple[str | None, str]:
    """Return the interface that a service is on (``None``: loopback) and the host name that stands for it."""
    own = [name for name, interface in interfaces.items() if interface.host == written.host]
    if written.interface == LOOPBACK or (written.interface is None and not own):
        return None, host_name(written.host) if not own else "localhost"
    devices = [interfaces[name].device for name in own]
    if written.interface is not None and written.interface not in devices:
        known = [*devices, LOOPBACK]
        problems.append((f"{where}.interface", one_of(f"the interfaces of {written.host}", known, written.interface)))
        return None, ""
    index = devices.index(written.interface) if written.interface is not None else 0
    return own[index], host_name(written.host, devices[index] if index else None)


def _options(
    where: str, written: WrittenService, kind: Kind, problems: list[Problem], scale: float
) -> dict[str, OptionValue]:
    known: dict[str, Option] = {option.name: option for option in kind.options}
    found: dict[str, OptionValue] = {option.key: option.default for option in kind.options}
    for name, value in written.options.items():
        here = f"{where}.{path_text(('options', name))}"
        option = known.get(name)
        if option is None:
            problems.append((here, one_of(f"the options of {kind.kind}", known, name)))
            continue
        try:
            parsed = option.parse(value)
        except UnitError:
            problems.append((here, f"expected {option.expected}, found {shown(value)}"))
            continue
        found[option.key] = (
            max(1, round(parsed * scale)) if option.kind == "rate" and isinstance(parsed, int) else parsed
        )
    return found


def _ports(written: WrittenService, kind: Kind, used: set[int]) -> tuple[int, ...]:
    """Return the ports of a service: those written, or as many of its kind's own as asked for, the next where one is taken."""
    if not isinstance(written.ports, int):
        return written.ports
    found: list[int] = []
    own: Sequence[int] = kind.default_ports
    for index in range(written.ports if own else 0):
        port = own[index] if index < len(own) else found[-1] + 1
        while port in used:
            port += 1
        used.add(port)
        found.append(port)
    return tuple(found)


def _check_order(services: Mapping[str, Service], problems: list[Problem]) -> None:
    """Refuse services that wait for each other."""
    done: set[str] = set()
    for name in services:
        circle = _circle(name, services, done, [])
        if circle:
            where = path_text(("testbed", "service", circle[0], "after"))
            problems.append((where, f"expected services without a circle, found {' → '.join(circle)}"))
            return


def _circle(name: str, services: Mapping[str, Service], done: set[str], chain: list[str]) -> list[str] | None:
    if name in chain:
        return [*chain[chain.index(name) :], name]
    if name in done or name not in services:
        return None
    for other in services[name].after:
        circle = _circle(other, services, done, [*chain, name])
        if circle:
            return circle
    done.add(name)
    return None
