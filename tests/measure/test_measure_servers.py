"""`venturi measure` with URLs: parts at third-party servers, direct copies, errors before the first write, and no remains."""

import http.server
import json
import os
import signal
import subprocess
import threading
import tomllib
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
from existingkit import LIMIT_S, VENTURI, ftp, gridftp, s3, servers, venturi_serve, webdav, xrootd
from pathkit import leftovers

from testkit import needs_programs, wait_until
from venturi.cli.measure_view import path_table
from venturi.errors import MeasureError, VenturiError
from venturi.measure import Endpoint, MeasureOptions, measure, parse_endpoint, save
from venturi.measure.simulation import simulation_text
from venturi.run.created import read_created

PROGRAMS = {
    webdav: ("apache2",), gridftp: ("globus-gridftp-server", "openssl"), xrootd: ("xrootd", "xrdcp", "xrdfs"), ftp: (),
    s3: (), venturi_serve: (),
}  # fmt: skip
KEPT = b"of the user"


@pytest.fixture(autouse=True)
def credentials(tmp_path, monkeypatch):
    """Private consent and credentials for the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "X509_USER_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def local(tmp_path):
    """A directory with a user file."""
    path = tmp_path / "local"
    path.mkdir()
    (path / "mine").write_bytes(KEPT)
    yield path
    assert [one.name for one in path.iterdir()] == ["mine"]
    assert (path / "mine").read_bytes() == KEPT
    assert leftovers(tmp_path) == []


@pytest.fixture
def start(monkeypatch):
    """Return a context manager that starts servers and sets the variables of their clients."""

    def work(*kinds):
        needs_programs(*(program for kind in kinds for program in PROGRAMS[kind]))
        return _Started(kinds, monkeypatch)

    return work


class _Started:
    def __init__(self, kinds, monkeypatch):
        self._servers, self._monkeypatch = servers(*kinds), monkeypatch

    def __enter__(self):
        started = self._servers.__enter__()
        for server in started:
            for name, value in server.environment.items():
                self._monkeypatch.setenv(name, value)
            # An S3 server has its own storage format for objects.
            server.before = server.files()
            if not server.url.startswith("s3"):
                (server.root / "mine").write_bytes(KEPT)
                server.before = ["mine"]
        self._started = started
        return started

    def __exit__(self, *error):
        try:
            if error[0] is None:
                for server in self._started:
                    assert server.files() == server.before
        finally:
            self._servers.__exit__(*error)


def measured(a, b, tmp_path, **options):
    """Return the result of one short round."""
    options = {"time_s": 3.0, "rounds": 1, "connections": 2, "directory": tmp_path / "measurement", **options}
    result = measure(parse_endpoint(str(a)), parse_endpoint(str(b)), MeasureOptions(**options))
    assert read_created(options["directory"]) == []
    assert (result.complete, result.failure, result.remains) == (True, None, None), result
    return result


def check_rates(path):
    """Check that each part has a rate, and return the text of the table."""
    assert {part: found.errors for part, found in path.parts.items()} == {"read": (), "write": (), "copy": ()}
    assert all(found.rate_bytes_per_s for found in path.parts.values())
    assert set(path.unmeasured) == {"network", "mover"}
    assert "RTT" in path.unmeasured["network"]
    rows = [str(cell) for column in path_table(path).columns for cell in column._cells]
    assert rows.count("not measured") == 2


@pytest.mark.parametrize("kind", [webdav, gridftp, ftp, xrootd, s3], ids=lambda kind: kind.__name__)
def test_both_directions_between_a_directory_and_a_server_are_measured(kind, start, local, tmp_path):
    with start(kind) as (server,):
        result = measured(local, server.url, tmp_path, both=True)
    there, back = result.paths
    for path in (there, back):
        check_rates(path)
    # Only the user's own disk has known bytes past the cache; those of the server are not visible.
    assert (there.parts["write"].samples[0].detail, back.parts["read"].samples[0].detail) == ({}, {})
    assert there.limit in ("destination-server", "source-disk", "source-cpu")
    assert back.limit in ("source-server", "destination-disk", "destination-cpu")


@pytest.mark.parametrize(
    ("kinds", "copied"),
    [
        ((gridftp,), "between the servers"),
        ((xrootd, xrootd), "between the servers"),
        ((webdav, venturi_serve), "between the servers"),
        ((webdav, s3), "through this machine"),
    ],
    ids=lambda value: "-".join(kind.__name__ for kind in value) if isinstance(value, tuple) else "",
)
def test_the_result_reports_whether_two_servers_copy_directly(kinds, copied, start, tmp_path):
    with start(*kinds) as started:
        for server in started:
            for name in ("in", "out"):
                (server.root / name).mkdir(exist_ok=True)
                (server.root / name).chmod(0o777)
            server.before = server.files()
        flat = started[-1].url.startswith("s3")
        b = started[-1].url if flat else started[-1].below("out")
        result = measured(started[0].below("in"), b, tmp_path)
    (path,) = result.paths
    check_rates(path)
    assert result.environment["paths"][0]["copied"] == copied
    assert any("directly between the servers" in note for note in path.notes) == (copied == "between the servers")


def test_a_rate_limit_applies_to_a_server_and_is_reported_as_the_limit(start, local, tmp_path):
    with start(webdav) as (server,):
        result = measured(local, server.url, tmp_path, max_rate_bytes_per_s=5_000_000, time_s=6.0)
    (path,) = result.paths
    (startup_s,) = result.startup_s
    for part in ("write", "copy"):
        # The duration excludes the start-up, in which the first bytes can already be sent.
        for sample in path.parts[part].samples:
            assert sample.bytes / (sample.duration_s + startup_s) <= 5e6 * 1.25
    assert (path.smallest, path.limit) == ("write", "max-rate")


def test_the_saved_files_repeat_and_simulate_the_copy(start, local, tmp_path):
    with start(webdav) as (server,):
        b = parse_endpoint(server.url)
        result = measured(local, server.url, tmp_path)
        path = save(result, Endpoint(str(local)), b, tmp_path, tmp_path / "measurement")
        words = [*VENTURI, "run", path / "scenario.toml", "--yes", "--set", 'workload.factors.size=["10 kB"]']
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        (local / "venturi").exists() and subprocess.run(["rm", "-r", local / "venturi"], check=True)
    document = tomllib.loads(simulation_text(path))
    write = result.paths[0].parts["write"].rate_bytes_per_s
    rate = float(document["testbed"]["cost"]["storage"]["destination"]["write_rate"].removesuffix(" Mb/s"))
    assert rate == pytest.approx(write * 8 / 1e6, rel=0.01) or result.paths[0].shared


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class _Throttled(_Quiet):
    """A server without WebDAV that is overloaded after some uploads; it counts requests."""

    limit, uploads, methods = 10**9, 0, ()

    def _path(self):
        return Path(self.directory) / unquote(self.path).lstrip("/")

    def parse_request(self):
        good = super().parse_request()
        if good:
            type(self).methods = (*type(self).methods, self.command)
        return good

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).uploads += 1
        if self.uploads > self.limit:
            self.send_error(503)
            return
        self._path().parent.mkdir(exist_ok=True)
        self._path().write_bytes(content)
        self._reply(201)

    def do_DELETE(self):
        path = self._path()
        if path.is_dir():
            path.rmdir()
        elif path.exists():
            path.unlink()
        else:
            self.send_error(404)
            return
        self._reply(204)

    def _reply(self, code):
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def plain(tmp_path):
    """Start a Python HTTP server in a directory; return the directory and a function from a handler to the URL."""
    directory = tmp_path / "plain"
    directory.mkdir()
    running = []

    def work(handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(directory)))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield directory, work
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_file_of_the_user_is_read_and_never_changed(plain, local, tmp_path):
    directory, serve = plain
    content = os.urandom(3_000_000)
    (directory / "run7").mkdir()
    (directory / "run7/data.root").write_bytes(content)
    url = f"{serve(_Quiet)}/run7/data.root"
    result = measured(url, local, tmp_path)
    check_rates(result.paths[0])
    assert result.startup_s == (None,)
    assert result.paths[0].parts["copy"].samples[0].bytes == 2 * len(content)
    assert [(path.name, path.read_bytes()) for path in (directory / "run7").iterdir()] == [("data.root", content)]
    path = save(result, parse_endpoint(url), Endpoint(str(local)), tmp_path, tmp_path / "measurement")
    assert (path / "source.txt").read_text() == "data.root\n"
    done = subprocess.run([*VENTURI, "plan", path / "scenario.toml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(MeasureError, match=r"expected a file of at most .* found 3 MB.*--max-bytes"):
        measured(url, local, tmp_path, directory=tmp_path / "other", max_bytes=60_000_000)


def test_an_overloaded_server_gets_no_more_requests(plain, local, tmp_path):
    directory, serve = plain

    class Handler(_Throttled):
        limit = 22

    url = serve(Handler)
    options = MeasureOptions(time_s=8.0, rounds=4, connections=2, directory=tmp_path / "measurement")
    result = measure(Endpoint(str(local)), parse_endpoint(url), options)
    assert result.complete is False
    assert "too much load" in result.failure
    # One sample runs several transfers at the same time.
    assert Handler.limit < Handler.uploads <= Handler.limit + 2
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("{local}", "gopher://h/x", "expected a URL with one of the schemes gsiftp, ftp"),
        ("{local}", "davs://alice:word@h/x", "expected a URL without password"),
        ("{local}", "root://h/x", "expected two slashes"),
        ("{local}", "{url}/none", r"404.*Name an existing directory, and check your credentials on this machine"),
        ("{url}/none", "{local}", r"404.*Name an existing directory or file"),
        ("{local}", "{url}/mine", "expected a directory, found a file"),
        ("{local}", "{url}/closed", "cannot create"),
        ("{local}", "http://127.0.0.1:1/", "refused|connect"),
        ("{local}", "s3://127.0.0.1:1/bucket", "AWS_ACCESS_KEY_ID"),
        ("{local}", "gsiftp://localhost:1/x", "X509|credential|certificate|proxy"),
    ],
)  # fmt: skip
def test_a_wrong_url_is_an_error_with_the_next_step_and_no_file(a, b, message, start, local, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SHARED_CREDENTIALS_FILE", "X509_USER_PROXY", "X509_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with start(webdav) as (server,):
        (server.root / "closed").mkdir(mode=0o555)
        server.before = ["closed", "mine"]
        if "closed" in b and os.geteuid() != 0:
            pytest.skip("not root: the server runs as the owner of the directory")
        words = (one.format(local=local, url=server.url.rstrip("/")) for one in (a, b))
        with pytest.raises(VenturiError, match=message):
            measured(*words, tmp_path)
    assert not (tmp_path / "measurement").exists()


def test_a_token_without_permission_to_remove_is_reported_before_the_first_write(start, local, tmp_path, monkeypatch):
    from test_existing_faults import _token

    monkeypatch.setenv("BEARER_TOKEN", _token("storage.read:/ storage.create:/"))
    with start(webdav) as (server,), pytest.raises(VenturiError, match="expected credentials that can remove files"):
        measured(local, server.url, tmp_path)
    assert not (tmp_path / "measurement").exists()


def test_without_consent_no_server_is_contacted(plain, local, tmp_path):
    _, serve = plain

    class Handler(_Throttled):
        pass

    words = [*VENTURI, "measure", str(local), serve(Handler)]
    done = subprocess.run(
        words, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 1
    assert "expected consent" in done.stderr
    assert Handler.methods == ()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_no_file_remains_on_a_server_after_an_abnormal_end(how, start, local, tmp_path):
    with start(webdav) as (server,):
        words = [*VENTURI, "measure", "--yes", "--json", str(local), server.url]
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Some samples exist, and the next one is in progress.
        for line in process.stderr:
            if line.startswith("round 2"):
                break
        process.send_signal(how)
        out, err = process.communicate(timeout=LIMIT_S)
        (saved,) = (tmp_path / "runs").iterdir()
        if how == signal.SIGINT:
            assert process.returncode == 130, err
            assert json.loads(out)["failure"] == "interrupted"
            assert read_created(saved) == []
        else:
            wait_until(lambda: leftovers(local) == [], "the end of the shell", LIMIT_S)
            assert server.files() != server.before
            words = [*VENTURI, "clean", saved.name]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S)
            assert done.returncode == 0, done.stderr
            assert "removed dav://" in done.stdout
            assert server.files() == server.before
            again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S)
            assert "nothing to remove" in again.stderr
