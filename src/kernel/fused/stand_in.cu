/* stand_in.cu - what fused kernels compute, read from a table of terms: it stands in for one that
 * is still being compiled, of an expression without reductions. Bound by the values, which lie in
 * the lane's own memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/walk.h"
#include "kernel/fused/stand_in_terms.h"

K_KERNEL(mp_fused_args, args) {
    const k_stand_in_code *code = (const k_stand_in_code *)args.stand_in;
    const k_stand_in_term *terms = (const k_stand_in_term *)(code + 1);
    K_ONE_COPY
    K_GRID_LOOP(n, args.walk.count) {
        uint64_t slots[K_STAND_IN_SLOTS];
        uint32_t at[K_WALK_VIEWS];
        int32_t view = 0;
        k_walk_to(&args.walk, (uint32_t)n, K_WALK_VIEWS, at);
        K_ONE_COPY
        for (int32_t i = 0; i < code->in_count; i++) {
            const int32_t reading = code->in_reading[i];
            const int64_t from = reading == K_STAND_IN_WHOLE ? n
                                 : reading == K_STAND_IN_ONE ? 0
                                                             : (int64_t)at[view++];
            slots[code->in_slot[i]] = s_load(code->in_type[i], args.in[i], from);
        }
        K_ONE_COPY
        for (int32_t i = 0; i < code->number_count; i++) {
            slots[code->number_slot[i]] = s_of_real(args.numbers[i]);
        }
        K_ONE_COPY
        for (int32_t t = 0; t < code->term_count; t++) {
            slots[terms[t].out] = s_term(&terms[t], slots);
        }
        K_ONE_COPY
        for (int32_t i = 0; i < code->out_count; i++) {
            const int64_t to = code->is_apart ? (int64_t)at[view] : n;
            s_store(code->out_type[i], args.out[i], to, slots[code->out_slot[i]]);
        }
    }
}
