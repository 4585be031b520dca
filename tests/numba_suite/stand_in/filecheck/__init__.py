# SPDX-License-Identifier: Apache-2.0
"""Stands in for the package filecheck where it is not installed: Numba's tests can be imported, and those that use it
are skipped."""
