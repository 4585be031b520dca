/* stream_mix.cu - some streams of features become one, and one is given to some streams again,
 * which may be mixed among themselves. Sums are kept in float. Bound by memory: of a few streams a
 * lane has a piece of each, which are all on their way at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/any_float.h"
#include "kernel/core/index.h"
#include "kernel/core/vector.h"
#include "kernel/rows/gate_args.h"

typedef struct sm_sum {
    float lane[K_VECTOR];
} sm_sum;

/* Vector, or element, number `i`; zeros behind the element. */
K_FN sm_sum sm_read(const T *x, int64_t i, int32_t packed) {
    sm_sum out = {{0}};
    if (packed) {
        const k_vector v = ((const k_vector *)x)[i];
        K_UNROLL
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
        K_UNROLL
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
    K_UNROLL
    for (int k = 0; k < K_VECTOR; k++) {
        if (k == 0 || args->packed) {
            const float gate = args->wide ? k_any_float(args->gate, stream * args->columns + at + k,
                                                        args->gate_type)
                                          : one;
            sum->lane[k] += x.lane[k] * gate;
        }
    }
}

/* Piece `piece` of each stream of a row. */
K_FN void sm_read_few(const mp_stream_mix_args *args, int64_t row, int64_t pieces, int64_t piece,
                      sm_sum *x) {
    K_UNROLL
    for (int32_t c = 0; c < K_STREAMS_FEW; c++) {
        if (c < args->streams) {
            x[c] = sm_read((const T *)args->x, (row * args->streams + c) * pieces + piece,
                           args->packed);
        }
    }
}

K_FN void sm_pre_few(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    K_GRID_LOOP(i, args->rows * pieces) {
        const int64_t row = k_divide_any(i, pieces), piece = i - row * pieces;
        sm_sum x[K_STREAMS_FEW], sum = {{0}};
        sm_read_few(args, row, pieces, piece, x);
        K_UNROLL
        for (int32_t c = 0; c < K_STREAMS_FEW; c++) {
            if (c < args->streams) {
                sm_add(args, &sum, x[c], row * args->streams + c, piece * each);
            }
        }
        K_UNROLL
        for (int k = 0; k < K_VECTOR; k++) {
            sum.lane[k] *= args->factor;
        }
        sm_write((T *)args->out, i, args->packed, sum);
    }
}

/* Stream `k` of those of a row, mixed. */
K_FN sm_sum sm_mixed(const mp_stream_mix_args *args, int64_t row, int32_t k, const sm_sum *x) {
    sm_sum sum = {{0}};
    K_UNROLL
    for (int32_t c = 0; c < K_STREAMS_FEW; c++) {
        if (c < args->streams) {
            const int64_t at = (row * args->streams + c) * args->streams + k;
            const float by = k_any_float(args->mix, at, args->mix_type);
            K_UNROLL
            for (int n = 0; n < K_VECTOR; n++) {
                sum.lane[n] += x[c].lane[n] * by;
            }
        }
    }
    return sum;
}

K_FN void sm_post_few(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    K_GRID_LOOP(i, args->rows * pieces) {
        const int64_t row = k_divide_any(i, pieces), piece = i - row * pieces;
        const sm_sum block = sm_read((const T *)args->block, i, args->packed);
        sm_sum x[K_STREAMS_FEW];
        sm_read_few(args, row, pieces, piece, x);
        K_UNROLL
        for (int32_t k = 0; k < K_STREAMS_FEW; k++) {
            if (k < args->streams) {
                const int64_t line = row * args->streams + k;
                sm_sum sum = args->mix ? sm_mixed(args, row, k, x) : x[k];
                sm_add(args, &sum, block, line, piece * each);
                sm_write((T *)args->out, line * pieces + piece, args->packed, sum);
            }
        }
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
        K_UNROLL
        for (int k = 0; k < K_VECTOR; k++) {
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
            K_UNROLL
            for (int n = 0; n < K_VECTOR; n++) {
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
    const int few = args.streams <= K_STREAMS_FEW;
    if (args.post && few) {
        sm_post_few(&args, pieces);
    } else if (args.post) {
        sm_post(&args, pieces);
    } else if (few) {
        sm_pre_few(&args, pieces);
    } else {
        sm_pre(&args, pieces);
    }
}
