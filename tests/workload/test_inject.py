"""The workload `inject`: the plan has the requested transfers, and impossible requests are rejected.

The transfers are lines or open loops.
"""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from peerskit import bed_of
from problemkit import reports
from scipy.stats import kstest

from venturi.errors import ScenarioError
from venturi.plan import Arrivals, At, Draw, Parallel, Prepare, TransferStep, Trial, Wait, plan_lines
from venturi.scenario import scenario_from
from venturi.workload import expand
from venturi.workload.arrivals import RateShape, arrival_times, open_loop

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json").read_text())
SURE = 1e-3
FLOW = {"source": "Alpha", "destination": ["Beta", "gam*"], "rate": "8 Mb/s", "end": "10 s", "size": "10 kB"}


def inject(*, top=None, flow=None, flows=None, **workload):
    """Return a scenario with one flow from three hosts to one and two.

    These are nine pairs with 8 Mb/s and 100 transfers per second each.
    """
    return scenario_from(
        {
            "venturi": 1,
            "name": "i",
            **(top or {}),
            "testbed": bed_of(),
            "workload": {
                "kind": "inject",
                "mover": "globus-url-copy",
                "flow": flows or {"f": {**FLOW, **(flow or {})}},
                **workload,
            },
        }
    )


def started_transfers(plan):
    """Return (time, trial, transfer) of each transfer with its own line."""
    found = []
    for line in plan.lines:
        if isinstance(line.steps[-1], Trial):
            _, at, trial = line.steps
            assert isinstance(at, At)
            found.append((at.time_s, trial, trial.steps[0]))
    return found


def loops(plan):
    """Return the open loops of a plan with the factors of their trials."""
    found = []
    for line in plan.lines:
        for trial in line.steps:
            if isinstance(trial, Trial):
                steps = trial.steps[0].children if isinstance(trial.steps[0], Parallel) else [trial.steps]
                found += [(trial.factors, step) for (step,) in steps]
    return found


def requested(loop):
    """Return the mean number of transfers of an open loop.

    It is the area below its rate by the trapezoidal rule, which is exact for lines.
    """
    times, rates = zip(*loop.rate_per_s, strict=True)
    return np.trapezoid(rates, times)


@pytest.mark.parametrize("form", ["each", "arrivals"])
def test_equal_seeds_give_equal_plans_and_all_plans_match_the_schema(form):
    plans = [
        list(plan_lines(expand(inject(top={"seed": seed}, flow={"rate": "1 /s"}, form=form)))) for seed in (1, 1, 2)
    ]
    assert plans[0] == plans[1] != plans[2]
    check = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    for text in plans[0]:
        check.validate(json.loads(text))


def test_a_scenario_is_equal_after_a_round_trip_through_its_document():
    scenario = inject(flow={"rate": "120.5 /min", "ramp_up": "2 s", "weights": [1.0], "of": "flow"})
    assert scenario_from(scenario.document()) == scenario


@pytest.mark.parametrize("arrivals", ["poisson", "even"])
def test_bytes_and_rates_match_the_request(arrivals):
    plan = expand(inject(arrivals=arrivals, form="each"))
    transfers = started_transfers(plan)
    # Nine pairs × 8 Mb/s × 10 s / 80 kb = 9,000 transfers; random ones are within four standard deviations.
    slack = 4 * math.sqrt(9_000) if arrivals == "poisson" else 0
    assert abs(len(transfers) - 9_000) <= slack
    assert plan.header.totals.transfers == plan.header.totals.trials == len(transfers)
    assert plan.header.totals.bytes == sum(moved.bytes for _, _, moved in transfers) == 10_000 * len(transfers)
    per_pair = Counter((moved.source, moved.destination.partition(":")[0]) for _, _, moved in transfers)
    assert len(per_pair) == 9
    assert all(abs(count - 1_000) <= slack / 3 for count in per_pair.values())
    assert all(trial.factors["requested_bit_per_s"] == pytest.approx(8e6) for _, trial, _ in transfers)


def test_random_transfers_are_a_poisson_process_and_even_ones_a_grid():
    poisson = np.array(
        [time for time, _, moved in started_transfers(expand(inject())) if moved.source.startswith("alpha0")]
    )
    gaps = np.diff(poisson)
    assert kstest(gaps, "expon", args=(0, 1 / 300)).pvalue > SURE  # three pairs of 100 /s are one process of 300 /s
    assert kstest(poisson, "uniform", args=(0, 10)).pvalue > SURE
    grids = defaultdict(list)
    for time, _, moved in started_transfers(expand(inject(arrivals="even"))):
        grids[moved.source, moved.destination.partition(":")[0]].append(time)
    phases = set()
    for times in grids.values():
        assert np.allclose(np.diff(times), 0.01, atol=2e-6)
        phases.add(round(times[0], 5))
    assert len(phases) > 5  # pairs are not in step


def test_transfers_are_ordered_by_time_and_run_as_independent_actors():
    plan = expand(inject(flow={"end": "2 s"}))
    times = [time for time, _, _ in started_transfers(plan)]
    assert times == sorted(times)
    actors = [line.actor for line in plan.lines]
    assert len(set(actors)) == len(actors)
    assert [trial.id for _, trial, _ in started_transfers(plan)] == [f"t{n:07d}" for n in range(len(times))]
    made = [line for line in plan.lines if isinstance(line.steps[0], Prepare)]
    assert {line.host for line in made} == {"alpha0", "alpha1", "alpha2"}
    waits = {line.steps[0] for line in plan.lines if isinstance(line.steps[0], Wait)}
    assert waits == {Wait("inject.ready", 3)}


def test_a_ramp_a_plateau_and_a_fall_have_the_rates_of_a_trapezium():
    shape = {"rate": "10 /s", "start": "10 s", "end": "110 s", "ramp_up": "40 s", "ramp_down": "20 s"}
    times = np.array(
        [time for time, _, _ in started_transfers(expand(inject(flow=shape, arrivals="even", lead="5 s")))]
    )
    times -= 15
    # A pair has 10 /s on the plateau of 40 s, and half of that over the ramps: 10 × (20 + 40 + 10) = 700.
    assert len(times) == pytest.approx(9 * 700, abs=9)
    assert times.min() >= 0 and times.max() < 100
    for start, end, expected in ((0, 20, 50), (20, 40, 150), (40, 80, 400), (80, 90, 75), (90, 100, 25)):
        assert np.sum((times >= start) & (times < end)) == pytest.approx(9 * expected, abs=10)


def test_the_transfers_of_several_flows_add_up():
    two = {
        "one": {**FLOW, "rate": "50 /s"},
        "two": {**FLOW, "source": "Beta", "destination": "Gamma", "rate": "30 /s", "start": "5 s", "end": "15 s"},
    }
    transfers = started_transfers(expand(inject(flows=two, arrivals="even")))
    counts = Counter(trial.factors["flow"] for _, trial, _ in transfers)
    assert counts == {"one": 9 * 500, "two": 2 * 300}
    assert min(time for time, trial, _ in transfers if trial.factors["flow"] == "two") >= 5


def test_the_rate_of_a_flow_is_shared_evenly_or_by_the_rates_of_links():
    def counts(of, rates):
        bed = bed_of({"Alpha": 1, "Beta": 1, "Gamma": 1})
        for host, rate in rates.items():
            bed["link"][host]["rate"] = rate
        scenario = inject(flow={"rate": "90 /s", "of": of}, arrivals="even")
        scenario = scenario_from({**scenario.document(), "testbed": bed})
        return Counter(trial.factors["destination"] for _, trial, _ in started_transfers(expand(scenario)))

    assert counts("flow", {}) == {"Beta": 450, "Gamma": 450}
    assert counts("capacity", {"beta0": "200 Mb/s", "gamma0": "100 Mb/s"}) == {"Beta": 600, "Gamma": 300}
    assert counts("pair", {}) == {"Beta": 900, "Gamma": 900}


def test_sizes_follow_their_weights_and_keep_the_rate_of_bytes():
    sizes = {"size": ["10 kB", "40 kB"], "weights": [3.0, 1.0]}
    transfers = started_transfers(expand(inject(flow=sizes, arrivals="even")))
    # The mean size is 17.5 kB, so 8 Mb/s are 57.14 /s per pair, and three quarters of them are small.
    counts = Counter(moved.bytes for _, _, moved in transfers)
    assert counts[10_000] == pytest.approx(9 * 10 * 57.142857 * 0.75, abs=9)
    assert counts[40_000] == pytest.approx(9 * 10 * 57.142857 * 0.25, abs=9)
    assert sum(size * count for size, count in counts.items()) == pytest.approx(9 * 10e6, rel=1e-2)
    assert all(moved.source.split("/")[-2] in ("10kB", "40kB") for _, _, moved in transfers)


def test_the_scale_multiplies_bytes_and_leaves_times_and_counts():
    whole, small = (
        started_transfers(expand(inject(top={"scale": scale}, flow={"end": "5 s"}))) for scale in (1.0, 0.1)
    )
    assert [time for time, _, _ in whole] == [time for time, _, _ in small]
    assert {moved.bytes for _, _, moved in small} == {1000}
    assert small[0][1].factors["requested_bit_per_s"] == pytest.approx(8e5)


def test_the_mover_can_run_at_the_source_or_at_the_destination():
    for client, hosts in (("source", {"alpha0", "alpha1", "alpha2"}), ("destination", {"beta0", "gamma0", "gamma1"})):
        plan = expand(inject(flow={"client": client, "end": "1 s"}))
        assert {line.host for line in plan.lines if len(line.steps) == 3} == hosts
        for _, _, moved in started_transfers(plan):
            assert (moved.source_via is None) == (client == "source")


def test_many_transfers_become_open_loops_with_the_same_requested_bytes():
    shape = {"start": "10 s", "end": "110 s", "ramp_up": "40 s", "ramp_down": "20 s", "size": ["10 kB", "40 kB"]}
    plan = expand(inject(flow=shape, form="arrivals", lead="5 s"))
    found = loops(plan)
    assert len(found) == 18  # nine pairs, two sizes
    rates = [requested(loop) for _, loop in found]
    sizes = [loop.steps[0].bytes for _, loop in found]
    # The mean is 8 Mb/s for 70 s per pair, in bytes.
    assert sum(n * size for n, size in zip(rates, sizes, strict=True)) == pytest.approx(9 * 70e6)
    for _, loop in found:
        assert loop.gap == Draw("gap")
        assert [time for time, _ in loop.rate_per_s] == [15, 55, 95, 115]
    assert plan.header.draws == {"gap": {"kind": "exponential", "mean": 1.0}}
    assert plan.header.totals.trials == 9
    assert plan.header.totals.transfers is None and plan.header.totals.bytes is None
    destinations = [loop.steps[0].destination for _, loop in found]
    assert len(set(destinations)) == 18


def test_the_default_form_depends_on_the_number_of_transfers(monkeypatch):
    monkeypatch.setattr("venturi.workload.inject_layout.EACH", 1000)

    def is_written_out(end):
        return expand(inject(flow={"rate": "10 /s", "end": end})).header.totals.transfers is not None

    assert is_written_out("11 s")  # 990 on average
    assert not is_written_out("11.2 s")  # 1,008


def test_a_year_of_a_hundred_million_transfers_has_a_small_plan():
    plan = expand(inject(flow={"rate": "100000000 /year", "of": "flow", "end": "365 d"}))
    lines = list(plan_lines(plan))
    assert len(lines) == 1 + 3 + 9
    assert sum(map(len, lines[1:])) < 10_000
    assert sum(requested(loop) for _, loop in loops(plan)) == pytest.approx(1e8)


def test_even_arrivals_of_an_open_loop_equal_the_times_of_single_transfers():
    """The phase is the same draw, so the step has the same times. This test implements the rule of *The plan*."""
    shape = RateShape(((0, 0), (10, 1), (30, 1), (40, 0)))
    step = open_loop(shape, 7.0, "even", (TransferStep("c", 0, "a:b", "c:d", 1, 1),), 3, "x")
    assert isinstance(step, Arrivals) and step.gap == 1.0
    times = list(arrival_times(shape, 7.0, "even", 3, "x"))
    assert len(times) in (210, 209)

    def area(time):
        steps = [min(time, at) for at, _ in step.rate_per_s]
        rates = np.interp(steps, *zip(*step.rate_per_s, strict=True))
        return np.trapezoid(rates, steps) + 0.0

    for number, time in enumerate(times):
        assert area(time) == pytest.approx(step.first + number, abs=1e-9)


def test_adding_a_flow_does_not_change_the_draws_of_other_flows():
    one = {"one": {**FLOW, "end": "3 s"}}
    both = {**one, "two": {**FLOW, "source": "Beta", "destination": "Gamma", "end": "3 s"}}
    alone = [time for time, _, _ in started_transfers(expand(inject(flows=one)))]
    with_others = [
        time for time, trial, _ in started_transfers(expand(inject(flows=both))) if trial.factors["flow"] == "one"
    ]
    assert alone == with_others


@pytest.mark.parametrize(
    ("flow", "workload", "problem"),
    [
        ({"source": "Alfa"}, {}, 'workload.flow.f.source[0]: expected one of the sites, hosts and storages: Alpha, alpha0, alpha1, alpha2, Beta, beta0, Gamma, gamma0, gamma1, found "Alfa"; did you mean Alpha?'),
        ({"destination": ["alpha1"]}, {}, "workload.flow.f.destination: expected storages of other sites than the source, found none"),
        ({"rate": "10 GB"}, {}, 'workload.flow.f.rate: expected a rate such as "10 Gb/s", or of transfers such as "120 /h", found "10 GB"'),
        ({"end": "0 s"}, {}, "workload.flow.f.end: expected an end after start and both ramps, found 0 s for ramps of 0 s and 0 s"),
        ({"ramp_up": "9 s", "ramp_down": "2 s"}, {}, "workload.flow.f.end: expected an end after start and both ramps, found 10 s for ramps of 9 s and 2 s"),
        ({"size": []}, {}, "workload.flow.f.size: expected one or more distinct sizes above 0, found []"),
        ({"weights": [1.0, 2.0]}, {}, "workload.flow.f.weights: expected a weight for each of 1 sizes, found 2"),
        ({"rate": "0.001 /s", "of": "flow"}, {}, "workload.flow: expected one or more transfers on average, found 0.01"),
        ({"end": "365 d"}, {"form": "each"}, 'workload.form: expected at most 5000000 transfers in the form "each", found 2.84e+10 transfers; use form = "arrivals"'),
        ({}, {"mover": "dd"}, "workload.mover: expected one of the movers that copy files"),
    ],
)  # fmt: skip
def test_rejects_invalid_flow_with_location(flow, workload, problem):
    with pytest.raises(ScenarioError) as error:
        inject(flow=flow, **workload)
    assert reports(problem, error.value)
