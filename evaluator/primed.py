"""Imported by zygotes for what torch can learn only before a child's /proc is covered.

torch's conversions to and from half precision ask the processor for its kind, once a process, by
/proc/cpuinfo; a child that asks for itself hears "Failed to initialize cpuinfo!" (2.11, 2.13).
"""

import torch

torch.zeros(1).to(torch.float16)
