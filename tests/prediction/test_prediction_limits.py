"""Systems with a known limit: the greatest rate, the decisions around it, and the layers against each other."""

from __future__ import annotations

from typing import Any

import pytest
from predictionkit import PAYLOAD, changed

from venturi.prediction import LoadPrediction, LoadRequest, RequestedRate, predict_load
from venturi.prediction.engine import simulate_alone
from venturi.prediction.offered import offered_load
from venturi.scenario import scenario_from
from venturi.workload import expand

MB = 1e6


def disk(host: str, path: str, **rates: str) -> dict[str, str]:
    return {"host": host, "path": path, "kind": "disk", "size": "10 TB", **rates}


def with_sessions(number: int, start: str) -> dict[str, Any]:
    """Return a server with few sessions and a tool that takes a fixed time, so that the network is irrelevant."""
    cost = {"service": {"web": {"sessions": number}}, "mover": {"curl": {"start": start, "start_core": "0 s"}}}
    return changed(testbed__cost=cost, workload__factors={"size": ["1 kB"]})


def with_cores() -> dict[str, Any]:
    cost = {"service": {"web": {"session_core": "1 s"}}, "mover": {"curl": {"start_core": "0 s"}}}
    return changed(testbed__cost={**cost, "host": {"a": {"cores": 2}}}, workload__factors={"size": ["1 kB"]})


def two_sizes() -> dict[str, Any]:
    return changed(testbed__link__wan__rate="2 Gb/s", workload__factors={"size": ["50 MB", "350 MB"]})


# Name, scenario, known limit in transfers per second (None: sessions / time of one transfer), resource, queueing model.
SYSTEMS: list[tuple[str, dict[str, Any], float | None, str, str]] = [
    (
        "link",
        changed(testbed__link__wan__rate="1 Gb/s"),
        125 * MB * PAYLOAD / (100 * MB),
        "link wan (a>b)",
        "M/G/c-PS",
    ),
    ("mix", two_sizes(), 250 * MB * PAYLOAD / (200 * MB), "link wan (a>b)", "M/G/c-PS"),
    (
        "write",
        changed(testbed__storage__copies=disk("b", "c", write_rate="400 Mb/s")),
        0.5,
        "storage copies (write)",
        "M/G/c-PS",
    ),
    ("four sessions", with_sessions(4, "2 s"), None, "sessions of service web", "M/G/c"),
    ("cores", with_cores(), 2.0, "CPU of a", "none"),
    (
        "disk with seeks",
        changed(testbed__cost={"storage": {"data": {"seek": "8 ms", "read_ahead": "1 MB"}}}),
        # Each MB takes its time at 10 GB/s and a seek.
        1 / (100 * (1e6 / 10e9 + 0.008)),
        "storage data (read)",
        "none",
    ),
]


def known_limit(document: dict[str, Any], limit: float | None) -> float:
    if limit is not None:
        return limit
    alone_s, _ = simulate_alone(offered_load(expand(scenario_from(document))))
    return float(document["testbed"]["cost"]["service"]["web"]["sessions"]) / next(iter(alone_s.values()))


def predicted(document: dict[str, Any], per_s: float) -> LoadPrediction:
    return predict_load(scenario_from(document), LoadRequest(RequestedRate(per_s, "min"), seeds=4))


@pytest.mark.parametrize(
    ("document", "limit", "resource", "model"), [s[1:] for s in SYSTEMS], ids=[s[0] for s in SYSTEMS]
)
def test_the_greatest_rate_and_the_decisions_around_it_are_right(
    document: dict[str, Any], limit: float | None, resource: str, model: str
) -> None:
    per_s = known_limit(document, limit)
    below, above = predicted(document, 0.85 * per_s), predicted(document, 1.15 * per_s)
    assert below.greatest.value == pytest.approx(per_s, rel=0.05)
    assert below.greatest.low <= 1.01 * per_s and below.greatest.high >= 0.99 * per_s
    assert (below.sustained, above.sustained) == ("yes", "no")
    assert below.resources[0].name == below.bottleneck == resource
    assert below.resources[0].per_s == pytest.approx(per_s, rel=0.01)
    assert below.growth is not None and abs(below.growth.value) < 0.01
    assert above.purchases[0].resource == resource
    bounds, queueing, replay = below.layers
    assert [layer.name for layer in below.layers] == ["bounds", "queueing", "replay"]
    assert bounds.per_s == pytest.approx(per_s, rel=0.01)
    assert queueing.model == model
    if queueing.latency_s is None:
        assert queueing.statement.startswith("skipped: ")
    else:
        # Four seeds of 4,500 correlated times at 85 % use: a standard error of some percent.
        assert replay.latency_s == pytest.approx(queueing.latency_s, rel=0.15)
    assert above.layers[1].statement.startswith("skipped: no stationary state")


@pytest.mark.parametrize("clients", [1, 3, 12])
def test_clients_have_the_throughput_of_the_closed_network(clients: int) -> None:
    document = changed(testbed__link__wan__rate="1 Gb/s")
    found = predict_load(scenario_from(document), LoadRequest(None, clients, think_s=2.0, seeds=4))
    bounds, queueing, replay = found.layers
    assert (found.sustained, queueing.model) == ("no target", "closed network (exact MVA)")
    assert bounds.per_s is not None and queueing.per_s is not None and replay.per_s is not None
    assert replay.per_s <= bounds.per_s * 1.02
    # Four seeds of 1,000 transfers: a standard error of about 2 %.
    assert replay.per_s == pytest.approx(queueing.per_s, rel=0.06)


def test_clients_reach_a_rate_below_their_bound_and_not_above() -> None:
    scenario = scenario_from(changed(testbed__link__wan__rate="1 Gb/s"))
    limit = 125 * MB * PAYLOAD / (100 * MB)
    decisions = [
        predict_load(scenario, LoadRequest(RequestedRate(factor * limit, "s"), 20, seeds=4)).sustained
        for factor in (0.85, 1.15)
    ]
    assert decisions == ["yes", "no"]


def test_an_assumed_rate_alone_gives_no_negative_sustained() -> None:
    document = changed(testbed__storage__copies={"host": "b", "path": "copies"})
    found = predicted(document, 11.0)
    # The link carries 12 transfers a second; the write rate of 1 GB/s is an assumption of the simulator.
    assert found.probability is not None and found.probability.high < 0.5
    assert (found.sustained, found.bottleneck) == ("cannot tell", "storage copies (write), assumed rate")
    assert found.purchases[0].assumed and "assumed" in found.next_step


def test_several_files_per_transfer_are_simulated_step_by_step() -> None:
    document = changed(testbed__link__wan__rate="1 Gb/s", workload__factors={"size": ["10 MB"], "files": [8]})
    document["workload"] |= {"mover": "venturi", "files_per_call": 8}
    limit = 125 * MB * PAYLOAD / (80 * MB)
    request = LoadRequest(RequestedRate(0.8 * limit, "min"), seeds=4, duration_s=400 / limit)
    found = predict_load(scenario_from(document), request)
    assert found.mean_bytes == 80 * MB
    assert (found.sustained, found.transfers) == ("yes", 320)
    # Seeds of 400 transfers differ by some percent.
    assert found.greatest.value == pytest.approx(limit, rel=0.1)


def test_a_queue_for_sessions_behind_a_full_link_is_not_its_cause() -> None:
    cost = {"service": {"web": {"sessions": 30}}, "mover": {"curl": {"start": "10 ms", "start_core": "0 s"}}}
    found = predicted(changed(testbed__link__wan__rate="1 Gb/s", testbed__cost=cost), 1.0)
    assert found.bottleneck == "link wan (a>b)"
    assert {limit.kind for limit in found.resources} == {"link", "storage", "sessions"}


def test_a_full_link_with_few_of_the_bytes_is_not_hidden_by_the_others() -> None:
    flow = {"rate": "100 Gb/s", "size": "100 MB", "start": "0 s", "end": "10 min", "of": "flow"}
    document = changed(
        testbed__host={name: {"site": name} for name in ("a", "b", "c")},
        testbed__link={
            "wide": {"between": ["a", "b"], "rate": "100 Gb/s", "rtt": "2 ms"},
            "thin": {"between": ["a", "c"], "rate": "1 Gb/s", "rtt": "2 ms"},
        },
        testbed__storage={
            name: disk(name, name, read_rate="800 Gb/s", write_rate="800 Gb/s") for name in ("a", "b", "c")
        },
        testbed__service={"web": {"kind": "nginx", "host": "a", "storage": ["a"]}},
        workload={
            "kind": "inject", "mover": "curl", "form": "arrivals",
            "options": {}, "flow": {
                "large": {**flow, "source": ["a"], "destination": ["b"], "client": "destination", "rate": "48 Gb/s"},
                "small": {**flow, "source": ["a"], "destination": ["c"], "client": "destination", "rate": "2 Gb/s"},
            },
        },
    )  # fmt: skip
    # 4 % of the bytes use the thin link.
    limit = 125 * MB * PAYLOAD / (100 * MB) / 0.04
    below, above = (
        predict_load(
            scenario_from(document),
            LoadRequest(RequestedRate(factor * limit, "s"), seeds=4, duration_s=6000 / limit),
        )
        for factor in (0.85, 1.25)
    )
    assert below.resources[0].per_s == pytest.approx(limit, rel=0.01)
    assert (below.kinds, below.sustained, above.sustained) == (2, "yes", "no")
    # The growth of the whole load alone would hardly show it.
    assert above.growth is not None and above.growth.value < 0.02
