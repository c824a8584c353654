import pytest


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU, by name and for a stated reason, on a machine without one."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here: replay not run"))


def has_gpu() -> bool:
    # torch takes seconds to import, and most tests do not need it
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def zygote():
    """The product's own sandbox, started once: for all that runs a stranger's code."""
    from evaluator.sandbox import Zygote

    with Zygote() as started:
        yield started
