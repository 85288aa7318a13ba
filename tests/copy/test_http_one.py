"""One file that goes to a server: what is at its place is asked for once, and a connection for its bytes is there when the answer comes."""

import os

import pytest
from copykit import end_of, events
from httpkit import puppet
from test_http_collections import LATER, methods
from test_http_faults import body_of, listing

from testkit import throwaway_certificates, wait_until


@pytest.fixture
def source(tmp_path):
    """A file of one byte."""
    path = tmp_path / "source"
    path.write_bytes(b"1")
    return path


def there_is(kind):
    """Return how a server answers that has a file, a directory or nothing of that name, and keeps what is put there."""

    def answer(handler, _):
        body_of(handler)
        if handler.command == "PROPFIND":
            if kind == "nothing":
                return handler.say(404)
            return handler.say(207, listing((handler.path, kind == "directory"), changed=LATER))
        if handler.command == "HEAD":
            if kind == "file":
                return handler.say(200, length=1, Last_Modified=LATER)
            return handler.say(404)
        return handler.say(201)

    return answer


@pytest.mark.parametrize(
    ("kind", "words", "asked"),
    [
        ("nothing", [], {"PROPFIND": 1, "PUT": 1}),
        ("file", [], {"PROPFIND": 1}),
        # What is in it nobody has asked for.
        ("directory", [], {"PROPFIND": 1, "HEAD": 1, "PUT": 1}),
        ("file", ["--existing", "replace"], {"PROPFIND": 1, "PUT": 1}),
        # Where what is there is to be kept, no listing is believed that lacks it.
        ("nothing", ["--existing", "keep"], {"PROPFIND": 1, "HEAD": 1, "PUT": 1}),
        ("file", ["--existing", "keep"], {"PROPFIND": 1}),
        ("nothing", ["--no-target-directory"], {"HEAD": 1, "PUT": 1}),
    ],
)
def test_what_is_at_the_place_of_a_file_is_asked_for_once(engine, tmp_path, source, kind, words, asked):
    with puppet(there_is(kind)) as (url, seen):
        end = end_of(events(engine, *words, source, f"{url}/x"))
    assert methods(seen) == asked
    assert (end["files"], end["kept"]) == ((1, 0) if "PUT" in asked else (0, 1))
    assert {path for method, path, _ in seen if method == "PUT"} <= {"/x/source" if kind == "directory" else "/x"}


@pytest.mark.parametrize(
    ("kind", "words", "asked"),
    [
        ("nothing", [], {"MKCOL": 1, "PROPFIND": 1, "PUT": 1}),
        ("file", [], {"MKCOL": 1, "PROPFIND": 1}),
        ("nothing", ["--existing", "keep"], {"MKCOL": 1, "HEAD": 1, "PUT": 1}),
        ("nothing", ["--existing", "replace"], {"MKCOL": 1, "PUT": 1}),
    ],
)
def test_what_is_in_the_directory_for_a_file_is_asked_for_while_that_is_made(
    engine, tmp_path, source, kind, words, asked
):
    with puppet(there_is(kind)) as (url, seen):
        end_of(events(engine, *words, source, f"{url}/d/"))
    assert methods(seen) == asked
    assert {path for method, path, _ in seen if method != "MKCOL"} == {"/d/source"}


@pytest.mark.parametrize("words", [[], ["--no-target-directory"]])
def test_a_refusal_that_closes_its_connection_costs_no_other_handshake(engine, tmp_path, source, words):
    """XRootD (5.5) closes a connection with each refusal."""
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    met = []

    def answer(handler, _):
        body_of(handler)
        if handler.command == "PUT":
            return handler.say(201)
        wait_until(lambda: len(met) == 2, "another connection before the answer", 20)
        handler.close_connection = True
        return handler.say(404, Connection="close")

    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with puppet(answer, met, tls=(cert, key)) as (url, seen):
        end = end_of(events(engine, *words, source, f"{url}/x", env=env))
    assert (end["files"], len(met)) == (1, 2)
    assert [method for method, *_ in seen] == ["HEAD" if words else "PROPFIND", "PUT"]
