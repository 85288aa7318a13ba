"""Search for the engine, the binary that every host needs."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from venturi.errors import BackendError

__all__ = ["ENGINE", "ENGINE_VARIABLE", "Engine", "find_engine", "find_engines"]

ENGINE = "venturi-engine"
ENGINE_VARIABLE = "VENTURI_ENGINE"

_EM_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0xF3: "riscv64", 0x15: "ppc64le"}
"""Machine number of ELF headers → name that ``uname -m`` prints."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine as a file on this machine.

    Attributes
    ----------
    path
        Path of the file.
    sha256
        Hash of its content, hexadecimal.
    size_bytes
        Its size.
    machine
        Output of ``uname -m`` on its target machines, or "" if unknown.
    """

    path: Path
    sha256: str
    size_bytes: int
    machine: str

    @property
    def remote_name(self) -> str:
        """Name of its copy on other hosts. Each build has another name, so that a copy in use is never replaced."""
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
            raise BackendError(f"{path}: cannot read the engine: {error.strerror}") from error
        number = int.from_bytes(start[18:20], "little") if start.startswith(b"\x7fELF") else 0
        return cls(path, digest, size_bytes, _EM_MACHINES.get(number, ""))


def find_engine() -> Path:
    """Return the path of the engine.

    The search order is ``VENTURI_ENGINE``, then the directory of the Python interpreter (for a wheel) or the build
    directory of a checkout (the newer one, if both exist), then ``PATH``.

    Raises
    ------
    BackendError
        If the engine is not found.
    """
    configured = os.environ.get(ENGINE_VARIABLE)
    if configured:
        if not _is_program(Path(configured)):
            raise BackendError(
                f"{ENGINE_VARIABLE}: expected the path of {ENGINE}, found {configured!r}, which is not executable"
            )
        return Path(configured).absolute()
    for candidate in _candidates():
        if _is_program(candidate):
            return candidate.absolute()
    raise BackendError(
        f"expected the program {ENGINE} in the directory of {sys.executable}, on PATH, or built in a checkout, found none."
        f" Install venturi, run `cargo build --release`, or set {ENGINE_VARIABLE} to its path."
    )


def find_engines(path: Path | None = None) -> dict[str, Engine]:
    """Return the engines for other hosts by machine (``uname -m``). The key ``""`` is an engine for every machine.

    Engines for other architectures are files ``venturi-engine-MACHINE`` next to the engine, or the value of
    ``VENTURI_ENGINE_MACHINE`` with the machine in upper case, for example ``VENTURI_ENGINE_AARCH64``.

    Parameters
    ----------
    path
        The engine for this machine. Default: :func:`find_engine`.

    Raises
    ------
    BackendError
        If there is no engine, or one cannot be read.
    """
    main = Engine.at(path or find_engine())
    engines = {main.machine: main}
    for machine in _EM_MACHINES.values():
        configured = os.environ.get(f"{ENGINE_VARIABLE}_{machine.upper()}")
        sibling = main.path.with_name(f"{ENGINE}-{machine}")
        if configured:
            engines[machine] = Engine.at(Path(configured).absolute())
        elif machine not in engines and sibling.is_file():
            engines[machine] = Engine.at(sibling)
    return engines


def _candidates() -> Iterator[Path]:
    installed = Path(sys.executable).parent / ENGINE
    target = Path(__file__).parents[3] / "target"
    built = [*target.glob(f"*/release/{ENGINE}"), target / "release" / ENGINE]
    # In a checkout the installed engine can be outdated: the newest is the one to test.
    existing = [path for path in (installed, *built) if path.exists()]
    yield from sorted(existing, key=lambda path: -path.stat().st_mtime)
    on_path = shutil.which(ENGINE)
    if on_path:
        yield Path(on_path)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
