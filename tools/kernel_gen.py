#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expands src/kernel/kernels.txt into what the build needs.

    kernel_gen.py --source-dir src --out DIR [--text-only | --sample N]

writes into DIR (only files whose content changed):
    instances/<name>.c   one translation unit an instance: its defines, then its .cu file; with --sample for one in N
                         of the instances of each kernel file, or for none
    instances.txt        the paths of those files, one a line
    kernel_table.c       mp__kernel_images[], sorted by name, and the text of every kernel file
"""

import argparse
import collections
import hashlib
import itertools
import pathlib
import re
import sys

SETS = {
    "FLOATS": ["f32", "f64", "f16", "bf16"],
    "SIGNED": ["i8", "i16", "i32", "i64"],
    "UNSIGNED": ["u8", "u16", "u32", "u64"],
    "RAW": ["b8", "b16", "b32", "b64", "b128"],
}
SETS["INTS"] = SETS["SIGNED"] + SETS["UNSIGNED"]
SETS["NUMBERS"] = SETS["FLOATS"] + SETS["INTS"]
SETS["ALL"] = SETS["NUMBERS"] + ["bool"]
WORDS = set(SETS["ALL"] + SETS["RAW"])

POINTWISE = re.compile(r"K_POINTWISE\((\w+), (\d), ([\w+]+), (T|bool), (.*)\)$")


def fail(message):
    sys.exit(f"kernel_gen.py: {message}")


def types(text, where):
    """The element types named by words and sets joined by +."""
    out = []
    for part in text.split("+"):
        for word in SETS.get(part, [part]):
            if word not in WORDS:
                fail(f"{where}: unknown element type '{word}'")
            if word not in out:
                out.append(word)
    return out


def pointwise_rows(folder, arity):
    """(word, type, expression, out_bool) for each row and type of pointwise.def."""
    path = folder / "pointwise/pointwise.def"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("K_POINTWISE"):
            continue
        row = POINTWISE.match(line)
        if row is None:
            fail(f"{path}:{number}: not of the form K_POINTWISE(word, arity, types, T|bool, expression)")
        word, n, names, result, expression = row.groups()
        if int(n) == arity:
            for name in types(names, f"{path}:{number}"):
                yield word, name, expression, int(result == "bool")


def combinations(folder, text, where):
    """Yields the key -> value mappings of one row."""
    keys = []
    for item in text.split():
        key, _, values = item.partition("=")
        if not values:
            fail(f"{where}: '{item}' is not key=values")
        if key == "pointwise":
            keys.append([{"word": w, "T0": t, "expression": e, "out_bool": b}
                         for w, t, e, b in pointwise_rows(folder, int(values))])
        else:
            list_of = types(values, where) if re.fullmatch(r"T\d", key) else values.split(",")
            keys.append([{key: value} for value in list_of])
    for choice in itertools.product(*keys):
        yield {k: v for part in choice for k, v in part.items()}


def instances(folder):
    """Yields (name, source, defines) of every instance."""
    seen = {}
    path = folder / "kernels.txt"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}:{number}"
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3:
            fail(f"{where}: expected 'source | name | keys'")
        source, pattern, keys = parts
        if not (folder / source).is_file():
            fail(f"{where}: no such kernel file: {source}")
        for values in combinations(folder, keys, where):
            name = pattern.format(**values)
            if name in seen:
                fail(f"{where}: instance {name} is already made by {seen[name]}")
            seen[name] = where
            defines = [f"K_NAME=mp_k_{name}"]
            defines += [f"K_{key.upper()}={value}" for key, value in values.items() if key != "word"]
            yield name, source, defines


def sampled(rows, one_in):
    """Of the instances of each kernel file the first, and from there one in so many; none of one in 0."""
    seen = collections.Counter()
    for row in rows if one_in else ():
        if seen[row[1]] % one_in == 0:
            yield row
        seen[row[1]] += 1


def write(path, text):
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def c_string(text):
    lines = text.replace("\\", "\\\\").replace('"', '\\"').split("\n")
    return "\n".join(f'    "{line}\\n"' for line in lines)


def text_files(folder):
    """Every file that a kernel may be or include."""
    return sorted(path for suffix in ("h", "def", "cu") for path in folder.rglob(f"*.{suffix}"))


def table(folder, rows):
    """kernel_table.c: texts, images, and where each instance's host entry is."""
    files = text_files(folder)
    out = ['/* kernel_table.c - generated by kernel_gen.py from kernels.txt; do not edit. */',
           '#include "kernel/kernel_table.h"', ""]
    for i, path in enumerate(files):
        # One literal a line, joined at run time by the compiler; C11 sets no practical limit.
        out.append(f"static const char text_{i}[] =\n{c_string(path.read_text())};")
    out.append("static const mp_source sources[] = {")
    out += [f'    {{"kernel/{path.relative_to(folder).as_posix()}", text_{i}}},' for i, path in enumerate(files)]
    out += ["    {NULL, NULL},", "};", ""]
    headers = [part for path in files if path.suffix != ".cu"
               for part in (path.relative_to(folder).as_posix(), path.read_text())]
    digest = hashlib.sha256("\0".join(headers).encode()).hexdigest()
    for name, _, defines in rows:
        out.append(f"void mp_k_{name}(const void *args);")
        items = "".join(f'"{d}", '.replace("\\", "\\\\") for d in defines)
        out.append(f"static const char *const defines_{name}[] = {{{items}NULL}};")
    out.append("")
    out.append("const mp_kernel_image mp__kernel_images[] = {")
    for name, source, defines in rows:
        rounds, beside = ("true" if f"{key}=1" in defines else "false" for key in ("K_ROUNDS", "K_BESIDE"))
        lanes = "true" if re.search(r"^K_BLOCK_KERNEL", (folder / source).read_text(), re.M) else "false"
        out.append(f'    {{.name = "mp_k_{name}", .source = "kernel/{source}", .defines = defines_{name}, '
                   f'.sources = sources, .headers = "{digest}", '
                   f".host = mp_k_{name}, .lanes = {lanes}, .waits = true, .rounds = {rounds}, "
                   f".beside = {beside}}},")
    out += ["};", f"const int mp__kernel_image_count = {len(rows)};", ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source-dir", required=True, type=pathlib.Path, help="the folder src")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--text-only", action="store_true", help="only refresh kernel_table.c")
    parser.add_argument("--sample", type=int, default=1, metavar="N",
                        help="files for one in N of the instances of each kernel file, 0: for none; the table has all")
    args = parser.parse_args()
    if args.sample < 0:
        fail(f"--sample {args.sample}: expected 0 or more")
    folder = args.source_dir / "kernel"
    rows = sorted(instances(folder))
    write(args.out / "kernel_table.c", table(folder, rows))
    if args.text_only:
        return
    wanted = set()
    for name, source, defines in sampled(rows, args.sample):
        lines = [f"/* {name} - generated by kernel_gen.py; do not edit. */"]
        lines += ["#define " + d.replace("=", " ", 1) for d in defines]
        lines += [f'#include "kernel/{source}"', ""]
        path = args.out / "instances" / f"{name}.c"
        write(path, "\n".join(lines))
        wanted.add(path)
    for path in (args.out / "instances").glob("*.c"):
        if path not in wanted:
            path.unlink()
    write(args.out / "instances.txt", "".join(f"{path}\n" for path in sorted(wanted)))


if __name__ == "__main__":
    main()
