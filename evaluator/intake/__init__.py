"""Problems in: a stranger's file becomes a contract; their Python runs only in the sandbox."""

from evaluator.intake.exporting import Graphs, export
from evaluator.intake.reading import Problem, read

__all__ = ["Graphs", "Problem", "export", "read"]
