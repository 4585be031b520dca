# SPDX-License-Identifier: Apache-2.0
"""From a picture to lines of text around two models: a detector of text pixels and a reader of line crops.

The detector gives a probability map; its connected parts become slanted boxes, a little larger than the part because
the model is trained to mark a shrunken text area. The reader gives for each column a distribution over characters,
from which repeated characters and blanks are dropped (CTC).
"""

import math

import numpy as np
from picture import network_input, resize, sample

SIDE_STEP = 32  # the detector halves its input five times
SIDE_MIN, SIDE_MAX = 640, 1600
TEXT_PIXEL, TEXT_PART = 0.3, 0.5  # least probability of a pixel, and mean over a part
GROWTH = 1.6  # how far a box grows, as a share of area / perimeter
PART_MIN = 12  # pixels
LINE_HEIGHT, LINE_WIDTH_MIN = 48, 48


def detector_input(picture):
    """The picture at a size the detector likes: sides in steps of 32, the longer one within bounds."""
    longer = max(picture.shape[:2])
    scale = min(max(longer, SIDE_MIN), SIDE_MAX) / longer
    height, width = (max(SIDE_STEP, round(side * scale / SIDE_STEP) * SIDE_STEP) for side in picture.shape[:2])
    return network_input(resize(picture, height, width))


def row_runs(mask):
    """Horizontal runs of set pixels as (row, start, end)."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    return list(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True))


def connected_parts(mask):
    """Pixel coordinates (y, x) of each 8-connected part, by joining the runs of neighbouring rows."""
    runs = row_runs(mask)
    parent = list(range(len(runs)))

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first = 0
    for i, (row, start, end) in enumerate(runs):
        while runs[first][0] < row - 1:
            first += 1
        for j in range(first, i):
            above, left, right = runs[j]
            if above == row - 1 and left <= end and right >= start:
                parent[root(i)] = root(j)
    parts = {}
    for i, (row, start, end) in enumerate(runs):
        parts.setdefault(root(i), []).append((row, start, end))
    for pieces in parts.values():
        y = np.concatenate([np.full(end - start, row) for row, start, end in pieces])
        x = np.concatenate([np.arange(start, end) for _, start, end in pieces])
        yield y, x


class Box:
    """A slanted rectangle: centre, unit vector along the text, half length and half height, in picture pixels."""

    def __init__(self, y, x, scale_y, scale_x):
        y, x = (y + 0.5) * scale_y, (x + 0.5) * scale_x
        slope = np.polyfit(x, y, 1)[0] if np.ptp(x) > 2 * np.ptp(y) else 0.0
        angle = math.atan(slope)
        self.along = np.array([math.sin(angle), math.cos(angle)])
        across = np.array([self.along[1], -self.along[0]])
        points = np.stack([y, x], axis=1)
        u, v = points @ self.along, points @ across
        length, height = np.ptp(u) + scale_x, np.ptp(v) + scale_y
        grow = length * height * GROWTH / (2 * (length + height))
        self.centre = (u.max() + u.min()) / 2 * self.along + (v.max() + v.min()) / 2 * across
        self.across, self.half_length, self.half_height = across, length / 2 + grow, height / 2 + grow

    def crop(self, picture):
        """The box's content as an upright line, LINE_HEIGHT pixels high."""
        width = max(LINE_WIDTH_MIN, round(LINE_HEIGHT * self.half_length / self.half_height))
        u = ((np.arange(width) + 0.5) / width * 2 - 1) * self.half_length
        v = ((np.arange(LINE_HEIGHT) + 0.5) / LINE_HEIGHT * 2 - 1) * self.half_height
        points = self.centre + v[:, None, None] * self.across + u[None, :, None] * self.along
        return sample(picture, points[..., 0] - 0.5, points[..., 1] - 0.5)


def boxes(probability, shape):
    """Boxes of text in a picture of `shape`, from the detector's map [height, width], in reading order."""
    scale_y, scale_x = shape[0] / probability.shape[0], shape[1] / probability.shape[1]
    found = []
    for y, x in connected_parts(probability > TEXT_PIXEL):
        if len(y) >= PART_MIN and probability[y, x].mean() >= TEXT_PART:
            found.append(Box(y, x, scale_y, scale_x))
    return reading_order(found)


def reading_order(found):
    """Rows from the top, each from the left; a box belongs to a row whose first box it overlaps by half its height."""
    rows = []
    for box in sorted(found, key=lambda box: box.centre[0]):
        if rows and box.centre[0] - rows[-1][0].centre[0] < rows[-1][0].half_height / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda box: box.centre[1])]


def characters(session):
    """The reader's alphabet, which travels in the model's metadata; index 0 is the blank."""
    listed = session.get_modelmeta().custom_metadata_map.get("character")
    if not listed:
        raise ValueError("the recognition model carries no list of characters in its metadata")
    return ["", *listed.split("\n"), " "]


def decoded(scores, alphabet):
    """Text and mean confidence of one line from scores [columns, characters]."""
    best = scores.argmax(axis=-1)
    kept = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
    text = "".join(alphabet[i] for i in best[kept])
    return text, float(scores.max(axis=-1)[kept].mean()) if kept.any() else 0.0
