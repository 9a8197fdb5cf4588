"""The store over SQLAlchemy: the same statements for SQLite and PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, Select, Table, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from wattune.core.errors import StoreError
from wattune.core.frontier import History
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store import schema
from wattune.store.engine import (
    check_pages,
    engine_of,
    explained,
    is_readable_only,
    parse,
    place_of,
    read_only_engine,
    reading,
    use_write_ahead_log,
    writing,
)
from wattune.store.records import SETTING, FullRun, Run, RunExists, RunGpu, TraceSummary, TrialRecord, storable
from wattune.store.schema import migrate, record_of, row_of
from wattune.store.sql_job_store import JobStore

_MAX_CANDIDATES = 5


class Store:
    """The history of everything that was measured, in a database of the newest schema; `open_store` opens it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def place(self) -> str:
        """The store's place, for people: a path, or a URL without its password."""
        return place_of(self._engine.url)

    @property
    def jobs(self) -> JobStore:
        """The history of recurring jobs."""
        return JobStore(self._engine)

    def check(self) -> None:
        """Read everything once, and try whether it may be written; StoreError for the first that fails."""
        with reading(self._engine) as connection:
            check_pages(connection)
        self.runs()
        self.trial_records()
        self.traces()
        for job in self.jobs.jobs():
            self.jobs.job_runs(job.name)
            self.jobs.job_memory(job.name)
        with writing(self._engine) as connection:
            connection.execute(delete(schema.runs).where(schema.runs.c.id.is_(None)))

    def add_run(self, full: FullRun) -> None:
        """Store a run and all that belongs to it, in one transaction."""
        with writing(self._engine) as connection:
            insert_run(connection, full)

    def run(self, prefix: str) -> FullRun:
        """Return the only run whose id begins with `prefix`."""
        with reading(self._engine) as connection:
            return full_run(connection, _only_run(connection, prefix))

    def runs(
        self,
        *,
        limit: int | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        name: str | None = None,
    ) -> tuple[Run, ...]:
        """Return the runs, newest first; `name` matches a part of a run's name, in upper or lower case."""
        query = select(schema.runs).order_by(schema.runs.c.started_at.desc(), schema.runs.c.id).limit(limit)
        if kind is not None:
            query = query.where(schema.runs.c.kind == storable(kind))
        if since is not None:
            query = query.where(schema.runs.c.started_at >= since)
        if name is not None:
            query = query.where(schema.runs.c.name.icontains(storable(name), autoescape=True))
        with reading(self._engine) as connection:
            return runs_in(connection, query)

    def trials(self, *, workload: str, gpu: str, simulated: bool) -> History[Setting]:
        """Return every setting that was tried for a workload on a GPU, oldest first; simulated and real never mix."""
        records = self.trial_records(workload=workload, gpu=gpu, choice_kind=SETTING)
        return tuple(record.trial for _, record in records if record.simulated == simulated)

    def trial_records(
        self, *, workload: str | None = None, gpu: str | None = None, choice_kind: str | None = None
    ) -> tuple[tuple[Run, TrialRecord], ...]:
        """Return the trials with the run that each belongs to, oldest first."""
        query = _oldest_first(schema.trials)
        wanted = {"workload": workload, "gpu": gpu, "choice_kind": choice_kind}
        for name, value in wanted.items():
            if value is not None:
                query = query.where(schema.trials.c[name] == storable(value))
        with reading(self._engine) as connection:
            runs = _runs_of(connection, query)
            return tuple((runs[row["run_id"]], _trial_of(row)) for row in connection.execute(query).mappings())

    def latest_trials(self, *, kind: str, workload: str, gpu: str, simulated: bool) -> History[Setting]:
        """Return the settings that the latest run of a command tried for a workload on a GPU; none if it never ran."""
        like = {"workload": storable(workload), "gpu": storable(gpu), "simulated": simulated, "choice_kind": SETTING}
        wanted = [schema.trials.c[name] == value for name, value in like.items()]
        query = _oldest_first(schema.trials).where(schema.runs.c.kind == storable(kind), *wanted)
        newest = query.with_only_columns(schema.runs.c.id).order_by(None).order_by(schema.runs.c.started_at.desc())
        with reading(self._engine) as connection:
            rows = connection.execute(query.where(schema.runs.c.id == newest.limit(1).scalar_subquery())).mappings()
            return tuple(_trial_of(row).trial for row in rows)

    def traces(self) -> tuple[tuple[Run, TraceSummary], ...]:
        """Return the trace summaries with the run that each belongs to, oldest first."""
        with reading(self._engine) as connection:
            runs = _runs_of(connection, _oldest_first(schema.traces))
            rows = connection.execute(_oldest_first(schema.traces)).mappings()
            return tuple((runs[row["run_id"]], record_of(TraceSummary, row)) for row in rows)

    def forget(self, prefix: str) -> Run:
        """Delete a run with all that belongs to it, and return it."""
        with writing(self._engine) as connection:
            run = _only_run(connection, prefix)
            connection.execute(delete(schema.runs).where(schema.runs.c.id == run.id))
            return run


def insert_run(connection: Connection, full: FullRun) -> None:
    """Insert a run and all that belongs to it; `RunExists` if its id is known."""
    try:
        connection.execute(insert(schema.runs), row_of(schema.runs, full.run))
    except IntegrityError:
        raise RunExists(
            f"a run with the id {full.run.id} is in the store already", hint="give each run an id of its own"
        ) from None
    parts: tuple[tuple[Table, list[tuple[Any, ...]]], ...] = (
        (schema.run_gpus, [(gpu,) for gpu in full.run.gpus]),
        (schema.trials, [(trial, trial.setting or Setting(), trial.cost) for trial in full.trials]),
        (schema.traces, [(trace,) for trace in full.traces]),
    )
    for table, parts_of_rows in parts:
        rows = [row_of(table, *own, run_id=full.run.id, position=place) for place, own in enumerate(parts_of_rows)]
        if rows:
            connection.execute(insert(table), rows)


def full_run(connection: Connection, run: Run) -> FullRun:
    """Return a run with all that belongs to it."""
    trials, traces = (
        connection.execute(_oldest_first(table).where(table.c.run_id == run.id)).mappings()
        for table in (schema.trials, schema.traces)
    )
    return FullRun(run, tuple(map(_trial_of, trials)), tuple(record_of(TraceSummary, row) for row in traces))


def _trial_of(row: RowMapping) -> TrialRecord:
    setting = record_of(Setting, row)
    known = setting if row["choice_kind"] == SETTING or setting != Setting() else None
    return record_of(TrialRecord, row, setting=known, cost=record_of(Measurement, row))


def runs_in(connection: Connection, query: Select[Any]) -> tuple[Run, ...]:
    """Return the runs of a query over the table of runs, each with its GPUs."""
    chosen = query.with_only_columns(schema.runs.c.id).subquery()
    gpu_query = select(schema.run_gpus).where(schema.run_gpus.c.run_id.in_(select(chosen.c.id)))
    gpus: defaultdict[str, list[RunGpu]] = defaultdict(list)
    for row in connection.execute(gpu_query.order_by(schema.run_gpus.c.position)).mappings():
        gpus[row["run_id"]].append(record_of(RunGpu, row))
    return tuple(record_of(Run, row, gpus=tuple(gpus[row["id"]])) for row in connection.execute(query).mappings())


def _runs_of(connection: Connection, parts: Select[Any]) -> dict[str, Run]:
    """Return the runs that the trials or traces of a query belong to, by their ids."""
    ids = parts.with_only_columns(schema.runs.c.id).order_by(None)
    return {run.id: run for run in runs_in(connection, select(schema.runs).where(schema.runs.c.id.in_(ids)))}


def _oldest_first(table: Any) -> Select[Any]:
    joined = table.join(schema.runs, schema.runs.c.id == table.c.run_id)
    return select(table).select_from(joined).order_by(schema.runs.c.started_at, schema.runs.c.id, table.c.position)


def _only_run(connection: Connection, prefix: str) -> Run:
    """Return the only run whose id begins with `prefix`; an error names the candidates."""
    begins = func.substr(schema.runs.c.id, 1, len(prefix)) == storable(prefix)
    query = select(schema.runs.c.id).where(begins).order_by(schema.runs.c.id).limit(_MAX_CANDIDATES + 1)
    found: list[str] = list(connection.execute(query).scalars())
    if len(found) == 1:
        return runs_in(connection, select(schema.runs).where(schema.runs.c.id == found[0]))[0]
    if not found:
        raise StoreError(f"there is no run whose id begins with {prefix!r}", hint="list the runs with: wattune history")
    more = ", ..." if len(found) > _MAX_CANDIDATES else ""
    raise StoreError(
        f"several runs have an id that begins with {prefix!r}: {', '.join(found[:_MAX_CANDIDATES])}{more}",
        hint="give more of the id",
    )


def open_store(url: str, *, timeout_s: float | None = None) -> Store:
    """Open the store at a URL (`sqlite:///path`, `postgresql://...` or a plain path); create or migrate it if needed.

    It holds no connection between calls, so it needs no closing and may be used by several threads and after a fork.
    `timeout_s` bounds the time for connecting, for a lock and for a statement. A file that this user may only read can
    be read.
    """
    with explained(parse(url)):
        engine = engine_of(url, timeout_s=timeout_s)
        if engine.dialect.name == "sqlite" and is_readable_only(engine):
            engine = read_only_engine(url)
        elif engine.dialect.name == "sqlite":
            use_write_ahead_log(engine, timeout_s=timeout_s)
        migrate(engine)
    return Store(engine)
