# SPDX-License-Identifier: Apache-2.0
"""Where files of the tree are in the site of the documents, and links of the documents that are led there."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OF_ROOT = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md",
           "SECURITY.md": "security.md", "LICENSE": "license.md"}
HEADER = "include/millpond/millpond.h"
C_PAGE = "api/c.md"
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
COMMENT = re.compile(r"^ *<!--.*?-->\n|<!--.*?-->", re.MULTILINE | re.DOTALL)


def place_of(path):
    """The page of a file, both as paths: of the tree, of the site before it is built; None where there is none."""
    if path in OF_ROOT:
        return OF_ROOT[path]
    if path == HEADER:
        return C_PAGE
    if path.startswith("examples/"):
        return f"{path}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def led(text, origin, replaced):
    """A document without its comments, and with replaced(match, path of the tree) in place of each link that leads to a
    file; code is left as it is."""
    def each(found):
        if not found["path"] or re.match(r"\w+:", found["path"]):
            return found[0]
        return replaced(found, posixpath.normpath(posixpath.join(posixpath.dirname(origin), found["path"])))

    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(each, COMMENT.sub("", part)) for part in parts[::2]]
    return "".join(parts)


def title_of(path):
    """The first heading of a document."""
    return re.search(r"^# (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)[1]
