/* host_value.c - see host_value.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/host_value.h"

#include "op/core/kernel_batch.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 1 << 16, INPUTS_MAX = 64, ALIGNED = 16 };

typedef struct mp_host_page {
    struct mp_host_page *next;
    mp_addr addr;
    size_t size, used;
} page;

void mp_host_values_open(mp_host_values *values) {
    *values = (mp_host_values){.most = MP_HOST_VALUE_BYTES};
}

static mp_status start(mp_host_values *values) {
    if (values->host == NULL) {
        MP_TRY(mp_device_get(MP_DEVICE_HOST, 0, &values->host));
    }
    return values->stream != NULL ? MP_OK
                                  : values->host->ops->stream_create(values->host, &values->stream);
}

void mp_host_values_rest(mp_host_values *values) {
    if (values->stream != NULL) {
        values->host->ops->stream_destroy(values->host, values->stream);
        values->stream = NULL;
    }
}

void mp_host_values_close(mp_host_values *values) {
    if (values->stream != NULL) { /* where a node failed, work for it may be queued */
        (void)values->host->ops->stream_synchronize(values->host, values->stream);
    }
    while (values->pages != NULL) {
        page *next = values->pages->next;
        values->host->ops->free(values->host, values->pages->addr, values->pages->size);
        free(values->pages);
        values->pages = next;
    }
    mp_host_values_rest(values);
    mp_host_values_open(values);
}

static mp_status add_page(mp_host_values *values, size_t size) {
    page *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph");
    }
    fresh->size = MP_MAX(size, PAGE_BYTES);
    const mp_status status = values->host->ops->alloc(values->host, fresh->size, &fresh->addr);
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    fresh->next = values->pages;
    values->pages = fresh;
    return MP_OK;
}

static mp_status room(mp_host_values *values, size_t size, mp_addr *out) {
    size = MP_ALIGN_UP(size, ALIGNED);
    const page *top = values->pages;
    if (top == NULL || top->size - top->used < size) {
        MP_TRY(add_page(values, size));
    }
    *out = values->pages->addr + values->pages->used;
    values->pages->used += size;
    return MP_OK;
}

bool mp_host_value_is_known(const mp_node *node, const mp_tensor *in, int in_count) {
    if (node->op->plan == NULL || node->op->draws || node->op->finish != NULL ||
        in_count > INPUTS_MAX) {
        return false;
    }
    if (node->op->host_out != 0) {
        return true;
    }
    for (int i = 0; i < in_count; i++) {
        if (in[i].type != MP_NONE && in[i].data == 0) {
            return false;
        }
    }
    return true;
}

/* The node's inputs on the host device, where kernels may read them. */
static mp_status bring(mp_host_values *values, const mp_tensor *in, int in_count, mp_tensor *there,
                       mp_addr *addr) {
    for (int i = 0; i < in_count; i++) {
        size_t bytes = 0;
        there[i] = in[i];
        addr[i] = 0;
        if (in[i].type == MP_NONE || in[i].data == 0) {
            continue;
        }
        MP_TRY(mp_shape_bytes(&in[i].shape, in[i].type, &bytes));
        MP_TRY(room(values, bytes + 1, &addr[i]));
        memcpy((void *)addr[i], (const void *)in[i].data, bytes);
        there[i].data = addr[i];
    }
    return MP_OK;
}

static mp_status make_room(mp_host_values *values, const mp_plan *plan, mp_tensor *out,
                           int out_count, mp_addr *addr, bool *small) {
    *small = mp_plan_scratch_bytes(plan) <= PAGE_BYTES;
    for (int i = 0; i < out_count && *small; i++) {
        size_t bytes = 0;
        out[i] = *mp_plan_output_at(plan, i);
        MP_TRY(mp_shape_bytes(&out[i].shape, out[i].type, &bytes));
        *small = bytes <= values->most;
        if (*small) {
            MP_TRY(room(values, bytes + 1, &addr[i]));
            out[i].data = addr[i];
        }
    }
    return MP_OK;
}

mp_status mp_host_value_compute(mp_host_values *values, const mp_node *node, const mp_tensor *in,
                                int in_count, mp_tensor *out, int out_count, bool *done) {
    mp_tensor there[INPUTS_MAX];
    mp_addr in_addr[INPUTS_MAX];
    mp_addr out_addr[INPUTS_MAX] = {0};
    mp_addr scratch = 0;
    mp_plan *plan = NULL;
    *done = false;
    if (out_count > INPUTS_MAX) {
        return MP_OK;
    }
    MP_TRY(start(values));
    MP_TRY(bring(values, in, in_count, there, in_addr));
    MP_TRY(mp_plan_make(values->host, node, there, in_count, out_count, ALIGNED, &plan));
    mp_status status = make_room(values, plan, out, out_count, out_addr, done);
    if (status == MP_OK && *done) {
        status = room(values, mp_plan_scratch_bytes(plan) + 1, &scratch);
    }
    if (status == MP_OK && *done) {
        status = mp_kernel_batch_settle(values->host); /* which may be the device of a program */
    }
    if (status == MP_OK && *done) {
        status = mp_plan_run(plan, values->stream, in_addr, out_addr, scratch);
    }
    if (status == MP_OK && *done) {
        status = values->host->ops->stream_synchronize(values->host, values->stream);
    }
    mp_plan_release(plan);
    return status;
}
