"""What was measured of a GPU holds for that GPU, driver and software alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton

from kernel_library.codec import device_json
from kernel_library.device import Ceilings, Device, Target
from worker import judging

CEILINGS = Ceilings(4280.0, {}, 60.0, 1.2)
NOW = {"torch": torch.__version__, "triton": triton.__version__, "driver": "580.159.04"}
DEVICE = Device(
    "NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS,
    versions={**NOW, "bandwidth": "copy 4280 GB/s"}, noise={40.0: 0.001},
)  # fmt: skip


@pytest.fixture
def known(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(judging, "has_gpu", lambda: True)
    monkeypatch.setattr(judging, "driver_version", lambda: "580.159.04")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")

    def read(text: str):
        (tmp_path / "device.json").write_text(text)
        return judging.known_device(tmp_path / "device.json")

    return read


def test_a_device_is_known_again(known):
    assert known(device_json.dump_json(DEVICE).decode()) == DEVICE


@pytest.mark.parametrize(
    "other",
    [
        replace(DEVICE, name="NVIDIA H100"),
        replace(DEVICE, versions=NOW | {"driver": "575.57.08"}),
        replace(DEVICE, versions=NOW | {"triton": "3.5.0"}),
        replace(DEVICE, versions={}),
    ],
    ids=["device", "driver", "triton", "unsaid"],
)
def test_another_is_measured_anew(known, other):
    assert known(device_json.dump_json(other).decode()) is None


def test_what_another_version_of_this_package_wrote_is_measured_anew(known):
    assert known(device_json.dump_json(DEVICE).decode().replace('"40.0"', '"40us"')) is None
    assert known("{}") is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_none_is_known(tmp_path: Path):
    (tmp_path / "device.json").write_bytes(device_json.dump_json(DEVICE))
    assert judging.known_device(tmp_path / "device.json") is None
