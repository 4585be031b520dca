# SPDX-License-Identifier: Apache-2.0
"""Reads PNG files and resamples pictures, with numpy alone. A picture is uint8 or float32 [height, width, 3], RGB."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, PALETTE, GREY_ALPHA = 0, 3, 4
CHANNELS = {GREY: 1, 2: 3, PALETTE: 1, GREY_ALPHA: 2, 6: 4}


def chunks(data):
    at = len(SIGNATURE)
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        yield kind, data[at + 8 : at + 8 + size]
        at += size + 12


def paeth(left, above, corner):
    guess = left + above - corner
    distance = abs(guess - left), abs(guess - above), abs(guess - corner)
    return (left, above, corner)[distance.index(min(distance))]


def unfiltered_row(kind, row, above, channels):
    """Undoes one row's prediction; `row` and `above` are int32 of the same length."""
    if kind == 0:
        return row
    if kind == 1:
        return (np.cumsum(row.reshape(-1, channels), axis=0) & 255).reshape(-1)
    if kind == 2:
        return (row + above) & 255
    values, upper = row.tolist(), above.tolist()
    for i, value in enumerate(values):
        left = values[i - channels] if i >= channels else 0
        corner = upper[i - channels] if i >= channels else 0
        guess = (left + upper[i]) // 2 if kind == 3 else paeth(left, upper[i], corner)
        values[i] = (value + guess) & 255
    return np.array(values, np.int32)


def read_png(path):
    """An 8-bit PNG file without interlacing as uint8 [height, width, 3]."""
    with open(path, "rb") as f:
        data = f.read()
    if not data.startswith(SIGNATURE):
        raise ValueError(f"{path} is not a PNG file")
    try:
        return decoded_png(data)
    except (zlib.error, struct.error, KeyError, IndexError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def decoded_png(data):
    parts = {}
    for kind, body in chunks(data):
        parts[kind] = parts.get(kind, b"") + body
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    if depth != 8 or interlaced:
        form = f"{depth} bits a channel{' and interlacing' if interlaced else ''}"
        raise ValueError(f"a PNG file with {form} cannot be read; save it with 8 bits and without interlacing")
    channels = CHANNELS[kind]
    raw = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width * channels + 1)
    rows = np.zeros((height, width * channels), np.int32)
    above = np.zeros(width * channels, np.int32)
    for y in range(height):
        above = rows[y] = unfiltered_row(raw[y, 0], raw[y, 1:].astype(np.int32), above, channels)
    picture = rows.astype(np.uint8).reshape(height, width, channels)
    if kind == PALETTE:
        return np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)[picture[..., 0]]
    if kind in (GREY, GREY_ALPHA):
        return np.repeat(picture[..., :1], 3, axis=2)
    return picture[..., :3]


def sample(picture, y, x):
    """Bilinear values at the points (y, x), clamped to the edges; float32, shape of y plus the channels."""
    height, width = picture.shape[:2]
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    low, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, across = (y - top)[..., None].astype(np.float32), (x - left)[..., None].astype(np.float32)
    picture = picture.astype(np.float32)
    upper = picture[top, left] * (1 - across) + picture[top, right] * across
    lower = picture[low, left] * (1 - across) + picture[low, right] * across
    return upper * (1 - down) + lower * down


def resize(picture, height, width):
    y = (np.arange(height) + 0.5) * picture.shape[0] / height - 0.5
    x = (np.arange(width) + 0.5) * picture.shape[1] / width - 0.5
    return sample(picture, *np.broadcast_arrays(y[:, None], x[None, :]))


def network_input(picture, mean=127.5, scale=127.5):
    """[1, 3, height, width], blue first, around zero: what the text models take."""
    values = (np.asarray(picture, np.float32)[..., ::-1] - np.float32(mean)) / np.float32(scale)
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])
