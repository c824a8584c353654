"""Which options of a contract that are True or False may be both."""

from __future__ import annotations

from dataclasses import replace

from evaluator.hidden import free_axes
from evaluator.intake.asking import call_at, exports
from evaluator.intake.exactness import tolerance
from evaluator.intake.wire import Exported, Failure
from evaluator.isolate import Isolate
from kernel_library.spec import OpSpec, Workload


def with_both(op: OpSpec, isolate: Isolate) -> OpSpec:
    """The op with both values as choices of each switch that can be turned at hidden sizes.

    A switch keeps its value, and who ignores it passes, where turning it makes the reference raise
    or gives outputs of other shapes, dtypes or roundings, which no one contract describes; and
    where there are no hidden sizes.
    """
    switches = [name for name, option in op.options.items() if type(option.default) is bool]
    if not switches or not free_axes(op):
        return op
    able = set(switches)
    # a first and a last size, for a side may have the same length by chance
    for at in (op.workloads[0], op.workloads[-1]):
        turned = [_turned(op, at, name) for name in switches]
        calls = [call_at(op, one) for one in (at, *turned)]
        base, *others = exports(isolate, op.reference.source, op.reference.entry, calls)
        able &= {name for name, o in zip(switches, others, strict=True) if _alike(base, o)}
    options = {
        name: replace(option, choices=(False, True)) if name in able else option
        for name, option in op.options.items()
    }
    return replace(op, options=options)


def _turned(op: OpSpec, at: Workload, name: str) -> Workload:
    return replace(at, options={**at.options, name: not op.option_values(at)[name]})


def _alike(one: Exported | Failure, other: Exported | Failure) -> bool:
    """Whether one contract fits both graphs."""
    if isinstance(one, Failure) or isinstance(other, Failure):
        return False
    same = (one.outputs, one.mutated) == (other.outputs, other.mutated)
    return same and tolerance(one) == tolerance(other)
