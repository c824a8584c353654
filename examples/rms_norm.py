"""RMS normalisation with a learned scale, as a KernelBench-style problem.

Try it:

    kernelwright optimize examples/rms_norm.py

`Model` is the reference; `get_inputs` gives one call's arguments and `get_init_inputs` those of the
constructor. The parameter `scale` becomes an input of the op, after `hidden`. Both sizes turn out
to be free axes, and float32 and float16 are checked beside the bfloat16 that is asked for here.
It is spelled unlike the library's own reference on purpose: the library is searched by what an op
computes, not by how it is written.
"""

import torch
from torch import nn

tokens = 8192
width = 4096


class Model(nn.Module):
    """Divide each row by the root of its mean square, then scale each column."""

    def __init__(self, width: int, floor: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))
        self.floor = floor

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        wide = hidden.to(torch.float32)
        power = torch.mean(torch.pow(wide, 2), dim=-1, keepdim=True)
        normal = wide / torch.sqrt(power + self.floor)
        return (normal * self.scale.to(torch.float32)).to(hidden.dtype)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(tokens, width).to(torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [width, 1e-6]
