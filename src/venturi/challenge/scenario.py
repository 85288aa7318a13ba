"""Scenario with the workload ``inject`` for a challenge: one flow for each row, with even arrivals.

``venturi run`` executes it in the simulator, in the lab or on hosts. The run starts with a lead time for the creation
of files. Changes of links are moved by the lead time, because the times of flows start after it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from venturi.challenge.table import ChallengeTable
from venturi.challenge.testbed import ChallengeTestbed
from venturi.errors import ScenarioError
from venturi.plan.estimate import ASSUMED_RATE_BYTES_PER_S
from venturi.scenario import scenario_from
from venturi.scenario.fields import format_duration_exact
from venturi.units import format_bytes_exact, parse_duration

__all__ = ["DEFAULT_MOVER", "challenge_scenario"]

DEFAULT_MOVER = "xrdcp"
"""Mover of the generated testbeds, whose sites have XRootD servers."""

MIN_LEAD_S = 2.0


def challenge_scenario(
    table: ChallengeTable,
    testbed: ChallengeTestbed,
    name: str,
    mover: str = DEFAULT_MOVER,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Return the document of a scenario for a table. It contains the testbed.

    Parameters
    ----------
    name
        Name of the scenario and of its runs.
    directory
        Base directory of the files in the testbed.

    Raises
    ------
    ScenarioError
        If a row has no end or no sizes, or if the scenario is not valid, for example because the mover does not match
        the services.
    """
    _check_complete(table)
    lead_s = _lead_s(table, testbed)
    digits = len(str(len(table.rows)))
    flows: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(table.rows, 1):
        flows[f"row{number:0{digits}d}"] = {
            "source": row.source,
            "destination": row.destination,
            "of": "flow",
            "rate": f"{row.rate_bit_per_s!r} b/s",
            "start": format_duration_exact(row.start_s),
            "end": format_duration_exact(row.end_s),
            "size": [format_bytes_exact(size) for size in row.sizes_bytes],
            "client": _client(row.source, row.destination, testbed),
        }
    document = {
        "venturi": 1,
        "name": name,
        "testbed": _later(testbed.document["testbed"], lead_s),
        **{key: testbed.document[key] for key in ("mover", "limits") if key in testbed.document},
        "workload": {
            "kind": "inject", "mover": mover, "arrivals": "even", "lead": format_duration_exact(lead_s), "flow": flows,
        },
    }  # fmt: skip
    scenario_from(document, name, directory=directory)
    return document


def _check_complete(table: ChallengeTable) -> None:
    problems = []
    for row in table.rows:
        if math.isinf(row.end_s):
            problems.append(
                (f"{row.where}: end", 'expected a time such as "2 h" (a scenario has an end), found nothing; add it')
            )
        if not row.sizes_bytes:
            problems.append(
                (
                    f"{row.where}: sizes",
                    'expected file sizes such as "1 GB" (a scenario transfers files), found nothing; add them',
                )
            )
    if problems:
        raise ScenarioError(problems, table.source)


def _lead_s(table: ChallengeTable, testbed: ChallengeTestbed) -> float:
    """Return the time to create the files of the busiest host, one of each size on each storage, in whole seconds."""
    sizes: dict[str, set[int]] = defaultdict(set)
    hosts: dict[str, float] = defaultdict(float)
    for row in table.rows:
        for storage in testbed.named[row.source]:
            sizes[storage.name].update(row.sizes_bytes)
    for name, distinct in sizes.items():
        spec = testbed.parts.storages[name].spec
        rate = (spec.write_bytes_per_s if spec else None) or ASSUMED_RATE_BYTES_PER_S
        hosts[testbed.table.storage[name].host] += sum(distinct) / rate
    return float(math.ceil(max([MIN_LEAD_S, *hosts.values()])))


def _client(source: str, destination: str, testbed: ChallengeTestbed) -> Literal["source", "destination"]:
    """Return the end whose host runs the mover: the source, unless only the source has servers for its storages."""
    served = {name for service in testbed.parts.services.values() for name in service.storages}

    def has_servers(name: str) -> bool:
        return all(storage.name in served for storage in testbed.named[name])

    return "destination" if has_servers(source) and not has_servers(destination) else "source"


def _later(testbed: Mapping[str, Any], lead_s: float) -> dict[str, Any]:
    """Return a testbed whose links change later."""
    moved = [
        {**change, "at": format_duration_exact(parse_duration(change["at"]) + lead_s)}
        for change in testbed.get("change", [])
    ]
    return {**testbed, **({"change": moved} if moved else {})}
