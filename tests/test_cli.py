"""The command line as its users meet it: exit codes, words, and nothing left behind."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import candidates
import httpx
import pytest
import torch
import typer
from processes import descendants, left
from typer.testing import CliRunner

from cli.checking import by_lines_of, judged
from cli.exits import exits
from cli.main import app
from kernel_library.codec import verdict_json
from kernel_library.verdict import Passed, Record, Rejected
from seeds import rms_norm, softmax

ROOT = Path(__file__).parent.parent
COMMANDS = ["doctor", "calibrate", "check", "bench", "optimize", "serve", "worker", "submit"]
COMMANDS += ["export", "library", "library list", "library show", "library verify"]
COMMANDS += ["redteam", "scoreboard"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("KERNELWRIGHT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(*arguments):
    """A command in this process, for what needs no process of its own."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


def kernelwright(*arguments, seconds=120):
    command = [sys.executable, "-m", "cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)


# Judging


def verdict_on(judge, kernel):
    return judged(judge, ("affine.py", candidates.PROBLEM, None), kernel)[1]


def test_a_right_kernel_passes(judge):
    verdict = verdict_on(judge, candidates.RIGHT)
    assert isinstance(verdict, Passed), verdict
    assert verdict.record.evidence == "interpreted" and not verdict.measured


@pytest.mark.parametrize(
    ("kernel", "stage", "says"),
    [
        ("MASK_BUG", "smoke", "never written"),
        ("TUNED", "smoke", "(setting 2 of 2 of its own autotuner)"),
        ("CACHED", "record", "memory of another call is used again"),
        ("PATCHES_EVENTS", "screen", "torch.cuda.Event belongs to a library"),
        ("READS_FRAMES", "screen", "sys cannot be imported"),
        ("LOOKS_FOR_ANSWERS", "smoke", "is off by"),
    ],
)
def test_a_wrong_or_cheating_kernel_is_rejected_with_a_reason(judge, kernel, stage, says):
    verdict = verdict_on(judge, getattr(candidates, kernel).replace("TELL", "pass"))
    assert isinstance(verdict, Rejected), verdict
    assert (verdict.stage, says in verdict.reason) == (stage, True), verdict.reason


def test_the_frame_reader_does_walk_the_stack_and_finds_nothing(judge):
    tell = 'raise ValueError(f"{depth} frames, {sum(t is not x for t in found)} other tensors")'
    verdict = verdict_on(judge, candidates.LOOKS_FOR_ANSWERS.replace("TELL", tell))
    assert isinstance(verdict, Rejected) and verdict.stage == "record"
    frames, others = (
        int(w) for w in verdict.reason.split("ValueError: ")[1].split() if w.isdigit()
    )
    assert frames > 2 and others == 0


def test_patched_events_change_nothing(judge):
    before = torch.cuda.Event
    verdict = verdict_on(judge, candidates.PATCHES_EVENTS_UNSEEN)
    assert isinstance(verdict, Passed) and not verdict.measured
    assert torch.cuda.Event is before


def test_a_hanging_kernel_is_rejected_in_time_and_leaves_nothing(hasty_judge):
    assert isinstance(verdict_on(hasty_judge, candidates.MASK_BUG), Rejected)
    before = descendants(os.getpid())
    for kernel, stage in ((candidates.HOST_LOOP, "record"), (candidates.DEVICE_LOOP, "smoke")):
        began = time.monotonic()
        verdict = verdict_on(hasty_judge, kernel)
        assert isinstance(verdict, Rejected) and verdict.stage == stage, verdict
        assert time.monotonic() - began < 90
        assert not left(descendants(os.getpid()) - before)
    assert isinstance(verdict_on(hasty_judge, candidates.RIGHT), Passed)


def test_check_ends_with_the_verdicts_code_and_leaves_nothing(home):
    (home / "affine.py").write_text(candidates.PROBLEM)
    (home / "wrong.py").write_text(candidates.MASK_BUG)
    before = descendants(os.getpid())
    told = kernelwright("check", home / "affine.py", "--candidate", home / "wrong.py", "--json")
    assert (told.returncode, told.stderr) == (1, "")
    verdict = verdict_json.validate_json(told.stdout)
    assert isinstance(verdict, Rejected) and verdict.stage == "smoke"
    assert not left(descendants(os.getpid()) - before)


@pytest.mark.parametrize("unit", [softmax, rms_norm])
def test_a_unit_is_rejected_at_the_lines_of_its_file(unit):
    file, half = inspect.getsource(unit), unit.UNIT.kernel_source
    record = Record("interpreted", "namespaces")
    for number, line in enumerate(half.splitlines(), 1):
        told = by_lines_of(
            file, Rejected("correct", f"line {number}: no: line 3: so", record), half
        )
        where = int(told.reason.removesuffix(": no: line 3: so").removeprefix("line "))
        assert where >= number and file.splitlines()[where - 1] == line
    # the last line of the half is the launcher's, just above UNIT
    assert file.splitlines()[where + 2].startswith("UNIT = ")
    plain = Rejected("smoke", "output 'y' is off", record)
    assert by_lines_of(file, plain, half) == plain


def test_a_candidate_is_checked_against_a_definition(judge):
    text, workloads = ((ROOT / f"examples/softmax.{s}").read_text() for s in ("json", "jsonl"))
    verdict = judged(judge, ("softmax.json", text, workloads), candidates.SOFTMAX)[1]
    assert isinstance(verdict, Passed), verdict


def test_a_problem_without_a_kernel_asks_for_one(judge, capsys):
    with pytest.raises(typer.Exit) as ended:
        judged(judge, ("affine.py", candidates.PROBLEM, None))
    assert ended.value.exit_code == 2 and "--candidate" in capsys.readouterr().err


# Bad input

DEFINITION = {
    "name": "same", "axes": {"M": {"type": "var"}},
    "inputs": {"x": {"shape": ["M"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["M"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x\n",
}  # fmt: skip
ODD = {"x": {"shape": ["M"], "dtype": "float17"}}
RAISES = """import torch

def reference(x):
    y = x * 2
    raise KeyError("no scale")

def get_inputs():
    return [torch.randn(4, 8)]
"""
NO_TENSORS = "def reference(n):\n    return n + 1\n\ndef get_inputs():\n    return [3]\n"
#: A file, what is said of it, and the type of the problem that the API answers with at once.
BAD = [
    ("no.py", "import torch\ndef f(x:\n    return x\n", "line 2: not Python", "syntax-error"),
    ("raises.py", RAISES, "line 5: KeyError: 'no scale'", None),
    ("bare.py", NO_TENSORS, "get_inputs: the example inputs hold no tensor", None),
    ("big.py", "x = 1\n" * ((10 << 20) // 6), "at most 262144 are read", "too-large"),
    ("odd.py", candidates.PROBLEM.replace("64, 1000", "4, 8, dtype=torch.float17"),
     "line 7: AttributeError: module 'torch' has no attribute 'float17'", None),
    ("odd.json", json.dumps(DEFINITION | {"inputs": ODD}),
     "field 'inputs.x': unknown dtype 'float17'", None),
    ("field.json", json.dumps(DEFINITION | {"colour": "red"}), "field 'colour'", None),
    ("empty.py", "", "no problem here", "invalid"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "says"), [b[:3] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input_is_the_askers_fault_and_named(judge, capsys, name, text, says):
    judge.rooms.recorder("evaluator.sandbox.selftest:look", b"", 60.0)  # the sandbox is up
    began, before = time.monotonic(), descendants(os.getpid())
    with pytest.raises(typer.Exit) as ended, exits():
        judged(judge, (name, text, None))
    told = capsys.readouterr()
    assert (ended.value.exit_code, says in told.err, told.out) == (2, True, ""), told.err
    assert "Traceback" not in told.err and len(told.err) < 600
    assert time.monotonic() - began < 60 and not left(descendants(os.getpid()) - before)


def test_a_missing_file_is_named(home):
    for command in ("check", "optimize", "submit"):
        told = run(command, home / "missing.py")
        assert told.exit_code == 2
        assert "missing.py: No such file or directory" in told.stderr


def test_a_bad_setting_is_named_and_not_its_value(home, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_LLM_URL", "https://user:hunter2@example.org/v1")
    monkeypatch.setenv("KERNELWRIGHT_LLM_MODEL", "tiny")
    told = run("library", "list")
    assert told.exit_code == 2
    assert "KERNELWRIGHT_LLM_URL" in told.stderr and "hunter2" not in told.stderr


# The other commands


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_command(home, command):
    told = run(*command.split(), "--help")
    assert told.exit_code == 0 and told.stdout.count("\n") > 5
    assert max(len(line) for line in told.stdout.splitlines()) <= 100


def test_help_waits_for_nothing_heavy(home):
    heavy = {"torch", "triton", "sqlalchemy", "alembic", "optuna", "openai", "fastapi"}
    look = f"import sys, cli.main; print(sorted({heavy!r} & sys.modules.keys()))"
    before = os.times()
    told = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True)
    after = os.times()
    assert told.stdout == "[]\n", told.stderr
    # processor time, which a busy machine stretches less than it does the clock's
    spent = after.children_user + after.children_system
    assert spent - before.children_user - before.children_system < 2.5


def test_doctor_tells_what_this_machine_can_do(home):
    found = {each["what"]: each for each in json.loads(run("doctor", "--json").stdout)}
    assert found["compilers"]["found"].startswith("torch ")
    assert found["sandbox"]["found"] in ("namespaces", "rlimits")
    assert all(each["ok"] or each["remedy"] for each in found.values())
    told = run("doctor")
    assert told.exit_code == 0 and max(map(len, told.stdout.splitlines())) <= 100


def test_the_library_lists_and_shows_the_seeds(home):
    listed = json.loads(run("library", "list", "--json").stdout)
    assert {"rms_norm", "softmax", "swiglu", "gemm"} <= {each["name"] for each in listed}
    assert "not judged here" in run("library", "list").stdout
    shown = run("library", "show", "softmax")
    kernel = json.loads(run("library", "show", "softmax", "--json").stdout)
    assert kernel["candidate"]["source"] in shown.stdout
    assert run("library", "show", "nothing").exit_code == 2


def test_an_export_says_what_was_never_judged(home):
    told = run("export", "softmax", "--out", home / "dist")
    assert told.exit_code == 0
    assert "softmax, softmax_backward: never judged here" in told.stderr
    assert len(list((home / "dist").glob("my_kernels-*.whl"))) == 1
    assert run("export", "nothing", "--out", home / "dist").exit_code == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to time on")
@pytest.mark.parametrize("command", [["bench", "softmax"], ["calibrate"]])
def test_nothing_is_timed_without_a_gpu(home, command):
    told = run(*command)
    assert told.exit_code == 2 and "no CUDA GPU is visible here" in told.stderr


# The service


@pytest.fixture
def service(home):
    """A running `serve --local`, its process and its address."""
    command = [sys.executable, "-m", "cli.main", "serve", "--local", "--port", "0"]
    log = home / "log"
    with log.open("w") as said, subprocess.Popen(command, cwd=ROOT, stderr=said) as server:
        try:
            until = time.monotonic() + 60
            while "serving on " not in log.read_text() and time.monotonic() < until:
                time.sleep(0.1)
            address = log.read_text().split("serving on ")[1].split()[0]
            yield server, address
        finally:
            server.terminate()


def test_a_service_takes_problems_and_leaves_nothing_when_told_to_stop(service, home):
    server, address = service
    for name, text, _, kind in BAD:
        body = {"filename": name, "source": text}
        answer = httpx.post(f"{address}v1/jobs", json=body, timeout=30)
        if kind is None:
            continue
        assert answer.json()["type"] == f"/problems/{kind}", answer.text
        (home / name).write_text(text)
        told = run("submit", home / name, "--url", address)
        assert told.exit_code == 2 and told.stderr.startswith("error: "), told.stderr

    (home / "raises.py").write_text(RAISES)
    told = run("submit", home / "raises.py", "--url", address.rstrip("/"))
    assert (told.exit_code, "line 5: KeyError: 'no scale'" in told.stderr) == (2, True), told.stderr
    assert told.stderr.startswith(f"{address}jobs/job_"), told.stderr

    taken = kernelwright("serve", "--port", httpx.URL(address).port)
    assert taken.returncode == 2 and "address already in use" in taken.stderr
    assert "torch" not in Path(f"/proc/{server.pid}/maps").read_text()

    started = descendants(server.pid)
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert started and not left(started)


def test_a_service_whose_worker_cannot_start_ends_and_says_so(home):
    """What the operator put on the path is on the worker's, too: here, a package that breaks it."""
    (home / "triton.py").write_text("raise ImportError('no triton today')")
    told = subprocess.run(
        [sys.executable, "-m", "cli.main", "serve", "--local", "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(home)}, cwd=ROOT, timeout=100,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 3, told.stderr
    assert "no triton today" in told.stderr and "the worker ended with exit code 1" in told.stderr
    assert "error: no worker stays" in told.stderr


def test_serving_needs_a_loopback_address_and_a_database(home):
    told = kernelwright("serve", "--local", "--host", "0.0.0.0")
    assert told.returncode == 2 and "not a loopback address" in told.stderr
    told = kernelwright("serve", "--port", "0")
    assert told.returncode == 2 and "start once with --local" in told.stderr
