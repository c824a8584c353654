from hashlib import sha256

import pytest

from kernel_library.job import Finished
from kernel_library.store.errors import NotFound, StoreError

WHEEL = b"PK\x03\x04 a wheel"


def test_a_file_is_kept_under_its_content(store):
    sha = store.put_artifact(WHEEL, "fast_ops-1.0-py3-none-any.whl")
    assert sha == sha256(WHEEL).hexdigest()
    path, filename = store.artifact(sha)
    assert (path.read_bytes(), filename) == (WHEEL, "fast_ops-1.0-py3-none-any.whl")
    assert [p for p in store.files.rglob("*") if p.is_file()] == [path]


def test_the_same_content_is_kept_once_under_its_first_name(store):
    sha = store.put_artifact(WHEEL, "a.whl")
    assert store.put_artifact(WHEEL, "b.whl") == sha
    assert store.artifact(sha)[1] == "a.whl"
    assert len([p for p in store.files.rglob("*") if p.is_file()]) == 1


@pytest.mark.parametrize(
    "name", ["", "../a", "a/b", "/a", ".hidden", "a b", "a\n", "a\0", "a" * 201]
)
def test_a_file_name_is_plain(store, name):
    with pytest.raises(ValueError, match="plain file name"):
        store.put_artifact(WHEEL, name)
    assert not store.files.exists()


@pytest.mark.parametrize("sha", ["0" * 64, "../../etc/passwd", ""])
def test_an_unknown_file_is_not_found(store, sha):
    with pytest.raises(NotFound):
        store.artifact(sha)


def test_a_file_that_is_gone_from_disk_is_said_to_be_gone(store):
    sha = store.put_artifact(WHEEL, "a.whl")
    store.artifact(sha)[0].unlink()
    with pytest.raises(NotFound, match=r"a\.whl is gone"):
        store.artifact(sha)


def test_an_export_has_its_file(store):
    store.submit("export", "wheel", {"kernels": ["rms_norm"]})
    lease, job = store.claim(["export"], "w", 60)
    sha = store.put_artifact(WHEEL, "a.whl")
    store.set_artifact(lease, sha, "a.whl")
    store.complete(lease, "one kernel exported")
    job = store.job(job.id)
    assert (job.status, job.outcome, job.artifact, job.filename) == (
        "succeeded",
        None,
        sha,
        "a.whl",
    )
    assert [e.kind for e in store.events(job.id)][-2:] == ["artifact", "finished"]


def test_a_job_cannot_point_at_a_file_that_is_not_there(store):
    store.submit("export", "wheel", {})
    lease, job = store.claim(["export"], "w", 60)
    with pytest.raises(StoreError, match="put_artifact"):
        store.set_artifact(lease, "0" * 64, "a.whl")
    assert store.job(job.id).artifact is None
    store.finish(lease, Finished("no_correct_candidate", "still this worker's"))
