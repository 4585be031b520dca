# SPDX-License-Identifier: Apache-2.0
"""What test_torch_gpu.py runs, each case in a process of its own: torch_gpu_cases.py ROUTE CASE.

Values, streams, threads, exhaustion, statistics. A case fails by an exception.
"""

import contextlib

import millpond
import millpond.torch
import torch
from case_kit import HUGE, MIB, case, check_in_threads
from torch_gpu_kit import ROUTE, empty, expect_out_of_memory, in_use, is_ours, main, pool, routed, spin, start


def train(device, steps=3):
    """A few steps of a small network in double precision; gives losses and a weight."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.Tanh(),
                                torch.nn.Linear(256, 10)).double()
    data, target = torch.randn(512, 64, dtype=torch.float64), torch.randint(0, 10, (512,))
    model, data, target = model.to(device), data.to(device), target.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses, model[0].weight.detach().cpu()


@case
def values():
    start()
    wanted = train("cpu")
    with routed():
        found = train("cuda")
        torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(wanted[0]), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found[1], wanted[1], rtol=1e-8, atol=1e-8)
        x = torch.randn(8, 3, 64, 64)
        convolution = torch.nn.Conv2d(3, 16, 3)
        torch.backends.cudnn.allow_tf32 = False
        torch.testing.assert_close(convolution.cuda()(x.cuda()).cpu(), convolution.cpu()(x), rtol=1e-4, atol=1e-4)
        for size in (1, 255, 256, 257, MIB, MIB + 1, 100 * MIB):
            assert int(torch.full((size,), 7, dtype=torch.uint8, device="cuda").sum(dtype=torch.int64)) == 7 * size
        y = torch.ones(10 * MIB, device="cuda")
        assert is_ours(y)
    del y
    if ROUTE == "process":
        assert millpond.torch.is_installed()


@case
def nothing():
    start()
    with routed():
        torch.ones(1, device="cuda")
        before = in_use()
        x = torch.empty(0, 5, device="cuda")
        assert x.data_ptr() == 0 and in_use() == before
        assert (x + 1).shape == (0, 5) and torch.cat([x, torch.ones(2, 5, device="cuda")]).shape == (2, 5)
        x.record_stream(torch.cuda.Stream())
        millpond.torch.record_use(x, torch.cuda.Stream())


def check_order(reader, taker, declare=None):
    """A tensor made and dropped on the first stream is read late on one, and its memory wanted on one."""
    start()
    count = 1 << 20
    with routed():
        streams = torch.cuda.Stream(), torch.cuda.Stream()
        for turn in range(40):
            with torch.cuda.stream(streams[0]):
                x = torch.full((count,), turn, dtype=torch.int32, device="cuda")
            streams[0].synchronize()
            with torch.cuda.stream(streams[reader]):
                spin()
                total = x.sum()
            if declare:
                declare(x, streams[reader])
            with torch.cuda.stream(streams[0]):
                del x
            with torch.cuda.stream(streams[taker]):
                others = [torch.full((count,), -1, dtype=torch.int32, device="cuda") for _ in range(3)]
            streams[reader].synchronize()
            assert int(total) == turn * count, turn
            del others, total


@case
def record_stream():
    check_order(reader=1, taker=0, declare=torch.Tensor.record_stream)


@case
def record_use():
    check_order(reader=1, taker=0, declare=millpond.torch.record_use)


@case
def streams_in_order():
    check_order(reader=0, taker=1)


@case
def exhaustion():
    start()
    with routed():
        for _ in range(100):
            expect_out_of_memory(HUGE, ROUTE == "process")
        assert float(torch.ones(1000, device="cuda").sum()) == 1000
        millpond.set_limit(pool().stats()["total"] + 128 * MIB)
        held = []
        try:
            while True:
                held.append(torch.ones(8 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            assert 6 <= len(held) < 40, len(held)
        assert all(int(tensor[-1]) == 1 for tensor in held)
        del held[:]
        millpond.set_limit(0)
        empty(256 * MIB)
        assert float(torch.ones(1000, device="cuda").sum()) == 1000


@case
def exhaustion_in_backward():
    """The error comes out of autograd's own thread, and training goes on after it."""
    start()

    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 1

        @staticmethod
        def backward(context, gradient):
            empty(HUGE)
            return gradient

    with routed():
        x = torch.ones(1000, device="cuda", requires_grad=True)
        for _ in range(3):
            try:
                Greedy.apply(x).sum().backward()
            except torch.OutOfMemoryError:
                pass
            else:
                raise AssertionError("no error")
        (x * 2).sum().backward()
        assert float(x.grad.sum()) == 2000


@case
def empty_cache():
    start()
    with routed():
        x = empty(512 * MIB)
        del x
    total = pool().stats()["total"]
    assert total >= 512 * MIB
    if ROUTE != "process":
        millpond.torch._mem_pools.clear()  # PyTorch keeps the segments of a MemPool that is there
        torch.cuda.empty_cache()
        pool().shrink()
    torch.cuda.empty_cache()
    assert pool().stats()["total"] <= total - 512 * MIB
    with routed():
        assert float(torch.ones(1000, device="cuda").sum()) == 1000


@case
def statistics():
    start()
    x = torch.ones(MIB, device="cuda")
    assert torch.cuda.memory_allocated() == millpond.torch.memory_allocated() >= 4 * MIB
    assert torch.cuda.memory_reserved() == millpond.torch.memory_reserved() >= 4 * MIB
    y = torch.ones(MIB, device="cuda")
    del y
    assert torch.cuda.max_memory_allocated() == millpond.torch.max_memory_allocated() >= 8 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < 8 * MIB
    torch.cuda.reset_accumulated_memory_stats()
    expect_out_of_memory(HUGE, True)
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    assert "CUDA memory summary" in torch.cuda.memory_summary()
    assert torch.cuda.mem_get_info()[1] > 1 << 30
    del x


@case
def fraction():
    start()
    torch.ones(1, device="cuda")
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.01)
    expect_out_of_memory(total // 50, True)
    empty(total // 400)
    torch.cuda.set_per_process_memory_fraction(1.0)
    empty(total // 50)


@case
def threads():
    start()

    @contextlib.contextmanager
    def stream_of(seed):
        with routed(), torch.cuda.stream(torch.cuda.Stream() if seed % 2 else torch.cuda.current_stream()):
            yield

    check_in_threads(lambda count, value: torch.full((count,), value, dtype=torch.int64, device="cuda"), stream_of)


if __name__ == "__main__":
    main()
