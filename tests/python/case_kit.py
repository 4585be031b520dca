# SPDX-License-Identifier: Apache-2.0
"""What the scripts of cases share that run in a process of their own: the list of cases, and a team of threads.

A case fails by an exception.
"""

import threading

MIB = 1 << 20
HUGE = 1 << 45  # bytes that no device has
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def check_in_threads(full, stream_of, threads=8, turns=60):
    """Fills arrays of many sizes on the streams of many threads at once and sums them up.

    `full(count, value)` makes an array of 64-bit integers; `stream_of(seed)` gives a context for a thread's work.
    """
    wrong = []

    def work(seed):
        with stream_of(seed):
            for turn in range(turns):
                counts = [1000 * (1 + (seed + turn + part) % 50) for part in range(5)]
                arrays = [full(count, part) for part, count in enumerate(counts)]
                expected = sum(part * count for part, count in enumerate(counts))
                found = sum(int(array.sum()) for array in arrays)
                if found != expected:
                    wrong.append((seed, turn, found, expected))

    team = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    assert not wrong, wrong[:3]
