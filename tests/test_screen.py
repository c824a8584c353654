"""What can be said from a candidate's text alone, with the line and what to do about it."""

from dataclasses import replace

import pytest
from exported import KERNEL
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import CandidateError
from evaluator.hidden import constants
from evaluator.screen import LONGEST, screen
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec, Option, Tensor, grid

OP = OpSpec(
    "scaled",
    {"x": Tensor("M N"), "w": Tensor("N")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(3, 5)]}, ("float32",)),
    options={"eps": Option(1e-6)},
)
RIGHT = """from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_stages=2)], key=["N"])
@triton.jit
def _kernel(x_ptr, N, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)  # a // b
    tl.store(x_ptr + col, tl.dot(tl.load(x_ptr + col), tl.softmax(col)), mask=col < N // 2)


def scaled(x, w, *, eps=1e-6, num_warps=4):
    try:
        input = torch.empty_like(x)
    except ValueError:
        pass
    print("ok // not a comment", input)
    _kernel[(triton.cdiv(x.numel(), 64),)](x, x.shape[0] // 2, num_warps=num_warps, num_stages=3)
    return input
"""
LAST = len(RIGHT.splitlines())


def said(source: str, op: OpSpec = OP, entry: str = "scaled", **config: int) -> str:
    try:
        screen(op, Candidate("scaled", source, entry, config=config))
    except CandidateError as error:
        return f"{error.stage}: {error.reason}"
    return ""


def test_ordinary_candidates_pass():
    assert said(RIGHT, num_warps=8) == ""
    one = OpSpec("softmax", {"x": Tensor("M N")}, {"y": Tensor("M N")}, (), {"scale": Option(1.0)})
    assert said(KERNEL, one, "softmax", num_warps=2) == ""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(:\n", "parse: line 1: invalid syntax"),
        ("x = 1\ny = (\n", "parse: line 2: '(' was never closed"),
        ("x = 1\x00", "parse: "),
        ("x = '\ud800'", "parse: not Python: "),
        ("#" * (LONGEST + 1), f"at most {LONGEST} are read"),
        ("(" * 5000, "parse: "),
    ],
)
def test_what_is_not_python_is_named_with_its_line(source, reason):
    assert reason in said(source)


def test_deep_trees_and_huge_numbers_are_ordinary_text():
    chain = "torch.empty(8)" + ".view(-1)" * 400
    assert said(f"{RIGHT}y = {chain}\n") == ""
    assert ".mm does the work" in said(f"{RIGHT}y = {chain}.mm(x)\n")
    number = "0x" + "f" * 5000
    assert said(f"{RIGHT}BITS = ({number}).bit_length()\n") == ""
    assert ".dot does the work" in said(f"{RIGHT}({number}).dot(x)\n")
    assert constants(f"x = {number}, 64") == {64}


@given(st.text(), st.integers(0, len(RIGHT)), st.integers(0, 40))
def test_no_text_raises_anything_else(text, at, cut):
    for source in (text, RIGHT[:at] + text + RIGHT[at + cut :]):
        said(source)
        assert Candidate("scaled", source, "scaled").digest


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import os", "os cannot be imported"),
        ("from subprocess import run", "subprocess cannot be imported"),
        ("import torch, ctypes", "ctypes cannot be imported"),
        ("from . import helper", "keep everything in one file"),
        ("eval('1')", "eval is not available"),
        ("run = exec", "exec is not available"),
        ("open('/etc/passwd')", "open is not available"),
        ("(1).__class__.__mro__", ".__mro__ looks inside"),
        ("scaled.__globals__", ".__globals__ looks inside"),
        ("torch.cuda.Event = None", "torch.cuda.Event belongs to a library"),
        ("torch.Tensor.__eq__ = None", "torch.Tensor.__eq__ belongs to a library"),
        ("triton.runtime.x: int = 1", "triton.runtime.x belongs to a library"),
        ("torch.ops.aten.mm(x, x)", "torch.ops.aten.mm does the work"),
        ("torch.nn.functional.silu(x)", "torch.nn.functional.silu does the work"),
        ("x = x @ x", "@ does the work in a library"),
        ("y = w.matmul(x)", "w.matmul does the work in a library"),
    ],
)
def test_a_line_that_no_kernel_needs_is_named(line, reason):
    found = said(f"{RIGHT}{line}\n")
    assert found.startswith(f"screen: line {LAST + 1}: ")
    assert reason in found


OWN = """
from triton import language
from triton.language import sum as total


class Softmax:
    def softmax(self, x):
        return x


_KERNELS = Softmax()


@triton.jit
def _product(a, b):
    return language.dot(a, b) + a.softmax()


def again(x):
    return _KERNELS.softmax(x), triton.__version__


_made = triton.jit(_product)
if __name__ == "__main__":
    print(torch.softmax(torch.ones(3, 5) @ torch.ones(5, 3), -1))
"""


def test_what_is_the_candidates_own_is_no_library():
    assert said(RIGHT + OWN) == ""
    assert "torch.mm does the work" in said(RIGHT + OWN.replace("_KERNELS.softmax", "torch.mm"))
    made = RIGHT.replace("@triton.autotune", "# ").replace("@triton.jit\n", "")
    assert "there is no @triton.jit" in said(made)
    assert said(f"{made}_kernel = triton.jit(_kernel)\n") == ""


@pytest.mark.parametrize(
    ("bound", "main"),
    [
        ('__name__ = "__main__"', "__main__"),
        ('for __name__ in ("__main__",): pass', "__main__"),
        ("from typing import Any as __name__", "__main__"),
        ("def __name__(): pass", "__main__"),
        ("try: ...\nexcept Exception as __name__: pass", "__main__"),
        ('vars()["__name__"] = "__main__"', "__main__"),
        ("print(__name__)", "candidate"),
    ],
)
def test_a_block_that_runs_at_import_is_screened(bound, main):
    block = f'if __name__ == "{main}":\n    import os\n'
    assert "os cannot be imported" in said(f"{RIGHT}{bound}\n{block}")
    kernel = "print(_kernel.__name__, __name__)"
    assert said(f'{RIGHT}{kernel}\nif __name__ == "__main__":\n    import os\n') == ""


def test_an_op_may_allow_a_library_call():
    for allows in (("mm",), ("aten.mm",), ("aten.mm.default",)):
        op = replace(OP, allows=allows)
        assert said(f"{RIGHT}torch.mm(x, x)\nx @ x\n", op) == ""
        assert "bmm does the work" in said(f"{RIGHT}torch.bmm(x, x)\n", op)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("def scaled", "def other", "there is no function 'scaled' at the top level"),
        ("@triton.jit\n", "", "there is no @triton.jit function"),
        ("scaled(x, w, *,", "scaled(x, *,", "is called with x, w, and takes 1"),
        ("scaled(x, w, *,", "scaled(x, w, b, *,", "nothing gives b a value"),
        ("eps=1e-6, num", "eps, rate, num", "nothing gives rate a value"),
        ("eps=1e-6, num", "num", "is called with x, w and eps=: add keyword parameters"),
    ],
)
def test_a_candidate_that_cannot_be_called_is_told_why(old, new, reason):
    assert reason in said(RIGHT.replace(old, new, 1))


def test_a_setting_that_the_entry_does_not_take_is_named():
    assert "BLOCK=, eps=" not in said(RIGHT, BLOCK=64)
    assert "BLOCK=" in said(RIGHT, BLOCK=64)


def test_keywords_may_be_taken_by_name_in_any_way():
    for signature in ("x, w, eps=1e-6, num_warps=1", "x, w, **settings", "*tensors, **settings"):
        source = RIGHT.replace("x, w, *, eps=1e-6, num_warps=4", signature)
        assert said(source, num_warps=4) == ""


def test_all_findings_come_at_once_and_no_more_than_five():
    found = said(RIGHT + "import os\nimport sys\n" + "eval('1')\n" * 9)
    assert found.count("line ") == 5
    assert "os cannot" in found
    assert "sys cannot" in found


def test_tuning_on_the_users_own_data_is_named():
    written = replace(OP, mutates=("x",))
    assert "line 11: tuning _kernel writes in place at each trial" in said(RIGHT, written)
    for safe in ('restore_value=["x_ptr"]', 'reset_to_zero=["x_ptr"]'):
        assert said(RIGHT.replace('key=["N"]', f'key=["N"], {safe}'), written) == ""
