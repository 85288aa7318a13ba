"""Table of trial functions.

A new family is an entry in one of the tables below, or a new file with its own table. The order is the order in
reports, from the simplest shape without a reason to the functions of networks and queues.
"""

from __future__ import annotations

from venturi.errors import FitError
from venturi.model.families.exponential import EXPONENTIALS
from venturi.model.families.gaussian import GAUSSIANS
from venturi.model.families.loss import LOSS
from venturi.model.families.polynomial import POLYNOMIALS
from venturi.model.families.power import POWERS
from venturi.model.families.scaling import SCALING
from venturi.model.families.transfer import TRANSFER
from venturi.model.family import Family

__all__ = ["FAMILIES", "PAPER_FAMILIES", "families_for", "family_named"]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (*POLYNOMIALS, *POWERS, *EXPONENTIALS, *GAUSSIANS, *TRANSFER, *SCALING, *LOSS)
}  # fmt: skip
"""All families by name."""

PAPER_FAMILIES: tuple[Family, ...] = (*POLYNOMIALS, *POWERS, *EXPONENTIALS, *GAUSSIANS)
"""Shapes without a reason, as in document 000: polynomial, power, exponential, Gaussian."""


def family_named(name: str) -> Family:
    """Return a family by name.

    Raises
    ------
    FitError
        If there is no family of that name. The message lists all families.

    Examples
    --------
    >>> family_named("exponential-sum").parameters
    ('a', 'b', 'c', 'd')
    """
    try:
        return FAMILIES[name]
    except KeyError:
        raise FitError(f"expected one of the families {', '.join(FAMILIES)}, found {name!r}") from None


def families_for(variable: str) -> tuple[Family, ...]:
    """Return the shapes without a reason, and the families for one kind of x.

    Parameters
    ----------
    variable
        ``size``, ``files``, ``streams``, ``window``, ``loss`` or ``rtt``.

    Examples
    --------
    >>> [family.name for family in families_for("loss") if "any" not in family.variables]
    ['loss-mathis', 'loss-pftk']
    """
    known = sorted({kind for family in FAMILIES.values() for kind in family.variables} - {"any"})
    if variable not in known:
        raise FitError(f"expected a kind of x among {', '.join(known)}, found {variable!r}")
    return tuple(family for family in FAMILIES.values() if {"any", variable} & set(family.variables))
