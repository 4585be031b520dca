# SPDX-License-Identifier: Apache-2.0
"""The pool's public C API through ctypes: another user of the memory that the provider has."""

import ctypes
import os
from pathlib import Path

DEVICE, PINNED = 0, 1
NO_STREAM = ctypes.c_void_p(-1)
STATS = [
    *("limit", "in_use", "requested", "in_use_max", "total", "total_max", "alloc_size_max", "allocs", "frees"),
    *("reserves", "extensions", "shrinkages", "failures", "events", "waits"),
]  # of mp_pool_stats, in its order


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in STATS]


class Share(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32),
        ("stream", ctypes.c_void_p),
        *[(name, ctypes.c_uint64) for name in ("in_use", "requested", "blocks", "free", "allocs")],
    ]


LIB = ctypes.CDLL(str(Path(os.environ["MILLPOND_EP_LIBRARY"]).parent / "libmillpond.so.0"))
LIB.mp_error_message.restype = ctypes.c_char_p


def check(name, *arguments):
    status = getattr(LIB, name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name}: {LIB.mp_error_message().decode()}")


def set_label(kind, node, tensor):
    """What this thread is lent from now on is for that; (0, None, None) ends it."""
    names = [None if text is None else text.encode() for text in (node, tensor)]
    LIB.mp_label_set(LIB.mp_label_make(kind, *names))


class Pool:
    """One client's handle on the pool of a device."""

    def __init__(self, client, memory=DEVICE, options=(), device="auto"):
        self.handle = ctypes.c_void_p()
        given = (ctypes.c_char_p * (len(options) + 1))(*[text.encode() for text in options], None)
        check("mp_pool_open", device.encode(), memory, client.encode(), given, ctypes.byref(self.handle))

    def alloc(self, size, stream=NO_STREAM):
        block = ctypes.c_void_p()
        check("mp_pool_alloc", self.handle, ctypes.c_size_t(size), stream, ctypes.byref(block))
        return block.value

    def reserve(self, size):
        block = ctypes.c_void_p()
        check("mp_pool_reserve", self.handle, ctypes.c_size_t(size), ctypes.byref(block))
        return block.value

    def free(self, block):
        check("mp_pool_free", self.handle, ctypes.c_void_p(block))

    def shrink(self):
        check("mp_pool_shrink", self.handle, None)

    def trace(self, capacity):
        check("mp_pool_trace", self.handle, ctypes.c_size_t(capacity))

    def write_trace(self, file_format, path):
        check("mp_pool_trace_write", self.handle, file_format, str(path).encode())

    def stats(self):
        out = Stats()
        check("mp_pool_get_stats", self.handle, ctypes.byref(out), ctypes.c_size_t(ctypes.sizeof(out)))
        return {name: getattr(out, name) for name in STATS}

    def clients(self):
        """{name: its share}"""
        shares, count = (Share * 64)(), ctypes.c_size_t()
        check("mp_pool_get_clients", self.handle, shares, ctypes.c_size_t(len(shares)), ctypes.byref(count))
        return {share.name.decode(): share for share in shares[: count.value]}

    def close(self):
        LIB.mp_pool_close(self.handle)
