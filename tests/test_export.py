"""An exported wheel installs anywhere, falls back rightly and re-checks itself."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from exported import KERNEL, OP, OP_BACKWARD, SOFTMAX, SOFTMAX_BACKWARD, STEP, TUNED, WRONG, judged

from kernel_library.codec import verdict_json
from kernel_library.export import Exported, ExportError, build_wheel
from kernel_library.export.wheel import tree
from kernel_library.spec import Option, Tensor
from kernel_library.verdict import Record, Rejected

PACKAGE = "kw_test_kernels"


def install(wheel: Path, site: Path) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True)
    return site


def python(site: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TRITON"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site, env=environment | extra | {"PYTHONPATH": str(site)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("export")
    return install(build_wheel([SOFTMAX, STEP], PACKAGE, "0.1", room / "out"), room / "site")


@pytest.fixture(scope="module")
def package(site: Path) -> ModuleType:
    sys.path.insert(0, str(site))
    try:
        return importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(site))


@pytest.mark.slow
def test_an_installed_package_verifies_itself_and_says_what_it_could_not_check(site: Path):
    done = python(site, "-m", PACKAGE, "verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(f["op"], f["what"]): f for f in json.loads(done.stdout)["findings"]}
    for op in ("softmax", "softmax_backward", "step"):
        assert found[op, "opcheck"]["status"] == "ok"
        assert found[op, "correct"]["status"] == "ok"
    assert found["softmax", "gradient"]["status"] == "ok"
    assert found["step", "kernel"]["status"] == "unchecked"
    if not torch.cuda.is_available():
        assert "reference path on cpu" in found["softmax", "correct"]["note"]
        assert found["softmax", "kernel on a GPU"]["status"] == "unchecked"
        interpreted = found["softmax", "kernel, interpreted"]
        assert (interpreted["status"], "6 of 6" in interpreted["note"]) == ("ok", True)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("kernels/softmax.py", "# changed\n", "kernels/softmax.py was changed"),
        ("kernels/more.py", "# new\n", "kernels/more.py was added"),
    ],
    ids=["changed", "added"],
)
def test_verify_names_a_file_that_is_not_the_certified_one(
    site: Path, tmp_path: Path, path: str, text: str, said: str
):
    copy = shutil.copytree(site, tmp_path / "site")
    with (copy / PACKAGE / path).open("a") as file:
        file.write(text)
    done = python(copy, "-m", PACKAGE, "verify")
    assert done.returncode == 1
    assert said in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_wrong_kernel_is_found_behind_a_right_fallback(tmp_path: Path):
    alone = replace(WRONG, op=replace(OP, workloads=OP.workloads[:2]))
    site = install(build_wheel([alone], "kw_wrong", "1", tmp_path / "out"), tmp_path / "site")
    verify = ("-m", "kw_wrong", "verify", "--interpreted", "--json")
    done = python(site, *verify, TRITON_INTERPRET="1")
    failed = [f for f in json.loads(done.stdout)["findings"] if f["status"] == "failed"]
    assert done.returncode == 1
    assert [(f["op"], f["what"]) for f in failed] == [("softmax", "kernel, interpreted")]


def test_importing_a_package_loads_no_kernel_and_needs_none_of_this_library(site: Path):
    check = (
        f"import sys, {PACKAGE} as package;"
        "early = 'triton' in sys.modules;"
        "package.softmax(package.torch.ones(2, 3));"
        f"bad = [m for m in sys.modules if m.startswith(('kernel_library', '{PACKAGE}.kernels'))];"
        "print(early, bad)"
    )
    # torch itself may import triton at the first call of any custom op
    assert python(site, "-P", "-c", check).stdout == "False []\n"


def test_without_its_gpu_an_op_is_the_reference_and_explains_it(package: ModuleType):
    x = torch.randn(5, 7)
    torch.testing.assert_close(package.softmax(x, scale=2.0), torch.softmax(2 * x, -1))
    choice = package.explain("softmax", x)
    assert choice.path == "reference"
    assert "cpu" in choice.why
    assert "sm_90" in choice.why


def test_the_reference_can_be_forced(package: ModuleType, monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(5, 7)
    with package.reference_only():
        assert "reference_only" in package.explain("softmax", x).why
    monkeypatch.setenv(f"{PACKAGE.upper()}_REFERENCE", "1")
    assert PACKAGE.upper() in package.explain("softmax", x).why


def test_gradients_flow_through_the_backward_op(package: ModuleType):
    x = torch.randn(5, 7, requires_grad=True)
    weight = torch.randn(5, 7)
    (package.softmax(x, scale=2.0) * weight).sum().backward()
    y = x.detach().clone().requires_grad_()
    (torch.softmax(2 * y, -1) * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    z = torch.randn(5, 7, requires_grad=True)
    package.softmax(z).sum().backward()
    torch.testing.assert_close(z.grad, torch.zeros(5, 7), atol=1e-6, rtol=0)


def test_an_op_compiles_whole_with_dynamic_sizes_and_gradients(package: ModuleType):
    compiled = torch.compile(
        lambda x: package.softmax(x + 1).square(), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for rows in (3, 6):
        x = torch.randn(rows, 9, requires_grad=True)
        y = compiled(x)
        torch.testing.assert_close(y, torch.softmax(x + 1, -1).square())
        y.sum().backward()
        assert x.grad is not None


def test_other_ranks_go_to_the_reference_eager_and_compiled(package: ModuleType):
    x = torch.randn(2, 3, 4)
    assert "3 axes, not 2" in str(package._guards._misfit(*on_gpu(package, seen(x.shape))))
    compiled = torch.compile(package.softmax, fullgraph=True, backend="aot_eager")
    for softmax in (package.softmax, compiled):
        torch.testing.assert_close(softmax(x), torch.softmax(x, -1))


def test_an_in_place_op_over_lists_changes_its_arguments(package: ModuleType):
    def fresh():
        return [torch.ones(3), torch.ones(5)], [torch.ones(3), torch.ones(5)]

    step = torch.compile(
        lambda p, g, m: package.step(p, g, m, lr=0.5), fullgraph=True, backend="aot_eager"
    )
    for call in (lambda p, g, m: package.step(p, g, m, lr=0.5), step):
        (params, moments), grads = fresh(), [torch.ones(3), torch.ones(5)]
        assert call(params, grads, moments) is None
        torch.testing.assert_close(moments[1], torch.full((5,), 1.9))
        torch.testing.assert_close(params[1], torch.full((5,), 1 - 0.5 * 1.9))


def seen(shape, stride=None, dtype=torch.float32):
    return {"shape": tuple(shape), "stride": stride, "dtype": dtype}


def on_gpu(package: ModuleType, *tensors, **options):
    """An op, and a call of it as the guards see it, on a GPU that need not be there."""
    op = package._contract.load("softmax")
    names = list(op.spec.inputs)
    args = {
        name: (package._bind.Seen(
            t["shape"], t["stride"] or torch.empty(t["shape"], device="meta").stride(),
            t["dtype"], torch.device("cuda:0")),)
        for name, t in zip(names, tensors, strict=True)
    }  # fmt: skip
    return op, package._guards.Call(args, {"scale": 1.0} | options)


@pytest.mark.parametrize(
    ("tensor", "options", "why"),
    [
        (seen((8, 64)), {}, None),
        (seen((8, 64)), {"scale": 0.125}, None),
        (seen((8,)), {}, "1 axes"),
        (seen((8, 64), dtype=torch.float64), {}, "never judged at float64"),
        (seen((8, 70000)), {}, "N <= 65536"),
        (seen((0, 64)), {}, "empty"),
        (seen((65536, 65536)), {}, "2**31"),
        (seen((8, 64), (1, 8)), {}, "not contiguous"),
    ],
    ids=["fits", "option", "rank", "dtype", "constraint", "empty", "huge", "turned"],
)
def test_a_guard_says_why_a_call_does_not_take_the_kernel(package, tensor, options, why):
    op, call = on_gpu(package, tensor, **options)
    guards = [g for g in package._guards.GUARDS if g is not package._guards._elsewhere]
    reason = next((r for g in guards if (r := g(op, call)) is not None), None)
    assert (reason is None) if why is None else (why in str(reason))


@pytest.mark.parametrize(
    ("option", "value", "taken"),
    [
        (Option(1.0), 0.125, True), (Option(None), None, True), (Option(None), 30.0, False),
        (Option(0), 0.5, False), (Option(0), 1, False), (Option(False), True, False),
        (Option(False, (False, True)), True, True), (Option(0.0, (0.0, 1.0)), 0.5, False),
    ],
)  # fmt: skip
def test_an_option_that_the_judge_never_moved_so_does_not_take_the_kernel(
    package, option, value, taken
):
    op, call = on_gpu(package, seen((8, 64)), scale=value)
    told = package._guards._other_options(
        replace(op, spec=replace(op.spec, options={"scale": option})), call
    )
    assert told == (None if taken else f"never judged at scale={value!r}")


def test_only_a_kernel_judged_on_other_layouts_takes_them():
    told = replace(SOFTMAX.verdict.record, layouts=("transposed", "expanded"))
    bent = replace(SOFTMAX, verdict=replace(SOFTMAX.verdict, record=told))
    for kernel, strided in ((SOFTMAX, False), (bent, True)):
        table = json.loads(tree([kernel], PACKAGE, "0.1")["tables/softmax.json"])
        assert table["strided"] is strided


def test_an_unjudged_kernel_is_never_taken(package: ModuleType):
    x = [torch.ones(3)]
    assert "no verdict" in package.explain("step", x, x, x).why


def test_the_nearest_tuned_row_sets_the_launch(package: ModuleType):
    op, call = on_gpu(package, seen((4096, 4096), dtype=torch.bfloat16))
    assert package._dispatch.setting(op, call, "").config == TUNED[0].config
    op, call = on_gpu(package, seen((32, 64), dtype=torch.bfloat16))
    assert package._dispatch.setting(op, call, "").config == TUNED[1].config
    op, call = on_gpu(package, seen((32, 64)))
    assert package._dispatch.setting(op, call, "").config == SOFTMAX.candidate.config


def test_a_kernel_that_tunes_itself_keeps_to_the_setting_that_was_judged(tmp_path: Path):
    settings = "[triton.Config({}, num_warps=w) for w in (1, 2, 8)]"
    tuned = KERNEL.replace("@triton.jit", f"@triton.autotune({settings}, key=['N'])\n@triton.jit")
    tuned = tuned.replace(", num_warps=num_warps", "")
    kernel = replace(SOFTMAX, candidate=replace(SOFTMAX.candidate, source=tuned, pick=2))
    site = install(build_wheel([kernel], PACKAGE, "0.1", tmp_path), tmp_path / "site")
    code = f"""
import triton
from {PACKAGE}._contract import load
from {PACKAGE}._dispatch import kernel

@triton.autotune([triton.Config({{}}), triton.Config({{}}, num_warps=8)], key=[])
@triton.jit
def other():
    pass

tuner = kernel(load("softmax")).__globals__["_softmax_row"]
print([config.num_warps for config in tuner.prune_configs({{}})])
print([config.num_warps for config in other.prune_configs({{}})])
"""
    (site / "look.py").write_text(code)
    done = python(site, "look.py")
    assert done.stdout.splitlines() == ["[8]", "[4, 8]"], done.stderr
    plain = json.loads(tree([SOFTMAX], PACKAGE, "0.1")["tables/softmax.json"])
    assert plain["pick"] is None


def test_offsets_and_products_give_their_axes(package: ModuleType):
    spec = replace(OP, inputs={"x": Tensor("T H*D"), "heads": Tensor("H"), "cu": Tensor("B+1")})
    shapes = {"x": (10, 12), "heads": (3,), "cu": (5,)}
    args = {
        name: (package._bind.Seen(shape, (), torch.float32, torch.device("cpu")),)
        for name, shape in shapes.items()
    }
    assert package._bind.sizes(spec, args) == {"T": 10, "H": 3, "D": 4, "B": 4}


def test_the_certificate_says_that_an_interpreted_kernel_was_not_timed():
    sealed = json.loads(tree([SOFTMAX], PACKAGE, "0.1")["certificate.json"])
    op = sealed["ops"]["softmax"]
    assert "nothing was timed" in op["summary"]
    assert op["evidence"] == "interpreted"
    assert op["candidate"] == SOFTMAX.candidate.digest
    assert op["contract"] == OP.digest
    assert op["review"]["reviewer"] == "ada"
    assert verdict_json.validate_python(op["verdict"]) == SOFTMAX.verdict


def test_the_certificate_names_the_machine_of_a_replayed_verdict():
    timed = replace(SOFTMAX, verdict=judged(OP, "replayed", "NVIDIA H200"), backward=None)
    content = tree([timed], PACKAGE, "0.1")
    op = json.loads(content["certificate.json"])["ops"]["softmax"]
    assert "NVIDIA H200" in op["summary"]
    assert op["verdict"]["measured"][0]["time_us"] == 38.0
    assert list(json.loads(content["tables/softmax.json"])["rows"]) == ["NVIDIA H200"]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path):
    one = build_wheel([SOFTMAX, STEP], PACKAGE, "0.1", tmp_path / "one")
    two = build_wheel([STEP, SOFTMAX, SOFTMAX_BACKWARD], PACKAGE, "0.1", tmp_path / "two")
    assert one.name == f"{PACKAGE}-0.1-py3-none-any.whl"
    assert one.read_bytes() == two.read_bytes()


def test_building_runs_no_candidate_and_leaves_no_path_of_this_machine(tmp_path: Path):
    mark = tmp_path / "ran"
    trap = f"open({str(mark)!r}, 'w').close()\n"
    candidate = replace(SOFTMAX.candidate, source=trap + KERNEL)
    reference = replace(OP.reference, source=trap + OP.reference.source)
    trapped = replace(SOFTMAX, op=replace(OP, reference=reference), candidate=candidate)
    wheel = build_wheel([trapped], PACKAGE, "0.1", tmp_path / "out")
    assert not mark.exists()
    with zipfile.ZipFile(build_wheel([SOFTMAX], PACKAGE, "0.1", tmp_path / "clean")) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
        metadata = archive.read(f"{PACKAGE}-0.1.dist-info/METADATA").decode()
    assert wheel.exists()
    for path in (str(tmp_path), str(Path(__file__).parent.parent), str(Path.home())):
        assert path.encode() not in content or path == "/"
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: torch>=2.11" in metadata
    assert "kernelwright" not in "".join(
        line for line in metadata.splitlines() if line.startswith("Requires")
    )


@pytest.mark.parametrize(
    "name",
    ["Upper", "9lives", "has-dash", "../up", "a" * 64, "", "class", "json", "torch", "aten", "x\n"],
)
def test_a_package_name_that_could_do_harm_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ExportError, match="name"):
        build_wheel([SOFTMAX], name, "0.1", tmp_path)


def unbound() -> Exported:
    return replace(SOFTMAX, op=replace(OP, outputs={"y": Tensor("M K")}))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (replace(SOFTMAX, name="explain"), "explain"),
        (replace(SOFTMAX, name="../up"), "op name"),
        (replace(SOFTMAX, candidate=replace(SOFTMAX.candidate, entry="a(b")), "a\\(b"),
        (replace(SOFTMAX, verdict=Rejected("correct", "no", Record("replayed", "none"))), "reject"),
        (unbound(), "no input's shape gives K"),
        (replace(SOFTMAX, op=replace(OP, inputs={"x y": Tensor("M N")})), "x y"),
        (replace(SOFTMAX_BACKWARD, backward=SOFTMAX), "is nothing that"),
        (replace(SOFTMAX, backward=replace(SOFTMAX_BACKWARD, name="softmax")), "two different"),
    ],
    ids=["reserved", "path", "entry", "rejected", "unbound", "argument", "backward", "twice"],
)
def test_a_kernel_that_no_package_could_hold_is_refused(kernel: Exported, said: str):
    with pytest.raises(ExportError, match=said):
        tree([kernel], PACKAGE, "0.1")


def test_a_version_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(ExportError, match="version"):
        build_wheel([SOFTMAX], PACKAGE, "latest", tmp_path)


@pytest.mark.gpu
def test_on_its_gpu_the_op_takes_the_kernel_and_is_right(package: ModuleType):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is for sm_90")
    x = torch.randn(64, 500, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    assert package.explain("softmax", x).path == "kernel"
    y = package.softmax(x)
    torch.testing.assert_close(y.float(), torch.softmax(x.float(), -1), atol=1e-2, rtol=2e-2)
    y.sum().backward()
    assert OP_BACKWARD.inputs.keys() == {"d_y", "y"}
    assert x.grad is not None
