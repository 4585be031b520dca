/* call.c - see call.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/call.h"

#include "base/shortage.h"
#include "ep/abi/bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mp_status mp__call_open(mp_call *c, int in_count, int out_count) {
    const size_t in = (size_t)in_count;
    const size_t out = (size_t)out_count;
    c->in = c->few_in;
    c->in_addr = c->few_in_addr;
    c->out_addr = c->few_out_addr;
    c->many = NULL;
    memset(c->few_in_addr, 0, sizeof c->few_in_addr);
    memset(c->few_out_addr, 0, sizeof c->few_out_addr);
    if (in <= MP_CALL_FEW && out <= MP_CALL_FEW) {
        return MP_OK;
    }
    c->many = calloc(1, in * sizeof(mp_tensor) + (in + out) * sizeof(mp_addr));
    if (c->many == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a call with %zu inputs", in);
    }
    c->in = c->many;
    c->in_addr = (mp_addr *)(void *)(c->in + in);
    c->out_addr = c->in_addr + in;
    return MP_OK;
}

void mp__call_close(const mp_call *c) {
    free(c->many);
}

static const char *port_text(mp_port port, char *text, size_t size) {
    if (port.name != NULL) {
        (void)snprintf(text, size, "%s '%s'", port.side, port.name);
    } else {
        (void)snprintf(text, size, "%s %d", port.side, port.number);
    }
    return text;
}

/* What an allocator said of the memory that it lacks is lost on the way through ONNX Runtime, but
 * this thread has kept it. */
mp_status mp__call_check_memory(const mp_tensor *tensor, const void *data, mp_port port) {
    if (data != NULL || mp_shape_count(&tensor->shape) == 0) {
        return MP_OK;
    }
    char name[256];
    char text[MP_SHAPE_TEXT];
    const char *why = mp_shortage_here();
    return MP_FAIL(OUT_OF_MEMORY,
                   "no memory could be allocated for %s, a %s tensor of shape %s%s%s",
                   port_text(port, name, sizeof name), mp_dtype_name(tensor->type),
                   mp_shape_text(&tensor->shape, text), why[0] != '\0' ? ": " : "", why);
}

static mp_status set_shape(mp_tensor *tensor, ONNXTensorElementDataType type, const int64_t *dims,
                           size_t rank, mp_port port) {
    char name[256];
    if (rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "%s has rank %zu; ranks up to %d are supported",
                       port_text(port, name, sizeof name), rank, MP_RANK_MAX);
    }
    tensor->type = (mp_dtype)type;
    tensor->data = 0;
    tensor->pitch = 0;
    tensor->is_there = false;
    tensor->shape.rank = (int32_t)rank;
    for (size_t d = 0; d < rank; d++) {
        tensor->shape.dim[d] = dims[d];
    }
    return MP_OK;
}

mp_status mp__call_read(const OrtValue *value, mp_port port, mp_tensor *tensor, mp_addr *addr) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const int64_t *dims = NULL;
    size_t rank = 0;
    const void *data = NULL;
    MP_TRY(
        mp__from_ort(ORT->GetTensorElementTypeAndShapeDataReference(value, &type, &dims, &rank)));
    MP_TRY(set_shape(tensor, type, dims, rank, port));
    MP_TRY(mp__from_ort(ORT->GetTensorData(value, &data)));
    MP_TRY(mp__call_check_memory(tensor, data, port));
    *addr = (mp_addr)data;
    return MP_OK;
}

bool mp__all_aligned(const mp_addr *addresses, int count) {
    mp_addr low_bits = 0;
    for (int i = 0; i < count; i++) {
        low_bits |= addresses[i];
    }
    return low_bits % MP_CALL_ALIGNED == 0;
}
