/* one_hot.cu - of `depth` elements the one that an index names is `on`, the others `off`; an index
 * out of range names none. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/vector.h"
#include "kernel/move/indexed_args.h"

/* Indices may be of any number type; the branch is the same for all lanes. Called, as a lane needs
 * it for two rows. */
#if K_HOST
static
#else
static __device__ __noinline__
#endif
    int64_t
    index_at(const void *indices, int32_t type, int64_t at) {
    switch (type) {
    case 1:
        return (int64_t)((const float *)indices)[at];
    case 2:
        return ((const uint8_t *)indices)[at];
    case 3:
        return ((const int8_t *)indices)[at];
    case 4:
        return ((const uint16_t *)indices)[at];
    case 5:
        return ((const int16_t *)indices)[at];
    case 6:
        return ((const int32_t *)indices)[at];
    case 10:
        return (int64_t)k_load_f16(((const k_f16 *)indices)[at]);
    case 11:
        return (int64_t)((const double *)indices)[at];
    case 12:
        return ((const uint32_t *)indices)[at];
    case 13: {
        const uint64_t index = ((const uint64_t *)indices)[at];
        return (int64_t)(index >> 63 ? ~(uint64_t)0 >> 1 : index);
    }
    default:
        return ((const int64_t *)indices)[at];
    }
}

K_FN int64_t place_of(const mp_one_hot_args *a, int64_t at) {
    const int64_t index = index_at(a->indices, a->index_type, at);
    return index < 0 ? index + a->depth : index;
}

/* Where the classes of an index are neighbours: those from element `first` on. */
K_FN k_vector in_rows(const mp_one_hot_args *a, int64_t first, T on, T off) {
    int64_t row =
        a->layout.wide ? first / a->depth : (int64_t)k_divide((uint32_t)first, a->by_depth);
    int64_t c = first - row * a->depth;
    int64_t place = place_of(a, row);
    k_vector made;
    for (int k = 0; k < K_VECTOR; k++) {
        if (c == a->depth) {
            c = 0;
            row++;
            place = first + k < a->count ? place_of(a, row) : 0;
        }
        made.lane[k] = place == c ? on : off;
        c++;
    }
    return made;
}

K_KERNEL(mp_one_hot_args, args) {
    const T *__restrict__ values = (const T *)args.values;
    T *__restrict__ out = (T *)args.out;
    const T off = values[0];
    const T on = values[1];
    if (args.in_rows) {
        K_ONE_COPY
        K_GRID_LOOP(i, (args.count + K_VECTOR - 1) / K_VECTOR) {
            const int64_t first = i * K_VECTOR;
            k_vector_write(out, first, args.count, in_rows(&args, first, on, off));
        }
        return;
    }
    K_ONE_COPY
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        out[i] = place_of(&args, at[0]) == at[1] ? on : off;
    }
}
