/* gather_block.cu - slices of a quantised table as floats. A lane writes one element, or K_GROUP
 * neighbours that share a scale. An index that is out of range gives zeros. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/pointwise/narrow_value.h"
#include "kernel/quantize/quantize_args.h"

typedef struct g_block {
    float scale, zero;
} g_block;

/* What the block of element `i` of x has in common. */
K_FN g_block g_common(const mp_gather_block_args *args, int64_t i) {
    int64_t at[3];
    g_block out;
    k_offsets(&args->place, i, 3, at);
    const int64_t block = at[2] / args->block;
    out.scale = T_load(((const T *)args->scale)[at[0] + block * args->scale_block]);
    out.zero = (float)args->middle;
    if (args->zero != 0) {
        const int64_t place = at[1] + block * args->zero_block;
        const uint32_t bits = n_load((const uint8_t *)args->zero, args->type.width, place);
        out.zero = (float)n_whole(&args->type, bits);
    }
    return out;
}

K_FN T g_value(const mp_gather_block_args *args, uint32_t bits, const g_block *block) {
    return T_store((n_from_bits(&args->type, bits) - block->zero) * block->scale);
}

K_KERNEL(mp_gather_block_args, args) {
    const U *indices = (const U *)args.indices;
    T *out = (T *)args.out;
    const int32_t aligned = n_aligned(args.x, args.out);
    const int32_t each = args.grouped ? K_GROUP : 1;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        uint32_t bits[K_GROUP] = {0};
        g_block block = {0, 0};
        n_pack result;
        k_offsets(&args.from, i, 2, at);
        int64_t index = indices[at[1]];
        const int32_t valid = index >= -args.axis && index < args.axis;
        index = !valid ? 0 : index < 0 ? index + args.axis : index;
        const int64_t first = at[0] + index * args.step;
        if (valid) {
            block = g_common(&args, first);
        }
        if (valid && args.grouped) {
            n_group_load(args.x, args.type.width, first, K_GROUP, aligned, bits);
        } else if (valid) {
            bits[0] = n_load((const uint8_t *)args.x, args.type.width, first);
        }
        for (int k = 0; k < each; k++) {
            result.lane[k] = valid ? g_value(&args, bits[k], &block) : T_store(0);
        }
        if (args.grouped) {
            n_floats_store(out, i * K_GROUP, K_GROUP, aligned, &result);
        } else {
            out[i] = result.lane[0];
        }
    }
}
