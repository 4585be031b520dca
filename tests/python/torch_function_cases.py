# SPDX-License-Identifier: Apache-2.0
"""Cases of test_torch_functions.py that need a process of their own, with throwing.cpp in PyTorch's place.

    python -c 'import torch_function_cases as cases; cases.NAME("throwing.so")'
"""

import ctypes
import resource
import threading

import millpond
import torch_kit
from core_kit import HostStream
from millpond import _native

HUGE = 1 << 50
MIB = 1 << 20


def start(library):
    stand_in = torch_kit.StandIn(library)
    assert stand_in.best == 3, stand_in.best
    _native.open_device("millpond_torch_open", 0, "host:0")
    return stand_in, millpond.Pool("host:0", client="torch")


def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def out_of_memory(library):
    """Exhaustion is c10::OutOfMemoryError with the sentence, nothing leaks, and requests work afterwards."""
    stand_in, pool = start(library)
    kind, address, sentence = stand_in.alloc(HUGE)
    assert (kind, address) == (torch_kit.OUT_OF_MEMORY, None)
    assert f"cannot allocate {HUGE} bytes" in sentence and "for 'torch'" in sentence
    for _ in range(100):
        stand_in.alloc(HUGE)
    before = peak_kib()
    for _ in range(20000):
        stand_in.alloc(HUGE)
    assert peak_kib() - before < 2000
    assert stand_in.library.objects_alive() == 0
    kind, address, _ = stand_in.alloc(1000)
    assert kind == torch_kit.NOTHING and pool.find(address)["requested"] == 1000
    torch_kit.free(address, 1000, 0, None)
    assert pool.stats()["in_use"] == 0


def other_errors(library):
    """A device that is not there is c10::Error."""
    stand_in, _ = start(library)
    kind, _, sentence = stand_in.alloc(100, device=7)
    assert kind == torch_kit.ERROR and "cuda:7" in sentence
    kind, _, sentence = stand_in.alloc(100, device=64)
    assert kind == torch_kit.ERROR and "numbers go from 0 to 63" in sentence


def plainer(library):
    """Without PyTorch's names std::bad_alloc is left."""
    loaded = ctypes.CDLL(str(library))
    prepare = torch_kit.function("millpond_torch_prepare", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    assert prepare(b"/nowhere/libc10.so", b"/nowhere/libc10_cuda.so") == 1
    stand_in = object.__new__(torch_kit.StandIn)
    stand_in.library = loaded
    _native.open_device("millpond_torch_open", 0, "host:0")
    assert stand_in.alloc(HUGE)[0] == torch_kit.BAD_ALLOC
    assert prepare(str(library).encode(), b"/nowhere/libc10_cuda.so") == 2
    kind, _, sentence = stand_in.alloc(HUGE)
    assert kind == torch_kit.ERROR and f"cannot allocate {HUGE} bytes" in sentence
    assert prepare(str(library).encode(), str(library).encode()) == 3
    assert stand_in.alloc(HUGE)[0] == torch_kit.OUT_OF_MEMORY


def threads(library):
    """Many threads allocate, free and run out at the same time."""
    stand_in, pool = start(library)
    wrong = []

    def work(seed):
        held = []
        for step in range(400):
            if step % 50 == seed % 50 and stand_in.alloc(HUGE)[0] != torch_kit.OUT_OF_MEMORY:
                wrong.append(seed)
            held.append(stand_in.alloc(1 + (seed * 7919 + step * 104729) % 100000)[1])
            if len(held) > 10:
                torch_kit.free(held.pop(step % 10), 0, 0, None)
        for address in held:
            torch_kit.free(address, 0, 0, None)

    team = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    assert not wrong and pool.stats()["in_use"] == 0 and stand_in.library.objects_alive() == 0


def order_of_streams(library):
    """A block that another stream uses is allocated again only after that stream's work."""
    _, pool = start(library)
    first, second = HostStream(), HostStream()
    gate, reached = threading.Event(), threading.Event()
    address = torch_kit.alloc(5000, 0, first.handle)
    second.call(lambda: (reached.set(), gate.wait(30)))
    assert reached.wait(30)
    torch_kit.record_stream(address, second.handle)
    torch_kit.free(address, 5000, 0, first.handle)
    held = [torch_kit.alloc(5000, 0, first.handle) for _ in range(3)]
    assert address not in held and not gate.is_set()
    gate.set()
    second.synchronize()
    pool.shrink()  # looks at what has ended
    assert torch_kit.alloc(5000, 0, first.handle) == address


# ---- graphs ----


class Graphs:
    """A stand-in whose current stream the test chooses, and captures on the emulated device."""

    def __init__(self, library):
        self.stand_in, self.pool = start(library)
        self.stream = HostStream()
        _native.call_with_objects("millpond_torch_streams", self.current)

    def current(self, device):
        assert device == 0
        return self.stream.handle

    def host(self, name, stream, *rest):
        status = getattr(HostStream.library, name)(stream.device, ctypes.c_void_p(stream.handle), *rest)
        assert status == 0, (name, status)

    def capture(self, first, second):
        kind, sentence = self.stand_in.begin(first, second)
        assert kind == torch_kit.NOTHING, sentence
        self.host("mp__host_capture_begin", self.stream)

    def end(self, first, second):
        graph = ctypes.c_void_p()
        self.host("mp__host_capture_end", self.stream, ctypes.byref(graph))
        self.stand_in.end(first, second)

    def lend(self, size, stream=None):
        kind, address, sentence = self.stand_in.alloc(size, 0, (stream or self.stream).handle)
        assert kind == torch_kit.NOTHING, sentence
        return address

    def free(self, address):
        torch_kit.free(address, 0, 0, None)


def graph_memory(library):
    """What a capture has freed serves that capture only, until it is released."""
    rig = Graphs(library)
    rig.free(rig.lend(MIB))  # so that the pool has memory
    rig.capture(1, 0)
    freed = rig.lend(MIB // 2)
    rig.free(freed)
    kept = rig.lend(MIB // 2)
    assert kept == freed
    rig.free(kept)
    rig.end(1, 0)
    eager = [rig.lend(MIB // 2) for _ in range(4)]
    assert kept not in eager
    for address in eager:
        rig.free(address)
    rig.capture(1, 0)  # a second graph shares the first one's memory
    assert rig.lend(MIB // 2) == kept
    rig.free(kept)
    rig.end(1, 0)
    rig.stand_in.release(1, 0)
    assert kept not in [rig.lend(MIB // 2) for _ in range(4)]  # one graph is left
    rig.stand_in.release(1, 0)
    assert kept in [rig.lend(MIB // 2) for _ in range(8)]


def graph_names(library):
    """Both numbers of the name count."""
    rig = Graphs(library)
    rig.free(rig.lend(MIB))
    seen = []
    for name in ((1, 0), (0, 1), (2, 0)):
        rig.capture(*name)
        seen.append(rig.lend(MIB // 4))
        rig.free(seen[-1])
        rig.end(*name)
    assert len(set(seen)) == 3
    rig.stand_in.release(0, 1)
    rig.stand_in.release(9, 9)  # never begun
    rig.capture(1, 0)
    assert rig.lend(MIB // 4) == seen[0]


def graph_side_stream(library):
    """A stream that joins the capture gets memory of the graph; one that does not, does not."""
    rig = Graphs(library)
    side, other = HostStream(), HostStream()
    rig.free(rig.lend(MIB))
    rig.capture(3, 0)
    rig.host("mp__host_capture_begin", side)
    joined, free_of_it = rig.lend(1000, side), rig.lend(1000, other)
    rig.free(joined)
    assert rig.lend(1000, side) == joined
    rig.free(joined)
    rig.free(free_of_it)
    graph = ctypes.c_void_p()
    rig.host("mp__host_capture_end", side, ctypes.byref(graph))
    rig.end(3, 0)
    assert rig.lend(1000, side) != joined
    assert rig.lend(1000, other) == free_of_it


def graph_failures(library):
    """A current stream that cannot be had is an error of the capture; one left open is given up by the next."""
    rig = Graphs(library)

    def broken(device):
        raise ValueError(f"no stream of device {device}")

    _native.call_with_objects("millpond_torch_streams", broken)
    kind, sentence = rig.stand_in.begin(1, 0)
    assert kind == torch_kit.ERROR and "no stream of device 0" in sentence
    _native.call_with_objects("millpond_torch_streams", rig.current)
    for name in ((1, 0), (2, 0)):  # neither is ended
        assert rig.stand_in.begin(*name)[0] == torch_kit.NOTHING
    address = rig.lend(1000)
    rig.stand_in.end(2, 0)
    rig.free(address)
    rig.stand_in.release(2, 0)
    rig.stand_in.release(1, 0)
    assert rig.stand_in.begin(1, 0)[0] == torch_kit.NOTHING
    rig.stand_in.end(1, 0)
