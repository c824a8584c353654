"""Serves jobs and the library over HTTP, as JSON and as pages. No torch."""
