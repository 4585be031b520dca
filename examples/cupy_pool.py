# SPDX-License-Identifier: Apache-2.0
"""CuPy's arrays from the pool: statistics, an error that lists usage by client, streams, and a captured graph."""

import sys

import cupy
import millpond.cupy

if not cupy.cuda.is_available():
    sys.exit("this example needs a GPU, and CuPy finds none: `millpond doctor` says what is missing")

millpond.cupy.install()  # device and pinned memory, for arrays made from now on

x = cupy.arange(1_000_000, dtype=cupy.float64)
print(f"sum {float(x.sum()):.0f}")
for share in millpond.cupy.pool().clients():
    print(f"{share['name']}: {share['in_use']} bytes in {share['blocks']} blocks")

try:
    cupy.empty(1 << 45, cupy.uint8)
except cupy.cuda.memory.OutOfMemoryError as error:
    print(f"refused: {error}")

# An array that another stream uses, and that is dropped on its own stream meanwhile.
stream = cupy.cuda.Stream(non_blocking=True)
cupy.cuda.Device().synchronize()
with stream:
    total = x.sum()
millpond.cupy.record_use(x, stream)
del x
stream.synchronize()
print(f"sum {float(total):.0f}")

# A graph keeps the memory that it was captured with until it is closed.
a = cupy.zeros(1000, cupy.float32)
(a + 1).sum()  # kernels are compiled before a capture
cupy.cuda.Device().synchronize()
with millpond.cupy.capture(stream) as graph:
    b = a + 1
for _ in range(3):
    a += 1
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
print(f"b is {float(b[0]):.0f}")
del b
graph.close()
