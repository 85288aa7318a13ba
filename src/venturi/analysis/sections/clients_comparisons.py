"""Comparisons of set-ups of closed-loop clients: by option, by direction, and with healthy interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from venturi.analysis.section import Column, Scalar, Table
from venturi.analysis.sections.clients_points import ClientsPointResult
from venturi.units import format_bit_rate

__all__ = ["KEYS", "column_of", "comparisons_table", "directions_table", "interfaces_table", "key_of", "labels_of"]

KEYS = ("direction", "processes", "affinity", "pairing", "clients")
"""Factors that match a row of a published table with a point, if the published table has them."""

Rates = Mapping[tuple[Scalar, ...], float]
"""Published rates by the values of :data:`KEYS`, in bit/s."""


def key_of(cell: ClientsPointResult) -> tuple[Scalar, ...]:
    """Return the values of :data:`KEYS`."""
    return tuple(cell.factors.get(key) for key in KEYS)


def labels_of(cells: Sequence[ClientsPointResult]) -> list[str]:
    """Return the factors that distinguish the points, in their order."""
    names = dict.fromkeys(name for cell in cells for name in cell.factors)
    hidden = ("clients_per_nic", "size_bytes", "group")
    kept = [
        name
        for name in names
        if name not in hidden and (name in KEYS or len({c.factors.get(name) for c in cells}) > 1)
    ]
    return kept or ["group"]


def column_of(name: str) -> Column:
    """Return the column of a factor."""
    return Column("clients_per_machine" if name == "clients" else name, name.replace("_", " "))


def comparisons_table(cells: Sequence[ClientsPointResult], published: Rates) -> Table:
    """Return the comparison of the two values of each factor that has two, with all other factors equal."""
    rows: list[tuple[Scalar, ...]] = []
    for name in [name for name in labels_of(cells) if name != "processes_by_host"]:
        values = sorted({cell.factors.get(name) for cell in cells}, key=str)
        if len(values) != 2 or None in values:
            continue
        first, second = values
        for cell in cells:
            twin = _twin(cell, name, second, cells) if cell.factors.get(name) == first else None
            if twin is None or not cell.rate_bit_per_s or not twin.rate_bit_per_s:
                continue
            here, there = published.get(key_of(cell)), published.get(key_of(twin))
            other_factors = ", ".join(
                f"{key.replace('_', ' ')} {cell.factors[key]}" for key in labels_of(cells) if key != name
            )
            rows.append(
                (name, first, second, other_factors, cell.rate_bit_per_s, twin.rate_bit_per_s, twin.rate_bit_per_s / cell.rate_bit_per_s,
                 there / here if here and there else None)
            )  # fmt: skip
    columns = (
        Column("option", "option"), Column("first", "first value"), Column("second", "second value"), Column("other_factors", "other factors"),
        Column("first_bit_per_s", "rate, first"), Column("second_bit_per_s", "rate, second"), Column("second_ratio", "second ÷ first"),
        Column("published_ratio", "second ÷ first", published=True),
    )  # fmt: skip
    notes = [_affinity_note(cells)] if any(row[0] == "affinity" for row in rows) else []
    notes += [_clients_note(cells)] if any(row[0] == "clients" for row in rows) else []
    return Table("clients-comparisons", "Comparison of two options", columns, tuple(rows), " ".join(notes).strip())


def _affinity_note(cells: Sequence[ClientsPointResult]) -> str:
    """Return why binding to cores has no effect; empty if processes have no configured rate."""
    limits = [(cell.put_in_bit_per_s or 0.0) / float(str(cell.factors.get("processes") or 1)) for cell in cells]
    if not all(limits):
        return ""
    return (
        f"This testbed cannot show an effect of affinity. It limits a process to {format_bit_rate(max(limits))}, so the core matters only if it is "
        "too slow for this rate, and all hosts of a lab share the cores of one machine. Ratios of affinity show the scatter between two measurements "
        "of the same case."
    )


def _clients_note(cells: Sequence[ClientsPointResult]) -> str:
    fractions = [cell.busy_ratio for cell in cells if cell.busy_ratio is not None]
    if not fractions:
        return ""
    return (
        f"So few clients can use about {min(fractions):.0%} to {max(fractions):.0%} of the limit of the processes, because a process without a "
        "request is idle. If this fraction differs more between two points than the published rates, the number of clients affects "
        "this run for another reason than the published one."
    )


def _twin(
    cell: ClientsPointResult, name: str, value: Scalar, cells: Sequence[ClientsPointResult]
) -> ClientsPointResult | None:
    """Return the point that differs in this factor alone; the name of the group and dependent factors do not count."""
    follows = {name, "group", "clients_per_nic"}
    expected = {key: one for key, one in cell.factors.items() if key not in follows}
    for other in cells:
        if (
            other.factors.get(name) == value
            and {k: v for k, v in other.factors.items() if k not in follows} == expected
        ):
            return other
    return None


def directions_table(cells: Sequence[ClientsPointResult], published: Rates) -> Table:
    """Return the comparison of the two directions, with the fewest and the most processes of each.

    The numbers of processes differ between the directions.
    """
    measured = [cell for cell in cells if cell.rate_bit_per_s and isinstance(cell.factors.get("processes"), int)]
    directions = list(dict.fromkeys(str(c.factors["direction"]) for c in measured if "direction" in c.factors))
    first, second = directions if len(directions) == 2 else ("", "")
    alike = [name for name in ("pairing", "clients", "affinity", "mover") if name in labels_of(cells)]
    rows: list[tuple[Scalar, ...]] = []
    for values in dict.fromkeys(tuple(cell.factors.get(name) for name in alike) for cell in measured):
        same = [cell for cell in measured if tuple(cell.factors.get(name) for name in alike) == values]
        by_direction = [
            [cell for cell in same if cell.factors.get("direction") == direction] for direction in (first, second)
        ]
        if not all(by_direction):
            continue
        several = all(len({cell.factors["processes"] for cell in direction}) > 1 for direction in by_direction)
        for which, choose in (("fewest", min), ("most", max))[0 if several else 1 :]:
            here, there = (
                choose(direction, key=lambda cell: int(str(cell.factors["processes"]))) for direction in by_direction
            )
            printed, also = published.get(key_of(here)), published.get(key_of(there))
            rows.append(
                (*values, which, here.factors["processes"], here.rate_bit_per_s, there.factors["processes"], there.rate_bit_per_s,
                 (there.rate_bit_per_s or 0) / (here.rate_bit_per_s or 1), also / printed if also and printed else None)
            )  # fmt: skip
    columns = (
        *(column_of(name) for name in alike), Column("which", "processes"),
        Column("first_processes", f"processes, {first}"), Column("first_bit_per_s", f"rate, {first}"),
        Column("second_processes", f"processes, {second}"), Column("second_bit_per_s", f"rate, {second}"),
        Column("second_ratio", "second ÷ first"), Column("published_ratio", "second ÷ first", published=True),
    )  # fmt: skip
    note = "The two sites have different numbers of processes. The table compares the lowest numbers of both, and the highest. All other factors are equal."
    return Table("clients-directions", f"{first} compared with {second}", columns, tuple(rows), note)


def interfaces_table(cells: Sequence[ClientsPointResult]) -> Table:
    """Return the interfaces that are worse than others of their host, and the highest total rate if they were healthy."""
    names = labels_of(cells)
    rows: list[tuple[Scalar, ...]] = []
    for cell in cells:
        for one in cell.worse:
            kept = cell.total[0].kept_ratio if cell.total else None
            if kept is None or not cell.rate_bit_per_s or not one.others_bit_per_s:
                continue
            healthy = _healthy_bit_per_s(cell, max(0.0, one.others_bit_per_s - one.rate_bit_per_s) * kept)
            head = tuple(cell.factors.get(name) for name in names)
            rows.append(
                (*head, one.name, one.rate_bit_per_s, one.others_bit_per_s, one.rate_bit_per_s / one.others_bit_per_s, cell.rate_bit_per_s,
                 healthy, healthy / cell.rate_bit_per_s)
            )  # fmt: skip
    columns = (
        *(column_of(name) for name in names),
        Column("interface", "interface"), Column("rate_bit_per_s", "rate"), Column("others_bit_per_s", "mean of the other interfaces of the host"),
        Column("others_ratio", "rate ÷ mean of the others"), Column("all_bit_per_s", "all clients"),
        Column("healthy_bit_per_s", "all clients, healthy interface, at most"), Column("gain_ratio", "at most ÷ measured"),
    )  # fmt: skip
    note = (
        "Rates of interfaces are those on the links. The estimate assumes that a healthy interface carries the mean of the others of its host, and "
        "that these carry as much as before. It is an upper bound: if the servers limit, other interfaces already carry the missing part. "
        "It never exceeds the limit of the processes."
    )
    return Table("clients-interfaces", "Rates with healthy interfaces", columns, tuple(rows), note)


def _healthy_bit_per_s(cell: ClientsPointResult, missing_bit_per_s: float) -> float:
    """Return the rate with the missing part added, at most the usable limit of the processes and at least the measured rate."""
    measured = cell.rate_bit_per_s or 0.0
    most = float("inf") if cell.put_in_bit_per_s is None else cell.put_in_bit_per_s * (cell.busy_ratio or 1.0)
    return max(measured, min(measured + missing_bit_per_s, most))
