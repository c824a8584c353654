"""What is to be computed: the contract of an op, as plain data.

Nothing here imports torch, so the API can read, check and store a contract on a machine that has
no GPU and no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from math import prod
from typing import Literal, get_args

from kernel_library.formula import Value, evaluate
from kernel_library.graph import Graph
from kernel_library.recipe import Normal, Recipe

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "int64", "int32", "int16", "int8", "uint8", "bool",
]  # fmt: skip
DTYPES: frozenset[str] = frozenset(get_args(DType))
ITEMSIZE: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
Role = Literal["check", "measure"]
Dims = Mapping[str, int | tuple[int, ...]]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument or result.

    `axes` are sizes by name or formula, parted by spaces (`"M K//128"`; empty for a scalar).
    `dtype` is one of `DTYPES`, or the name of a free dtype that each workload fills in.
    With `count`, the argument is a list of that many tensors, and an axis whose size in the
    workload is a tuple takes its i-th entry for the i-th tensor.
    """

    axes: str
    dtype: str = "T"
    recipe: Recipe = Normal()
    count: str | None = None

    def shape(self, names: Mapping[str, object]) -> Shape:
        """Put numbers to the axes: `Tensor("M N").shape({"M": 2, "N": 3})` is `(2, 3)`."""
        return tuple(int(evaluate(axis, names)) for axis in self.axes.split())

    def shapes(self, names: Mapping[str, object]) -> tuple[Shape, ...]:
        """The shape of each tensor of the argument: one, or `count` of them."""
        if self.count is None:
            return (self.shape(names),)
        picked = (
            {k: v[i] if isinstance(v, tuple) else v for k, v in names.items()}
            for i in range(int(evaluate(self.count, names)))
        )
        return tuple(self.shape(each) for each in picked)


@dataclass(frozen=True, slots=True)
class Option:
    """A setting that is no tensor: epsilon, a causal mask, a reduction. `choices` bounds it."""

    default: Value
    choices: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """One point at which an op is run: a size for each axis, a dtype for each free dtype."""

    dims: Dims
    dtypes: Mapping[str, DType]
    role: Role = "check"
    options: Mapping[str, Value] = field(default_factory=dict)
    weight: float = 1.0

    def __str__(self) -> str:
        sizes = (
            f"{a}{'+'.join(map(str, s)) if isinstance(s, tuple) else s}"
            for a, s in self.dims.items()
        )
        options = (f"{name}={value}" for name, value in self.options.items())
        return "-".join([*sizes, *self.dtypes.values(), *options])


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far from the float64 truth an answer may be.

    An output passes when its error is at most `times_torch` times the error of torch's own op at
    the same dtype, or within the scale-aware element bound of its dtype; and never when its
    relative norm error exceeds the cap of its dtype (reference values: evaluator/tolerance.py).
    `loosen` widens the element bound for ops that may round in between, such as quantisers.
    """

    times_torch: float = 3.0
    loosen: float = 1.0


@dataclass(frozen=True, slots=True)
class Count:
    """A number that only the data knows, for formulas: how many experts are hit, say.

    `kind` is "distinct" (distinct values of input `of`) or "sum" (their sum); `at_most` is the
    formula that bounds it before there are data.
    """

    kind: Literal["distinct", "sum"]
    of: str
    at_most: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The least work that any kernel must do at one workload.

    `matmul_flops` run on matrix units at `matmul_dtype`'s rate, `flops` on vector units.
    """

    bytes: int
    flops: int = 0
    matmul_flops: int = 0
    matmul_dtype: DType = "float32"


@dataclass(frozen=True, slots=True)
class Reference:
    """The op in PyTorch: source text and the function in it, and its aten graph per workload.

    `graphs` is keyed by `str(workload)`; the evaluator fills it in by exporting the source in the
    sandbox.
    """

    source: str
    entry: str = "reference"
    graphs: Mapping[str, Graph] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """An op's contract. Arguments are called in the order of `inputs`, options by keyword.

    `mutates` names the inputs that are written; each counts as an output as well, after the
    returned ones. `flops`, `matmul_flops` and `bytes` are formulas over axes, options and counts;
    an empty `bytes` means that each input is read once and each output written once.
    `constraints` are formulas that hold at every legal workload.
    """

    name: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    workloads: tuple[Workload, ...] = field(repr=False)
    options: Mapping[str, Option] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()
    flops: str = "0"
    matmul_flops: str = "0"
    matmul_dtype: str = "T"
    bytes: str = ""
    counts: Mapping[str, Count] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    tolerance: Tolerance = Tolerance()
    allows: tuple[str, ...] = ()
    reference: Reference = Reference("")

    def names(self, at: Workload) -> dict[str, object]:
        """What formulas may ask for: axis sizes, then options, then counts at their bound."""
        options = {name: at.options.get(name, o.default) for name, o in self.options.items()}
        names: dict[str, object] = {**at.dims, **options}
        return names | {n: evaluate(c.at_most, names) for n, c in self.counts.items()}

    def dtype(self, tensor: Tensor, at: Workload) -> DType:
        """The tensor's dtype at this workload. Raises KeyError for a free dtype left open."""
        fixed: DType = tensor.dtype if tensor.dtype in DTYPES else at.dtypes[tensor.dtype]  # type: ignore[assignment]
        return fixed

    def option_values(self, at: Workload) -> dict[str, Value]:
        """Every option's value at this workload."""
        return {name: at.options.get(name, o.default) for name, o in self.options.items()}

    def is_legal(self, at: Workload) -> bool:
        """Whether every constraint holds."""
        names = self.names(at)
        return all(bool(evaluate(c, names)) for c in self.constraints)

    def written(self) -> dict[str, Tensor]:
        """All tensors that a call writes: the outputs, then the mutated inputs."""
        return {**self.outputs, **{name: self.inputs[name] for name in self.mutates}}

    def cost(self, at: Workload, counts: Mapping[str, int] | None = None) -> Cost:
        """The least work here; `counts` are the data's own, without them their bounds hold.

        Formulas may also ask for `T_bytes`, the size of the free dtype `T`.
        """
        sizes = {f"{free}_bytes": ITEMSIZE[dtype] for free, dtype in at.dtypes.items()}
        names = sizes | self.names(at) | dict(counts or {})
        return Cost(
            bytes=int(evaluate(self.bytes, names)) if self.bytes else self._moved(at),
            flops=int(evaluate(self.flops, names)),
            matmul_flops=int(evaluate(self.matmul_flops, names)),
            matmul_dtype=self.dtype(Tensor("", self.matmul_dtype), at)
            if self.matmul_flops != "0"
            else "float32",
        )

    def _moved(self, at: Workload) -> int:
        tensors = [*self.inputs.values(), *self.written().values()]
        return sum(
            prod(shape) * ITEMSIZE[self.dtype(t, at)]
            for t in tensors
            for shape in t.shapes(self.names(at))
        )

    @property
    def digest(self) -> str:
        """The contract's identity: everything but its workloads and exported graphs."""
        parts = (
            self.name, self.inputs, self.outputs, self.options, self.mutates, self.constraints,
            self.tolerance, self.allows, self.reference.source, self.reference.entry,
        )  # fmt: skip
        return sha256("\0".join(map(repr, parts)).encode()).hexdigest()


def grid(
    axes: str,
    sizes: Mapping[Role, list[tuple[int, ...]]],
    dtypes: tuple[DType, ...],
    free: str = "T",
) -> tuple[Workload, ...]:
    """Every size at every dtype, under its role: the common case of a list of workloads."""

    def points() -> Iterator[Workload]:
        for role, shapes in sizes.items():
            for shape, dtype in product(shapes, dtypes):
                yield Workload(dict(zip(axes.split(), shape, strict=True)), {free: dtype}, role)

    return tuple(points())
