"""The contract names this type; the judge's exported graphs themselves stay with the judge."""


class Graph:
    """No graph travels in a wheel."""
