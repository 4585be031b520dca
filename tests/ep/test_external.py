# SPDX-License-Identifier: Apache-2.0
"""Memory and semaphores of other APIs, by POSIX file descriptor, through ONNX Runtime's C API.

On the emulated device files stand for what Vulkan exports: memory that memfd_create gives, and a count in its first
eight bytes for a timeline semaphore. A GPU takes Vulkan's own only and must refuse those.
"""

import pytest
from test_arena import c_child

START = """
import mmap, os, struct, threading, time
import interop
from interop import FD, D3D12, Importer
from ort_c import INVALID_ARGUMENT
environment = Environment()
device = environment.devices()[0]
importer = Importer(device)
emulated = ort_c.read_pairs(ort_c.API.EpDevice_EpMetadata(device))["emulated"] == "1"
def make(size, sealable=True):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING if sealable else 0)
    os.ftruncate(fd, size)
    return fd, (mmap.mmap(fd, size) if size else None)
"""
HOST = {"MILLPOND_DEVICE": "host"}
MODES = ["eager", "threaded", "adversarial:5"]


def child(code, **environment):
    return c_child(START + code, **environment)


def test_what_can_be_imported():
    child("""
assert importer.can_import_memory(FD) and not importer.can_import_memory(D3D12)
assert importer.can_import_semaphore(interop.TIMELINE_FD) and not importer.can_import_semaphore(interop.D3D12_FENCE)
importer.close()
""")


@pytest.mark.parametrize("mode", MODES)
def test_tensors_over_imported_memory(mode):
    """A session reads from it and writes into it, at offsets; the exporter sees what was written."""
    child("""
count, before, inner = 1000, 4096, 256
fd, outside = make(before + inner + 8 * count)
outside[before + inner : before + inner + 4 * count] = np.arange(count, dtype=np.float32).tobytes()
memory = importer.memory(fd, len(outside), before)
os.close(fd)  # it stays its caller's
x = memory.tensor([count], inner)
y = memory.tensor([4, count // 4], inner + 4 * count)
session = environment.session(small_models.add_chain(3, count))
for round in range(3):
    interop.run(session, x, memory.tensor([count], inner + 4 * count))
    got = np.frombuffer(outside[before + inner + 4 * count :], np.float32)
    np.testing.assert_array_equal(got, np.arange(count) + 3)
    outside[before + inner + 4 * count :] = bytes(4 * count)
assert interop.device_of(x) == 1  # a GPU's, to ONNX Runtime
for value in (x, y):
    value.close()
memory.close()
importer.close()
session.close()
""", MILLPOND_HOST=mode, **HOST)


def test_tensors_outlive_handle_importer_and_session():
    child("""
fd, outside = make(4096)
memory = importer.memory(fd, 4096)
x, y = memory.tensor([4], 0), memory.tensor([4], 16)
memory.close()
importer.close()
os.close(fd)
session = environment.session(small_models.add_chain(2))
interop.run(session, x, y)
session.close()
assert np.frombuffer(outside[16:32], np.float32).tolist() == [2.0] * 4
environment.unregister()
y.close()
assert np.frombuffer(outside[16:32], np.float32).tolist() == [2.0] * 4
x.close()
""", **HOST)


def test_sizes_and_offsets_are_not_trusted():
    """Numbers drawn at random around the edges, and those at which sums overflow."""
    child("""
import random
draw = random.Random(11)
edges = [0, 1, 3, 4, 255, 256, 4095, 4096, 4097, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 4, (1 << 64) - 1]
fd, outside = make(4096)
taken = 0
for _ in range(300):
    size, offset = draw.choice(edges), draw.choice(edges)
    good = 0 < size <= 4096 and offset < size
    try:
        memory = importer.memory(fd, size, offset)
    except OrtError as error:
        assert not good and error.code == INVALID_ARGUMENT, (size, offset, str(error))
        continue
    assert good, (size, offset)
    for _ in range(20):
        shape = [draw.choice([0, 1, 2, 3, 1023, 1024, -1, 1 << 31, (1 << 62), (1 << 63) - 1])
                 for _ in range(draw.randrange(4))]
        inner = draw.choice(edges)
        elements = 1
        for dim in shape:
            elements *= dim
        fits = all(dim >= 0 for dim in shape) and (offset + inner) % 4 == 0
        fits = fits and offset + inner + 4 * elements <= size
        try:
            value = memory.tensor(shape, inner)
        except OrtError:
            assert not fits or any(dim > 1 << 30 for dim in shape), (size, offset, shape, inner)
            continue
        assert fits, (size, offset, shape, inner)
        value.close()
        taken += 1
    memory.close()
assert taken > 20, taken
importer.close()
""", **HOST)


def test_descriptors_that_are_none_of_memory():
    """Also on a GPU, which has to refuse files as well."""
    child("""
ends = os.pipe()
good, outside = make(4096)
unsealed, _ = make(4096, sealable=False)
for fd, size in ((-1, 4096), (1 << 20, 4096), (1 << 40, 4096), (ends[0], 4096), (unsealed, 4096), (good, 1 << 40)):
    refused(lambda: importer.memory(fd, size), "descriptor", code=INVALID_ARGUMENT)
refused(lambda: importer.memory(good, 4096, kind=D3D12), "file descriptors")
refused(lambda: importer.semaphore(good, kind=interop.D3D12_FENCE), "file descriptor")
small, _ = make(4)
for fd in (-1, 1 << 20, ends[0], small):
    refused(lambda: importer.semaphore(fd), "descriptor", code=INVALID_ARGUMENT)
if not emulated:
    refused(lambda: importer.memory(good, 4096), "descriptor", code=INVALID_ARGUMENT)
    refused(lambda: importer.semaphore(good), "descriptor", code=INVALID_ARGUMENT)
importer.close()
check(environment.session(small_models.add_chain(1), {}), 4, value=1.0, factor=2)
""")


@pytest.mark.parametrize("mode", MODES)
def test_semaphores_on_a_stream(mode):
    """The other side counts up later; what is queued behind the wait runs after that, and the signal after it."""
    child("""
fd, outside = make(64)
semaphore = importer.semaphore(fd)
os.close(fd)
stream = interop.stream(device)
def count():
    return struct.unpack("<Q", outside[:8])[0]
def other_side():
    time.sleep(0.01)
    outside[:8] = struct.pack("<Q", 4)
thread = threading.Thread(target=other_side)
thread.start()
semaphore.wait(stream, 3)
semaphore.signal(stream, 9)
thread.join()
deadline = time.monotonic() + 20
while count() != 9 and time.monotonic() < deadline:
    semaphore.wait(stream, 9)  # one more call, so that an adversary gets on
    time.sleep(0.001)
assert count() == 9
refused(lambda: semaphore.wait(None, 1))
interop.release_stream(stream)
semaphore.close()
importer.close()
""", MILLPOND_HOST=mode, **HOST)


def test_importer_of_another_device_is_refused():
    child("""
refused(lambda: Importer(interop.cpu_device(environment)))
importer.close()
""")
