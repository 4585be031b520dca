/* stream_mix.cu - some streams of features become one, and one is given to some streams again,
 * which may be mixed among themselves. Sums are kept in float.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/any_float.h"
#include "kernel/core/vector.h"
#include "kernel/rows/gate_args.h"

typedef struct sm_sum {
    float lane[K_VECTOR];
} sm_sum;

/* Vector, or element, number `i`. */
K_FN sm_sum sm_read(const T *x, int64_t i, int32_t packed) {
    sm_sum out;
    if (packed) {
        const k_vector v = ((const k_vector *)x)[i];
        for (int k = 0; k < K_VECTOR; k++) {
            out.lane[k] = T_load(v.lane[k]);
        }
    } else {
        out.lane[0] = T_load(x[i]);
    }
    return out;
}

K_FN void sm_write(T *out, int64_t i, int32_t packed, sm_sum sum) {
    if (packed) {
        k_vector v;
        for (int k = 0; k < K_VECTOR; k++) {
            v.lane[k] = T_store(sum.lane[k]);
        }
        ((k_vector *)out)[i] = v;
    } else {
        out[i] = T_store(sum.lane[0]);
    }
}

/* sum += x * gate, the gate being that of stream `stream` at element `at` of its row. */
K_FN void sm_add(const mp_stream_mix_args *args, sm_sum *sum, sm_sum x, int64_t stream,
                 int64_t at) {
    float one = 0;
    if (!args->wide) {
        one = k_any_float(args->gate, stream, args->gate_type);
    }
    for (int k = 0; k < (args->packed ? K_VECTOR : 1); k++) {
        const float gate =
            args->wide ? k_any_float(args->gate, stream * args->columns + at + k, args->gate_type)
                       : one;
        sum->lane[k] += x.lane[k] * gate;
    }
}

K_FN void sm_pre(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    K_GRID_LOOP(i, args->rows * pieces) {
        const int64_t row = i / pieces, piece = i - row * pieces;
        sm_sum sum = {{0}};
        for (int64_t c = 0; c < args->streams; c++) {
            const int64_t stream = row * args->streams + c;
            sm_add(args, &sum, sm_read((const T *)args->x, stream * pieces + piece, args->packed),
                   stream, piece * each);
        }
        for (int k = 0; k < each; k++) {
            sum.lane[k] *= args->factor;
        }
        sm_write((T *)args->out, i, args->packed, sum);
    }
}

K_FN void sm_post(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    const T *x = (const T *)args->x;
    K_GRID_LOOP(i, args->rows * args->streams * pieces) {
        const int64_t line = i / pieces, piece = i - line * pieces;
        const int64_t row = line / args->streams, k = line - row * args->streams;
        sm_sum sum = {{0}};
        if (!args->mix) {
            sum = sm_read(x, i, args->packed);
        }
        for (int64_t c = 0; args->mix && c < args->streams; c++) {
            const int64_t stream = row * args->streams + c;
            const float by = k_any_float(args->mix, stream * args->streams + k, args->mix_type);
            const sm_sum part = sm_read(x, stream * pieces + piece, args->packed);
            for (int n = 0; n < each; n++) {
                sum.lane[n] += part.lane[n] * by;
            }
        }
        sm_add(args, &sum, sm_read((const T *)args->block, row * pieces + piece, args->packed),
               line, piece * each);
        sm_write((T *)args->out, i, args->packed, sum);
    }
}

K_KERNEL(mp_stream_mix_args, args) {
    const int64_t pieces = args.packed ? args.columns / K_VECTOR : args.columns;
    if (args.post) {
        sm_post(&args, pieces);
    } else {
        sm_pre(&args, pieces);
    }
}
