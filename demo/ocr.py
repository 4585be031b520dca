#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the text of a picture with two trained models, on Millpond's execution provider, and shows what happened.

    demo/ocr.py                        the page that comes with the models
    demo/ocr.py --picture FILE.png     your own picture
    demo/ocr.py --provider cpu         ONNX Runtime's CPU provider alone, for comparison

The models and the page come from `tools/fetch_models.py --group demo`.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import provider
import text
from picture import network_input, read_png

ROOT = Path(__file__).resolve().parent.parent
DETECTOR, READER = "ppocrv6_det", "ppocrv6_rec"
CONFIDENCE_MIN = 0.5
RUNS, RUNS_MIN, TIMING_S = 9, 2, 0.7


class Model:
    """A model on one provider; keeps its inputs, outputs and the time of each run."""

    def __init__(self, path, name):
        started = time.perf_counter()
        self.session = provider.session(str(path), name)
        self.load_ms = (time.perf_counter() - started) * 1e3
        self.input = self.session.get_inputs()[0].name
        self.calls = []

    def run(self, value):
        result = self.session.run(None, {self.input: value})[0]
        self.calls.append((value, result))
        return result

    def timed(self, value):
        """Median milliseconds of a few runs; the caller has run this input before."""
        times = []
        while len(times) < RUNS_MIN or (len(times) < RUNS and sum(times) < TIMING_S * 1e3):
            started = time.perf_counter()
            self.session.run(None, {self.input: value})
            times.append((time.perf_counter() - started) * 1e3)
        return float(np.median(times))


def read_text(picture, detector, reader):
    """[(text, confidence)] of the lines in the picture, in reading order."""
    probability = detector.run(text.detector_input(picture))[0, 0]
    alphabet = text.characters(reader.session)
    lines = []
    for box in text.boxes(probability, picture.shape):
        lines.append(text.decoded(reader.run(network_input(box.crop(picture)))[0], alphabet))
    return [(line, confidence) for line, confidence in lines if line and confidence >= CONFIDENCE_MIN]


def compare(model, reference):
    """(largest difference, relative norm of the difference) over the same inputs on two providers."""
    largest, squares, difference = 0.0, 0.0, 0.0
    for value, result in model.calls:
        expected = reference.run(value).astype(np.float64)
        gap = result.astype(np.float64) - expected
        largest = max(largest, float(np.abs(gap).max()))
        squares += float((expected**2).sum())
        difference += float((gap**2).sum())
    return largest, (difference / squares) ** 0.5 if squares else 0.0


def print_table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for index, row in enumerate(rows):
        print("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if index == 0:
            print("  " + "  ".join("-" * width for width in widths))


def print_device(name):
    if name == provider.CPU:
        print("Device: the CPU, through ONNX Runtime's own provider (--provider cpu)")
        return
    device = provider.register()[0]
    kind = "emulated on the CPU" if provider.is_emulated(device) else "GPU"
    print(f"Device: {provider.device_name(device)} ({kind}), because {provider.why_this_device(device)}")


def print_memory(name):
    if name == provider.CPU:
        print()
        return
    stats = provider.pool_stats()
    lent, had = stats["in_use_max"] / 2**20, stats["total_max"] / 2**20
    print(f"\nMemory: {lent:.0f} MiB allocated by the pool at its peak, {had:.0f} MiB reserved from the device")


def print_assignment(models):
    rows = [("model", "provider", "nodes", "operators")]
    for name, model in models.items():
        for where, operators in sorted(provider.assignment(model.session).items(), reverse=True):
            listed = ", ".join(f"{op} {count}" for op, count in operators.most_common(6))
            more = f", and {len(operators) - 6} more" if len(operators) > 6 else ""
            rows.append((name, where, sum(operators.values()), listed + more))
    print("\nWhere the nodes ran")
    print_table(rows)


def print_comparison(models, references):
    rows = [("model", "largest difference", "relative", "median ms", "CPU EP ms", "load ms")]
    for name, model in models.items():
        largest, relative = compare(model, references[name])
        sample = model.calls[0][0]
        ours, cpu = model.timed(sample), references[name].timed(sample)
        rows.append((name, f"{largest:.2e}", f"{relative:.1e}", f"{ours:.1f}", f"{cpu:.1f}", f"{model.load_ms:.0f}"))
    print("\nCompared with ONNX Runtime's CPU EP on the same inputs")
    print_table(rows)


def run(args, models_dir):
    started = time.perf_counter()
    name = provider.CPU if args.provider == "cpu" else provider.NAME
    source = args.picture or models_dir / "data" / "page.png"
    picture = read_png(source)
    print_device(name)
    paths = {key: models_dir / "models" / f"{key}.onnx" for key in (DETECTOR, READER)}
    models = {key: Model(path, name) for key, path in paths.items()}
    lines = read_text(picture, models[DETECTOR], models[READER])
    print(f"\nText in {source.name} ({picture.shape[1]}x{picture.shape[0]})")
    for line, confidence in lines:
        print(f"  {confidence:4.0%}  {line}")
    if not lines:
        print("  none found")
    print_assignment(models)
    print_comparison(models, {key: Model(path, provider.CPU) for key, path in paths.items()})
    print_memory(name)
    print(f"Total: {time.perf_counter() - started:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="an 8-bit PNG file")
    parser.add_argument("--provider", choices=("millpond", "cpu"), default="millpond")
    args = parser.parse_args()
    models_dir = Path(os.environ.get("MILLPOND_MODELS") or ROOT / ".cache" / "models")
    if not (models_dir / "models" / f"{READER}.onnx").exists():
        sys.exit(f"ocr: no models in {models_dir}; run tools/fetch_models.py --group demo")
    try:
        run(args, models_dir)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"ocr: {error}")


if __name__ == "__main__":
    main()
