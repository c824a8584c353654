"""What a stranger's process can see and do, and how it ends."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluator.errors import LabError
from evaluator.isolate import Died, Done
from evaluator.sandbox import Zygote, sandbox_level

SELFTEST = "evaluator.sandbox.selftest"
needs_namespaces = pytest.mark.skipif(
    sandbox_level() != "namespaces", reason="this host allows no namespaces: confinement not tested"
)


@pytest.fixture(scope="module")
def zygote():
    os.environ["CANARY_SECRET"] = "canary"
    with Zygote(preload=()) as started:
        yield started
    del os.environ["CANARY_SECRET"]


def look(zygote: Zygote) -> dict:
    done = zygote(f"{SELFTEST}:look", b"", 30)
    assert isinstance(done, Done), done
    return json.loads(done.body)


@needs_namespaces
def test_a_confined_child_sees_nothing_of_the_host(zygote):
    seen = look(zygote)
    assert not {"CANARY_SECRET", "KERNELWRIGHT_LLM_KEY"} & set(seen["environment"])
    assert seen["private"] == [] and seen["processes"] == [] and seen["pid"] == 1
    assert not {"home", "var", "srv", "mnt"} & set(seen["root"])


@needs_namespaces
def test_a_confined_child_cannot_write_outside_or_connect(zygote):
    seen = look(zygote)
    assert seen["writable"] == [] and not seen["can_connect"]


@needs_namespaces
def test_a_confined_child_holds_no_capability(zygote):
    assert look(zygote)["capabilities"] == 0


@pytest.mark.parametrize(
    ("job", "how"),
    [
        ("hang", "timeout"),
        ("leave", "killed"),
        ("raise_error", "raised"),
        ("fork_and_hang", "timeout"),
    ],
)
def test_each_way_to_end_is_named_in_bounded_time(zygote, job, how):
    started = time.monotonic()
    died = zygote(f"{SELFTEST}:{job}", b"", 2)
    assert isinstance(died, Died) and died.how == how, died
    assert time.monotonic() - started < 12


@needs_namespaces
def test_killing_a_child_kills_all_that_it_started(zygote):
    zygote(f"{SELFTEST}:fork_and_hang", b"", 1)
    assert [p.name for p in Path("/proc").glob("[0-9]*") if name_of(p) == "kw-orphan"] == []


def name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "gone"


@pytest.mark.parametrize("job", ["eat_memory", "fork_bomb", "fill_disk"])
@needs_namespaces
def test_a_bomb_is_contained_and_the_next_job_is_unaffected(zygote, job):
    died = zygote(f"{SELFTEST}:{job}", b"", 20)
    assert isinstance(died, Died), died
    assert isinstance(zygote(f"{SELFTEST}:look", b"", 30), Done)


def test_endless_output_is_cut(zygote):
    died = zygote(f"{SELFTEST}:chatter", b"", 2)
    assert isinstance(died, Died) and died.how == "timeout"
    assert died.text.startswith("chatter") and len(died.text) <= 4000


def test_jobs_run_side_by_side(zygote):
    with ThreadPoolExecutor(4) as pool:
        hung = pool.submit(zygote, f"{SELFTEST}:hang", b"", 3)
        started = time.monotonic()
        assert isinstance(zygote(f"{SELFTEST}:look", b"", 30), Done)
        assert time.monotonic() - started < 2.5
        assert hung.result().how == "timeout"


def test_a_lost_zygote_is_started_again(zygote):
    look(zygote)
    zygote._kept.process.kill()
    zygote._kept.process.wait()
    assert isinstance(zygote(f"{SELFTEST}:look", b"", 30), Done)


@pytest.mark.parametrize("confined", [True, False])
def test_a_zygote_outlives_the_thread_that_first_asked_for_it(confined):
    with Zygote(preload=(), confined=confined) as shared:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(shared, f"{SELFTEST}:raise_error", b"", 30).result()
        first = shared._kept.process.pid
        time.sleep(0.3)
        shared(f"{SELFTEST}:raise_error", b"", 30)
        assert shared._kept.process.pid == first


def test_an_open_zygote_runs_jobs_too():
    with Zygote(preload=("torch", "evaluator.play.job"), confined=False) as opened:
        assert isinstance(opened(f"{SELFTEST}:look", b"", 30), Done)
        assert opened(f"{SELFTEST}:hang", b"", 1).how == "timeout"


def test_a_zygote_that_dies_at_a_job_is_our_fault_and_says_why(tmp_path, monkeypatch):
    # a second thread makes forking unsafe, and the zygote refuses to go on
    wait = "import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True)"
    (tmp_path / "threaded.py").write_text(f"{wait}.start()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        Zygote(preload=("threaded",), confined=False) as opened,
        pytest.raises(LabError, match="must have one thread"),
    ):
        opened(f"{SELFTEST}:look", b"", 30)


def test_a_library_beside_the_package_is_seen_inside(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("WORD = 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Zygote(preload=("beside",)) as started:
        assert isinstance(started(f"{SELFTEST}:look", b"", 30), Done)


def test_a_zygote_that_cannot_start_says_why_and_leaves_nothing():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with (
        Zygote(preload=("no_such_module",)) as broken,
        pytest.raises(LabError, match="No module named 'no_such_module'"),
    ):
        broken(f"{SELFTEST}:look", b"", 30)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
