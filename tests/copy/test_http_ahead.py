"""Connections are opened ahead of what they are needed for: as many as there are to be sessions, and no more."""

import os

import pytest
from copykit import end_of, events
from httpkit import puppet
from test_http_faults import body_of, listing

from testkit import throwaway_certificates, wait_until

SESSIONS = 8
FILES = 10


@pytest.mark.parametrize(("words", "sessions"), [([], SESSIONS), (["--concurrency", "3"], 3), (["--fixed"], 1)])
def test_connections_for_the_files_of_a_tree_are_there_before_its_listing(engine, tmp_path, words, sessions):
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    met, names = [], [f"/d/{number}" for number in range(FILES)]

    def answer(handler, _):
        if handler.command == "PROPFIND":
            body_of(handler)
            wait_until(lambda: len(met) >= sessions, "connections for all sessions", 20)
            return handler.say(207, listing(("/d/", True), *((name, False) for name in names)))
        return handler.say(200, b"1", ETag='"1"')

    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with puppet(answer, met, tls=(cert, key)) as (url, seen):
        end = end_of(events(engine, "-r", *words, f"{url}/d", tmp_path / "d", env=env))
    assert end["files"] == FILES
    # Of two that one thread has opened, one is of no use to the others.
    assert sessions <= len(met) < 2 * sessions
    assert len(seen) == FILES + 1


def test_connections_for_the_files_of_a_tree_are_there_before_its_directory_is_made(engine, tmp_path):
    (tmp_path / "d").mkdir()
    for number in range(FILES):
        (tmp_path / "d" / str(number)).write_bytes(b"1")
    met = []

    def answer(handler, _):
        body_of(handler)
        if handler.command == "MKCOL":
            wait_until(lambda: len(met) >= SESSIONS, "connections for all sessions", 20)
        return handler.say(404 if handler.command == "PROPFIND" else 201)

    with puppet(answer, met) as (url, seen):
        end = end_of(events(engine, "-r", "--existing", "replace", tmp_path / "d", f"{url}/up"))
    assert end["files"] == FILES
    assert SESSIONS <= len(met) < 2 * SESSIONS
    assert [method for method, *_ in seen].count("PUT") == FILES
