"""The red team: cheats, wrong kernels and honest ones, and what the judge must say of each."""

from evaluator.redteam.bank import Trial, trials
from evaluator.redteam.score import Outcome, Score, all_well, run, tally

__all__ = ["Outcome", "Score", "Trial", "all_well", "run", "tally", "trials"]
