# SPDX-License-Identifier: Apache-2.0
"""tools/test_genai.py runs these tests with an onnxruntime-genai of their own; without one there is none of them."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

collect_ignore_glob = [] if importlib.util.find_spec("onnxruntime_genai") else ["test_*.py"]
sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))  # core_kit: streams of the device
