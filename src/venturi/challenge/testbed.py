"""Testbed of a challenge: its storages by name, the routes between them, and the capacities of links and storages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from venturi.errors import ScenarioError
from venturi.messages import Problem
from venturi.plan.header import PlanService
from venturi.plan.network import Network
from venturi.scenario.document import Document, read_document
from venturi.scenario.fields import ScenarioTable
from venturi.scenario.problems import complete_message, describe_problems
from venturi.scenario.testbed import TestbedTable
from venturi.testbed.plan import ResolvedTestbed, resolve_testbed

__all__ = ["ChallengeStorage", "ChallengeTestbed", "build_testbed", "read_testbed"]


class _TestbedDocument(ScenarioTable):
    """The part of a document that a challenge needs."""

    testbed: TestbedTable


@dataclass(frozen=True, slots=True)
class ChallengeStorage:
    """Storage with its host and site. ``has_route`` is false for existing servers, whose network is unknown."""

    name: str
    host: str
    site: str
    has_route: bool


@dataclass(frozen=True)
class ChallengeTestbed:
    """Resolved testbed.

    Attributes
    ----------
    source
        Its file or generator, for messages.
    document
        The document, with ``testbed`` and other tables, as written.
    table
        The table ``testbed``.
    parts
        Storages, services, network and paths.
    named
        Storages by the names of sites, hosts and storages.
    """

    source: str
    document: Mapping[str, Any]
    table: TestbedTable
    parts: ResolvedTestbed
    named: Mapping[str, tuple[ChallengeStorage, ...]]

    @property
    def network(self) -> Network | None:
        """Network with interfaces, links and changes; ``None`` without links."""
        return self.parts.network

    def site_of_host(self, host: str) -> str:
        """Return the site of a host: its name in the testbed, otherwise the host."""
        return self.table.host[host].site or host

    def links(self, source: ChallengeStorage, destination: ChallengeStorage) -> tuple[str, ...] | None:
        """Return the directed links from a storage to another; ``None`` without a route."""
        if not source.has_route or not destination.has_route:
            return None
        return self.parts.paths.links(source.host, self._interface(destination))

    def ends_mtu(self, links: tuple[str, ...]) -> int:
        """Return the MTU of the connections over these links: the smaller one of both ends, in bytes."""
        network = self.network
        assert network is not None
        ends = (network.links[links[0]].origin, network.links[links[-1]].to)
        return min(network.interfaces[end].mtu for end in ends)

    def _interface(self, storage: ChallengeStorage) -> str:
        """Return the interface of the service of a storage, or the host of the storage."""
        service = next((it for it in self.parts.services.values() if self._serves(it, storage)), None)
        interface = service.interface if service else None
        interfaces = self.network.interfaces if self.network else {}
        return interface if interface in interfaces and interface is not None else storage.host

    @staticmethod
    def _serves(service: PlanService, storage: ChallengeStorage) -> bool:
        return service.host == storage.host and storage.name in service.storages


def read_testbed(path: Path) -> ChallengeTestbed:
    """Return the testbed of a file with ``[testbed]``: a testbed, or a scenario.

    Raises
    ------
    ScenarioError
        With all problems of the testbed.
    """
    document = read_document(path, ())
    if document.problems:
        raise ScenarioError(document.problems, str(path))
    return _resolve(document, str(path))


def build_testbed(data: Mapping[str, Any], source: str) -> ChallengeTestbed:
    """Return the testbed of a document, such as :func:`venturi.testbed.wlcg.wlcg`.

    Raises
    ------
    ScenarioError
        With all problems of the testbed.
    """
    return _resolve(Document(dict(data)), source)


def _resolve(document: Document, source: str) -> ChallengeTestbed:
    problems: list[Problem] = []
    if "testbed" not in document.data:
        problem = "expected a table [testbed] with hosts, links and storages, found none; name the file of a testbed"
        raise ScenarioError([("testbed", problem)], source)
    written = {"testbed": document.data["testbed"]}
    try:
        table = _TestbedDocument.model_validate(written, context={"directory": document.directory or Path()}).testbed
    except ValidationError as error:
        problems = describe_problems(error, _TestbedDocument, written)
    else:
        parts = resolve_testbed(table, 1.0, problems)
        if parts is not None and not problems:
            return ChallengeTestbed(source, document.data, table, parts, _named(table))
    raise ScenarioError([(where, complete_message(what, document.origin(where))) for where, what in problems], source)


def _named(table: TestbedTable) -> dict[str, tuple[ChallengeStorage, ...]]:
    found: dict[str, list[ChallengeStorage]] = {}
    for name, storage in table.storage.items():
        host = table.host[storage.host]
        one = ChallengeStorage(name, storage.host, host.site or storage.host, not storage.url)
        for known in dict.fromkeys((one.site, one.host, name)):
            found.setdefault(known, []).append(one)
    return {name: tuple(storages) for name, storages in found.items()}
