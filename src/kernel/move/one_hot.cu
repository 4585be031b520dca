/* one_hot.cu - of `depth` elements the one that an index names is `on`, the others `off`; an index
 * out of range names none. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/stream.h"
#include "kernel/core/vector.h"
#include "kernel/move/indexed_args.h"

/* What is long and seldom, so that it is called: a lane needs it for several rows. */
#if K_HOST
#define CALLED static
#else
#define CALLED static __device__ __noinline__
#endif

enum { INDEX_I32 = 6, INDEX_I64 = 7 };

/* Indices may be of any number type; the branch is the same for all lanes. */
CALLED int64_t other_index_at(const void *indices, int32_t type, int64_t at) {
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
    case 10:
        return (int64_t)k_load_f16(((const k_f16 *)indices)[at]);
    case 11:
        return (int64_t)((const double *)indices)[at];
    case 12:
        return ((const uint32_t *)indices)[at];
    default: {
        const uint64_t index = ((const uint64_t *)indices)[at];
        return (int64_t)(index >> 63 ? ~(uint64_t)0 >> 1 : index);
    }
    }
}

/* The usual types are loaded without a call, which would wait for what it has loaded. */
K_FN int64_t index_at(const mp_one_hot_args *a, int64_t at) {
    if (a->index_type == INDEX_I64) {
        return ((const int64_t *)a->indices)[at];
    }
    return a->index_type == INDEX_I32 ? ((const int32_t *)a->indices)[at]
                                      : other_index_at(a->indices, a->index_type, at);
}

K_FN int64_t place_of(const mp_one_hot_args *a, int64_t index) {
    return index < 0 ? index + a->depth : index;
}

CALLED int64_t wide_row(int64_t first, int64_t depth) {
    return first / depth;
}

K_FN int64_t row_of(const mp_one_hot_args *a, int64_t first) {
    return a->layout.wide ? wide_row(first, a->depth)
                          : (int64_t)k_divide((uint32_t)first, a->by_depth);
}

/* Where the classes of an index are neighbours: those from element `first` on, of which the first
 * has that index. */
K_FN k_vector in_row(const mp_one_hot_args *a, int64_t first, int64_t index, T on, T off) {
    int64_t row = row_of(a, first);
    int64_t c = first - row * a->depth;
    int64_t place = place_of(a, index);
    k_vector made;
    for (int k = 0; k < K_VECTOR; k++) {
        if (c == a->depth) {
            c = 0;
            row++;
            place = first + k < a->count ? place_of(a, index_at(a, row)) : 0;
        }
        made.lane[k] = place == c ? on : off;
        c++;
    }
    return made;
}

K_FN void in_rows(const mp_one_hot_args *a, T *out, T on, T off) {
    const k_stream s = k_stream_of((a->count + K_VECTOR - 1) / K_VECTOR);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        const int64_t ahead = index_at(a, row_of(a, last * K_VECTOR));
        int64_t index = index_at(a, row_of(a, i * K_VECTOR));
        K_ONE_COPY
        for (int64_t at = i; at <= last; at += s.next) {
            const int64_t first = at * K_VECTOR;
            k_vector_write(out, first, a->count, in_row(a, first, index, on, off));
            index = ahead;
        }
    }
}

K_KERNEL(mp_one_hot_args, args) {
    const T *__restrict__ values = (const T *)args.values;
    T *__restrict__ out = (T *)args.out;
    const T off = values[0];
    const T on = values[1];
    if (args.in_rows) {
        in_rows(&args, out, on, off);
        return;
    }
    K_ONE_COPY
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        out[i] = place_of(&args, index_at(&args, at[0])) == at[1] ? on : off;
    }
}
