"""Each wall around a stranger's code by itself: what it refuses, and that nothing else did."""

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import seeds
from api.render import _templates
from cli.main import app
from cli.render import evidence
from evaluator.inputs import Case
from evaluator.isolate import Died, Done
from evaluator.record import record
from evaluator.sandbox import Zygote, findings, landlock, sandbox_level
from evaluator.sandbox.cgroup import Groups, open_groups
from evaluator.sandbox.found import look
from evaluator.sandbox.remedies import UNIFY, remedy
from kernel_library.unit import discover
from kernel_library.verdict import Record

ATTACKS = "evaluator.sandbox.attacks"
HERE = {finding.name for finding in findings() if finding.there}
#: What each refuses by itself, and with which word.
REFUSES = {
    "namespaces": {
        "signal": "ESRCH",
        "read environment": "ENOENT",
        "read file": "ENOENT",
        "write outside": "ENOENT",
        "write shared memory": "EROFS",
        "abstract socket": "ECONNREFUSED",
    },
    "landlock": {
        "signal": "EPERM",
        "read environment": "EACCES",
        "read file": "EACCES",
        "write outside": "EACCES",
        "write shared memory": "EACCES",
        "abstract socket": "EPERM",
    },
    "seccomp": dict.fromkeys(
        ["ptrace", "read memory", "steal descriptor", "abstract socket", "internet socket",
         "datagrams", "lasting memory", "new namespace", "io_uring", "keyring", "traced clock"],
        "EPERM",
    ),
}  # fmt: skip


def needs(*walls):
    missing = sorted(set(walls) - HERE)
    return pytest.mark.skipif(bool(missing), reason=f"not on this host: {missing}")


@pytest.fixture
def attack(tmp_path):
    """What came of each attempt, from within these walls, on this process and its files."""
    (tmp_path / "secret").write_text("canary")
    name = f"kernelwright-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        asked = {
            "pid": os.getpid(), "file": str(tmp_path / "secret"), "folder": str(tmp_path),
            "socket": name,
        }  # fmt: skip

        def within(*walls: str) -> dict:
            with Zygote((), walls=walls) as zygote:
                done = zygote(f"{ATTACKS}:attack", json.dumps(asked).encode(), 30)
            assert isinstance(done, Done), done
            return json.loads(done.body)

        yield within


@pytest.mark.parametrize("wall", [pytest.param(wall, marks=needs(wall)) for wall in REFUSES])
def test_each_wall_refuses_its_attacks_and_without_it_nothing_does(attack, wall):
    due = dict(REFUSES[wall])
    if wall == "landlock" and landlock.version() < 6:
        # older kernels hold files alone
        del due["signal"], due["abstract socket"]
    told, bare = attack(wall, "rlimits")["told"], attack("rlimits")["told"]
    assert {name: told[name] for name in due} == due
    assert not [name for name in due if bare[name] == due[name]]


@pytest.mark.parametrize("wall", [pytest.param(w, marks=needs(w)) for w in sorted(REFUSES)])
def test_no_process_is_in_sight_and_no_program_gains_privileges(attack, wall):
    seen = attack(wall, "rlimits")
    assert seen["no new privileges"] == 1
    assert seen["processes"] == [] or wall == "seccomp"


def test_a_child_cannot_end_its_neighbour():
    with Zygote((), walls=("rlimits",)) as zygote, ThreadPoolExecutor(1) as pool:
        beside = pool.submit(zygote, f"{ATTACKS}:wait", b"1.5", 30)
        time.sleep(0.5)
        assert isinstance(zygote(f"{ATTACKS}:scribble", b"", 30), Died)
        assert beside.result() == Done(b"")


def test_a_child_holds_its_request_and_its_reply_alone(attack):
    assert len(attack("rlimits")["descriptors"]) == 2


@pytest.mark.parametrize("level", ["namespaces", "rlimits"])
def test_what_compilers_and_launchers_do_all_day_is_let_through(level):
    within = HERE if level == "namespaces" else HERE - {"namespaces"}
    unit = next(unit for unit in discover(seeds) if unit.op.name == "softmax")
    with Zygote(walls=sorted(within)) as zygote:
        assert zygote(f"{ATTACKS}:harmless", b"", 30) == Done(b"ok")
        (made,) = record(unit.spec, unit.candidate(), [(unit.op.workloads[0], Case(1))], zygote)
    assert made.tape.launches and made.binaries


def test_without_namespaces_a_child_leaves_no_folder_behind():
    with Zygote((), walls=("rlimits",)) as zygote:
        assert zygote(f"{ATTACKS}:harmless", b"", 30) == Done(b"ok")
        assert list(Path(zygote._folder.name).iterdir()) == []
    assert not Path(zygote._folder.name).exists()


def test_an_answer_that_does_not_end_is_cut():
    with Zygote((), walls=("rlimits",)) as zygote:
        assert zygote(f"{ATTACKS}:too_much", b"", 30).how == "overflow"


def test_a_wall_that_does_not_stand_is_a_failure_of_ours_and_nothing_runs():
    @contextmanager
    def no_way_in():
        with Path("/dev/full").open("wb", 0) as full:
            yield [full.fileno()]

    with Zygote((), walls=("rlimits",)) as zygote:
        zygote._group = no_way_in
        died = zygote(f"{ATTACKS}:harmless", b"", 30)
    assert died.how == "raised" and "os.write(entrance" in died.text


def test_the_walls_are_found_from_the_best_base_and_each_refusal_has_a_remedy():
    asked = []

    def ask(walls):
        asked.append(walls)
        if "namespaces" in walls:
            return Died("raised", "lines above\nPermissionError: clone was refused")
        if "cgroup" in walls:
            raise OSError("no cgroup v2")
        return Done(b'{"landlock": "", "seccomp": "it was accepted, and holds nothing back"}')

    found = {f.name: f for f in look(ask, lambda path: "")}
    assert [name for name, f in found.items() if f.there] == ["landlock", "rlimits"]
    assert found["namespaces"].refusal == "PermissionError: clone was refused"
    assert all(f.remedy and f.refusal for f in found.values() if not f.there)
    assert asked == [("namespaces", "rlimits"), ("rlimits",), ("rlimits", "cgroup")]


def test_the_level_is_the_word_for_the_walls():
    assert (sandbox_level() == "namespaces") == ("namespaces" in HERE)
    with Zygote((), walls=("seccomp", "rlimits")) as lower, Zygote((), confined=False) as opened:
        assert (lower.level, opened.level) == ("rlimits", "none")


@pytest.mark.parametrize(
    ("wall", "files", "says"),
    [
        ("namespaces", {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
         "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("namespaces", {"/proc/sys/kernel/unprivileged_userns_clone": "0\n"},
         "kernel.unprivileged_userns_clone=1"),
        ("namespaces", {"/proc/sys/user/max_user_namespaces": "0\n"}, "max_user_namespaces=15000"),
        ("namespaces", {"/.dockerenv": "/.dockerenv"}, "--security-opt seccomp=unconfined"),
        ("namespaces", {}, "run as root"),
        ("landlock", {"/run/.containerenv": "x"}, "seccomp=unconfined"),
        ("landlock", {}, "lsm="),
        ("cgroup", {}, UNIFY),
        ("cgroup", {"/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n"}, "Delegate=yes"),
        ("cgroup", {"/sys/fs/cgroup/cgroup.controllers": "memory pids", "/.dockerenv": "x"},
         "--cgroupns=private"),
    ],
)  # fmt: skip
def test_a_remedy_fits_the_host(wall, files, says):
    assert says in remedy(wall, lambda path: files.get(path, ""))


def test_the_doctor_tells_of_each_wall_and_how_to_get_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    told = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    walls = {row["what"]: row for row in told if row["what"].startswith("sandbox: ")}
    assert {name for name, row in walls.items() if row["ok"]} == {f"sandbox: {w}" for w in HERE}
    assert len(walls) == 5 and all(row["ok"] or row["remedy"] for row in walls.values())


def test_a_verdict_says_what_its_candidate_ran_within():
    record = Record("replayed", "namespaces", confinement=("namespaces", "seccomp"))
    assert "sandbox: namespaces (namespaces, seccomp);" in evidence(record)
    page = _templates().get_template("macros.html").module.evidence(record)
    assert "<dd>namespaces: namespaces, seccomp</dd>" in page


def unlimited(folder: Path) -> Groups:
    groups = Groups(folder / f"kernelwright-test-{os.getpid()}", limits={})
    groups.path.mkdir()
    return groups


def cgroup2() -> Path | None:
    """Where processes can be grouped, though perhaps not bounded."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return next((Path(m[1]) for m in lines if m[2] == "cgroup2" and os.access(m[1], os.W_OK)), None)


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.mark.skipif(cgroup2() is None, reason="no cgroup v2 that this user may write to")
def test_whatever_is_left_in_a_group_is_killed_and_the_group_goes():
    groups = unlimited(cgroup2())
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(99)"
    enter = f"import os\nos.write(%d, b'0')\n{daemon}"
    try:
        with groups.one() as entrance:
            subprocess.run([sys.executable, "-c", enter % entrance], pass_fds=[entrance])
            (group,) = [path for path in groups.path.iterdir() if path.is_dir()]
            (left,) = (group / "cgroup.procs").read_text().split()
        # the dead may wait for whoever adopted them to look
        assert not group.exists() and state(left) in "ZX"
    finally:
        groups.close()
    assert not groups.path.exists()


@pytest.mark.skipif(cgroup2() is None, reason="no cgroup v2 that this user may write to")
@needs("namespaces")
def test_a_confined_child_is_in_its_group_before_it_is_a_strangers():
    groups = unlimited(cgroup2())
    with Zygote((), walls=sorted(HERE - {"cgroup"})) as zygote, ThreadPoolExecutor(1) as pool:
        zygote._groups = groups
        beside = pool.submit(zygote, f"{ATTACKS}:wait", b"1", 30)
        time.sleep(0.6)
        (group,) = [path for path in groups.path.iterdir() if path.is_dir()]
        assert len((group / "cgroup.procs").read_text().split()) == 1
        assert isinstance(beside.result(), Done) and not group.exists()
    assert not groups.path.exists()


def test_a_group_that_cannot_be_ended_at_once_is_not_used(tmp_path):
    with pytest.raises(OSError, match=r"Linux 5\.14"), Groups(tmp_path).one():
        pass
    assert list(tmp_path.iterdir()) == []


@needs("cgroup")
def test_processes_that_take_too_much_in_sum_are_ended():
    with Zygote(()) as zygote:
        died = zygote("evaluator.sandbox.selftest:eat_in_sum", b"", 60)
        assert isinstance(died, Died) and died.how == "killed", died


@pytest.mark.parametrize(
    ("membership", "controllers"), [("0::/\n", False), ("4:memory:/\n", True)], ids=["v1", "none"]
)
def test_a_host_without_cgroup_v2_is_told_so(tmp_path, membership, controllers):
    if controllers:
        (tmp_path / "cgroup.controllers").write_text("memory pids")
    with pytest.raises(OSError, match="no cgroup v2"):
        open_groups(tmp_path, membership)
