"""Reader of a run: its properties, and SQL queries of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from venturi.errors import RunError
from venturi.run import directory
from venturi.run.directory import RunState
from venturi.run.finding import Finding
from venturi.run.tables import TABLES, open_tables

if TYPE_CHECKING:
    import duckdb
    import numpy.typing as npt

__all__ = ["Run"]

FACTOR_PREFIX = "factor_"


class Run:
    """A run on disk, which may be complete, stopped, killed or in progress.

    Opening is cheap. The first query creates the tables if the journal has grown since their creation (see
    ``docs/reference/run.md``). The run directory may be read-only. Older versions of the format are supported; newer
    versions are rejected.

    Attributes
    ----------
    path
        The run directory.
    name
        Name of the scenario.
    version
        Version of the format on the disk.
    state
        State when the run was opened: ``"running"`` (also after a kill), ``"stopped"`` or ``"complete"``.
    backend
        Backend that executed the run: ``"hosts"``, ``"lab"`` or ``"sim"``.
    created_unix_ns
        Epoch of the run, which is time 0 of all ``*_s`` times in the tables. Nanoseconds since 1970.
    plan_sha256
        Hash of the plan, hexadecimal.

    Examples
    --------
    >>> run = Run.open("runs/cp-on-one-node-20261121T213700Z")  # doctest: +SKIP
    >>> run.query("SELECT factor_files, avg(duration_s) AS mean_s FROM transfers GROUP BY ALL")  # doctest: +SKIP
    {'factor_files': array([1, 2]), 'mean_s': array([0.5, 0.9])}
    """

    def __init__(self, path: Path) -> None:
        info = directory.read_info(path)
        self.path = path
        self.name = info.name
        self.version = info.version
        self.state: RunState = info.state
        self.backend = info.backend
        self.created_unix_ns = info.created_unix_ns
        self.plan_sha256 = info.plan_sha256
        self._connection: duckdb.DuckDBPyConnection | None = None

    @classmethod
    def open(cls, path: Path | str, base: Path | str = "runs") -> Run:
        """Open a run by path, by name below ``base``, or by a prefix of its name.

        Raises
        ------
        RunError
            If the run does not exist or is damaged, or its format is newer than this program.
        """
        return cls(directory.resolve_run(path, base))

    @cached_property
    def header(self) -> dict[str, Any]:
        """Header of the plan: resolved scenario, hosts, storages, calls, totals (``docs/reference/plan.md``)."""
        return directory.read_plan_header(self.path)

    def finished_trials(self) -> frozenset[str]:
        """Return the ids of the finished trials, which have an outcome in the journal."""
        return frozenset(str(trial) for trial in self.query("SELECT trial FROM trials")["trial"])

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the varied and fixed factors, without ``factor_``: ``("files", "size_bytes")``."""
        columns = self._tables().execute("DESCRIBE transfers").fetchall()
        return tuple(str(name).removeprefix(FACTOR_PREFIX) for name, *_ in columns if name.startswith(FACTOR_PREFIX))

    def query(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the result of a DuckDB SQL query over the tables of the run.

        Parameters
        ----------
        sql
            One statement. Tables: ``transfers``, ``routes``, ``trials``, ``samples``, ``sockets``, ``events``, ``findings``,
            ``environment``, ``verdicts`` (columns and units in ``docs/reference/run.md``).
        parameters
            Values for ``?``, or by name for ``$name``.

        Returns
        -------
        dict
            Column name → array of shape (rows,), in the order of the statement. Nulls are NaN in numeric columns, so
            integers with nulls are float64, exact below 2⁵³. In other columns nulls are None; these columns and all text
            have dtype object. Integers without nulls are int64, or have the type of a cast in the statement.

        Raises
        ------
        RunError
            If the statement is wrong, or a table is damaged.
        """
        import duckdb

        connection = self._tables()
        try:
            result = connection.execute(sql, parameters if isinstance(parameters, Mapping) else list(parameters))
            columns = result.fetchnumpy()
        except duckdb.Error as error:
            raise RunError(f"{self.path}: cannot run the query: {error}") from error
        return {name: _without_mask(values) for name, values in columns.items()}

    def table(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return a whole table as :meth:`query` does, in the order of execution.

        Raises
        ------
        RunError
            If the table does not exist or is damaged.
        """
        if name not in TABLES:
            raise RunError(f"{self.path}: expected one of the tables {', '.join(TABLES)}, found {name!r}")
        order = {
            "transfers": " ORDER BY position NULLS LAST, start_s",
            "samples": " ORDER BY host, time_s, counter",
            "sockets": " ORDER BY host, time_s, local, remote",
        }
        return self.query(f"SELECT * FROM {name}{order.get(name, '')}")

    def findings(self) -> list[Finding]:
        """Return the findings of this run in chronological order, without duplicates from several sessions."""
        rows = self._rows("SELECT code, subject, evidence, advice, trial, host FROM findings")
        return list(dict.fromkeys(Finding(*row) for row in rows))

    def environment(self, session: int | None = None) -> dict[str, dict[str, str]]:
        """Return the properties of each host: host → key → value, as text.

        Keys are the properties reported by the agent, with nested keys joined by dots (``"cpu.model"``), and
        ``clock.offset_s``, ``clock.uncertainty_s``. ``session`` counts from 1. Default: the last session.
        """
        rows = self._rows(
            "SELECT host, key, value FROM environment WHERE session = coalesce(?, (SELECT max(session) FROM environment))",
            [session],
        )
        found: dict[str, dict[str, str]] = {}
        for host, key, value in rows:
            found.setdefault(host, {})[key] = value
        return found

    def close(self) -> None:
        """Close the tables; the next query opens them again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, state={self.state!r})"

    def _rows(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        return self._tables().execute(sql, list(parameters)).fetchall()

    def _tables(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = open_tables(self.path)
        return self._connection


def _without_mask(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column with nulls converted as :meth:`Run.query` documents."""
    import numpy as np

    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    mask = np.ma.getmaskarray(values)
    if not mask.any():
        return np.asarray(values.data)
    if values.dtype.kind in "iuf":
        return np.asarray(np.where(mask, np.nan, values.data.astype(np.float64)))
    objects = values.data.astype(object)
    objects[mask] = None
    return np.asarray(objects)
