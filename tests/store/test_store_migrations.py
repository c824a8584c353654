import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sample import OP, candidate
from sqlalchemy import inspect
from sqlalchemy.exc import IntegrityError, StatementError

from kernel_library.store import open_store
from kernel_library.store.database import migrating
from kernel_library.store.errors import Unavailable
from kernel_library.store.store import migrations
from kernel_library.store.tables import Event, Table, Worker


def downgrade(store, to):
    with migrating(store.database) as connection:
        config = migrations()
        config.attributes["connection"] = connection
        command.downgrade(config, to)


def checks(store):
    seen = inspect(store.database.engine)
    tables = Table.metadata.tables.values()
    return {c["name"] for t in tables for c in seen.get_check_constraints(t.name)}


def test_the_migrations_make_the_tables_that_the_code_expects(store):
    with store.database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []
    assert checks(store) == {
        "ck_job_kind", "ck_job_status", "ck_job_outcome", "ck_review_decision", "ck_kernel_origin",
    }  # fmt: skip


def test_down_and_up_again_gives_the_same_tables(store):
    assert store.is_current()
    downgrade(store, "base")
    assert not store.is_current()
    assert inspect(store.database.engine).get_table_names() == ["alembic_version"]
    store.migrate()
    assert store.is_current()
    assert store.add_kernel(OP, candidate()).version == 1


def test_migrating_twice_keeps_what_is_there(store):
    job, _ = store.submit("optimize", "a", {})
    store.migrate()
    assert store.job(job.id) == job


def test_many_may_migrate_at_once(store, url):
    downgrade(store, "base")
    stores = [open_store(url, store.files) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        [*pool.map(lambda each: each.migrate(), stores)]
    assert all(each.is_current() for each in stores)
    for each in stores:
        each.close()


def test_a_migration_that_breaks_leaves_nothing_behind(store):
    downgrade(store, "base")
    with pytest.raises(RuntimeError), migrating(store.database) as connection:
        Table.metadata.create_all(connection)
        raise RuntimeError
    assert inspect(store.database.engine).get_table_names() == ["alembic_version"]
    store.migrate()


def test_a_row_that_points_nowhere_is_refused(store):
    orphan = Event(job_id="job_none", seq=1, at=store.database.now(), kind="note", data={})
    with pytest.raises(IntegrityError), store.database.write() as session:
        session.add(orphan)


def test_an_error_of_the_database_shows_no_source(store):
    orphan = Event(
        job_id="job_none", seq=1, at=store.database.now(), kind="note", data={"text": "canary"}
    )
    with pytest.raises(IntegrityError) as refused, store.database.write() as session:
        session.add(orphan)
    assert "canary" not in str(refused.value)


def test_a_time_without_a_zone_is_refused(store):
    naive = Worker(name="w", queue="q", seen=datetime(2026, 1, 1), doing=None, facts={})
    with pytest.raises(StatementError, match="without a zone"), store.database.write() as session:
        session.add(naive)


def test_opening_a_store_makes_no_tables(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/new/store.db", tmp_path)
    assert not store.is_current()
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/x"])
def test_a_database_that_cannot_serve_is_refused(url, tmp_path):
    with pytest.raises(ValueError, match=r"SQLite needs a file|no store on"):
        open_store(url, tmp_path)


def test_sqlite_is_set_up_for_many_processes(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db", tmp_path)
    with store.database.engine.connect() as connection:
        asked = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in asked]
    assert found == ["wal", 1, 30000, 1]
    store.close()


def test_a_locked_database_is_our_own_error_and_hides_the_address(tmp_path):
    path = tmp_path / "secret.db"
    store = open_store(f"sqlite:///{path}", tmp_path)
    store.migrate()
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=50")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE").close()
        with pytest.raises(Unavailable) as refused:
            store.submit("optimize", "a", {})
    assert "secret" not in str(refused.value)
    store.close()


def test_no_server_is_our_own_error(tmp_path):
    pytest.importorskip("psycopg")
    store = open_store("postgresql://nobody:canary@127.0.0.1:1/none", tmp_path)
    with pytest.raises(Unavailable) as refused:
        store.ping()
    assert "canary" not in str(refused.value)
    store.close()
