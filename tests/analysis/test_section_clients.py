"""The report section about closed-loop clients, for runs with planted arrival times, links and inputs."""

import pytest

from testkit import call_of, transfer_record, trial_record, write_plan
from venturi.analysis import analyse
from venturi.analysis.sections.clients_servers import usable_fraction
from venturi.run import Run, RunWriter
from venturi.study import study

SIZE = 1_448_000
HEADS = 1500 / 1448
FETCH_S = 4.0
BURST_S = 1.0
FIRST_S = 1.0
EVERY_S = 0.1
RATE = 20e6
PROCESS = 1e6


def link(start_node, end, rate=RATE, loss=None):
    return {"from": start_node, "to": end, "rate_bit_per_s": rate, "delay_s": 0.005, "jitter_s": 0.0, "queue_bytes": 125_000,
            "loss": loss, "reorder_probability": 0.0, "overhead_bytes": 0, "up": True}  # fmt: skip


def network(bad):
    """Return a network with clients on c and d and servers on s.

    c and s have two interfaces; ``bad`` changes the second of c.
    """
    devices = {"c": 2, "d": 1, "s": 2}
    names = [(host, number) for host, count in devices.items() for number in range(count)]
    interfaces = {
        f"{host}.eth{number}": {"host": host, "device": f"eth{number}", "address": f"10.77.{i}.1", "mtu": 1500, "offload": True}
        for i, (host, number) in enumerate(names)
    }  # fmt: skip
    links = {}
    for interface in interfaces:
        worse = bad if interface == "c.eth1" else {}
        links |= {f"{interface}>r": link(interface, "r", **worse), f"r>{interface}": link("r", interface, **worse)}
    return {"interfaces": interfaces, "routers": ["r"], "links": links, "routes": {}, "changes": []}


def arrived(time_s, late):
    """Return the number of objects that a client has received by a time.

    Each object arrives evenly over the last ``BURST_S`` of its fetch if ``late``, otherwise over the first.
    """
    since = max(0.0, time_s - FIRST_S)
    started = since - (FETCH_S - BURST_S if late else 0.0) - FETCH_S * (whole := int(since // FETCH_S))
    return whole + min(max(started, 0.0), BURST_S) / BURST_S


def clients_run(base, cells, *, ramp="2 s", counted=True, bad=None, parts=(1.0, 1.0), again=0.0, fetches=3):
    """Write a run of several design points in sequence.

    Each point has 4 clients on c and 4 on d, in step. Those on c are late, those on d early. ``cells`` has the labels
    of the group of each point and its number of processes on s. ``parts`` is the ratio of the clients of c on eth0 and
    eth1. ``again`` is the fraction of the bytes that are sent twice.
    """
    base.mkdir(exist_ok=True)
    groups = {
        f"g{i}": {"services": [f"s{i}"], "clients": ["c", "d"], "labels": labels}
        for i, (labels, _) in enumerate(cells)
    }
    services = {
        f"s{i}": {"kind": "squid", "host": "s", "interface": "s.eth0", "storages": [], "after": [], "ports": [3128], "service_ports": {},
                  "options": {"instances": count, "workers": 1, "process_rate_bytes_per_s": PROCESS}}
        for i, (_, count) in enumerate(cells)
    }  # fmt: skip
    trials = [(point, host) for point in range(len(cells)) for host in ("c", "d")]
    lines = [
        {"actor": f"clients-{host}", "host": host, "steps": [
            {"step": "trial", "id": f"t{number:07d}", "point": point, "repetition": 0, "block": 0, "steps": [],
             "factors": {"group": f"g{point}", **cells[point][0], "pairing": "all to all", "clients": 4, "size_bytes": SIZE}}]}
        for number, (point, host) in enumerate(trials)
    ]  # fmt: skip
    scenario = {
        "venturi": 1,
        "workload": {"kind": "clients", "ramp": ramp, "group": groups},
        "analyse": {"against": ["clients"]},
    }
    plan = write_plan(
        base / "plan.jsonl", lines, hosts={h: {"ssh": None, "memory_bytes": None} for h in ("c", "d", "s")},
        storages={"data": {"host": "s", "path": "data"}}, calls={"get": call_of(["get"])}, services=services,
        network=network(bad or {}), scenario=scenario, interval_s=EVERY_S,
    )  # fmt: skip
    with RunWriter.create(base / "runs", plan, backend="lab") as run:
        run.start_session({"c": {}, "d": {}})
        length_s = FETCH_S * fetches + 1.0
        for number, (point, host) in enumerate(trials):
            shift_s = point * length_s
            done = [_fetch(number, point, host, slot, n, shift_s) for slot in range(4) for n in range(fetches)]
            run.trial(
                trial_record(f"t{number:07d}", actor=f"clients-{host}", transfers=done, start_s=shift_s + FIRST_S,
                             end_s=shift_s + FIRST_S + FETCH_S * fetches), host)  # fmt: skip
        for step in range(int(length_s * len(cells) / EVERY_S) + 10 if counted else 0):
            run.sample(
                {"time_s": step * EVERY_S, "counters": _counters(step * EVERY_S, length_s, parts, again, fetches)},
                "c",
            )
        run.finish("complete")
    return Run.open(run.path)


def _fetch(number, point, host, slot, n, shift_s):
    start_s = shift_s + FIRST_S + n * FETCH_S
    return transfer_record(
        f"t{number:07d}", actor=f"clients-{host}", slot=slot, call="get", destination="null:", requested_bytes=SIZE, received_bytes=None,
        start_s=start_s, end_s=start_s + FETCH_S, duration_s=FETCH_S, labels={"service": f"s{point}"},
    )  # fmt: skip


def _counters(time_s, length_s, parts, again, fetches):
    cell, within_s = divmod(time_s, length_s)
    sent = HEADS * (1 + again) * SIZE * 4
    had = {late: sent * (cell * fetches + min(arrived(within_s, late), fetches)) for late in (True, False)}
    fraction = [part / sum(parts) for part in parts]
    values = {"r>c.eth0": had[True] * fraction[0], "r>c.eth1": had[True] * fraction[1], "r>d.eth0": had[False],
              "s.eth0>r": had[True] + had[False], "s.eth1>r": 0.0}  # fmt: skip
    return {f"link.{name}.bytes": value for name, value in values.items()}


def tables_of(run):
    with run:
        (section,) = analyse(run).sections
    rows = {
        table.name: [dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows]
        for table in section.tables
    }
    return section, rows


@pytest.mark.parametrize("ramp", [0.0, 1.5, 2.0, 3.5, 4.0, 5.25])
@pytest.mark.parametrize("again", [0.0, 0.2])
def test_partial_fetches_count_with_the_bytes_received_in_the_steady_state(tmp_path, ramp, again):
    _, rows = tables_of(clients_run(tmp_path, [({}, 2)], ramp=f"{ramp} s", again=again))
    low_s, high_s = FIRST_S + ramp, FIRST_S + 3 * FETCH_S
    hosts = {row["host"]: row for row in rows["clients-hosts"]}
    for host, late in (("c", True), ("d", False)):
        truth = 4 * SIZE * 8 * (3 - arrived(low_s, late)) / (high_s - low_s)
        # The link is taken as even between two samples 0.1 s apart. The error is at most a tenth of a burst at the
        # start.
        assert hosts[host]["rate_bit_per_s"] == pytest.approx(truth, abs=0.1 * 4 * SIZE * 8 / (high_s - low_s))
        assert hosts[host]["wire_ratio"] == pytest.approx(1448 / 1500 / (1 + again), rel=1e-6)
    assert hosts["all"]["wire_ratio"] == pytest.approx(1448 / 1500 / (1 + again), rel=1e-6)
    (cell,) = rows["clients-rates"]
    assert cell["rate_bit_per_s"] == pytest.approx(hosts["c"]["rate_bit_per_s"] + hosts["d"]["rate_bit_per_s"])


def test_without_link_counters_partial_fetches_count_by_time(tmp_path):
    _, rows = tables_of(clients_run(tmp_path, [({}, 2)], counted=False))
    # From 3 s to 13 s: half of the first fetch, and two full fetches.
    assert rows["clients-rates"][0]["rate_bit_per_s"] == pytest.approx(8 * SIZE * 8 * 2.5 / 10)
    assert rows["clients-hosts"][0]["wire_ratio"] is None


def test_the_process_limit_is_compared_with_the_rate_and_reported_as_an_input(tmp_path):
    section, rows = tables_of(
        clients_run(tmp_path, [({"processes": 3, "affinity": "off"}, 3), ({"processes": 3, "affinity": "on"}, 3)])
    )
    for row in rows["clients-rates"]:
        assert row["process_limit_bit_per_s"] == 3 * PROCESS * 8
        assert row["process_ratio"] == pytest.approx(row["rate_bit_per_s"] / (3 * PROCESS * 8))
        assert row["busy_ratio"] == pytest.approx(8 / 10)
    notes = {table.name: table.note for table in section.tables}
    assert "is a setting of the testbed" in notes["clients-rates"]
    assert "It limits a process to 8 Mb/s" in notes["clients-comparisons"]


def test_directions_are_compared_at_their_fewest_and_at_their_most_processes(tmp_path):
    cells = [
        ({"direction": direction, "processes": count}, count)
        for direction, counts in (("A to B", (2, 3, 4)), ("B to A", (5, 6)))
        for count in counts
    ]
    _, rows = tables_of(clients_run(tmp_path, cells, fetches=2))
    found = [(row["which"], row["first_processes"], row["second_processes"]) for row in rows["clients-directions"]]
    assert found == [("fewest", 2, 5), ("most", 4, 6)]
    # All points have identical client activity.
    assert [row["second_ratio"] for row in rows["clients-directions"]] == pytest.approx([1.0, 1.0], rel=0.02)


@pytest.mark.parametrize("bad", [{"rate": RATE / 4}, {"loss": {"kind": "independent", "probability": 0.01}}])
def test_a_degraded_interface_is_compared_with_the_others_and_with_a_healthy_total(tmp_path, bad):
    _, rows = tables_of(clients_run(tmp_path, [({"processes": 9}, 9)], bad=bad, parts=(3.0, 1.0)))
    (row,) = rows["clients-interfaces"]
    assert row["interface"] == "c.eth1"
    assert row["others_ratio"] == pytest.approx(1 / 3)
    # The clients of c received three objects each in 10 s, 1/4 of them through eth1. With the rate of eth0, it carries
    # another 2/4.
    assert row["healthy_bit_per_s"] - row["all_bit_per_s"] == pytest.approx(0.5 * 4 * 3 * SIZE * 8 / 10, rel=0.02)


def test_the_gain_of_a_healthy_interface_is_limited_by_the_processes(tmp_path):
    _, rows = tables_of(clients_run(tmp_path, [({"processes": 4}, 4)], bad={"rate": RATE / 4}, parts=(3.0, 1.0)))
    (row,) = rows["clients-interfaces"]
    # 8 clients keep 8/11 of four processes busy. That is just above the 23.2 Mb/s of the clients.
    assert row["all_bit_per_s"] < row["healthy_bit_per_s"] == pytest.approx(4 * PROCESS * 8 * 8 / 11)
    assert "clients-interfaces" not in tables_of(clients_run(tmp_path / "healthy", [({"processes": 1}, 1)]))[1]


def test_the_fraction_of_busy_processes_equals_mean_value_analysis():
    # Reiser and Lavenberg 1980: M equal stations, each visited once per M steps, with work 1 in total: R(n) = 1 + Q(n -
    # 1), X(n) = n / R(n).
    for processes in (1, 2, 10, 48):
        queue = 0.0
        for clients in range(1, 100):
            throughput = clients / (1 + queue)
            queue = throughput * (1 + queue) / processes
            assert usable_fraction(clients, processes) == pytest.approx(throughput / processes)


def test_claims_that_follow_from_inputs_of_the_testbed_are_untested():
    claims = {claim["id"]: claim["ours"] for claim in study("ani/squid").published.claims}
    assert len(claims) == 13
    for id_, ours in claims.items():
        built_in = any(word in id_ for word in ("rises-with-processes", "affinity", "clients"))
        assert ("untested" in ours) is built_in, id_
