"""Properties of a path from the first trial of a tuning: the run has the testbed, kernel settings and connections."""

from __future__ import annotations

from typing import Any

from venturi.advice.ceilings import ceilings
from venturi.advice.observe import Observation
from venturi.run.route_links import forward_links
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.tunable_options import TunableOption

__all__ = ["path_properties"]

WINDOW_PER_BUFFER = 0.5
"""Window per byte of buffer (tcp_adv_win_scale = 1; ``docs/concepts/tcp-model.md``)."""

_PATH_CAUSES = ("link", "source-disk", "destination-disk")


def path_properties(one: Observation, baseline: TuneProbe, tunable: tuple[TunableOption, ...]) -> TunePath:
    """Return the properties of a path.

    Parameters
    ----------
    one
        A trial of the baseline.
    baseline
        Probe of the default settings.
    tunable
        Tunable options of the mover.
    """
    rates = [ceiling.rate_bytes_per_s for ceiling in ceilings(one, alone=True) if ceiling.cause in _PATH_CAUSES]
    links = _links(one)
    declared = [_loss(link) for link in links]
    return TunePath(
        rtt_s=_rtt_s(one, links),
        rate_bytes_per_s=min(rates, default=None),
        loss=(max(declared) if links else baseline.retransmitted) or None,
        window_bytes=_window_bytes(one),
        file_bytes=one.bytes / max(1, one.files),
        files=max(1, one.files // max(1, one.transfers)),
        default_rate_bytes_per_s=baseline.rate_bytes_per_s,
        largest={option.setting: option.largest for option in tunable},
    )


def _links(one: Observation) -> list[dict[str, Any]]:
    """Return the declared links of the route of the data; empty on existing hosts."""
    network = one.header.get("network")
    if not network or one.source is None or one.destination is None or one.source == one.destination:
        return []
    return [network["links"][name] for name in forward_links(network, one.source, one.destination)]


def _rtt_s(one: Observation, links: list[dict[str, Any]]) -> float | None:
    """Return the smallest measured round trip, otherwise twice the declared delay."""
    found = [flow.gauges["min_rtt_s"] for flow in one.flows if "min_rtt_s" in flow.gauges]
    return min(found, default=2 * sum(float(link["delay_s"]) for link in links)) or None


def _loss(link: dict[str, Any]) -> float:
    """Return the mean loss probability of a link."""
    loss = link.get("loss") or {}
    probability = float(loss.get("probability", 0.0))
    if "enter" in loss:
        return probability * float(loss["enter"]) / (float(loss["enter"]) + float(loss["leave"]))
    return probability


def _window_bytes(one: Observation) -> float | None:
    """Return the largest window by the kernel settings of both hosts, and by the option of the mover."""
    texts = (one.sysctl(one.source, "net.ipv4.tcp_wmem"), one.sysctl(one.destination, "net.ipv4.tcp_rmem"))
    found = [WINDOW_PER_BUFFER * float(text.split()[-1]) for text in texts if text]
    if (option := one.options.get("window_bytes")) is not None:
        found.append(float(option))
    return min(found, default=None)
