"""Connections are opened before they are needed, one per session and no more."""

import os

import pytest
from copykit import end_of, events
from httpkit import puppet
from test_http_faults import listing, read_body

from testkit import throwaway_certificates, wait_until

SESSIONS = 8
FILES = 10


@pytest.mark.parametrize(("arguments", "sessions"), [([], SESSIONS), (["--concurrency", "3"], 3), (["--fixed"], 1)])
def test_connections_for_the_files_of_a_tree_are_opened_before_its_listing_arrives(
    engine, tmp_path, arguments, sessions
):
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    met, names = [], [f"/d/{number}" for number in range(FILES)]

    def respond(handler, _):
        if handler.command == "PROPFIND":
            read_body(handler)
            wait_until(lambda: len(met) >= sessions, "connections for all sessions", 20)
            return handler.reply(207, listing(("/d/", True), *((name, False) for name in names)))
        return handler.reply(200, b"1", ETag='"1"')

    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with puppet(respond, met, tls=(cert, key)) as (url, recorded):
        end = end_of(events(engine, "-r", *arguments, f"{url}/d", tmp_path / "d", env=env))
    assert end["files"] == FILES
    # If one thread opened two connections, the others cannot use one of them.
    assert sessions <= len(met) < 2 * sessions
    assert len(recorded) == FILES + 1


def test_connections_for_the_files_of_a_tree_are_opened_before_its_directory_exists(engine, tmp_path):
    (tmp_path / "d").mkdir()
    for number in range(FILES):
        (tmp_path / "d" / str(number)).write_bytes(b"1")
    met = []

    def respond(handler, _):
        read_body(handler)
        if handler.command == "MKCOL":
            wait_until(lambda: len(met) >= SESSIONS, "connections for all sessions", 20)
        return handler.reply(404 if handler.command == "PROPFIND" else 201)

    with puppet(respond, met) as (url, recorded):
        end = end_of(events(engine, "-r", "--existing", "replace", tmp_path / "d", f"{url}/up"))
    assert end["files"] == FILES
    assert SESSIONS <= len(met) < 2 * SESSIONS
    assert [method for method, *_ in recorded].count("PUT") == FILES
