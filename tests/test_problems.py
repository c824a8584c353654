"""Problems as people write them: each can be read, and a perfect answer to it is never refused."""

from functools import partial
from pathlib import Path

import pytest

from evaluator.admission import admit
from evaluator.hidden import INTERPRETED
from evaluator.inputs import draw, flat
from evaluator.intake import Graphs, read
from evaluator.interpret.judge import _compare
from evaluator.isolate import run_here
from evaluator.matrix import matrix
from evaluator.meaningful import told
from evaluator.picked import answers

PROBLEMS = sorted((Path(__file__).parent / "problems").glob("*.py"))
#: Tiles that a kernel for these might have: hidden sizes lie around them.
SOURCE = "BLOCK, TILE = 32, 128"
SECRET = 20261201


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_a_perfect_answer_passes_wherever_it_says_anything(path):
    op = read(path.name, path.read_text(), run_here).op
    assert "zeros" in admit(op)
    graphs = Graphs(run_here)
    points = graphs.able(op, matrix(op, SOURCE, SECRET, INTERPRETED))
    whole = graphs(op, [at for at, _ in points])
    held = 0
    for point in points:
        at, case = point
        graph, args = whole.reference.graphs[str(at)], flat(draw(op, at, case, "cpu"))
        ask = partial(answers, graph, args)
        wanted = told(op, point, ask, ask)
        if wanted is not None:
            pairs = zip(wanted.truth, wanted.own, strict=True)
            perfect = [truth.to(own.dtype) for truth, own in pairs]
            held += _compare(whole, point, perfect, "correct") is not None
    assert held > 0.7 * len(points)
