"""`venturi testbed`: a testbed that a scenario can include, the same bytes each time."""

import tomllib

from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.testbed.wlcg import wlcg


def ask(*words):
    """Return what came of a command, in this process."""
    return CliRunner().invoke(app, ["testbed", "wlcg", *map(str, words)])


def test_a_file_and_stdout_get_the_same_testbed(tmp_path):
    path = tmp_path / "testbed.toml"
    assert ask("--sites", 12, "--seed", 3, "-o", path).exit_code == 0
    assert ask("--sites", 12, "--seed", 3).stdout == path.read_text()
    assert tomllib.loads(path.read_text()) == wlcg(12, 3)
    # The first line says how to make it again.
    assert path.read_text().startswith("# venturi testbed wlcg --sites 12 --seed 3\n")


def test_sites_of_a_workload_are_written_if_it_is_named():
    written = tomllib.loads(ask("--sites", 12, "--for", "tiers").stdout)
    assert written == wlcg(12, 1, "tiers")
    assert sum(site.get("share", 0) for site in written["workload"]["site"].values()) == 1


def test_a_file_that_cannot_be_written_and_a_number_that_cannot_be_are_told(tmp_path):
    for words, told in ((["-o", tmp_path / "no" / "x.toml"], "expected a place that can be written to"), (["--sites", 2], "expected 4 to 450 sites, found 2")):  # fmt: skip
        failed = ask(*words)
        assert failed.exit_code == 1
        assert told in str(failed.exception)
