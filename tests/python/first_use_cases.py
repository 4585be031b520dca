# SPDX-License-Identifier: Apache-2.0
"""The first use of a block on another stream than it was allocated on, by every way into the pool.

    python first_use_cases.py WAY [undeclared] [OPTION=VALUE]

All of a small pool is used on one stream, late; then the way in question allocates it on a second stream, and a third
one uses it at once. Fails where work of the third one overtook that of the first, or where an adversarial device saw
it happen; with "undeclared" this is printed as "found".
"""

import ctypes
import os
import sys
import time

import millpond
from core_kit import make_stream
from millpond import _native

SIZE = 1 << 20
ROUNDS = 6
OPTIONS = {"max_mem": SIZE, "max_dead_bytes_per_chunk": 0}


class Way:
    """Allocates on a stream, says that another one uses the block, and frees it."""

    def __init__(self, pool):
        self.pool = pool

    def alloc(self, lender):
        self.block = self.pool.alloc(SIZE, lender)
        return self.block.address

    def declare(self, user, lender):
        self.block.record_use(user)

    def free(self):
        self.block.free()


class Buffer(Way):
    pass


class Address(Way):
    """What adapters use that keep objects of their own."""

    def alloc(self, lender):
        self.address = self.pool.alloc_address(SIZE, lender)
        return self.address

    def declare(self, user, lender):
        self.pool.record_use(self.address, user)

    def free(self):
        self.pool.free_address(self.address)


class Event(Way):
    """An event recorded after the allocation; the block is freed in the order of its user."""

    def alloc(self, lender):
        self.address = self.pool.alloc_address(SIZE, lender)
        return self.address

    def declare(self, user, lender):
        user.follow(lender)
        self.user = user

    def free(self):
        self.pool.free_address(self.address, self.user)


class NoStream(Way):
    """Ready for every stream; `declare` is what makes it so."""

    def alloc(self, lender):
        return 0

    def declare(self, user, lender):
        self.address = self.pool.alloc_address(SIZE, None)
        self.user = user
        return self.address

    def free(self):
        self.pool.free_address(self.address, self.user)


class DLPack(Way):
    """The consumer names its stream. It is the host on the emulated device, which waits for the block's stream."""

    def declare(self, user, lender):
        self.capsule = self.block.__dlpack__(stream=None if self.pool.is_emulated else user.handle)
        if self.pool.is_emulated:
            self.block.record_use(user)

    def free(self):
        self.block.free()
        self.capsule = None


class CuPy(Way):
    """CuPy's allocator; a function of the test says which stream is current."""

    def __init__(self, pool):
        super().__init__(pool)
        self.stream = 0
        self.kept = [ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)(lambda device: self.stream)]
        address = ctypes.cast(self.kept[0], ctypes.c_void_p).value
        _native.call_with_objects("millpond_cupy_prepare", address, self.open, self.fail, lambda *_: None)
        library = ctypes.PyDLL(_native.PATH)
        self.lend, self.give = library.millpond_cupy_lend, library.millpond_cupy_free
        self.lend.restype, self.lend.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int]
        self.give.restype, self.give.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]

    def open(self, device):
        _native.open_device("millpond_cupy_open", device, self.pool.device)

    def fail(self, sentence, size, device):
        raise MemoryError(sentence)

    def alloc(self, lender):
        self.stream = lender.handle
        self.address = self.lend(SIZE, 0)
        return self.address

    def declare(self, user, lender):
        self.pool.record_use(self.pool.find(self.address)["address"], user)  # as millpond.cupy.record_use

    def free(self):
        self.give(None, self.address, 0)


class Torch(Way):
    """PyTorch's plug: record_stream, called before the use."""

    def __init__(self, pool):
        import torch_kit

        super().__init__(pool)
        _native.open_device("millpond_torch_open", 0, pool.device)
        self.kit = torch_kit

    def alloc(self, lender):
        self.stream = lender.handle
        self.address = self.kit.alloc(SIZE, 0, self.stream)
        return self.address

    def declare(self, user, lender):
        self.kit.record_stream(self.address, user.handle)

    def free(self):
        self.kit.free(self.address, SIZE, 0, self.stream)


class CudaCore(Way):
    """The resource's own functions, without cuda.core's Buffer, which needs a driver."""

    def __init__(self, pool):
        from millpond.cuda_core import PoolMemoryResource

        super().__init__(pool)
        self.resource = PoolMemoryResource(pool)

    def alloc(self, lender):
        self.address = self.resource._lend(SIZE, lender.handle)
        return self.address

    def declare(self, user, lender):
        self.resource.pool.record_use(self.address, user)

    def free(self):
        self.resource.deallocate(self.address, SIZE)


WAYS = {"buffer": Buffer, "address": Address, "event": Event, "no stream": NoStream, "dlpack": DLPack, "cupy": CuPy,
        "torch": Torch, "cuda.core": CudaCore}


def use_late(pool, stream, results, value):
    """Fills the pool's memory and reads it some time after it was freed."""
    block = pool.alloc_address(SIZE, stream)
    stream.fill(block, value, SIZE)
    stream.call(lambda: time.sleep(0.02))
    stream.copy(results, block + SIZE - 1, 1)
    pool.free_address(block)


def run(name, declare=True, options=()):
    pool = millpond.Pool(client="case", options={**OPTIONS, **dict(options)})
    way = WAYS[name](pool)
    pinned = millpond.Pool(pool.device, memory="pinned", client="case")
    results = pinned.alloc(2 * ROUNDS)
    earlier, lender, user = streams = [make_stream(pool) for _ in range(3)]
    for i in range(ROUNDS):
        use_late(pool, lender if i % 2 else earlier, results.address + 2 * i, 2 * i + 1)
        address = way.alloc(lender)
        address = (way.declare(user, lender) if declare else None) or address
        user.fill(address, 2 * i + 2, SIZE)
        user.copy(results.address + 2 * i + 1, address + SIZE - 1, 1)
        if declare or not pool.is_emulated:
            way.free()
        else:
            break  # what was not declared must not be freed before it has ended
    for stream in streams:
        stream.synchronize()
    found = list(ctypes.string_at(results.address, 2 * ROUNDS))
    if declare:
        assert found == list(range(1, 2 * ROUNDS + 1)), found
        for stream in streams:
            pool.stream_gone(stream)
            stream.destroy()
    else:
        assert found[0] == 1, found


def main(name, *words):
    declare = "undeclared" not in words
    status = 0
    try:
        run(name, declare, [word.split("=") for word in words if "=" in word])
    except (AssertionError, RuntimeError) as error:
        print("found:", error)
        status = int(declare)
    sys.stdout.flush()
    if status or not declare:
        os._exit(status)  # calls of Python may still be queued, which nobody could run at its end


if __name__ == "__main__":
    main(*sys.argv[1:])
