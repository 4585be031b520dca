# SPDX-License-Identifier: Apache-2.0
"""What test_torch_gpu.py runs, each case in a process of its own: torch_gpu_graph_cases.py ROUTE CASE.

Captured graphs, memory that is passed between libraries. A case fails by an exception.
"""

import gc

import millpond
import millpond.torch
import torch
from case_kit import HUGE, MIB, case
from torch_gpu_kit import ROUTE, empty, in_use, is_ours, main, routed, start


@case
def late():
    """install() after PyTorch has used the GPU says so, and changes nothing."""
    torch.ones(1, device="cuda")
    try:
        millpond.torch.install()
    except millpond.Error as error:
        assert "millpond.torch.use_pool()" in str(error)
    else:
        raise AssertionError("no error")
    assert not millpond.torch.is_installed()
    with millpond.torch.use_pool():
        assert float(torch.ones(1000, device="cuda").sum()) == 1000


@case
def graphs():
    """Captured work runs again with the right values while others allocate and free."""
    start()
    with routed():
        x = torch.arange(100_000, dtype=torch.float32, device="cuda")
        warm = torch.cuda.Stream()
        with torch.cuda.stream(warm):
            (x * 2 + 1).sum()
        torch.cuda.synchronize()
    shared = millpond.torch.mem_pool() if ROUTE != "process" else None
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, pool=shared.id if shared is not None else None):
        half = x * 2
        out = half + 1
        del half
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = x - 1
        torch.cuda.current_stream().wait_stream(side)
    wanted = torch.arange(100_000, dtype=torch.float32)
    with routed():
        for turn in range(10):
            x += 1
            noise = [torch.full((100_000,), -1.0, device="cuda") for _ in range(20)]
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
            torch.testing.assert_close(out.cpu(), (wanted + turn + 1) * 2 + 1)
            torch.testing.assert_close(other.cpu(), wanted + turn)
            assert all(float(one[-1]) == -1 for one in noise)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        more = x * 3
    second.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(more.cpu(), (wanted + 10) * 3)
    del noise
    before = in_use()
    graph.reset()
    del graph, second, out, other, more
    gc.collect()
    torch.cuda.synchronize()
    if ROUTE == "process":
        assert in_use() < before
    with routed():
        assert float(torch.ones(100_000, device="cuda").sum()) == 100_000


@case
def failed_capture():
    """An error within a capture, and one of the pool; the next capture works."""
    start()
    x = torch.ones(1000, device="cuda")
    (x + 1).sum()
    torch.cuda.synchronize()
    for size in (0, HUGE):
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                y = x + 1
                empty(size)
                if size == 0:
                    raise KeyError("mine")
        except (KeyError, torch.OutOfMemoryError):
            pass
        else:
            raise AssertionError("no error")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 2
    graph.replay()
    torch.cuda.synchronize()
    assert float(y.sum()) == 3000


@case
def graphed_callables():
    start()
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    x = torch.randn(16, 32, device="cuda")
    with torch.no_grad():  # else the gradients' nodes belong to the default stream, which cannot be captured
        wanted = model(x)
    fast = torch.cuda.make_graphed_callables(model, (torch.randn_like(x),))
    for _ in range(5):
        out = fast(x)
        out.sum().backward()
        torch.testing.assert_close(out, wanted)


@case
def gives_way():
    """PyTorch's own cache, and its segments that are not used, go back when another user finds no memory."""
    free, _ = torch.cuda.mem_get_info()
    most = free * 6 // 10
    empty(most)  # kept by PyTorch's own allocator
    with millpond.torch.use_pool():
        small = torch.ones(1000, device="cuda")
    other = millpond.Pool("cuda:0", client="other")
    assert torch.cuda.memory_reserved() >= most
    block = other.alloc(most)
    assert torch.cuda.memory_reserved() < most
    block.free()
    other.shrink()
    with millpond.torch.use_pool():
        x = empty(most)
    assert is_ours(x)
    del x
    other.alloc(most).free()
    assert float(small.sum()) == 1000


@case
def all_threads():
    """Gradients are made on a thread of PyTorch's own."""
    made = {}
    for wanted in (False, True):
        with millpond.torch.use_pool(all_threads=wanted):
            x = torch.ones(8 * MIB, device="cuda", requires_grad=True)
            (x * 2).sum().backward()
            made[wanted] = x.grad
            del x
    shared = made[True]
    segments = [block for block in torch.cuda.memory_snapshot() if block["segment_pool_id"] != (0, 0)]
    inside = [block for block in segments
              if block["address"] <= shared.data_ptr() < block["address"] + block["total_size"]]
    assert inside, "the gradient is not in the pool"


@case
def buffers():
    """A Buffer as a tensor: no copy, and it lives as long as the tensor."""
    start()
    mine = millpond.Pool("cuda:0", client="test")
    before = in_use()
    stream = torch.cuda.Stream()
    buffer = mine.alloc(4000, stream)
    address = buffer.address
    with torch.cuda.stream(stream):
        x = millpond.torch.as_tensor(buffer, torch.float32, (10, 100))
        x.fill_(3)
    stream.synchronize()
    assert x.data_ptr() == address and x.shape == (10, 100)
    del buffer
    gc.collect()
    assert float(x.sum()) == 3000 and mine.find(address)["requested"] == 4000
    millpond.torch.record_use(x, stream)
    y = torch.from_dlpack(x.view(torch.uint8))  # around once more
    del x
    gc.collect()
    assert mine.find(address)["requested"] == 4000
    del y
    torch.cuda.synchronize()
    gc.collect()
    assert in_use() - before < MIB
    try:
        mine.find(address)
    except millpond.NotFoundError:
        pass
    else:
        raise AssertionError("the block is still allocated")


@case
def cupy_and_back():
    """A tensor, a CuPy array over it, a tensor over that; each keeps the memory."""
    import cupy
    import millpond.cupy

    start()
    millpond.cupy.install()
    with routed():
        x = torch.arange(1000, device="cuda", dtype=torch.float32)
        array = cupy.from_dlpack(x)
        again = torch.from_dlpack(array)
        assert x.data_ptr() == array.data.ptr == again.data_ptr()
        del x, array
        gc.collect()
        noise = [torch.zeros(1000, device="cuda") for _ in range(10)]
        assert float(again.sum()) == 499_500 and len(noise) == 10
        theirs = torch.from_dlpack(cupy.arange(1000, dtype="f4"))
        gc.collect()
        cupy.zeros(1000, "f4")
        assert float(theirs.sum()) == 499_500


if __name__ == "__main__":
    main()
