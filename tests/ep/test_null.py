# SPDX-License-Identifier: Apache-2.0
"""The tables that the provider fills, called from C with nothing for what ONNX Runtime may leave out."""

from test_arena import c_child

START = """
import os
from ort_c import API, BASE, Table, made
library = ctypes.CDLL(os.environ["MILLPOND_EP_LIBRARY"])
library.CreateEpFactories.restype = ctypes.c_void_p
EP_API = Table("OrtEpApi", API.GetEpApi())
environment = Environment()
made_factory, count = ctypes.c_void_p(), ctypes.c_size_t()
assert not library.CreateEpFactories(b"again", ctypes.c_void_p(BASE()), None, ctypes.byref(made_factory),
                                     ctypes.c_size_t(1), ctypes.byref(count))
address = made_factory.value
factory = Table("OrtEpFactory", address)
devices = ort_c.pointers([None] * 8)
factory.GetSupportedDevices(address, None, 0, devices, 8, ctypes.byref(count))
assert count.value >= 1
device = devices[0]
memory = API.EpDevice_MemoryInfo(device, DEFAULT)
memory_device = EP_API.MemoryInfo_GetMemoryDevice(memory)
def finish():
    for i in range(count.value):
        EP_API.ReleaseEpDevice(devices[i])
    assert not library.ReleaseEpFactory(ctypes.c_void_p(address))
"""


def child(code):
    c_child(START + code + "\nfinish()\n")


def test_factory_without_what_may_be_left_out():
    child("""
factory.ReleaseAllocator(address, None)
factory.ReleaseEp(address, None)
none = ort_c.pointers([None] * 8)
found = ctypes.c_size_t(7)
factory.GetSupportedDevices(address, None, 0, none, 0, ctypes.byref(found))
assert found.value == 0
refused(lambda: made(factory.CreateEp, address, None, None, 0, None, None), "not on 0")
refused(lambda: made(factory.CreateEp, address, None, None, 1, None, None), "not one of")
refused(lambda: made(factory.CreateExternalResourceImporterForDevice, address, None), "not one of")
""")


def test_allocator_without_options_memory_and_stream():
    child("""
for kind in (DEFAULT, PINNED):
    allocator = made(factory.CreateAllocator, address, API.EpDevice_MemoryInfo(device, kind), None)
    table = Table("OrtAllocator", allocator)
    table.Free(allocator, None)
    assert table.Alloc(allocator, 0) is None and table.Reserve(allocator, 0) is None
    if kind == DEFAULT:
        block = table.AllocOnStream(allocator, 1000, None)
        assert block
        table.Free(allocator, block)
        assert table.AllocOnStream(allocator, 0, None) is None
    factory.ReleaseAllocator(address, allocator)
""")


def test_allocator_of_initializers():
    """It reserves, whatever is asked for, and has neither streams nor anything to shrink."""
    child("""
read_only = made(API.CreateMemoryInfo_V2, b"Cuda", 1, 0x10DE, 0, DEFAULT, 0, 2)
address_of = made(factory.CreateAllocator, address, read_only, None)
allocator, device_wide = ort_c.Allocator(address_of), environment.shared()
assert allocator.info() == ("Cuda", 2)
slots = ort_c.slots("OrtAllocator")
for name, there in (("Alloc", True), ("Reserve", True), ("AllocOnStream", False), ("Shrink", False)):
    assert bool(ctypes.c_void_p.from_address(address_of + 8 * slots[name][0]).value) == there, name
for allocate in (allocator.table.Alloc, allocator.table.Reserve):
    block = allocate(address_of, 5 * MIB)
    stats = device_wide.stats()
    assert stats["NumArenaExtensions"] == 0 and stats["InUse"] == stats["TotalAllocated"] == 5 * MIB
    allocator.table.Free(address_of, block)
    assert device_wide.stats()["TotalAllocated"] == 0
assert device_wide.stats()["NumReserves"] == 2
factory.ReleaseAllocator(address, address_of)
API.ReleaseMemoryInfo(read_only)
""")


def test_stream_without_options_and_waiter():
    child("""
stream = made(factory.CreateSyncStreamForDevice, address, memory_device, None)
table = Table("OrtSyncStreamImpl", stream)
notification = made(table.CreateNotification, stream)
mark = Table("OrtSyncNotificationImpl", notification)
mark.WaitOnHost(notification)  # before it was ever activated
mark.Activate(notification)
mark.WaitOnDevice(notification, None)  # the host waits instead
mark.Release(notification)
table.Flush(stream)
table.Release(stream)
""")


def test_copies_without_streams():
    child("""
transfer = made(factory.CreateDataTransfer, address)
table = Table("OrtDataTransferImpl", transfer)
table.CopyTensors(transfer, None, None, None, 0)
allocator = made(factory.CreateAllocator, address, memory, None)
shape = (ctypes.c_int64 * 1)(4)
target = made(API.CreateTensorAsOrtValue, allocator, shape, 1, ort_c.FLOAT)
x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
source, back = ort_c.tensor(x), ort_c.tensor(y)
for streams in (None, ort_c.pointers([None])):
    y[:] = 0
    table.CopyTensors(transfer, ort_c.pointers([source]), ort_c.pointers([target]), streams, 1)
    table.CopyTensors(transfer, ort_c.pointers([target]), ort_c.pointers([back]), streams, 1)
    assert y.tolist() == x.tolist()
for value in (source, target, back):
    API.ReleaseValue(value)
factory.ReleaseAllocator(address, allocator)
table.Release(transfer)
""")


def test_importer_without_handles():
    child("""
importer = made(factory.CreateExternalResourceImporterForDevice, address, device)
table = Table("OrtExternalResourceImporterImpl", importer)
table.ReleaseMemory(importer, None)
table.ReleaseSemaphore(importer, None)
refused(lambda: made(table.CreateTensorFromMemory, importer, None, None), "needs a handle")
refused(lambda: table.WaitSemaphore(importer, None, None, 1), "no semaphore")
refused(lambda: table.SignalSemaphore(importer, None, None, 1), "no semaphore")
table.Release(importer)
""")
