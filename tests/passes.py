# SPDX-License-Identifier: Apache-2.0
"""The names of the passes, in the order they run."""

import re
from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "src/graph/pass_list.def"
NAMES = re.findall(r"^MP_PASS\((\w+)\)", LIST.read_text(encoding="utf-8"), re.M)
