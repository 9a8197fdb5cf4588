"""The store over SQLAlchemy: the same statements for SQLite and PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Select, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from wattune.core.errors import StoreError
from wattune.core.frontier import History
from wattune.core.setting import Setting
from wattune.store import tables
from wattune.store.engine import engine_of, explained, place_of, reading, use_write_ahead_log, writing
from wattune.store.migrations import migrate
from wattune.store.protocol import JobStore, RunExists, Store
from wattune.store.records import SETTING, FullRun, Run, RunGpu, TraceSummary, TrialRecord, storable
from wattune.store.sql_job_store import SqlJobStore
from wattune.store.tables import gpu_of, gpu_rows, run_of, run_row, trace_of, trace_rows, trial_of, trial_rows

_MAX_CANDIDATES = 5


class SqlStore:
    """A store in a database of the newest schema; `open_store` opens it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def place(self) -> str:
        return place_of(self._engine.url)

    @property
    def jobs(self) -> JobStore:
        return SqlJobStore(self._engine)

    def add_run(self, full: FullRun) -> None:
        with explained(self.place):
            try:
                with writing(self._engine) as connection:
                    _insert(connection, full)
            except IntegrityError:
                if self._has(full.run.id):
                    raise RunExists(
                        f"a run with the id {full.run.id} is in the store already",
                        hint="give each run an id of its own",
                    ) from None
                raise

    def run(self, prefix: str) -> FullRun:
        with explained(self.place), reading(self._engine) as connection:
            run = _runs(connection, select(tables.runs).where(tables.runs.c.id == _only_id(connection, prefix)))[0]
            trials = select(tables.trials).where(tables.trials.c.run_id == run.id).order_by(tables.trials.c.position)
            traces = select(tables.traces).where(tables.traces.c.run_id == run.id).order_by(tables.traces.c.position)
            return FullRun(
                run,
                tuple(trial_of(row) for row in connection.execute(trials).mappings()),
                tuple(trace_of(row) for row in connection.execute(traces).mappings()),
            )

    def runs(
        self,
        *,
        limit: int | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        name: str | None = None,
    ) -> tuple[Run, ...]:
        query = select(tables.runs).order_by(tables.runs.c.started_at.desc(), tables.runs.c.id).limit(limit)
        if kind is not None:
            query = query.where(tables.runs.c.kind == storable(kind))
        if since is not None:
            query = query.where(tables.runs.c.started_at >= since)
        if name is not None:
            query = query.where(tables.runs.c.name.icontains(storable(name), autoescape=True))
        with explained(self.place), reading(self._engine) as connection:
            return _runs(connection, query)

    def trials(self, *, workload: str, gpu: str, simulated: bool) -> History[Setting]:
        table = tables.trials.c
        query = _oldest_first(tables.trials).where(
            table.workload == storable(workload),
            table.gpu == storable(gpu),
            table.simulated == simulated,
            table.choice_kind == SETTING,
        )
        with explained(self.place), reading(self._engine) as connection:
            return tuple(trial_of(row).trial for row in connection.execute(query).mappings())

    def trial_records(
        self, *, workload: str | None = None, gpu: str | None = None, choice_kind: str | None = None
    ) -> tuple[tuple[Run, TrialRecord], ...]:
        query = _oldest_first(tables.trials)
        wanted = {"workload": workload, "gpu": gpu, "choice_kind": choice_kind}
        for name, value in wanted.items():
            if value is not None:
                query = query.where(tables.trials.c[name] == storable(value))
        with explained(self.place), reading(self._engine) as connection:
            runs = _runs_by_id(connection)
            return tuple((runs[row["run_id"]], trial_of(row)) for row in connection.execute(query).mappings())

    def traces(self) -> tuple[tuple[Run, TraceSummary], ...]:
        with explained(self.place), reading(self._engine) as connection:
            runs = _runs_by_id(connection)
            rows = connection.execute(_oldest_first(tables.traces)).mappings()
            return tuple((runs[row["run_id"]], trace_of(row)) for row in rows)

    def forget(self, prefix: str) -> Run:
        with explained(self.place), writing(self._engine) as connection:
            query = select(tables.runs).where(tables.runs.c.id == _only_id(connection, prefix))
            run = _runs(connection, query)[0]
            connection.execute(delete(tables.runs).where(tables.runs.c.id == run.id))
            return run

    def _has(self, run_id: str) -> bool:
        with reading(self._engine) as connection:
            return connection.execute(select(tables.runs.c.id).where(tables.runs.c.id == run_id)).first() is not None


def _insert(connection: Connection, full: FullRun) -> None:
    connection.execute(insert(tables.runs), run_row(full.run))
    parts = (
        (tables.run_gpus, gpu_rows(full.run)),
        (tables.trials, trial_rows(full)),
        (tables.traces, trace_rows(full)),
    )
    for table, rows in parts:
        if rows:
            connection.execute(insert(table), rows)


def _runs(connection: Connection, query: Select[Any]) -> tuple[Run, ...]:
    """Return the runs of a query over the table of runs, each with its GPUs."""
    chosen = query.with_only_columns(tables.runs.c.id).subquery()
    gpu_query = select(tables.run_gpus).where(tables.run_gpus.c.run_id.in_(select(chosen.c.id)))
    gpus: defaultdict[str, list[RunGpu]] = defaultdict(list)
    for row in connection.execute(gpu_query.order_by(tables.run_gpus.c.position)).mappings():
        gpus[row["run_id"]].append(gpu_of(row))
    return tuple(run_of(row, tuple(gpus[row["id"]])) for row in connection.execute(query).mappings())


def _runs_by_id(connection: Connection) -> dict[str, Run]:
    return {run.id: run for run in _runs(connection, select(tables.runs))}


def _oldest_first(table: Any) -> Select[Any]:
    joined = select(table).join(tables.runs, tables.runs.c.id == table.c.run_id)
    return joined.order_by(tables.runs.c.started_at, tables.runs.c.id, table.c.position)


def _only_id(connection: Connection, prefix: str) -> str:
    """Return the only id that begins with `prefix`; an error names the candidates."""
    begins = func.substr(tables.runs.c.id, 1, len(prefix)) == storable(prefix)
    query = select(tables.runs.c.id).where(begins).order_by(tables.runs.c.id).limit(_MAX_CANDIDATES + 1)
    found: list[str] = list(connection.execute(query).scalars())
    if len(found) == 1:
        return found[0]
    if not found:
        raise StoreError(f"there is no run whose id begins with {prefix!r}", hint="list the runs with: wattune history")
    more = ", ..." if len(found) > _MAX_CANDIDATES else ""
    raise StoreError(
        f"several runs have an id that begins with {prefix!r}: {', '.join(found[:_MAX_CANDIDATES])}{more}",
        hint="give more of the id",
    )


def open_store(url: str) -> Store:
    """Open the store at a URL (`sqlite:///path`, `postgresql://...` or a plain path); create or migrate it if needed.

    It holds no connection between calls, so it needs no closing and may be used by several threads and after a fork.
    """
    engine = engine_of(url)
    with explained(place_of(engine.url)):
        if engine.dialect.name == "sqlite":
            use_write_ahead_log(engine)
        migrate(engine)
    return SqlStore(engine)
