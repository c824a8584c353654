"""A candidate is judged at the public workloads and at hidden ones that a secret decides."""

import itertools
from dataclasses import replace

import pytest

from evaluator.compare import Errors
from evaluator.hidden import INTERPRETED, REPLAYED, constants, free_axes
from evaluator.inputs import ALL, bendable, places, size_of
from evaluator.layouts import LAYOUTS, place
from evaluator.matrix import (
    describe,
    is_public,
    matrix,
    shown,
    smoke,
    tally,
)
from evaluator.values import VALUES
from kernel_library.recipe import Index
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid

DTYPES = ("float32", "bfloat16")
ROWS = OpSpec(
    "rows",
    {"x": Tensor("M N"), "w": Tensor("N")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(1, 1), (3, 127), (18, 78)], "measure": [(8192, 4096)]}, DTYPES),
)
GEMM = OpSpec(
    "gemm",
    {"a": Tensor("M K"), "b": Tensor("K N")},
    {"c": Tensor("M N")},
    grid("M N K", {"check": [(16, 32, 64), (3, 16, 32)]}, ("float16",)),
    constraints=("K % 16 == 0",),
)
ATTENTION = OpSpec(
    "attention",
    {"q": Tensor("H S D"), "k": Tensor("G S D")},
    {"o": Tensor("H S D")},
    tuple(
        Workload({"H": h, "G": g, "S": s, "D": 16}, {"T": "float16"}, options={"causal": c})
        for h, g, s, c in [(4, 2, 33, True), (8, 1, 64, False)]
    ),
    options={"causal": Option(True, (True, False))},
    constraints=("H % G == 0",),
)
LISTS = OpSpec(
    "update",
    {"p": Tensor("S", "float32", count="2")},
    {},
    (Workload({"S": (3, 70)}, {}), Workload({"S": (1, 5)}, {})),
    mutates=("p",),
)
OPS = (ROWS, GEMM, ATTENTION, LISTS)
#: The classes that bend floats.
FLOATS = tuple(values for values in VALUES if values != "crowded")
names = {"ids": lambda op: getattr(op, "name", None)}


@pytest.mark.parametrize("budget", [INTERPRETED, REPLAYED], ids=["interpreted", "replayed"])
@pytest.mark.parametrize("op", OPS, **names)
def test_a_matrix_follows_from_its_secret(op, budget):
    assert matrix(op, "B = 64", 7, budget) == matrix(op, "B = 64", 7, budget)
    assert matrix(op, "B = 64", 7, budget) != matrix(op, "B = 64", 8, budget)


@pytest.mark.parametrize("budget", [INTERPRETED, REPLAYED], ids=["interpreted", "replayed"])
@pytest.mark.parametrize("op", OPS, **names)
def test_every_workload_is_legal_and_fits(op, budget):
    points = matrix(op, "BLOCK = 64", 3, budget)
    hidden = [at for at, _ in points if not is_public(op, at)]
    assert hidden
    assert all(op.is_legal(at) for at, _ in points)
    assert all(0 < size_of(op, at) <= budget.elements for at in hidden)
    assert {str(at) for at in op.workloads if at.role == "check"} <= {str(at) for at, _ in points}


@pytest.mark.parametrize("op", OPS, **names)
def test_all_layouts_and_value_classes_are_met(op):
    cases = [case for _, case in matrix(op, "", 3, INTERPRETED)]
    assert {c.values for c in cases} == {
        values for values in FLOATS if values == "recipe" or bendable(op, op.workloads[0], values)
    }
    rows = {"transposed", "padded", "expanded", "unlike"}
    flat = {"permuted", "sliced", "still", *rows} if op is LISTS else set()
    if op in (ROWS, GEMM):
        flat = {"permuted", "sliced"}
    assert {c.layout for c in cases} == set(LAYOUTS) - flat
    assert any(c.repeat for c in cases)
    assert {c.poison for c in cases} == {0, 1}


def test_a_case_with_a_layout_has_that_layout():
    for at, case in matrix(ROWS, "", 5, REPLAYED):
        if case.layout != "contiguous":
            spots = [s for spot in places(ROWS, at, case).values() for s in spot]
            assert any(not is_plain(s) for s in spots)


def is_plain(spot):
    return spot == place(spot.shape, "contiguous")


def bent(points):
    return {(c.values, c.on) for _, c in points if c.values != "recipe"}


def test_a_replay_bends_every_input_and_the_interpreter_the_first_and_any_one():
    each = {(values, on) for values in FLOATS[1:] for on in (0, 1)}
    alike = {("zeros", ALL), ("tiny", ALL), ("onehot", ALL)}
    assert bent(matrix(GEMM, "", 1, REPLAYED)) == each | alike
    three = replace(GEMM, inputs={**GEMM.inputs, "bias": Tensor("N")})
    some = bent(matrix(three, "", 1, INTERPRETED)) - alike
    assert {on for _, on in some} == {0, 1, 2}
    assert all((values, 0) in some for values in FLOATS[1:])
    assert len(some) < 2 * len(FLOATS[1:])


def test_each_value_class_meets_the_largest_public_size():
    largest = max(
        (at for at in ROWS.workloads if at.role == "check"), key=lambda at: size_of(ROWS, at)
    )
    for secret in range(20):
        met = {c.values for at, c in matrix(ROWS, "", secret, REPLAYED) if at == largest}
        assert met == set(FLOATS)


def test_large_values_are_met_in_each_dtype():
    for secret, budget in itertools.product(range(10), (INTERPRETED, REPLAYED)):
        points = matrix(ROWS, "", secret, budget)
        assert {at.dtypes["T"] for at, c in points if c.values == "large"} == set(DTYPES)


def test_each_pair_of_axes_is_as_long_as_each_other_once():
    for secret in range(10):
        hidden = [
            at.dims for at, _ in matrix(GEMM, "", secret, REPLAYED) if not is_public(GEMM, at)
        ]
        assert any(d["M"] == d["N"] > 2 for d in hidden)
        shown = [at.dims for at, _ in matrix(ROWS, "", secret, INTERPRETED)]
        assert any(d["M"] == d["N"] > 2 for d in shown)


def test_which_input_is_bent_follows_from_the_secret():
    three = replace(GEMM, inputs={**GEMM.inputs, "bias": Tensor("N")})
    masked = {c.on for n in range(20) for c in cases(three, n) if c.values == "masked"}
    assert masked == {0, 1, 2}


def cases(op, secret):
    return [case for _, case in matrix(op, "", secret, INTERPRETED)]


def test_each_free_axis_meets_one_and_the_edges_of_the_sources_tiles():
    for secret in range(5):
        points = matrix(GEMM, "BLOCK_M = 32", secret, INTERPRETED, hints=[16])
        hidden = [at.dims for at, _ in points if not is_public(GEMM, at)]
        for axis in "MN":
            assert any(dims[axis] == 1 for dims in hidden)
            assert any(dims[axis] in (15, 17, 31, 33) for dims in hidden)


def test_no_table_of_numbers_crowds_out_the_sizes():
    # 400 of them: two axes at a time were never both small enough, and no hidden size was left
    table = f"T = {[37 * n for n in range(1, 401)]}"
    for secret in range(5):
        for budget in (INTERPRETED, REPLAYED):
            points = matrix(GEMM, table, secret, budget)
            assert len({str(at) for at, _ in points if not is_public(GEMM, at)}) >= 5


def test_one_hidden_size_is_large_and_bent_cases_stay_small_where_they_must():
    quick = replace(REPLAYED, hidden=4, bent=1 << 15)
    for secret in range(20):
        unseen = [(at, c) for at, c in matrix(ROWS, "", secret, quick) if not is_public(ROWS, at)]
        plain = [at for at, c in unseen if (c.layout, c.values) == ("contiguous", "recipe")]
        assert max(size_of(ROWS, at) for at in plain) > 1 << 17
        rest = [at for at, c in unseen if (c.layout, c.values) != ("contiguous", "recipe")]
        assert rest and all(size_of(ROWS, at) <= 1 << 15 for at in rest)


def test_whole_tiles_and_one_more_than_nested_ones_are_met():
    for secret in range(5):
        sizes = {
            n
            for at, _ in matrix(ROWS, "B, G = 2**5, 12", secret, REPLAYED)
            if not is_public(ROWS, at)
            for n in at.dims.values()
        }
        assert {5, 12, 32} & sizes
        assert {16, 37, 97, 5 * 12 + 1, 5 * 32 + 1, 12 * 32 + 1} & sizes


def test_an_axis_that_the_op_fixes_is_left_alone():
    assert free_axes(ATTENTION) == ("H", "G", "S")
    points = matrix(ATTENTION, "B = 8", 3, REPLAYED)
    assert {at.dims["D"] for at, _ in points} == {16}


def test_options_vary_among_their_choices():
    hidden = [at for at, _ in matrix(ATTENTION, "", 3, REPLAYED) if not is_public(ATTENTION, at)]
    assert {at.options["causal"] for at in hidden} == {True, False}


def test_a_float_without_choices_moves_and_is_told_as_another_option():
    op = replace(
        ROWS,
        options={
            "eps": Option(1e-6),
            "beta": Option(0.9),
            "k": Option(3),
            "smoothing": Option(0.0),
        },
        constraints=("beta < 1",),
    )
    hidden = [at for at, _ in matrix(op, "", 3, REPLAYED) if not is_public(op, at)]
    values = [op.option_values(at) for at in hidden]
    assert {v["eps"] for v in values} == {1e-6, 64e-6, 1e-6 / 64}
    assert {v["beta"] for v in values} == {0.9, 0.8}
    assert {v["k"] for v in values} == {3} and {v["smoothing"] for v in values} == {0.0, 0.1, 1.0}
    moved = next(at for at in hidden if op.option_values(at)["eps"] > 1e-6)
    assert "with other options" in describe(op, moved, smoke(op)[1])
    spelled = replace(moved, options=op.option_values(op.workloads[0]))
    assert "with other options" not in describe(op, spelled, smoke(op)[1])
    narrow = replace(op, constraints=("beta > 0.85",))
    betas = {narrow.option_values(at)["beta"] for at, _ in matrix(narrow, "", 3, REPLAYED)}
    assert betas == {0.9}


def test_every_dtype_meets_hidden_sizes():
    hidden = [at for at, _ in matrix(ROWS, "", 3, INTERPRETED) if not is_public(ROWS, at)]
    assert {at.dtypes["T"] for at in hidden} == set(DTYPES)


def test_a_list_argument_keeps_its_length_and_gets_unequal_sizes():
    hidden = [at for at, _ in matrix(LISTS, "", 3, REPLAYED) if not is_public(LISTS, at)]
    assert {len(at.dims["S"]) for at in hidden} == {2}
    assert any(len(set(at.dims["S"])) == 2 for at in hidden)


def test_a_list_that_may_have_any_length_has_others():
    op = replace(LISTS, inputs={"p": Tensor("S", "float32", count="len(S)")})
    points = [point for secret in range(9) for point in matrix(op, "", secret, REPLAYED)]
    hidden = [at for at, _ in points if not is_public(op, at)]
    assert {1, 2, 17, 33, 129} <= {len(at.dims["S"]) for at in hidden}
    made = {len(at.dims["S"]) for n in range(9) for at, _ in matrix(op, "n > 64", n, REPLAYED)}
    assert 65 in made
    assert all(max(at.dims["S"]) < 128 for at in hidden if len(at.dims["S"]) > 2)


def test_an_axis_is_empty_where_the_contract_says_that_it_may_be():
    assert all(0 not in at.dims.values() for at, _ in matrix(ROWS, "", 3, REPLAYED))
    op = replace(ROWS, constraints=(*ROWS.constraints, "M >= 0"))
    points = matrix(op, "", 3, REPLAYED)
    assert {a for at, _ in points for a, n in at.dims.items() if n == 0} == {"M"}
    assert {case.layout for at, case in points if 0 in at.dims.values()} == {"contiguous"}


def test_an_op_of_one_size_and_no_float_is_judged_at_that_size():
    op = OpSpec(
        "ids",
        {"i": Tensor("N", "int64", Index("N"))},
        {"o": Tensor("N", "int64")},
        (Workload({"N": 8}, {}),),
    )
    points = matrix(op, "", 1, INTERPRETED)
    assert {str(at) for at, _ in points} == {"N8"}
    assert {c.values for _, c in points} == {"recipe", "crowded"}


def test_an_op_too_large_for_a_budget_is_judged_at_its_smallest():
    op = OpSpec(
        "big",
        {"x": Tensor("M")},
        {"y": Tensor("M")},
        grid("M", {"check": [(1 << 20,), (1 << 19,)]}, ("float32",)),
    )
    public = {at.dims["M"] for at, _ in matrix(op, "", 1, INTERPRETED) if is_public(op, at)}
    assert public == {1 << 19}


def test_smoke_is_the_first_check_workload():
    at, case = smoke(ROWS)
    assert at == ROWS.workloads[0]
    assert (case.layout, case.values) == ("contiguous", "recipe")


def test_constants_are_the_sizes_a_source_names():
    assert constants("BLOCK: int = 64\nf(x, num_warps=8, B=1 << 7, y=2.5, z=True)") == {
        64,
        8,
        7,
        128,
    }
    assert constants("2**6, 3 * 32, 2**999, 9**9**9, 5 // 0, 1 << 70, 0x" + 5000 * "f") == {
        6, 64, 32, 96, 9, 5, 70, 999
    }  # fmt: skip
    assert constants("not python (") == set()


def test_a_hidden_size_is_never_shown_or_described():
    points = matrix(ROWS, "B = 32", 3, REPLAYED)
    at, case = next((at, c) for at, c in points if not is_public(ROWS, at))
    assert shown(ROWS, at) is None
    told = describe(ROWS, at, case)
    start = f"at a hidden size in {at.dtypes['T']}"
    assert told.startswith(start) and not any(c.isdigit() for c in told.removeprefix(start))
    public = ROWS.workloads[0]
    assert shown(ROWS, public) == public


def test_hidden_errors_count_for_the_public_workload_of_their_dtype():
    hidden = Workload({"M": 9, "N": 9}, {"T": "bfloat16"})
    rows = tally(
        ROWS,
        [
            (ROWS.workloads[0], Errors(1e-7, 2e-7)),
            (ROWS.workloads[1], Errors(1e-3, 1e-3)),
            (hidden, Errors(3e-3, 5e-4)),
        ],
    )
    assert [(str(r.at), r.error, r.torch_error, r.cases) for r in rows] == [
        ("M1-N1-float32", 1e-7, 2e-7, 1),
        ("M1-N1-bfloat16", 3e-3, 1e-3, 2),
    ]


def test_a_setting_of_zero_makes_no_size():
    points = matrix(ROWS, "", 3, REPLAYED, hints=[0, 1])
    assert all(n > 0 for at, _ in points for n in at.dims.values())
