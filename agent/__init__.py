"""Proposes candidates, round after round. No torch."""
