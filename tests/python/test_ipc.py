# SPDX-License-Identifier: Apache-2.0
"""Memory of the pool in another process: millpond.ipc_handle and open_ipc, on the emulated device by shared memory."""

import pickle
import textwrap

import millpond
import pytest
from core_kit import ON_GPU, run_python

SHARED = {"MILLPOND_DEVICE": "host", "MILLPOND_HOST_IPC": "1", "MILLPOND_HOST_DEVICES": "2"}

# What both ends have: the first asks, the second answers, by lines.
KIT = """
import gc, os, pickle, subprocess, sys, millpond

def fails(kind, words, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert words in str(error), error
        return
    raise SystemExit(f"no {kind.__name__}: {words}")

class Other:
    def __init__(self, code):
        self.process = subprocess.Popen([sys.executable, "-c", KIT + code], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
    def say(self, line):
        self.process.stdin.write(line + "\\n")
        self.process.stdin.flush()
    def ask(self, line):
        self.say(line)
        return self.process.stdout.readline().strip()
    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()

def answer(line):
    print(line, flush=True)
"""
CONSUMER = """
import numpy as np
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "open":
        block = millpond.open_ipc(bytes.fromhex(rest))
        answer(f"{len(block)} {block.pool.device} {bytes(memoryview(block)[:4]).hex()}")
    elif word == "unpickle":
        again = pickle.loads(bytes.fromhex(rest)).open()
        answer(f"{again.size} {again!r}")
        del again
    elif word == "write":
        np.frombuffer(block, np.uint8)[:] = int(rest)
        answer("written")
    elif word == "libraries":
        import millpond.onnxruntime as mort, onnx_kit
        flat = np.from_dlpack(block)
        assert flat.shape == (len(block),) and np.shares_memory(flat, np.frombuffer(block, np.uint8))
        x = mort.as_ortvalue(block, dtype="float32", shape=(4,))
        session = mort.session(onnx_kit.add_one(), block.pool.device)
        answer(str(mort.run(session, {"x": x})["y"].numpy().tolist()))
        del x, flat
    elif word == "copies":
        half = bytearray(8)
        block.copy_to_host(half)
        block.copy_from_host(b"12345678")
        block.record_use(1)
        answer(half.hex())
    elif word == "close":
        tensor = block.__dlpack__()
        block.free()
        block.free()
        fails(millpond.InvalidArgumentError, "freed", lambda: block.address)
        del tensor
        gc.collect()
        answer("closed")
    elif word == "stale":
        try:
            millpond.open_ipc(bytes.fromhex(rest))
        except millpond.InvalidArgumentError as error:
            answer(str(error))
"""
SHORT = """
block = millpond.Pool().alloc(4096)
sys.stdin.readline()
answer(bytes(millpond.ipc_handle(block)).hex())
"""
LIMITED = """
millpond.set_limit(4 << 20)
block = millpond.open_ipc(bytes.fromhex(sys.stdin.readline().strip()))
answer(f"{len(block)} {millpond.Pool().stats()['in_use']}")
"""
ON_GPU_THERE = """
def frameworks(block):
    try:
        import torch
        torch.as_tensor(block, device="cuda").add_(1)
        torch.cuda.synchronize()
    except ImportError:
        block.copy_from_host(bytes(b + 1 for b in block.copy_to_host()))
    try:
        import cupy
        array = cupy.asarray(block)
        array += 1
        cupy.cuda.Device().synchronize()
    except ImportError:
        block.copy_from_host(bytes(b + 1 for b in block.copy_to_host()))

for line in sys.stdin:
    block = millpond.open_ipc(bytes.fromhex(line.strip()))
    again = millpond.open_ipc(bytes.fromhex(line.strip()))
    assert bytes(again.copy_to_host()) == bytes(block.copy_to_host())
    del again
    frameworks(block)
    answer(block.pool.bus_id)
    del block
"""


def both(code, **more):
    texts = KIT, CONSUMER, SHORT, LIMITED, ON_GPU_THERE
    start = f"KIT, CONSUMER, SHORT, LIMITED, GPU = {texts!r}\n{KIT}\n"
    return run_python(start + textwrap.dedent(code), **{**SHARED, **more})


@pytest.mark.parametrize("device", ["host:0", "host:1"])
def test_a_block_in_two_processes(device):
    both(f"""
        pool = millpond.Pool({device!r})
        before, block = pool.alloc(100), pool.alloc(5000)
        memoryview(block)[:] = bytes([7]) * 5000
        handle = millpond.ipc_handle(block)
        other = Other(CONSUMER)
        assert other.ask("open " + bytes(handle).hex()) == "5000 {device} 07070707"
        assert other.ask("write 9") == "written"
        assert bytes(block) == bytes([9]) * 5000
        memoryview(block)[:8] = b"abcdefgh"
        assert bytes.fromhex(other.ask("copies")) == b"abcdefgh" and bytes(block)[:8] == b"12345678"
        text = other.ask("unpickle " + pickle.dumps(handle).hex())
        assert text.startswith("5000 <millpond.Buffer of 5000 bytes of another process's memory of {device}"), text
        assert other.ask("close") == "closed"
        other.end()
    """)


def test_libraries_of_the_other_process():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    both("""
        import struct
        block = millpond.Pool().alloc(4096)
        memoryview(block)[:16] = struct.pack("4f", 1, 2, 3, 4)
        other = Other(CONSUMER)
        other.ask("open " + bytes(millpond.ipc_handle(block)).hex())
        assert other.ask("libraries") == "[2.0, 3.0, 4.0, 5.0]"
        other.end()
    """)


def test_lives():
    """The handle keeps the block; what is freed, or of a process that has ended, is refused."""
    both("""
        pool = millpond.Pool()
        handle = millpond.ipc_handle(pool.alloc(8 << 20))
        gc.collect()
        assert pool.stats()["in_use"] >= 8 << 20
        other = Other(CONSUMER)
        assert other.ask("open " + bytes(handle).hex()).startswith(f"{8 << 20} host:0")
        assert other.ask("close") == "closed"
        stale = bytes(handle).hex()
        del handle
        gc.collect()
        assert pool.stats()["in_use"] == 0 and pool.shrink() > 0
        assert "has been freed by process" in other.ask("stale " + stale)
        other.end()

        gone = Other(SHORT)
        theirs = gone.ask("go")
        gone.end()
        fails(millpond.InvalidArgumentError, "cannot be reached", millpond.open_ipc, bytes.fromhex(theirs))
    """)


def test_what_is_refused():
    both("""
        pool = millpond.Pool()
        block = pool.alloc(5000)
        handle = millpond.ipc_handle(block)
        invalid = millpond.InvalidArgumentError
        fails(invalid, "the handle is of this process", millpond.open_ipc, handle)
        fails(invalid, "of this process", pool.ipc_open, handle.raw, 0, 1)
        fails(invalid, "are not those of an IpcHandle", millpond.open_ipc, b"abc")
        fails(invalid, "are not those of an IpcHandle", millpond.open_ipc, b"x" + bytes(handle)[1:])
        fails(invalid, "which is none", millpond.open_ipc, bytes(handle)[:-40] + b"../../etc".ljust(40, b"\\0"))
        fails(invalid, "not of an emulated device", pool.ipc_open, bytes(64), 0, 1)
        fails(invalid, "64 bytes, not 3", pool.ipc_open, b"abc", 0, 1)
        fails(TypeError, "3 arguments", pool.ipc_open, b"abc")
        fails(TypeError, "bytes", pool.ipc_open, "abc", 0, 1)
        fails(invalid, "neither a Buffer nor an array", millpond.ipc_handle, b"abc")
        fails(millpond.NotFoundError, "host:", millpond.open_ipc,
              bytes(handle)[:-64] + (1).to_bytes(8, "little") + b"\\0" * 16 + b"host:7".ljust(40, b"\\0"))
        pinned = millpond.Pool(memory="pinned")
        fails(millpond.UnsupportedError, "cannot be opened by other processes", millpond.ipc_handle, pinned.alloc(9))
        fails(millpond.UnsupportedError, "of a device", pinned.ipc_open, handle.raw, 0, 1)
        assert handle == millpond.IpcHandle.from_bytes(bytes(handle)) and "5000" in repr(handle)
        other = Other(CONSUMER)
        past = millpond.IpcHandle(handle.raw, handle.offset, 1 << 40, handle.device, handle.process)
        assert "and the handle names 1099511627776 at" in other.ask("stale " + bytes(past).hex())
        past = millpond.IpcHandle(handle.raw, (1 << 64) - 1, 2, handle.device, handle.process)
        assert "and the handle names 2 at 18446744073709551615" in other.ask("stale " + bytes(past).hex())
        other.end()
    """)


def test_arrays_of_other_libraries():
    """An array with __cuda_array_interface__ over a part of a block; the pool finds the block."""
    both("""
        pool = millpond.Pool()
        block = pool.alloc(4096)
        class Array:
            def __init__(self, **changes):
                self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "version": 3, "stream": None,
                                                 "data": (block.address + 256, False), "strides": None, **changes}
        part = millpond.ipc_handle(Array(), pool)
        assert (part.size, part.offset) == (24, millpond.ipc_handle(block).offset + 256)
        assert millpond.ipc_handle(Array(strides=(12, 4)), pool).size == 24
        fails(millpond.InvalidArgumentError, "gaps or another order", millpond.ipc_handle, Array(strides=(24, 4)), pool)
        fails(millpond.NotFoundError, "0x", millpond.ipc_handle, Array(data=(4096, False)), pool)
    """)


def test_without_shared_memory():
    both("""
        fails(millpond.UnsupportedError, "MILLPOND_HOST_IPC=1", millpond.ipc_handle, millpond.Pool().alloc(5000))
    """, MILLPOND_HOST_IPC="0")


def test_limits_are_those_of_a_process():
    """What is opened counts for the process that has it."""
    both("""
        block = millpond.Pool().alloc(8 << 20)
        other = Other(LIMITED)
        assert other.ask(bytes(millpond.ipc_handle(block)).hex()) == f"{8 << 20} 0"
        other.end()
    """)


def test_a_handle_says_where_it_is_from():
    assert millpond.Pool().bus_id == "" if millpond.Pool().is_emulated else millpond.Pool().bus_id
    handle = millpond.IpcHandle(bytes(64), 1, 2, "host:0", 3)
    assert pickle.loads(pickle.dumps(handle)) == handle


@pytest.mark.skipif(not ON_GPU, reason="there is no GPU here, or MILLPOND_DEVICE does not say cuda")
def test_on_a_gpu():
    """By the driver's handles, through PyTorch and CuPy where they are installed."""
    both("""
        pool = millpond.Pool(options={"ipc": True})
        before, block = pool.alloc(100), pool.alloc(5000)
        block.copy_from_host(bytes([7]) * 5000)
        handle = millpond.ipc_handle(block)
        assert handle.device == "cuda:" + pool.bus_id and pool.bus_id
        other = Other(GPU)
        for i in range(3):
            assert other.ask(bytes(handle).hex()) == pool.bus_id
            assert bytes(block.copy_to_host()) == bytes([9 + 2 * i]) * 5000
        fails(millpond.NotFoundError, "which this process does not see", millpond.IpcHandle(
            handle.raw, 0, 1, "cuda:ffff:ff:1f.0", 1).open)
        other.end()
    """, MILLPOND_DEVICE="cuda", quiet=False)
