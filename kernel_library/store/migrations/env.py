"""Alembic's way in: the caller has opened the transaction and handed over its connection."""

from alembic import context

from kernel_library.store.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
