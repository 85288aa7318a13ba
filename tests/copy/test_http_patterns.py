"""Wildcards in HTTP URLs: they match the listings of servers, and each source needs a distinct name."""

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
    """Yield the URL of a server with the files of `NAMES`; each contains its own name."""
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


def names_in(directory):
    """Return the files below a directory, after checking their contents."""
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    for name in found:
        assert (directory / name).read_text().endswith(name)
    return found


def test_wildcards_match_names_in_listings(engine, tmp_path, url):
    for number, (arguments, expected) in enumerate(
        {
            (f"{url}/run1/*.root",): {"a.root", "b.root"},
            (f"{url}/run1/[!a].*",): {"b.root", "b.txt"},
            (f"{url}/run*/b.root",): {"b.root"},
            ("-r", f"{url}/run*"): {"run1/a.root", "run1/b.root", "run1/b.txt", "run2/a.root", "run3"},
            # An existing name is not a pattern.
            (f"{url}/[x]",): {"[x]"},
        }.items()
    ):
        to = tmp_path / f"to{number}"
        to.mkdir()
        end = end_of(events(engine, *arguments, f"{to}/"))
        assert (names_in(to), end["files"]) == (expected, len(expected)), arguments


def test_a_leading_dot_must_be_explicit_and_an_encoded_question_mark_is_literal(engine, tmp_path):
    """nginx does not list names that start with a dot, and XRootD reads `%3F` as the start of a query."""
    (tmp_path / "served").mkdir()
    for name in (".a1", "b1", "?1"):
        (tmp_path / "served" / name).write_text(name)
    with venturi(engine, tmp_path / "served", tmp_path) as url:
        for number, (pattern, expected) in enumerate({"*1": {"b1", "?1"}, ".*": {".a1"}, "%3F1": {"?1"}}.items()):
            copy(engine, f"{url}/{pattern}", f"{tmp_path}/to{number}/")
            assert names_in(tmp_path / f"to{number}") == expected
        assert "404" in copy(engine, f"{url}/%3F2", tmp_path, code=3).stderr.decode()


def test_a_single_match_can_be_copied_under_another_name(engine, tmp_path, url):
    copy(engine, f"{url}/run1/*.txt", tmp_path / "named")
    assert (tmp_path / "named").read_text() == "run1/b.txt"
    output = copy(engine, f"{url}/run1/*.root", tmp_path / "named", code=3).stderr.decode()
    assert "named: expected" in output
    assert "found 2 matches of" in output
    assert (tmp_path / "named").read_text() == "run1/b.txt"


def test_several_sources_for_a_url_without_a_trailing_slash_are_rejected(engine, tmp_path, url):
    """The client does not query the location, because an existing directory would not help."""
    here = [tmp_path / "served" / name for name in ("run1/a.root", "run1/b.txt")]
    output = copy(engine, *here, f"{url}/run2", code=1).stderr.decode()
    assert (
        "/run2: expected a directory as destination of several sources, found a URL without a trailing slash"
        in output
    )


def test_a_pattern_without_matches_is_reported(engine, tmp_path, url):
    for pattern in ("none*", "none*/a.root", "run*/none", "missing/*"):
        output = copy(engine, f"{url}/{pattern}", tmp_path, code=3).stderr.decode()
        assert f"/{pattern}: expected a path that matches the pattern, found " in output


def test_two_sources_with_the_same_name_are_reported_and_do_not_mix(engine, tmp_path, url):
    (tmp_path / "up").mkdir()
    for arguments in [[f"{url}/run*/a.root"], [f"{url}/run1/a.root", f"{url}/run2/a.root"]]:
        output = copy(engine, *arguments, f"{tmp_path}/up/", code=3).stderr.decode()
        assert "a.root: expected different names for all sources, found two sources with the same name" in output
        assert (tmp_path / "up" / "a.root").read_text() in ("run1/a.root", "run2/a.root")
    here = [tmp_path / "served" / name for name in ("run1/a.root", "run2/a.root")]
    output = copy(engine, *here, f"{url}/other/", code=3).stderr.decode()
    assert f"{url}/other/a.root: expected different names for all sources" in output


def test_patterns_work_in_copies_between_servers(engine, tmp_path, url):
    (tmp_path / "second").mkdir()
    with venturi(engine, tmp_path / "second", tmp_path, "--write") as there:
        end = end_of(events(engine, f"{url}/run1/*.root", f"{there}/"))
    assert end["files"] == 2
    assert names_in(tmp_path / "second") == {"a.root", "b.root"}


def test_names_in_a_list_are_not_patterns(engine, tmp_path):
    (tmp_path / "served").mkdir()
    for name in ("*", "a"):
        (tmp_path / "served" / name).write_text(name)
    (tmp_path / "list").write_text("*\n")
    with venturi(engine, tmp_path / "served", tmp_path) as url:
        copy(engine, "--files-from", tmp_path / "list", f"{url}/", tmp_path / "to")
    assert names_in(tmp_path / "to") == {"*"}


@pytest.mark.parametrize("status", [405, 501, 403])
def test_a_pattern_is_a_literal_name_if_the_server_has_no_listings(engine, tmp_path, status):
    def respond(send, _):
        send.rfile.read(int(send.headers.get("Content-Length", 0)))
        send.reply(status) if send.command == "PROPFIND" else send.reply(200, b"whole")

    with puppet(respond) as (url, recorded):
        copy(engine, f"{url}/a*", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert {path for _, path, _ in recorded} == {"/a*"}


def test_a_rejected_listing_is_reported(engine, tmp_path):
    def respond(send, _):
        send.rfile.read(int(send.headers["Content-Length"]))
        send.reply(404 if send.path == "/d/*" else 403)

    with puppet(respond) as (url, _):
        output = copy(engine, f"{url}/d/*", tmp_path / "a", code=3).stderr.decode()
    assert f"{url}/d: " in output and "403" in output
    assert not (tmp_path / "a").exists()
