# SPDX-License-Identifier: Apache-2.0
"""What the code blocks of a page take for granted: values that a reader's program has by then."""

ARRAYS = """
import logging
import types

import millpond
import millpond.onnxruntime
import numpy as np
import onnxruntime
import onnxruntime as ort

x = np.zeros((64, 1000), np.float32)
cupy = types.SimpleNamespace(empty=lambda shape, dtype: millpond.Pool().alloc(int(np.prod(shape))))  # needs a GPU
"""

PYTHON = {
    "README.md": ARRAYS,
    "docs/graphs.md": ARRAYS + "first_input, next_input, shape = x, x + 1, x.shape\n",
    "docs/i_have_a_model.md": "import numpy as np\nx = np.zeros((64, 1000), np.float32)\n",
    "docs/memory.md": ARRAYS + 'session, inputs = millpond.onnxruntime.session("model.onnx"), {"x": x}\n',
    "docs/profiling.md": ARRAYS + 'feed = {"x": x}\n',
    "docs/python.md": ARRAYS + "model, batch = abs, 1\n",
}

C = r"""
#include <millpond/millpond.h>
#include <stdio.h>
typedef struct mp_device mp_device;
mp_status mp_device_get(int kind, int ordinal, mp_device **out); /* inside libmillpond, as its own tests call it */
mp_status mp__host_stream_create(mp_device *device, void **out);
static void work(void) {}
"""
C_BEGIN = r"""
int main(void) {
    mp_pool *pool;
    mp_device *device;
    void *first, *second;
    if (mp_pool_open("host", MP_MEMORY_DEVICE, "reader", NULL, &pool) != MP_OK ||
        mp_device_get(0, 0, &device) != MP_OK || mp__host_stream_create(device, &first) != MP_OK ||
        mp__host_stream_create(device, &second) != MP_OK) {
        return 1;
    }
"""
C_END = r"""
    (void)work, (void)first, (void)second;
    mp_pool_stats stats;
    if (mp_pool_get_stats(pool, &stats, sizeof stats) != MP_OK || stats.in_use != 0 || stats.failures != 0) {
        return 2;
    }
    mp_pool_close(pool);
    return *mp_error_message() != 0;
}
"""

SERVER = """
import time
import millpond, millpond.onnxruntime
block = millpond.Pool(client="feature store").alloc(24 << 20)
time.sleep(60)
"""
