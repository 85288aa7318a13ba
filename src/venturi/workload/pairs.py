"""Ends of many transfers at once: every source interface with every destination interface, or one with one.

An end is a storage and the service through which it is reached; a service serves on one interface of its host, so the pairs of
interfaces are pairs of services. Names of several are joined by ``+``, and ``*`` stands for any letters: ``nersc-*``.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from venturi.plan import Service
from venturi.plan.header import BUILT_IN_PLACES
from venturi.wording import one_of
from venturi.workload.ends import EndsError

__all__ = ["NO_SERVICE", "Seat", "named", "paired", "seats"]

NO_SERVICE = "none"
"""In place of the name of a service: as the client finds it, a file of its own host if it has the storage."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One end: a storage (``None``: none), and the service through which it is reached (``None``: as the client finds it)."""

    storage: str | None
    service: str | None

    @property
    def name(self) -> str:
        """Its service, or its storage."""
        return self.service or self.storage or ""


def named(text: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the names that a text stands for, in the order of the text and of ``known``, each once.

    Raises
    ------
    ValueError
        If a part of the text is no name and no pattern of one.

    Examples
    --------
    >>> named("a-*+c", ("a-0", "b", "a-1", "c"), "the services")
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


def seats(
    role: str, storage: str | None, service: str | None, services: Mapping[str, Service], storages: Iterable[str]
) -> tuple[Seat, ...]:
    """Return the ends of one side.

    Parameters
    ----------
    role
        ``"source"`` or ``"destination"``.
    storage, service
        As the scenario names them; ``service`` may be None or ``"none"``.
    services, storages
        Of the testbed.

    Raises
    ------
    EndsError
        If a service serves none of the storages, or several of them.
    ValueError
        If a name is unknown.
    """
    places = None
    if storage is not None:
        places = (storage,) if storage in BUILT_IN_PLACES else named(storage, storages, "the storages")
    if service is None or service == NO_SERVICE:
        return tuple(Seat(place, None) for place in places or (None,))
    found = []
    for name in named(service, services, "the services"):
        served = services[name].places
        fitting = [place for place in served if place in places] if places is not None else list(served)
        if storage in BUILT_IN_PLACES:
            fitting = [storage]
        if len(fitting) != 1:
            told = " and ".join(fitting) or "none"
            asked = storage or "a storage"
            raise EndsError(role, f"expected one storage of {asked} that {name} serves, found {told}; say which")
        found.append(Seat(fitting[0], name))
    return tuple(found)


def paired(sources: tuple[Seat, ...], destinations: tuple[Seat, ...], how: str) -> tuple[tuple[Seat, Seat], ...]:
    """Return the pairs: ``"all"``, every source with every destination, or ``"one to one"``, in their order.

    Raises
    ------
    EndsError
        If there are not as many of one as of the other.
    """
    if how == "all":
        return tuple(itertools.product(sources, destinations))
    if len(sources) != len(destinations):
        found = f"{len(sources)} and {len(destinations)}"
        raise EndsError("pairs", f"expected as many sources as destinations for one to one, found {found}")
    return tuple(zip(sources, destinations, strict=True))
