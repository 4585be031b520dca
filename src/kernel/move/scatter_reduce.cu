/* scatter_reduce.cu - joins elements with those at the places that indices name; one out of range
 * is left out. Many may name one place, so each joins in one atomic step; sums of floats depend on
 * their order in the last bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/atomic.h"
#include "kernel/move/indexed.h"

#if T_FLOAT
typedef TC WRAPS;
#else
typedef uint64_t WRAPS; /* integers that overflow wrap */
#endif

#if T_FLOAT
#define IS_NAN(value) ((value) != (value))
#else
#define IS_NAN(value) 0
#endif

K_FN T join(T left, T right, int how) {
    const TC x = T_load(left);
    const TC y = T_load(right);
    TC result;
    if (how == K_SCATTER_ADD) {
        result = (TC)((WRAPS)x + (WRAPS)y);
    } else if (how == K_SCATTER_MUL) {
        result = (TC)((WRAPS)x * (WRAPS)y);
    } else if (IS_NAN(x) || IS_NAN(y)) { /* on either side it wins */
        result = IS_NAN(x) ? x : y;
    } else if (how == K_SCATTER_MAX) {
        result = x > y ? x : y;
    } else {
        result = x < y ? x : y;
    }
    return T_store(result);
}

K_KERNEL(mp_scatter_args, args) {
    const T *__restrict__ updates = (const T *)args.updates;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.walk.count) {
        int valid = 0;
        const int64_t at = k_indexed_at(&args.walk, i, &valid);
        if (!valid || (args.how == K_SCATTER_ADD && k_atomic_add(out + at, updates[i]))) {
            continue;
        }
        k_bits seen = k_atomic_read(out + at);
        for (;;) {
            const k_bits wanted = k_to_bits(join(k_from_bits(seen), updates[i], args.how));
            const k_bits found = wanted == seen ? seen : k_atomic_swap(out + at, seen, wanted);
            if (found == seen) {
                break;
            }
            seen = found;
        }
    }
}
