"""Wildcards in URLs of HTTP: what they stand for at servers with listings, and that each source has a name of its own."""

import pytest
from copykit import copy, end_of, events
from httpkit import DAV_MODULE, nginx, puppet, venturi, xrootd

from testkit import needs_programs

NAMES = [
    "run1/a.root",
    "run1/b.root",
    "run1/b.txt",
    "run2/a.root",
    "run3",
    "other/a.root",
    ".run4/a.root",
    "[x]",
    "x",
]

SERVERS = [
    pytest.param(
        "nginx",
        marks=[needs_programs("nginx"), pytest.mark.skipif(not DAV_MODULE.exists(), reason="no nginx with WebDAV")],
    ),
    pytest.param("xrootd", marks=needs_programs("xrootd")),
    "venturi",
]


@pytest.fixture(params=SERVERS)
def url(request, engine, tmp_path):
    """Yield the URL of a server with the files of `NAMES`, each of which has its own name as contents."""
    served = tmp_path / "served"
    for name in NAMES:
        (served / name).parent.mkdir(parents=True, exist_ok=True)
        (served / name).write_text(name)
    (tmp_path / "x").mkdir()
    makers = {
        "nginx": lambda: nginx(served, tmp_path),
        "xrootd": lambda: xrootd(served, tmp_path / "x"),
        "venturi": lambda: venturi(engine, served, tmp_path, "--write"),
    }
    with makers[request.param]() as url:
        yield url


def names_in(folder):
    """Return the files below a directory; each is what it should be."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    for name in found:
        assert (folder / name).read_text().endswith(name)
    return found


def test_wildcards_stand_for_what_listings_have(engine, tmp_path, url):
    for number, (words, expected) in enumerate(
        {
            (f"{url}/run1/*.root",): {"a.root", "b.root"},
            (f"{url}/run1/[!a].*",): {"b.root", "b.txt"},
            (f"{url}/run*/b.root",): {"b.root"},
            ("-r", f"{url}/run*"): {"run1/a.root", "run1/b.root", "run1/b.txt", "run2/a.root", "run3"},
            # What is there is no pattern.
            (f"{url}/[x]",): {"[x]"},
        }.items()
    ):
        to = tmp_path / f"to{number}"
        to.mkdir()
        end = end_of(events(engine, *words, f"{to}/"))
        assert (names_in(to), end["files"]) == (expected, len(expected)), words


def test_a_dot_at_the_beginning_is_written_and_a_question_mark_is_itself(engine, tmp_path):
    """nginx lists no names with a dot first, and XRootD takes `%3F` for the beginning of a query."""
    (tmp_path / "served").mkdir()
    for name in (".a1", "b1", "?1"):
        (tmp_path / "served" / name).write_text(name)
    with venturi(engine, tmp_path / "served", tmp_path) as url:
        for number, (pattern, expected) in enumerate({"*1": {"b1", "?1"}, ".*": {".a1"}, "%3F1": {"?1"}}.items()):
            copy(engine, f"{url}/{pattern}", f"{tmp_path}/to{number}/")
            assert names_in(tmp_path / f"to{number}") == expected
        assert "404" in copy(engine, f"{url}/%3F2", tmp_path, code=3).stderr.decode()


def test_one_that_matches_may_have_another_name(engine, tmp_path, url):
    copy(engine, f"{url}/run1/*.txt", tmp_path / "named")
    assert (tmp_path / "named").read_text() == "run1/b.txt"
    told = copy(engine, f"{url}/run1/*.root", tmp_path / "named", code=3).stderr.decode()
    assert "expected a directory for several sources, found 2 that match" in told
    assert (tmp_path / "named").read_text() == "run1/b.txt"


def test_several_for_a_url_without_a_slash_are_told_what_is_wrong_with_it(engine, tmp_path, url):
    """The server is not asked what is there: that it is a directory does not help."""
    here = [tmp_path / "served" / name for name in ("run1/a.root", "run1/b.txt")]
    told = copy(engine, *here, f"{url}/run2", code=1).stderr.decode()
    assert (
        "/run2: expected a directory for several sources, found a URL without a slash at its end; end it with a slash"
        in told
    )


def test_nothing_that_matches_is_told(engine, tmp_path, url):
    for pattern in ("none*", "none*/a.root", "run*/none", "missing/*"):
        told = copy(engine, f"{url}/{pattern}", tmp_path, code=3).stderr.decode()
        assert f"/{pattern}: expected something of that pattern, found nothing" in told


def test_two_of_one_name_are_told_and_neither_gets_the_bytes_of_the_other(engine, tmp_path, url):
    (tmp_path / "up").mkdir()
    for words in [[f"{url}/run*/a.root"], [f"{url}/run1/a.root", f"{url}/run2/a.root"]]:
        told = copy(engine, *words, f"{tmp_path}/up/", code=3).stderr.decode()
        assert "a.root: expected a name for each source, found two of the same name" in told
        assert (tmp_path / "up" / "a.root").read_text() in ("run1/a.root", "run2/a.root")
    here = [tmp_path / "served" / name for name in ("run1/a.root", "run2/a.root")]
    told = copy(engine, *here, f"{url}/other/", code=3).stderr.decode()
    assert f"{url}/other/a.root: expected a name for each source" in told


def test_patterns_go_from_server_to_server(engine, tmp_path, url):
    (tmp_path / "second").mkdir()
    with venturi(engine, tmp_path / "second", tmp_path, "--write") as there:
        end = end_of(events(engine, f"{url}/run1/*.root", f"{there}/"))
    assert end["files"] == 2
    assert names_in(tmp_path / "second") == {"a.root", "b.root"}


def test_a_list_has_names_and_no_patterns(engine, tmp_path):
    (tmp_path / "served").mkdir()
    for name in ("*", "a"):
        (tmp_path / "served" / name).write_text(name)
    (tmp_path / "list").write_text("*\n")
    with venturi(engine, tmp_path / "served", tmp_path) as url:
        copy(engine, "--files-from", tmp_path / "list", f"{url}/", tmp_path / "to")
    assert names_in(tmp_path / "to") == {"*"}


@pytest.mark.parametrize("status", [405, 501, 403])
def test_where_there_are_no_listings_a_name_is_a_name(engine, tmp_path, status):
    def answer(ask, _):
        ask.rfile.read(int(ask.headers.get("Content-Length", 0)))
        ask.say(status) if ask.command == "PROPFIND" else ask.say(200, b"whole")

    with puppet(answer) as (url, seen):
        copy(engine, f"{url}/a*", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert {path for _, path, _ in seen} == {"/a*"}


def test_a_listing_that_is_refused_is_told(engine, tmp_path):
    def answer(ask, _):
        ask.rfile.read(int(ask.headers["Content-Length"]))
        ask.say(404 if ask.path == "/d/*" else 403)

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/d/*", tmp_path / "a", code=3).stderr.decode()
    assert f"{url}/d: " in told and "403" in told
    assert not (tmp_path / "a").exists()
