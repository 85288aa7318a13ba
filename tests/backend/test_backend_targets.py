import dataclasses

import pytest
from typer.testing import CliRunner

from testkit import tiny_trials, write_plan
from venturi.backend.targets import Target, merged_hosts, read_targets, targeted_header
from venturi.cli.root import app
from venturi.errors import ScenarioError
from venturi.plan import read_header
from venturi.plan.header import Host
from venturi.run import Run


def targets_of(tmp_path, text):
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    return read_targets(path)


def test_a_targets_file_sets_destination_directory_and_ports(tmp_path):
    text = 'cern = { ssh = "alice@dtn1", path = "/data/alice", address = "dtn1-data", open_ports = "50000-50100", cache = "/scratch/c" }\n'
    assert targets_of(tmp_path, text) == {
        "cern": Target("alice@dtn1", None, "dtn1-data", (50000, 50100), "/scratch/c", None, "/data/alice")
    }


def test_targets_replace_destinations_and_keep_other_properties_of_a_host():
    hosts = {"a": Host(connect=("env",), memory_bytes=5, environment={"X": "1", "Y": "1"}), "b": Host(ssh="b")}
    merged = merged_hosts(
        hosts, {"a": Target(ssh="alice@a", environment={"Y": "2"}), "b": Target(address="10.0.0.2")}
    )
    assert merged["a"] == Host("alice@a", 5, environment={"X": "1", "Y": "2"})
    assert merged["b"] == Host("b", address="10.0.0.2")


def test_the_stored_plan_has_no_targets(tmp_path):
    plan = write_plan(tmp_path / "plan.jsonl", tiny_trials(1))
    before = plan.read_bytes()
    (tmp_path / "hosts.toml").write_text('node1 = { ssh = "alice@dtn1" }\n')
    header = read_header(plan)
    assert targeted_header(header, tmp_path / "hosts.toml").hosts["node1"].ssh == "alice@dtn1"
    assert targeted_header(header, None) is header
    assert (header.hosts["node1"].ssh, plan.read_bytes()) == (None, before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a = { ssh = "-oProxyCommand=x" }', 'a.ssh: expected an ssh destination.*found "-oProxyCommand=x"'),
        ('a = { ssh = "" }', "a.ssh: expected an ssh destination"),
        ("a = { connect = [] }", "a.connect: expected the words of a command"),
        ('a = { ssh = "b", connect = ["env"] }', "a: expected `ssh` or `connect`, found both"),
        ('a = { path = "data" }', 'a.path: expected an absolute path, found "data"; write the full path'),
        ('a = { pth = "/data" }', "a.pth: expected one of the keys.*did you mean path"),
        ('a = { open_ports = "9-5" }', 'a.open_ports: expected a range of ports such as "50000-50100"'),
        ("a = 3", "a: expected a table such as"),
        ("a = {", "expected TOML, found an error"),
    ],
)
def test_an_invalid_targets_file_is_rejected_with_the_key(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        targets_of(tmp_path, text)


def test_a_target_for_an_unknown_host_is_rejected():
    with pytest.raises(ScenarioError, match=r"hosts.toml: cernn: .*found \"cernn\"; did you mean cern"):
        merged_hosts({"cern": Host()}, {"cernn": Target()}, "hosts.toml")


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["expected a line for each host of the plan, found none for a, b; add lines such as a = {"]),
        (
            'a = { ssh = "x" }',
            ["expected a line for each host of the plan, found none for b; add lines such as b = {"],
        ),
        ("a = {}\nb = {}\nc = {}\nd = {}\nz = {}", ["expected only hosts of the plan (a, b, c), found d, z; remove"]),
        ("a = {}\nbb = {}", ['bb: expected one of the hosts of the plan: a, b, c, found "bb"; did you mean b?']),
    ],
)
def test_a_targets_file_must_list_every_host_without_a_connection_and_no_unknown_host(tmp_path, text, messages):
    """A missing host would mean this machine, so the servers of the plan would start here."""
    (tmp_path / "hosts.toml").write_text(text)
    header = read_header(write_plan(tmp_path / "plan.jsonl", tiny_trials(1)))
    header = dataclasses.replace(header, hosts={"a": Host(), "b": Host(), "c": Host(ssh="c")})
    with pytest.raises(ScenarioError) as caught:
        targeted_header(header, tmp_path / "hosts.toml")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(messages)
    assert all(message in line for message, line in zip(messages, lines, strict=True)), lines


def test_an_empty_table_in_a_targets_file_means_this_machine(tmp_path):
    hosts = merged_hosts({"a": Host(), "b": Host(ssh="b")}, targets_of(tmp_path, "a = {}"))
    assert hosts == {"a": Host(), "b": Host(ssh="b")}


def test_a_missing_targets_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"none\.toml: expected a readable file with hosts"):
        read_targets(tmp_path / "none.toml")


SCENARIO = """
venturi = 1
name = "site"
[testbed.host.node1]
[testbed.storage.data]
host = "node1"
path = "data"
[workload]
kind = "sweep"
mover = "cp"
source = "data"
destination = "data"
[workload.factors]
size = ["10 kB"]
files = [1]
"""


def test_the_command_line_runs_a_scenario_on_the_hosts_of_a_file_and_resumes_it(tmp_path, engine, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("VENTURI_ENGINE", str(engine))
    monkeypatch.delenv("VENTURI_SCRATCH", raising=False)
    (tmp_path / "site.toml").write_text(SCENARIO)
    (tmp_path / "hosts.toml").write_text(f'node1 = {{ connect = ["env", "HOME={tmp_path}/home"] }}\n')
    command = ["run", "site.toml", "--hosts", "hosts.toml", "--runs", str(tmp_path / "runs")]
    monkeypatch.chdir(tmp_path)
    rejected = CliRunner().invoke(app, command)
    assert rejected.exit_code == 1
    assert "expected consent" in str(rejected.exception)
    done = CliRunner().invoke(app, [*command, "--yes"])
    assert done.exit_code == 0, done.output
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.name.startswith("site-"))
    assert (run / "hosts.toml").read_text() == (tmp_path / "hosts.toml").read_text()
    assert read_header(run / "plan.jsonl").hosts["node1"].connect is None
    assert Run.open(run).environment()["node1"]["connection.kind"] == "connect"
    again = CliRunner().invoke(app, ["run", "--resume", str(run)])
    assert again.exit_code == 0, again.output
    wrong = CliRunner().invoke(app, [*command, "--yes", "--on", "sim"])
    assert "--hosts: expected --on hosts, found --on sim" in str(wrong.exception)
