/* group_apply.cu - each channel minus the mean of its group, over its deviation, times scale, plus
 * bias, and perhaps times its sigmoid. A lane keeps what its channels need and goes along the
 * pixels. Bound by memory; `out` may be x.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/group_norm.h"

#include "kernel/pointwise/functions.h"

typedef struct g_affine {
    TC mean[PACK], scale[PACK], bias[PACK];
} g_affine;

K_FN g_affine g_affine_of(const mp_group_norm_args *args, const g_part *part) {
    const int64_t each = args->channels / args->groups;
    g_affine a;
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const int64_t channel = part->channel + k;
        const float *moments = args->moments + (part->batch * args->groups + channel / each) * 2;
        a.mean[k] = moments[0];
        a.scale[k] = moments[1] * (TC)U_load(((const U *)args->scale)[channel]);
        a.bias[k] = (TC)U_load(((const U *)args->bias)[channel]);
    }
    return a;
}

K_FN g_pack g_made(const mp_group_norm_args *args, const g_affine *a, g_pack x) {
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const TC value = (T_load(x.at[k]) - a->mean[k]) * a->scale[k] + a->bias[k];
        x.at[k] = T_store(args->swish ? value * p_sigmoid(value) : value);
    }
    return x;
}

K_KERNEL(mp_group_norm_args, args) {
    const T *x = (const T *)(args.sum ? args.sum : args.x);
    T *out = (T *)args.out;
    const int64_t items = g_items(&args);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const g_part part = g_part_of(&args, item);
        if (!part.active) {
            continue;
        }
        const g_affine affine = g_affine_of(&args, &part);
        for (int64_t p = part.first + part.line; p < part.end; p += AHEAD * part.lines) {
            g_pack pack[AHEAD];
            K_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t pixel = p + j * part.lines;
                const int64_t near = pixel < part.end ? pixel : p;
                pack[j] = *(const g_pack *)(x + g_at(&args, &part, near));
            }
            K_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t pixel = p + j * part.lines;
                if (pixel < part.end) {
                    *(g_pack *)(out + g_at(&args, &part, pixel)) = g_made(&args, &affine, pack[j]);
                }
            }
        }
    }
}
