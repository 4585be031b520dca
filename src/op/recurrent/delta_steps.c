/* delta_steps.c - linear attention as a step: how many lanes share a column of a state, and how
 * many tokens are in shared memory at a time.
 * Kernels: recurrent/delta.cu, recurrent/delta_ahead.cu, recurrent/delta_token.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/recurrent/delta_steps.h"

#include <math.h>

mp_status mp_delta_rule(const mp_planner *p, mp_delta_args *args) {
    const char *rule = mp_node_string(p->node, "update_rule", "gated_delta");
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
    for (int i = 0; i < (int)MP_COUNT_OF(rules); i++) {
        if (strcmp(rule, rules[i]) == 0) {
            args->decays = i & 1;
            args->retrieves = i >> 1;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT,
                   "update_rule is \"%.40s\"; it can be linear, gated, delta or gated_delta", rule);
}

float mp_delta_scale(const mp_planner *p, int64_t size) {
    const float given = mp_node_float(p->node, "scale", 0);
    return given != 0 ? given : 1 / sqrtf((float)size);
}

/* As few lanes as can keep a column. */
static int32_t lanes_of(int64_t size) {
    int32_t lanes = 1;
    while ((int64_t)lanes * K_DELTA_KEEP < size) {
        lanes *= 2;
    }
    return lanes;
}

static mp_status read_lanes(const mp_planner *p, mp_delta_args *args, size_t *shared) {
    enum { SHARED_WANTED = 32 << 10, CHUNK_MAX = 32 };
    if (args->size > K_DELTA_SIZE_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "linear attention with keys of %d elements; up to %d are supported",
                       args->size, K_DELTA_SIZE_MAX);
    }
    args->width = lanes_of(args->size);
    args->padded = p->device->info.warp == 1 ? args->size : args->width * K_DELTA_KEEP;
    const int64_t columns = K_DELTA_LANES / args->width;
    const int64_t vectors = 1 + args->queries + (args->decays == 2 ? 1 : 0);
    const int64_t pitch = (vectors * args->padded + 2 + columns) * (int64_t)sizeof(float);
    if (pitch > (int64_t)p->device->info.shared_bytes_max) {
        return MP_FAIL(UNSUPPORTED,
                       "linear attention where %d queries of %d elements share a state needs %lld "
                       "bytes of shared memory; the device has %zu",
                       args->queries, args->size, (long long)pitch,
                       p->device->info.shared_bytes_max);
    }
    args->chunk = (int32_t)MP_MIN(MP_MAX(SHARED_WANTED / pitch, 1), CHUNK_MAX);
    *shared = (size_t)(args->chunk * pitch);
    return MP_OK;
}

/* Whether delta_ahead.cu is for this. Tokens are then copied 16 bytes at a time. */
static bool is_ahead(const mp_planner *p, const mp_delta *d) {
    enum { ARCH = 80, WIDTH_MAX = 16 };
    const mp_delta_args *args = &d->args;
    const int32_t pack = 16 / (int32_t)mp_dtype_size(d->type);
    return p->device->info.arch >= ARCH && p->align >= 16 && args->queries == 1 &&
           args->decays <= 1 && args->windows <= 1 && d->update.place == MP_PLACE_NONE &&
           args->width <= WIDTH_MAX && args->size == args->width * K_DELTA_KEEP &&
           args->value % pack == 0 && (d->state_type == MP_F32 || d->state_type == d->type);
}

/* Whether delta_token.cu is: there are no more tokens than entries. */
static bool is_single(const mp_delta *d) {
    const mp_delta_args *args = &d->args;
    const double units = (double)args->batch * (double)args->heads * (double)args->value;
    return args->tokens <= args->batch && d->state_type == MP_F32 && args->row_step == 1 &&
           args->size == K_DELTA_WIDTH * K_DELTA_KEEP && args->column_step == args->size &&
           args->value % K_DELTA_TOKEN_COLUMNS == 0 && units <= (double)INT32_MAX;
}

/* Two chunks of tokens, each with a key, a query and the values of a block's columns. */
static size_t shared_ahead(const mp_delta *d) {
    const int32_t elements = 2 * d->args.size + K_DELTA_LANES / d->args.width;
    return (size_t)(2 * K_DELTA_AHEAD) *
           (K_DELTA_GATES + (size_t)elements * mp_dtype_size(d->type));
}

mp_status mp_plan_delta(mp_planner *p, mp_delta *d) {
    mp_delta_args *args = &d->args;
    const mp_kernel *kernel = NULL;
    size_t shared = 0;
    if (args->batch == 0 || args->heads == 0 || args->value == 0 || args->size == 0) {
        return MP_OK;
    }
    MP_TRY(read_lanes(p, args, &shared));
    const bool ahead = is_ahead(p, d), single = ahead && is_single(d);
    shared = single ? 0 : ahead ? shared_ahead(d) : shared;
    MP_TRY(mp_plan_kernel(p, &kernel, "delta_%s%s_%s",
                          single  ? "token_"
                          : ahead ? "ahead_"
                                  : "",
                          mp_dtype_word(d->type), mp_dtype_word(d->state_type)));
    const int64_t columns = single ? K_DELTA_TOKEN_COLUMNS : K_DELTA_LANES / args->width;
    const int64_t blocks = MP_CEIL_DIV((int64_t)args->value, columns);
    mp_grid grid = mp_plan_grid_rows(p, args->batch * args->heads * blocks, K_DELTA_LANES);
    grid.shared_bytes = (uint32_t)shared;
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_delta_args, q, d->q), MP_BIND(mp_delta_args, k, d->k),
        MP_BIND(mp_delta_args, v, d->v), MP_BIND(mp_delta_args, past, d->past),
        MP_BIND(mp_delta_args, decay, d->decay), MP_BIND(mp_delta_args, beta, d->beta),
        MP_BIND(mp_delta_args, log_rate, d->log_rate), MP_BIND(mp_delta_args, bias, d->bias),
        MP_BIND(mp_delta_args, starts, d->starts), MP_BIND(mp_delta_args, counts, d->counts),
        MP_BIND(mp_delta_args, out, d->out), MP_BIND(mp_delta_args, present, d->present),
        MP_BIND(mp_delta_args, update, d->update));
}
