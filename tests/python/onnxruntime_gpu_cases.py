# SPDX-License-Identifier: Apache-2.0
"""What test_onnxruntime_gpu.py runs, each case in a process of its own: onnxruntime_gpu_cases.py CASE [LIBRARY].

A case fails by an exception. LIBRARY is cupy, numba or torch; its arrays go into a session and come out of it.
"""

import gc
import importlib
import math
import sys

import millpond
import numpy as np
import onnx_kit
from case_kit import CASES, case
from ort_kit import mort

COUNT = 1 << 20
LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None


class Cupy:
    def __init__(self):
        self.cupy = importlib.import_module("cupy")
        self.kernel = self.cupy.RawKernel(
            'extern "C" __global__ void late(float *x, float value, long long count, long long cycles) {\n'
            "    const long long start = clock64();\n"
            "    while (clock64() - start < cycles) {\n    }\n"
            "    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
            "    if (i < count) {\n        x[i] = value;\n    }\n}\n", "late")
        self.stream = self.cupy.cuda.Stream(non_blocking=True)

    def array(self, values):
        return self.cupy.asarray(values)

    def address(self, array):
        return array.data.ptr

    def late(self, array, value, side):
        """Writes the value everywhere, on the default stream or another one, after some tens of ms."""
        grid = ((array.size + 255) // 256,)
        arguments = (array, np.float32(value), np.int64(array.size), np.int64(50_000_000))
        if side:
            with self.stream:
                self.kernel(grid, (256,), arguments)
        else:
            self.kernel(grid, (256,), arguments)

    def current(self, side):
        return self.stream if side else self.cupy.cuda.Stream.null

    def taken(self, array):
        return self.cupy.asarray(array)

    def numpy(self, array):
        return array.get()

    def install(self):
        importlib.import_module("millpond.cupy").install()


class Torch:
    def __init__(self):
        self.torch = importlib.import_module("torch")
        self.stream = None

    def array(self, values):
        return self.torch.from_numpy(np.ascontiguousarray(values)).cuda()

    def address(self, array):
        return array.data_ptr()

    def late(self, array, value, side):
        self.stream = self.stream or self.torch.cuda.Stream()
        with self.torch.cuda.stream(self.stream if side else self.torch.cuda.default_stream()):
            self.torch.cuda._sleep(50_000_000)
            array.fill_(value)

    def current(self, side):
        self.stream = self.stream or self.torch.cuda.Stream()
        return self.torch.cuda.stream(self.stream if side else self.torch.cuda.default_stream())

    def taken(self, array):
        return self.torch.from_dlpack(array)

    def numpy(self, array):
        return array.cpu().numpy()

    def install(self):
        importlib.import_module("millpond.torch").install()


class Numba:
    def __init__(self):
        self.cuda = importlib.import_module("numba.cuda")
        cuda = self.cuda

        @cuda.jit
        def late(values, value, rounds):
            i = cuda.grid(1)
            total = 0.0
            for k in range(rounds):
                total += math.sin(total + k)
            if i < values.size:
                values[i] = value if total < 1e30 else 0.0

        self.kernel, self.stream = late, None

    def array(self, values):
        return self.cuda.to_device(np.ascontiguousarray(values))

    def address(self, array):
        return array.__cuda_array_interface__["data"][0]

    def late(self, array, value, side):
        self.stream = self.stream or self.cuda.stream()
        stream = self.stream if side else 0
        self.kernel[(array.size + 255) // 256, 256, stream](array, np.float32(value), 2000)
        array.stream = stream  # Numba's way to say where an array is made

    def current(self, side):
        import contextlib

        return contextlib.nullcontext()

    def taken(self, array):
        return self.cuda.as_cuda_array(array)

    def numpy(self, array):
        return array.copy_to_host()

    def install(self):
        importlib.import_module("millpond.numba").use()


LIBRARIES = {"cupy": Cupy, "torch": Torch, "numba": Numba}


def library(name=LIBRARY, install=False):
    kind = LIBRARIES[name]
    if install:  # before the library uses the GPU
        kind.install(kind.__new__(kind))
    return kind()


def session(count=COUNT):
    return mort.session(onnx_kit.add_one((count,)), "cuda:0", fall_back=False)


@case
def shares():
    """In and out, the memory is the same; values are right."""
    other, adder, host = library(), session(), np.arange(COUNT, dtype=np.float32)
    x, y = other.array(host), other.array(np.zeros(COUNT, np.float32))
    value = mort.as_ortvalue(x)
    assert value.data_ptr() == other.address(x) and value.device_name() == "cuda"
    outputs = mort.run(adder, {"x": x}, {"y": y})
    assert outputs["y"] is y
    assert (other.numpy(y) == host + 1).all() and (other.numpy(x) == host).all()
    made = mort.run(adder, {"x": y})["y"]
    taken = other.taken(made)
    assert other.address(taken) == made.address
    del made
    gc.collect()
    assert (other.numpy(taken) == host + 2).all()
    again = mort.run(adder, {"x": taken})["y"]
    assert (again.numpy() == host + 3).all()


@case
def shares_one_pool():
    """The same with the library's own memory from the pool: its arrays and the session's are blocks of one."""
    other = library(install=True)
    adder, pool, host = session(), millpond.Pool("cuda:0"), np.arange(COUNT, dtype=np.float32)
    x = other.array(host)
    y = mort.run(adder, {"x": x})["y"]
    found = [pool.find(address) for address in (other.address(x), y.address)]
    assert [block["client"] for block in found] == [LIBRARY, "onnxruntime"], found
    assert (y.numpy() == host + 1).all()
    for _ in range(50):
        x = other.array(host)
        y = other.taken(mort.run(adder, {"x": x})["y"])
        z = mort.run(adder, {"x": y})["y"]
        assert (z.numpy()[::4097] == (host + 2)[::4097]).all()


@case
def waits():
    """A run begins after the work on the streams of its arrays, the default one and others, also when run again."""
    other, adder = library(), session()
    for side in (False, True):
        x, y = other.array(np.zeros(COUNT, np.float32)), other.array(np.zeros(COUNT, np.float32))
        binding = mort.bind(adder, {"x": x}, {"y": y})
        for value in (7, 8, 9):
            with other.current(side):
                other.late(x, value, side)
                binding.run()
            found = other.numpy(y)
            assert (found == value + 1).all(), (side, value, found[:4])
            other.late(y, 0, side)  # and before it is written
            with other.current(side):
                binding.run()
            found = other.numpy(y)
            assert (found == value + 1).all(), (side, value, found[:4])


@case
def keeps():
    """An array that a session has made lives as long as somebody has it; so does one that a session reads."""
    other, adder, pool = library(), session(), millpond.Pool("cuda:0")
    mort.run(adder, {"x": other.array(np.zeros(COUNT, np.float32))})
    gc.collect()
    before = pool.stats()["in_use"]
    taken = other.taken(mort.run(adder, {"x": other.array(np.ones(COUNT, np.float32))})["y"])
    gc.collect()
    assert pool.stats()["in_use"] > before
    for value in range(20):
        mort.run(adder, {"x": np.full(COUNT, value, np.float32)})
    assert (other.numpy(taken) == 2).all()
    value = mort.as_ortvalue(other.array(np.full(COUNT, 5, np.float32)))
    gc.collect()
    for _ in range(20):
        other.array(np.full(COUNT, 99, np.float32))
    assert (mort.run(adder, {"x": value})["y"].numpy() == 6).all()
    del taken, value
    gc.collect()
    assert pool.stats()["in_use"] <= before


@case
def refuses():
    """Arrays with gaps, of other types and of other shapes."""
    other, adder = library(), session(64)
    square = other.array(np.zeros((64, 64), np.float32))
    for wrong, part in ((square[:, 0], "gaps"), (other.array(np.zeros(64)), "tensor(double)"),
                        (square, "has the shape [64]"), (other.array(np.zeros(64, np.complex64)), "no device arrays")):
        try:
            mort.run(adder, {"x": wrong})
        except millpond.InvalidArgumentError as error:
            assert part in str(error), error
        else:
            raise AssertionError(part)
    assert (mort.run(adder, {"x": square[0]})["y"].numpy() == 1).all()


@case
def types():
    """Types that NumPy has, and those that only PyTorch has."""
    torch = importlib.import_module("torch")
    for kind, dtype in ((onnx_kit.BOOL, torch.bool), (onnx_kit.BFLOAT16, torch.bfloat16), (onnx_kit.INT64, torch.int64),
                        (onnx_kit.FLOAT16, torch.float16), (onnx_kit.UINT8, torch.uint8)):
        relay = mort.session(onnx_kit.relay(kind), "cuda:0", fall_back=False)
        x = torch.tensor([1, 0, 1, 1], device="cuda").to(dtype)
        y = torch.from_dlpack(mort.run(relay, {"x": x})["y"])
        assert y.dtype == dtype and torch.equal(y, x[None]), dtype
    leaf = torch.ones(64, device="cuda", requires_grad=True)
    assert (mort.run(session(64), {"x": leaf})["y"].numpy() == 2).all()


@case
def records():
    """PyTorch reads an output late, on a stream of its own, and has dropped it by then: DLPack has told the pool."""
    torch = importlib.import_module("torch")
    adder, stream, pool = session(), torch.cuda.Stream(), millpond.Pool("cuda:0")
    mort.run(adder, {"x": torch.zeros(COUNT, device="cuda")})
    for value in range(8):
        y = mort.run(adder, {"x": torch.full((COUNT,), float(value), device="cuda")})["y"]
        with torch.cuda.stream(stream):
            taken = torch.from_dlpack(y)
            torch.cuda._sleep(100_000_000)
            copy = taken.clone()
        del y, taken
        gc.collect()
        for _ in range(4):  # would have that memory
            mort.run(adder, {"x": np.full(COUNT, 99, np.float32)})
            other = pool.alloc(4 * COUNT, 0)
            mort.as_ortvalue(other, dtype="float32").update_inplace(np.full(COUNT, 77, np.float32))
            del other
        stream.synchronize()
        assert (copy == value + 1).all(), (value, copy[:4])
    y = mort.run(adder, {"x": np.zeros(COUNT, np.float32)})["y"]
    y.record_use(stream.cuda_stream)


@case
def all_together():
    """Sessions, CuPy, Numba and PyTorch on one pool, each with the other's memory."""
    host = np.arange(COUNT, dtype=np.float32)
    others = [library(name, install=True) for name in ("numba", "cupy", "torch")]
    own = [other.array(host) for other in others]
    adder, expected, value = session(), host, host
    for _ in range(5):
        for other in others:
            value = other.taken(mort.run(adder, {"x": value})["y"])
            expected = expected + 1
        for other in others:
            other.taken(mort.run(adder, {"x": value})["y"])
    assert (other.numpy(value) == expected).all()
    for array in own:
        assert (mort.run(adder, {"x": array})["y"].numpy() == host + 1).all()
    clients = {share["name"] for share in millpond.Pool("cuda:0").clients()}
    assert {"onnxruntime", "numba", "cupy", "torch"} <= clients, clients


@case
def the_command_line():
    """doctor finds the GPU and its libraries; a model agrees with the CPU."""
    import json
    import subprocess
    import tempfile
    from pathlib import Path

    def millpond_json(*words):
        done = subprocess.run([sys.executable, "-m", "millpond", *words, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    checks = {(each["part"], each["name"]): each for each in millpond_json("doctor")["checks"]}
    assert checks["GPUs", "cuda:0"]["more"]["memory_bytes"] > 1 << 30
    for name in ("driver", "NVRTC", "cuBLASLt", "cuDNN"):
        assert checks["Libraries", name]["state"] == "ok" and Path(checks["Libraries", name]["detail"]).exists()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixed.onnx"
        path.write_bytes(onnx_kit.mixed())
        found = millpond_json("run", str(path), "--dim", "n=64")
        assert found["agrees"] and found["device"]["spec"] == "cuda:0" and not found["device"]["emulated"]
        rows = millpond_json("bench", str(path), "--seconds", "0.1", "--repeats", "2", "--bind")["rows"]
        assert {row["provider"] for row in rows if row["blocks"]} >= {"millpond", "cpu"}
        emulated = millpond_json("run", str(path), "--device", "host")
        assert emulated["device"]["emulated"] and emulated["agrees"]


if __name__ == "__main__":
    CASES[sys.argv[1]]()
