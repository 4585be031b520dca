# SPDX-License-Identifier: Apache-2.0
"""Runs a function of a module in several processes that are ranks to one another.

    run("rank_work:everything", 4)                  all end well, or the outputs of those that did not are shown
    run("rank_work:misses", 4, left_out=[2])        rank 2 is never started

A function gets its rank and the number of ranks. The emulated device is used unless `device` is "cuda".
"""

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = [HERE, HERE.parent / "models", HERE.parent.parent / "demo"]
WAIT_S = 240


def free_port():
    """A port whose successor, at which rank 0 listens, was free a moment ago, too."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            try:
                next_one.bind(("127.0.0.1", one.getsockname()[1] + 1))
            except OSError:
                continue
            return one.getsockname()[1]
    raise OSError("no two ports in a row are free")


def start(work, size, left_out=(), timeout_s=60, device="host", **environment):
    """Gives {rank: process}."""
    port = str(free_port())
    paths = [*map(str, FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    common = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
              "MILLPOND_RANK_TIMEOUT": str(timeout_s), "MILLPOND_DEVICE": device, "OMP_NUM_THREADS": "1",
              "MILLPOND_HOST_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), **environment}
    return {
        rank: subprocess.Popen([sys.executable, __file__, work], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(size) if rank not in left_out
    }


def run(work, size, left_out=(), dies=(), **options):
    """Those in `dies` need not end well. Gives {rank: output}."""
    processes = start(work, size, left_out, **options)
    outputs = {}
    try:
        for rank, process in processes.items():
            outputs[rank] = process.communicate(timeout=WAIT_S)[0]
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
                process.communicate()
    wrong = [rank for rank, process in processes.items() if process.returncode != 0 and rank not in dies]
    texts = "\n".join(f"--- rank {rank}, exit status {processes[rank].returncode}\n{outputs[rank]}" for rank in outputs)
    assert not wrong, f"ranks {wrong} failed\n{texts}"
    return outputs


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), name)(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
