"""Planning rejects the same options of the mover and the server as the engine; the tests run the engine."""

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
    ("congestion", "reno", ["reno"]), ("stripe", True, []), ("pipelining", 2, ["2"]), ("pacing", 8000, ["8000B/s"]), ("rate", 1_000_000, ["1000000B/s"]), ("data_channel", "open", ["open"]),
    ("data_channel", "safe", ["safe"]), ("proxy", "http://127.0.0.1:9", ["http://127.0.0.1:9"]),
)  # fmt: skip
"""Options that only some endpoints support, with a value, and the engine's arguments for it."""
WRITTEN = {"integer": "{}", "size": "{}", "rate": "{}B/s"}


def flag(name):
    return "--max-rate" if name == "rate" else f"--{name.replace('_', '-')}"


def message(engine, directory, *words):
    """Return the error of the engine for a copy that cannot run."""
    environment = {"PATH": "/usr/bin:/bin", "X509_USER_PROXY": "nowhere", "X509_CERT_DIR": "nowhere"}
    done = subprocess.run(
        [engine, *words], cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0, words
    return done.stderr


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.maximum is not None])
def test_the_limits_of_options_agree_with_the_engine(engine, directory, name):
    option = OPTIONS[name]
    for value, taken in (
        (option.minimum, True), (option.minimum - 1, False), (option.maximum, True), (option.maximum + 1, False),
    ):  # fmt: skip
        word = WRITTEN[option.kind].format(value)
        # With a valid value, the copy fails because the value has no effect or the source is missing.
        found = message(engine, directory, "copy", flag(name), word, "nothing", "copy")
        assert (f"invalid value '{word}' for '{flag(name)} " in found) is not taken, (value, found)


def test_every_numeric_option_has_a_maximum():
    assert {name for name, option in OPTIONS.items() if option.kind in WRITTEN and option.maximum is None} == set()


@pytest.mark.parametrize("name", ["block", "threads", "memory", "pacing"])
def test_the_limits_of_server_options_agree_with_the_engine(engine, directory, name):
    (option,) = (option for option in SERVICES["venturi-serve"].options if option.name == name)
    most = [] if option.maximum is None else [(option.maximum, True), (option.maximum + 1, False)]
    for value, taken in ((option.minimum, True), (option.minimum - 1, False), *most):
        word = WRITTEN[option.kind].format(value)
        found = message(
            engine, directory, "serve", "nothing", "--listen", "127.0.0.1:0", "--write", f"--{name}", word
        )
        assert (f"invalid value '{word}'" in found) is not taken, (value, found)


def ends(port):
    """Return all pairs of protocols (None: a local file), each with two endpoints that no server uses."""
    paths = {None: "file"} | {
        service_port: f"{service_port}://127.0.0.1:{port}/file" for service_port in MOVER.protocols
    }
    return [(pair, [paths[end] for end in pair]) for pair in itertools.product(paths, repeat=2)]


@pytest.mark.parametrize(("name", "value", "words"), VALUES)
def test_options_are_rejected_for_the_same_endpoints_as_in_the_engine(engine, directory, name, value, words):
    for (source, destination), (from_, to) in ends(free_port()):
        conflict = MOVER.option_conflict({name: value}, source, destination)
        found = message(engine, directory, "copy", flag(name), *words, from_, f"{to}-copy")
        both = conflict is not None and conflict[0] == "destination_service"
        assert found.startswith("venturi copy: SRC DST: expected either FTP or HTTP") is both, found
        assert found.startswith(f"venturi copy: {flag(name)}: expected") is (conflict is not None and not both), (
            source,
            destination,
            found,
        )


def test_options_with_an_effect_for_all_endpoints_are_never_rejected():
    given = {option.name: option.default for option in MOVER.options} | {
        "concurrency": 4,
        "block": 4096,
        "fixed": True,
        "fsync": True,
        "verify": True,
    }
    for (source, destination), _ in ends(1):
        conflict = MOVER.option_conflict(given, source, destination)
        assert conflict is None or conflict[0] == "destination_service"
