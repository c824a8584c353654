"""A whole race on a CPU: graphs, streams and events are stand-ins that record what is written."""

import contextlib
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tapes import AT, CASE, CLONE, CPU, SHORT_X, X, Y, op_of, tape_of
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.errors import CandidateError
from evaluator.play import baselines
from evaluator.play.check import Players
from evaluator.play.player import Player
from evaluator.play.race import race
from evaluator.play.statistics import Plan
from evaluator.play.timing import UNWATCHED, Clock, capture
from evaluator.play.wire import Pace, Race, Take
from evaluator.turns import Turns
from kernel_library.device import Ceilings, Device, Target
from kernel_library.tape import Call

FAST = Ceilings(1e6, {}, 1e6, 1e-3)
DEVICE = Device("stand-in", Target(), 1, 1 << 12, FAST, FAST)


class Writes(TorchDispatchMode):
    """Keeps the calls that write instead of making them, as a capture does."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        writes = function._schema.is_mutable and "set_" not in function._schema.name
        if not writes:
            return function(*args, **(kwargs or {}))
        self.kept.append((function, args, kwargs or {}))
        return args[0]


class Graph:
    def __init__(self):
        self.kept = []

    def replay(self):
        for function, args, kwargs in self.kept:
            function(*args, **kwargs)


class Event:
    def __init__(self, enable_timing=True):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


@contextlib.contextmanager
def graph(made, pool=None):
    with Writes(made.kept):
        yield


@pytest.fixture
def stand_ins(monkeypatch):
    stream = SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None)
    done = SimpleNamespace(CUDA_SUCCESS=0)
    bindings = SimpleNamespace(CUresult=done, cuCtxResetPersistingL2Cache=lambda: (0,))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", bindings)
    for name, stand_in in {
        "CUDAGraph": Graph, "graph": graph, "Event": Event, "Stream": lambda: stream,
        "current_stream": lambda device=None: stream, "graph_pool_handle": lambda: 0,
        "stream": lambda stream: contextlib.nullcontext(),
        "mem_get_info": lambda device=None: (1 << 26, 1 << 26),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)


@pytest.fixture
def raced(stand_ins, tmp_path):
    def run(recording, op, device=DEVICE):
        asked = Race(1, device, Pace(("eager", "cudnn"), 0.02))
        takes, turns = [Take(AT, CASE, recording)], Turns(tmp_path)
        reply = race(asked, takes, Players(op, CPU), lambda number: None, turns)
        return reply.measured[0], reply.notes

    return run


def test_a_race_times_the_candidate_beside_its_baselines(raced):
    measured, notes = raced(tape_of(CLONE), op_of())
    assert measured.low_us <= measured.time_us <= measured.high_us
    assert list(measured.baselines) == list(measured.versus) == ["eager"]
    assert measured.versus["eager"].low <= measured.versus["eager"].high
    assert "cudnn" in notes[0] and notes[1] == UNWATCHED


def test_a_rival_that_fails_is_told_and_the_others_race(raced, monkeypatch):
    def fails(args):
        raise ValueError

    def baseline(name, *how):
        return fails if name == "cudnn" else baselines.baseline(name, *how)

    monkeypatch.setattr("evaluator.play.race.baseline", baseline)
    measured, notes = raced(tape_of(CLONE), op_of())
    assert list(measured.baselines) == ["eager"]
    assert notes[0] == "cudnn: cannot be captured: ValueError"


def test_an_op_in_place_starts_again_before_each_sample(raced):
    def double(x):
        x.mul_(2)

    op = replace(op_of(double, mutates=("x",), outputs=()), allows=("mul_",))
    twice = Call("aten.mul_.Tensor", ({"view": 0}, 2.0), {}, (X,), ())
    measured, _ = raced(tape_of(twice, outputs=()), op)
    assert measured.time_us > 0


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ()), "off by"),
        (replace(CLONE, views=(SHORT_X,), results=(replace(SHORT_X, buffer=1),)), "never written"),
    ],
)
def test_what_was_timed_is_checked(raced, step, told):
    with pytest.raises(CandidateError, match=told):
        raced(tape_of(step), op_of())


@pytest.mark.parametrize("idle", range(4))
def test_each_set_is_looked_at_where_rivals_race(raced, monkeypatch, idle):
    bind, bound = Player.bind, []

    def bind_and_leave_one_out(self, inputs, poison=0):
        made = bind(self, inputs, poison)
        bound.append(made)
        if len(bound) == 2 + idle:  # the first is for a first look
            made.play = lambda stream=None: None
        return made

    monkeypatch.setattr(Player, "bind", bind_and_leave_one_out)
    monkeypatch.setattr("evaluator.play.race.plan", lambda *_: Plan(4, 2))
    with pytest.raises(CandidateError, match="never written"):
        raced(tape_of(CLONE), op_of())
    assert len(bound) == 5


def test_work_that_some_timed_calls_leave_out_is_seen(raced, monkeypatch):
    """Memory is made fresh before each, so what the last ones leave says nothing of others."""

    def capture_and_idle_at_first(name, acts, plan, before=()):
        arm = capture(name, acts, plan, before)
        if len(acts) == 2 and name == "candidate":
            (graph,) = arm.graphs
            work, idle = graph.replay, iter(range(2))
            graph.replay = lambda: next(idle, None) is None and work()
        return arm

    monkeypatch.setattr("evaluator.play.race.capture", capture_and_idle_at_first)
    monkeypatch.setattr("evaluator.play.race.plan", lambda *_: Plan(2, 2))
    monkeypatch.setattr(Clock, "warm", lambda *_: None)
    with pytest.raises(CandidateError, match="other bits in some of its timed calls"):
        raced(tape_of(CLONE), op_of())


def test_a_time_below_the_datasheet_is_refused(raced):
    slow = replace(DEVICE, datasheet=replace(FAST, bandwidth_gbs=1e-6))
    with pytest.raises(CandidateError, match="leaves out a part"):
        raced(tape_of(CLONE), op_of(), slow)
