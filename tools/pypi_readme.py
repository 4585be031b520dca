# SPDX-License-Identifier: Apache-2.0
"""README.md as PyPI shows it, where there is no tree around it: a provider of scikit-build-core.

Links to files become links to the site that [project.urls] of pyproject.toml names as Documentation. Where it names
none, their text stays, and pictures go.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import site_places  # noqa: E402  (beside this file)


def written(text, site):
    """README.md's text for PyPI; `site`: where the site of the documents is, None for nowhere."""
    def replaced(found, path):
        place = site_places.place_of(path)
        if site is None or place is None:
            return "" if found["picture"] else found["text"]
        page = re.sub(r"\.md$", ".html", place)
        return f"{found['picture']}[{found['text']}]({site.rstrip('/')}/{page}{found['anchor'] or ''})"

    return re.sub(r"\n{3,}", "\n\n", site_places.led(text, "README.md", replaced))


def dynamic_metadata(settings, project):
    """What scikit-build-core asks for, in the source tree's folder."""
    if settings:
        raise ValueError(f"this provider takes no settings, and was given {settings}")
    site = project.get("urls", {}).get("Documentation")
    text = written(Path("README.md").read_text(encoding="utf-8"), site)
    return {"readme": {"content-type": "text/markdown", "text": text}}
