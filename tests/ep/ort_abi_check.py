#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ABI header with the tables of ONNX Runtime's ABI in tests/data, through the compiler.

Each row becomes a static assertion: offset and type of a member, size of a struct, value of an enumerator.
A control with one wrong offset must be refused, which shows that the assertions are looked at.

    python3 tests/ep/ort_abi_check.py --cc gcc --include src
    python3 tests/ep/ort_abi_check.py --cc gcc --include src --official DIR   (ONNX Runtime's own headers)
"""

import argparse
import csv
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
# Options of ONNX Runtime's built-in EPs: the header only passes pointers to these.
OPAQUE = {
    "OrtCUDAProviderOptions",
    "OrtROCMProviderOptions",
    "OrtTensorRTProviderOptions",
    "OrtMIGraphXProviderOptions",
    "OrtOpenVINOProviderOptions",
    "OrtCustomHandleType",
}
UNUSED_ENUMS = {"OrtCudnnConvAlgoSearch", "OrtCompileApiFlags"}


def rows(name):
    with open(DATA / name, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def member_checks():
    for row in rows("ort_abi.tsv"):
        struct, name = row["struct"], row["name"]
        if struct in OPAQUE:
            continue
        yield f"offsetof({struct}, {name}) == {row['offset']}", f"offset of {struct}.{name}"
        wanted = row["return_type"]
        if wanted.startswith("union"):
            continue
        if row["kind"] == "function":
            wanted = f"{wanted} (*)({row['parameter_types']})"
        field = f"__typeof__((({struct} *)0)->{name})"
        yield f"__builtin_types_compatible_p({field}, {wanted})", f"type of {struct}.{name}"


def other_checks():
    for row in rows("ort_sizes.tsv"):
        if row["struct"] not in OPAQUE:
            yield f"sizeof({row['struct']}) == {row['sizeof']}", f"size of {row['struct']}"
            yield f"_Alignof({row['struct']}) == {row['alignof']}", f"alignment of {row['struct']}"
    for row in rows("ort_enums.tsv"):
        if row["enum"] not in UNUSED_ENUMS:
            yield f"(int)({row['name']}) == {int(row['value'])}", f"value of {row['name']}"


def compile_checks(checks, args):
    lines = ["#include <stddef.h>", '#include "ep/abi/ort.h"']
    lines += [f'_Static_assert({test}, "{what}");' for test, what in checks]
    command = [args.cc, "-std=c11", "-fsyntax-only", "-x", "c", f"-I{args.include}", "-"]
    if args.official:
        command[1:1] = ["-DMILLPOND_ORT_OFFICIAL_HEADERS=1", "-isystem", args.official]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cc", default="cc", help="C compiler")
    parser.add_argument("--include", default=str(DATA.parents[1] / "src"), help="folder that holds ep/abi/ort.h")
    parser.add_argument("--official", help="folder of onnxruntime_c_api.h; checks that header instead")
    args = parser.parse_args()
    checks = [*member_checks(), *other_checks()]
    code, text = compile_checks(checks, args)
    if code != 0:
        sys.exit(f"{text}ort_abi_check: the header does not match the tables (see above)")
    control, _ = compile_checks([("offsetof(OrtApi, GetErrorCode) == 16", "control")], args)
    if control == 0:
        sys.exit("ort_abi_check: the compiler accepted a wrong offset, so this check proves nothing")
    print(f"ort_abi_check: {len(checks)} offsets, types, sizes and values agree ({args.cc})")


if __name__ == "__main__":
    main()
