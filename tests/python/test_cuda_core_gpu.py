# SPDX-License-Identifier: Apache-2.0
"""millpond.cuda_core on a GPU, with the cuda.core that is installed."""

import gc

import millpond
import numpy as np
import pytest

core = pytest.importorskip("cuda.core", reason="cuda-core is not installed")
binding = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
from millpond import cuda_core  # noqa: E402
from millpond.cuda_core import PoolMemoryResource  # noqa: E402

if not hasattr(core, "MemoryResource"):
    import cuda.core.experimental as core

MIB = 1 << 20


@pytest.fixture
def device():
    try:
        millpond.Pool("cuda:0")
    except millpond.Error as error:
        pytest.skip(f"no GPU: {error}")
    device = core.Device(0)
    device.set_current()
    before = device.memory_resource
    device.memory_resource = PoolMemoryResource(device="cuda:0")
    yield device
    device.memory_resource = before


@pytest.fixture
def pool(device):
    return device.memory_resource.pool


def lent(pool, address):
    try:
        return pool.find(address)
    except millpond.NotFoundError:
        return None


def fill(buffer, byte, stream):
    (result,) = binding.cuMemsetD8Async(int(buffer.handle), byte, buffer.size, int(stream.handle))
    assert int(result) == 0, result


def content(buffer, stream):
    stream.sync()
    host = np.empty(buffer.size, np.uint8)
    (result,) = binding.cuMemcpyDtoH(host.ctypes.data, int(buffer.handle), buffer.size)
    assert int(result) == 0, result
    return set(host.tolist())


def synchronize():
    (result,) = binding.cuCtxSynchronize()
    assert int(result) == 0, result


def test_a_buffer_is_a_block_of_its_stream(device, pool):
    stream = device.create_stream()
    buffer = device.allocate(MIB, stream=stream)
    address = int(buffer.handle)
    block = lent(pool, address)
    assert (block["client"], block["requested"], block["stream"]) == ("cuda.core", MIB, int(stream.handle))
    assert buffer.is_device_accessible and not buffer.is_host_accessible and buffer.device_id == 0
    assert tuple(int(part) for part in buffer.__dlpack_device__()) == (2, 0)
    fill(buffer, 7, stream)
    assert content(buffer, stream) == {7}
    other = buffer.copy_to(stream=stream)
    assert content(other, stream) == {7} and lent(pool, int(other.handle)) is not None
    buffer.close(stream)
    assert lent(pool, address) is None
    again = device.allocate(MIB, stream=stream)
    assert int(again.handle) == address  # at once, on the same stream
    again.close()
    other.close()
    stream.sync()


def test_a_collected_buffer_goes_back(device, pool):
    stream = device.create_stream()
    for given in (stream, device.default_stream):
        buffer = device.allocate(MIB, stream=given)
        address = int(buffer.handle)
        fill(buffer, 1, given)
        del buffer
        gc.collect()
        assert lent(pool, address) is None
    synchronize()


def test_closed_on_another_stream(device, pool):
    first, second = device.create_stream(), device.create_stream()
    for turn in range(20):
        buffer = device.allocate(8 * MIB, stream=first)
        fill(buffer, 0, first)
        second.wait(first)
        fill(buffer, turn, second)
        address = int(buffer.handle)
        buffer.close(second)
        new = device.allocate(8 * MIB, stream=first)
        fill(new, 99, first)
        synchronize()
        assert content(new, first) == {99} and lent(pool, address) in (None, lent(pool, int(new.handle)))
        new.close(first)
    synchronize()


def test_streams_may_be_collected(device, pool):
    """The pool waits for the work of streams that nobody refers to any more."""
    for turn in range(200):
        first, second = device.create_stream(), device.create_stream()
        buffer = device.allocate(8 * MIB, stream=first)
        fill(buffer, turn, first)
        second.wait(first)
        buffer.close(second)
        del first, second
        gc.collect(0)
    synchronize()
    kept = len(cuda_core.streams._held)
    assert kept < 20, kept


def test_exhaustion(device, pool):
    with pytest.raises(Exception, match="CUDA_ERROR_OUT_OF_MEMORY: cannot allocate 1125899906842624 bytes") as caught:
        device.allocate(1 << 50, stream=device.default_stream)
    assert "CUDAError" in [kind.__name__ for kind in type(caught.value).__mro__]
    buffer = device.allocate(MIB, stream=device.default_stream)
    assert lent(pool, int(buffer.handle)) is not None
    buffer.close(device.default_stream)


def test_empty_buffers(device, pool):
    before = pool.stats()["allocs"]
    buffer = device.memory_resource.allocate(0, stream=device.default_stream)
    assert buffer.size == 0
    buffer.close()
    assert pool.stats()["allocs"] == before


def test_pinned_buffers(device):
    resource = PoolMemoryResource(millpond.Pool("cuda:0", memory="pinned", client="cuda.core"))
    stream = device.create_stream()
    buffer = resource.allocate(4096, stream=stream)
    address = int(buffer.handle)
    assert buffer.is_host_accessible and buffer.is_device_accessible
    fill(buffer, 3, stream)
    assert content(buffer, stream) == {3}
    buffer.close(stream)
    assert lent(resource.pool, address) is None
