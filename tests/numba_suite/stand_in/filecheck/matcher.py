# SPDX-License-Identifier: Apache-2.0
"""Stands in for filecheck.matcher; see the package."""

import unittest


class Matcher:
    def __init__(self, *_, **__):
        raise unittest.SkipTest("the package filecheck is not installed")
