# SPDX-License-Identifier: Apache-2.0
"""millpond.numba in processes of their own: the environment, what is imported, exhaustion, other processes, the end."""

import json
import pickle

import pytest
from millpond._numba_binding import dialect_of
from numba_kit import PACKAGES, driver_of, run_python

# What each begins with: a context of Numba on the emulated device. `package` and `driver` are set.
BEGIN = """
import sys, importlib
from numba_kit import Rig, address_of
from millpond import _numba_manager
_numba_manager.Manager.device_name = lambda self: "host:0"
package = sys.argv[1]
cuda = importlib.import_module(package)
driver = sys.modules[cuda.BaseCUDAMemoryManager.__module__]
"""
USE = BEGIN + """
import millpond.numba
from millpond._numba_binding import dialect_of
millpond.numba.use(cuda)
rig, dialect = Rig(driver), dialect_of(driver)
"""


@pytest.fixture(params=PACKAGES)
def package(request):
    driver_of(request.param)
    return request.param


def test_importing_it_imports_no_numba():
    out = run_python("import sys, millpond.numba; print({name.split('.')[0] for name in sys.modules} &"
                     " {'numba', 'numba_cuda', 'numba_cuda_mlir', 'cuda'})")
    assert out == "set()\n"


def test_without_numba():
    out = run_python("import sys\nfor name in ('numba', 'numba_cuda_mlir'): sys.modules[name] = None\n"
                     "import millpond.numba\ntry: millpond.numba.use()\nexcept ImportError as error: print(error)")
    assert out == "millpond.numba needs numba-cuda or numba-cuda-mlir; pip install 'numba-cuda[cu13]'\n"


def test_in_the_simulator():
    driver_of("numba.cuda")
    out = run_python("import numba.cuda, millpond.numba\ntry: millpond.numba.use(numba.cuda)\n"
                     "except millpond.UnsupportedError as error: print(error)", NUMBA_ENABLE_CUDASIM="1")
    assert out.startswith("numba.cuda has no memory managers that Millpond knows: it is Numba's simulator (unset ")


def test_the_variable(package):
    out = run_python(BEGIN + "rig = Rig(driver)\nprint(type(rig.manager).__mro__[0].__name__, rig.context.memalloc(9)"
                     ".size, isinstance(rig.manager, driver.BaseCUDAMemoryManager))", package,
                     NUMBA_CUDA_MEMORY_MANAGER="millpond.numba")
    assert out == "MillpondMemoryManager 9 True\n"


def test_the_variable_serves_both_numbas():
    for name in ("numba.cuda", "numba_cuda_mlir.cuda"):
        driver_of(name)
    out = run_python(BEGIN + "import numba.cuda.cudadrv.driver as first\n"
                     "import numba_cuda_mlir.numba_cuda.cudadrv.driver as second\n"
                     "rigs = Rig(first), Rig(second)\n"
                     "blocks = [rig.context.memalloc(1000) for rig in rigs]\n"
                     "print([isinstance(block, of.MemoryPointer) for block, of in zip(blocks, (first, second))],\n"
                     "      rigs[0].share('blocks'))", PACKAGES[0], NUMBA_CUDA_MEMORY_MANAGER="millpond.numba")
    assert out == "[True, True] 2\n"


def test_the_variable_of_the_mode(package):
    name = "MILLPOND_NUMBA_STREAMS"
    out = run_python(USE + "rig.context.memalloc(9)\nprint(rig.share('in_use'))", package, **{name: "fast"})
    assert out == "0\n"
    out = run_python("try: import millpond.numba\nexcept ValueError as error: print(error)", **{name: "no"})
    assert out == "the variable MILLPOND_NUMBA_STREAMS is 'no'; it must be one of fence, fast, sync\n"


def test_exhaustion_raises_numba_s_error_and_work_goes_on(package):
    out = run_python(USE + """
millpond.numba.configure(options={"max_mem": "16M", "extend_strategy": 1})
held, MIB = [], 1 << 20
try:
    while True:
        held.append(rig.context.memalloc(3 * MIB))
except driver.CudaAPIError as error:
    assert error.code == 2 and type(error.code) is type(dialect.error_code(2))
    print(len(held), error)
try:
    rig.context.memhostalloc(1 << 60)
except driver.CudaAPIError as error:
    assert error.code == 2 and type(error.code) is type(dialect.error_code(2))
cycle = [held.pop()]
cycle.append(cycle)
del cycle, held[0]  # one waits, one only a collection finds
again = [rig.context.memalloc(3 * MIB), rig.context.memalloc(3 * MIB)]
print(len(again))
held.pop()
print(millpond.Pool("host:0", client="other").alloc(3 * MIB).size)  # others get what waits, too
""", package)
    first, *rest = out.splitlines()
    assert first.startswith("5 [") and "arena.max_mem" in first, first
    assert "cannot allocate 3145728 bytes of device memory" in first, first
    assert rest == ["2", "3145728"]


def test_arrays_that_live_at_exit_are_no_trouble(package):
    run_python(USE + """
import threading
keep = [rig.context.memalloc(1000) for _ in range(200)] + [rig.context.memhostalloc(64)]
keep.append(keep)
threading.Thread(target=keep.append, args=(rig.context.memalloc(5),)).start()
rig.context.prepare_for_use()
""", package)


def test_a_forked_child_ends_in_peace(package):
    out = run_python(USE + """
import os
keep = [rig.context.memalloc(1000) for _ in range(3)]
child = os.fork()
if child == 0:
    del keep, rig
    sys.exit(0)
print(os.waitpid(child, 0)[1], rig.in_use())
""", package)
    assert out == "0 3072\n"


IPC = USE + """
import json, pickle
first, second = rig.context.memalloc(1000), rig.context.memalloc(5000)
handles = [rig.context.get_ipc_handle(memory) for memory in (first, second, second.view(256, 512))]
region = rig.pool.find(address_of(first))["region"]
print(json.dumps([[pickle.dumps(handle).hex(), handle.size, handle.offset, address_of(memory) - region]
                  for handle, memory in zip(handles, (first, second, second.view(256)))]))
assert handles[0].base is first and handles[0].source_info == rig.device.get_device_identity()
"""


def test_handles_of_foreign_memory_can_be_pickled(package):
    """Numba's own can not, with cuda-bindings from 13.4 on."""
    out = run_python(USE + """
import pickle
raw = bytes(range(64))
foreign = driver.MemoryPointer(rig.context, dialect.device_pointer(0x7100), 500)
functions = driver.driver.__dict__
def range_of(*words):
    if len(words) == 1:
        return dialect.device_pointer(0x7000), 4096
    words[0]._obj.value, words[1]._obj.value = 0x7000, 4096
def handle_of(*words):
    if len(words) == 1:
        return dialect.ipc_handle(raw)
    words[0]._obj[:] = dialect.ipc_handle(raw)[:]
functions["cuMemGetAddressRange"], functions["cuIpcGetMemHandle"] = range_of, handle_of
handle = rig.context.get_ipc_handle(foreign)
again = pickle.loads(pickle.dumps(handle))
print(again.size, again.offset, again.source_info == rig.device.get_device_identity(), handle.base is foreign,
      dialect.ipc_bytes(again.handle) == raw)
""", package)
    assert out == "500 256 True True True\n"


def test_handles_for_other_processes(package):
    driver = driver_of(package)
    rows = json.loads(run_python(IPC, package, MILLPOND_HOST_IPC="1"))
    raws = set()
    for (pickled, size, offset, place), wanted in zip(rows, (1000, 5000, 256), strict=True):
        handle = pickle.loads(bytes.fromhex(pickled))
        assert type(handle) is driver.IpcHandle and handle.base is None
        assert handle.size == size == wanted and handle.offset == offset == place
        raws.add(dialect_of(driver).ipc_bytes(handle.handle))
    assert len(raws) == 1 and raws != {bytes(64)}  # one region, which the receiver opens once


@pytest.mark.parametrize("options", ["arena.expandable=1", "arena.use_cuda_mempool=1"])
def test_memory_that_cannot_be_shared_is_refused(package, options):
    out = run_python(USE + "try: rig.context.get_ipc_handle(rig.context.memalloc(9))\n"
                     "except millpond.UnsupportedError as error: print(error)", package, MILLPOND_POOL=options)
    assert "cannot be opened by other processes; open the pool of device memory with arena.ipc=1" in out
    out = run_python(USE + "millpond.numba.configure(ipc=True)\ntry: rig.context.memalloc(9)\n"
                     "except millpond.InvalidArgumentError as error: print(error)", package, MILLPOND_POOL=options)
    assert "arena.ipc" in out
