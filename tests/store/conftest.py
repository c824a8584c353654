"""Each test of the store runs over SQLite and, where a server answers, over PostgreSQL.

The server is at KERNELWRIGHT_TEST_POSTGRES, or the local one with its user `postgres`.
"""

import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.exc import OperationalError

from kernel_library.store import Store, open_store
from kernel_library.store.database import Database
from kernel_library.store.tables import Table

LOCAL = "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"


class Clock:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def turn(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database for the tests of a file, with nothing in it at first."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
        return
    server = postgres()
    name = f"kernelwright_test_{secrets.token_hex(6)}"
    run(server, f"CREATE DATABASE {name}")
    try:
        yield server.url.set(database=name).render_as_string(hide_password=False)
    finally:
        run(server, f"DROP DATABASE {name} WITH (FORCE)")
        server.dispose()


@pytest.fixture(scope="module")
def engine(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlalchemy.Engine]:
    """That database at head, with one cache of statements for all tests of a file."""
    store = open_store(url, tmp_path_factory.mktemp("unused"))
    store.migrate()
    yield store.database.engine
    store.close()


@pytest.fixture
def store(engine: sqlalchemy.Engine, tmp_path: Path, clock: Clock) -> Store:
    """An empty store, whose clock is `clock`."""
    store = Store(Database(engine, clock), tmp_path / "artifacts")
    with store.database.write() as session:
        for table in reversed(Table.metadata.sorted_tables):
            session.execute(table.delete())
    return store


def postgres() -> sqlalchemy.Engine:
    """The server, or a skip that says why there is none; one that was named must answer."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: PostgreSQL not tested")
    named = os.environ.get("KERNELWRIGHT_TEST_POSTGRES")
    url = sqlalchemy.make_url(named or LOCAL).set(drivername="postgresql+psycopg")
    server = sqlalchemy.create_engine(
        url, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 3}
    )
    try:
        run(server, "SELECT 1")
    except OperationalError as error:
        server.dispose()
        if named:
            raise
        pytest.skip(f"no PostgreSQL at {LOCAL}, its half is NOT TESTED: {error.orig}")
    return server


def run(server: sqlalchemy.Engine, statement: str) -> None:
    with server.connect() as connection:
        connection.execute(sqlalchemy.text(statement))
