"""A sparse matrix in CSR form times a dense one."""

import torch


def reference(ptr, col, val, x):
    rows = torch.repeat_interleave(
        torch.arange(ptr.shape[0] - 1), ptr.diff(), output_size=col.shape[0]
    )
    return torch.zeros(ptr.shape[0] - 1, x.shape[1], dtype=x.dtype).index_add(
        0, rows, val[:, None] * x[col]
    )


def get_inputs():
    ptr = torch.cat(
        [
            torch.zeros(1, dtype=torch.int64),
            torch.randint(0, 101, (19,)).sort().values,
            torch.tensor([100]),
        ]
    )
    return [ptr, torch.randint(0, 30, (100,)), torch.randn(100), torch.randn(30, 8)]
