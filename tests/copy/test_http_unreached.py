"""Servers that nobody reaches, and places that are written as directories: one sentence, and nothing was done."""

import os
import signal
import subprocess

import pytest
from copykit import copy, end_of, events
from httpkit import DAV_MODULE, nginx, puppet

from testkit import free_port, needs_programs, wait_until

WAYS = {
    "file": ["{url}/x", "{folder}/x"],
    "tree": ["-r", "{url}/d", "{folder}/d"],
    "upload": ["{folder}/one", "{url}/x"],
    "uploads": ["-r", "{folder}/tree", "{url}/up/"],
    "between": ["{url}/x", "{url}/y"],
    "list": ["--list", "{folder}/list"],
}


def words(way, url, folder):
    """Return the words of a copy, with its sources made."""
    (folder / "one").write_bytes(b"1")
    (folder / "tree").mkdir()
    (folder / "list").write_text("".join(f"{url}/{number} {folder}/{number}\n" for number in range(50)))
    return [word.format(url=url, folder=folder) for word in WAYS[way]]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_done_where_nobody_listens_and_that_is_said_once(engine, tmp_path, way):
    url = f"http://127.0.0.1:{free_port()}"
    said = copy(engine, *words(way, url, tmp_path), code=1).stderr.decode()
    assert said.count("\n") == 1
    assert f"{url}/" in said
    assert "found Connection refused; see whether the server is up" in said


def test_a_dry_run_asks_for_what_it_says_would_be_copied(engine, tmp_path):
    def answer(handler, _):
        handler.say(200 if handler.path == "/x" else 404, length=7)

    with puppet(answer) as (url, seen):
        (file,) = [
            event for event in events(engine, "--dry-run", f"{url}/x", tmp_path / "x") if event["event"] == "file"
        ]
        assert (file["outcome"], file["bytes"]) == ("would copy", 7)
        assert "404" in copy(engine, "--dry-run", f"{url}/y", tmp_path / "y", code=3).stderr.decode()
    assert {command for command, *_ in seen} == {"HEAD"}
    copy(engine, "--dry-run", f"http://127.0.0.1:{free_port()}/x", tmp_path / "x", code=1)
    assert list(tmp_path.iterdir()) == []


def test_events_tell_it_as_they_tell_other_errors(engine, tmp_path):
    told = events(engine, f"http://127.0.0.1:{free_port()}/x", tmp_path / "x", code=1)
    assert [event["event"] for event in told if event["event"] in ("error", "end")] == ["error", "end"]
    assert (end_of(told)["outcome"], end_of(told)["errors"]) == ("failed", 1)


def test_what_else_there_is_comes_where_one_of_two_servers_is_not_reached(engine, tmp_path):
    with puppet(lambda handler, _: handler.say(200, b"1", ETag='"1"')) as (url, _):
        there = f"http://127.0.0.1:{free_port()}"
        (tmp_path / "list").write_text(f"{there}/a {tmp_path}/a\n{url}/b {tmp_path}/b\n")
        said = copy(engine, "--list", tmp_path / "list", code=3).stderr.decode()
    assert f"{there}/a: expected an answer" in said
    assert (tmp_path / "b").read_bytes() == b"1"


def test_a_server_that_goes_away_has_been_reached(engine, tmp_path):
    def answer(handler, count):
        if count == 1:
            return handler.say(503)
        handler.close_connection = True
        return handler.connection.close()

    with puppet(answer) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x", code=3)


@needs_programs("nginx")
@pytest.mark.skipif(not DAV_MODULE.exists(), reason="not installed: libnginx-mod-http-dav-ext")
def test_a_server_that_ends_meanwhile_is_said_once_and_not_for_each_file(engine, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "0").write_bytes(bytes(100_000))
    for number in range(1, 4_000):
        (served / f"{number}").hardlink_to(served / "0")
    with nginx(served, tmp_path) as url:
        words = [engine, "copy", "-r", f"{url}/", tmp_path / "copied"]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as copying:
            wait_until(lambda: any((tmp_path / "copied").glob("[0-9]*")), "a file to come", 20)
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
            said = copying.communicate(timeout=60)[1].decode()
    assert copying.returncode == 3, said
    assert said.count("\n") == 2, said
    assert "found Connection refused" in said
    assert "ended before the rest" in said
    whole = [path.stat().st_size for path in (tmp_path / "copied").glob("[0-9]*")]
    assert 0 < len(whole) < 4_000
    assert set(whole) == {100_000}


@needs_programs("nginx")
@pytest.mark.skipif(not DAV_MODULE.exists(), reason="not installed: libnginx-mod-http-dav-ext")
@pytest.mark.parametrize("place", ["copied", "http"], ids=["here", "at a server"])
def test_a_directory_is_refused_without_r_and_its_page_is_not_taken_for_it(engine, tmp_path, place):
    (tmp_path / "served" / "d").mkdir(parents=True)
    (tmp_path / "served" / "d" / "index.html").write_text("a page")
    with nginx(tmp_path / "served", tmp_path) as url:
        to = f"{url}/copied" if place == "http" else tmp_path / "copied"
        said = copy(engine, f"{url}/d/", to, code=3).stderr.decode()
    assert f"{url}/d/: expected a file, found a directory; say --recursive (-r)" in said
    assert not (tmp_path / "copied").exists()
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["d"]


def test_a_page_of_a_server_without_webdav_is_a_file_whatever_it_is_called(engine, tmp_path):
    def answer(handler, _):
        if handler.command == "GET":
            return handler.say(200, b"a page", ETag='"1"')
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        return handler.say(405)

    with puppet(answer) as (url, _):
        copy(engine, f"{url}/d/", tmp_path / "page")
    assert (tmp_path / "page").read_bytes() == b"a page"
