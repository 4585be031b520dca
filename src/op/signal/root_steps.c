/* root_steps.c - tables of roots of unity, kept for all plans of a device.
 * Kernel: signal/roots.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/root_steps.h"
#include "op/core/table_cache.h"

#include <string.h>

/* All that a table of roots follows from. */
typedef struct roots {
    const mp_kernel *kernel; /* of its type */
    mp_grid grid;
    mp_roots_args args; /* but for the pointer */
} roots;

static mp_status make_roots(const void *context, mp_device *device, mp_stream *stream, mp_addr out,
                            size_t size) {
    const roots *r = context;
    mp_roots_args args = r->args;
    (void)size;
    args.out = (void *)out;
    return device->ops->launch(device, stream, r->kernel, r->grid, &args, sizeof args);
}

mp_status mp_plan_roots(mp_planner *p, mp_dtype type, const mp_roots_args *args, mp_ref *out) {
    roots r;
    const mp_shape shape = {.rank = 2, .dim = {args->count, 2}};
    memset(&r, 0, sizeof r); /* it is a key: gaps count, too */
    MP_TRY(mp_plan_kernel(p, &r.kernel, "roots_%s", mp_dtype_word(type)));
    r.grid = mp_plan_grid(p, args->count, 1);
    r.args = *args;
    mp_table table = {.fill = make_roots, .context = &r, .key = &r, .key_size = sizeof r};
    MP_TRY(mp_shape_bytes(&shape, type, &table.size));
    MP_TRY(mp_plan_table(p, &table, out));
    if (out->place == MP_PLACE_TABLE) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch(p, table.size, out));
    return MP_LAUNCH(p, r.kernel, r.grid, *args, MP_BIND(mp_roots_args, out, *out));
}
