"""Replays recorded tapes on a GPU: no Python of the candidate's runs here, only its binaries."""
