# SPDX-License-Identifier: Apache-2.0
"""Tokens from a model that onnxruntime_genai.models.builder wrote: genai_tokens.py FOLDER TOKEN..."""

import sys

import millpond.genai
import numpy as np
import onnxruntime_genai as og


def main(folder, *prompt):
    model = og.Model(millpond.genai.config(folder))
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=40, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompt, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    print(*generator.get_sequence(0))


if __name__ == "__main__":
    main(*sys.argv[1:])
