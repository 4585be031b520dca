# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's C API through ctypes, for what its Python module does not show: environments with options, shared
allocators, statistics.

The wheel's C library is another runtime than its Python module, and the provider takes only one in a process: a
program that imports this one must not register the provider through `onnxruntime`. ORT_C_LIBRARY names the library.
Types of arguments come from the table of slots that the provider is checked against.
"""

import csv
import ctypes
import os
from pathlib import Path

import numpy as np

NAME = "CudaPluginExecutionProvider"
PREFIX = f"ep.{NAME.lower()}."
ABI = Path(__file__).resolve().parents[1] / "data/ort_abi.tsv"
WARNING = 2
DEFAULT, PINNED = 0, 5  # OrtDeviceMemoryType
DEVICE_ALLOCATOR, ARENA_ALLOCATOR = 0, 1  # OrtAllocatorType
FLOAT = 1
OK, FAIL, INVALID_ARGUMENT = 0, 1, 2  # of OrtErrorCode
NUMBERS = {
    "size_t": ctypes.c_size_t,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
}


class OrtError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class EnvCreationOptions(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("logging_severity_level", ctypes.c_int32),
        ("log_id", ctypes.c_char_p),
        ("custom_logging_function", ctypes.c_void_p),
        ("custom_logging_param", ctypes.c_void_p),
        ("threading_options", ctypes.c_void_p),
        ("config_entries", ctypes.c_void_p),
    ]


def c_type(text):
    if text == "void":
        return None
    return ctypes.c_void_p if "*" in text or text == "OrtStatusPtr" else NUMBERS.get(text, ctypes.c_int)


def slots(struct):
    """{name: (index, function type, whether it returns a status)}"""
    table = {}
    with ABI.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["struct"] == struct and row["kind"] == "function":
                parameters = [text.strip() for text in row["parameter_types"].split(",")]
                arguments = [c_type(text) for text in parameters if text != "void"]
                result = row["return_type"]
                is_text = result.replace(" ", "") == "constchar*"
                kind = ctypes.CFUNCTYPE(ctypes.c_char_p if is_text else c_type(result), *arguments)
                table[row["name"]] = (int(row["index"]), kind, result == "OrtStatusPtr")
    return table


class Table:
    """Functions of a struct at `address`, by name; one that returns a status raises instead."""

    def __init__(self, struct, address):
        self._slots, self._address = slots(struct), address

    def __getattr__(self, name):
        index, kind, checked = self._slots[name]
        function = kind(ctypes.c_void_p.from_address(self._address + 8 * index).value)

        def call(*arguments):
            status = function(*arguments)
            if status:
                code, text = API.GetErrorCode(status), API.GetErrorMessage(status).decode()
                API.ReleaseStatus(status)
                raise OrtError(code, text)

        setattr(self, name, call if checked else function)
        return getattr(self, name)


BASE = ctypes.CDLL(os.environ["ORT_C_LIBRARY"]).OrtGetApiBase
BASE.restype = ctypes.c_void_p
VERSIONS = Table("OrtApiBase", BASE())
VERSION = min(29, int(VERSIONS.GetVersionString().split(b".")[1]))  # 29 is the newest that the table of slots has
API = Table("OrtApi", VERSIONS.GetApi(VERSION))


def made(create, *arguments):
    """What a function gives through its last argument."""
    out = ctypes.c_void_p()
    create(*arguments, ctypes.byref(out))
    return out.value


def texts(values):
    return (ctypes.c_char_p * len(values))(*[str(value).encode() for value in values])


def pointers(values):
    return (ctypes.c_void_p * len(values))(*values)


def pairs(values):
    out = made(API.CreateKeyValuePairs)
    for key, value in values.items():
        API.AddKeyValuePair(out, key.encode(), str(value).encode())
    return out


def read_pairs(address):
    keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    API.GetKeyValuePairs(address, ctypes.byref(keys), ctypes.byref(values), ctypes.byref(count))
    array = ctypes.POINTER(ctypes.c_char_p)
    keys, values = ctypes.cast(keys, array), ctypes.cast(values, array)
    return {keys[i].decode(): values[i].decode() for i in range(count.value)}


class Allocator:
    """An OrtAllocator; `table` holds its own functions."""

    def __init__(self, address):
        self.address = address
        self.table = Table("OrtAllocator", address)

    def alloc(self, size):
        return made(API.AllocatorAlloc, self.address, size)

    def reserve(self, size):
        return self.table.Reserve(self.address, size)

    def free(self, memory):
        API.AllocatorFree(self.address, memory)

    def shrink(self):
        self.table.Shrink(self.address)

    def stats(self):
        found = made(API.AllocatorGetStats, self.address)
        values = {key: int(value) for key, value in read_pairs(found).items()}
        API.ReleaseKeyValuePairs(found)
        return values

    def info(self):
        """The memory's name and the allocator's type."""
        memory, kind = self.table.Info(self.address), ctypes.c_int(-1)
        name = made(API.MemoryInfoGetName, memory)
        API.MemoryInfoGetType(memory, ctypes.byref(kind))
        return ctypes.string_at(name).decode(), kind.value


def tensor(array):
    """A value over an array's memory, which the caller keeps."""
    memory = made(API.CreateMemoryInfo_V2, b"Cpu", 0, 0, 0, DEFAULT, 0, DEVICE_ALLOCATOR)
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    value = made(API.CreateTensorWithDataAsOrtValue, memory, array.ctypes.data, array.nbytes, shape, array.ndim, FLOAT)
    API.ReleaseMemoryInfo(memory)
    return value


def floats(value):
    """A copy of a value on the CPU, flat."""
    size = ctypes.c_size_t()
    API.GetTensorSizeInBytes(value, ctypes.byref(size))
    data = made(API.GetTensorMutableData, value)
    return np.frombuffer(ctypes.string_at(data, size.value), np.float32).copy()


class Session:
    def __init__(self, environment, model, options=(), config=(), device=None):
        self.environment, self.device = environment, device or environment.devices()[0]
        settings = made(API.CreateSessionOptions)
        API.SetIntraOpNumThreads(settings, 1)
        for key, value in dict(config).items():
            API.AddSessionConfigEntry(settings, key.encode(), str(value).encode())
        options = dict(options)
        API.SessionOptionsAppendExecutionProvider_V2(
            settings,
            environment.address,
            pointers([self.device]),
            1,
            texts(options.keys()),
            texts(options.values()),
            len(options),
        )
        try:
            self.address = made(API.CreateSessionFromArray, environment.address, model, len(model), settings)
        finally:
            API.ReleaseSessionOptions(settings)

    def run(self, x, out="y", config=(), profile=None):
        """The output of a model with one input and one output; `profile` is how the run's own profile is to begin."""
        x = np.ascontiguousarray(x, np.float32)
        settings = made(API.CreateRunOptions)
        for key, value in dict(config).items():
            API.AddRunConfigEntry(settings, key.encode(), str(value).encode())
        if profile is not None:
            API.RunOptionsEnableProfiling(settings, os.fsencode(profile))
        given, got = tensor(x), pointers([None])
        try:
            API.Run(self.address, settings, texts(["x"]), pointers([given]), 1, texts([out]), 1, got)
            result = floats(got[0])
            API.ReleaseValue(got[0])
            return result
        finally:
            API.ReleaseValue(given)
            API.ReleaseRunOptions(settings)

    def run_on_device(self, x):
        """The output as a value that stays on the device."""
        x = np.ascontiguousarray(x, np.float32)
        memory = API.EpDevice_MemoryInfo(self.device, DEFAULT)
        binding, given = made(API.CreateIoBinding, self.address), tensor(x)
        API.BindInput(binding, b"x", given)
        API.BindOutputToDevice(binding, b"y", memory)
        API.RunWithBinding(self.address, None, binding)
        host, values, count = made(API.GetAllocatorWithDefaultOptions), ctypes.c_void_p(), ctypes.c_size_t()
        API.GetBoundOutputValues(binding, host, ctypes.byref(values), ctypes.byref(count))
        value = ctypes.c_void_p.from_address(values.value).value
        API.AllocatorFree(host, values)
        API.ReleaseIoBinding(binding)
        API.ReleaseValue(given)
        return value

    def stats(self, kind=DEFAULT):
        """Of the memory that the session allocates from."""
        memory = API.EpDevice_MemoryInfo(self.device, kind)
        allocator = Allocator(made(API.CreateAllocator, self.address, memory))
        stats = allocator.stats()
        API.ReleaseAllocator(allocator.address)
        return stats

    def close(self):
        API.ReleaseSession(self.address)


class Environment:
    """The one environment of a process; the provider is registered."""

    def __init__(self, config=(), register=True):
        entries = pairs(dict(config))
        options = EnvCreationOptions(VERSION, WARNING, b"test", None, None, None, entries)
        self.address = made(API.CreateEnvWithOptions, ctypes.byref(options))
        API.ReleaseKeyValuePairs(entries)
        if register:
            self.register()

    def register(self, name=NAME, path=None):
        library = os.fsencode(path or os.environ["MILLPOND_EP_LIBRARY"])
        API.RegisterExecutionProviderLibrary(self.address, name.encode(), library)

    def unregister(self, name=NAME):
        API.UnregisterExecutionProviderLibrary(self.address, name.encode())

    def devices(self):
        found, count = ctypes.c_void_p(), ctypes.c_size_t()
        API.GetEpDevices(self.address, ctypes.byref(found), ctypes.byref(count))
        everybody = (ctypes.c_void_p * count.value).from_address(found.value)
        return [device for device in everybody if API.EpDevice_EpName(device).decode() == NAME]

    def shared(self, kind=DEFAULT):
        """The allocator that everybody shares, or None."""
        memory = API.EpDevice_MemoryInfo(self.devices()[0], kind)
        address = made(API.GetSharedAllocator, self.address, memory)
        return Allocator(address) if address else None

    def replace_shared(self, options=None, kind=DEFAULT, allocator=DEVICE_ALLOCATOR):
        given = pairs(options) if options is not None else None
        try:
            address = made(API.CreateSharedAllocator, self.address, self.devices()[0], kind, allocator, given)
        finally:
            API.ReleaseKeyValuePairs(given)
        return Allocator(address)

    def release_shared(self, kind=DEFAULT):
        API.ReleaseSharedAllocator(self.address, self.devices()[0], kind)

    def session(self, model, options=(), config=(), device=None):
        return Session(self, model, options, config, device)
