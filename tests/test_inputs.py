"""Inputs are drawn as their recipes say, the same for a seed, in the layout that was asked for."""

import pytest
import torch

from evaluator import poison
from evaluator.inputs import ALL, Case, bendable, draw, flat, places
from evaluator.layouts import LAYOUTS, place
from evaluator.values import INFINITE, VALUES
from kernel_library.export.templates._draw import draw as draw_exported
from kernel_library.recipe import (
    Index,
    Normal,
    Offsets,
    Permutation,
    Recipe,
    Scales,
    Simplex,
    Sorted,
    Structured,
    Uniform,
    written,
)
from kernel_library.spec import DTYPES, OpSpec, Tensor, Workload

FLOATS = sorted(d for d in DTYPES if "float" in d)
AT = Workload({"M": 6, "N": 10, "E": 12, "B": 4, "S": (3, 5)}, {"T": "float16"})


def op(mutates: tuple[str, ...] = (), **inputs: Tensor) -> OpSpec:
    return OpSpec("an_op", inputs, {"y": Tensor("M N")}, (AT,), mutates=mutates)


PLAIN = Case(0)


def one(tensor: Tensor, case: Case = PLAIN, at: Workload = AT) -> torch.Tensor:
    drawn = draw(op(x=tensor), at, case, "cpu")["x"]
    assert isinstance(drawn, torch.Tensor)
    return drawn


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(poison.bits(a.contiguous()), poison.bits(b.contiguous()))


@pytest.mark.parametrize("dtype", sorted(DTYPES - {"bool"}))
@pytest.mark.parametrize("recipe", [Normal(), Uniform(-2, 2), Scales(), Index("E")])
def test_every_recipe_draws_every_dtype(dtype, recipe):
    x = one(Tensor("M N", dtype, recipe))
    assert x.shape == (6, 10)
    assert x.dtype == getattr(torch, dtype)
    assert x.double().isfinite().all()
    assert len(x.double().unique()) > 1


def test_a_seed_gives_the_same_bits_and_another_seed_others():
    x = Tensor("M N")
    assert same_bits(one(x), one(x))
    # each bit counts: the secret's are 38
    assert not any(same_bits(one(x), one(x, Case(1 << bit))) for bit in range(38))
    both = flat(draw(op(a=x, b=x), AT, Case(0), "cpu"))
    assert not same_bits(*both)


def test_values_are_rounded_from_float32_into_the_dtype():
    wide = one(Tensor("M N", "float32"))
    for dtype in ("bfloat16", "float16", "float8_e4m3fn"):
        assert same_bits(one(Tensor("M N", dtype)), wide.to(getattr(torch, dtype)))


def test_index_stays_below_and_some_are_ignored():
    x = one(Tensor("M N", "int64", Index("E", ignored=-100, share=0.3)))
    assert ((x == -100) | ((x >= 0) & (x < 12))).all()
    assert (x == -100).any()
    assert (x >= 0).any()


def test_distinct_indices_differ_along_the_last_axis():
    x = one(Tensor("M N", "int32", Index("E", distinct=True)))
    assert all(len(row.unique()) == 10 for row in x)
    assert x.max() < 12


def test_offsets_rise_from_zero_to_the_total_with_an_empty_sequence():
    for seed in range(10):
        x = one(Tensor("B+1", "int32", Offsets("M*N")), Case(seed))
        lengths = x.diff()
        assert (x[0], x[-1]) == (0, 60)
        assert (lengths >= 0).all()
        assert (lengths == 0).any()


def test_one_bound_alone_is_where_the_first_sequence_begins():
    assert one(Tensor("B", "int64", Offsets("7")), at=Workload({"B": 1}, {})).tolist() == [0]


@pytest.mark.parametrize("sequences", [0, 1, 2])
def test_few_sequences_still_have_bounds(sequences):
    at = Workload({"B": sequences, "N": 7}, {})
    x = one(Tensor("B+1", "int64", Offsets("N" if sequences else "0")), at=at)
    assert x.tolist()[-1] == (7 if sequences else 0)
    assert x.tolist()[0] == 0


def test_a_recipe_is_written_as_a_unit_has_it():
    assert written(Normal()) == "Normal()"
    assert written(Sorted(Index("S+1", low=1))) == "Sorted(of=Index(below='S+1', low=1))"


def test_bounds_without_the_first_are_ends_and_without_the_last_starts():
    for seed in range(10):
        ends = one(Tensor("B", "int32", Offsets("N", first=False)), Case(seed))
        starts = one(Tensor("B", "int32", Offsets("N", last=False)), Case(seed))
        assert len(ends) == len(starts) == 4
        assert (ends[-1], starts[0]) == (10, 0)
        assert (ends.diff() >= 0).all() and (starts.diff() >= 0).all()
    at = Workload({"B": 1, "N": 7}, {})
    assert one(Tensor("B", "int64", Offsets("N", first=False)), at=at).tolist() == [7]


@pytest.mark.parametrize("distinct", [False, True])
def test_an_index_may_start_above_zero(distinct):
    at = Workload({"M": 200, "N": 4, "E": 9}, {})
    x = one(Tensor("M N", "int64", Index("E", low=3, distinct=distinct)), at=at)
    assert sorted(x.unique().tolist()) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("of", [Normal(), Uniform(-1, 2), Index("E")])
def test_what_is_sorted_stays_so_however_it_is_bent(of, values):
    dtype = "int64" if isinstance(of, Index) else "float32"
    x = one(Tensor("M N", dtype, Sorted(of)), Case(0, values=values))
    assert (x[:, 1:] >= x[:, :-1]).all()
    plain = one(Tensor("M N", dtype, of), Case(0, values=values))
    if values in ("recipe", "offset", "large", "negative", "tiny", "zeros", "ties"):
        assert torch.equal(x, plain.sort(-1).values)


@pytest.mark.parametrize("values", VALUES)
def test_a_structured_matrix_stays_so_however_it_is_bent_and_laid_out(values):
    at = Workload({"B": 3, "N": 9}, {})
    forms = {"upper": torch.triu, "lower": torch.tril, "symmetric": lambda x: x.mT}
    for form, same in forms.items():
        for layout in LAYOUTS:
            tensor = Tensor("B N N", "float32", Structured(Normal(), form))
            x = one(tensor, Case(0, layout, values), at)
            assert torch.equal(x, same(x)), (form, layout)
            assert values in ("zeros", "onehot") or (x.triu() if form != "lower" else x).any()


def test_a_simplex_sums_to_one_and_a_permutation_permutes():
    weights = one(Tensor("M N", "float32", Simplex()))
    assert (weights > 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(6))
    order = one(Tensor("M N", "int64", Permutation()))
    assert torch.equal(order.sort(-1).values, torch.arange(10).expand(6, 10))


def test_scales_are_positive_and_within_bounds():
    x = one(Tensor("M N", "float32", Scales(0.01, 2.0)))
    assert (x >= 0.01).all()
    assert (x <= 2.0).all()


def test_a_bool_is_true_with_its_chance():
    at = Workload({"M": 100, "N": 100}, {})
    assert 0.2 < one(Tensor("M N", "bool", Uniform(0, 0.25)), at=at).double().mean() < 0.3


def test_a_list_argument_has_a_size_of_its_own_for_each_tensor():
    drawn = draw(op(x=Tensor("S N", count="2")), AT, Case(0), "cpu")["x"]
    assert [tuple(t.shape) for t in drawn] == [(3, 10), (5, 10)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn", "int64"])
def test_a_layout_is_where_it_said_it_would_be(layout, dtype):
    tensor, case = Tensor("B M N", dtype), Case(0, layout)
    (spot,) = places(op(x=tensor), AT, case)["x"]
    x = one(tensor, case)
    assert (x.stride(), x.storage_offset()) == (spot.stride, spot.offset)
    assert x.untyped_storage().nbytes() == spot.room * x.element_size()
    if layout == "expanded":
        assert same_bits(x[0], x[1])
    elif layout == "still":
        assert len(x.double().unique()) == 1
    else:
        assert same_bits(x, one(tensor))


@pytest.mark.parametrize("axes", ["", "N", "M 0", "0", "1", "1 1 N"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_shape_takes_any_layout(axes, layout):
    x = one(Tensor(axes), Case(0, layout))
    assert x.double().isfinite().all()


def test_gaps_hold_nan():
    x = one(Tensor("M N"), Case(0, "step2"))
    assert torch.as_strided(x, (60,), (2,), 1).isnan().all()
    assert x.isfinite().all()


def test_a_mutated_input_is_never_expanded():
    x = Tensor("M N")
    for on in range(4):
        where = places(op(("a",), a=x, b=x, c=x), AT, Case(0, "expanded", on=on))
        assert where["a"][0].stride == (10, 1)
        # down the columns first, then along the rows
        assert [where[n][0].stride[on // 2] for n in "bc"].count(0) == 1


def test_channels_lie_last_by_turns():
    images = torch.empty(2, 3, 4, 5)
    lain = [place(tuple(images.shape), "permuted", number) for number in range(2)]
    last = images.to(memory_format=torch.channels_last)
    assert [spot.stride == last.stride() for spot in lain] == [False, True]
    assert all(spot.room == images.numel() for spot in lain)


def test_masks_have_rows_of_one_value_where_a_class_masks():
    mask = Tensor("M N", "bool", Uniform(0, 1))
    assert bendable(op(x=mask), AT, "masked") == ["x"] and bendable(op(x=mask), AT, "large") == []
    for seed in range(5):
        none, every = (one(mask, Case(seed, values=v)) for v in ("masked", "overflowed"))
        assert not none.any(-1).all() and none.any() and every.all(-1).any()
        assert one(mask, Case(seed, values="infinite")).sum() < one(mask, Case(seed)).sum()


def test_of_several_indices_one_is_the_first_and_one_the_last():
    for seed in range(5):
        x = one(Tensor("M N", "int64", Index("1000")), Case(seed))
        assert (x.min(), x.max()) == (0, 999)


def test_each_layout_has_the_strides_that_it_is_called_by():
    x = Tensor("B M N")
    spec = op(x=x, y=x, z=x, u=x)
    strides = {
        layout: [spots[0].stride for spots in places(spec, AT, Case(0, layout)).values()]
        for layout in LAYOUTS
    }
    rows = [(6 * n, n, 1) for n in (26, 42, 58, 74)]
    assert strides["padded"] == rows
    assert strides["permuted"] == [(10, 40, 1)] * 4
    assert strides["sliced"] == [(70, 10, 1)] * 4
    assert strides["still"] == [(0, 0, 0)] + [(60, 10, 1)] * 3
    assert strides["unlike"] == [(60, 10, 1), (60, 1, 6), rows[2], (120, 20, 2)]
    four = op(q=(y := Tensor("B M E N")), k=y)
    sliced = [places(four, AT, Case(0, "sliced", on=on)) for on in (0, 1)]
    assert [[spots[0].stride for spots in each.values()] for each in sliced] == [
        [(780, 130, 10, 1), (840, 120, 10, 1)], [(840, 120, 10, 1), (780, 130, 10, 1)],
    ]  # fmt: skip
    turned = places(spec, AT, Case(0, "unlike", on=1))
    assert [turned[n][0].stride for n in "xu"] == [(60, 1, 6), (60, 10, 1)]


def test_what_a_recipe_ties_together_is_never_one_value():
    spec = op(x=Tensor("M N", "int64", Permutation()), y=Tensor("M N"))
    assert [places(spec, AT, Case(0, "still"))[n][0].stride for n in "xy"] == [(10, 1), (0, 0)]
    # laid out alone, each by turns has one value for all rows and one for each row
    for name, strides in (("x", {(10, 1), (0, 1)}), ("y", {(10, 1), (0, 1), (1, 0)})):
        cases = [Case(0, "expanded", on=on) for on in range(4)]
        assert {places(spec, AT, case)[name][0].stride for case in cases} == strides


def test_offsets_keep_their_layout():
    x = Tensor("B+1", "int32", Offsets("N"))
    assert places(op(x=x), AT, Case(0, "step2"))["x"][0].stride == (1,)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("values", VALUES)
def test_a_value_class_stays_within_its_dtype(dtype, values):
    x = one(Tensor("M N", dtype), Case(3, values=values)).double()
    assert not x.isnan().any()
    assert values == "overflowed" or not (x == float("inf")).any()
    if values not in INFINITE:
        assert x.isfinite().all()


@pytest.mark.parametrize("values", [values for values in VALUES if values != "crowded"])
def test_a_value_class_is_what_it_is_called(values):
    at = Workload({"M": 32, "N": 40}, {})
    plain = one(Tensor("M N", "float32"), at=at)
    x = one(Tensor("M N", "float32"), Case(0, values=values), at)
    holds = {
        "recipe": same_bits(x, plain),
        "offset": (x.mean() > 50).item() and (x.std() < 2).item(),
        "large": (x.std() > 1e3).item(),
        "negative": (x <= 0).all().item() and (x.mean() < -1e3).item(),
        "tiny": (x.abs().max() < 1e-4).item() and (x != 0).all().item(),
        "mixed": (x.std(-1).max() > 100 * x.std(-1).min()).item(),
        "zeros": (x == 0).all().item(),
        "ties": len(x.unique()) < 20,
        "infinite": (x == -float("inf")).any().item() and x.isfinite().any().item(),
        "masked": 1 <= (x == -float("inf")).all(-1).sum().item() < 32,
        "overflowed": (x == float("inf")).any().item() and not (x == -float("inf")).any().item(),
        "onehot": ((x != 0).sum(-1) == 1).all().item(),
        "ramp": not same_bits(x, x.reshape(40, 32).T.contiguous().reshape(32, 40)),
    }
    assert holds[values]


def test_indices_crowd_and_stay_indices():
    at = Workload({"M": 4096, "E": 8}, {})
    ids = Tensor("M", "int64", Index("E", ignored=-100, share=0.1))
    spec = op(x=ids, y=Tensor("M 1", "int64", Index("E", distinct=True)))
    assert bendable(spec, at, "crowded") == ["x"]
    plain, drawn = (draw(spec, at, Case(0, values=v), "cpu")["x"] for v in ("recipe", "crowded"))
    assert max(torch.bincount(plain[plain >= 0])) < 1024
    _, counts = drawn.unique(return_counts=True)
    assert 0.9 * 4096 < counts.max() < 4096 and set(drawn.tolist()) <= {-100, *range(8)}


def test_weights_that_sum_to_one_may_be_one_alone():
    w = one(Tensor("M N", "float32", Simplex()), Case(0, values="onehot"))
    assert (w.sort(-1).values[:, :-1] == 0).all() and (w.amax(-1) == 1).all()
    assert (one(Tensor("M N", "float32", Simplex()), Case(0, values="zeros")) > 0).all()


def test_what_is_changed_in_place_stays_finite():
    spec = op(("a",), a=Tensor("M N"), b=Tensor("M N"))
    for values in VALUES[1:-1]:
        assert bendable(spec, AT, values) == (["b"] if values in INFINITE else ["a", "b"])


def test_no_two_items_of_a_list_have_unlike_layouts_alike():
    spec, at = op(x=Tensor("S 8", count="3")), Workload({"S": (4, 4, 4)}, {})
    met = {places(spec, at, Case(0, "unlike", on=on))["x"] for on in (0, 1)}
    assert all(len({spot.stride for spot in spots}) == 3 for spots in met)
    padded = places(spec, at, Case(0, "padded"))["x"]
    assert len({spot.stride for spot in padded}) == 3


def test_only_floating_inputs_of_plain_recipes_are_bent_and_one_at_a_time():
    spec = op(
        a=Tensor("M N"),
        i=Tensor("M", "int64", Index("E")),
        s=Tensor("M", "float32", Scales()),
        b=Tensor("N"),
    )
    assert bendable(spec, AT) == ["a", "b"]
    assert bendable(spec, AT, "zeros") == ["a", "s", "b"]

    def bent(values, on):
        plain = draw(spec, AT, PLAIN, "cpu")
        drawn = draw(spec, AT, Case(0, values=values, on=on), "cpu")
        return [n for n in spec.inputs if not same_bits(drawn[n], plain[n])]

    assert [bent("large", on) for on in (0, 1, 2)] == [["a"], ["b"], ["a"]]
    # no scale is so large, but one may be nothing: a second moment is
    assert [bent("zeros", on) for on in (0, 1, 2, ALL)] == [["a"], ["s"], ["b"], ["a", "s", "b"]]


def exported(recipe: Recipe, dtype: str = "int64", axes: str = "M N") -> list[torch.Tensor]:
    """What an exported package draws for its own check, under twenty seeds."""
    spec = op(x=Tensor(axes, dtype, recipe))
    return [draw_exported(spec, AT, seed, "cpu")[0] for seed in range(20)]


def test_an_exported_package_draws_by_the_same_recipes():
    for x in exported(Structured(Normal(), "lower"), "float32", "N N"):
        assert torch.equal(x, x.tril()) and x.diagonal(-1).all()
    for x in exported(Structured(Normal(), "symmetric"), "float32", "N N"):
        assert torch.equal(x, x.T) and x.all()
    for x in exported(Sorted(Uniform(-1, 2)), "float32"):
        assert (x[:, 1:] >= x[:, :-1]).all()
    for first, last in ((True, True), (False, True), (True, False)):
        for x in exported(Offsets("N", first, last), axes="B"):
            assert (x.diff() >= 0).all() and x.min() >= 0 and x.max() <= 10
            assert (not first or x[0] == 0) and (not last or x[-1] == 10)
    for distinct in (False, True):
        below = exported(Index("E", low=2, distinct=distinct))
        assert {n for x in below for n in x.unique().tolist()} == set(range(2, 12))
        assert not distinct or all(len(set(row)) == 10 for x in below for row in x.tolist())
