/* stream_mix.cu - some streams of features become one, and one is given to some streams again,
 * which may be mixed among themselves. Sums are kept in float. Bound by memory: a lane
 * takes a piece of a few streams at a time, which are all on their way at once with their weights,
 * and of the same few makes what they become.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/vector.h"
#include "kernel/core/word.h"
#include "kernel/rows/gate_args.h"

enum { FEW = K_VECTOR }; /* streams at a time, as many as there mostly are; weights of a line */

/* A vector, or an element and zeros, as it is stored: to convert it is to wait for it. */
typedef struct K_ALIGN(sizeof(T) * K_VECTOR) sm_piece {
    uint32_t word[K_VECTOR / K_WORD];
} sm_piece;

/* The same as it is computed with. */
typedef struct sm_sum {
    float lane[K_VECTOR];
} sm_sum;

/* Weights as they are stored. */
typedef struct sm_line {
    uint32_t bits[FEW];
} sm_line;

/* ---- what is asked for ---- */

/* Vector, or element, number `i`. */
K_FN sm_piece sm_ask(const T *x, int64_t i, int32_t packed) {
    sm_piece piece = {{0}};
    if (packed) {
        piece = ((const sm_piece *)(const void *)x)[i];
    } else {
        const void *at = x + i;
        piece.word[0] = sizeof(T) == 2 ? *(const uint16_t *)at : *(const uint32_t *)at;
    }
    return piece;
}

/* Of `count` streams, whose pieces lie `step` apart from `i` on; zeros for those that are none. */
K_FN void sm_ask_few(const mp_stream_mix_args *args, int64_t i, int64_t step, int32_t count,
                     sm_piece *x) {
    const sm_piece none = {{0}};
    K_UNROLL
    for (int32_t c = 0; c < FEW; c++) {
        x[c] = c < count ? sm_ask((const T *)args->x, i + c * step, args->packed) : none;
    }
}

/* `count` weights from number `at` on; zeros behind. `type`: as k_any_float takes it, which is
 * asked once for the line, so that its loads are on their way at once. */
K_FN sm_line sm_ask_line(const void *from, int64_t at, int32_t count, int32_t type) {
    sm_line line = {{0}};
    if (type == 1) {
        K_UNROLL
        for (int32_t k = 0; k < FEW; k++) {
            line.bits[k] = k < count ? ((const uint32_t *)from)[at + k] : 0;
        }
    } else {
        K_UNROLL
        for (int32_t k = 0; k < FEW; k++) {
            line.bits[k] = k < count ? ((const uint16_t *)from)[at + k] : 0;
        }
    }
    return line;
}

/* One gate of each of `count` streams, from number `stream` on. */
K_FN sm_line sm_ask_narrow(const mp_stream_mix_args *args, int64_t stream, int32_t count) {
    return sm_ask_line(args->gate, stream, args->wide ? 0 : count, args->gate_type);
}

/* Those of piece `i` of a stream, where each element has one. */
K_FN sm_line sm_ask_wide(const mp_stream_mix_args *args, int64_t i, int is_stream) {
    const int32_t each = args->packed ? K_VECTOR : 1;
    return sm_ask_line(args->gate, i * each, is_stream ? each : 0, args->gate_type);
}

/* ---- where ---- */

/* Piece `piece` of row `row`. */
typedef struct sm_seat {
    int64_t row, piece;
} sm_seat;

/* That of number `i`. In 32 bits: where a row has more pieces than that, `i` is in the first. */
K_FN sm_seat sm_seat_of(uint32_t i, int64_t pieces) {
    const uint32_t row = (int64_t)i < pieces ? 0 : i / (uint32_t)pieces;
    const sm_seat seat = {row, i - row * pieces};
    return seat;
}

/* As many further as `step` says, without a division. */
K_FN void sm_move(sm_seat *seat, const sm_seat *step, int64_t pieces) {
    seat->row += step->row;
    seat->piece += step->piece;
    if (seat->piece >= pieces) {
        seat->row++;
        seat->piece -= pieces;
    }
}

/* Visits each piece of each row once. */
#define SM_LOOP(seat, args, pieces)                                                \
    const sm_seat seat##_step = sm_seat_of(blockDim.x * gridDim.x, pieces);        \
    for (sm_seat seat = sm_seat_of(blockIdx.x * blockDim.x + threadIdx.x, pieces); \
         seat.row < (args)->rows; sm_move(&seat, &seat##_step, pieces))

/* ---- what is made of it ---- */

K_FN sm_sum sm_read(sm_piece piece) {
    sm_sum out;
    K_UNROLL
    for (int32_t w = 0; w < K_VECTOR / K_WORD; w++) {
        T_unpack(piece.word[w], out.lane + w * K_WORD);
    }
    return out;
}

/* Weights, of lines that are kept as they are stored until they are used. */
K_FN sm_sum sm_weights(sm_line line, int32_t type) {
    sm_sum out;
    K_UNROLL
    for (int32_t k = 0; k < FEW; k++) {
        out.lane[k] = k_float_of_bits(line.bits[k]);
    }
    if (type != 1) {
        K_UNROLL
        for (int32_t k = 0; k < FEW; k++) {
            const k_f16 half = {(uint16_t)line.bits[k]};
            out.lane[k] = type == 10 ? k_load_f16(half) : k_float_of_bits(line.bits[k] << 16);
        }
    }
    return out;
}

K_FN void sm_write(T *out, int64_t i, int32_t packed, const sm_sum *sum) {
    if (packed) {
        sm_piece piece;
        K_UNROLL
        for (int32_t w = 0; w < K_VECTOR / K_WORD; w++) {
            piece.word[w] = T_repack(sum->lane + w * K_WORD);
        }
        ((sm_piece *)(void *)out)[i] = piece;
    } else {
        out[i] = T_store(sum->lane[0]);
    }
}

/* sum += x * gate: number `c` of `narrow`, or one of `wide` for each element. */
K_FN void sm_add(const mp_stream_mix_args *args, sm_sum x, const sm_sum *narrow, int32_t c,
                 sm_line wide, sm_sum *sum) {
    sm_sum by = {{narrow->lane[c], narrow->lane[c], narrow->lane[c], narrow->lane[c]}};
    if (args->wide) {
        by = sm_weights(wide, args->gate_type);
    }
    K_UNROLL
    for (int32_t n = 0; n < K_VECTOR; n++) {
        sum->lane[n] += x.lane[n] * by.lane[n];
    }
}

K_FN void sm_pre(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t streams = (int32_t)args->streams;
    SM_LOOP(seat, args, pieces) {
        const int64_t line = seat.row * streams;
        const int64_t place = line * pieces + seat.piece; /* of the first stream's piece */
        sm_sum sum = {{0}};
        K_ONE_COPY
        for (int32_t first = 0; first < streams; first += FEW) {
            const int64_t at = place + first * pieces;
            const int32_t count = streams - first;
            sm_piece x[FEW];
            sm_line wide[FEW];
            sm_ask_few(args, at, pieces, count, x);
            const sm_line gates = sm_ask_narrow(args, line + first, count);
            K_UNROLL
            for (int32_t c = 0; c < FEW; c++) {
                wide[c] = sm_ask_wide(args, at + c * pieces, args->wide && c < count);
            }
            const sm_sum narrow = sm_weights(gates, args->gate_type);
            K_UNROLL
            for (int32_t c = 0; c < FEW; c++) {
                sm_add(args, sm_read(x[c]), &narrow, c, wide[c], &sum);
            }
        }
        K_UNROLL
        for (int k = 0; k < K_VECTOR; k++) {
            sum.lane[k] *= args->factor;
        }
        sm_write((T *)args->out, seat.row * pieces + seat.piece, args->packed, &sum);
    }
}

/* sum[k] += what streams [from, from + FEW) of a row give to its stream `to` + k; `line`: the
 * number of the row's first stream. */
K_FN void sm_mix(const mp_stream_mix_args *args, int64_t line, int32_t from, int32_t to,
                 const sm_piece *x, sm_sum *sum) {
    const int32_t streams = (int32_t)args->streams;
    sm_line mix[FEW];
    K_UNROLL
    for (int32_t c = 0; c < FEW; c++) {
        const int64_t at = (line + from + c) * streams + to;
        mix[c] = sm_ask_line(args->mix, at, from + c < streams ? streams - to : 0, args->mix_type);
    }
    K_UNROLL
    for (int32_t c = 0; c < FEW; c++) {
        const sm_sum given = sm_read(x[c]), by = sm_weights(mix[c], args->mix_type);
        K_UNROLL
        for (int32_t k = 0; k < FEW; k++) {
            K_UNROLL
            for (int32_t n = 0; n < K_VECTOR; n++) {
                sum[k].lane[n] += given.lane[n] * by.lane[k];
            }
        }
    }
}

K_FN void sm_post(const mp_stream_mix_args *args, int64_t pieces) {
    const int32_t streams = (int32_t)args->streams;
    SM_LOOP(seat, args, pieces) {
        const int64_t line = seat.row * streams;
        const int64_t place = line * pieces + seat.piece; /* of the first stream's piece */
        const sm_piece block =
            sm_ask((const T *)args->block, seat.row * pieces + seat.piece, args->packed);
        K_ONE_COPY
        for (int32_t to = 0; to < streams; to += FEW) {
            const int64_t at = place + to * pieces;
            const int32_t count = streams - to;
            sm_sum sum[FEW] = {{{0}}};
            sm_piece x[FEW];
            K_ONE_COPY
            for (int32_t from = 0; args->mix && from < streams; from += FEW) {
                sm_ask_few(args, place + from * pieces, pieces, streams - from, x);
                sm_mix(args, line, from, to, x, sum);
            }
            if (!args->mix) {
                sm_ask_few(args, at, pieces, count, x);
                K_UNROLL
                for (int32_t k = 0; k < FEW; k++) {
                    sum[k] = sm_read(x[k]);
                }
            }
            const sm_sum narrow =
                sm_weights(sm_ask_narrow(args, line + to, count), args->gate_type);
            K_UNROLL
            for (int32_t k = 0; k < FEW; k++) {
                /* One line at a time, since sums have most registers. */
                const sm_line wide = sm_ask_wide(args, at + k * pieces, args->wide && k < count);
                sm_add(args, sm_read(block), &narrow, k, wide, &sum[k]);
                if (k < count) {
                    sm_write((T *)args->out, at + k * pieces, args->packed, &sum[k]);
                }
            }
        }
    }
}

K_KERNEL_IN_80(256, mp_stream_mix_args, args) {
    const int64_t pieces = args.packed ? args.columns / K_VECTOR : args.columns;
    if (args.post) {
        sm_post(&args, pieces);
    } else {
        sm_pre(&args, pieces);
    }
}
