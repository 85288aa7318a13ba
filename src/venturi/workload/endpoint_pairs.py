"""Pairs of endpoints of concurrent transfers: every source with every destination, or one to one.

An endpoint is a storage and its service. A service listens on one interface of its host, so pairs of interfaces are pairs
of services. Names are joined by ``+``; ``*`` is a wildcard: ``nersc-*``.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from venturi.messages import one_of
from venturi.plan import PlanService
from venturi.plan.header import BUILT_IN_STORAGES
from venturi.workload.endpoints import EndpointError

__all__ = ["NO_SERVICE", "EndpointSlot", "expand_names", "list_slots", "pair_slots"]

NO_SERVICE = "none"
"""Value instead of a service name: Venturi selects the service, or a local file if the client host has the storage."""


@dataclass(frozen=True, slots=True)
class EndpointSlot:
    """Endpoint: a storage (``None``: none) and its service (``None``: selected automatically)."""

    storage: str | None
    service: str | None

    @property
    def name(self) -> str:
        """Name of the service, or of the storage."""
        return self.service or self.storage or ""


def expand_names(text: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the distinct names of a text, in the order of the text and of ``known``.

    Raises
    ------
    ValueError
        If a part of the text matches no name.

    Examples
    --------
    >>> expand_names("a-*+c", ("a-0", "b", "a-1", "c"), "the services")
    ('a-0', 'a-1', 'c')
    """
    names = tuple(known)
    found: dict[str, None] = {}
    for part in text.split("+"):
        fitting = [name for name in names if fnmatch.fnmatchcase(name, part)] if "*" in part else [part]
        if not fitting or not set(fitting) <= set(names):
            raise ValueError(one_of(what, names, part))
        found |= dict.fromkeys(fitting)
    return tuple(found)


def list_slots(
    role: str, storage: str | None, service: str | None, services: Mapping[str, PlanService], storages: Iterable[str]
) -> tuple[EndpointSlot, ...]:
    """Return the endpoints of one side.

    Parameters
    ----------
    role
        ``"source"`` or ``"destination"``.
    storage, service
        Names in the scenario; ``service`` can be None or ``"none"``.
    services, storages
        Services and storages of the testbed.

    Raises
    ------
    EndpointError
        If a service does not export exactly one of the storages.
    ValueError
        If a name is unknown.
    """
    requested_storages = None
    if storage is not None:
        requested_storages = (
            (storage,) if storage in BUILT_IN_STORAGES else expand_names(storage, storages, "the storages")
        )
    if service is None or service == NO_SERVICE:
        return tuple(EndpointSlot(one, None) for one in requested_storages or (None,))
    found = []
    for name in expand_names(service, services, "the services"):
        served = services[name].storages
        fitting = (
            [one for one in served if one in requested_storages] if requested_storages is not None else list(served)
        )
        if storage in BUILT_IN_STORAGES:
            fitting = [storage]
        if len(fitting) != 1:
            names_found = " and ".join(fitting) or "none"
            expected = storage or "a storage"
            raise EndpointError(
                role, f"expected one storage of {expected} from {name}, found {names_found}; name one storage"
            )
        found.append(EndpointSlot(fitting[0], name))
    return tuple(found)


def pair_slots(
    sources: tuple[EndpointSlot, ...], destinations: tuple[EndpointSlot, ...], how: str
) -> tuple[tuple[EndpointSlot, EndpointSlot], ...]:
    """Return the pairs: ``"all"``, every source with every destination, or ``"one to one"``, in their order.

    Raises
    ------
    EndpointError
        If the numbers of sources and destinations differ.
    """
    if how == "all":
        return tuple(itertools.product(sources, destinations))
    if len(sources) != len(destinations):
        found = f"{len(sources)} and {len(destinations)}"
        raise EndpointError(
            "pairs", f"expected equal numbers of sources and destinations, found {found}; use pairs all"
        )
    return tuple(zip(sources, destinations, strict=True))
