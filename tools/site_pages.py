# SPDX-License-Identifier: Apache-2.0
"""What MkDocs makes the site of, beside docs/*.md: a hook that mkdocs.yml names.

README.md is the home page, and CHANGELOG.md and its like are pages; programs of examples/ are pages, too. References
are made of the public header, and by mkdocstrings of the Python package. Links of the documents lead to files of the
tree, as they do where the tree is looked at; here they are led to these pages.
"""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parent))
import header  # noqa: E402  (beside this file)
from site_places import C_PAGE, OF_ROOT, ROOT, led, place_of, title_of  # noqa: E402
from version import version  # noqa: E402

MODULES = ("millpond", "millpond.onnxruntime", "millpond.genai", "millpond.numba", "millpond.cupy", "millpond.torch",
           "millpond.rmm", "millpond.cuda_core", "millpond.monitor", "millpond.serving", "millpond.ray_serve",
           "millpond.dask", "millpond.prometheus")
LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp", ".yaml": "yaml", ".pbtxt": "text"}
DECLARED = re.compile(r"^#define (\w+)|^\} (\w+);|^typedef (?:struct )?[\w ]*?\b(\w+);|^typedef .*?\b(\w+)\(|"
                      r"^[\w ]+?[ *](mp_\w+)\(", re.MULTILINE)


def examples():
    return sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in LANGUAGES)


def example_name(path):
    return path.relative_to(ROOT / "examples").as_posix()


def module_page(name):
    return f"api/{name}.md"


# ---- pages ----


def example_page(path):
    return f"# {example_name(path)}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n"


def module_text(name):
    return f"---\ntitle: {name}\n---\n\n# `{name}`\n\n::: {name}\n"


def names_of(code):
    """What a piece of the header declares, without what another file of it does."""
    outer = re.sub(r"^ .*$", "", code, flags=re.MULTILINE)
    return [name for found in DECLARED.findall(outer) for name in found if name]


def cross_linked(text, known):
    """A contract with its functions as links; code is left alone."""
    def linked(found):
        return f"[`{found[0]}`](#{known[found[0]]})" if found[0] in known else f"`{found[0]}`"

    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"\bmp_\w+", linked, part) for part in parts[::2]]
    return "".join(parts)


def header_page():
    pieces = [(piece, names_of(piece["code"] or piece["alone"] or "")) for piece in header.pieces()]
    known = {name: names[0] for _, names in pieces for name in names}
    yield "# C: `millpond/millpond.h`"
    yield f"Of version {version()}. `man millpond.h` shows the same where Millpond is installed."
    for shown, block in header.introduction():
        yield f"```c\n{block}\n```" if shown else cross_linked(re.sub(r"\n +(?=\d\. )", "\n\n", block), known)
    yield "## The library"
    for piece, names in pieces:
        if piece["section"]:
            yield f"## {piece['section'][0].upper()}{piece['section'][1:]}"
            if piece["intro"]:
                yield cross_linked(header.comment_text(piece["intro"]), known)
            continue
        yield f"### {', '.join(f'`{name}`' for name in names)} {{#{names[0]}}}"
        yield f"```c\n{(piece['code'] or piece['alone']).strip()}\n```"
        if piece["comment"]:
            yield cross_linked(header.described(header.comment_text(piece["comment"])), known)
    yield "## Errors"
    yield "A function that can fail returns an `mp_status`; `mp_error_message()` gives the sentence that the last " \
          "failure of the thread left, `mp_status_name()` the name of a code."
    rows = [f"| `MP_{name}` | {value} | {meaning} |" for name, value, meaning in header.statuses()]
    yield "\n".join(["| code | value | meaning |", "| --- | ---: | --- |", *rows])


# ---- what MkDocs calls ----


def on_config(config):
    def filled(entry):
        if entry == {"Python": "PYTHON"}:
            return {"Python": [{name: module_page(name)} for name in MODULES]}
        if entry == {"Examples": "EXAMPLES"}:
            return {"Examples": [{example_name(path): f"examples/{example_name(path)}.md"} for path in examples()]}
        if isinstance(entry, dict):
            return {title: [filled(below) for below in what] if isinstance(what, list) else what
                    for title, what in entry.items()}
        return entry

    config.nav = [filled(entry) for entry in config.nav]
    return config


def on_files(files, config):
    made = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in OF_ROOT.items()}
    made["license.md"] = f"# Licence\n\n```text\n{made['license.md'].strip(chr(10))}\n```\n"
    made |= {f"examples/{example_name(path)}.md": example_page(path) for path in examples()}
    made |= {module_page(name): module_text(name) for name in MODULES}
    made[C_PAGE] = "\n\n".join(header_page()) + "\n"
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # of which the home page has none but itself
    origin = next((path for path, made in OF_ROOT.items() if made == uri), f"docs/{uri}")

    def replaced(found, path):
        place = place_of(path)
        if place is None or place not in files.src_uris:
            raise PluginError(f"{origin}: a link to {found['path']}, of which the site has no page")
        names_file = found["text"] in (path, found["path"], posixpath.basename(path)) and path.endswith(".md")
        text = found["text"]
        if names_file:  # a reader of the site sees titles, not files
            text = "the home page" if path == "README.md" else title_of(path)
        where = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"{found['picture']}[{text}]({where}{found['anchor'] or ''})"

    return markdown if uri.startswith(("api/", "examples/")) else led(markdown, origin, replaced)
