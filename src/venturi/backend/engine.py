"""Where the engine is: the one binary that every host needs."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from venturi.errors import BackendError

__all__ = ["ENGINE", "ENGINE_VARIABLE", "Engine", "find_engine"]

ENGINE = "venturi-engine"
ENGINE_VARIABLE = "VENTURI_ENGINE"

_EM_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0xF3: "riscv64", 0x15: "ppc64le"}
"""Machine numbers of ELF headers, by the name that ``uname -m`` prints."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine as a file on this machine.

    Attributes
    ----------
    path
        Where it is.
    sha256
        Hash of its content, hexadecimal.
    size_bytes
        Its size.
    machine
        What ``uname -m`` prints where it runs, or "" if that cannot be told.
    """

    path: Path
    sha256: str
    size_bytes: int
    machine: str

    @property
    def remote_name(self) -> str:
        """Name of its copy on other hosts: another build has another name, so that none is ever replaced in use."""
        return f"engine-{self.sha256[:16]}"

    @classmethod
    def at(cls, path: Path) -> Engine:
        """Read the engine at ``path``.

        Raises
        ------
        BackendError
            If it cannot be read.
        """
        try:
            with path.open("rb") as stream:
                start = stream.read(20)
                stream.seek(0)
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                size_bytes = os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise BackendError(f"{path}: expected the engine, a readable file: {error.strerror}") from error
        number = int.from_bytes(start[18:20], "little") if start.startswith(b"\x7fELF") else 0
        return cls(path, digest, size_bytes, _EM_MACHINES.get(number, ""))


def find_engine() -> Path:
    """Return the path of the engine.

    It is looked for in ``VENTURI_ENGINE``, beside the Python interpreter (where a wheel puts it) or where a checkout
    builds it (the newer one, if both are there), and on ``PATH``.

    Raises
    ------
    BackendError
        If it is in none of these places.
    """
    given = os.environ.get(ENGINE_VARIABLE)
    if given:
        if not _is_program(Path(given)):
            raise BackendError(
                f"{ENGINE_VARIABLE}: expected the path of {ENGINE}, found {given!r}, which is no program"
            )
        return Path(given).absolute()
    for candidate in _candidates():
        if _is_program(candidate):
            return candidate.absolute()
    raise BackendError(
        f"expected the program {ENGINE} beside {sys.executable}, on PATH, or built in a checkout, found it nowhere;"
        f" install venturi, run `cargo build --release`, or set {ENGINE_VARIABLE} to its path"
    )


def _candidates() -> Iterator[Path]:
    installed = Path(sys.executable).parent / ENGINE
    target = Path(__file__).parents[3] / "target"
    built = [*target.glob(f"*/release/{ENGINE}"), target / "release" / ENGINE]
    # In a checkout the installed engine may be of yesterday: the newest is what was meant to be tried.
    there = [path for path in (installed, *built) if path.exists()]
    yield from sorted(there, key=lambda path: -path.stat().st_mtime)
    on_path = shutil.which(ENGINE)
    if on_path:
        yield Path(on_path)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
