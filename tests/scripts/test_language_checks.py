"""The checks of names and language that `make lint` runs find planted problems and accept plain text."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = "Venturi copies the file and renames it. If the copy fails, run the command again.\n"


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / script, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("Whoever reads what is there is told nothing.\n", "--max-free"),
        ("The server is told and goes on, and nobody asks.\n", "--max-idiom"),
        ("One " + "and one " * 40 + "word.\n", "--max-mean=20"),
        ("| a | b |\n|---|---|\n| x | " + "word " * 26 + "|\n", "--max-cells"),
    ],
    ids=["free relative", "idiom", "long sentence", "long cell"],
)
def test_a_planted_problem_exceeds_its_limit_and_plain_text_does_not(tmp_path, text, limit):
    option = limit if "=" in limit else f"{limit}=0"
    page = tmp_path / "page.md"
    page.write_text(text)
    found = run("prose_check.py", "--root", tmp_path, option, "page.md")
    assert found.returncode == 1 and "over the limit" in found.stderr
    page.write_text(PLAIN)
    assert run("prose_check.py", "--root", tmp_path, option, "page.md").returncode == 0


def test_only_added_lines_count_for_a_change(tmp_path):
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@example"]
    page = tmp_path / "page.md"
    page.write_text("What is there is told.\n\n")
    for arguments in (["init", "-q"], ["add", "page.md"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True)
    page.write_text(page.read_text() + PLAIN)
    check = ("prose_check.py", "--root", tmp_path, "--changed", "HEAD", "--max-free", 0, "page.md")
    assert run(*check).returncode == 0
    page.write_text(page.read_text() + "\nNobody knows what is there.\n")
    assert run(*check).returncode == 1


def test_a_goal_without_text_or_with_a_missed_limit_is_reported(tmp_path):
    (tmp_path / "page.md").write_text("What is there is told.\n")
    goals = tmp_path / "goals.toml"
    goal = '[[goal]]\nname = "pages"\npaths = ["{}"]\nkinds = ["md"]\nmax = {{ free = 3 }}\n'
    for path, expected in (("page.md", "pages: free"), ("elsewhere", "pages: no text found")):
        goals.write_text(goal.format(path))
        found = run("prose_check.py", "--root", tmp_path, "--goals", goals, "page.md")
        assert found.returncode == 1 and expected in found.stderr


def test_every_path_of_the_goals_exists():
    goals = tomllib.loads((ROOT / "scripts" / "prose_goals.toml").read_text())["goal"]
    assert [path for goal in goals for path in goal["paths"] if not (ROOT / path).exists()] == []


def test_names_that_clash_or_are_banned_are_listed(tmp_path):
    for path, text in {
        "src/venturi/one.py": "class Report: ...\nclass Thing: ...\n",
        "src/venturi/two.py": "class Report: ...\ntold = 1\n",
        "src/venturi/words.py": "x = 1\n",
        "crates/a/src/a.rs": 'pub struct Counter;\nfn f() { let asked_bytes = "told"; }\n',
        "crates/a/src/b.rs": "pub(crate) enum Counter {}\nstruct Private;\n",
        "crates/a/src/c.rs": "struct Private;\nstruct Line;\n",
        "crates/a/src/d.rs": "fn f() { let quote = '\"'; let processor_sharing = in_place; let told_s = '\"'; }\n",
        "tests/test_one.py": "def test_hosts_that_share_a_disk_wait(): ...\ndef test_a_file_that_is_refused_stays(): ...\n",
        "bench/one.py": "carry_out = question_mark = open(0).tell()\n",
        "scripts/banned_words.toml": (ROOT / "scripts" / "banned_words.toml").read_text(),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = run("check_names.py", tmp_path)
    assert found.returncode == 1
    assert sorted(line.split(":")[0] for line in found.stdout.splitlines()) == [
        "Python type Report", "Rust type Counter", "bench/one.py", "crates/a/src/a.rs", "crates/a/src/c.rs",
        "crates/a/src/d.rs", "src/venturi/one.py", "src/venturi/two.py", "src/venturi/words.py", "tests/test_one.py",
    ]  # fmt: skip
    for name in ("carry_out", "told_s", "test_a_file_that_is_refused_stays"):
        assert f"identifier {name} (1)" in found.stdout
