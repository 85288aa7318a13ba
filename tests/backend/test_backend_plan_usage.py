import json

from testkit import transfer_step, write_plan
from venturi.backend.plan_usage import HostUsage, actor_lines, plan_usage, users_of
from venturi.plan import read_header


def write_two_hosts(directory):
    """Write the plan of a run: `a` uploads to a service of `b`, and `c` directs a copy between both servers."""
    directory.mkdir()
    upload = transfer_step("cp", "on-a:set/000000", "on-b:out", 1, destination_via="serve-b/ftp")
    third = transfer_step("cp", "on-a:x", "on-b:y", 1, source_via="serve-a/ftp", destination_via="serve-b/ftp")
    prepare = {"step": "prepare", "dataset": "set-on-a", "first": 0, "files": 1, "cache": "as_is"}
    trial = {
        "step": "trial",
        "id": "t0",
        "point": 0,
        "repetition": 0,
        "block": 0,
        "factors": {},
        "steps": [prepare, upload],
    }
    lines = [
        {"actor": "one", "host": "a", "steps": [trial]},
        {"actor": "two", "host": "c", "steps": [third]},
        {"actor": "three", "host": "d", "steps": []},
    ]
    service = {
        "kind": "gridftp",
        "interface": None,
        "options": {},
        "after": [],
        "ports": [2811],
        "service_ports": {"ftp": "ftp://{host}:{port}{path}"},
    }
    write_plan(
        directory / "plan.jsonl",
        lines,
        hosts={name: {"ssh": name, "memory_bytes": None} for name in "abcd"},
        storages={f"on-{name}": {"host": name, "path": "data"} for name in "ab"},
        services={f"serve-{name}": {**service, "host": name, "storages": [f"on-{name}"]} for name in "ab"},
    )
    return directory


def test_usage_names_storages_services_and_pairs_of_services(tmp_path):
    run = write_two_hosts(tmp_path / "run")
    assert plan_usage(run, read_header(run / "plan.jsonl")) == {
        "a": HostUsage({"on-a", "on-b"}, {"serve-b"}, set()),
        "b": HostUsage(),
        "c": HostUsage({"on-a", "on-b"}, {"serve-a", "serve-b"}, {("serve-a", "serve-b")}),
        "d": HostUsage(),
    }


def test_losing_the_shell_of_a_host_affects_only_its_clients(tmp_path):
    run = write_two_hosts(tmp_path / "run")
    header = read_header(run / "plan.jsonl")
    usage = plan_usage(run, header)
    assert users_of("a", usage, header) == {"c"}
    assert users_of("b", usage, header) == {"a", "c"}
    assert users_of("d", usage, header) == set()


def test_drawn_endpoints_use_all_storages_and_services_of_the_plan(tmp_path):
    run = write_two_hosts(tmp_path / "run")
    drawn = transfer_step("cp", {"draw": "which"}, "on-b:out", 1)
    plan = run / "plan.jsonl"
    plan.write_text(plan.read_text() + json.dumps({"actor": "four", "host": "d", "steps": [drawn]}) + "\n")
    found = plan_usage(run, read_header(plan))["d"]
    assert (found.storages, found.services) == ({"on-a", "on-b"}, {"serve-a", "serve-b"})


def test_the_host_of_a_line_is_found_in_any_order_of_keys(tmp_path):
    run = write_two_hosts(tmp_path / "run")
    plan = run / "plan.jsonl"
    plan.write_text(plan.read_text() + '{"host": "b", "steps": [], "actor": "five"}\n')
    assert [host for host, _ in actor_lines(run)] == ["a", "c", "d", "b"]
