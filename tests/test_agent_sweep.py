"""The sweep: on surfaces that are known, so that the best setting is known too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log2, prod

import pytest

from agent.declared import NotASpaceError, declared_space
from agent.loop import Exhausted, Proposal, optimize
from agent.stop import out_of_attempts
from agent.sweep import NO_SPACE, NOTHING_RIGHT, NOTHING_TIMED, from_space
from kernel_library.candidate import Candidate
from kernel_library.job import Attempt, best
from kernel_library.space import Space, Tuned
from kernel_library.spec import OpSpec, Tensor, Workload
from kernel_library.verdict import Measurement, Passed, Record, Rejected, Verdict

HERE = Record("replayed", "namespaces")
SMALL = Workload({"M": 64, "N": 1024}, {"T": "float16"}, "measure")
LARGE = Workload({"M": 64, "N": 65536}, {"T": "float16"}, "measure")
ODD = Workload({"M": 3, "N": 127}, {"T": "float16"}, "check")
OP = OpSpec("scale", {"x": Tensor("M N")}, {"y": Tensor("M N")}, (SMALL, LARGE, ODD))
ROOT = Candidate("scale", "SPACE = {}", "scale", {"BLOCK": 64, "num_warps": 1})
POWERS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
SPACE = Space({"BLOCK": POWERS, "num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3, 4)})

Surface = Callable[[Workload, Mapping[str, int]], float]


def bowl(at: Workload, config: Mapping[str, int]) -> float:
    """Microseconds: least, and equal to the floor, at BLOCK 1024, 4 warps, 3 stages."""
    off = (log2(config["BLOCK"]) - 10) ** 2 + 2 * (log2(config["num_warps"]) - 2) ** 2
    return 10.0 * (1 + 0.1 * off + 0.05 * (config.get("num_stages", 3) - 3) ** 2)


def each_its_own(at: Workload, config: Mapping[str, int]) -> float:
    """The small size likes BLOCK 64 best, the large one BLOCK 256."""
    best_block = 64 if at is SMALL or at.dims == SMALL.dims else 256
    return 10.0 * (1 + abs(log2(config["BLOCK"] / best_block)))


def judge(surface: Surface) -> Callable[[OpSpec, Candidate], Verdict]:
    def evaluate(op: OpSpec, candidate: Candidate) -> Verdict:
        times = [
            (at, surface(at, candidate.config_at(at)))
            for at in op.workloads
            if at.role == "measure"
        ]
        return Passed((), HERE, tuple(Measurement(at, t, t, t, 10.0, "memory") for at, t in times))

    return evaluate


def root(surface: Surface, candidate: Candidate = ROOT) -> list[Attempt]:
    return [Attempt(candidate, judge(surface)(OP, candidate))]


def swept(surface: Surface, space: Space, start: Sequence[Attempt] = (), **how) -> list[Attempt]:
    start = start or root(surface)
    propose = from_space(lambda c: space, **how)
    return [*start, *optimize(OP, propose, judge(surface), out_of_attempts(200), start)]


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_sweep_of_several_at_a_time_finds_what_one_by_one_finds(seed: int):
    start = root(bowl, replace(ROOT, config={"BLOCK": 64, "num_warps": 1, "num_stages": 1}))
    history = swept(bowl, SPACE, start, tries=40, seed=seed, together=4)
    configs = [tuple(a.candidate.config.items()) for a in history]
    assert len(set(configs)) == len(configs) <= 40
    assert best(history).candidate.config == {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}


def test_a_proposal_holds_no_more_settings_than_tries_are_left():
    propose = from_space(lambda c: SPACE, tries=4, together=8)
    proposal = propose(OP, root(bowl, replace(ROOT, config={"BLOCK": 64, "num_warps": 1})))
    assert isinstance(proposal, Proposal) and 1 + len(proposal.beside) == 3


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_best_setting_of_a_known_surface_is_found_in_a_fifth_of_the_grid(seed: int):
    start = root(bowl, replace(ROOT, config={"BLOCK": 64, "num_warps": 1, "num_stages": 1}))
    history = swept(bowl, SPACE, start, tries=32, seed=seed)
    assert len(history) <= 32 < prod(map(len, SPACE.knobs.values())) / 4
    assert best(history).candidate.config == {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}


def test_a_small_space_is_tried_whole_and_each_setting_once():
    space = Space({"BLOCK": (64, 128, 1024), "num_warps": (1, 4)})
    history = swept(bowl, space)
    settings = [tuple(a.candidate.config.values()) for a in history]
    assert sorted(settings) == [(b, w) for b in (64, 128, 1024) for w in (1, 4)]
    assert best(history).candidate.config == {"BLOCK": 1024, "num_warps": 4}


def test_the_same_seed_sweeps_the_same_way():
    first, again = (swept(bowl, SPACE, tries=12, seed=7) for _ in range(2))
    assert [a.candidate for a in first] == [a.candidate for a in again]


def test_a_sweep_resumes_where_it_stopped():
    whole = swept(bowl, SPACE, tries=12)
    resumed = swept(bowl, SPACE, whole[:6], tries=12)
    assert [a.candidate for a in resumed] == [a.candidate for a in whole]


def test_each_size_gets_the_setting_that_won_there():
    space = Space({"BLOCK": (64, 128, 256)})
    history = swept(each_its_own, space, root(each_its_own, replace(ROOT, config={"BLOCK": 128})))
    joined = history[-1].candidate
    rows = {row.dims["N"]: row.config["BLOCK"] for row in joined.tuned}
    assert rows == {1024: 64, 65536: 256}
    assert best(history).candidate == joined
    assert history[-1].verdict.of_roofline == pytest.approx(1.0)


def test_one_setting_that_wins_everywhere_needs_no_table():
    history = swept(bowl, Space({"BLOCK": (64, 1024), "num_warps": (4,)}))
    assert all(a.candidate.tuned == () for a in history)


def test_a_finished_sweep_says_how_many_settings_it_tried():
    history = swept(each_its_own, Space({"BLOCK": (64, 128, 256)}))
    done = from_space(lambda c: Space({"BLOCK": (64, 128, 256)}))(OP, history)
    assert done == Exhausted("the settings of the best kernel are tuned (3 were tried)")


def test_an_illegal_setting_is_never_proposed():
    space = Space({"BLOCK": POWERS}, constraints=("BLOCK * itemsize <= 512",))
    history = swept(bowl_of_block, space)
    assert {a.candidate.config["BLOCK"] for a in history} == {64, 128, 256}


def bowl_of_block(at: Workload, config: Mapping[str, int]) -> float:
    return bowl(at, {"num_warps": 4, **config})


def test_a_setting_that_is_legal_at_some_sizes_runs_there_and_the_default_elsewhere():
    space = Space({"BLOCK": (64, 4096)}, constraints=("BLOCK <= N or BLOCK == 64",))
    trial = swept(bowl_of_block, space)[1].candidate
    assert trial.config_at(LARGE)["BLOCK"] == 4096
    assert trial.config_at(SMALL)["BLOCK"] == trial.config_at(ODD)["BLOCK"] == 64


def test_a_joined_table_stays_legal_where_nothing_was_measured():
    space = Space({"BLOCK": (64, 128, 256)}, constraints=("BLOCK < N or BLOCK == 64",))
    short = replace(ODD, dims={"M": 64, "N": 100})
    op = replace(OP, workloads=(SMALL, LARGE, short))

    def surface(at: Workload, config: Mapping[str, int]) -> float:
        wanted = 256 if at.dims["N"] == 1024 else 128
        return 10.0 * (1 + abs(log2(config["BLOCK"] / wanted)))

    start = [Attempt(ROOT, judge(surface)(op, ROOT))]
    propose = from_space(lambda c: space)
    joined = [*optimize(op, propose, judge(surface), out_of_attempts(50), start)][-1].candidate
    assert [joined.config_at(at)["BLOCK"] for at in (SMALL, LARGE, short)] == [256, 128, 64]


def test_what_was_tuned_before_is_tried_first():
    prior = Tuned(LARGE.dims, LARGE.dtypes, {"BLOCK": 2048, "num_warps": 8, "num_stages": 2})
    history = swept(bowl, SPACE, tries=4, priors=[prior])
    assert history[1].candidate.config == prior.config


def test_a_rejected_setting_is_not_tried_again_and_not_best():
    def evaluate(op: OpSpec, candidate: Candidate) -> Verdict:
        if candidate.config["BLOCK"] == 1024:
            return Rejected("resources", "needs more shared memory than there is", HERE)
        return judge(bowl_of_block)(op, candidate)

    propose = from_space(lambda c: Space({"BLOCK": POWERS}), tries=6)
    start = [Attempt(ROOT, evaluate(OP, ROOT))]
    history = start + list(optimize(OP, propose, evaluate, out_of_attempts(50), start))
    settings = [a.candidate.config["BLOCK"] for a in history if not a.candidate.tuned]
    assert len(settings) == len(set(settings)) == 6
    assert best(history).candidate.config["BLOCK"] != 1024


def test_other_settings_of_the_kernel_stay_as_they_are():
    start = root(bowl_of_block, replace(ROOT, config={"BLOCK": 64, "GROUP": 8}))
    assert {
        a.candidate.config["GROUP"]
        for a in swept(bowl_of_block, Space({"BLOCK": (64, 128)}), start)
    } == {8}


def test_a_better_kernel_is_tuned_from_its_own_start():
    history = swept(bowl_of_block, Space({"BLOCK": (64, 128)}))
    new = Candidate("scale", "# another", "scale", {"BLOCK": 64}, proposer="llm")
    twice_as_fast = Passed((), HERE, (Measurement(SMALL, 10.0, 10.0, 10.0, 9.9, "memory"),))
    propose = from_space(lambda c: Space({"BLOCK": (64, 128)}))
    proposal = propose(OP, [*history, Attempt(new, twice_as_fast)])
    assert isinstance(proposal, Proposal)
    assert (proposal.candidate.source, proposal.candidate.parent) == (new.source, new.digest)
    assert (proposal.candidate.proposer, proposal.candidate.why) == (
        "sweep",
        "tried with BLOCK = 128",
    )


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([], NOTHING_RIGHT),
        ([Attempt(ROOT, Passed((), Record("interpreted", "namespaces")))], NOTHING_TIMED),
    ],
    ids=["nothing right", "interpreted"],
)
def test_there_is_nothing_to_tune_without_times(history: list[Attempt], why: str):
    assert from_space()(OP, history) == Exhausted(why)


def test_a_kernel_without_a_space_is_not_tuned():
    start = root(bowl_of_block, replace(ROOT, source="x = 1"))
    assert from_space()(OP, start) == Exhausted(NO_SPACE)


def test_an_adapted_kernels_space_is_read_by_its_own_names():
    space = Space({"BLOCK": (64, 128, 256)}, constraints=("BLOCK * rows <= 8192",))
    propose = from_space(lambda c: space, names=lambda c, op, at: {"rows": at.dims["M"]})
    start = root(bowl_of_block)
    history = list(optimize(OP, propose, judge(bowl_of_block), out_of_attempts(9), start))
    assert [a.candidate.config["BLOCK"] for a in history] == [128]


def test_a_space_that_asks_for_unknown_names_is_not_tuned_and_says_so():
    space = Space({"BLOCK": (64, 128)}, constraints=("BLOCK < K",))
    told = from_space(lambda c: space)(OP, root(bowl_of_block))
    assert isinstance(told, Exhausted) and "cannot evaluate 'BLOCK < K'" in told.why


def test_a_kernel_may_declare_its_own_space():
    source = 'import triton\nSPACE = {"BLOCK": [64, 128], "num_warps": (4,)}\n'
    assert declared_space(replace(ROOT, source=source)) == Space(
        {"BLOCK": (64, 128), "num_warps": (4,)}
    )


@pytest.mark.parametrize(
    "value",
    ["open('owned', 'w')", "{}", "{'a': 64}", "{'a': ['64']}", "{'a': [True]}", "{'a b': [1]}",
     "{'a': list(range(9))}", "{'a': [" + "1," * 65 + "]}", "-" * 90 + "1", "[" * 90 + "]" * 90],
)  # fmt: skip
def test_a_space_that_is_no_literal_of_ints_is_refused_and_not_run(
    value: str, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    candidate = replace(ROOT, source=f"SPACE = {value}")
    with pytest.raises(NotASpaceError):
        declared_space(candidate)
    assert not list(tmp_path.iterdir())
    told = from_space()(OP, root(bowl_of_block, candidate))
    assert isinstance(told, Exhausted) and "SPACE must be a literal" in told.why


@pytest.mark.parametrize("source", ["def (", "\0", "(" * 500, "-" * 100_000 + "1"])
def test_source_that_is_not_python_declares_nothing(source: str):
    assert declared_space(replace(ROOT, source=source)) is None
