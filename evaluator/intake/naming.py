"""Which of an author's numbers a side of an example follows. Runs in the intake job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType

Shapes = Mapping[str, tuple[int, ...]]


def followed(
    module: ModuleType, numbers: Mapping[str, int], shapes: Callable[[], Shapes]
) -> dict[str, tuple[str, ...]]:
    """The number that moves each side of each argument, by the name of the argument.

    Numbers that are alike are told apart by changing one after the other in the author's module
    and asking for the `shapes` once more: with `batch, features = 16, 16` a weight follows one of
    them. An empty name stands for a side that follows none, or several, or whose number is like no
    other; arguments are left out where the author's code takes no other number.
    """
    count = Counter(numbers.values())
    alike = [name for name, value in numbers.items() if count[value] > 1]
    before = _tried(shapes) if alike else {}
    found: dict[str, dict[int, list[str]]] = {name: {} for name in before}
    for name in alike if before else ():
        setattr(module, name, 2 * numbers[name])
        after = _tried(shapes)
        setattr(module, name, numbers[name])
        for argument, sides in before.items():
            for i, moved in enumerate(after.get(argument, ())):
                if sides[i : i + 1] == (numbers[name],) and moved == 2 * numbers[name]:
                    found[argument].setdefault(i, []).append(name)
    return {
        argument: tuple(_only(found[argument].get(i, [])) for i in range(len(sides)))
        for argument, sides in before.items()
    }


def _tried(shapes: Callable[[], Shapes]) -> Shapes:
    try:
        return shapes()
    # the author's code, tried with numbers that it was not written for
    except Exception:
        return {}


def _only(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ""
