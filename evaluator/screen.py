"""The stages `parse` and `screen`: what can be said of a candidate from its text alone.

This is feedback, not security: any rule here can be written around. What keeps a verdict honest is
that the candidate's Python never meets the data, the clock or the answer. A rule earns its place
by telling an author early what a later stage would reject in worse words.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set

from evaluator.errors import CandidateError
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec

#: Kernels people write are 5 to 60 KiB; what is longer is data in disguise.
LONGEST = 128 * 1024
MODULES = frozenset(
    {"torch", "triton", "math", "typing", "functools", "dataclasses", "__future__"}
    | {"collections", "itertools", "operator", "enum"}
)
FORBIDDEN = frozenset(
    {"exec", "eval", "compile", "open", "__import__", "globals", "locals", "breakpoint"}
    | {"setattr", "delattr"}
)
#: Dunder names that ordinary launchers read.
PLAIN_DUNDERS = frozenset(
    {"__name__", "__doc__", "__init__", "__post_init__", "__all__", "__version__"}
)
#: torch attributes that do an op's work: allowed only by the op's `allows`, by their last name.
LIBRARY = frozenset(
    {"matmul", "mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "einsum", "conv1d", "conv2d"}
    | {"conv3d", "linear", "softmax", "log_softmax", "layer_norm", "rms_norm", "tensordot"}
    | {"scaled_dot_product_attention", "_scaled_mm", "_grouped_mm", "_int_mm", "cross_entropy"}
)
_JIT = ("jit", "triton.jit")
Rule = Callable[[ast.AST, OpSpec], str | None]


def parse(candidate: Candidate) -> ast.Module:
    """The candidate's syntax tree. Raises `CandidateError` (stage "parse")."""
    try:
        size = len(candidate.source.encode())
        if size > LONGEST:
            told = f"the source has {size} bytes, at most {LONGEST} are read: leave data out"
            raise CandidateError("parse", told)
        return ast.parse(candidate.source)
    except SyntaxError as error:
        raise CandidateError("parse", f"line {error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CandidateError("parse", f"not Python: {error}") from error


def screen(op: OpSpec, candidate: Candidate) -> None:
    """Refuse what cannot pass later. Raises `CandidateError` (stage "parse" or "screen")."""
    tree = parse(candidate)
    # what runs where the file is the program is not run here, if the name is what it seems
    if not _renames_itself(tree):
        tree.body = [node for node in tree.body if not _is_main(node)]
    findings = [*_shape(tree, op, candidate), *_lines(tree, op)]
    if findings:
        raise CandidateError("screen", "; ".join(dict.fromkeys(findings[:5])))


def _shape(tree: ast.Module, op: OpSpec, candidate: Candidate) -> Iterator[str]:
    """What the module as a whole lacks: its entry, its arguments, a kernel."""
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    entry = functions.get(candidate.entry)
    if entry is None:
        yield f"there is no function {candidate.entry!r} at the top level: define it"
    else:
        yield from _arguments(entry, op, candidate)
    kernels = _kernels(tree)
    if not kernels and not any(isinstance(n, ast.Call) and _is_jit(n.func) for n in ast.walk(tree)):
        yield "there is no @triton.jit function: write the kernel in Triton"
    if entry is not None and op.mutates:
        yield from _trials(kernels, entry, op)


def _arguments(entry: ast.FunctionDef, op: OpSpec, candidate: Candidate) -> Iterator[str]:
    """Whether `entry(*inputs, **options, **config)` can be called."""
    args = entry.args
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    named = {*op.options, *candidate.config}
    takes = {a.arg for a in (*args.args[len(op.inputs) :], *args.kwonlyargs)}
    call = f"line {entry.lineno}: {entry.name} is called with {', '.join(op.inputs)}"
    if len(positional) < len(op.inputs) and args.vararg is None:
        yield f"{call}, and takes {len(positional)}: add parameters"
        return
    unmet = [a.arg for a in positional[len(op.inputs) : required] if a.arg not in named]
    unmet += [
        a.arg
        for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        if default is None and a.arg not in named
    ]
    if unmet:
        yield f"{call}: nothing gives {', '.join(unmet)} a value: add a default"
    extra = sorted(named - takes)
    if extra and args.kwarg is None:
        yield f"{call} and {', '.join(f'{n}=' for n in extra)}: add keyword parameters"


def _trials(kernels: list[ast.FunctionDef], entry: ast.FunctionDef, op: OpSpec) -> Iterator[str]:
    """Autotuners that would try an in-place kernel on their user's data, once for each setting."""
    takes = [a.arg for a in (*entry.args.posonlyargs, *entry.args.args)]
    written = {
        takes[n] for n, name in enumerate(op.inputs) if name in op.mutates and n < len(takes)
    }
    tuners = [
        (f, d)
        for f in kernels
        for d in f.decorator_list
        if isinstance(d, ast.Call) and _dotted(d.func).endswith("autotune")
    ]
    for function, tuner in tuners:
        given = _given(entry, function.name)
        # launched from elsewhere, by what names nobody knows
        if given is not None and not given & written:
            continue
        if not {k.arg for k in tuner.keywords} & {"restore_value", "reset_to_zero"}:
            said = f"line {tuner.lineno}: tuning {function.name} writes in place at each trial"
            yield f"{said}: give restore_value or reset_to_zero"


def _given(entry: ast.FunctionDef, kernel: str) -> set[str] | None:
    """The names in the arguments of a kernel's launches by the entry; None where it has none."""
    launches = [
        node
        for node in ast.walk(entry)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and _dotted(node.func.value) == kernel
    ]
    given = [v for n in launches for v in (*n.args, *(k.value for k in n.keywords))]
    names = {n.id for value in given for n in ast.walk(value) if isinstance(n, ast.Name)}
    return names if launches else None


def _kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions that Triton compiles."""
    functions = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]
    return [f for f in functions if any(map(_is_jit, f.decorator_list))]


def _is_jit(decorator: ast.expr) -> bool:
    return _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) in _JIT


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    match node:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value="__main__")],
            ),
            orelse=[],
        ):
            return True
    return False


def _renames_itself(tree: ast.Module) -> bool:
    """Whether `__name__` stands anywhere but where it is read: as a target, an alias, a string."""
    return any(
        value == "__name__" and not isinstance(getattr(node, "ctx", None), ast.Load)
        for node in ast.walk(tree)
        for _, value in ast.iter_fields(node)
    )


def _lines(tree: ast.Module, op: OpSpec) -> Iterator[str]:
    """What single lines do that a candidate has no need of."""
    inside = {id(node) for kernel in _kernels(tree) for node in ast.walk(kernel)}
    own = {name for node in tree.body for name in _bound(node)}
    for node in ast.walk(tree):
        said = [rule(node, op) for rule in RULES]
        if id(node) not in inside:
            said.append(_library(node, op, own))
        yield from (f"line {getattr(node, 'lineno', 1)}: {told}" for told in said if told)


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level gives to what is the candidate's own."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            spelled = ((n.asname or n.name).split(".")[0] for n in names)
            yield from (name for name in spelled if name not in ("torch", "F"))


def _imports(node: ast.AST, op: OpSpec) -> str | None:
    match node:
        case ast.Import(names=names):
            found = [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            found = [module]
        case ast.ImportFrom():
            return "there is no package to import from: keep everything in one file"
        case _:
            return None
    other = [name for name in found if name.split(".")[0] not in MODULES]
    return f"{other[0]} cannot be imported: use torch, triton and math" if other else None


def _builtins(node: ast.AST, op: OpSpec) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in FORBIDDEN:
            return f"{name} is not available: a launcher needs only tensors, sizes and launches"
    return None


def _dunders(node: ast.AST, op: OpSpec) -> str | None:
    match node:
        case ast.Attribute(attr=name) if _is_dunder(name) and name not in PLAIN_DUNDERS:
            return f".{name} looks inside the interpreter: leave it out"
    return None


def _patches(node: ast.AST, op: OpSpec) -> str | None:
    """Assignments to attributes of imported modules, as patched clocks are."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign():
            targets = node.targets
        case ast.AugAssign() | ast.AnnAssign():
            targets = [node.target]
    for target in targets:
        owner, dot, _ = _dotted(target).partition(".")
        if dot and owner in ("torch", "triton", "tl"):
            return f"{_dotted(target)} belongs to a library: do not assign to it"
    return None


def _library(node: ast.AST, op: OpSpec, own: Set[str]) -> str | None:
    """Calls that do the op's work in a library, unless the op allows them.

    By name alone, so that what belongs to the candidate's `own` objects is not meant.
    """
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as function):
            path = _dotted(function)
        case ast.BinOp(op=ast.MatMult()):
            name, path = "matmul", "@"
        case _:
            return None
    whole = path.startswith(("torch.ops.", "torch.nn.functional.", "F."))
    mine = path.split(".")[0] in own | {"math"}
    if mine or _allowed(name, op) or not (whole or name in LIBRARY):
        return None
    return f"{path} does the work in a library, which this op does not allow: use a kernel"


def _allowed(name: str, op: OpSpec) -> bool:
    """`allows` spells aten ops (`mm`, `aten.mm`, `aten.mm.default`); matmul and linear are mm."""
    allowed = {part for spelled in op.allows for part in spelled.split(".")}
    return name in allowed or (name in ("matmul", "linear") and "mm" in allowed)


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def _dotted(node: ast.expr) -> str:
    """The name that attributes spell, as `tl.sum`; of what another expression gives, as `.sum`.

    By a loop: to unparse recurses, and a chain of 400 calls is short as text and deep as a tree.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


RULES: tuple[Rule, ...] = (_imports, _builtins, _dunders, _patches)
