#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the traces that pool_bench replays; runs by itself in under a minute on a machine with a GPU.

    record_traces.py [--out bench/pool/traces] [--only inference,training,pipeline]
    record_traces.py --convert SNAPSHOT.pickle --out FOLDER     a snapshot that torch has dumped

inference  a small transformer that answers requests of varying batch and length (PyTorch's memory history)
training   steps of training the same model (PyTorch's memory history)
pipeline   two threads, each with a stream, that filter pictures of varying size with CuPy and Numba (a memory hook)

Each is recorded in a process of its own. A file keeps as many of the first events as fit into 200 KiB.
"""

import argparse
import pickle
import random
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import traces  # noqa: E402  (beside this file)

OUT = Path(__file__).resolve().parent / "traces"
BYTES_MAX = 200 * 1024
EVENTS_MAX = 400_000


# ---- PyTorch ----


def make_model(torch, vocabulary):
    class Model(torch.nn.Module):
        def __init__(self, width=256, layers=4):
            super().__init__()
            self.words = torch.nn.Embedding(vocabulary, width)
            layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, vocabulary)

        def forward(self, tokens, padding=None):
            return self.head(self.layers(self.words(tokens), src_key_padding_mask=padding))

    return Model().cuda()


def record_torch(body):
    """The events of `body(torch)`, from before the model is made."""
    import torch

    torch.manual_seed(0)
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=EVENTS_MAX)
    body(torch)
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    return traces.from_torch(snapshot)


def inference(torch, requests=120):
    chance = random.Random(1)
    model = make_model(torch, 8192).eval()
    kept = []  # answers that a client still holds
    with torch.inference_mode():
        for _ in range(requests):
            batch = chance.choice([1, 1, 2, 4, 8, 16])
            lengths = [min(512, 8 + int(chance.lognormvariate(4, 0.8))) for _ in range(batch)]
            longest = max(lengths)
            tokens = torch.randint(0, 8192, (batch, longest), device="cuda")
            padding = torch.arange(longest, device="cuda")[None, :] >= torch.tensor(lengths, device="cuda")[:, None]
            logits = model(tokens, padding)
            kept.append(torch.topk(torch.softmax(logits, -1), 5))
            del kept[:-4]


def training(torch, steps=10):
    chance = random.Random(2)
    model = make_model(torch, 8192).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(steps):
        length = chance.choice([96, 112, 128, 160])
        tokens = torch.randint(0, 8192, (16, length + 1), device="cuda")
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()


# ---- CuPy and Numba ----


class Log:
    """Events of CuPy's pool and of Numba's arrays, in one order."""

    def __init__(self):
        self.events = []

    def add(self, action, pointer, size, stream):
        # A list's append is one step for other threads.
        self.events.append(traces.Event(time.time(), action, pointer, size, threading.get_ident(), stream))

    def hook(self, cupy):
        log = self

        class Hook(cupy.cuda.MemoryHook):
            name = "trace"

            def malloc_postprocess(self, **of):
                if of["mem_ptr"]:
                    log.add(traces.ALLOCATE, of["mem_ptr"], of["size"], cupy.cuda.get_current_stream().ptr)

            def free_preprocess(self, **of):
                # Before the block goes back, or else another thread could get it first.
                log.add(traces.FREE, of["mem_ptr"], 0, cupy.cuda.get_current_stream().ptr)

        return Hook()

    def numba_array(self, cuda, shape, dtype, stream):
        array = cuda.device_array(shape, dtype)
        address = array.__cuda_array_interface__["data"][0]
        self.add(traces.ALLOCATE, address, array.nbytes, stream)
        weakref.finalize(array, self.add, traces.FREE, address, 0, stream)
        return array


def threshold_of(cupy, cuda):
    """threshold(picture, level, out, stream), by a kernel of Numba, or of CuPy where Numba cannot compile."""

    @cuda.jit
    def kernel(picture, level, out):
        row, column = cuda.grid(2)
        if row < out.shape[0] and column < out.shape[1]:
            out[row, column] = 1.0 if picture[row, column] > level else 0.0

    def threshold(picture, level, out, stream):
        grid = ((out.shape[0] + 15) // 16, (out.shape[1] + 15) // 16)
        kernel[grid, (16, 16), cuda.external_stream(stream.ptr)](picture, level, out)

    try:
        small = cupy.zeros((1, 1), cupy.float32)
        threshold(small, 0.0, small, cupy.cuda.Stream.null)
    except Exception as failure:
        print(f"record_traces: Numba compiles no kernel here ({failure}); its arrays are filled by CuPy")
        return lambda picture, level, out, _: cupy.greater(picture, level, out=cupy.asarray(out), casting="unsafe")
    return threshold


def filter_picture(cupy, cuda, threshold, log, stream, chance, kept):
    height, width = (32 * chance.randint(4, 48) for _ in range(2))
    picture = cupy.random.standard_normal((height, width), dtype=cupy.float32)
    spectrum = cupy.fft.rfft2(picture)
    spectrum *= cupy.exp(-cupy.abs(cupy.fft.rfftfreq(width).astype(cupy.float32))[None, :] * 4)
    smooth = cupy.fft.irfft2(spectrum, s=picture.shape).astype(cupy.float32)
    mask = log.numba_array(cuda, smooth.shape, "float32", stream.ptr)
    threshold(smooth, float(smooth.mean()), mask, stream)
    chosen = smooth[cupy.asarray(mask) > 0]
    order = cupy.sort(chosen)[:: max(1, chosen.size // 1000)]
    kept.append((order, (smooth * smooth).sum(axis=0), cupy.histogram(chosen, 64)))
    del kept[:-6]


def record_pipeline(pictures=60):
    import cupy
    from numba import cuda

    log, failures = Log(), []
    threshold = threshold_of(cupy, cuda)

    def work(seed):
        chance, kept = random.Random(seed), []
        stream = cupy.cuda.Stream(non_blocking=True)
        try:
            with log.hook(cupy), stream:
                for _ in range(pictures):
                    filter_picture(cupy, cuda, threshold, log, stream, chance, kept)
                stream.synchronize()
                kept.clear()
        except Exception as failure:  # of another thread: shown by the one that waits
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return log.events


RECORDERS = {
    "inference": lambda: record_torch(inference),
    "training": lambda: record_torch(training),
    "pipeline": record_pipeline,
}


def save(name, events, out):
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.csv.gz"
    count = traces.write(path, events, BYTES_MAX)
    items = traces.read(path)
    print(f"{path}: {len(items)} operations of {len(events)} events ({count} fitted), "
          f"{path.stat().st_size} bytes, {traces.live_peak(items) / 2**20:.1f} MiB live at most, "
          f"{len({item.stream for item in items})} streams, {len({item.thread for item in items})} threads")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", default=",".join(RECORDERS), help="names, separated by commas")
    parser.add_argument("--convert", type=Path, help="a snapshot that torch has dumped, instead of recording")
    args = parser.parse_args()
    if args.convert:
        save(args.convert.stem, traces.from_torch(pickle.loads(args.convert.read_bytes())), args.out)
        return 0
    names = args.only.split(",")
    if len(names) == 1:
        save(names[0], RECORDERS[names[0]](), args.out)
        return 0
    failed = [name for name in names
              if subprocess.run([sys.executable, __file__, "--only", name, "--out", args.out]).returncode != 0]
    if failed:
        print(f"record_traces: not recorded: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
