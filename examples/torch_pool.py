# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory from the pool, for the whole process: statistics, out of memory, streams, and a captured graph."""

import millpond.torch
import torch

millpond.torch.install()  # before PyTorch first uses the GPU

model = torch.nn.Linear(100, 10).cuda()
loss = model(torch.ones(1000, 100, device="cuda")).square().mean()
loss.backward()
print(f"gradient {tuple(model.weight.grad.shape)}")
print(f"allocated {torch.cuda.memory_allocated()}, reserved {torch.cuda.memory_reserved()}")

try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(f"refused: {error}")

# A tensor that another stream uses, and that is dropped meanwhile.
stream = torch.cuda.Stream()
x = torch.ones(1_000_000, device="cuda")
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    total = x.sum()
x.record_stream(stream)
del x
stream.synchronize()
print(f"sum {float(total):.0f}")

# A graph keeps the memory that it was captured with as long as it lives.
a = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    b = a + 1
for _ in range(3):
    a += 1
    graph.replay()
print(f"b is {float(b[0]):.0f}")
