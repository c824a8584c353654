"""What an op is, what a kernel is, and what is known about each. No torch, no network."""
