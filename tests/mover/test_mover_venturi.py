"""What planning refuses of our own mover and server is what the engine refuses: the engine is asked."""

import itertools
import subprocess

import pytest

from testkit import free_port
from venturi.mover import BUILT_IN
from venturi.testbed.services.table import SERVICES

MOVER = BUILT_IN["venturi"]
OPTIONS = {option.name: option for option in MOVER.options}
VALUES = (
    ("direct", True, []), ("method", "kernel", ["kernel"]), ("method", "buffers", ["buffers"]), ("streams", 2, ["2"]), ("window", 4096, ["4096"]),
    ("congestion", "reno", ["reno"]), ("stripe", True, []), ("pipelining", 2, ["2"]), ("pacing", 8000, ["8000B/s"]), ("data_channel", "open", ["open"]),
    ("data_channel", "safe", ["safe"]), ("proxy", "http://127.0.0.1:9", ["http://127.0.0.1:9"]),
)  # fmt: skip
"""Options that not all ends have, with a value, and its words for the engine."""
WRITTEN = {"integer": "{}", "size": "{}", "rate": "{}B/s"}


def flag(name):
    return f"--{name.replace('_', '-')}"


def said(engine, folder, *words):
    """Return what the engine says to a copy that cannot be carried out."""
    environment = {"PATH": "/usr/bin:/bin", "X509_USER_PROXY": "nowhere", "X509_CERT_DIR": "nowhere"}
    done = subprocess.run(
        [engine, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0, words
    return done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.maximum is not None])
def test_the_limits_of_options_are_those_of_the_engine(engine, folder, name):
    option = OPTIONS[name]
    for value, taken in (
        (option.minimum, True), (option.minimum - 1, False), (option.maximum, True), (option.maximum + 1, False),
    ):  # fmt: skip
        word = WRITTEN[option.kind].format(value)
        # A value that is right is refused where it does nothing, or nothing is there to copy.
        found = said(engine, folder, "copy", flag(name), word, "nothing", "copy")
        assert (f"invalid value '{word}' for '{flag(name)} " in found) is not taken, (value, found)


def test_every_option_that_is_counted_has_its_limits():
    assert {name for name, option in OPTIONS.items() if option.kind in WRITTEN and option.maximum is None} == set()


@pytest.mark.parametrize("name", ["block", "threads", "memory", "pacing"])
def test_the_limits_of_our_server_are_those_of_the_engine(engine, folder, name):
    (option,) = (option for option in SERVICES["venturi-serve"].options if option.name == name)
    most = [] if option.maximum is None else [(option.maximum, True), (option.maximum + 1, False)]
    for value, taken in ((option.minimum, True), (option.minimum - 1, False), *most):
        word = WRITTEN[option.kind].format(value)
        found = said(engine, folder, "serve", "nothing", "--listen", "127.0.0.1:0", "--write", f"--{name}", word)
        assert (f"invalid value '{word}'" in found) is not taken, (value, found)


def ends(port):
    """Return protocols of ends (none: a file of the host), and places for them at which nobody answers."""
    places = {None: "file"} | {door: f"{door}://127.0.0.1:{port}/file" for door in MOVER.speaks}
    return [(pair, [places[end] for end in pair]) for pair in itertools.product(places, repeat=2)]


@pytest.mark.parametrize(("name", "value", "words"), VALUES)
def test_an_option_is_refused_between_the_ends_where_the_engine_refuses_it(engine, folder, name, value, words):
    for (source, destination), (from_, to) in ends(free_port()):
        refusal = MOVER.refusal({name: value}, source, destination)
        found = said(engine, folder, "copy", flag(name), *words, from_, f"{to}-copy")
        both = refusal is not None and refusal[0] == "destination_service"
        assert found.startswith("venturi copy: SRC DST: expected places of FTP or of HTTP") is both, found
        assert found.startswith(f"venturi copy: {flag(name)}: expected") is (refusal is not None and not both), (
            source,
            destination,
            found,
        )


def test_what_does_something_everywhere_is_refused_nowhere():
    given = {option.name: option.default for option in MOVER.options} | {
        "concurrency": 4,
        "block": 4096,
        "fixed": True,
        "fsync": True,
        "verify": True,
    }
    for (source, destination), _ in ends(1):
        refusal = MOVER.refusal(given, source, destination)
        assert refusal is None or refusal[0] == "destination_service"
