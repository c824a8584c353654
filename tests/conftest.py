import pytest
import torch


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU, by name and for a stated reason, on a machine without one."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here: replay not run"))
