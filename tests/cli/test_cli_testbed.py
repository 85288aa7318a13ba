"""`venturi testbed` generates the same testbed each time, for `include` in scenarios."""

import tomllib

from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.testbed.wlcg import wlcg


def call_lab(*words):
    """Run a command in this process and return its result."""
    return CliRunner().invoke(app, ["testbed", "wlcg", *map(str, words)])


def test_a_file_and_stdout_get_the_same_testbed(tmp_path):
    path = tmp_path / "testbed.toml"
    assert call_lab("--sites", 12, "--seed", 3, "-o", path).exit_code == 0
    assert call_lab("--sites", 12, "--seed", 3).stdout == path.read_text()
    assert tomllib.loads(path.read_text()) == wlcg(12, 3)
    # The first line is the command that generates the file again.
    assert path.read_text().startswith("# venturi testbed wlcg --sites 12 --seed 3\n")


def test_the_sites_of_a_workload_are_written_on_request():
    written = tomllib.loads(call_lab("--sites", 12, "--for", "tiers").stdout)
    assert written == wlcg(12, 1, "tiers")
    assert sum(site.get("share", 0) for site in written["workload"]["site"].values()) == 1


def test_an_unwritable_file_and_an_invalid_number_of_sites_are_reported(tmp_path):
    for words, message in ((["-o", tmp_path / "no" / "x.toml"], "cannot write"), (["--sites", 2], "expected 4 to 450 sites, found 2")):  # fmt: skip
        failed = call_lab(*words)
        assert failed.exit_code == 1
        assert message in str(failed.exception)
