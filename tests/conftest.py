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


@pytest.fixture(autouse=True)
def gpu_to_itself(request):
    """What is marked `gpu` runs beside no other such test: what measures wants the GPU alone."""
    if not request.node.get_closest_marker("gpu"):
        yield
        return
    from pathlib import Path
    from tempfile import gettempdir

    from evaluator.turns import Turns

    with Turns(Path(gettempdir()) / "kernelwright-gpu-tests").alone():
        yield


@pytest.fixture(scope="session")
def zygote():
    """The product's own sandbox, started once: for all that runs a stranger's code."""
    from evaluator.sandbox import Zygote

    with Zygote() as started:
        yield started


@pytest.fixture(scope="session")
def judge():
    """A judge for a machine without a GPU, started once."""
    from evaluator.labs import interpreted_lab, open_rooms
    from worker.judging import Judge

    with open_rooms() as rooms:
        lab = interpreted_lab(rooms)
        yield Judge(rooms, None, lab, lab)


@pytest.fixture(scope="session")
def hasty_judge(judge):
    """The same judge, that waits for nothing longer than 15 s."""
    from dataclasses import replace

    from evaluator.labs import interpreted_lab

    def hasty(isolate):
        return lambda job, request, seconds: isolate(job, request, min(seconds, 15.0))

    rooms = replace(
        judge.rooms,
        recorder=hasty(judge.rooms.recorder),
        interpreter=hasty(judge.rooms.interpreter),
    )
    lab = interpreted_lab(rooms)
    return replace(judge, rooms=rooms, quick=lab, full=lab)
