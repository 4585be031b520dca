/* stand_in_rig.c - see stand_in_rig.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/stand_in_rig.h"

#include "op/core/kernel_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static mp_addr *out_of(stand_in_rig *r, int i) {
    return &r->out[i / K_FUSED_OUT][i % K_FUSED_OUT];
}

stand_in_rig stand_in_rig_open(mp_device *device, const char *kernel, size_t bytes,
                               size_t table_bytes) {
    stand_in_rig r = {.device = device, .bytes = bytes, .table_bytes = table_bytes};
    CHECK(setenv("MILLPOND_STAND_IN", "off", 1) == 0);
    CHECK_OK(device->ops->stream_create(device, &r.stream));
    CHECK_OK(mp_kernel_cache_get(device, kernel, &r.stand_in));
    CHECK_OK(device->ops->alloc(device, table_bytes, &r.table));
    for (int i = 0; i < K_FUSED_IN; i++) {
        CHECK_OK(device->ops->alloc(device, bytes, &r.in[i]));
    }
    for (int i = 0; i < STAND_IN_BOTH * K_FUSED_OUT; i++) {
        CHECK_OK(device->ops->alloc(device, bytes, out_of(&r, i)));
    }
    return r;
}

void stand_in_rig_close(stand_in_rig *r) {
    mp_device *device = r->device;
    for (int i = 0; i < K_FUSED_IN; i++) {
        device->ops->free(device, r->in[i], r->bytes);
    }
    for (int i = 0; i < STAND_IN_BOTH * K_FUSED_OUT; i++) {
        device->ops->free(device, *out_of(r, i), r->bytes);
    }
    device->ops->free(device, r->table, r->table_bytes);
    device->ops->stream_destroy(device, r->stream);
    mp_kernel_cache_drop(device);
}

void stand_in_rig_set(const stand_in_rig *r, int i, const void *data) {
    CHECK_OK(r->device->ops->copy(r->device, r->stream, r->in[i], (mp_addr)data, r->bytes));
    CHECK_OK(r->device->ops->stream_synchronize(r->device, r->stream));
}

void stand_in_rig_launch(const stand_in_rig *r, const mp_kernel *kernel, int whose, mp_grid grid,
                         mp_fused_args args, size_t skew) {
    for (int o = 0; o < K_FUSED_OUT; o++) {
        args.out[o] = (void *)(r->out[whose][o] + skew);
        CHECK_OK(r->device->ops->fill(r->device, r->stream, r->out[whose][o], 0, 1, r->bytes));
    }
    CHECK_OK(r->device->ops->launch(r->device, r->stream, kernel, grid, &args, sizeof args));
}

void stand_in_rig_get(const stand_in_rig *r, int whose, int o, size_t skew, void *to,
                      size_t bytes) {
    CHECK_OK(
        r->device->ops->copy(r->device, r->stream, (mp_addr)to, r->out[whose][o] + skew, bytes));
    CHECK_OK(r->device->ops->stream_synchronize(r->device, r->stream));
}

bool stand_in_is_same(mp_dtype type, const void *own, const void *other, int64_t i) {
    const size_t size = mp_dtype_size(type), at = (size_t)i * size;
    return memcmp((const char *)own + at, (const char *)other + at, size) == 0 ||
           (isnan(op_real(type, own, i)) && isnan(op_real(type, other, i)));
}
