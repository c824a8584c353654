"""Right answers pass whatever their scale, and each kind of wrong one fails with its reason."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator import poison
from evaluator.compare import Errors, Mismatch, compare
from evaluator.graphs import trace
from evaluator.meaningful import meaningful
from evaluator.picked import Answers, answers
from kernel_library.spec import Tolerance

FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
WIDE = [torch.float64, torch.float32, torch.bfloat16]
PLAIN = Tolerance()


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compared(got, truth, own, tolerance: Tolerance, **known) -> Errors:
    return compare(got, Answers(truth, own), tolerance, **known)


def judge(got: torch.Tensor, truth: torch.Tensor, tolerance: Tolerance = PLAIN, **known):
    return compared([got], [truth], [truth.to(got.dtype)], tolerance, **known)


shapes = st.sampled_from([(1,), (17,), (3, 5), (4, 33), (2, 3, 16), (64, 1), (0, 4), ()])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FLOATS), shapes, st.integers(0, 1000))
def test_the_truth_rounded_once_always_passes(dtype, shape, seed):
    truth = normal(*shape, seed=seed)
    assert judge(truth.to(dtype), truth).error <= 0.25


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FLOATS), st.integers(0, 1000), st.floats(1.0, 1e3), st.sampled_from([33, 7, 1])
)
def test_zeros_never_pass_however_loose(dtype, seed, loosen, n):
    truth = normal(5, n, seed=seed)
    rough = Tolerance(times_torch=100.0, loosen=loosen)
    with pytest.raises(Mismatch):
        compared([torch.zeros(5, n).to(dtype)], [truth], [(truth * 0.1).to(dtype)], rough)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WIDE), st.integers(-60, 60), st.floats(-0.2, 0.2), st.integers(0, 50))
def test_the_judgement_does_not_depend_on_the_scale(dtype, power, share, seed):
    truth = normal(6, 40, seed=seed).to(dtype).double()
    answer = (truth * (1 + share * normal(6, 40, seed=seed + 1))).to(dtype)

    def passes(scale: float) -> bool:
        try:
            judge((answer.double() * scale).to(dtype), truth * scale)
        except Mismatch:
            return False
        return True

    assert passes(1.0) == passes(2.0**power)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeros_do_not_pass_because_outputs_are_tiny(dtype):
    truth = normal(8, 64) * 64 * torch.finfo(dtype).smallest_normal
    with pytest.raises(Mismatch, match=r"off by|code step"):
        judge(torch.zeros(8, 64).to(dtype), truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_zeros_in_a_small_row_are_found_beside_large_rows(dtype):
    truth = normal(8, 64) * torch.logspace(3, -2, 8, dtype=torch.float64)[:, None]
    answer = truth.to(dtype)
    answer[-1] = 0
    with pytest.raises(Mismatch, match="off by"):
        judge(answer, truth)


def test_cancellation_does_not_fail_a_right_product():
    a, b = normal(64, 4096), normal(4096, 64, seed=1)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x, y = a.to(dtype), b.to(dtype)
        truth = x.double() @ y.double()
        # sums in another order than torch's: chunks of 128 in float32, as a kernel adds them
        parts = [x[:, k : k + 128].float() @ y[k : k + 128].float() for k in range(0, 4096, 128)]
        compared([sum(parts).to(dtype)], [truth], [x @ y], PLAIN)


def test_one_element_by_cancellation_is_held_to_the_whole_tensor():
    a, b = normal(300, 4096).float(), normal(4096, 1, seed=1).float()
    truth = a.double() @ b.double()
    halves = a[:, :2048] @ b[:2048] + a[:, 2048:] @ b[2048:]
    compared([halves], [truth], [a @ b], PLAIN)


@pytest.mark.parametrize(
    ("dtype", "lower"),
    [
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.bfloat16, torch.float8_e4m3fn),
        (torch.float16, torch.float8_e4m3fn),
        (torch.float64, torch.float32),
    ],
    ids=str,
)
def test_a_product_in_a_lower_precision_fails(dtype, lower):
    x, y = normal(64, 256).to(dtype), normal(256, 64, seed=1).to(dtype)
    coarse = (x.to(lower).double() @ y.to(lower).double()).to(dtype)
    with pytest.raises(Mismatch, match="off by"):
        compared([coarse], [x.double() @ y.double()], [x @ y], PLAIN)


def test_an_error_like_torchs_own_passes_and_many_times_it_fails():
    truth = normal(32, 64)
    noise = normal(32, 64, seed=1) * 3e-4
    torchs = (truth + noise).float()
    compared([(truth - 2 * noise).float()], [truth], [torchs], PLAIN)
    with pytest.raises(Mismatch, match="off by up to 1000 times"):
        compared([(truth - 4 * noise).float()], [truth], [torchs], PLAIN)


def test_one_bad_element_of_many_fails():
    truth = normal(512, 512)
    answer = truth.float()
    answer[100, 100] += 0.01
    with pytest.raises(Mismatch, match="off by"):
        judge(answer, truth)


def test_errors_are_relative_to_the_largest_true_value():
    truth = torch.tensor([4.0, -2.0], dtype=torch.float64)
    found = compared(
        [torch.tensor([4.0, -2.00001])], [truth], [torch.tensor([4.00004, -2.0])], PLAIN
    )
    assert found.error == pytest.approx(2.5e-6, rel=0.05)
    assert found.torch_error == pytest.approx(1e-5, rel=0.05)


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        ([float("nan"), 1.0, 2.0], "NaN where the truth has none"),
        ([float("inf"), 1.0, 2.0], "infinite where the truth is not"),
    ],
)
def test_a_non_finite_answer_fails_where_the_truth_is_finite(got, reason):
    with pytest.raises(Mismatch, match=reason):
        judge(torch.tensor(got), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("true", "reason"),
    [
        (float("nan"), "lacks a true NaN"),
        (float("inf"), "lacks an infinity"),
        (float("-inf"), "lacks an infinity"),
    ],
)
def test_a_finite_answer_fails_where_the_truth_is_not(true, reason):
    truth = torch.tensor([true, 1.0, 2.0], dtype=torch.float64)
    with pytest.raises(Mismatch, match=reason):
        judge(torch.tensor([3.0, 1.0, 2.0]), truth)


def test_nan_and_infinities_in_their_true_places_pass():
    truth = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0], dtype=torch.float64)
    assert judge(truth.float(), truth).error == 0.0


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_finite_elements_are_held_to_theirs_beside_one_that_is_not(odd):
    truth = normal(3, 40)
    truth[0, 0] = odd
    answer = truth.float()
    judge(answer, truth)
    answer[2, 39] += 0.01
    with pytest.raises(Mismatch, match="off by"):
        judge(answer, truth)


def test_a_truth_beyond_the_range_makes_no_room_for_errors_elsewhere():
    truth = torch.cat([normal(64), torch.tensor([1e200, -1e200], dtype=torch.float64)])
    right = truth.float()
    assert right.isinf().sum() == 2 and judge(right, truth).error < 1e-6
    with pytest.raises(Mismatch, match="is off by"):
        judge(torch.cat([2 * right[:64], right[64:]]), truth)
    with pytest.raises(Mismatch, match="lacks an infinity"):
        judge(right.nan_to_num(posinf=1.0), truth)


def test_an_infinity_of_the_wrong_sign_fails():
    truth = torch.tensor([float("inf"), 1.0], dtype=torch.float64)
    with pytest.raises(Mismatch, match="infinite"):
        judge(-truth.float(), truth)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int8, torch.bool], ids=str)
@pytest.mark.parametrize("pattern", range(poison.PATTERNS))
def test_an_unwritten_tail_is_called_so(dtype, pattern):
    truth = normal(4, 40) if dtype.is_floating_point else (normal(4, 40) > 0).long()
    answer = truth.to(dtype, copy=True)
    poison.fill(answer[:, 37:], pattern)
    with pytest.raises(Mismatch, match="never written"):
        judge(answer, truth, poison=pattern)


def test_shape_and_dtype_come_before_values():
    truth = normal(4, 4)
    for got, reason in [
        (truth.float()[:3], "wrong shape"),
        (truth.float()[:0], "wrong shape"),
        (truth.bfloat16(), "bfloat16, not float32"),
    ]:
        with pytest.raises(Mismatch, match=reason):
            compared([got], [truth], [truth.float()], PLAIN)


def test_a_missing_output_is_counted():
    with pytest.raises(Mismatch, match="returned 1 output, 2 outputs wanted"):
        compared([normal(2)], [normal(2)] * 2, [normal(2)] * 2, PLAIN)


def test_each_output_is_compared_and_named():
    truth = normal(3, 20)
    wrong = [truth.float(), truth.float() + 1]
    with pytest.raises(Mismatch, match="output 'lse' is off"):
        compared(wrong, [truth] * 2, [truth.float()] * 2, PLAIN, names=["o", "lse"])
    with pytest.raises(Mismatch, match="output 0 is off"):
        compared(wrong[::-1], [truth] * 2, [truth.float()] * 2, PLAIN)


def test_integers_are_exact_unless_a_quantiser_may_round():
    truth = torch.arange(-8, 8)
    judge(truth.to(torch.int8), truth)
    off = (truth + (truth == 3)).to(torch.int8)
    with pytest.raises(Mismatch, match="must be exact"):
        judge(off, truth)
    judge(off, truth, Tolerance(loosen=2.0))
    with pytest.raises(Mismatch, match="must be exact"):
        judge(off.long(), truth, Tolerance(loosen=2.0))


def test_a_difference_that_wraps_round_is_still_one():
    truth = torch.arange(-8, 8)
    with pytest.raises(Mismatch, match="must be exact"):
        judge(truth ^ torch.iinfo(torch.int64).min, truth)
    with pytest.raises(Mismatch, match="must be exact"):
        judge((truth - 128).to(torch.int8), truth, Tolerance(loosen=2.0))


def test_eight_bit_floats_may_be_one_code_off_and_no_more():
    truth = torch.linspace(1, 200, 300, dtype=torch.float64)
    right = truth.to(torch.float8_e4m3fn)
    codes = right.view(torch.uint8)
    noise = (torch.arange(300) % 17 == 0).to(torch.uint8)
    judge((codes + noise).view(torch.float8_e4m3fn), truth)
    with pytest.raises(Mismatch, match="one 8-bit code step"):
        judge((codes + 2 * noise).view(torch.float8_e4m3fn), truth)


def gate(x, w):
    """Logits in 16 bits and their softmax in float32, as a mixture of experts routes by."""
    return torch.softmax(torch.nn.functional.linear(x, w), 1, dtype=torch.float32)


def test_an_output_is_capped_by_the_shortest_dtype_that_the_reference_rounds_to():
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 256, generator=random).bfloat16() for n in (128, 8))
    wanted = answers(trace(gate, (x, w), {}), (x, w))
    compare(wanted.own, wanted, PLAIN)
    with pytest.raises(Mismatch):
        compare((wanted.own[0] * 1.05,), wanted, PLAIN)
    # without that rounding, as where a 16-bit input is only widened, the cap is float32's
    wide = answers(trace(gate, (x.float(), w.float()), {}), (x.float(), w.float()))
    assert wanted.coarsest == {0: torch.bfloat16} and wide.coarsest == {0: torch.float32}
    with pytest.raises(Mismatch):
        compare(wanted.own, wide, PLAIN)


def test_a_reason_shows_no_slack():
    truth = normal(16, 64)
    with pytest.raises(Mismatch) as wrong:
        judge((truth + 0.05).float(), truth)
    assert wrong.value.reason == "output 0 is off by more than 1000 times what its dtype allows"


def test_large_tensors_are_compared_in_chunks():
    truth = normal(1, 1).expand(3000, 3001)
    answer = truth.float().contiguous()
    judge(answer, truth)
    answer[-1, -1] += 1
    with pytest.raises(Mismatch, match="off by"):
        judge(answer, truth)
    # the first of all reasons is told, not the first chunk's
    answer[0, 0] = float("inf")
    poison.fill(answer[-1], 0)
    with pytest.raises(Mismatch, match="never written"):
        judge(answer, truth)


def test_a_bent_case_counts_only_where_truth_and_torch_stay_in_range():
    finite = normal(4)
    over = torch.tensor([1e5], dtype=torch.float64)
    nan = torch.tensor([float("nan")], dtype=torch.float64)
    masked = torch.tensor([-float("inf")], dtype=torch.float64)
    assert meaningful(Answers([finite], [finite.half()]), PLAIN)
    assert not meaningful(Answers([over], [over.half()]), PLAIN)
    # an infinity that is the answer is no overflow
    assert meaningful(Answers([masked], [masked.half()]), PLAIN)
    assert meaningful(Answers([over], [over.half()]), PLAIN, infinite=True)
    assert not meaningful(Answers([nan], [nan.half()]), PLAIN, infinite=True)
    assert not meaningful(Answers([finite], [torch.full((4,), float("inf")).half()]), PLAIN)


def test_a_bent_case_that_torch_itself_gets_wrong_holds_nobody_to_it():
    finite = normal(4)
    assert not meaningful(Answers([finite], [(2 * finite).half()]), PLAIN)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats_that_are_cut_off_fail_and_rounded_twice_they_pass(dtype):
    truth = 3 * normal(3, 40).float().double()
    kept = -(1 << 20) if dtype == torch.float8_e4m3fn else -(1 << 21)
    judge(truth.bfloat16().to(dtype), truth)
    cut = (truth.float().view(torch.int32) & kept).view(torch.float32)
    with pytest.raises(Mismatch, match="more error than rounding to 8 bits"):
        judge(cut.to(dtype), truth)
    # too few to tell it from bad luck
    judge(cut.to(dtype)[0], truth[0])


def test_beside_a_truth_that_is_rounded_itself_eight_bits_may_be_a_code_off():
    dtype = torch.float8_e4m3fn
    own = (3 * normal(3, 40).float()).to(dtype)
    got = own.clone()
    got.view(torch.uint8)[0, 0] ^= 1
    wanted = Answers([own.double()], [own])
    with pytest.raises(Mismatch, match="more error than rounding to 8 bits"):
        compare([got], wanted, PLAIN)
    compare([got], replace(wanted, rounded=True), PLAIN)
    got.view(torch.uint8)[0, 1] ^= 7
    with pytest.raises(Mismatch, match="code step"):
        compare([got], replace(wanted, rounded=True), PLAIN)


def quantised(x):
    scale = x.abs().amax(-1, keepdim=True) / 127.0
    return torch.clamp(torch.round(x / scale) + 3.0, -128, 127).to(torch.int8)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_integer_quantiser_may_round_ties_as_it_likes_and_not_cut_off(dtype, ties):
    x = normal(64, 40).to(dtype)
    x = (x.round() if ties else x).clamp(-2, 2)
    graph = trace(quantised, [x], {})
    wanted, rough = answers(graph, [x]), Tolerance(loosen=2.0)
    value = x.double() / (x.double().abs().amax(-1, keepdim=True) / 127.0) + 3.0
    for right in (torch.ceil(value - 0.5), torch.floor(value + 0.5), value.float().round()):
        compare([right.clamp(-128, 127).to(torch.int8)], wanted, rough)
    if not ties:
        wrong = value.clamp(-128, 127).to(torch.int8)
        with pytest.raises(Mismatch, match="more error than rounding to 8 bits"):
            compare([wrong], wanted, rough)
