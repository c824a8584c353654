"""The command line: the top of everything, so that one command can start what it needs."""
