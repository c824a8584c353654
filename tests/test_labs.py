"""What a lab keeps between candidates, by an isolate that the tests make up."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from candidates import RIGHT
from tapes import AT, CASE, op_of

from evaluator.errors import ProblemError
from evaluator.evaluate import LEFT_OUT
from evaluator.intake import Graphs
from evaluator.intake.wire import Ask, Exported, Exports, Failure, Meta, ask_json, reply_json
from evaluator.isolate import Done
from evaluator.labs import TOGETHER, Rooms, Tapes, players, replayed_lab
from evaluator.play.wire import Pace
from evaluator.turns import Turns
from kernel_library.candidate import Candidate
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import OpSpec, Reference, Tensor, grid

(COPY,) = op_of().reference.graphs.values()
OP = replace(op_of(), reference=Reference("def reference(x): ..."))
CEILINGS = Ceilings(4000.0, {"float32": 50.0}, 60.0, 1.0)
H200 = Device("NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS)


def at(n):
    return replace(AT, dims={"M": 3, "N": n})


def exporting(asked, meanwhile=lambda: None, why="N must be even"):
    """An isolate that exports a copy, of even sizes or small ones, and keeps the sizes."""

    def isolate(job, request, seconds):
        ask: Ask = ask_json.validate_json(request)
        shapes = [call.args[0].tensors[0].shape for call in ask.calls]
        asked.append([n for _, n in shapes])
        meanwhile()
        each = tuple(
            Exported(COPY, (Meta(shape, "float32"),), ())
            if shape[1] < 10 or shape[1] % 2 == 0
            else Failure(why)
            for shape in shapes
        )
        return Done(reply_json.dump_json(Exports(each)))

    return isolate


def test_a_workload_is_exported_once_and_travels_only_where_it_is_asked_for():
    asked = []
    graphs = Graphs(exporting(asked))
    first = graphs(OP, [at(5), at(6), at(5)])
    second = graphs(OP, [at(6), at(7)])
    assert asked == [[5, 6], [7]]
    assert list(first.reference.graphs) == [str(at(5)), str(at(6))]
    assert sorted(second.reference.graphs) == [str(at(6)), str(at(7))]


def test_two_candidates_export_side_by_side():
    both = threading.Barrier(2, timeout=20)
    graphs = Graphs(exporting([], both.wait))
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda n: graphs(OP, [at(n)]), (5, 6)))
    assert [list(op.reference.graphs) for op in made] == [[str(at(5))], [str(at(6))]]


def test_hidden_sizes_that_the_reference_cannot_take_are_left_out_but_no_public_one():
    asked = []
    graphs = Graphs(exporting(asked))
    tiny = replace(CASE, values="tiny")
    points = [(AT, CASE), (at(11), CASE), (at(12), CASE), (at(13), tiny)]
    for _ in range(2):
        able = graphs.able(OP, points)
        assert able == [(AT, CASE), (at(12), CASE), (AT, tiny)]
        assert len(graphs(OP, [at for at, _ in able]).reference.graphs) == 2
    assert asked == [[40, 11, 12, 13]]
    public = replace(OP, workloads=(AT, at(11)))
    with pytest.raises(ProblemError, match="must be even"):
        graphs.able(public, points)
    with pytest.raises(ProblemError, match="must be even"):
        graphs(OP, [at(11)])


@pytest.mark.parametrize("why", ["MemoryError", "RuntimeError: can't start new thread"])
def test_nothing_is_left_out_for_what_the_host_has_too_little_of(why):
    with pytest.raises(ProblemError, match=why):
        Graphs(exporting([], why=why)).able(OP, [(AT, CASE), (at(11), CASE)])


def test_a_problem_whose_constraint_nobody_wrote_down_still_has_a_verdict(judge):
    pairs = "def reference(x):\n    return (x * 2 + 1).unflatten(-1, (-1, 2)).flatten(1)\n"
    op = OpSpec(
        "pairs", {"x": Tensor("M N")}, {"y": Tensor("M N")},
        grid("M N", {"check": [(3, 40), (5, 126)]}, ("float32",)), reference=Reference(pairs),
    )  # fmt: skip
    verdict = judge(op, Candidate("pairs", RIGHT, "entry"))
    assert verdict.kind == "passed" and LEFT_OUT in verdict.record.checks[0]


def test_deep_looks_where_the_reference_can_and_tells_of_the_rest(monkeypatch, tmp_path):
    seen = []

    def look(op, candidate, points, bench):
        seen.append(points)
        return ("looked",)

    monkeypatch.setattr("evaluator.labs.look", look)
    measured = replace(at(4096), role="measure")
    op = replace(OP, workloads=(AT, replace(at(42), dims={"M": 5, "N": 42}), measured))
    rooms = Rooms(exporting([]), None, None, "none", Turns(tmp_path))
    lab = replayed_lab(rooms, H200, Pace(), secret=3)
    notes = lab.deep(op, Candidate("double", "", "entry"))
    (points,) = seen
    told = [*points.small, *points.matrix, *points.bent, *points.long]
    assert all(at.dims["N"] % 2 == 0 or at.dims["N"] < 10 for at, _ in told)
    assert notes[0] == "looked" and notes[1].endswith(f"of these sizes {LEFT_OUT}")


@pytest.mark.parametrize(
    ("cores", "gigabytes", "wanted"),
    [(16, 139, 16), (64, 139, 16), (16, 24, 4), (2, 139, 2), (8, 4, 1)],
)
def test_as_many_play_as_there_are_cores_and_memory_for(cores, gigabytes, wanted):
    assert players(cores, gigabytes << 30) == wanted


def test_points_are_compiled_for_in_parts_side_by_side_the_public_ones_first(monkeypatch, tmp_path):
    asked, both = [], threading.Barrier(2, timeout=20)

    def record(op, candidate, points, isolate, arch):
        asked.append([at.dims["N"] for at, _ in points])
        both.wait()
        return tuple(f"{at}" for at, _ in points)

    monkeypatch.setattr("evaluator.labs.record", record)
    rooms = Rooms(None, None, None, "none", Turns(tmp_path), desks=threading.BoundedSemaphore(2))
    # as many in each part, and none in a third
    hidden = [(at(n), CASE) for n in range(100, 103 + 2 * TOGETHER)]
    points = [*hidden, (AT, CASE)]
    made = Tapes(rooms, 90)(OP, Candidate("double", "", "entry"), points)
    assert made == tuple(f"{at}" for at, _ in points)
    rest = list(range(101 + TOGETHER, 103 + 2 * TOGETHER))
    assert sorted(asked) == [[AT.dims["N"], *range(100, rest[0])], rest]
