/* topk_few.cu - the first k elements of each piece of a row in order, where a block has many more
 * lanes than k; or, of pairs that were found so, the first k of them.
 *
 *     a lane's best   each lane sees its part of the piece, and keeps the best
 *     the limit       the k-th of the lanes' bests, found bit by bit with all lanes counting: at
 *                     least k elements are as good, and those of k lanes only can be
 *     the list        these lanes look again and list what is within the limit: little more than k
 *                     elements as a rule, and never more than the list has room for
 *     the order       the list is sorted
 *
 * Equal keys keep the order of their places, so the limit is a key and a place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"
#include "kernel/rows/topk_sort.h"

#define NOWHERE (~(uint32_t)0)

/* What is looked at: 16 bytes, with one pair or a pack of elements. */
#if K_PAIRS
enum { UNIT = 1, AT_ONCE = K_HOST ? 1 : 4 };
typedef uint64_t bits;
typedef k_pair unit;
#else
enum { UNIT = K_PACK, AT_ONCE = K_HOST ? 1 : sizeof(T) == 1 ? 2 : 4 };
typedef k_pack unit;
/* Keys of up to 32 bits are compared as such. */
#if K_HOST
typedef __typeof__((T)0 | (uint32_t)0) bits;
#else
typedef decltype((T)0 | (uint32_t)0) bits;
#endif
#endif

/* ---- a piece ---- */

/* Places count from its first element or pair, of which there are `count`. */
typedef struct piece {
    const unit *units; /* from the first 16 aligned bytes that it touches */
    int64_t row, start;
    int32_t count, shift; /* by how many elements it begins after `units` */
} piece;

K_FN piece piece_at(const mp_topk_few_args *args, int64_t number) {
    piece p;
    p.row = args->pieces == 1 ? number : number / args->pieces;
    p.start = (number - p.row * args->pieces) * args->piece;
    const int64_t left = args->columns - p.start, at = p.row * args->columns + p.start;
    p.count = (int32_t)(left < args->piece ? left : args->piece);
#if K_PAIRS
    p.shift = 0;
    p.units = args->from + at;
#else
    const T *x = (const T *)args->x + at;
    p.shift = k_row_shift(x);
    p.units = (const unit *)(x - p.shift);
#endif
    return p;
}

#if K_PAIRS
K_FN bits key_in(const mp_topk_few_args *args, unit u, int i) {
    (void)args;
    (void)i;
    return u.key;
}
K_FN bits key_at(const mp_topk_few_args *args, piece p, int32_t place) {
    (void)args;
    return p.units[place].key;
}
#else
/* As k_order_key makes it, of as many bits as the type has or of 32, and without branches: what
 * sets floats apart are other constants. */
K_FN bits key_of(const mp_topk_few_args *args, T element) {
    const int real = args->order.inf != 0;
    const bits x = element, sign = (bits)args->order.sign, all = (bits)args->order.all;
    const bits below = real ? all : sign, zero = real ? sign : 0;
    const bits most = real ? (bits)args->order.inf : all;
    bits key = x ^ ((x & sign) != 0 ? below : sign);
    key = x == sign ? zero : key;
    key = (x & ~sign) > most ? all : key;
    return key ^ (bits)args->order.flip;
}
K_FN bits key_in(const mp_topk_few_args *args, unit u, int i) {
    return key_of(args, u.at[i]);
}
K_FN bits key_at(const mp_topk_few_args *args, piece p, int32_t place) {
    return key_of(args, ((const T *)p.units)[p.shift + place]);
}
#endif

/* ---- what is seen ---- */

typedef struct list {
    uint64_t *key;
    uint32_t *place, *count;
} list;

/* A key and a place. */
typedef struct point {
    bits key;
    uint32_t place;
} point;

K_FN int within(point p, point limit) {
    return (p.key < limit.key) | ((p.key == limit.key) & (p.place <= limit.place));
}

/* The emulated device has no lanes whose bests make a limit where a
 * block has one lane: there the list is cut to the first k whenever it is full. */
K_FN void put_in_list(const mp_topk_few_args *args, piece p, int32_t place, list l) {
#if K_HOST
    if (*l.count == (uint32_t)args->room) {
        k_sort_list(l.key, l.place, *l.count);
        *l.count = (uint32_t)args->k;
    }
    const uint32_t at = (*l.count)++;
#else
    const uint32_t at = atomicAdd(l.count, 1);
#endif
    l.key[at] = key_at(args, p, place);
    l.place[at] = (uint32_t)place;
}

/* ---- walks over a piece ---- */

/* How many elements are before and behind the whole units of a piece, where those behind begin, and
 * how many such units there are. */
typedef struct edges {
    int32_t before, behind, all, whole;
} edges;

K_FN edges edges_of(piece p) {
    const int32_t end = p.count + p.shift, whole = end / UNIT;
    const int32_t before = p.shift == 0 ? 0 : (end < UNIT ? end : UNIT) - p.shift;
    const int32_t inside = whole * UNIT - p.shift;
    edges e = {before, inside > before ? inside : before, 0, whole};
    e.all = before + p.count - e.behind;
    return e;
}

K_FN int32_t edge_place(edges e, int32_t j) {
    return j < e.before ? j : e.behind + j - e.before;
}

#define UNIT_LOOP(i, p, e) \
    K_ONE_COPY             \
    for (int32_t i = ((p).shift > 0) + (int32_t)threadIdx.x; i < (e).whole; i += AT_ONCE * step)
#define EDGE_LOOP(j, e) \
    K_ONE_COPY          \
    for (int32_t j = (int32_t)threadIdx.x; j < (e).all; j += step)

/* Unit `k` of those that a lane takes at once from unit `i` on; unit `i` where there is no such. */
K_FN int32_t unit_place(edges e, int32_t i, int k) {
    const int32_t here = i + k * (int32_t)blockDim.x;
    return here < e.whole ? here : i;
}

K_FN void load_units(piece p, edges e, int32_t i, unit *u) {
    K_UNROLL
    for (int k = 0; k < AT_ONCE; k++) {
        u[k] = p.units[unit_place(e, i, k)];
    }
}

K_FN void see(point *best, bits key, int32_t place) {
    const int wins = (key < best->key) | ((key == best->key) & ((uint32_t)place < best->place));
    best->key = wins ? key : best->key;
    best->place = wins ? (uint32_t)place : best->place;
}

/* The first in order of this lane's part. */
K_FN point best_of(const mp_topk_few_args *args, piece p) {
    const int32_t step = (int32_t)blockDim.x;
    const edges e = edges_of(p);
    point best = {(bits) ~(bits)0, NOWHERE};
    UNIT_LOOP(at, p, e) {
        unit u[AT_ONCE];
        load_units(p, e, at, u);
        K_UNROLL
        for (int i = 0; i < AT_ONCE * UNIT; i++) {
            const int32_t first = unit_place(e, at, i / UNIT) * UNIT - p.shift;
            see(&best, key_in(args, u[i / UNIT], i % UNIT), first + i % UNIT);
        }
    }
    EDGE_LOOP(j, e) {
        const int32_t place = edge_place(e, j);
        see(&best, key_at(args, p, place), place);
    }
    return best;
}

/* Lists what is within the limit of this lane's part. */
K_FN void list_part(const mp_topk_few_args *args, piece p, point limit, list l) {
    const int32_t step = (int32_t)blockDim.x;
    const edges e = edges_of(p);
    UNIT_LOOP(at, p, e) {
        unit u[AT_ONCE];
        uint32_t found = 0; /* few are: one copy of what lists them */
        load_units(p, e, at, u);
        K_UNROLL
        for (int i = 0; i < AT_ONCE * UNIT; i++) {
            const int32_t here = at + i / UNIT * step;
            const point seen = {key_in(args, u[i / UNIT], i % UNIT),
                                (uint32_t)(here * UNIT - p.shift + i % UNIT)};
            found |= (uint32_t)((here < e.whole) & within(seen, limit)) << i;
        }
        K_ONE_COPY
        for (int32_t i = 0; i < AT_ONCE * UNIT && found >> i != 0; i++) {
            if ((found >> i & 1) != 0) {
                put_in_list(args, p, (at + i / UNIT * step) * UNIT - p.shift + i % UNIT, l);
            }
        }
    }
    EDGE_LOOP(j, e) {
        const int32_t place = edge_place(e, j);
        const point seen = {key_at(args, p, place), (uint32_t)place};
        if (within(seen, limit)) {
            put_in_list(args, p, place, l);
        }
    }
}

/* ---- the limit ---- */

/* Of how many lanes it is true; all of the block ask. */
K_FN int32_t lanes_of(int is) {
#if K_HOST
    return (int32_t)k_block_sum_i64(is != 0);
#else
    return __syncthreads_count(is);
#endif
}

/* The k-th of the lanes' bests; beyond everything where fewer than k lanes have one. */
K_FN point limit_of(const mp_topk_few_args *args, point best) {
    const int32_t k = (int32_t)args->k;
    point limit = {0, NOWHERE};
    K_ONE_COPY
    for (int32_t bit = args->bits - 1; bit >= 0; bit--) {
        const bits higher = limit.key | (bits)1 << bit;
        limit.key = lanes_of(best.key < higher) < k ? higher : limit.key;
    }
    if (lanes_of(best.key <= limit.key) <= k) {
        return limit;
    }
    limit.place = 0;
    K_ONE_COPY
    for (int32_t bit = K_TOPK_PLACE_BITS - 1; bit >= 0; bit--) {
        const uint32_t higher = limit.place | 1u << bit;
        const int before = best.key < limit.key || (best.key == limit.key && best.place < higher);
        limit.place = lanes_of(before) < k ? higher : limit.place;
    }
    return limit;
}

/* ---- the list ---- */

K_FN void list_sort(list l) {
    const uint32_t count = *l.count;
    uint32_t size = 2;
    while (size < count) {
        size *= 2;
    }
    for (uint32_t i = count + threadIdx.x; i < size; i += blockDim.x) {
        l.key[i] = ~(uint64_t)0;
        l.place[i] = NOWHERE;
    }
    k_sort_list(l.key, l.place, size);
}

/* The first k of the list as results, or as pairs for a later launch; of a short piece pairs of
 * nothing fill what is left, which are behind all others of the row. */
K_FN void list_out(const mp_topk_few_args *args, piece p, int64_t number, list l) {
    const int64_t count = *l.count;
    K_BLOCK_LOOP(i, args->k) {
        k_pair pair;
        pair.key = ~(uint64_t)0;
        pair.index = 0;
        if (i < count) {
            pair.key = l.key[i];
#if K_PAIRS
            pair.index = p.units[l.place[i]].index;
#else
            pair.index = p.start + l.place[i];
#endif
        }
        if (args->to) {
            args->to[number * args->k + i] = pair;
            continue;
        }
        if (args->values) {
            ((T *)args->values)[p.row * args->k + i] =
                ((const T *)args->x)[p.row * args->row + pair.index];
        }
        if (args->indices) {
            args->indices[p.row * args->k + i] = pair.index;
        }
    }
}

K_BLOCK_KERNEL_IN_64(K_TOPK_LANES_MAX, mp_topk_few_args, args) {
    K_SHARED(uint64_t, key);
    list l;
    l.key = key;
    l.place = (uint32_t *)(key + args.room);
    l.count = l.place + args.room;
    for (int64_t number = blockIdx.x; number < args.rows * args.pieces; number += gridDim.x) {
        const piece p = piece_at(&args, number);
        if (threadIdx.x == 0) {
            *l.count = 0;
        }
        const point best = best_of(&args, p);
        const point limit = limit_of(&args, best);
        if (within(best, limit)) {
            list_part(&args, p, limit, l);
        }
        __syncthreads();
        list_sort(l);
        list_out(&args, p, number, l);
        __syncthreads();
    }
}
