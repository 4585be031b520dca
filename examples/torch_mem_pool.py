# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory from the pool, for a part of a program: PyTorch's own allocator stays, and takes its segments there.
"""

import millpond.torch
import torch

outside = torch.ones(1000, device="cuda")  # PyTorch's own memory
with millpond.torch.use_pool():
    inside = torch.ones(10_000_000, device="cuda")
print(f"PyTorch has {millpond.torch.memory_allocated() >> 20} MiB of the pool, sum {float(inside.sum()):.0f}")

with millpond.torch.use_pool():
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(f"refused: {str(error)[:60]}...")

# Gradients are made on threads of PyTorch's own.
with millpond.torch.use_pool(all_threads=True):
    weight = torch.ones(1000, device="cuda", requires_grad=True)
    (weight * 2).sum().backward()
print(f"gradient {float(weight.grad.sum()):.0f}")
