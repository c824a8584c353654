"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "v1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, those that others point at first."""
    artifact()
    worker()
    job()
    event()
    candidate()
    review()
    kernel()


def downgrade() -> None:
    """Drop them."""
    for name in ("kernel", "review", "candidate", "event", "job", "worker", "artifact"):
        op.drop_table(name)


def artifact() -> None:
    """Files by content."""
    op.create_table(
        "artifact",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_artifact")),
    )


def worker() -> None:
    """Heartbeats."""
    op.create_table(
        "worker",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("doing", sa.Text(), nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_worker")),
    )


def job() -> None:
    """Jobs and their leases."""
    op.create_table(
        "job",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", words("kind", "optimize", "export"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "status",
            words("status", "queued", "running", "succeeded", "failed", "cancelled"),
            nullable=False,
        ),
        sa.Column("started", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("faults", sa.Integer(), nullable=False),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.Column("op", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("best", sa.Text(), nullable=True),
        sa.Column("best_rank", sa.Double(), nullable=False),
        sa.Column("outcome", words("outcome", "winner", "no_correct_candidate"), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("artifact", sa.Text(), nullable=True),
        sa.Column("filename", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["artifact"], ["artifact.sha256"], name=op.f("fk_job_artifact")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("key", name=op.f("uq_job_key")),
    )
    op.create_index(op.f("ix_job_kind_id"), "job", ["kind", "id"])
    op.create_index(op.f("ix_job_status_kind_id"), "job", ["status", "kind", "id"])


def event() -> None:
    """A job's log."""
    op.create_table(
        "event",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_event_job_id")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_event")),
    )


def candidate() -> None:
    """A job's attempts."""
    op.create_table(
        "candidate",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_candidate_job_id")),
        sa.PrimaryKeyConstraint("job_id", "index", name=op.f("pk_candidate")),
    )
    op.create_index(op.f("ix_candidate_digest"), "candidate", ["digest"])


def review() -> None:
    """People's decisions on attempts."""
    op.create_table(
        "review",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("decision", words("decision", "accept", "reject"), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("reviewer", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "index"],
            ["candidate.job_id", "candidate.index"],
            name=op.f("fk_review_job_id_index"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review")),
    )
    op.create_index(op.f("ix_review_job_id_index"), "review", ["job_id", "index"])


def kernel() -> None:
    """The library."""
    op.create_table(
        "kernel",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("op", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Text(), nullable=False),
        sa.Column("candidate_digest", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("origin", words("origin", "seed", "job"), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.Column("backward", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_kernel_job_id")),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_kernel")),
    )
    op.create_index(op.f("ix_kernel_candidate_digest"), "kernel", ["candidate_digest"])


def words(name: str, *values: str) -> sa.Enum:
    """A closed set, as text and a check."""
    return sa.Enum(*values, name=name, native_enum=False, create_constraint=True, length=32)
