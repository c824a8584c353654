"""The judge against the red team: one test for each cheat, wrong kernel and honest one.

On a machine without a GPU the interpreting judge is tried, and what only a replay can show is
skipped by name; such a trial must still record, or it would show nothing there either.
"""

import os
from collections import Counter
from threading import Barrier

import pytest
from typer.testing import CliRunner

from cli.main import app
from evaluator.errors import CandidateError, LabError
from evaluator.hidden import REPLAYED
from evaluator.labs import DEFAULT_ARCH, Tapes
from evaluator.matrix import matrix, smoke
from evaluator.record import record
from evaluator.redteam import all_well, run, tally, trials
from evaluator.redteam.bank import BANKS, UNSEEN, read
from evaluator.redteam.score import scored
from evaluator.screen import screen
from kernel_library.verdict import Passed, Record, Rejected

TRIALS = trials()
#: A minute of waiting shows nothing that test_record.py and test_interpret.py do not.
SLOW = os.environ.get("KERNELWRIGHT_SLOW") == "1"


#: So that a run can be repeated: which labels are drawn decides what some trials meet.
SECRET = 20261129


@pytest.fixture(scope="session")
def judge(tmp_path_factory):
    from evaluator.labs import interpreted_lab, open_rooms
    from worker.judging import Judge, has_gpu, open_judge

    if has_gpu():
        with open_judge(tmp_path_factory.mktemp("redteam") / "device.json") as opened:
            yield opened
        return
    with open_rooms() as rooms:
        lab = interpreted_lab(rooms, SECRET)
        yield Judge(rooms, None, lab, lab)


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_the_judge_says_what_it_must(trial, judge):
    way = judge.quick.record_of.evidence
    if UNSEEN in trial.due[way]:
        pytest.skip(f"{trial} cannot be seen {way}: due elsewhere at {trial.due['replayed']}")
    if trial.slow and not SLOW:
        pytest.skip(f"{trial} is slow ({trial.slow}): set KERNELWRIGHT_SLOW=1 to run it")
    outcome = next(run([trial], judge, way, judge.deeply))
    assert outcome.score == "as expected", (trial.due[way], outcome.got, outcome.reason)


@pytest.mark.parametrize("trial", [t for t in TRIALS if UNSEEN in t.due["interpreted"]], ids=str)
def test_what_only_a_replay_can_show_can_be_recorded(trial, zygote):
    screen(trial.op, trial.candidate)
    (tape,) = record(trial.op, trial.candidate, [smoke(trial.op)], zygote, DEFAULT_ARCH)
    assert tape.tape.launches


@pytest.mark.parametrize(
    "trial",
    [t for t in TRIALS if not t.slow and t.due["replayed"] in (("record",), ("passes",))],
    ids=str,
)
def test_a_replaying_judge_would_record_it_or_not(trial, judge):
    """Recording needs no GPU: at every size of the full matrix, each twice in one process."""
    tapes = Tapes(judge.rooms, DEFAULT_ARCH)
    points = [smoke(trial.op), *matrix(trial.op, trial.source, SECRET, REPLAYED)]
    screen(trial.op, trial.candidate)
    if trial.due["replayed"] == ("passes",):
        assert len(tapes(trial.op, trial.candidate, points)) == len(points)
    else:
        with pytest.raises(CandidateError) as caught:
            tapes(trial.op, trial.candidate, points)
        assert caught.value.stage == "record"


def test_each_bank_is_there_and_each_row_is_told():
    assert Counter(t.bank for t in TRIALS).keys() == set(BANKS)
    assert all(t.what and t.row for t in TRIALS)
    assert len({str(t) for t in TRIALS}) == len(TRIALS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("op           softmax\n", ""), r"does not say \['op'\]"),
        (("softmax", "hardmax"), "no op 'hardmax'"),
        (("correct", "corect"), r"no stage \['corect'\]"),
    ],
)
def test_a_trial_that_leaves_something_unsaid_is_not_read(change, reason):
    facts = ("row          2", "op           softmax", "interpreted  correct", "replayed     smoke")
    said = "\n".join(['"""Cheats.', "", *facts, '"""'])
    assert read("cheats", "c", said).due["interpreted"] == ("correct",)
    with pytest.raises(ValueError, match=reason):
        read("cheats", "c", said.replace(*change))


def test_a_judge_that_passes_everything_or_nothing_is_found_out():
    told = Record("replayed", "namespaces")
    cheat = next(t for t in TRIALS if t.bank == "cheats" and t.due["replayed"] == ("smoke",))
    honest = next(t for t in TRIALS if t.bank == "honest")
    passes, rejects = Passed((), told), Rejected("smoke", "no", told)
    assert scored(cheat, passes, "replayed").score == "passed wrongly"
    assert scored(honest, rejects, "replayed").score == "honest rejected"
    assert scored(cheat, Rejected("parse", "no", told), "replayed").score == "rejected elsewhere"
    outcomes = list(run([cheat, honest], lambda op, candidate: rejects, "replayed"))
    assert tally(outcomes)["cheats"] == Counter({"as expected": 1})
    assert not all_well(outcomes) and all_well(outcomes[:1])
    deep = [t for t in TRIALS if "deep" in t.due["replayed"]]
    found = Rejected("deep", "reads past the end of a buffer", told)
    looked = run([*deep, honest], lambda *_: passes, "replayed", lambda *_: found)
    assert deep and {outcome.score for outcome in looked} == {"as expected"}


def test_trials_are_judged_side_by_side_and_told_in_order():
    several = [t for t in TRIALS if t.bank == "cheats"][:3]
    everyone = Barrier(3)

    def judge(op, candidate):
        everyone.wait(10)
        return Rejected("smoke", "no", Record("replayed", "namespaces"))

    outcomes = run(several, judge, "replayed", together=3)
    assert [outcome.trial for outcome in outcomes] == several


def test_a_judge_that_fails_is_no_judge_that_rejects():
    def judge(op, candidate):
        raise LabError("the player was lost")

    cheat = next(t for t in TRIALS if t.bank == "cheats")
    (outcome,) = run([cheat], judge, "replayed")
    assert outcome.score == "our failure" and "was lost" in outcome.reason
    assert not all_well([outcome])


def test_the_command_line_prints_a_score_and_ends_with_it():
    ran = CliRunner().invoke(app, ["redteam", "--only", "cheats/c54_library_call"])
    assert ran.exit_code == 0, ran.output
    assert CliRunner().invoke(app, ["redteam", "--only", "no such trial"]).exit_code == 2
