"""The least work in a graph, for a problem that comes without formulas: flops and bytes.

Work is counted call by call on tensors without values. Counts at a few sizes then become a
formula over the axes, if there is one that gives exactly these counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import lcm, prod
from typing import Any, get_args

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from evaluator import aten
from evaluator.graphs import call, check
from kernel_library.graph import Graph, Node
from kernel_library.spec import Cost, DType

Term = int | Fraction
Point = tuple[Mapping[str, int], Sequence[Term]]

#: Vector operations an element: most ops are 1. The special function unit runs at a quarter.
_WEIGHTS = dict.fromkeys(
    ("exp", "exp2", "log", "log2", "log1p", "expm1", "sin", "cos", "tan", "tanh", "sigmoid", "erf",
     "pow", "rsqrt", "sqrt", "reciprocal", "div", "silu", "gelu", "softplus", "mish", "elu"), 4,
)  # fmt: skip
#: Operations an input element of ops that read each row more than once.
_ROWWISE = {
    "_softmax": 8, "_log_softmax": 8, "_safe_softmax": 8, "native_layer_norm": 6,
    "native_group_norm": 6, "native_batch_norm": 6, "_native_batch_norm_legit": 6,
    "_native_batch_norm_legit_functional": 6, "_batch_norm_with_update_functional": 6,
    "_fused_rms_norm": 4, "logsumexp": 6, "linalg_vector_norm": 2, "cumsum": 1, "cumprod": 1,
    "nll_loss_forward": 1, "avg_pool2d": 1, "max_pool2d_with_indices": 1,
}  # fmt: skip
#: Ops that may read only a part of their first argument.
_LOOKUPS = ("aten.embedding.", "aten.index.", "aten.index_select.", "aten.gather.", "aten.select.",
            "aten.slice.", "aten.narrow.", "aten.take.")  # fmt: skip
#: The least side of a matrix unit's tile: `tl.dot` takes no less.
_TILE = 16
_ATTENTION = "aten.scaled_dot_product_attention.default"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a graph does at one size, term by term: each term is a product of a few sizes.

    Terms come in an order that is the same at every size, so that they can be fitted one by one.
    """

    bytes: tuple[Term, ...]
    flops: tuple[Term, ...]
    matmul_flops: tuple[Term, ...]
    matmul_dtype: DType

    @property
    def cost(self) -> Cost:
        """The sums."""
        return Cost(
            int(sum(self.bytes)),
            int(sum(self.flops)),
            int(sum(self.matmul_flops)),
            self.matmul_dtype,
        )


@dataclass(slots=True)
class _Tally:
    flops: list[Term] = field(default_factory=list)
    matmul: list[Term] = field(default_factory=list)
    products: list[tuple[Term, str]] = field(default_factory=list)

    def multiply(self, terms: Sequence[Term], dtype: torch.dtype) -> None:
        """Note a matrix product."""
        self.matmul += terms
        self.products.append((sum(terms), str(dtype).removeprefix("torch.")))


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the ops that torch runs for one call of a graph."""

    def __init__(self, tally: _Tally) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tally = tally

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None  # noqa: ANN401
    ) -> Any:  # fmt: skip  # noqa: ANN401
        out = func(*args, **(kwargs or {}))
        packet, name = func._overloadpacket, func._overloadpacket.__name__
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **(kwargs or {}), out_val=out)
            if _is_narrow(aten.bound(func, args, kwargs or {})):
                self.tally.flops.append(flops)
            else:
                self.tally.multiply([flops], args[1 if "addmm" in name else 0].dtype)
        elif name in _ROWWISE:
            self.tally.flops.append(_ROWWISE[name] * args[0].numel())
        elif torch.Tag.pointwise in func.tags:
            self.tally.flops.append(_WEIGHTS.get(name, 1) * out.numel())
        elif torch.Tag.reduction in func.tags:
            self.tally.flops.append(args[0].numel())
        return out


def _is_narrow(given: Mapping[str, Any]) -> bool:
    """Whether it is a convolution by groups too narrow for a matrix unit, such as a depthwise."""
    groups: int = given.get("groups", 1)
    if groups == 1:
        return False
    ahead, behind = given["weight"].shape[:2]
    return bool(min(ahead // groups, behind) < _TILE)


def count(graph: Graph, inputs: Sequence[torch.Tensor]) -> Counts:
    """The graph's work on inputs of these shapes and dtypes; their values do not matter.

    Bytes are the parts of the inputs that are read and the distinct elements of the outputs, once
    each. Raises `ProblemError` for a malformed graph.
    """
    check(graph)
    tally = _Tally()
    cpu = torch.device("cpu")
    held = {name: aten.unpack(name, c) for name, c in graph.constants.items()}
    with FakeTensorMode() as fake, torch.no_grad():
        given = zip(graph.inputs, inputs, strict=True)
        values: dict[str, Any] = {
            name: torch.empty(tuple(t.shape), dtype=t.dtype) for name, t in given
        } | {name: fake.from_tensor(tensor) for name, tensor in held.items()}
        for node in graph.nodes:
            unseen = _Tally() if node.op == _ATTENTION else tally
            with _Counter(unseen):
                values[node.name] = call(node, values, cpu, False)
            if node.op == _ATTENTION:
                _count_attention(node, values, tally)
    dtype = max(tally.products, default=(0, "float32"), key=lambda p: p[0])[1]
    known: DType = dtype if dtype in get_args(DType) else "float32"  # type: ignore[assignment]
    moved = (*_read(graph, values), *_written(graph, values))
    return Counts(moved, tuple(tally.flops), tuple(tally.matmul), known)


def _count_attention(node: Node, values: Mapping[str, Any], tally: _Tally) -> None:
    """Two products over the pairs of query and key that the mask lets meet, and a softmax."""
    cpu = torch.device("cpu")
    args = [aten.decode(arg, values, cpu) for arg in node.args]
    kwargs = {k: aten.decode(v, values, cpu) for k, v in node.kwargs.items()}
    given = aten.bound(aten.resolve(node.op), tuple(args), kwargs)
    q, k, v = given["query"], given["key"], given["value"]
    rows, keys, heads = q.shape[-2], k.shape[-2], prod(q.shape[:-2])
    pairs: list[Term] = [rows * keys]
    if given["is_causal"]:
        # row i meets the first i + 1 keys
        corner = min(rows, keys)
        below = [(rows - keys) * keys] if rows > keys else []
        pairs = [Fraction(corner * corner, 2), Fraction(corner, 2), *below]
    wide = 2 * heads * (q.shape[-1] + v.shape[-1])
    tally.multiply([wide * p for p in pairs], q.dtype)
    tally.flops += [8 * heads * p for p in pairs]


def _read(graph: Graph, values: Mapping[str, Any]) -> Iterator[int]:
    """Bytes of each input that any kernel must read: what is looked up, if only that is asked."""
    for name in graph.inputs:
        users = [n for n in graph.nodes if {"ref": name} in _flat([*n.args, *n.kwargs.values()])]
        whole = _distinct_bytes(values[name])
        if all(_looks_up(node, name) for node in users):
            yield min(whole, sum(_distinct_bytes(values[node.name]) for node in users))
        else:
            yield whole


def _looks_up(node: Node, name: str) -> bool:
    first, *rest = node.args
    others = _flat([*rest, *node.kwargs.values()])
    return node.op.startswith(_LOOKUPS) and first == {"ref": name} and {"ref": name} not in others


def _flat(values: Sequence[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _written(graph: Graph, values: Mapping[str, Any]) -> Iterator[int]:
    """Bytes of each output that is not simply an input handed back."""
    for name in dict.fromkeys(graph.outputs):
        if name not in graph.inputs:
            yield _distinct_bytes(values[name])


def _distinct_bytes(tensor: torch.Tensor) -> int:
    """The tensor's elements, those that an expanded axis repeats counted once."""
    sizes = (n for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s != 0)
    return prod(sizes) * tensor.itemsize


def fit(points: Sequence[Point]) -> str | None:
    """The formula over axes whose value at each point is the sum of its terms; None if unfit.

    Each term must be one monomial, at most quadratic in each axis, at every point; so the formula
    is the sum of the terms' own, and holds at other sizes too. Each axis must have been varied.
    """
    if len({len(terms) for _, terms in points}) != 1:
        return None
    if any(len({dims[axis] for dims, _ in points}) == 1 for axis in points[0][0]):
        return None
    sums: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    dims = [sizes for sizes, _ in points]
    for column in zip(*(terms for _, terms in points), strict=True):
        found = _monomial(dims, column)
        if found is None:
            return None
        factor, powers = found
        sums[powers] += factor
    return _polynomial(list(dims[0]), sums)


def _monomial(
    dims: Sequence[Mapping[str, int]], values: Sequence[Term]
) -> tuple[Fraction, tuple[int, ...]] | None:
    axes = list(dims[0])
    for powers in sorted(product(range(3), repeat=len(axes)), key=sum):
        bases = [prod(at[a] ** p for a, p in zip(axes, powers, strict=True)) for at in dims]
        factor = Fraction(values[0]) / bases[0]
        if all(factor * base == value for base, value in zip(bases, values, strict=True)):
            return factor, powers
    return None


def _polynomial(axes: Sequence[str], sums: Mapping[tuple[int, ...], Fraction]) -> str:
    kept = {powers: factor for powers, factor in sums.items() if factor}
    if not kept:
        return "0"
    below = lcm(*(factor.denominator for factor in kept.values()))
    terms = []
    for powers, factor in sorted(kept.items(), key=lambda item: (-sum(item[0]), item[0])):
        names = [axis for axis, p in zip(axes, powers, strict=True) for _ in range(p)]
        whole = int(factor * below)
        terms.append(" * ".join([str(whole), *names] if whole != 1 or not names else names))
    total = " + ".join(terms)
    return total if below == 1 else f"({total}) // {below}"


def tabulate(points: Sequence[Point]) -> str:
    """The formula that gives each point's sum there; elsewhere 0, a bound that always holds."""
    formula = "0"
    for dims, terms in points:
        here = " and ".join(f"{axis} == {size}" for axis, size in dims.items()) or "1 == 1"
        formula = f"{int(sum(terms))} if {here} else ({formula})"
    return formula
