"""Launches are written down for sm_90 on any machine, by a real recorder in a real sandbox."""

import json
from dataclasses import replace

import launchers
import pytest

from evaluator.errors import CandidateError
from evaluator.inputs import Case
from evaluator.isolate import Done
from evaluator.record import record, variants
from evaluator.record.image import CONSTANTS, fault
from evaluator.record.outputs import misplaced
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec, Tensor, grid
from kernel_library.tape import Call, Descriptor, Launch, Pointer, Scalar, View

OP = OpSpec(
    "double",
    {"x": Tensor("M N")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(33, 64)]}, ("float32",)),
)
AT = OP.workloads[0]
CASE = Case(seed=0)


def candidate(source: str, **config: int) -> Candidate:
    return Candidate("double", source, "entry", config)


def taped(zygote, source: str, case: Case = CASE):
    return record(OP, candidate(source), [(AT, case)], zygote)[0]


def test_device_descriptors_want_an_allocator(zygote):
    told = "needs memory of its own: call triton.set_allocator first"
    with pytest.raises(CandidateError, match=told):
        taped(zygote, launchers.DEVICE_DESCRIPTOR.replace("triton.set_allocator", "print"))


def test_a_launch_names_buffers_and_offsets_instead_of_addresses(zygote):
    tape = taped(zygote, launchers.PLAIN).tape
    (launch,) = tape.launches
    assert launch.grid == (17, 1, 1) and launch.num_warps == 4
    assert launch.arguments == (Pointer(0), Pointer(1), Scalar("i32", 2112))
    assert [(b.role, b.bytes) for b in tape.buffers] == [("input", 8448), ("made", 8448)]
    assert tape.outputs[0].buffer == 1
    (kernel,) = tape.kernels
    assert kernel.target == "sm_90" and 0 < kernel.registers < 64 and kernel.spills == 0


def test_a_launcher_may_keep_its_settings_in_a_dataclass(zygote):
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        f"{launchers.PLAIN}\n@dataclass\nclass Settings:\n    block: int = 128\n"
    )
    assert taped(zygote, source).tape.launches


def test_the_binary_is_kept_under_its_own_digest(zygote):
    recording = taped(zygote, launchers.PLAIN)
    assert recording.binaries[recording.tape.launches[0].binary].startswith(b"\x7fELF")


def test_an_unaligned_input_is_recorded_at_its_offset(zygote):
    launch = taped(zygote, launchers.PLAIN, replace(CASE, layout="unaligned")).tape.launches[0]
    assert launch.arguments[0] == Pointer(0, 4)


def test_fills_copies_and_launches_keep_their_order(zygote):
    steps = taped(zygote, launchers.TWICE).tape.steps
    names = [s.op if isinstance(s, Call) else s.function for s in steps]
    assert names == ["aten.zeros.default", "aten.copy_.default", "double", "double"]


def test_tensors_that_are_cleared_together_are_one_step_that_writes_each(zygote):
    lines = ("half = torch.empty_like(x)", "torch._foreach_zero_([half, half])", "half.clone()")
    cleared, copied, _ = taped(zygote, launchers.body(*lines)).tape.steps
    assert cleared.op == "aten._foreach_zero_.default"
    assert cleared.args == ([{"view": 0}, {"view": 1}],)
    assert copied.views[0].buffer == cleared.views[0].buffer


def test_what_a_library_of_the_launchers_own_says_of_itself_is_not_believed(zygote):
    own = """
OWN = torch.library.Library("own", "DEF")
OWN.define("look(Tensor(a) x) -> Tensor(a)")
OWN.impl("look", lambda x: x.view(x.shape), "Meta")
"""
    source = launchers.body("torch.ops.own.look(x)").replace("def entry", f"{own}\ndef entry")
    with pytest.raises(CandidateError, match=r"calls own\.look\.default, which this problem bars"):
        taped(zygote, source)


def test_a_reshape_that_copies_is_a_copy_and_a_view(zygote):
    source = launchers.PLAIN.replace("double[", "x = x.reshape(-1)\n    double[")
    recording = taped(zygote, source, replace(CASE, layout="transposed"))
    copied, launch = recording.tape.steps
    assert copied.op == "aten.clone.default"
    assert launch.arguments[0] == Pointer(copied.results[0].buffer)


def test_a_host_descriptor_is_kept_as_what_the_driver_must_encode(zygote):
    (launch,) = taped(zygote, launchers.HOST_DESCRIPTOR).tape.launches
    described = launch.arguments[0]
    assert isinstance(described, Descriptor)
    assert (described.shape, described.stride) == ((33, 64), (64, 1))
    assert described.block == (32, 32) and described.element_bytes == 4
    assert launch.arguments[1:5] == (
        Scalar("i32", 33), Scalar("i32", 64), Scalar("i64", 64), Scalar("i64", 1),
    )  # fmt: skip


def test_a_device_descriptor_asks_for_scratch(zygote):
    (launch,) = taped(zygote, launchers.DEVICE_DESCRIPTOR).tape.launches
    assert launch.scratch_bytes >= 2 * 128 and launch.scratch_align >= 64


def test_clusters_and_cooperative_launches_are_marked(zygote):
    assert taped(zygote, launchers.CLUSTER).tape.launches[0].num_ctas == 2
    assert taped(zygote, launchers.COOPERATIVE).tape.launches[0].cooperative


def test_each_setting_of_an_autotuner_is_a_candidate_of_its_own(zygote):
    found = variants(OP, candidate(launchers.AUTOTUNED), zygote)
    grids = [record(OP, c, [(AT, CASE)], zygote)[0].tape.launches[0].grid for c in found]
    assert grids == [(33, 1, 1), (17, 1, 1)]
    # the launcher knows nothing of it
    assert [c.pick for c in found] == [0, 1] and not any(c.config for c in found)
    assert found[0].digest == candidate(launchers.AUTOTUNED).digest != found[1].digest


def test_settings_are_counted_where_pruning_leaves_the_most(zygote):
    pruned = 'prune_configs_by={"early_config_prune": lambda c, a, **_: c[: 1 + (a["n"] < 99)]}'
    source = launchers.AUTOTUNED.replace('key=["n"]', f'key=["n"], {pruned}')
    small = replace(AT, dims={"M": 3, "N": 5})
    op = replace(OP, workloads=(AT, small))
    assert len(variants(OP, candidate(source), zygote)) == 1
    assert len(variants(op, candidate(source), zygote)) == 2


def test_a_candidate_without_an_autotuner_is_its_only_variant(zygote):
    plain = candidate(launchers.PLAIN)
    assert variants(OP, plain, zygote) == (plain,)


def test_infinity_survives_the_trip(zygote):
    source = launchers.body("double.run  # kept").replace("n, BLOCK", "n, low, BLOCK")
    source = source.replace("x.numel(), BLOCK=BLOCK", 'x.numel(), float("-inf"), BLOCK=BLOCK')
    low = taped(zygote, source).tape.launches[0].arguments[-1]
    assert low == Scalar("fp32", float("-inf"))


#: The plain launcher as an op of a library of its own: torch runs what it says of shapes alone.
OWN_OP = """
_plain = entry


@torch.library.custom_op("mine::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return _plain(x)


_twice.register_fake(torch.empty_like)


def entry(x):
    return _twice(x)
"""


@pytest.mark.parametrize(
    ("source", "stage", "told"),
    [
        (launchers.body("x.sum().item()"), "record", "needs device data: .item()"),
        (launchers.body("assert (x > 0).any()"), "record", "needs device data: bool"),
        (launchers.body("torch.tensor([1.0], device='cuda')"), "record", "copies host data"),
        (launchers.body("torch.tensor([1.0]).to(x.device)"), "record", "copies host data"),
        (launchers.body("torch.empty_like(x).fill_(torch.tensor(1.0))"), "record", "host data"),
        (launchers.body("x.new_tensor([1.0])"), "record", ".new_tensor(...) copies host data"),
        (launchers.body("torch._neg_view(x).clone()"), "record", "a bit beside its memory"),
        (launchers.body("torch._foreach_exp_([x])"), "record", "_foreach_exp_.default, which this"),
        (launchers.PLAIN.replace("x.numel(), B", "x.data_ptr() + 8, B"), "record", "as a number"),
        (launchers.PLAIN.replace("(x, y, x", "(x, x.clone(), x"), "record", "y is written by no"),
        (launchers.PLAIN.replace("return y", "return torch.empty_like(x)"), "record", "y is writ"),
        (launchers.body("x = torch.empty_like(x).clone()"), "record", "that nothing wrote"),
        (launchers.body("torch.cuda.Stream()"), "record", "current stream only"),
        (launchers.body("return torch.zeros_like(x)"), "record", "no Triton kernel was launched"),
        (launchers.body("return 2 * x"), "record", "aten.mul.Tensor, which this problem bars"),
        (launchers.PLAIN + "\nW = torch.ones(4, device='cuda')\n", "record", "made at import outl"),
        (launchers.PLAIN + OWN_OP, "record", "mine.twice.default, which this problem bars: call"),
        (launchers.body("x = torch.softmax(x, -1)"), "record", "which this problem bars"),
        (launchers.body("raise ValueError('as asked')"), "record", "line 13: ValueError: as asked"),
        (launchers.PLAIN.replace("return y", "return y.t()"), "record", "not float32 [33, 64]"),
        (launchers.PLAIN.replace("return y", "return x"), "record", "shares memory with an input"),
        (launchers.PLAIN.replace("return y", "return y, y"), "record", "returns 2 tensors"),
        (launchers.PLAIN.replace("return y", "return 3"), "record", "no tensor"),
        (launchers.PLAIN.replace("2 * tl.load", "2 * tl.lod"), "record", "lod"),
        (launchers.body("import os", "os._exit(0)"), "record", "ended its own process"),
    ],
    ids=lambda value: value if len(value) < 40 else "",
)
def test_what_cannot_be_taped_is_refused_with_the_reason(zygote, source, stage, told):
    with pytest.raises(CandidateError, match=r".") as refused:
        taped(zygote, source)
    assert refused.value.stage == stage and told in refused.value.reason


REMEMBERS = launchers.PLAIN.replace("def entry", "SEEN = []\n\ndef entry").replace(
    "    y = torch.empty_like(x)\n",
    "    y = torch.empty_like(x)\n    SEEN.append(x)\n    BLOCK *= len(SEEN)\n",
)


def test_a_launcher_does_the_same_when_it_is_called_again(zygote):
    with pytest.raises(CandidateError, match="something else when it is called again") as refused:
        taped(zygote, REMEMBERS)
    assert refused.value.stage == "record"
    passed = launchers.PLAIN.replace("n, BLOCK: tl", "n, low, BLOCK: tl").replace(
        "x.numel(), BLOCK=", "x.numel(), float('nan'), BLOCK="
    )
    assert str(taped(zygote, passed).tape.launches[0].arguments[-1].value) == "nan"


KEPT = {
    "output": ("torch.empty_like(x)", "KEPT.setdefault(x.shape, torch.empty_like(x))"),
    "workspace": ("y = torch.empty_like(x)", "y = KEPT.setdefault(0, torch.empty_like(x)) + 0"),
    "input": ("y = torch.empty_like(x)", "x = KEPT.setdefault(0, x); y = torch.empty_like(x)"),
}


@pytest.mark.parametrize("what", KEPT)
def test_memory_of_one_call_is_not_met_in_another(zygote, what):
    kept = launchers.PLAIN.replace("def entry", "KEPT = {}\n\ndef entry").replace(*KEPT[what])
    with pytest.raises(CandidateError, match="memory of another call is used again") as refused:
        taped(zygote, kept)
    assert refused.value.stage == "record"


def test_too_much_shared_memory_is_a_matter_of_resources(zygote):
    source = launchers.HOST_DESCRIPTOR.replace("[32, 32]", "[256, 256]").replace(
        "BLOCK=32", "BLOCK=256"
    )
    with pytest.raises(CandidateError) as refused:
        taped(zygote, source)
    assert refused.value.stage == "resources" and "shared memory" in refused.value.reason


def test_a_hanging_launcher_is_stopped_and_the_next_is_unaffected(zygote):
    def hurried(job, request, seconds):
        return zygote(job, request, 3)

    with pytest.raises(CandidateError, match="did not return") as refused:
        record(OP, candidate(launchers.body("while True: pass")), [(AT, CASE)], hurried)
    assert refused.value.stage == "record"
    assert isinstance(taped(zygote, launchers.PLAIN).tape.steps[0], Launch)


def test_a_forged_answer_is_not_believed(zygote):
    forged = zygote("evaluator.record.job:main", b"", 30)
    assert not isinstance(forged, Done)
    for body in (b"", b"[]", b'[{"tapes": [], "binaries": {}}]', b'{"kind": "passed"}'):
        with pytest.raises(CandidateError, match="tampered"):
            record(OP, candidate(launchers.PLAIN), [(AT, CASE)], lambda *_, body=body: Done(body))


def test_an_output_in_no_buffer_is_a_forgery(zygote):
    def forging(job, request, seconds):
        done = zygote(job, request, seconds)
        answer = json.loads(done.body)
        answer[0]["tapes"][0]["outputs"][0]["buffer"] = 99
        return Done(json.dumps(answer).encode())

    with pytest.raises(CandidateError, match="tampered"):
        record(OP, candidate(launchers.PLAIN), [(AT, CASE)], forging)


def test_a_binary_is_a_cubin_without_variables_of_its_own(zygote):
    (binary,) = taped(zygote, launchers.PLAIN).binaries.values()
    assert fault(binary) is None
    assert fault(b".version 8.0") == "is no cubin"
    unnumbered = binary[:60] + bytes(2) + binary[62:]
    for short in (b"\x7fELF", binary[:100], unnumbered):
        assert fault(short) == "is no whole cubin"


def reading(assembly: str, to: str = "=l", dtype: str = "int64") -> str:
    """A kernel that adds nothing but what inline assembly gives."""
    asm = f'tl.inline_asm_elementwise("""{assembly}""", "{to}", [], dtype=tl.{dtype}, '
    read = f"{asm}is_pure=False, pack=1)"
    return launchers.PLAIN.replace("2 * tl.load", f"{read}.to(tl.float32) * tl.load")


@pytest.mark.parametrize(
    "declared",
    [
        ".global .b32 kept;",
        ".global .b32 kept = 1;",
        ".const .b32 kept = 1;",
        f".global .b8 kept[24] = {{{', '.join(map(str, CONSTANTS[2][::-1]))}}};",
        "".join(f".global .b8 k{i}[24] = {{{', '.join(map(str, CONSTANTS[2]))}}};" for i in (1, 2)),
    ],
    ids=lambda declared: declared[:24],
)
def test_a_kernel_that_has_memory_of_its_own_is_refused(zygote, declared):
    name = declared.split("[")[0].split()[2].rstrip(";")
    touched = f"{{ {declared} .reg .b64 at; mov.u64 at, {name}; ld.b32 $0, [at]; }}"
    with pytest.raises(CandidateError, match="a kernel keeps global memory of its own") as refused:
        taped(zygote, reading(touched, "=r", "int32"))
    assert refused.value.stage == "record"


@pytest.mark.parametrize("arch", [80, 90, 120])
def test_a_kernel_may_have_all_of_libdevices_tables(zygote, arch):
    source = launchers.PLAIN.replace("2 * tl.load(x_ptr + at, mask=at < n)", "value").replace(
        "    tl.store",
        "    x = tl.load(x_ptr + at, mask=at < n)\n    wide = tl.sin(x).to(tl.float64)\n"
        "    wide = libdevice.sin(libdevice.fmod(wide, wide))\n"
        "    value = libdevice.sqrt(libdevice.erf(wide.to(tl.float32)))\n    tl.store",
    )
    source = f"from triton.language.extra.cuda import libdevice\n{source}"
    recording = record(OP, candidate(source), [(AT, CASE)], zygote, arch)[0]
    (binary,) = recording.binaries.values()
    assert all(table in binary for table in CONSTANTS)


def test_a_launch_that_may_start_early_waits_within_its_kernel(zygote):
    def early(source: str) -> str:
        return source.replace("BLOCK=BLOCK)", "BLOCK=BLOCK, launch_pdl=True)")

    said = reading("// griddepcontrol.wait;\nmov.u32 $0, 0;", "=r", "int32")
    for source in (launchers.PLAIN, said):
        with pytest.raises(CandidateError, match=r"never waits: call tl.extra.cuda.gdc_wait") as no:
            taped(zygote, early(source))
        assert no.value.stage == "record"
    waits = early(launchers.PLAIN).replace("    at = ", "    tl.extra.cuda.gdc_wait()\n    at = ")
    for arch in (90, 100, 120):
        (tape,) = record(OP, candidate(waits), [(AT, CASE)], zygote, arch)
        assert tape.tape.launches[0].dependent


@pytest.mark.parametrize("arch", [80, 90, 120])
@pytest.mark.parametrize("register", ["clock", "clock_hi", "globaltimer_lo", "pm3"])
def test_a_kernel_that_reads_a_clock_is_refused(zygote, register, arch):
    source = reading(f"mov.u32 $0, %{register};", "=r", "int32")
    with pytest.raises(CandidateError, match="a kernel reads the GPU's clock") as refused:
        record(OP, candidate(source), [(AT, CASE)], zygote, arch)
    assert refused.value.stage == "record"


@pytest.mark.parametrize("register", ["gridid", "current_graph_exec"])
def test_a_kernel_that_tells_its_launches_apart_is_refused(zygote, register):
    with pytest.raises(CandidateError, match=f"TapeError: a kernel reads %{register}: its launch"):
        taped(zygote, reading(f"mov.u64 $0, %{register};"))


def test_nothing_hides_what_tells_launches_apart(zygote):
    hidden = '.pragma \\"/*\\"; mov.u64 $0, %gridid; .pragma \\"*/\\";'
    with pytest.raises(CandidateError, match="a kernel reads %gridid"):
        taped(zygote, reading(hidden))


def test_a_kernel_may_know_its_multiprocessor_and_speak_of_clocks(zygote):
    mentions = (
        "// gridid\n{ .reg .b32 %clock_of; mov.u32 %clock_of, %smid; mov.u32 $0, %clock_of; }"
    )
    assert taped(zygote, reading(mentions, "=r", "int32")).tape.launches


HIDDEN = replace(AT, dims={"M": 7, "N": 61})


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("raise ValueError(str(x.shape))",), "an exception: at a hidden size"),
        (("raise type(f'E{x.shape[1]}', (Exception,), {})()",), "an exception: at a hidden"),
        (("return (x,) * x.shape[1]",), "no Triton kernel was launched"),
    ],
)
def test_a_launcher_cannot_tell_a_hidden_size(zygote, lines, told):
    source = launchers.body("if x.shape[0] == 7:", *(f"    {line}" for line in lines))
    for requests in ([(HIDDEN, CASE)], [(AT, CASE), (HIDDEN, CASE)]):
        with pytest.raises(CandidateError) as refused:
            record(OP, candidate(source), requests, zygote)
        assert "line" not in refused.value.reason
        assert told in refused.value.reason and "61" not in refused.value.reason
        assert refused.value.at is None


def test_a_class_that_is_only_called_like_tritons_chooses_no_stage(zygote):
    mine = "raise type('OutOfResources', (Exception,), {'__module__': 'candidate'})('no')"
    with pytest.raises(CandidateError, match=r"candidate\.OutOfResources: no") as refused:
        record(OP, candidate(launchers.body(mine)), [(AT, CASE)], zygote)
    assert refused.value.stage == "record"


def test_what_is_raised_at_a_public_size_as_well_is_told_whole(zygote):
    source = launchers.body("raise ValueError(str(tuple(x.shape)))")
    with pytest.raises(CandidateError, match=r"ValueError: \(33, 64\)"):
        record(OP, candidate(source), [(HIDDEN, CASE), (AT, CASE)], zygote)


def test_outputs_by_the_number_of_a_hidden_size_are_not_counted(zygote):
    source = launchers.PLAIN.replace("return y", "return (y,) * (x.shape[1] if len(x) == 7 else 1)")
    with pytest.raises(CandidateError, match="another number of tensors"):
        record(OP, candidate(source), [(AT, CASE), (HIDDEN, CASE)], zygote)


@pytest.mark.parametrize(
    ("views", "told"),
    [
        ({"y": (0, (3, 4), (1, 3))}, "y is not contiguous"),
        ({"y": (0, (3, 4), (0, 1))}, "y is not contiguous"),
        ({"a": (0, (3, 4), (4, 1)), "b": (44, (3, 4), (4, 1))}, "a and b share memory"),
    ],
)
def test_outputs_lie_in_memory_of_their_own(views, told):
    made = {name: View(1, at, *rest, "float32") for name, (at, *rest) in views.items()}
    assert [why for why in misplaced(made, contiguous=True) if told in why]


def test_outputs_side_by_side_of_one_or_in_the_order_of_their_inputs_are_right():
    halves = {name: View(1, at, (3, 4), (4, 1), "float32") for name, at in (("a", 0), ("b", 48))}
    thin = View(1, 0, (3, 1), (1, 7), "float32")
    empty = View(1, 0, (0, 4), (0, 0), "float32")
    turned = View(2, 0, (3, 4), (1, 3), "float32")
    assert not list(misplaced(halves, contiguous=True))
    assert not list(misplaced({"thin": thin, "empty": empty}, contiguous=True))
    assert not list(misplaced({"y": turned}, contiguous=False))
    stretched = replace(turned, stride=(0, 1))
    (told,) = misplaced({"y": stretched}, contiguous=False)
    assert "share memory" in told


def test_a_launch_without_programs_is_no_launch(zygote):
    none = launchers.PLAIN.replace("[(triton.cdiv(x.numel(), BLOCK),)]", "[(4, 0)]")
    assert none != launchers.PLAIN
    with pytest.raises(CandidateError, match="no Triton kernel was launched, for a side of each"):
        record(OP, candidate(none), [(AT, CASE)], zygote)


def test_an_input_without_elements_needs_no_programs(zygote):
    op = replace(OP, outputs={"y": Tensor("N")})
    empty = replace(AT, dims={"M": 0, "N": 64})
    body = "y = torch.zeros(x.shape[1], device=x.device)"
    source = launchers.body(body, "double[(len(x),)](x, y, 1, BLOCK=64)", "return y")
    assert record(op, candidate(source), [(empty, CASE)], zygote)[0].tape.outputs[0].shape == (64,)


def test_an_empty_output_needs_no_launch(zygote):
    source = launchers.body("if x.numel() == 0: return torch.empty_like(x)")
    empty = replace(AT, dims={"M": 0, "N": 64})
    recordings = record(OP, candidate(source), [(empty, CASE), (AT, CASE)], zygote)
    assert [len(one.tape.launches) for one in recordings] == [0, 1]
    assert recordings[0].tape.buffers[recordings[0].tape.outputs[0].buffer].bytes == 0
