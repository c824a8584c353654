"""Judging without a GPU: the candidate runs on real, small data in Triton's interpreter.

Weaker evidence than a replay, and called so: the candidate's Python meets the inputs (never the
answers), tensor-core precision is not modelled, and there are no times.
"""
