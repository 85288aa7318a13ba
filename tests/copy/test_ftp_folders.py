"""What a server of the Globus toolkit is asked for directories, and that those that were there before stay as they are."""

import os
import pwd
import subprocess

import pytest
from copykit import copy
from ftpkit import Server, below, content

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")


class Heard:
    """What a server has heard."""

    def __init__(self, server, log):
        self.server, self.log = server, log

    def commands(self, below):
        """Return what clients have said of what is below a folder, without slashes behind a name."""
        lines = self.log.read_text(errors="replace").splitlines()
        said = [line.partition("[CLIENT]: ")[2].rstrip("/\r\n ") for line in lines if "[CLIENT]: " in line]
        asks = ("MLST", "MLSC", "MKD", "RMD", "SITE CHMOD")
        return [command for command in said if command.startswith(asks) and str(below) in command]


@pytest.fixture(scope="module")
def heard(root, tmp_path_factory):
    """A server for anybody that writes down what it hears."""
    log = tmp_path_factory.mktemp("log") / "control.log"
    found = Server(root, options=["-d", "ALL", "-l", str(log), "-log-module", "stdio:buffer=0"])
    yield Heard(found, log)
    found.stop()


@pytest.fixture
def source(here):
    """A directory that its group may write to, with a few files."""
    folder = here / "src"
    folder.mkdir()
    for number in range(5):
        (folder / f"f{number}").write_bytes(content(number, 100))
        (folder / f"f{number}").chmod(0o644)
    folder.chmod(0o775)
    return folder


def own(path, mode):
    """Make a directory that belongs to the user of the server."""
    path.mkdir()
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)


WAYS = [
    (["-r"], "src/", "dir", "dir"),
    (["-r", "--existing", "replace"], "src/", "dir", "dir"),
    (["-r", "-T"], "src", "dir", "dir"),
    (["-r"], "src", "dir/", "dir/src"),
    (["-r", "--mkpath"], "src/", "dir", "dir"),
]


@pytest.mark.parametrize(("words", "source_name", "place", "made"), WAYS, ids=lambda value: str(value))
def test_a_directory_that_was_at_the_server_keeps_its_mode(
    engine, heard, here, source, words, source_name, place, made
):
    own(here / "dir", 0o700)
    if made != "dir":
        own(here / made, 0o700)
    copy(engine, *words, source_name, f"{below(heard.server, here)}/{place}")
    assert {path.name for path in (here / made).iterdir()} == {path.name for path in source.iterdir()}
    assert (here / made).stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(("words", "source_name", "place", "made"), WAYS, ids=lambda value: str(value))
def test_a_directory_that_a_copy_makes_has_the_mode_of_its_source(
    engine, heard, here, source, words, source_name, place, made
):
    copy(engine, *words, source_name, f"{below(heard.server, here)}/{place}")
    assert (here / made).stat().st_mode & 0o7777 == source.stat().st_mode & 0o7777


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
@pytest.mark.parametrize(("words", "source_name", "place", "made"), WAYS, ids=lambda value: str(value))
def test_what_is_asked_ahead_is_what_is_asked(engine, heard, here, source, words, source_name, place, made, is_there):
    own(here / "dir", 0o755)
    if made != "dir" and is_there:
        own(here / made, 0o755)
    if made == "dir" and not is_there:
        (here / "dir").rmdir()
    copy(engine, *words, source_name, f"{below(heard.server, here)}/{place}")
    copied, parent = here / made, (here / made).parent
    said = heard.commands(here)
    asked = [f"MLST {here / 'dir'}"]
    if "replace" not in words:
        asked.append(f"MLST {copied}")
    if "--mkpath" in words or place.endswith("/"):
        asked.append(f"MLST {parent}")
    asked += [f"MKD {copied}", f"MLST {copied}"]
    assert said[: len(asked)] == asked, said
    assert len([command for command in said if command.startswith("MKD")]) == 2, said


def test_a_link_in_the_place_of_a_tree_makes_no_directory(engine, heard, here, source):
    (here / "link").symlink_to("src")
    own(here / "dir", 0o777)
    words = ["-r", "link", f"{below(heard.server, here)}/dir/"]
    subprocess.run([engine, "copy", *words], capture_output=True, check=False, timeout=60)
    assert not (here / "dir" / "link").is_dir() or (here / "dir" / "link").is_symlink()
    assert not [command for command in heard.commands(here) if command.startswith("MKD")]
