"""``limits.rate``: the sum of all calls of a plan stays below it, or the scenario is rejected with the reason."""

import pytest

from venturi.backend import HostsBackend
from venturi.errors import ScenarioError
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

SCENARIO = """
venturi = 1
name = "limited"
seed = 1
[testbed.host.a]
connect = ["env", "HOME={home}/a"]
address = "127.0.0.1"
[testbed.host.b]
connect = ["env", "HOME={home}/b"]
address = "127.0.0.1"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
{service}
[workload]
kind = "sweep"
mover = "{mover}"
source = "sa"
destination = "sb"
repeat = 2
{options}
[workload.factors]
size = ["{size}"]
files = [{files}]
[limits]
rate = "{rate}"
"""


@pytest.fixture
def plan_of(tmp_path):
    """Return a function that expands the scenario with some values."""

    def work(mover, rate="64 Mb/s", size="1 MB", files="1, 4", service="", options=""):
        text = SCENARIO.format(
            home=tmp_path, mover=mover, rate=rate, size=size, files=files, service=service, options=options
        )
        (tmp_path / "limited.toml").write_text(text)
        return expand(load_scenario(tmp_path / "limited.toml"))

    return work


def service(kind):
    return f'[testbed.service.server]\nkind = "{kind}"\nhost = "b"\nstorage = ["sb"]\n'


def words_of(plan):
    """Return all words of the command line, including those of scripts."""
    (call,) = plan.header.calls.values()
    return " ".join(word for part in call.argv for word in ([part] if isinstance(part, str) else part))


@pytest.mark.parametrize(
    ("mover", "kind", "words"),
    [
        ("venturi", None, "--max-rate {rate_bytes_per_s}B/s"),
        ("curl", "nginx", "--limit-rate 2000000"),
        ("rsync", None, "--bwlimit=1953"),
        ("scp", None, "-l 16000"),
        ("sftp", None, "-l 16000"),
        ("rclone", None, "--bwlimit 2000000B"),
        ("xrdcp", "xrootd", "-X {rate_bytes_per_s}"),
    ],
)
def test_each_transfer_gets_its_share_of_the_limit_as_an_option_of_the_tool(plan_of, mover, kind, words):
    plan = plan_of(mover, service=service(kind) if kind else "")
    (call,) = plan.header.calls.values()
    assert call.options["rate_bytes_per_s"] == 2_000_000  # 64 Mb/s for four concurrent calls
    assert words in words_of(plan).replace("'", "")


def test_a_lower_rate_of_the_scenario_is_kept(plan_of):
    plan = plan_of("venturi", options='[workload.options]\nrate = "1 MB/s"\n')
    (call,) = plan.header.calls.values()
    assert call.options["rate_bytes_per_s"] == 1_000_000


@pytest.mark.parametrize(
    ("mover", "kind", "more", "reason"),
    [
        ("globus-url-copy", "gridftp", {}, "expected a mover with a rate limit"),
        (
            "venturi",
            None,
            {"rate": "16 Mb/s"},
            "expected at least 1 MB/s for each transfer of venturi, found 500 kB/s",
        ),
    ],
)
def test_a_limit_that_cannot_be_enforced_is_rejected_with_the_reason(plan_of, mover, kind, more, reason):
    with pytest.raises(ScenarioError) as caught:
        plan_of(mover, service=service(kind) if kind else "", **more)
    assert "limits.rate: " in str(caught.value)
    assert reason in str(caught.value)


def test_transfers_of_a_run_stay_below_the_limit(plan_of, tmp_path, engine):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_plan(plan_of("venturi", rate="160 Mb/s", size="4 MB", files="2"), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="hosts")
    outcome = HostsBackend(engine=engine).execute(run)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    with Run.open(run.path) as result:
        rows = result.query(
            "SELECT sum(received_bytes) AS bytes, max(end_s) - min(start_s) AS seconds FROM transfers GROUP BY trial"
        )
    for size, seconds in zip(rows["bytes"], rows["seconds"], strict=True):
        assert size == 8_000_000
        assert size * 8 / seconds <= 160e6
