"""Operations on files of existing servers, with an in-memory server that checks each step."""

import pytest

from venturi.backend.url_files import UrlFiles, remove_created, run_directory
from venturi.errors import BackendError
from venturi.plan import Storage
from venturi.run.created import CreatedJournal, read_created

URL = "dav://se.example.org/dteam"
RUN = "venturi-x-1"
ROOT = f"{URL}/{RUN}"
FILES = {
    "dataset": "eos-10B", "directory": f"{ROOT}/sets/10B", "seed": 7, "sizes": [{"files": 1, "size_bytes": 10}], "first": 0,
    "files": 3,
}  # fmt: skip


class MemoryServer:
    """Files by URL; a directory is None. It accepts a new file only if the journal of the run already has its line."""

    def __init__(self, path, existing=()):
        self.path, self.entries = path, dict.fromkeys(existing)
        self.entries[URL] = None
        self.log, self.failing = [], {}

    def requests(self, requests):
        return [self._execute(dict(request)) for request in requests]

    def _execute(self, request):
        command, url = request["command"], request["url"]
        self.log.append((command, url))
        if (command, url) in self.failing:
            return {"error": {"kind": "other", "message": self.failing[command, url]}}
        missing = {"error": {"kind": "not_found", "message": f"{url}: not found"}}
        below = [one for one in self.entries if one.startswith(f"{url}/")]
        match command:
            case "access":
                return {"create": True, "remove": True, "by": "token"}
            case "mkdir":
                self._expect_recorded(url)
                is_new = url not in self.entries
                while url.startswith(ROOT):
                    self.entries.setdefault(url)
                    url = url.rpartition("/")[0]
                return {"created": is_new}
            case "create":
                self._expect_recorded(url)
                if url in self.entries:
                    return {"error": {"kind": "exists", "message": f"{url}: exists"}}
                self.entries[url] = request["size_bytes"]
                return {"size_bytes": request["size_bytes"]}
            case "stat":
                if url not in self.entries:
                    return missing
                size = self.entries[url]
                return {"kind": "directory" if size is None else "file", "size_bytes": size}
            case "list":
                names = sorted({one.removeprefix(f"{url}/").partition("/")[0] for one in below})
                return {"entries": [{"name": name} for name in names]}
            case "checksum":
                return {"value": f"{self.entries[url]:08x}"}
            case "remove":
                if url not in self.entries:
                    return missing
                if below:
                    return {"error": {"kind": "exists", "message": f"{url}: not empty"}}
                del self.entries[url]
                return {"removed": True}
        raise AssertionError(command)

    def _expect_recorded(self, url):
        assert url in {one.url for one in read_created(self.path)}, url


@pytest.fixture
def server(tmp_path):
    """An empty server."""
    return MemoryServer(tmp_path)


def url_files(server, *, checksum=None):
    """Return the operations of a new session, and their journal."""
    journal = CreatedJournal(server.path)
    storages = {"eos": Storage("ui", "", url=URL, checksum=checksum)}
    return UrlFiles(storages, RUN, journal, lambda host: server), journal


def clear(path, **changes):
    return {
        "operation": "clear", "path": path, "files": None, "source": None, "in_scratch": True, "keep": False, "started": False,
    } | changes  # fmt: skip


def check(path, size, **changes):
    destination = {"path": path, "files": None, "requested_bytes": size, "late": False} | changes
    return {"operation": "check", "destinations": [destination], "grace_s": 0.0}


def prepare():
    return {"operation": "prepare", "files": FILES, "cache": "as_is", "stall_timeout_s": 60.0}


def test_each_file_is_recorded_before_it_is_created_and_all_are_removed(server):
    files, journal = url_files(server)
    files.check_access()
    assert files.execute("ui", prepare())["event"]["detail"]["made"] == 3
    assert files.execute("ui", prepare())["event"] is None
    files.execute("ui", clear(f"{ROOT}/out/1"))
    server.entries[f"{ROOT}/out/1"] = 10
    server.entries[f"{ROOT}/out/1.part"] = 3  # temporary file of a mover
    removed = []
    assert remove_created(journal, lambda host: server, on_removed=removed.append) == []
    assert set(server.entries) == {URL}
    assert f"{ROOT}/out/1" in removed
    journal.close()
    assert read_created(server.path) == []


def test_a_directory_of_another_run_is_rejected_and_kept(server):
    server.entries |= {ROOT: None, f"{ROOT}/mine": 5}
    files, journal = url_files(server)
    with pytest.raises(BackendError, match="found one of another run"):
        files.check_access()
    assert remove_created(journal, lambda host: server) == []
    assert f"{ROOT}/mine" in server.entries


def test_files_of_a_killed_session_are_repaired_and_cleared(server):
    files, journal = url_files(server)
    files.check_access()
    files.execute("ui", prepare())
    files.execute("ui", clear(f"{ROOT}/out/1"))
    server.entries[f"{ROOT}/out/1"] = 4
    server.entries[f"{FILES['directory']}/000001"] = 4  # incomplete
    journal.close()
    files, journal = url_files(server)
    files.check_access()
    detail = files.execute("ui", prepare())["event"]["detail"]
    assert (detail["made"], detail["reused"]) == (1, 2)
    assert server.entries[f"{FILES['directory']}/000001"] == 10
    files.execute("ui", clear(f"{ROOT}/out/1"))
    assert f"{ROOT}/out/1" not in server.entries
    assert f"{ROOT}/out/1" in journal


def test_the_server_reports_sizes_and_checksums(server):
    files, _ = url_files(server, checksum="adler32")
    files.check_access()
    compared = {"checksum": {"algorithm": "adler32", "source_host": "ui", "source": f"{ROOT}/in"}}
    server.entries |= {f"{ROOT}/in": 10, f"{ROOT}/out": 10}

    def received(operation):
        (state,) = files.execute("ui", operation)["destinations"]
        return state["received"]

    assert received(check(f"{ROOT}/out", 10, **compared))["checksum"] == "adler32:0000000a"
    assert received(check(f"{ROOT}/out", 11))["lacking"] == "expected 11 bytes at the receiver, found 10"
    assert received(check(f"{ROOT}/none", 11))["bytes"] == 0
    assert received(check(f"{ROOT}/out", 9))["more"]
    server.entries[f"{ROOT}/in"] = 12
    assert "expected the adler32 0000000c of the source" in received(check(f"{ROOT}/out", 10, **compared))["differs"]
    server.failing["stat", f"{ROOT}/out"] = "the server is busy"
    (state,) = files.execute("ui", check(f"{ROOT}/out", 10))["destinations"]
    assert state == {"error": "the server is busy"}


def test_files_that_cannot_be_removed_are_reported_and_remain_in_the_journal(server):
    files, journal = url_files(server)
    files.check_access()
    files.execute("ui", prepare())
    stubborn = f"{FILES['directory']}/000001"
    server.failing["remove", stubborn] = "permission denied"
    problems = remove_created(journal, lambda host: server)
    assert problems[0] == "permission denied"
    journal.close()
    assert stubborn in {one.url for one in read_created(server.path)}
    del server.failing["remove", stubborn]
    assert remove_created(CreatedJournal(server.path), lambda host: server) == []
    assert set(server.entries) == {URL}


def test_an_incomplete_journal_line_is_ignored(server):
    journal = CreatedJournal(server.path)
    files, _ = url_files(server)
    files.check_access()
    journal.close()
    with (server.path / "created.jsonl").open("ab") as file:
        file.write(b'{"created": "dav://se')
    assert [one.url for one in read_created(server.path)] == [ROOT]


def test_different_runs_have_different_directories():
    names = {run_directory("x-20261129T190000Z", 1_800_000_000_000_000_000 + n) for n in range(1000)}
    assert len(names) == 1000
    assert all(name.startswith("venturi-x-20261129T190000Z-") for name in names)
