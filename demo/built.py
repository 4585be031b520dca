# SPDX-License-Identifier: Apache-2.0
"""The provider's library, as builds of this checkout left it."""

from pathlib import Path

LIBRARY = "libonnxruntime_providers_cuda_plugin.so"
ROOT = Path(__file__).resolve().parent.parent
SANITIZED = ("asan", "tsan", "clang-tsan")  # presets whose libraries load only where a sanitizer's runtime came first


def newest():
    """Its path in the newest build under build/, or None."""
    found = [path for path in ROOT.glob(f"build/*/lib/{LIBRARY}") if path.parts[-3] not in SANITIZED]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)
