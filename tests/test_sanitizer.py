"""compute-sanitizer without a GPU: what its logs say, and a stand-in for it on the path.

The logs are written after its manual and public reports; none was recorded.
"""

import os
import stat
import sys
import time
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch
from tapes import AT, CASE, CLONE, CPU, X, Y, plain_op, tape_of

from evaluator.deep import running
from evaluator.deep.alone import play_each
from evaluator.deep.exact import Exact
from evaluator.deep.running import PLAYED, Log, sanitize
from evaluator.deep.sanitizer import (
    FOUND,
    Finding,
    believed,
    command,
    findings,
    is_complete,
    version_of,
)
from evaluator.inputs import draw
from evaluator.play import wire
from evaluator.play.player import Player
from evaluator.play.wire import Request, Take
from kernel_library.tape import Pointer
from kernel_library.verdict import KernelFacts

BANNER = "========= COMPUTE-SANITIZER\n"
READ = """========= Invalid __global__ read of size 4 bytes
=========     at _rows+0x2d0 in candidate.py:20
=========     by thread (63,0,0) in block (2,0,0)
=========     Address 0x7f3c7ec001e4 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f3c7ec00000 of size 480 bytes
=========
"""
NONE = "========= ERROR SUMMARY: 0 errors\n"
ONE = "========= ERROR SUMMARY: 1 error\n"
RACE = """========= Error: Race reported between Write access at _rows+0x140
=========     and Read access at _rows+0xe0 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
UNREAD = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at {kernel}+0x70
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
========= ERROR SUMMARY: 1 error
"""
BARRIER = """========= Barrier error detected. Divergent thread(s) in block
=========     at 0x2c8 in candidate.py:9:_rows
========= ERROR SUMMARY: 1 error
"""


# What a log says


@pytest.mark.parametrize(
    ("tool", "log", "what"),
    [
        ("memcheck", READ + ONE, "reads 4 bytes past the end of a buffer"),
        ("memcheck", READ.replace("read", "write").replace("after", "before") + ONE,
         "writes 4 bytes before the start of a buffer"),
        ("memcheck", READ.replace("out of bounds", "misaligned") + ONE,
         "reads 4 bytes at a misaligned address"),
        ("memcheck", READ.splitlines(True)[0] + READ.splitlines(True)[1] + ONE,
         "reads 4 bytes outside its buffers"),
        ("racecheck", RACE.upper().replace("_ROWS", "_rows"),
         "races on shared memory: a barrier is missing"),
        ("racecheck", RACE, "races on shared memory: a barrier is missing"),
        ("initcheck", UNREAD.format(kernel="_rows"), "reads memory that nothing has written"),
        ("synccheck", BARRIER, "uses a barrier that not all of its threads reach"),
    ],
)  # fmt: skip
def test_a_report_is_told_in_words_without_a_size_or_an_address(tool, log, what):
    (found,) = findings(tool, BANNER + log, ["_row", "_rows"])
    assert (found.kernel, found.what) == ("_rows", what)
    assert is_complete(log)


@pytest.mark.parametrize(
    ("tool", "log"),
    [
        ("memcheck", NONE),
        ("memcheck", READ.replace("_rows", "void at::native::vectorized_copy") + ONE),
        ("memcheck", READ.replace("_rows", "_rows_of_another") + ONE),
        ("racecheck", RACE.replace("Error: Race", "Warning: Race")),
        ("initcheck", UNREAD.format(kernel="void at::native::elementwise_kernel<128, 4>")),
        ("initcheck", "========= Host API memory access error at host access to 0x7f\n" + ONE),
    ],
)
def test_what_is_not_the_candidates_or_no_error_is_passed_over(tool, log):
    assert findings(tool, BANNER + log, ["_rows"]) == ()


def test_each_thing_is_told_once_and_of_the_kernel_that_did_it():
    log = READ * 3 + READ.replace("_rows", "_tail") + ONE
    told = findings("memcheck", log, ["_rows", "_tail", "_other"])
    assert [found.kernel for found in told] == ["_rows", "_tail"]


def test_a_log_that_breaks_off_is_not_complete():
    assert not is_complete(BANNER) and not is_complete("")


def facts(name="kernel", asynchronous=0) -> KernelFacts:
    return KernelFacts(name, "sm_90", 32, 0, 0, 4, async_instructions=asynchronous)


OLD, NEW = (2025, 3), (2026, 4)


@pytest.mark.parametrize(
    ("tool", "access", "version", "held"),
    [
        ("memcheck", "global write", OLD, True),
        ("memcheck", "global atomic", OLD, True),
        ("memcheck", "global read", OLD, False),
        ("memcheck", "global read", NEW, True),
        ("memcheck", "shared read", NEW, False),
        ("racecheck", "", NEW, False),
        ("synccheck", "", NEW, False),
        ("initcheck", "", NEW, False),
    ],
)
def test_what_a_tool_is_known_to_invent_is_not_held_against_a_kernel(tool, access, version, held):
    found = Finding(tool, "kernel", "is wrong", access)
    assert believed(found, [facts()], version)
    assert believed(found, [facts(asynchronous=8)], version) is held
    # what another kernel does asynchronously is nothing to it, but that may have written its input
    beside = [facts(), facts("other", 8)]
    assert believed(found, beside, version) is (tool != "initcheck")


def test_a_version_is_read_from_what_the_tool_says():
    told = "NVIDIA (R) Compute Sanitizer\nVersion 2025.3.1.0 (build 36437869) (public-release)\n"
    assert version_of(told) == (2025, 3) and version_of("command not found") == (0, 0)


# Running it: a stand-in on the path, which says and does what it is told

STAND_IN = """#!{python}
import os, subprocess, sys, time
asked = sys.argv[1:]
if asked == ["--version"]:
    print("Compute Sanitizer\\nVersion 2025.3.0.0 (build 1)")
    sys.exit(0)
log, tool = (asked[asked.index(name) + 1] for name in ("--log-file", "--tool"))
target = asked[asked.index({python!r}):]
open(os.environ["SEEN"], "a").write(" ".join(asked) + "\\n")
if "LEAVES" in os.environ:
    left = subprocess.Popen(["sleep", "60"])
    open(os.path.join(os.path.dirname(os.environ["SEEN"]), "left"), "w").write(str(left.pid))
time.sleep(float(os.environ.get("SLEEP", "0")))
ended = subprocess.run(target).returncode if "REALLY" in os.environ else 0
print(os.environ.get("SAID", {played!r}))
open(log, "w").write(os.environ.get("LOG_" + tool, ""))
sys.exit(ended or int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    program = tmp_path / "compute-sanitizer"
    program.write_text(STAND_IN.format(python=sys.executable, played=PLAYED))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


def test_a_tool_that_found_something_has_looked(stand_in, monkeypatch):
    monkeypatch.setenv("LOG_memcheck", READ + ONE)
    monkeypatch.setenv("CODE", str(FOUND))
    assert sanitize("memcheck", b"{}", 60) == Log(READ + ONE, "", (2025, 3))
    asked = stand_in.read_text().split()
    assert asked[:4] == ["--tool", "memcheck", "--error-exitcode", str(FOUND)]
    assert asked[asked.index("-m") + 1] == "evaluator.deep.alone" and "--padding" in asked
    assert "--padding" not in command("x", "racecheck", "log")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"CODE": "1", "LOG_initcheck": "========= Error: no permission\n"},
         "initcheck could not run: Error: no permission; played to the end"),
        ({"LOG_initcheck": BANNER, "SAID": "went home"}, "initcheck could not run: went home"),
        ({"LOG_initcheck": "========= Error: Device not supported\n" + ONE, "SAID": "oh",
          "CODE": str(FOUND)}, "initcheck could not run: Error: Device not supported; oh"),
        ({"CODE": "7", "SAID": ""}, "initcheck could not run: it ended with 7"),
        ({"SLEEP": "60"}, "initcheck took too long"),
    ],
)  # fmt: skip
def test_what_keeps_a_tool_from_looking_is_told(stand_in, monkeypatch, settings, why):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert sanitize("initcheck", b"{}", 2 if "SLEEP" in settings else 60).why == why


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_the_target_is_started_with_what_it_needs_and_says_what_it_lacks(stand_in, monkeypatch):
    monkeypatch.setenv("REALLY", "1")
    sent, binaries = wire.pack([Take(AT, CASE, tape_of(CLONE))])
    request = wire.dump_request(Request(plain_op(), sent, binaries, "/nowhere"))
    monkeypatch.setenv("SAID", "")
    assert "no CUDA GPU is visible" in sanitize("synccheck", request, 120).why


@pytest.mark.parametrize(("sleep", "seconds"), [("60", 2), ("0", 60)], ids=["hung", "gone"])
def test_nothing_of_a_tool_is_left_running(stand_in, monkeypatch, sleep, seconds):
    monkeypatch.setenv("LEAVES", "1")
    monkeypatch.setenv("SLEEP", sleep)
    sanitize("racecheck", b"{}", seconds)
    left, until = int((stand_in.parent / "left").read_text()), time.monotonic() + 5
    # it was an orphan: whoever takes those in may need a moment to see that it ended
    while lives(left) and time.monotonic() < until:
        time.sleep(0.02)
    assert not lives(left)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_machine_without_it_says_so(monkeypatch, tmp_path):
    for name in ("PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    if running.find():
        pytest.skip("it lies in /usr/local/cuda here, where it is always found")
    assert sanitize("memcheck", b"{}", 1).why == "compute-sanitizer is not installed here"


def test_under_it_each_buffer_is_an_allocation_of_its_own_and_the_same_comes_out():
    play_each(request_of(Take(AT, CASE, tape_of(CLONE))), CPU)
    player = Player(plain_op(), tape_of(CLONE), CPU, Exact)
    inputs = draw(plain_op(), AT, CASE, CPU)
    bound = player.bind(inputs)
    bound.play()
    assert torch.equal(bound.outputs()[0], inputs["x"])
    made = [bound.tensor(view).untyped_storage() for view in (X, Y)]
    assert [storage.nbytes() for storage in made] == [480, 480]
    assert bound.address(Pointer(1, 8)) == made[1].data_ptr() + 8


def request_of(*takes, op=None) -> Request:
    sent, binaries = wire.pack(takes)
    turns = Path(gettempdir()) / "turns"
    return Request(op or plain_op(), sent, binaries, str(turns))
