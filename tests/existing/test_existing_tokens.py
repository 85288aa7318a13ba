"""Movers log in to existing servers with a bearer token, which does not appear on any command line."""

import secrets
import threading
from pathlib import Path

import pytest
from existingkit import problems, rows, run, scenario, servers, venturi_serve, webdav

from testkit import needs_programs
from venturi.errors import ScenarioError
from venturi.scenario import load_scenario


class CommandLines:
    """Command lines of all processes, read repeatedly in the background."""

    def __init__(self):
        self.seen = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self._done.is_set():
            for directory in Path("/proc").glob("[0-9]*"):
                try:
                    self.seen.add((directory / "cmdline").read_bytes())
                except OSError:
                    continue

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


@pytest.fixture
def server():
    """A server that accepts only clients with its token, which is `token`."""
    with servers(venturi_serve) as (found,):
        found.token = Path(found.environment["BEARER_TOKEN_FILE"]).read_text().strip()
        yield found


@pytest.mark.parametrize(
    ("mover", "direction"), [("curl", "two ways"), ("gfal-copy", "two ways"), ("wget", "one way")], ids=str
)
def test_a_mover_sends_the_token_of_the_user_without_exposing_it_on_a_command_line(
    mover, direction, server, tmp_path
):
    needs_programs(mover)
    (server.root / "dir").mkdir()
    # The transfer takes longer, so that its command line can be read.
    options = {"rate": "20 MB/s"} if mover != "gfal-copy" else {}
    path = scenario(
        tmp_path,
        {"far": server.below("dir")},
        mover=mover,
        options=options,
        environment=server.environment,
        source="far",
        destination="disk",
        direction=direction,
        size=["5 MB"],
    )
    with CommandLines() as lines:
        _, found = run(path)
    assert problems(found) == []
    assert {one[1:] for one in rows(found, "source", "outcome", "received_bytes")} == {("ok", 5_000_000)}
    program = mover.encode()
    assert any(program in line and str(server.port).encode() in line for line in lines.seen)
    assert [line for line in lines.seen if server.token.encode() in line] == []


def test_a_third_party_copy_of_curl_sends_the_token_to_both_servers(server, tmp_path):
    needs_programs("curl")
    with servers(venturi_serve) as (other,):
        # Both have one token, like the servers of one organization.
        Path(other.environment["BEARER_TOKEN_FILE"]).write_text(f"{server.token}\n")
        other.restart()
        path = scenario(
            tmp_path, {"a": server.url, "b": other.url}, mover="curl", environment=server.environment,
            source="a", destination="b", files=[2],
        )  # fmt: skip
        _, found = run(path)
        assert problems(found) == []
        assert [one[0] for one in rows(found, "outcome")] == ["ok"] * 2
        assert server.files() == other.files() == []


def test_a_missing_token_fails_the_transfer_with_the_next_step(tmp_path):
    needs_programs("apache2", "curl")
    with servers(webdav) as (open_server,):
        path = scenario(
            tmp_path, {"far": open_server.url}, mover="curl", options={"bearer": True}, source="disk", destination="far",
            environment={"XDG_RUNTIME_DIR": str(tmp_path), "BEARER_TOKEN_FILE": "", "BEARER_TOKEN": ""},
        )  # fmt: skip
        _, found = run(path, code=3)
        ((outcome, error),) = rows(found, "outcome", "error")
        assert outcome == "failed" and "expected a bearer token in BEARER_TOKEN or BEARER_TOKEN_FILE" in error


def test_a_mover_that_exposes_its_token_on_its_command_line_is_rejected(tmp_path):
    path = scenario(
        tmp_path, {"far": "davs://se.example.org/dir"}, mover="davix", source="disk", destination="far",
        environment={"BEARER_TOKEN_FILE": f"/tmp/{secrets.token_hex(4)}"},
    )  # fmt: skip
    with pytest.raises(ScenarioError, match="expected a mover that can send the bearer token of here"):
        load_scenario(path)
