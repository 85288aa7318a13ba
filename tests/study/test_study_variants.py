"""Lab studies have the published grids, and their default and quick variants have the described parameters."""

from __future__ import annotations

from itertools import product

import pytest

from venturi.plan import Trial
from venturi.scenario import load_scenario
from venturi.study import studies, study
from venturi.testbed.paths import bottleneck_bit_per_s, path_rtt_s
from venturi.testbed.plan import hosts_obstacle
from venturi.workload import expand

LAB = [name for name, found in studies().items() if found.on == "lab"]


def plan_of(name, *overrides):
    return expand(load_scenario(study(name).scenario_path, overrides=list(overrides)))


def points_of(name, *keys):
    plan = plan_of(name, "workload.repeat=1")
    trials = [step for line in plan.lines for step in line.steps if isinstance(step, Trial)]
    return [tuple(trial.factors[key] for key in keys) for trial in trials]


@pytest.mark.parametrize("name", LAB)
def test_every_variant_of_a_lab_study_has_a_network_and_is_no_larger_than_the_next(name):
    chosen = study(name)
    headers = [plan_of(name, *overrides).header for overrides in (chosen.quick, chosen.lab, ())]
    assert all(header.network is not None for header in headers)
    moved = [header.totals.bytes for header in headers if header.totals.bytes is not None]
    assert moved == sorted(moved)
    assert max(headers[1].totals.disk_bytes.values(), default=0) < 10e9
    assert chosen.lab_about


def test_a_study_without_a_lab_variant_uses_its_full_variant_by_default():
    assert study("cnaf/cp").overrides() == study("cnaf/cp").overrides(full=True) == ()
    chosen = study("cnaf/gridftp-one-node")
    assert (chosen.overrides(), chosen.overrides(full=True), chosen.overrides(quick=True)) == (
        chosen.lab,
        (),
        chosen.quick,
    )


HOSTS = [name for name, chosen in studies().items() if chosen.hosts]


@pytest.mark.parametrize("name", HOSTS)
def test_the_variants_for_existing_hosts_run_on_the_hosts_backend(name):
    chosen = study(name)
    assert chosen.overrides(on="hosts", quick=True) == (*chosen.quick, *chosen.hosts)
    assert hosts_obstacle(plan_of(name).header) is not None, "otherwise it needs no variant"
    for quick in (True, False):
        assert hosts_obstacle(plan_of(name, *chosen.overrides(on="hosts", quick=quick)).header) is None


@pytest.mark.parametrize("name", studies())
def test_a_simulated_study_has_the_full_published_scale(name):
    chosen = study(name)
    usual, full = (load_scenario(chosen.scenario_path, overrides=list(o)) for o in (chosen.overrides(on="sim"), ()))
    assert usual.scale == full.scale == 1.0
    assert usual.testbed == full.testbed
    assert chosen.overrides(on="sim") == (chosen.sim or ())
    assert chosen.overrides(on="sim", quick=True) == chosen.quick


def test_scenario_2_has_the_grid_of_the_report_and_the_zero_size_probe():
    # Report 000: 48 points, 108 files over all counts, 3.81 GB over all sizes, 200 repetitions.
    totals = plan_of("cnaf/gridftp-one-node").header.totals
    assert totals.trials == (48 + 8) * 200
    assert totals.bytes == 108 * 3_810_000_000 * 200
    assert sum(size == 0 for (size,) in points_of("cnaf/gridftp-one-node", "size_bytes")) == 8


def test_scenario_3_has_one_stream_over_the_grid_and_more_streams_at_some_points():
    points = points_of("cnaf/gridftp-two-nodes", "streams", "files", "size_bytes")
    assert len({point[1:] for point in points if point[0] == 1 and point[2]}) == 48
    assert {point[0] for point in points} == {1, 5, 10, 15, 20}
    header = plan_of("cnaf/gridftp-two-nodes").header
    assert path_rtt_s(header, "node1", "node2") == 0.0001001
    assert bottleneck_bit_per_s(header, "node1", "node2") == 2e9


def test_group_2_has_the_27_rows_of_the_table():
    # Report 001: streams × files × three types; there is no row from tmp to tmp.
    points = points_of("infn-gpfs/group2", "source", "destination", "streams", "files")
    types = [("gpfs", "gpfs"), ("gpfs", "tmp"), ("tmp", "gpfs")]
    assert set(points) == {(*ends, n, m) for ends, n, m in product(types, (1, 10, 20), (1, 5, 10))}
    assert len(points) == 27


def test_group_3_has_one_and_two_directions_over_a_gigabit_link():
    points = points_of("infn-gpfs/group3", "direction", "streams", "files")
    assert set(points) == set(product(("one way", "two ways"), (1, 10, 20), (1, 5, 10)))
    header = plan_of("infn-gpfs/group3").header
    assert bottleneck_bit_per_s(header, "node2", "node1") == 1e9
