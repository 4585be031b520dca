# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's interop API through ctypes: importers, imported memory, tensors over it, semaphores."""

import ctypes

import ort_c
from ort_c import API, FLOAT, VERSION, made

D3D12, FD = 0, 3  # OrtExternalMemoryHandleType
D3D12_FENCE, TIMELINE_FD = 0, 2  # OrtExternalSemaphoreType
INTEROP = ort_c.Table("OrtInteropApi", API.GetInteropApi())


class MemoryDescriptor(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("kind", ctypes.c_int), ("native", ctypes.c_void_p),
                ("size", ctypes.c_size_t), ("offset", ctypes.c_size_t)]


class SemaphoreDescriptor(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("kind", ctypes.c_int), ("native", ctypes.c_void_p)]


class TensorDescriptor(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("element", ctypes.c_int), ("shape", ctypes.c_void_p),
                ("rank", ctypes.c_size_t), ("offset", ctypes.c_size_t)]


def native(fd):
    return ctypes.c_void_p(fd % (1 << 64))


class Tensor:
    def __init__(self, address):
        self.address = address

    def close(self):
        API.ReleaseValue(self.address)


class Memory:
    def __init__(self, importer, address):
        self.importer, self.address = importer, address

    def tensor(self, shape, offset, element=FLOAT):
        dims = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        about = TensorDescriptor(VERSION, element, ctypes.addressof(dims), len(shape), offset)
        return Tensor(made(INTEROP.CreateTensorFromMemory, self.importer.address, self.address, ctypes.byref(about)))

    def close(self):
        INTEROP.ReleaseExternalMemoryHandle(self.address)


class Semaphore:
    def __init__(self, importer, address):
        self.importer, self.address = importer, address

    def wait(self, stream, value):
        INTEROP.WaitSemaphore(self.importer.address, self.address, stream, value)

    def signal(self, stream, value):
        INTEROP.SignalSemaphore(self.importer.address, self.address, stream, value)

    def close(self):
        INTEROP.ReleaseExternalSemaphoreHandle(self.address)


class Importer:
    def __init__(self, device):
        self.address = made(INTEROP.CreateExternalResourceImporterForDevice, device)
        if self.address is None:
            raise ort_c.OrtError(0, "there is no importer for this device")

    def _can(self, ask, kind):
        answer = ctypes.c_bool()
        ask(self.address, kind, ctypes.byref(answer))
        return answer.value

    def can_import_memory(self, kind):
        return self._can(INTEROP.CanImportMemory, kind)

    def can_import_semaphore(self, kind):
        return self._can(INTEROP.CanImportSemaphore, kind)

    def memory(self, fd, size, offset=0, kind=FD):
        about = MemoryDescriptor(VERSION, kind, native(fd), size, offset)
        return Memory(self, made(INTEROP.ImportMemory, self.address, ctypes.byref(about)))

    def semaphore(self, fd, kind=TIMELINE_FD):
        about = SemaphoreDescriptor(VERSION, kind, native(fd))
        return Semaphore(self, made(INTEROP.ImportSemaphore, self.address, ctypes.byref(about)))

    def close(self):
        INTEROP.ReleaseExternalResourceImporter(self.address)


def stream(device):
    return made(API.CreateSyncStreamForEpDevice, device, None)


def release_stream(address):
    API.ReleaseSyncStream(address)


def run(session, x, y):
    """x -> y, both values of the device."""
    binding = made(API.CreateIoBinding, session.address)
    API.BindInput(binding, b"x", x.address)
    API.BindOutput(binding, b"y", y.address)
    API.RunWithBinding(session.address, None, binding)
    API.SynchronizeBoundOutputs(binding)
    API.ReleaseIoBinding(binding)


def device_of(value):
    """OrtMemoryInfoDeviceType of a tensor."""
    memory, kind = made(API.GetTensorMemoryInfo, value.address), ctypes.c_int(-1)
    API.MemoryInfoGetDeviceType(memory, ctypes.byref(kind))
    return kind.value


def cpu_device(environment):
    found, count = ctypes.c_void_p(), ctypes.c_size_t()
    API.GetEpDevices(environment.address, ctypes.byref(found), ctypes.byref(count))
    everybody = (ctypes.c_void_p * count.value).from_address(found.value)
    return next(device for device in everybody if API.EpDevice_EpName(device) == b"CPUExecutionProvider")


