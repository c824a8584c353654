"""Runs jobs: the one place where everything meets."""
