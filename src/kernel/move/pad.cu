/* pad.cu - a tensor within a larger one, whose border is one value or is read from the tensor. A
 * lane makes several neighbours: it divides for the first and counts on from there. K_WIDE: out or
 * x is so large that numbers of 32 bits do not do, or rows are shorter than what a lane makes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"

#include "kernel/core/index.h"
#include "kernel/core/vector.h"

#if K_WIDE
typedef int64_t P_AT;
#else
typedef int32_t P_AT;
#endif

/* The element that fills, as often as T holds it. */
K_FN T filling(const mp_pad_args *a) {
    uint64_t bits = a->bits;
    if (a->value != 0) {
        bits = a->value_size == 1   ? *(const uint8_t *)a->value
               : a->value_size == 2 ? *(const uint16_t *)a->value
               : a->value_size == 4 ? *(const uint32_t *)a->value
                                    : *(const uint64_t *)a->value;
    }
    if (a->value_size < 8) {
        bits &= ((uint64_t)1 << a->value_size * 8) - 1;
        for (int32_t size = a->value_size; size < 8; size *= 2) {
            bits |= bits << size * 8;
        }
    }
    union {
        uint64_t words[2];
        T element;
    } both;
    both.words[0] = bits;
    both.words[1] = bits;
    return both.element;
}

/* Of a border wider than what it repeats: behind all the others, which need no division. */
#if K_HOST
static
#else
static __device__ __noinline__
#endif
    P_AT
    far_source(int32_t mode, P_AT size, P_AT c) {
    const P_AT period = mode == K_PAD_WRAP ? size : size > 1 ? 2 * (size - 1) : 1;
    const P_AT rest = c % period;
    const P_AT at = rest < 0 ? rest + period : rest;
    return at < size ? at : period - at;
}

/* Where coordinate `c` of out comes from along dimension `d`; -1 for the filling. */
K_FN P_AT source_of(const mp_pad_args *a, int32_t d, P_AT c) {
    const P_AT size = (P_AT)a->size[d];
    c -= (P_AT)a->before[d];
    if (c >= 0 && c < size) {
        return c;
    }
    if (a->mode == K_PAD_CONSTANT) {
        return -1;
    }
    if (a->mode == K_PAD_EDGE) {
        return c < 0 ? 0 : size - 1;
    }
    P_AT once = c < 0 ? -c : 2 * (size - 1) - c; /* there and back: neither end is repeated */
    if (a->mode == K_PAD_WRAP) {
        once = c < 0 ? c + size : c - size;
    }
    return once >= 0 && once < size ? once : far_source(a->mode, size, c);
}

K_FN P_AT quotient(P_AT n, int64_t dim, k_divider divider) {
#if K_WIDE
    (void)divider;
    return n / dim;
#else
    (void)dim;
    return (P_AT)k_divide((uint32_t)n, divider);
#endif
}

/* Where the row of x is that this row of out shows; -1 where there is only filling. */
K_FN P_AT row_of(const mp_pad_args *a, P_AT row) {
    P_AT at = 0;
    K_ONE_COPY
    for (int32_t d = a->rank - 2; d >= 0; d--) {
        const P_AT outer = d > 0 ? quotient(row, a->dim[d], a->divider[d]) : 0;
        const P_AT from = source_of(a, d, row - outer * (P_AT)a->dim[d]);
        if (from < 0) {
            return -1;
        }
        at += from * (P_AT)a->stride[d];
        row = outer;
    }
    return at;
}

/* The same of a row that there may not be. */
K_FN P_AT row_within(const mp_pad_args *a, P_AT row) {
    return row * (P_AT)a->dim[a->rank - 1] < (P_AT)a->count ? row_of(a, row) : -1;
}

/* Neighbours from column `c` of a row on, which lies at `at` of x; some of them are of the border,
 * or of the next row. */
K_FN k_vector at_border(const mp_pad_args *a, P_AT row, P_AT at, P_AT c, T fill) {
    const T *__restrict__ x = (const T *)a->x;
    const int32_t inner = a->rank - 1;
    const P_AT length = (P_AT)a->dim[inner];
    P_AT next = c + K_VECTOR > length ? row_within(a, row + 1) : -1;
    k_vector made;
    for (int k = 0; k < K_VECTOR; k++) {
        if (c == length) {
            c = 0;
            at = next;
            next = K_WIDE ? row_within(a, ++row + 1) : -1;
        }
        const P_AT from = at < 0 ? -1 : source_of(a, inner, c);
        made.lane[k] = from < 0 ? fill : x[at + from];
        c++;
    }
    return made;
}

K_KERNEL(mp_pad_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    const int32_t inner = args.rank - 1;
    const P_AT length = (P_AT)args.dim[inner], last = (P_AT)args.size[inner] - K_VECTOR;
    const T fill = filling(&args);
    const int64_t packs = (args.count + K_VECTOR - 1) / K_VECTOR;
    K_ONE_COPY
    K_GRID_LOOP(i, packs) {
        const P_AT first = (P_AT)i * K_VECTOR;
        const P_AT row = quotient(first, length, args.divider[inner]);
        const P_AT c = first - row * length;
        const P_AT at = row_of(&args, row);
        const P_AT own = c - (P_AT)args.before[inner];
        k_vector made;
        if (at >= 0 && own >= 0 && own <= last) { /* as most are: all of x, side by side */
            for (int k = 0; k < K_VECTOR; k++) {
                made.lane[k] = x[at + own + k];
            }
        } else {
            made = at_border(&args, row, at, c, fill);
        }
        k_vector_write(out, first, args.count, made);
    }
}
