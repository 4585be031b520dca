/* rotary_append.cu - what becomes of the new tokens of a decoder before attention, in one go: heads
 * of queries and of keys are rotated, also normalised before, and keys and values may go straight
 * to their places in the caches, which may grow: then their other rows are those of the past, and
 * behind them zeros. A lane takes two pieces of 16 bytes, which hold pairs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/rotary.h"
#include "kernel/core/index.h"

/* Rows of the caches before an entry's first new token, and the place of that token. */
typedef struct n_first {
    int64_t row, position;
} n_first;

K_FN n_first n_first_of(const mp_rotary_append_args *args, int64_t length) {
    const int64_t known = args->lengths != 0 ? length + args->past_more : args->past_rows;
    const int64_t before = args->prompt ? 0 : known;
    const int64_t most = args->present_rows - args->rows;
    const int64_t row = before < 0 ? 0 : before < most ? before : most;
    const n_first first = {row, args->placed ? row : before};
    return first;
}

/* Where the angles of a token begin. */
K_FN int64_t n_angles(const mp_rotary_append_args *args, int64_t entry, int64_t head, int64_t row,
                      int64_t first) {
    const int64_t last = args->cache_rows - 1, token = entry * args->rows + row;
    int64_t position = first + row;
    if (args->position_kind == K_POSITION_STRIDED) {
        return entry * args->cache_stride[0] + head * args->cache_stride[1] +
               row * args->cache_stride[2];
    }
    if (args->position_kind == K_POSITION_GIVEN) {
        position = ((const int64_t *)args->positions)[token];
    } else if (args->position_kind == K_POSITION_TOKEN) {
        position = token;
    } else if (args->position_kind == K_POSITION_PAST) {
        position = args->past + row;
    }
    return (position < 0 ? 0 : position < last ? position : last) * args->half;
}

K_FN n_first n_first_at(const mp_rotary_append_args *args, uint32_t entry) {
    return n_first_of(args, args->lengths != 0 ? ((const int32_t *)args->lengths)[entry] : 0);
}

/* Two pieces of a row of a growing cache, unless the row is a new token's. */
K_FN void n_keep(const mp_rotary_append_args *args, uint32_t i) {
    const uint32_t line = k_divide(i, args->by_pieces);
    const uint32_t unit = k_divide(line, args->by_present);
    const uint32_t any = k_divide(unit, args->by_kv_heads);
    const uint32_t side = k_divide(any, args->by_batch);
    const int64_t heads = args->first[2] - args->first[1];
    const int64_t head = unit - any * (uint32_t)heads;
    const int64_t row = line - (int64_t)unit * args->present_rows;
    const int64_t entry = any - (int64_t)side * args->batch;
    const int64_t first = n_first_at(args, (uint32_t)entry).row;
    const k_rotary_side *s = &args->side[1 + side];
    const int64_t size = (int64_t)args->pieces * 2 * PACK;
    const int64_t at = (int64_t)(i - line * (uint32_t)args->pieces) * 2 * PACK;
    T *out = (T *)s->out + entry * s->out_stride[0] + head * s->out_stride[1] +
             row * s->out_stride[2] + at;
    r_pack a = {0}, b = {0};
    if (row >= first && row < first + args->rows) {
        return;
    }
    if (row < first && row < args->past_rows) {
        const T *past = (const T *)args->old[side] +
                        ((entry * heads + head) * args->past_rows + row) * size + at;
        a = r_read(past);
        b = r_read(past + PACK);
    }
    r_write(out, a);
    r_write(out + PACK, b);
}

/* 1 by the root mean square of a head. Each lane of the head reads all of it, which the others
 * read, too, rather than wait for them. */
K_FN float n_inverse(const k_rotary_side *s, const T *x, int32_t size) {
    float squares = 0;
    for (int32_t at = 0; at < size; at += PACK) {
        const r_pack pack = r_read(x + at);
        float sum = 0;
        K_UNROLL for (int32_t i = 0; i < PACK; i++) {
            const float a = T_load(pack.item[i]);
            sum += a * a;
        }
        squares += sum;
    }
    return 1.0f / sqrtf(squares / (float)size + s->epsilon);
}

K_FN void n_norm(const k_rotary_side *s, float inverse, int32_t at, r_pack *x) {
    const r_pack weight = r_read((const T *)s->weight + at);
    K_UNROLL for (int32_t i = 0; i < PACK; i++) {
        x->item[i] = r_normed(x->item[i], weight.item[i], inverse);
    }
}

K_KERNEL(mp_rotary_append_args, args) {
    K_GRID_LOOP(i, args.count + args.kept) {
        if (i >= args.count) {
            n_keep(&args, (uint32_t)(i - args.count));
            continue;
        }
        const uint32_t line = k_divide((uint32_t)i, args.by_pieces);
        const uint32_t token = k_divide(line, args.by_heads);
        const uint32_t entry = k_divide(token, args.by_rows);
        const int32_t piece = (int32_t)((uint32_t)i - line * (uint32_t)args.pieces) * PACK;
        const int32_t any = (int32_t)(line - token * (uint32_t)args.heads);
        const int64_t row = token - entry * (uint32_t)args.rows;
        const int32_t side = (any >= args.first[1]) + (any >= args.first[2]);
        const k_rotary_side *s = &args.side[side];
        const int64_t head = any - args.first[side];
        const T *x =
            (const T *)s->x + entry * s->x_stride[0] + head * s->x_stride[1] + row * s->x_stride[2];
        const int32_t is_turned = piece < args.half && side < 2;
        const int32_t is_split = piece < args.half && !args.interleaved;
        const int32_t at = is_split ? piece : 2 * piece;
        const int32_t other = is_split ? piece + args.half : at + PACK;
        r_pack a = r_read(x + at), b = r_read(x + other);
        const n_first first = n_first_at(&args, entry);
        if (s->weight) {
            const float inverse = n_inverse(s, x, args.pieces * 2 * PACK);
            n_norm(s, inverse, at, &a);
            n_norm(s, inverse, other, &b);
        }
        if (is_turned) {
            const int64_t angle = n_angles(&args, entry, head, row, first.position) + piece;
            const r_pack cosine = r_read((const T *)args.cosine + angle);
            const r_pack sine = r_read((const T *)args.sine + angle);
            if (args.interleaved) {
                r_turn_packs(&a, &b, &cosine, &sine, 1, args.scale);
            } else {
                r_turn_packs(&a, &b, &cosine, &sine, 0, args.scale);
            }
        }
        T *out = (T *)s->out + entry * s->out_stride[0] + head * s->out_stride[1] +
                 (row + (s->appends ? first.row : 0)) * s->out_stride[2];
        r_write(out + at, a);
        r_write(out + other, b);
    }
}
