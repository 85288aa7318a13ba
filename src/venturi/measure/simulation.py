"""Testbed for simulation from a saved measurement: hosts, one link, and storages, with the measured rates.

The simulated copy is as fast as its slowest part (the minimum rule). In a slower measured copy, parts use one resource and take turns.
The write rate of the destination then follows from the sum rule, 1/v = Σ 1/vᵢ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from venturi.errors import MeasureError
from venturi.measure.evaluate import MOVER_RATIO
from venturi.measure.save import FORMAT, RESULT
from venturi.plan.network import link_bytes_per_byte
from venturi.report.toml import as_toml
from venturi.units import BITS_PER_BYTE, format_bytes_exact

__all__ = ["is_measurement", "simulation_text"]

_VERSIONS = (1,)
_MTU_BYTES = 1500

_SERVICE = "server"
_DEFAULT_BYTES = 100_000_000


def is_measurement(path: Path) -> bool:
    """Return whether a directory has a saved measurement of ``venturi measure``."""
    return (path / RESULT).is_file()


def simulation_text(path: Path) -> str:
    """Return a scenario for the simulator as TOML: the testbed of a saved measurement, and its copy.

    Parameters
    ----------
    path
        Directory of the measurement.

    Raises
    ------
    MeasureError
        If it cannot be read, or lacks a rate.
    """
    measured = _read(path / RESULT)
    try:
        document, remarks = _document(measured, path)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise MeasureError(
            f"{path / RESULT}: expected a measurement of version {_VERSIONS[-1]}, found other content ({error!r});"
            " run venturi measure again"
        ) from error
    lines = [
        f"# Written by `venturi calibrate` from {path.name}. Simulate it with `venturi run FILE --on sim`.",
        *remarks,
    ]
    return "\n".join(lines) + f"\n{as_toml(document)}\n"


def _read(file: Path) -> Mapping[str, Any]:
    try:
        measured = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MeasureError(f"{file}: cannot read the measurement: {error}; run venturi measure again") from error
    if not isinstance(measured, dict) or measured.get("format") != FORMAT or measured.get("version") not in _VERSIONS:
        found = measured.get("version") if isinstance(measured, dict) else None
        raise MeasureError(
            f"{file}: expected a measurement of version {_VERSIONS[-1]}, found version {found}; run venturi measure again"
        )
    return measured


def _document(measured: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], list[str]]:
    forth, back = measured["paths"][0], measured["paths"][1] if len(measured["paths"]) > 1 else None
    network = "network" in forth["parts"]
    hosts = ("a", "b") if network else ("a",)
    rates: dict[str, dict[str, float]] = {
        "source": _storage_rates(read=forth, written=back),
        "destination": _storage_rates(read=back, written=forth),
    }
    remarks = []
    if (forth["parts"].get("read") or {}).get("cached"):
        remarks.append("# Reading came from the page cache: the source has no read_rate.")
    if forth["shared"]:
        one = forth["shared"][0]
        rates["destination"]["write_rate"] = float(one["rate_bytes_per_s"])
        resource = one["resource"] or "one resource"
        remarks.append(
            f"# The parts {', '.join(one['parts'])} use {resource} and take turns: write_rate of the destination is their sum rule."
        )
    testbed: dict[str, Any] = {
        "host": {name: {} for name in hosts},
        "storage": {
            "source": {"host": "a", "path": "source"},
            "destination": {"host": hosts[-1], "path": "destination"},
        },
    }
    cost: dict[str, Any] = {
        "storage": {
            name: {key: _rate(value) for key, value in found.items()} for name, found in rates.items() if found
        },
        "host": {name: {"cores": measured["environment"]["hosts"][name]["cores"]} for name in hosts},
    }
    if network:
        testbed["link"] = {"path": _link(measured, forth, back)}
        testbed["service"] = {
            _SERVICE: {"kind": "venturi-serve", "host": "b", "storage": ["destination"]},
        }
        mover, plain = _part(forth, "mover"), _part(forth, "network")
        if mover is not None and plain is not None and mover < MOVER_RATIO * plain:
            cost["service"] = {_SERVICE: {"process_rate": _rate(mover)}}
            remarks.append(
                "# The mover was slower than the network: process_rate of the server is its measured rate."
            )
    testbed["cost"] = cost
    copy = _part(forth, "copy")
    if copy is not None:
        remarks.append(f"# The measured copy reached {_rate(copy)}.")
    options = {"concurrency": 1, "streams": measured["connections"]} if network else {"fsync": True}
    workload = {
        "kind": "sweep",
        "mover": "venturi",
        "source": "source",
        "destination": "destination",
        "factors": {"size": [_size(forth)]},
        "options": options,
    }
    return {"venturi": 1, "name": f"{path.name}-simulated", "testbed": testbed, "workload": workload}, remarks


def _link(measured: Mapping[str, Any], forth: Mapping[str, Any], back: Mapping[str, Any] | None) -> dict[str, Any]:
    rates = [_part(one, "network") for one in (forth, back) if one is not None]
    if any(rate is None for rate in rates):
        raise MeasureError(
            "expected a measured rate of the network, found only failed samples; run venturi measure again"
        )
    # The measurement counts data, a link also headers.
    wire = [_rate(rate * link_bytes_per_byte(_MTU_BYTES, 0)) for rate in rates if rate is not None]
    rtt_s = float(measured["environment"]["paths"][0].get("connect_rtt_s") or 0.0)
    return {
        "between": ["a", "b"],
        "rate": wire[0] if len(wire) == 1 else wire,
        "rtt": f"{rtt_s * 1e3:.6g} ms",
    }


def _storage_rates(*, read: Mapping[str, Any] | None, written: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the rates of a storage that one direction reads and the other one writes."""
    found = {}
    if read is not None and not (read["parts"].get("read") or {}).get("cached"):
        found["read_rate"] = _part(read, "read")
    if written is not None:
        found["write_rate"] = _part(written, "write")
    return {key: rate for key, rate in found.items() if rate is not None}


def _part(path: Mapping[str, Any], part: str) -> float | None:
    rate = (path["parts"].get(part) or {}).get("rate_bytes_per_s")
    return None if rate is None else float(rate)


def _size(path: Mapping[str, Any]) -> str:
    """Return the largest size of a measured copy."""
    samples = (path["parts"].get("copy") or {}).get("samples") or ()
    return format_bytes_exact(max((int(sample["bytes"]) for sample in samples), default=0) or _DEFAULT_BYTES)


def _rate(bytes_per_s: float) -> str:
    """Return a rate with four significant digits."""
    return f"{float(f'{bytes_per_s * BITS_PER_BYTE / 1e6:.4g}'):.10g} Mb/s"
