"""Helpers for tests of `venturi-engine copy`: run a copy, and compare trees."""

import json
import os
import stat
import subprocess
from pathlib import Path


def copy(engine, *words, code=0, **changes):
    """Run a copy, check its exit code, and return the completed process."""
    done = subprocess.run([engine, "copy", *words], capture_output=True, check=False, timeout=60, **changes)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def events(engine, *words, code=0, **changes):
    """Run a copy and return its events."""
    lines = copy(engine, "--json", *words, code=code, **changes).stdout.splitlines()
    return [json.loads(line) for line in lines]


def end_of(output):
    """Return the last event, which must be the end."""
    assert output[-1]["event"] == "end"
    return output[-1]


def tree_of(root, *, times=True, owners=False):
    """Return the entries of a tree by relative path: kind, mode, time, content, and the first name of hard links."""
    found, first_names = {}, {}
    for path in sorted([Path(root), *Path(root).rglob("*")]):
        seen = path.lstat()
        relative = os.fsencode(path.relative_to(root))
        what = [stat.S_IFMT(seen.st_mode), seen.st_mode & 0o7777, seen.st_mtime_ns if times else None]
        if owners:
            what += [seen.st_uid, seen.st_gid]
        if stat.S_ISREG(seen.st_mode):
            what += [seen.st_size, path.read_bytes()]
            if seen.st_nlink > 1:
                what.append(first_names.setdefault((seen.st_dev, seen.st_ino), relative))
        elif stat.S_ISLNK(seen.st_mode):
            what.append(os.fsencode(path.readlink()))
        found[relative] = what
    return found


def leftovers(root):
    """Return the temporary files of a copy below a directory; there are none after a complete copy."""
    return [
        name
        for _, directories, files in os.walk(root)
        for name in [*directories, *files]
        if name.startswith(".venturi-")
    ]


def differences_by_others(source, destination):
    """Return the differences that the independent programs `diff` and `rsync` report."""
    differ = subprocess.run(["diff", "-r", "--no-dereference", source, destination], capture_output=True, check=False)
    dry = ["rsync", "-n", "-c", "-i", "-rlptgoD", "--delete", f"{source}/", destination]
    would = subprocess.run(dry, capture_output=True, check=False)
    return differ.stdout + differ.stderr + would.stdout + would.stderr


def every(cases, stride):
    """Return every `stride`-th of many slow cases; ``VENTURI_STRIDE=1`` selects all."""
    return list(cases)[:: int(os.environ.get("VENTURI_STRIDE", stride))]
