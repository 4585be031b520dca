#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the types of the Python package as its users' checkers see them.

    check_types.py PYRIGHT

A program with `import millpond` alone passes pyright's strict mode, and `pyright --verifytypes` knows the type of all
that the package offers: its score is 100 %. What other packages do not say of themselves is not counted.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "python/src"
PROGRAM = '''
import millpond

session = millpond.onnxruntime.session("model.onnx", options={"use_tf32": False})
print([each.name for each in session.get_inputs()], session.get_outputs()[0].shape, session.get_providers())
print(session.run(None, {"x": [1.0]}), millpond.onnxruntime.run(session, {"x": [1.0]})["y"])
placed = millpond.onnxruntime.placement(session)
print(placed.counts, [node.reason for node in placed.elsewhere])
for device in millpond.onnxruntime.devices():
    print(device.spec, device.memory_bytes)
pool = millpond.Pool("auto", client="program", options={"expandable": True})
with pool.alloc(100, stream=0) as block:
    block.copy_from_host(bytes(100))
    print(block.address, block.nbytes, block.copy_to_host(), pool.stats()["in_use"], pool.clients()[0]["name"])
millpond.cupy.install()
millpond.torch.install()
with millpond.torch.mem_pool():
    pass
'''


def run(pyright, *arguments):
    """Runs pyright; gives what it found, as JSON."""
    env = dict(os.environ, PYTHONPATH=str(SOURCES), PYRIGHT_PYTHON_IGNORE_WARNINGS="1")
    command = [pyright, "--pythonpath", sys.executable, "--outputjson", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"check_types: {pyright} failed: {done.stdout}{done.stderr}") from None


def check_program(pyright):
    """Breaches of a user's program in strict mode."""
    with tempfile.TemporaryDirectory(prefix="millpond-types-") as folder:
        file = Path(folder, "program.py")
        file.write_text("# pyright: strict\n" + PROGRAM)
        found = run(pyright, str(file))["generalDiagnostics"]
    return [f"a strict program, line {each['range']['start']['line'] - 1}: {each['message']}" for each in found]


def check_package(pyright):
    """Names that the package offers and whose type is not known, and a score below 1."""
    found = run(pyright, "--verifytypes", "millpond", "--ignoreexternal")["typeCompleteness"]
    unknown = [
        f"the type of {symbol['name']} is not known: {'; '.join(each['message'] for each in symbol['diagnostics'])}"
        for symbol in found["symbols"]
        if not symbol["isTypeKnown"] and symbol["isExported"]
    ]
    score = found["completenessScore"]
    return unknown + ([f"the types are complete to {score:.1%}, not 100 %"] if score < 1 else [])


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    breaches = check_program(sys.argv[1]) + check_package(sys.argv[1])
    print("\n".join([*breaches, f"check_types: {len(breaches)} breaches"]))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
