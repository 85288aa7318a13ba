"""Unreachable HTTP servers, and locations written as directories: one error message, and no changes."""

import os
import signal
import subprocess

import pytest
from copykit import copy, end_of, events
from httpkit import DAV_MODULE, nginx, puppet

from testkit import free_port, needs_programs, wait_until

CASES = {
    "file": ["{url}/x", "{directory}/x"],
    "tree": ["-r", "{url}/d", "{directory}/d"],
    "upload": ["{directory}/one", "{url}/x"],
    "uploads": ["-r", "{directory}/tree", "{url}/up/"],
    "between": ["{url}/x", "{url}/y"],
    "list": ["--list", "{directory}/list"],
}


def arguments(case, url, directory):
    """Return the arguments of a copy, after creating its sources."""
    (directory / "one").write_bytes(b"1")
    (directory / "tree").mkdir()
    (directory / "list").write_text("".join(f"{url}/{number} {directory}/{number}\n" for number in range(50)))
    return [word.format(url=url, directory=directory) for word in CASES[case]]


@pytest.mark.parametrize("case", CASES)
def test_an_unreachable_server_is_reported_once_and_nothing_is_copied(engine, tmp_path, case):
    url = f"http://127.0.0.1:{free_port()}"
    output = copy(engine, *arguments(case, url, tmp_path), code=1).stderr.decode()
    assert output.count("\n") == 1
    assert f"{url}/" in output
    assert "found Connection refused; check the server" in output


def test_a_dry_run_queries_the_files_that_it_reports(engine, tmp_path):
    def respond(handler, _):
        handler.reply(200 if handler.path == "/x" else 404, length=7)

    with puppet(respond) as (url, recorded):
        (file,) = [
            event for event in events(engine, "--dry-run", f"{url}/x", tmp_path / "x") if event["event"] == "file"
        ]
        assert (file["outcome"], file["bytes"]) == ("would copy", 7)
        assert "404" in copy(engine, "--dry-run", f"{url}/y", tmp_path / "y", code=3).stderr.decode()
    assert {command for command, *_ in recorded} == {"HEAD"}
    copy(engine, "--dry-run", f"http://127.0.0.1:{free_port()}/x", tmp_path / "x", code=1)
    assert list(tmp_path.iterdir()) == []


def test_events_report_an_unreachable_server_like_other_errors(engine, tmp_path):
    output = events(engine, f"http://127.0.0.1:{free_port()}/x", tmp_path / "x", code=1)
    assert [event["event"] for event in output if event["event"] in ("error", "end")] == ["error", "end"]
    assert (end_of(output)["outcome"], end_of(output)["errors"]) == ("failed", 1)


def test_the_rest_of_a_list_is_copied_if_one_of_two_servers_is_unreachable(engine, tmp_path):
    with puppet(lambda handler, _: handler.reply(200, b"1", ETag='"1"')) as (url, _):
        there = f"http://127.0.0.1:{free_port()}"
        (tmp_path / "list").write_text(f"{there}/a {tmp_path}/a\n{url}/b {tmp_path}/b\n")
        output = copy(engine, "--list", tmp_path / "list", code=3).stderr.decode()
    assert f"{there}/a: expected a response, found Connection refused" in output
    assert (tmp_path / "b").read_bytes() == b"1"


def test_a_server_lost_after_a_response_does_not_count_as_unreachable(engine, tmp_path):
    def respond(handler, count):
        if count == 1:
            return handler.reply(503)
        handler.close_connection = True
        return handler.connection.close()

    with puppet(respond) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x", code=3)


@needs_programs("nginx")
@pytest.mark.skipif(not DAV_MODULE.exists(), reason="not installed: libnginx-mod-http-dav-ext")
def test_a_server_that_stops_during_a_copy_is_reported_once_and_not_for_each_file(engine, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "0").write_bytes(bytes(100_000))
    for number in range(1, 4_000):
        (served / f"{number}").hardlink_to(served / "0")
    with nginx(served, tmp_path) as url:
        arguments = [engine, "copy", "-r", f"{url}/", tmp_path / "copied"]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE) as copying:
            wait_until(lambda: any((tmp_path / "copied").glob("[0-9]*")), "a file to come", 20)
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
            output = copying.communicate(timeout=60)[1].decode()
    assert copying.returncode == 3, output
    assert output.count("\n") == 2, output
    assert "found Connection refused" in output
    assert "Aborted: the remaining files would fail" in output
    whole = [path.stat().st_size for path in (tmp_path / "copied").glob("[0-9]*")]
    assert 0 < len(whole) < 4_000
    assert set(whole) == {100_000}


@needs_programs("nginx")
@pytest.mark.skipif(not DAV_MODULE.exists(), reason="not installed: libnginx-mod-http-dav-ext")
@pytest.mark.parametrize("location", ["copied", "http"], ids=["here", "at a server"])
def test_a_directory_is_rejected_without_r_and_its_page_is_not_copied_instead(engine, tmp_path, location):
    (tmp_path / "served" / "d").mkdir(parents=True)
    (tmp_path / "served" / "d" / "index.html").write_text("a page")
    with nginx(tmp_path / "served", tmp_path) as url:
        to = f"{url}/copied" if location == "http" else tmp_path / "copied"
        output = copy(engine, f"{url}/d/", to, code=3).stderr.decode()
    assert f"{url}/d/: expected a file, found a directory; add --recursive (-r)" in output
    assert not (tmp_path / "copied").exists()
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["d"]


def test_a_directory_url_of_a_server_without_webdav_is_copied_as_a_file(engine, tmp_path):
    def respond(handler, _):
        if handler.command == "GET":
            return handler.reply(200, b"a page", ETag='"1"')
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        return handler.reply(405)

    with puppet(respond) as (url, _):
        copy(engine, f"{url}/d/", tmp_path / "page")
    assert (tmp_path / "page").read_bytes() == b"a page"
