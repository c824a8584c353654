"""The store: all its parts in one, over a database whose tables it brings up to date."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from kernel_library.store.artifacts import Artifacts
from kernel_library.store.database import answering, connect, migrating
from kernel_library.store.jobs import Jobs
from kernel_library.store.kernels import Kernels
from kernel_library.store.leases import Leases
from kernel_library.store.reviews import Reviews
from kernel_library.store.workers import Workers


class Store(Jobs, Leases, Reviews, Kernels, Artifacts, Workers):
    """What is remembered. May be shared by threads; each process opens its own."""

    def migrate(self, to: str = "head") -> None:
        """Bring an empty or old database up to date; of many who ask at once, one does it."""
        with answering(), migrating(self.database) as connection:
            config = migrations()
            config.attributes["connection"] = connection
            command.upgrade(config, to)

    def is_current(self) -> bool:
        """Whether the database's tables are the ones that this code expects."""
        expected = ScriptDirectory.from_config(migrations()).get_heads()
        with answering(), self.database.engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_heads()
        return set(found) == set(expected)

    def ping(self) -> None:
        """Raises Unavailable if the database does not answer."""
        with self.database.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Give back every connection."""
        self.database.engine.dispose()


def open_store(url: str, artifacts: Path) -> Store:
    """A store by its SQLAlchemy url, `sqlite:///<file>` or `postgresql://...`; changes nothing."""
    return Store(connect(url), artifacts)


def migrations() -> Config:
    """Alembic's configuration, without a file: the scripts travel in the package."""
    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
