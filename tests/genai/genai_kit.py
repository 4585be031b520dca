# SPDX-License-Identifier: Apache-2.0
"""Models made once, on the provider and on genai's CPU path, and what is generated with them."""

import functools
import json
import os
import tempfile
from pathlib import Path

import millpond.genai
import numpy as np
import onnxruntime_genai as og
import tiny_models

PROMPT = [5, 9, 17, 33, 60, 12]
BY_NAME = {of.name: of for of in tiny_models.ARCHITECTURES}
NAME = os.environ.get("MILLPOND_EP_NAME")  # None: what millpond.genai takes by itself
HAS_ADD_ON = (Path(og.__file__).parent / "libonnxruntime-genai-cuda.so").is_file()
ON_GPU = os.environ.get("MILLPOND_DEVICE", "").startswith("cuda")
IS_CUDA_PATH = ON_GPU and HAS_ADD_ON and NAME != "CudaPluginExecutionProvider"  # of genai: it searches on the GPU
_scratch = tempfile.TemporaryDirectory(prefix="millpond-genai-")


@functools.cache
def folder(name, dtype="float32", int4=False, reference=False, seed=3):
    place = Path(_scratch.name) / f"{name}-{dtype}-{int4}-{reference}-{seed}"
    return tiny_models.write(place, BY_NAME[name], dtype, int4, reference, seed)


def overlaid(config, settings):
    config.overlay(json.dumps(settings))
    return config


def ours(where, options=None, settings=None):
    """A model on the provider."""
    options = {"use_tf32": False, **(options or {})}  # as exact as the CPU
    return og.Model(overlaid(millpond.genai.config(where, options=options, name=NAME), settings or {}))


def cpu(where, settings=None):
    config = og.Config(str(where))
    config.clear_providers()
    return og.Model(overlaid(config, settings or {}))


def generator(model, prompt=PROMPT, **search):
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 40, "do_sample": False, **search})
    made = og.Generator(model, params)
    made.append_tokens(np.array(prompt, np.int32))
    return made


def sequences(made, count=1):
    while not made.is_done():
        made.generate_next_token()
    return [made.get_sequence(i).tolist() for i in range(count)]


def step(made, count):
    for _ in range(count):
        made.generate_next_token()
    return made.get_sequence(0).tolist()


def faults(reference, tokens, prompt, limit):
    """Tokens behind the prompt that the reference would not have chosen, by more than `limit` of its numbers."""
    made = generator(reference, prompt, max_length=max(len(tokens) + 1, tiny_models.WINDOW))
    found = []
    for i in range(len(prompt), len(tokens)):
        row = np.ravel(made.get_logits()).astype(np.float64)
        if row.max() - row[tokens[i]] > limit:
            found.append((i, tokens[i], int(row.argmax()), float(row.max() - row[tokens[i]])))
        made.append_tokens(np.array([tokens[i]], np.int32))
    return found
