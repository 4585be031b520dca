#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dask: workers whose arrays are of one pool each, ten times as many as that holds.

Runs anywhere; without a GPU on the emulated device. Needs the package dask[distributed].
"""

import millpond
import millpond.dask
from distributed import Client, LocalCluster

MIB = 1 << 20


def make(byte):
    block = millpond.Pool(client="example").alloc(4 * MIB)  # or an array of CuPy, Numba or PyTorch
    block.copy_from_host(bytes([byte]) * block.size)
    return block


def first(block):
    return block.copy_to_host()[0]


def main():
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client:
        millpond.dask.install(client, limit="16 MiB")
        blocks = client.map(make, range(80))  # 320 MiB
        assert client.gather(client.map(first, blocks)) == list(range(80))
        for worker, found in client.run(lambda dask_worker: dask_worker.plugins["millpond"].figures()).items():
            print(f"{worker}: {found['in_use_max'] / MIB:.0f} MiB at most, {found['moved_to_host']} arrays went to the "
                  f"host and {found['moved_to_device']} came back")
        print(f"the pools over time: {client.dashboard_link.removesuffix('/status')}/pool-memory")


if __name__ == "__main__":
    main()
