# SPDX-License-Identifier: Apache-2.0
"""Random traces through ONNX Runtime's own arena and through the pool, with equal settings: a program that prints a
line of JSON for each trace, with what each of the two has had from its device at the end.

ONNX Runtime's arena is that of its CPU, which is the class that its CUDA provider uses too; so no GPU is needed. It is
registered with the environment and had through a session that asks for the environment's allocators.
"""

import ctypes
import json
import random
import sys

import ort_c
import pool_c
import small_models
from onnx import helper
from ort_c import API, made

KIB, MIB = 1 << 10, 1 << 20
ARENA = 1  # OrtAllocatorType
DEFAULT_STREAM = ctypes.c_void_p(None)

# ---- traces: lists of (slot, size); size 0 frees the slot ----

SIZES = {"64 KiB": (256, 64 * KIB, 100), "1 MiB": (256, MIB, 60), "64 MiB": (256, 64 * MIB, 40)}


def draw(rng, least, most, even):
    """A size: every power of two as likely, or every size."""
    if even:
        return rng.randint(least, most)
    low = rng.randint(least.bit_length(), most.bit_length() - 1)
    return min(most, rng.randint(1 << (low - 1), 1 << low))


def churn(rng, sizes, order, count):
    """Blocks that come and go, about as many as `sizes` says; the last, the first or any goes."""
    least, most, about = sizes
    even, live, ops = rng.random() < 0.5, [], []
    for slot in range(count):
        wanted = about * rng.uniform(0.5, 1.5)
        while len(live) > wanted:
            at = {"lifo": len(live) - 1, "fifo": 0, "random": rng.randrange(len(live))}[order]
            ops.append((live.pop(at), 0))
        ops.append((slot, draw(rng, least, most, even)))
        live.append(slot)
    return ops + [(slot, 0) for slot in live]


def phases(rng, sizes, count):
    """Runs of a model, each with sizes of its own that are all given back at its end."""
    least, most, about = sizes
    ops, slot = [], 0
    while slot < count:
        factor, mine = rng.uniform(0.5, 1), []
        for _ in range(rng.randint(about // 2, about)):
            ops.append((slot, max(least, int(factor * draw(rng, least, most, False)))))
            mine.append(slot)
            slot += 1
            if len(mine) > 3 and rng.random() < 0.6:
                ops.append((mine.pop(rng.randrange(len(mine) - 1)), 0))
        ops += [(each, 0) for each in mine]
    return ops


def merged(count, size):
    """Small blocks, freed, and then one as large as all of them."""
    return [(i, size) for i in range(count)] + [(i, 0) for i in range(count)] + [(count, count * size)]


def traces(seed, count):
    for name, sizes in SIZES.items():
        for order in ("lifo", "fifo", "random"):
            rng = random.Random(f"{seed} {name} {order}")
            yield f"up to {name}, {order}", churn(rng, sizes, order, count)
        yield f"up to {name}, phases", phases(random.Random(f"{seed} {name}"), sizes, count)
    if seed == 0:
        yield "8 x 128 KiB, then 1 MiB", merged(8, 128 * KIB)
        yield "64 x 2 KiB, over and over, then 128 KiB", merged(64, 2 * KIB)[:-1] * 20 + [(64, 128 * KIB)]


# ---- the two ----


class OrtArena:
    MODEL = small_models.model([helper.make_node("Add", ["x", "x"], ["y"], name="add")], {"x": ["n"]}, {"y": ["n"]})

    def __init__(self, environment, settings):
        keys, values = ort_c.texts(settings), (ctypes.c_size_t * len(settings))(*settings.values())
        config = made(API.CreateArenaCfgV2, keys, values, len(settings))
        self.info = made(API.CreateCpuMemoryInfo, ARENA, 0)
        self.environment = environment
        API.CreateAndRegisterAllocator(environment.address, self.info, config)
        API.ReleaseArenaCfg(config)
        options = made(API.CreateSessionOptions)
        API.AddSessionConfigEntry(options, b"session.use_env_allocators", b"1")
        self.session = made(API.CreateSessionFromArray, environment.address, self.MODEL, len(self.MODEL), options)
        API.ReleaseSessionOptions(options)
        self.allocator = ort_c.Allocator(made(API.CreateAllocator, self.session, self.info))
        self.alloc = lambda size: self.allocator.table.Alloc(self.allocator.address, size)
        self.free = lambda memory: self.allocator.table.Free(self.allocator.address, memory)

    def reserved(self):
        stats = self.allocator.stats()
        return stats["TotalAllocated"], stats["NumArenaExtensions"]

    def close(self):
        API.ReleaseAllocator(self.allocator.address)
        API.ReleaseSession(self.session)
        API.UnregisterAllocator(self.environment.address, self.info)
        API.ReleaseMemoryInfo(self.info)


class OurPool:
    def __init__(self, settings):
        keys = {"arena_extend_strategy": "extend_strategy"}
        options = [f"arena.{keys.get(key, key)}={value}" for key, value in settings.items()]
        self.pool = pool_c.Pool("peer", options=options, device="host")
        self.alloc = lambda size: self.pool.alloc(size, DEFAULT_STREAM)
        self.free = self.pool.free

    def reserved(self):
        stats = self.pool.stats()
        return stats["total"], stats["extensions"]

    def close(self):
        self.pool.close()


def follow(arena, ops):
    """What the arena has had at the end of a trace."""
    blocks = {}
    for slot, size in ops:
        if size == 0:
            arena.free(blocks.pop(slot))
        else:
            blocks[slot] = arena.alloc(size)
            assert blocks[slot], f"no {size} bytes"
    for block in blocks.values():
        arena.free(block)
    result = arena.reserved()
    arena.close()
    return result


SETTINGS = [
    {"arena_extend_strategy": 0},
    {"arena_extend_strategy": 1},
    {"arena_extend_strategy": 0, "initial_chunk_size_bytes": 100_000, "max_dead_bytes_per_chunk": 4 * KIB},
    {"arena_extend_strategy": 1, "max_dead_bytes_per_chunk": 64 * KIB},
]


def main(seeds, count):
    environment = ort_c.Environment(register=False)
    for seed in seeds:
        for name, ops in traces(seed, count):
            for settings in SETTINGS:
                theirs = follow(OrtArena(environment, settings), ops)
                ours = follow(OurPool(settings), ops)
                row = {"trace": name, "seed": seed, "settings": settings, "theirs": theirs, "ours": ours}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(range(int(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3]))
