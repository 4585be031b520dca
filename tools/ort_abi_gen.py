#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/ep/ort_abi_{types,api,ep}.h from the tables in tests/data.

The tables hold facts about ONNX Runtime's C ABI: for each struct its members, their order, offset and types.
The headers are committed, so a build needs neither this script nor ONNX Runtime's own headers.

    ort_abi_gen.py            rewrite the headers (clang-format must be on the path)
    ort_abi_gen.py --check    fail if a committed header differs from what the tables say
"""

import argparse
import csv
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
TARGET = ROOT / "src" / "ep"
API_VERSION = 29

# Tables that ONNX Runtime fills and an EP calls, in the order they are declared.
API_STRUCTS = {
    "OrtApiBase": "What CreateEpFactories gets: the way to every other table.",
    "OrtEpApi": "What an EP asks of ONNX Runtime: devices, kernel registries, schemas, profiling events.",
    "OrtModelEditorApi": "Builds graphs node by node.",
    "OrtCompileApi": "Ahead-of-time compilation of a model.",
    "OrtInteropApi": "Memory and semaphores of other graphics APIs, seen from the application.",
    "OrtEnvCreationOptions": "Settings of an environment.",
    "OrtThreadPoolCallbacksConfig": "Hooks around the work of a session's thread pool.",
    "OrtCustomOp": "A custom operator; an EP may bring domains of them.",
    "OrtApi": "The main table. A slot newer than the version asked of GetApi must not be read.",
}
# Tables and records that an EP fills; ort_version_supported says how far ONNX Runtime may read.
EP_STRUCTS = {
    "OrtAllocator": "Memory of one device. `version` plays the part of ort_version_supported.",
    "OrtDataTransferImpl": "Copies between this EP's memory and the host's, or within it.",
    "OrtSyncNotificationImpl": "An event on a stream.",
    "OrtSyncStreamImpl": "A queue of work on one device.",
    "OrtNodeFusionOptions": "How ONNX Runtime fuses a claimed group of nodes.",
    "OrtNodeComputeInfo": "A fused group of nodes, ready to run.",
    "OrtKernelImpl": "One node's kernel.",
    "OrtLoopKernelHelper": "What ONNX Runtime's own Loop needs of a device.",
    "OrtScanKernelHelper": "What ONNX Runtime's own Scan needs of a device.",
    "OrtEpProfilerImpl": "Adds the device's events to ONNX Runtime's profile.",
    "OrtExternalMemoryDescriptor": "Memory made by another API.",
    "OrtExternalSemaphoreDescriptor": "A semaphore made by another API.",
    "OrtExternalTensorDescriptor": "A tensor inside imported memory.",
    "OrtGraphicsInteropConfig": "The command queue that a device shares with a graphics API.",
    "OrtExternalMemoryHandle": "Imported memory; the EP embeds this record in its own.",
    "OrtExternalSemaphoreHandle": "An imported semaphore; the EP embeds this record in its own.",
    "OrtExternalResourceImporterImpl": "Imports memory and semaphores for one device.",
    "OrtResourceCount": "An amount of a resource; `kind` says which member of the union holds it.",
    "OrtEp": "One EP object, made for one session.",
    "OrtEpFactory": "Makes EPs, allocators, streams and transfers for its devices.",
}
# Enums that no declared member uses by type, but that name the values of its integers.
VALUE_ENUMS = {"OrtResourceCountKind", "OrtDeviceEpIncompatibilityReason"}

CALLBACKS = """
/* Signatures of functions that are handed over by pointer. */
typedef void (*OrtLoggingFunction)(void *param, OrtLoggingLevel severity, const char *category,
                                   const char *log_id, const char *code_location,
                                   const char *message);
typedef void (*RunAsyncCallbackFn)(void *user_data, OrtValue **outputs, size_t num_outputs,
                                   OrtStatusPtr status);
typedef void (*OrtThreadWorkerFn)(void *worker_param);
typedef const OrtCustomHandleType *OrtCustomThreadHandle;
typedef OrtCustomThreadHandle (*OrtCustomCreateThreadFn)(void *options, OrtThreadWorkerFn worker,
                                                         void *worker_param);
typedef void (*OrtCustomJoinThreadFn)(OrtCustomThreadHandle handle);
typedef OrtStatus *(*OrtWriteBufferFunc)(void *state, const void *buffer, size_t size);
typedef OrtStatus *(*OrtGetInitializerLocationFunc)(void *state, const char *name,
                                                    const OrtValue *value,
                                                    const OrtExternalInitializerInfo *where,
                                                    OrtExternalInitializerInfo **new_where);
typedef OrtStatus *(*EpSelectionDelegate)(const OrtEpDevice **devices, size_t num_devices,
                                          const OrtKeyValuePairs *model_metadata,
                                          const OrtKeyValuePairs *runtime_metadata,
                                          const OrtEpDevice **selected, size_t max_selected,
                                          size_t *num_selected, void *state);
typedef void (*OrtExperimentalFnPtr)(void);
typedef OrtStatus *(*OrtKernelCreateFunc)(void *state, const OrtKernelInfo *info,
                                          OrtKernelImpl **kernel);
"""
CALLBACK_NAMES = set(re.findall(r"\(\*(\w+)\)\(", CALLBACKS)) | {"OrtCustomThreadHandle", "OrtStatusPtr"}

ENTRY_POINTS = """
/* The two functions that a plugin library exports. */
typedef OrtStatus *(*CreateEpApiFactoriesFn)(const char *registered_name,
                                             const OrtApiBase *api_base,
                                             const OrtLogger *default_logger,
                                             OrtEpFactory **factories, size_t max_factories,
                                             size_t *num_factories);
typedef OrtStatus *(*ReleaseEpApiFactoryFn)(OrtEpFactory *factory);
"""


def rows(name):
    with open(DATA / name, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def plain(text):
    """Every struct and enum has a typedef of its name, so the keywords only get in the way."""
    return re.sub(r"\b(struct|enum) (?=Ort|ONNX)", "", text)


def member(row):
    result = plain(row["return_type"])
    star = "" if result.endswith("*") else " "
    if row["kind"] == "function":
        return f"    {result}{star}(*{row['name']})({plain(row['parameter_types'])});"
    union = re.fullmatch(r"union \{ (\w+) (\w+) @0; (\w+)\[(\d+)\] (\w+) @0 \} size \d+", result)
    if union:
        first_type, first, second_type, count, second = union.groups()
        both = f"{first_type} {first}; {second_type} {second}[{count}];"
        return f"    union {{ {both} }} {row['name']};"
    return f"    {result}{star}{row['name']};"


def newer(since, than):
    return tuple(map(int, since.split("."))) > tuple(map(int, than.split(".")))


def struct_text(name, note, members):
    out, current = [f"/* {note} */", f"struct {name} {{"], "1.0"
    for row in members:
        if row["since_version"] and newer(row["since_version"], current):
            current = row["since_version"]
            out.append(f"    /* since {current} */")
        out.append(member(row))
    return "\n".join([*out, "};", ""])


def enum_text(name, values):
    pairs = ((v["name"], int(v["value"])) for v in values)
    body = "\n".join(f"    {n} = {v if v > -(2**31) else '(-2147483647 - 1)'}," for n, v in pairs)
    return f"typedef enum {name} {{\n{body}\n}} {name};\n"


def header(name, purpose, includes, body):
    guard = "MP_EP_" + name.upper().replace(".", "_")
    source = "Written by tools/ort_abi_gen.py from tests/data/ort_abi.tsv; change those, not this file."
    top = f"/* {name} - {purpose}\n *\n * {source}\n * SPDX-License-Identifier: Apache-2.0 */\n"
    lines = "".join(f"#include {i}\n" for i in includes)
    return f"{top}#ifndef {guard}\n#define {guard}\n\n{lines}\n{body}\n#endif\n"


def formatted(text):
    done = subprocess.run(
        ["clang-format", "--style=file", f"--assume-filename={TARGET}/ort_abi.h"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def build():
    structs = {}
    for row in rows("ort_abi.tsv"):
        structs.setdefault(row["struct"], []).append(row)
    enums = {}
    for row in rows("ort_enums.tsv"):
        enums.setdefault(row["enum"], []).append(row)
    declared = {**API_STRUCTS, **EP_STRUCTS}
    words = set(re.findall(r"\w+", CALLBACKS + ENTRY_POINTS))
    for name in declared:
        for row in structs[name]:
            words |= set(re.findall(r"\w+", f"{row['return_type']} {row['parameter_types']}"))
    used_enums = [e for e in enums if e in words or e in VALUE_ENUMS]
    used_words = {w for w in words if w.startswith("Ort")} - set(enums) - CALLBACK_NAMES
    used_words -= {"OrtStatus", *re.findall(r"\(\*(\w+)\)\(", ENTRY_POINTS)}
    names = sorted(used_words | set(declared))
    types = f"#define ORT_API_VERSION {API_VERSION}\n\n"
    types += "".join(enum_text(e, enums[e]) + "\n" for e in used_enums)
    types += "/* Records behind pointers: handles, and the structs of the other two headers. */\n"
    types += "typedef struct OrtStatus OrtStatus;\ntypedef OrtStatus *OrtStatusPtr;\n"
    types += "".join(f"typedef struct {n} {n};\n" for n in names) + CALLBACKS
    api = "\n".join(struct_text(n, note, structs[n]) for n, note in API_STRUCTS.items())
    ep = "\n".join(struct_text(n, note, structs[n]) for n, note in EP_STRUCTS.items()) + ENTRY_POINTS
    own = ['"ep/abi/ort_abi_types.h"']
    system = ["<stdbool.h>", "<stddef.h>", "<stdint.h>"]
    parts = {
        "ort_abi_types.h": (
            "handles, enums and callback types of ONNX Runtime's C ABI.\n *\n"
            " * Only what the tables in ort_abi_api.h and ort_abi_ep.h mention is here.",
            system,
            types,
        ),
        "ort_abi_api.h": (
            "the tables of functions that ONNX Runtime offers.\n *\n"
            " * Tables only ever grow at their end, so a slot's place is its identity: no member may be\n"
            " * left out, reordered or retyped.",
            own,
            api,
        ),
        "ort_abi_ep.h": (
            "the tables of functions that an execution provider offers.\n *\n"
            " * Every table starts with the API version it was filled for; ONNX Runtime reads no slot that\n"
            ' * is newer, and treats NULL in an optional slot as "not offered".',
            own,
            ep,
        ),
    }
    return {name: header(name, *part) for name, part in parts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    stale = []
    for name, text in build().items():
        text = formatted(text)
        path = TARGET / name
        if args.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"{', '.join(stale)} differ from the tables: run tools/ort_abi_gen.py")


if __name__ == "__main__":
    main()
