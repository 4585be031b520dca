# SPDX-License-Identifier: Apache-2.0
"""What tasks of the tests do; apart from the tests, since Dask's workers import it."""

import asyncio
import functools
import os

import millpond
import serving_kit

MIB = 1 << 20


def fill(byte, size):
    block = millpond.Pool(client="task").alloc(size)
    block.copy_from_host(bytes([byte]) * size)
    return block


def total(block):
    return sum(block.copy_to_host())


def total_of_all(blocks):
    return sum(map(total, blocks))


@functools.cache
def session():
    import millpond.onnxruntime as mort

    return mort.session(serving_kit.affine(2))


def scale(x):
    import millpond.onnxruntime as mort

    return mort.run(session(), {"x": x})["y"]


def figures(dask_worker):
    plugin = dask_worker.plugins["millpond"]
    pool = millpond.Pool()
    task = [share["in_use"] for share in pool.clients() if share["name"] in ("task", "dask")]
    return plugin.figures() | {"limit": millpond.get_limit(), "in_use": sum(task)}


async def make_room(key, dask_worker):
    """Moves one to the host, once Dask has let go of what it last did with it."""
    for _ in range(200):
        dask_worker.data.make_room(1 << 40)
        if key in dask_worker.data and key not in dask_worker.data.device_keys:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{key} is still on the device")


def plugins(dask_worker):
    return list(dask_worker.plugins)


def rows(dask_scheduler):
    from millpond import _dask_dashboard

    return _dask_dashboard.rows_of(dask_scheduler)


def page(dask_scheduler):
    """The workers and the bytes that the dashboard's page shows after it was brought up to date."""
    from bokeh.document import Document
    from millpond import _dask_dashboard

    doc = Document()
    _dask_dashboard.document(dask_scheduler, {}, doc)
    for callback in doc.session_callbacks:
        callback.callback()
    picture = doc.roots[0]
    return list(picture.y_range.factors), sum(picture.renderers[0].data_source.data["bytes"])


async def die():
    os._exit(9)
