"""A small world for the API's tests: one job of each kind, and a real server on a free port."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from api.app import create_app
from api.serve import make_server
from api.settings import ApiSettings
from kernel_library.candidate import Candidate
from kernel_library.job import Attempt, Finished, Usage
from kernel_library.spec import OpSpec, Option, Reference, Tensor, Workload, grid
from kernel_library.store import Store, open_store
from kernel_library.verdict import (
    Checked,
    KernelFacts,
    Measurement,
    Passed,
    Record,
    Rejected,
    Versus,
)

SETTINGS = ApiSettings(poll_seconds=0.05)

REFERENCE = '''import torch


def reference(x, w, eps):
    """x / rms(x) * w over the last axis."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w
'''
SOURCE = '''import triton
import triton.language as tl


@triton.jit
def _rms_norm(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    """One row a program: read once, written once."""
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = tl.load(x_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + col, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x) / N + eps)
    tl.store(y_ptr + row * N + col, x * scale * w, mask=inside)


def rms_norm(x, w, eps, BLOCK, num_warps):
    y = torch.empty_like(x)
    _rms_norm[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=BLOCK, num_warps=num_warps)
    return y
'''
# a right-to-left override and a zero-width space, as in the "Trojan Source" papers
SNEAKY = SOURCE.replace("# ", "").replace(
    "    inside = col < N\n", "    inside = col < N  # \u202eN <= col\u202c\u200b\n"
)
OP = OpSpec(
    name="rms_norm",
    inputs={"x": Tensor("M N"), "w": Tensor("N")},
    outputs={"y": Tensor("M N")},
    workloads=grid(
        "M N",
        {"check": [(3, 127), (1, 1)], "measure": [(8192, 4096), (4096, 8192)]},
        ("bfloat16", "float32"),
    ),
    options={"eps": Option(1e-6)},
    constraints=("N <= 65536",),
    reference=Reference(REFERENCE),
)
CHECK, MEASURE = OP.workloads[0], OP.workloads[4]

BASE = Candidate("rms_norm", SOURCE, "rms_norm", {"BLOCK": 4096, "num_warps": 8}, why="one row")
FAST = Candidate(
    "rms_norm", SOURCE.replace("rsqrt", "math.rsqrt"), "rms_norm", {"BLOCK": 4096, "num_warps": 4},
    parent=BASE.digest, proposer="llm", why='Fewer warps <b>hide</b> "latency" \u202ebetter\u202c',
)  # fmt: skip
WRONG = Candidate(
    "rms_norm", SNEAKY, "rms_norm", parent=BASE.digest, proposer="llm", why="skip the mask"
)
UNTIMED = Candidate("rms_norm", SOURCE + "\n# same again\n", "rms_norm", proposer="templates")
UNBOXED = Candidate("rms_norm", SOURCE + "\n# judged anywhere\n", "rms_norm", proposer="human")

FACTS = (KernelFacts("_rms_norm", "sm_90", 40, 0, 1024, 8),)
REPLAYED = Record(
    "replayed", "namespaces", ("sm_90",), "NVIDIA H200",
    {"driver": "580.159", "torch": "2.11.0+cu130", "triton": "3.6.0"},
    ("hidden sizes", "poisoned outputs", "guard bands", "mutation"),
    {"record": 1.2, "smoke": 0.4, "correct": 3.1, "speed": 2.2, "deep": 61.0},
)  # fmt: skip
INTERPRETED = Record(
    "interpreted", "namespaces", ("sm_90",), None, {"torch": "2.13.0+cpu", "triton": "3.8.0"},
    ("poisoned outputs",), {"record": 1.1, "correct": 4.0},
)  # fmt: skip


def checked(*workloads: Workload) -> tuple[Checked, ...]:
    return tuple(Checked(at, 0.0031, 0.0034, 24) for at in workloads)


def measured(at: Workload, time_us: float) -> Measurement:
    baselines = {"eager": 47.4, "compile": 42.1}
    versus = {"eager": Versus(1.2, 1.3, "win"), "compile": Versus(0.99, 1.01, "tie")}
    return Measurement(
        at, time_us, time_us * 0.99, time_us * 1.02, 31.4, "memory", baselines, versus
    )


def timed(*times_us: float, record: Record = REPLAYED) -> Passed:
    spots = OP.workloads[4 : 4 + len(times_us)]
    timings = tuple(measured(at, us) for at, us in zip(spots, times_us, strict=True))
    return Passed(checked(*OP.workloads), record, timings, FACTS)


ATTEMPTS = (
    Attempt(BASE, timed(52.0, 66.0), 7.0),
    Attempt(WRONG, Rejected("correct", "wrong where a row is not a power of two", REPLAYED), 3.5,
            Usage(1200, 640, 0.0112)),
    Attempt(UNTIMED, Passed(checked(*OP.workloads[:4]), INTERPRETED, (), FACTS), 5.2),
    Attempt(FAST, timed(37.8, 41.5), 7.1, Usage(1900, 810, 0.0203)),
    Attempt(UNBOXED, timed(60.0, 70.0, record=Record("replayed", "rlimits", (), "NVIDIA H200"))),
)  # fmt: skip
REQUEST = {"filename": "rms_norm.py", "source": REFERENCE, "budget": {"seconds": 60}, "llm": True}


JOB = {"filename": "rms_norm.py", "source": "def reference(x):\n    return x\n"}
PROBLEM = "application/problem+json"


class World(NamedTuple):
    """What was put in: ids of a job that runs, one that ended, one that failed, and an export."""

    running: str
    ended: str
    failed: str
    exported: str


def new_store(folder: Path) -> Store:
    store = open_store(f"sqlite:///{folder / 'store.db'}", folder / "artifacts")
    store.migrate()
    return store


def start(store: Store, name: str = "rms_norm"):
    """A job of a worker's own."""
    job, _ = store.submit("optimize", name, REQUEST)
    lease, _ = store.claim(["optimize"], "worker-1", 600)
    store.set_op(lease, OP)
    return job.id, lease


def populate(store: Store) -> World:
    store.add_kernel(
        OP,
        BASE,
        doc="RMSNorm: y = x / rms(x) * w.\n\nOne read, one write.",
        backward="rms_norm_bwd",
    )
    failed, lease = start(store, "broken")
    where = {"title": "The problem cannot be read", "detail": "reference raised\n  KeyError: 'x'"}
    store.fail(lease, where | {"where": "line 7"})
    ended, lease = start(store)
    for attempt in ATTEMPTS:
        store.add_attempt(lease, attempt)
    why = "The attempts were used up: the best reached 79 % of the roofline."
    store.finish(lease, Finished("winner", why, FAST.digest, ("no model was asked twice",)))
    exported, _ = store.submit("export", "my_kernels", {"kernels": ["rms_norm"], "format": "wheel"})
    lease, _ = store.claim(["export"], "worker-1", 600)
    wheel = "my_kernels-1.0-py3-none-any.whl"
    store.set_artifact(lease, store.put_artifact(b"a wheel", wheel), wheel)
    store.complete(lease, "Built one kernel.")
    running, lease = start(store, "softmax")
    store.add_attempt(lease, ATTEMPTS[0])
    store.beat("worker-1", "local", running, {"gpu": "NVIDIA H200"})
    return World(running, ended, failed, exported.id)


@contextmanager
def serving(store: Store, settings: ApiSettings = SETTINGS) -> Iterator[str]:
    """The address of a real server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = make_server(create_app(store, settings=settings), "127.0.0.1", 0)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            store.close()
    assert not thread.is_alive(), "the server did not stop"


class Served(NamedTuple):
    """A populated store, the server over it, and a client that is no browser."""

    store: Store
    world: World
    url: str
    http: httpx.Client


@contextmanager
def a_world(folder: Path) -> Iterator[Served]:
    store = new_store(folder)
    world = populate(store)
    with serving(store) as url, httpx.Client(base_url=url, timeout=20) as http:
        yield Served(store, world, url, http)


def is_problem(response: httpx.Response, status: int, kind: str) -> dict:
    """The problem document that a response must be."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body = response.json()
    assert (body["type"], body["status"]) == (f"/problems/{kind}", status)
    assert body["title"] and body["detail"] and body["instance"] == response.url.path
    assert "Traceback" not in response.text
    return body
