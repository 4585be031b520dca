# SPDX-License-Identifier: Apache-2.0
"""tools/test_serving.py runs these tests with Ray, Dask and KServe of their own; what is missing is skipped."""

import os
import secrets
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = [str(HERE), str(HERE.parent / "python")]  # the latter for onnx_kit: models without the package onnx
sys.path[:0] = FOLDERS
os.environ.setdefault("MILLPOND_DEVICE", "host")
# Processes that Ray and Dask start import the kits, too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*FOLDERS, os.environ.get("PYTHONPATH")]))
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray writes one into the user's home
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers
