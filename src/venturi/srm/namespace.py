"""Files of SURLs: reading their metadata, creating and removing them, but never outside of the server's storages.

Symbolic links of a path are resolved before the path is checked. A local user could still change a link between check
and use, so storages are meant for users without a local account.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from venturi.srm.errors import SrmError
from venturi.srm.protocol import SrmStatus

__all__ = ["DirectoryEntry", "Namespace"]

_KINDS: dict[int, Literal["FILE", "DIRECTORY", "LINK"]] = {
    stat.S_IFDIR: "DIRECTORY",
    stat.S_IFREG: "FILE",
    stat.S_IFLNK: "LINK",
}


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A file or directory in a listing. Times in seconds since 1970."""

    path: str
    kind: Literal["FILE", "DIRECTORY", "LINK"]
    size_bytes: int
    modified_s: float
    mode: int
    owner: str
    group: str


class Namespace:
    """The storages of the server.

    Parameters
    ----------
    storages
        Absolute directories by name.
    """

    def __init__(self, storages: Mapping[str, str]) -> None:
        # The deepest directory first, if one storage is inside another.
        self._storages = sorted(map(PurePosixPath, storages.values()), key=lambda path: len(path.parts), reverse=True)

    def relative(self, path: PurePosixPath) -> str:
        """Return a path relative to its storage.

        Raises
        ------
        SrmError
            SRM_AUTHORIZATION_FAILURE, if the path is in no storage. The error does not reveal whether it exists.
        """
        return path.relative_to(self._location(path)).as_posix()

    def entry(self, path: PurePosixPath) -> DirectoryEntry:
        """Return the file or directory at a path.

        Raises
        ------
        SrmError
            SRM_INVALID_PATH, if it does not exist; SRM_AUTHORIZATION_FAILURE, if it is outside of the storages.
        """
        with _srm_errors(path):
            self._confine(path)
            return _entry(path, Path(path).stat())

    def entries(self, path: PurePosixPath) -> Iterator[DirectoryEntry]:
        """Yield the entries of a directory, sorted by name. Symbolic links are not followed, because they can lead anywhere.

        Raises
        ------
        SrmError
            As for :meth:`entry`, and SRM_INVALID_PATH if the path is not a directory.
        """
        with _srm_errors(path):
            self._confine(path)
            found = sorted(Path(path).iterdir())
        for one in found:
            try:
                yield _entry(PurePosixPath(one), one.lstat())
            except FileNotFoundError:  # it was removed in the meantime
                continue

    def check_writable(self, path: PurePosixPath, size_bytes: int | None, *, overwrite: bool) -> None:
        """Check that a file can be created at a path.

        Raises
        ------
        SrmError
            SRM_INVALID_PATH without the parent directory, SRM_DUPLICATION_ERROR for an existing file that must not be
            replaced, SRM_NO_FREE_SPACE.
        """
        with _srm_errors(path):
            directory = self._confine(path.parent, location=path)
            if not directory.is_dir():
                raise SrmError(SrmStatus.INVALID_PATH, f"{path.parent}: expected a directory, found none")
            if os.path.lexists(path) and not (overwrite and stat.S_ISREG(Path(path).lstat().st_mode)):
                raise SrmError(SrmStatus.DUPLICATION_ERROR, f"{path}: expected a new name, found an existing file")
            file_system = os.statvfs(directory)
            free = file_system.f_bavail * file_system.f_frsize
            if size_bytes is not None and size_bytes > free:
                raise SrmError(
                    SrmStatus.NO_FREE_SPACE, f"{path}: expected {size_bytes} bytes of free space, found {free}"
                )

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file, or a symbolic link itself. Raise SRM_INVALID_PATH if it does not exist."""
        with _srm_errors(path):
            self._confine(path.parent, location=path)
            if stat.S_ISDIR(Path(path).lstat().st_mode):
                raise SrmError(SrmStatus.INVALID_PATH, f"{path}: expected a file, found a directory")
            Path(path).unlink()

    def create_directory(self, path: PurePosixPath) -> None:
        """Create a directory. Its parent must exist."""
        with _srm_errors(path):
            self._confine(path.parent, location=path)
            Path(path).mkdir()

    def remove_directory(self, path: PurePosixPath, *, recursive: bool) -> None:
        """Remove a directory, with ``recursive`` including its contents. A storage itself is never removed."""
        with _srm_errors(path):
            self._confine(path.parent, location=path)
            if path in self._storages:
                raise SrmError(
                    SrmStatus.AUTHORIZATION_FAILURE,
                    f"{path}: expected a directory below a storage, found the storage itself",
                )
            if not stat.S_ISDIR(Path(path).lstat().st_mode):
                raise SrmError(SrmStatus.INVALID_PATH, f"{path}: expected a directory, found a file")
            if recursive:
                shutil.rmtree(path)
            else:
                Path(path).rmdir()

    def _location(self, path: PurePosixPath) -> PurePosixPath:
        for location in self._storages:
            if path.is_relative_to(location):
                return location
        raise SrmError(SrmStatus.AUTHORIZATION_FAILURE, f"{path}: expected a path in one of the server's storages")

    def _confine(self, path: PurePosixPath, *, location: PurePosixPath | None = None) -> Path:
        """Return a path with resolved links. Reject a path that leads out of its storage."""
        storage_root = self._location(location or path)
        real, home = Path(os.path.realpath(path)), os.path.realpath(storage_root)
        if not real.is_relative_to(home):
            raise SrmError(
                SrmStatus.AUTHORIZATION_FAILURE, f"{path}: expected a path in one of the server's storages"
            )
        return real


@contextmanager
def _srm_errors(path: PurePosixPath) -> Iterator[None]:
    """Convert operating system errors about a path to an SRM status."""
    try:
        yield
    except OSError as error:
        status = _STATUS.get(type(error), SrmStatus.FAILURE)
        if error.errno == errno.ENOTEMPTY:
            status = SrmStatus.NON_EMPTY_DIRECTORY
        elif error.errno == errno.ENOSPC:
            status = SrmStatus.NO_FREE_SPACE
        raise SrmError(status, f"{path}: {error.strerror or error}") from error


_STATUS: dict[type[BaseException], SrmStatus] = {
    FileNotFoundError: SrmStatus.INVALID_PATH,
    NotADirectoryError: SrmStatus.INVALID_PATH,
    IsADirectoryError: SrmStatus.INVALID_PATH,
    FileExistsError: SrmStatus.DUPLICATION_ERROR,
    PermissionError: SrmStatus.AUTHORIZATION_FAILURE,
}


def _entry(path: PurePosixPath, found: os.stat_result) -> DirectoryEntry:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "FILE")
    mode = stat.S_IMODE(found.st_mode)
    return DirectoryEntry(
        path.as_posix(), kind, found.st_size, found.st_mtime, mode, _owner(found.st_uid), str(found.st_gid)
    )


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
