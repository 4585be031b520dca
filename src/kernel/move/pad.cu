/* pad.cu - a tensor within a larger one, whose border is one value or is read from the tensor. A
 * lane makes several neighbours: it divides for the first and counts on from there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"

#include "kernel/core/index.h"
#include "kernel/core/vector.h"

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

/* Where coordinate `c` of out comes from along dimension `d`; -1 for the filling. Most borders are
 * narrower than what they repeat, and need no division. */
K_FN int64_t source_of(const mp_pad_args *a, int32_t d, int64_t c) {
    const int64_t size = a->size[d];
    c -= a->before[d];
    if (c >= 0 && c < size) {
        return c;
    }
    if (a->mode == K_PAD_EDGE) {
        return c < 0 ? 0 : size - 1;
    }
    if (a->mode == K_PAD_WRAP) {
        const int64_t once = c < 0 ? c + size : c - size;
        if (once >= 0 && once < size) {
            return once;
        }
        const int64_t rest = c % size;
        return rest < 0 ? rest + size : rest;
    }
    if (a->mode == K_PAD_REFLECT) { /* there and back again; neither end is repeated */
        const int64_t once = c < 0 ? -c : 2 * (size - 1) - c;
        if (once >= 0 && once < size) {
            return once;
        }
        const int64_t period = size > 1 ? 2 * (size - 1) : 1;
        const int64_t rest = c % period;
        const int64_t at = rest < 0 ? rest + period : rest;
        return at < size ? at : period - at;
    }
    return -1;
}

/* Where the row of x is that this row of out shows; -1 where there is only filling. */
K_FN int64_t row_of(const mp_pad_args *a, int64_t row) {
    int64_t at = 0;
    for (int32_t d = a->rank - 2; d >= 0; d--) {
        int64_t outer = 0;
        if (d > 0) {
            outer = a->wide ? row / a->dim[d] : k_divide((uint32_t)row, a->divider[d]);
        }
        const int64_t from = source_of(a, d, row - outer * a->dim[d]);
        if (from < 0) {
            return -1;
        }
        at += from * a->stride[d];
        row = outer;
    }
    return at;
}

K_KERNEL(mp_pad_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    const int32_t inner = args.rank - 1;
    const int64_t length = args.dim[inner];
    const T fill = filling(&args);
    const int64_t packs = (args.count + K_VECTOR - 1) / K_VECTOR;
    K_GRID_LOOP(i, packs) {
        const int64_t first = i * K_VECTOR;
        int64_t row = args.wide ? first / length : k_divide((uint32_t)first, args.divider[inner]);
        int64_t c = first - row * length;
        int64_t at = row_of(&args, row);
        k_vector made;
        for (int k = 0; k < K_VECTOR; k++) {
            if (c == length) {
                c = 0;
                row++;
                at = first + k < args.count ? row_of(&args, row) : -1;
            }
            const int64_t from = at < 0 ? -1 : source_of(&args, inner, c);
            made.lane[k] = from < 0 ? fill : x[at + from];
            c++;
        }
        k_vector_write(out, first, args.count, made);
    }
}
