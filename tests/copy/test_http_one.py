"""One file for a server: its location is queried once, while a connection for its bytes is opened."""

import os

import pytest
from copykit import end_of, events
from httpkit import puppet
from test_http_directories import LATER, methods
from test_http_faults import listing, read_body

from testkit import throwaway_certificates, wait_until


@pytest.fixture
def source(tmp_path):
    """Return a file of one byte."""
    path = tmp_path / "source"
    path.write_bytes(b"1")
    return path


def exists(kind):
    """Return the response function of a server with a file, a directory or nothing at this name; it stores uploads."""

    def respond(handler, _):
        read_body(handler)
        if handler.command == "PROPFIND":
            if kind == "nothing":
                return handler.reply(404)
            return handler.reply(207, listing((handler.path, kind == "directory"), changed=LATER))
        if handler.command == "HEAD":
            if kind == "file":
                return handler.reply(200, length=1, Last_Modified=LATER)
            return handler.reply(404)
        return handler.reply(201)

    return respond


@pytest.mark.parametrize(
    ("kind", "arguments", "requests"),
    [
        ("nothing", [], {"PROPFIND": 1, "PUT": 1}),
        ("file", [], {"PROPFIND": 1}),
        # The content of the directory is unknown.
        ("directory", [], {"PROPFIND": 1, "HEAD": 1, "PUT": 1}),
        ("file", ["--existing", "replace"], {"PROPFIND": 1, "PUT": 1}),
        # If existing files must be kept, a listing without the file is not trusted.
        ("nothing", ["--existing", "keep"], {"PROPFIND": 1, "HEAD": 1, "PUT": 1}),
        ("file", ["--existing", "keep"], {"PROPFIND": 1}),
        ("nothing", ["--no-target-directory"], {"HEAD": 1, "PUT": 1}),
    ],
)
def test_the_destination_of_a_single_file_is_checked_with_as_few_requests_as_possible(
    engine, tmp_path, source, kind, arguments, requests
):
    with puppet(exists(kind)) as (url, recorded):
        end = end_of(events(engine, *arguments, source, f"{url}/x"))
    assert methods(recorded) == requests
    assert (end["files"], end["kept"]) == ((1, 0) if "PUT" in requests else (0, 1))
    assert {path for method, path, _ in recorded if method == "PUT"} <= {"/x/source" if kind == "directory" else "/x"}


@pytest.mark.parametrize(
    ("kind", "arguments", "requests"),
    [
        ("nothing", [], {"MKCOL": 1, "PROPFIND": 1, "PUT": 1}),
        ("file", [], {"MKCOL": 1, "PROPFIND": 1}),
        ("nothing", ["--existing", "keep"], {"MKCOL": 1, "HEAD": 1, "PUT": 1}),
        ("nothing", ["--existing", "replace"], {"MKCOL": 1, "PUT": 1}),
    ],
)
def test_a_destination_directory_is_queried_only_as_needed_while_it_is_created(
    engine, tmp_path, source, kind, arguments, requests
):
    with puppet(exists(kind)) as (url, recorded):
        end_of(events(engine, *arguments, source, f"{url}/d/"))
    assert methods(recorded) == requests
    assert {path for method, path, _ in recorded if method != "MKCOL"} == {"/d/source"}


@pytest.mark.parametrize("arguments", [[], ["--no-target-directory"]])
def test_a_rejection_that_closes_its_connection_needs_no_additional_handshake(engine, tmp_path, source, arguments):
    """XRootD 5.5 closes a connection with each rejection."""
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    met = []

    def respond(handler, _):
        read_body(handler)
        if handler.command == "PUT":
            return handler.reply(201)
        wait_until(lambda: len(met) == 2, "another connection before the answer", 20)
        handler.close_connection = True
        return handler.reply(404, Connection="close")

    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with puppet(respond, met, tls=(cert, key)) as (url, recorded):
        end = end_of(events(engine, *arguments, source, f"{url}/x", env=env))
    assert (end["files"], len(met)) == (1, 2)
    assert [method for method, *_ in recorded] == ["HEAD" if arguments else "PROPFIND", "PUT"]
