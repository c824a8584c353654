"""What is remembered: jobs and their events, candidates and reviews, kernels, artifacts."""

from __future__ import annotations
