"""Recording: a launcher runs on tensors that hold nothing, and its launches are kept."""

from evaluator.record.judge import Request, record, variants

__all__ = ["Request", "record", "variants"]
