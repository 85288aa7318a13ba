"""The commands of the README, the tutorial and the how-to pages work as pasted.

The test writes the files of a page and runs its commands, in order, in an empty directory. Commands that need a server,
minutes or the user's own files are only parsed, by the parser of the program. Each of them has its own test.
"""

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
import typer.main
from dockit import DOCS, ROOT, all_pages, pages_with_commands, simple_commands

from testkit import needs_programs
from venturi.backend import find_engine
from venturi.cli.root import app
from venturi.errors import VenturiError
from venturi.scenario import load_scenario
from venturi.workload import expand

_PAGE_TIMEOUT_S = 300
_ENGINE_COMMANDS = ("copy", "serve")
"""Subcommands whose options the engine parses."""

PAGES = pages_with_commands()


def run_by_page():
    """Return each page with commands to run, with its required programs."""
    return [
        pytest.param(page, id=page.id, marks=[needs_programs(*page.needs)] if page.needs else [])
        for page in PAGES
        if any(not command.only_parsed for command in page.commands())
    ]


def only_parsed():
    """Return each command that is only parsed, with its page; its test name has the reason."""
    return [
        pytest.param(page, command, id=f"{page.id}: {command} ({command.only_parsed})")
        for page in PAGES
        for command in page.commands()
        if command.only_parsed
    ]


@pytest.fixture
def directory():
    """An empty directory that every user can enter, because servers of a lab have their own users."""
    path = Path(tempfile.mkdtemp(prefix="venturi-docs-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def write_files(page, directory):
    """Write the files that a page shows."""
    for name, text in page.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def script_of(page):
    """Return the bash script with the commands of a page; it stops at the first failure."""
    lines = ["set -e"]
    for command in page.commands():
        if command.only_parsed:
            continue
        lines.append(f"echo {shlex.quote(f'$ {command}')}")
        if command.exit_code:
            lines += ["set +e", command.text, f"[ $? -eq {command.exit_code} ] || exit 1", "set -e"]
        else:
            lines.append(command.text)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", run_by_page())
def test_the_commands_of_a_page_work_as_pasted(page, directory):
    work = directory / "work"
    home, labs = directory / "home", directory / "labs"
    for path in (work, home, labs):
        path.mkdir()
    write_files(page, work)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("VENTURI_", "XDG_"))} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "VENTURI_SCRATCH": str(directory / "scratch"),
        "VENTURI_LAB": str(labs),
        "VENTURI_REPOSITORY": str(ROOT),
    }
    with (directory / "output").open("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script_of(page)],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(_PAGE_TIMEOUT_S)
        finally:
            # Background servers are in the process group of the shell; a lab has its own daemon.
            end_group(shell)
            if any(labs.iterdir()):
                subprocess.run(
                    ["venturi", "lab", "down", "--all"], env=environment, capture_output=True, timeout=60, check=False
                )
        output.seek(0)
        assert code == 0, f"the last command of:\n{output.read()}"


def end_group(shell):
    """End a shell and the processes that it started."""
    try:
        os.killpg(shell.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    shell.wait(30)


@pytest.mark.parametrize(("page", "command"), only_parsed())
def test_a_command_that_is_not_run_is_valid(page, command, directory):
    checked = subprocess.run(["bash", "-n", "-c", command.text], capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr
    write_files(page, directory)
    for words in simple_commands(command.text):
        if words[0] == "venturi":
            given = understood([word for word in words[1:] if word != "&"])
            scenario = str(given.get("scenario"))
            if scenario in page.files and "--resume" not in words and not includes_made_files(page, scenario):
                expand(load_scenario(directory / scenario, overrides=given.get("set_") or ()))


def includes_made_files(page, scenario):
    """Return whether a scenario includes files that other commands of the page create."""
    return not {*tomllib.loads(page.files[scenario]).get("include", [])} <= page.files.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_the_commands_in_the_prose_of_a_page_are_valid(page):
    wrong = []
    for text in page.inline_commands():
        for words in simple_commands(text):
            if words[0] == "venturi":
                try:
                    understood(words[1:], partly=True)
                except AssertionError as error:
                    wrong.append(f"{text}: {error}")
    assert not wrong, "\n".join(wrong)


def understood(words, *, partly=False):
    """Parse a command line as the program does, without running it, and return its values.

    If ``partly``, arguments and values can be missing.
    """
    if words[:1] and words[0] in _ENGINE_COMMANDS:
        return understood_by_engine(words, partly=partly)
    found = {}
    root = typer.main.get_command(app)
    record_calls(root, found)
    try:
        root.main([*words], prog_name="venturi", standalone_mode=False)
    except Exception as error:
        missing = type(error).__name__ in ("BadOptionUsage", "MissingParameter", "NoArgsIsHelpError")
        if not (partly and missing):
            raise AssertionError(f"{type(error).__name__}: {getattr(error, 'message', error)}") from error
    return found


def understood_by_engine(words, *, partly):
    """Parse a command line with the engine, which reads all options up to ``--help`` before it prints the help."""
    end = words.index("--") if "--" in words else len(words)
    argv = [os.fspath(find_engine()), *words[:end], "--help", *words[end:]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0 or (partly and "a value is required for" in done.stderr), done.stderr
    return {}


def record_calls(command, found):
    """Replace the function of each command by one that only records its arguments."""
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            record_calls(command.get_command(context, name), found)
    else:
        command.callback = lambda **given: found.update(given)


def test_the_command_parser_detects_mistakes():
    for wrong in (
        "run",
        "run a.toml --qick",
        "report x --confidence 2",
        "nothing",
        "copy --bloc 1MiB a b",
        "serve --http",
    ):
        with pytest.raises(AssertionError):
            understood(wrong.split())
    understood(["run"], partly=True)
    assert understood(["run", "a.toml", "--set", "seed=2"])["set_"] == ["seed=2"]


def test_every_scenario_in_the_documents_is_valid(tmp_path):
    """Each TOML block is valid TOML. A block with the version is also a valid scenario."""
    found, wrong = 0, []
    for page in all_pages():
        for block in page.blocks:
            if block.language != "toml":
                continue
            try:
                tomllib.loads(block.text)
                if re.search(r"^venturi = 1", block.text, re.MULTILINE) and "include" not in block.text:
                    found += 1
                    path = tmp_path / f"{found}.toml"
                    path.write_text(block.text, encoding="utf-8")
                    load_scenario(path)
            except (VenturiError, tomllib.TOMLDecodeError) as error:
                wrong.append(f"{page.path.relative_to(ROOT)}: {error}\n{block.text}")
    assert not wrong, "\n".join(wrong)
    assert found >= 2


def test_every_block_of_python_compiles():
    for page in pages_with_commands():
        for block in page.blocks:
            if block.language == "python":
                ast.parse(block.text)


def test_a_page_shows_each_of_its_files_once():
    for page in PAGES:
        names = [block.file for block in page.blocks if block.file]
        assert len(names) == len(set(names)), page.id


def test_every_link_in_the_documents_leads_to_a_file():
    broken = [
        f"{page.path.relative_to(ROOT)}: {target}"
        for page in all_pages()
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.path.read_text(encoding="utf-8"))
        if not (page.path.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_every_page_is_in_a_table_of_contents():
    """Exactly one toctree contains each page of docs."""
    named = []
    for page in all_pages():
        for block in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", page.path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            for entry in block.splitlines():
                if entry and not entry.startswith(":"):
                    found = sorted(page.path.parent.glob(f"{entry}.md"))
                    named += [str(path.relative_to(DOCS)) for path in found or [page.path.parent / f"{entry}.md"]]
    written = [str(page.path.relative_to(DOCS)) for page in all_pages() if page.path.is_relative_to(DOCS)]
    assert sorted(named) == sorted(path for path in written if path != "index.md")
