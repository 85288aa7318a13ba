"""Directory commands sent to a Globus server; existing directories stay unchanged."""

import os
import pwd
import subprocess

import pytest
from copykit import copy
from ftpkit import Server, below, content

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")


class ReceivedCommands:
    """Commands that a server received."""

    def __init__(self, server, log):
        self.server, self.log = server, log

    def commands(self, below):
        """Return the commands of clients for paths below a directory, without trailing slashes."""
        lines = self.log.read_text(errors="replace").splitlines()
        printed = [line.partition("[CLIENT]: ")[2].rstrip("/\r\n ") for line in lines if "[CLIENT]: " in line]
        answerable = ("MLST", "MLSC", "MKD", "RMD", "SITE CHMOD")
        return [command for command in printed if command.startswith(answerable) and str(below) in command]


@pytest.fixture(scope="module")
def received(root, tmp_path_factory):
    """Yield a server for anonymous users that logs its commands."""
    log = tmp_path_factory.mktemp("log") / "control.log"
    found = Server(root, options=["-d", "ALL", "-l", str(log), "-log-module", "stdio:buffer=0"])
    yield ReceivedCommands(found, log)
    found.stop()


@pytest.fixture
def source(here):
    """Return a group-writable directory with a few files."""
    directory = here / "src"
    directory.mkdir()
    for number in range(5):
        (directory / f"f{number}").write_bytes(content(number, 100))
        (directory / f"f{number}").chmod(0o644)
    directory.chmod(0o775)
    return directory


def own(path, mode):
    """Create a directory that belongs to the user of the server."""
    path.mkdir()
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)


METHODS = [
    (["-r"], "src/", "dir", "dir"),
    (["-r", "--existing", "replace"], "src/", "dir", "dir"),
    (["-r", "-T"], "src", "dir", "dir"),
    (["-r"], "src", "dir/", "dir/src"),
    (["-r", "--mkpath"], "src/", "dir", "dir"),
]


@pytest.mark.parametrize(("words", "source_name", "location", "made"), METHODS, ids=lambda value: str(value))
def test_an_existing_directory_at_the_server_keeps_its_mode(
    engine, received, here, source, words, source_name, location, made
):
    own(here / "dir", 0o700)
    if made != "dir":
        own(here / made, 0o700)
    copy(engine, *words, source_name, f"{below(received.server, here)}/{location}")
    assert {path.name for path in (here / made).iterdir()} == {path.name for path in source.iterdir()}
    assert (here / made).stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(("words", "source_name", "location", "made"), METHODS, ids=lambda value: str(value))
def test_a_directory_created_by_a_copy_has_the_mode_of_its_source(
    engine, received, here, source, words, source_name, location, made
):
    copy(engine, *words, source_name, f"{below(received.server, here)}/{location}")
    assert (here / made).stat().st_mode & 0o7777 == source.stat().st_mode & 0o7777


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
@pytest.mark.parametrize(("words", "source_name", "location", "made"), METHODS, ids=lambda value: str(value))
def test_only_necessary_commands_are_sent_ahead(
    engine, received, here, source, words, source_name, location, made, is_there
):
    own(here / "dir", 0o755)
    if made != "dir" and is_there:
        own(here / made, 0o755)
    if made == "dir" and not is_there:
        (here / "dir").rmdir()
    copy(engine, *words, source_name, f"{below(received.server, here)}/{location}")
    copied, parent = here / made, (here / made).parent
    printed = received.commands(here)
    requested = [f"MLST {here / 'dir'}"]
    if "replace" not in words:
        requested.append(f"MLST {copied}")
    if "--mkpath" in words or location.endswith("/"):
        requested.append(f"MLST {parent}")
    requested += [f"MKD {copied}", f"MLST {copied}"]
    assert printed[: len(requested)] == requested, printed
    assert len([command for command in printed if command.startswith("MKD")]) == 2, printed


def test_a_link_named_as_source_of_a_tree_creates_no_directory(engine, received, here, source):
    (here / "link").symlink_to("src")
    own(here / "dir", 0o777)
    words = ["-r", "link", f"{below(received.server, here)}/dir/"]
    subprocess.run([engine, "copy", *words], capture_output=True, check=False, timeout=60)
    assert not (here / "dir" / "link").is_dir() or (here / "dir" / "link").is_symlink()
    assert not [command for command in received.commands(here) if command.startswith("MKD")]
