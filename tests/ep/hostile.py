#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile models on our EP: each ends in a sentence, or in what ONNX Runtime's CPU EP gives.

    hostile.py [--count N] [--seed FIRST] [--operators A,B] [--jobs N] [--minutes M] [--verbose] [--one SEED]

A model runs in a worker process of which there are several, and which a crash or a model that takes too long costs
nothing but its life: the seed is reported, and a new worker goes on. `--one SEED` shows a model and what came of it, in
this process. One seed in 50 is a random graph (random_graphs.py) instead. Exit status 1 where a model failed.
"""

import argparse
import collections
import concurrent.futures
import os
import queue
import re
import resource
import select
import subprocess
import sys
import time
import traceback

MODEL_LIMIT_S = 20  # for one provider
MEMORY_BYTES = 4 << 30  # addresses of a worker
POOL_BYTES = "256M"
GRAPH_EVERY = 50
OFF_BY_ONE = re.compile("QLinear|Quantize")  # halves are rounded after sums in another order
LOOSE = re.compile("Quantize|DFT|STFT")  # of sums over thousands, some of them of eight bits
LOADS = {"cpu": "cpu loads", "ours": "ours loads"}
RUNS = {"cpu": "cpu runs", "ours": "ours runs"}


# ---- in a worker ----


def options():
    import op_model

    made = op_model.cpu_options()
    made.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return made


class Failed(Exception):
    """What a provider says to a model, in its own words."""


def outcome(who, session_of, feeds, say):
    """The outputs of each run, or the text of its failure; that of making the session counts for all."""
    say(LOADS[who])
    try:
        session = session_of()
    except Exception as fault:
        return None, [Failed(text_of(fault))] * len(feeds)
    say(RUNS[who])
    results = []
    for feed in feeds:
        try:
            results.append(session.run(None, feed))
        except Exception as fault:
            results.append(Failed(text_of(fault)))
    return session, results


def text_of(fault):
    if isinstance(fault, UnicodeDecodeError):
        return "UNREADABLE: " + str(fault)
    return f"{type(fault).__name__}: {fault}"


def sentence_fault(text, op):
    """What is wrong with the text of a failure in our node, or None."""
    said = text.partition("Status Message:")[2].strip()
    if text.startswith("UNREADABLE"):
        return text
    if not said and "Status Message" in text:
        return "nothing is said"
    if "internal error" in text.lower() or "INTERNAL" in text:
        return f"not a user's fault: {text}"
    if said and op not in said and "out of memory" not in said.lower() and "memory" not in said:
        return f"the operator is not named: {text}"
    return None


def differs(got, want, model):
    import numpy as np
    import op_model

    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            continue
        if not model.comparable:
            if model.has_one_shape and (a.shape, a.dtype) != (b.shape, b.dtype):
                return f"output {i}: {a.dtype}{list(a.shape)} where {b.dtype}{list(b.shape)} is expected"
            continue
        slack = (4096 if LOOSE.search(model.op) else 64) if a.dtype.kind == "f" else 1
        if OFF_BY_ONE.match(model.op) and a.dtype.itemsize == 1 and a.shape == b.shape:
            b = np.where(np.abs(a.astype(int) - b) <= 1, a, b)
        name = {"float32": "float", "float64": "double"}.get(str(a.dtype), str(a.dtype))
        fault = op_model.close(a, b, name, name, slack)
        if fault:
            return f"output {i}: {fault}"
    return None


def judge(model, ours, cpu, session):
    """(word for the count, text where it failed)"""
    import provider

    where = {node: ep for ep, _, node in provider.assigned_nodes(session)} if session else {}
    if session and where.get("tested") != provider.NAME:
        return "elsewhere", None
    word = "refused by both"
    for number, got in enumerate(ours):
        want = cpu[number] if cpu else None
        if isinstance(got, Failed):
            alone = want is not None and not isinstance(want, Failed)
            fault = sentence_fault(str(got), model.op) if session or alone else None
            if fault:
                return "FAILED", f"run {number}: {fault}"
            word = "refused by us alone" if alone else word
            continue
        if want is None or isinstance(want, Failed):
            word = "taken by us alone"
            continue
        fault = differs(got, want, model)
        if fault:
            return "FAILED", f"run {number}: {fault}"
        word = "equal" if word == "refused by both" else word
    return word, None


def try_model(seed, operators, with_cpu, say):
    import hostile_models
    import onnxruntime as ort
    import provider

    model = hostile_models.model(seed, operators)
    try:
        made = model.proto()
    except Exception as fault:
        return "no model", str(fault), str(model)
    cpu = None
    def tell(phase):
        say(phase, str(model))

    if with_cpu:
        _, cpu = outcome(
            "cpu", lambda: ort.InferenceSession(made, options(), providers=[provider.CPU]), model.feeds, tell
        )
    session, ours = outcome(
        "ours", lambda: provider.session(made, provider_options={"use_tf32": "0"}, options=options()), model.feeds, tell
    )
    word, text = judge(model, ours, cpu, session)
    if word in ("refused by us alone", "taken by us alone") and text is None:
        text = " | ".join(str(x)[:200] for x in (*ours, *(cpu or ())) if isinstance(x, Failed))
    return word, text, str(model)


def try_seed(seed, operators, with_cpu, say):
    if seed % GRAPH_EVERY or operators:
        return try_model(seed, operators, with_cpu, say)
    import random_graphs

    say(RUNS["ours"], "a random graph")
    fault = random_graphs.compare(seed)
    return ("FAILED" if fault else "equal"), fault, "a random graph"


def line(*words):
    print("\t".join(str(word).replace("\t", " ").replace("\n", "\\n") for word in words), flush=True)


def work(operators):
    """Reads lines "SEED WITH_CPU" and says what came of each; before a provider gets the model, which one it is."""
    import provider

    provider.register()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed is no answer
    sys.stdout = out
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.environ.get("MILLPOND_DEVICE") == "host":  # a GPU's driver takes far more addresses than memory
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for given in sys.stdin:
        seed, with_cpu = map(int, given.split())
        try:
            answer = try_seed(seed, operators, bool(with_cpu), lambda *words: line("begin", *words))
        except Exception:
            answer = "FAILED", "the test itself: " + traceback.format_exc(), ""
        line("end", *answer)


# ---- the driver ----


class Worker:
    def __init__(self, operators):
        env = {**os.environ, "MILLPOND_LOG": "off", "MILLPOND_POOL": f"arena.max_mem={POOL_BYTES}"}
        command = [sys.executable, __file__, "--worker", *(["--operators", ",".join(operators)] if operators else [])]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env)
        self.rest = b""

    def read(self, limit_s):
        """The words of the next line; None where there is none in time, or no more."""
        until = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(until - time.monotonic(), 0))
            more = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                return None
            self.rest += more
        first, _, self.rest = self.rest.partition(b"\n")
        return first.decode(errors="replace").split("\t")

    def ask(self, seed, with_cpu):
        """(word, text, model), or (who had the model, how it ended, model) where the worker did not live to say."""
        self.process.stdin.write(f"{seed} {int(with_cpu)}\n".encode())
        self.process.stdin.flush()
        who, model = "start", ""
        while True:
            words = self.read(MODEL_LIMIT_S + (20 if who == "start" else 0))
            if words is None:
                slow = self.process.poll() is None
                self.end()
                return who, "took too long" if slow else f"ended with status {self.process.returncode}", model
            if words[0] == "end":
                return tuple(words[1:4])
            if words[0] == "begin":
                who, model = words[1:3]

    def end(self):
        self.process.kill()
        self.process.wait()


def run_seed(seed, workers, operators):
    """Takes a worker for a seed and puts it, or a new one, back."""
    worker = workers.get()
    try:
        answer = worker.ask(seed, True)
        died = answer[0]
        if died in (LOADS["cpu"], RUNS["cpu"]):  # what that dies of, or takes long for, we may not
            worker = Worker(operators)
            answer = worker.ask(seed, False)
        if answer[0] in ("start", *LOADS.values(), *RUNS.values()):
            worker = Worker(operators)
            slow = answer[1] == "took too long"
            # What ONNX Runtime dies of while it looks at the model has not come to us yet.
            own = died == LOADS["cpu"] and answer[0] == LOADS["ours"]
            answer = ("ONNX Runtime died" if own else "slow" if slow else "FAILED", answer[1], answer[2])
        elif died in (LOADS["cpu"], RUNS["cpu"]) and answer[0] != "FAILED":
            answer = ("CPU EP died", answer[0], answer[2])
        return seed, answer
    finally:
        workers.put(worker)


def drive(args):
    """Tries the seeds; gives {word: [(seed, text, model)]}."""
    workers = queue.Queue()
    for _ in range(args.jobs):
        workers.put(Worker(args.operators))
    found = collections.defaultdict(list)
    end = time.monotonic() + args.minutes * 60
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        seeds = iter(range(args.seed, args.seed + args.count))
        pending = set()
        while True:
            while len(pending) < 2 * args.jobs and time.monotonic() < end:
                seed = next(seeds, None)
                if seed is None:
                    break
                pending.add(pool.submit(run_seed, seed, workers, args.operators))
            if not pending:
                break
            done, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
            for each in done:
                seed, (word, text, model) = each.result()
                found[word].append((seed, text, model))
                if word == "FAILED" or args.verbose:
                    print(f"seed {seed}: {word}: {model}\n    {text}", flush=True)
    while not workers.empty():
        workers.get().end()
    return found


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20000, help="models to try")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--operators", type=lambda text: text.split(","), help="such as Slice,com.microsoft.Gelu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=60, help="no new model after that")
    parser.add_argument("--verbose", action="store_true", help="every model, with what came of it")
    parser.add_argument("--one", type=int, metavar="SEED", help="one model, here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main():
    args = arguments()
    if args.worker:
        work(args.operators)
        return
    if args.one is not None:
        for word in try_seed(args.one, args.operators, True, lambda *words: print(*words)):
            print(word)
        return
    found = drive(args)
    print("; ".join(f"{len(seeds)} {word}" for word, seeds in sorted(found.items())))
    failed = len(found["FAILED"])
    print(f"{sum(map(len, found.values())) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
