"""A connection to SQLite or PostgreSQL, as short reading and writing transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from kernel_library.store.errors import Unavailable
from kernel_library.store.tables import Table

WRITES = "kernelwright_writes"
#: The key of PostgreSQL's advisory lock: any number that nothing else in the database uses.
MIGRATING = 7203
#: Applied to each SQLite connection; the wait comes first, for the others may need it.
PRAGMAS = (
    "busy_timeout=30000",
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "foreign_keys=ON",
)
#: A worker that froze inside a transaction must not hold its rows for ever. Milliseconds.
LIMITS = "-c lock_timeout=30000 -c idle_in_transaction_session_timeout=60000"


def utc_now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Database:
    """An engine and a clock. Leases are timed by the clock, so tests can turn it."""

    engine: Engine
    now: Callable[[], datetime] = utc_now

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only looks."""
        with answering(), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that is committed at the end, or rolled back if the block raises.

        SQLite has one writer at a time, and takes the lock at the start: a transaction that reads
        first and writes later fails if another wrote in between, and no waiting helps it.
        """
        writer = self.engine.execution_options(**{WRITES: True})
        with answering(), Session(writer, expire_on_commit=False) as session, session.begin():
            yield session

    def lock(self, session: Session, table: type[Table]) -> None:
        """Keep other writers from adding to a table until the transaction ends."""
        if self.is_postgres:
            name = table.__tablename__
            session.execute(text(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE"))

    @property
    def is_postgres(self) -> bool:
        """Whether many may write at once."""
        return self.engine.dialect.name == "postgresql"


@contextmanager
def answering() -> Iterator[None]:
    """A database that is away or locked is a StoreError; its words may hold the address."""
    try:
        yield
    except OperationalError as error:
        raise Unavailable("the database does not answer, or is locked: try again") from error


def connect(url: str, now: Callable[[], datetime] = utc_now) -> Database:
    """A database by its SQLAlchemy url; SQLite's folder is made. Opens no connection yet.

    Raises ValueError for a url that is neither SQLite in a file nor PostgreSQL.
    """
    address = make_url(url)
    match address.get_backend_name():
        case "sqlite":
            engine = _sqlite(address)
        case "postgresql":
            engine = _postgres(address)
        case other:
            raise ValueError(f"no store on {other!r}: use sqlite:///<file> or postgresql://...")
    return Database(engine, now)


def _sqlite(address: URL) -> Engine:
    if not address.database or address.database == ":memory:":
        raise ValueError("SQLite needs a file: processes share it")
    Path(address.database).parent.mkdir(parents=True, exist_ok=True)
    # parameters hold sources, and an error's text ends up in a log
    engine = create_engine(address, hide_parameters=True)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _postgres(address: URL) -> Engine:
    return create_engine(
        address.set(drivername="postgresql+psycopg"),
        hide_parameters=True,
        pool_pre_ping=True,
        pool_use_lifo=True,
        connect_args={"options": LIMITS, "connect_timeout": 10},
    )


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    # the driver's own BEGIN comes late and is always deferred: ours is explicit
    connection.isolation_level = None
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def migrating(database: Database) -> Iterator[Connection]:
    """A writing transaction in which tables may be made anew, and which no other may enter."""
    writer = database.engine.execution_options(**{WRITES: True})
    with writer.connect() as connection:
        _foreign_keys(connection, on=False)
        try:
            with connection.begin():
                if database.is_postgres:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATING})"))
                yield connection
        finally:
            _foreign_keys(connection, on=True)


def _foreign_keys(connection: Connection, *, on: bool) -> None:
    # SQLite changes a table by copying it and dropping the old one, which its keys would forbid;
    # and the switch does nothing inside a transaction, so it goes past SQLAlchemy's
    driver = connection.connection.driver_connection
    if isinstance(driver, sqlite3.Connection):
        driver.execute(f"PRAGMA foreign_keys={'ON' if on else 'OFF'}").close()
