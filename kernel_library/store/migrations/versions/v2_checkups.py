"""Kernels that are judged again, and may go into quarantine."""

import sqlalchemy as sa
from alembic import op

revision = "v2"
down_revision = "v1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; a kernel that was never judged again has no row."""
    op.create_table(
        "checkup",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["name", "version"],
            ["kernel.name", "kernel.version"],
            name=op.f("fk_checkup_name_version"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkup")),
    )
    op.create_index(op.f("ix_checkup_name_version"), "checkup", ["name", "version"])


def downgrade() -> None:
    """Drop it: what was found later is forgotten."""
    op.drop_table("checkup")
