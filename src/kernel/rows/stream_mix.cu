/* stream_mix.cu - some streams of features become one, and one is given to some streams again,
 * which may be mixed among themselves. Sums are kept in float. Bound by memory: a lane
 * takes a piece of a few streams at a time, which are all on their way at once, and of the same few
 * makes what they become.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/any_float.h"
#include "kernel/core/index.h"
#include "kernel/core/vector.h"
#include "kernel/rows/gate_args.h"

enum { FEW = 4 }; /* streams at a time, as many as there mostly are */

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

/* Piece `piece` of the next few streams of a row, from `first` on; zeros for none. */
K_FN void sm_read_few(const mp_stream_mix_args *args, int64_t row, int64_t first, int64_t pieces,
                      int64_t piece, sm_sum *x) {
    const sm_sum none = {{0}};
    K_UNROLL
    for (int32_t c = 0; c < FEW; c++) {
        x[c] = none;
        if (first + c < args->streams) {
            const int64_t stream = row * args->streams + first + c;
            x[c] = sm_read((const T *)args->x, stream * pieces + piece, args->packed);
        }
    }
}

K_FN void sm_pre(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    K_GRID_LOOP(i, args->rows * pieces) {
        const int64_t row = k_divide_any(i, pieces), piece = i - row * pieces;
        sm_sum sum = {{0}};
        K_ONE_COPY
        for (int64_t first = 0; first < args->streams; first += FEW) {
            sm_sum x[FEW];
            sm_read_few(args, row, first, pieces, piece, x);
            K_UNROLL
            for (int32_t c = 0; c < FEW; c++) {
                if (first + c < args->streams) {
                    sm_add(args, &sum, x[c], row * args->streams + first + c, piece * each);
                }
            }
        }
        K_UNROLL
        for (int k = 0; k < K_VECTOR; k++) {
            sum.lane[k] *= args->factor;
        }
        sm_write((T *)args->out, i, args->packed, sum);
    }
}

/* sum[k] += what streams [from, from + FEW), x, give to stream `to` + k of a row. */
K_FN void sm_mix(const mp_stream_mix_args *args, int64_t row, int64_t from, int64_t to,
                 const sm_sum *x, sm_sum *sum) {
    K_UNROLL
    for (int32_t i = 0; i < FEW * FEW; i++) {
        const int64_t c = from + i / FEW, k = to + i % FEW;
        if (c < args->streams && k < args->streams) {
            const int64_t at = (row * args->streams + c) * args->streams + k;
            const float by = k_any_float(args->mix, at, args->mix_type);
            K_UNROLL
            for (int n = 0; n < K_VECTOR; n++) {
                sum[i % FEW].lane[n] += x[i / FEW].lane[n] * by;
            }
        }
    }
}

K_FN void sm_post(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    K_GRID_LOOP(i, args->rows * pieces) {
        const int64_t row = k_divide_any(i, pieces), piece = i - row * pieces;
        const sm_sum block = sm_read((const T *)args->block, i, args->packed);
        K_ONE_COPY
        for (int64_t to = 0; to < args->streams; to += FEW) {
            sm_sum sum[FEW] = {{{0}}};
            if (!args->mix) {
                sm_read_few(args, row, to, pieces, piece, sum);
            }
            K_ONE_COPY
            for (int64_t from = 0; args->mix && from < args->streams; from += FEW) {
                sm_sum x[FEW];
                sm_read_few(args, row, from, pieces, piece, x);
                sm_mix(args, row, from, to, x, sum);
            }
            K_UNROLL
            for (int32_t k = 0; k < FEW; k++) {
                if (to + k < args->streams) {
                    const int64_t line = row * args->streams + to + k;
                    sm_add(args, &sum[k], block, line, piece * each);
                    sm_write((T *)args->out, line * pieces + piece, args->packed, sum[k]);
                }
            }
        }
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
