"""Runs kernels that cut a row among programs, each program a thread of Triton's interpreter.

    TRITON_INTERPRET=1 python tests/run_pieces.py softmax masked_softmax

Programs begin in random order, and one more of them is under way than a row has pieces. Prints one
JSON object a unit and time. In a process of its own, since the interpreter's executor is exchanged.
"""

import importlib
import inspect
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import sleep

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from triton.runtime import interpreter

from evaluator.interpret.whole import count

count(interpreter)
M, N, PIECE, PIECES, TIMES = 5, 300, 64, 5, 3
RANDOM = Random(0)
INF = float("inf")


class Threads(interpreter.GridExecutor):
    """Starts programs as a GPU may: some at a time, in any order."""

    def __call__(self, *tensors: object, **constants: object) -> None:
        names = inspect.getfullargspec(self.fn).args
        given = {k: v for k, v in constants.items() if k in names}
        scope = interpreter._patch_lang(self.fn)
        named = inspect.getcallargs(self.fn, *tensors, **given)
        args = {
            name: value if name in self.constexprs else interpreter._implicit_cvt(value)
            for name, value in named.items()
        }

        def program(delay: float) -> None:
            sleep(delay)
            self.fn(**args)

        try:
            with ThreadPoolExecutor(PIECES + 1) as under_way:
                delays = [RANDOM.random() / 500 for _ in range(self.grid[0])]
                list(under_way.map(program, delays))
        finally:
            scope.restore()


def drawn(seed: int) -> torch.Tensor:
    """Rows of five sorts: plain, with a piece of -inf, all -inf, with a NaN, with a far outlier."""
    x = torch.randn(M, N, generator=torch.Generator().manual_seed(seed))
    x[1, PIECE : 2 * PIECE], x[2], x[3, N - 1], x[4, 0] = -INF, -INF, float("nan"), 90.0
    return x


def run(name: str, scale: float) -> dict[str, object]:
    """The largest error, where NaN must be and is, and whether all times gave the same bits."""
    module = importlib.import_module(f"seeds.{name}")
    inputs = [drawn(0), drawn(1)][: len(module.OP.inputs)]
    strides = [t.stride(0) for t in (*inputs, inputs[0])]
    found = []
    for _ in range(TIMES):
        y, words = torch.full((M, N), 7.0), torch.zeros(M * PIECES + 1, dtype=torch.int64)
        getattr(module, f"_{name}_pieces")[(M * PIECES,)](
            *inputs, y, words, M, N, *strides, scale,
            FULL=False, SCALED=scale != 1.0, PIECES=PIECES, BLOCK=PIECE, LANES=64,
            X_HINT="", Y_HINT="", num_warps=1,
        )  # fmt: skip
        found.append(y)
    want = module.reference(*(t.double() for t in inputs), scale=scale).double()
    numbers = want.isfinite()
    return {
        "unit": name,
        "error": (found[0] - want)[numbers].abs().max().item(),
        "nan_rows": found[0].isnan().all(1).tolist(),
        "finite_rows": found[0].isfinite().all(1).tolist(),
        "same_bits": all(torch.equal(y[numbers], found[0][numbers]) for y in found),
    }


def main(names: list[str]) -> None:
    interpreter.GridExecutor = Threads
    for name in names:
        for scale in (1.0, 0.5):
            sys.stdout.write(json.dumps(run(name, scale)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
