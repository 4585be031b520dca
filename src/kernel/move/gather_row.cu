/* gather_row.cu - picks many elements of each row, by indices of its own or those of all: the row
 * is brought into shared memory, from where lanes read any element at once. An index out of range,
 * which only a broken model has, reads the nearest element. U: of the indices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/move/indexed_args.h"

/* Neighbours that a lane picks, and what it reads and writes at once for them. */
enum { PICKED = K_GATHER_PICKED(sizeof(T)), WORD = 16 / sizeof(T) };
typedef union picked {
    T at[PICKED];
    uint32_t four;
    uint64_t eight;
    k_b128 sixteen;
} picked;
typedef struct K_ALIGN(PICKED * sizeof(U) < 16 ? PICKED * sizeof(U) : 16) places {
    U at[PICKED];
} places;
typedef struct K_ALIGN(16) word {
    T at[WORD];
} word;

K_FN T pick(const T *row, U place, int32_t length) {
    const int64_t index = place < 0 ? (int64_t)place + length : (int64_t)place;
    return row[index < 0 ? 0 : index >= length ? length - 1 : (int32_t)index];
}

K_FN void bring_row(const mp_gather_row_args *a, const T *x, T *row) {
    if (a->whole_words) {
        K_BLOCK_LOOP(k, a->length / WORD) {
            ((word *)row)[k] = ((const word *)x)[k];
        }
        return;
    }
    K_BLOCK_LOOP(k, a->length) {
        row[k] = x[k];
    }
}

K_FN places read_places(const U *at) {
    return *(const places *)at;
}

/* As one number: the compiler takes a run of what came from shared memory apart. */
K_FN void write_picked(T *out, const picked *made) {
    if (sizeof made->at == 16) {
        *(k_b128 *)out = made->sixteen;
    } else if (sizeof made->at == 8) {
        *(uint64_t *)out = made->eight;
    } else {
        *(uint32_t *)out = made->four;
    }
}

/* Run by run; `next` has the indices of the lane's first, so that those are on their way while the
 * row comes. */
K_FN void pick_runs(const mp_gather_row_args *a, const T *row, const U *own, places next, T *out) {
    const int32_t step = (int32_t)blockDim.x * PICKED;
    for (int32_t first = (int32_t)threadIdx.x * PICKED; first < a->picks; first += step) {
        const places now = next;
        if (first + step < a->picks) {
            next = read_places(own + first + step);
        }
        picked made;
        for (int32_t k = 0; k < PICKED; k++) {
            made.at[k] = pick(row, now.at[k], a->length);
        }
        write_picked(out + first, &made);
    }
}

K_BLOCK_KERNEL(mp_gather_row_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    const U *__restrict__ indices = (const U *)args.indices;
    T *__restrict__ out = (T *)args.out;
    const int32_t begin = (int32_t)threadIdx.x * PICKED;
    K_SHARED(T, row);
    for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
        const U *own = indices + r * args.index_step;
        T *to = out + r * args.picks;
        places next = {{0}};
        if (args.packed && begin < args.picks) {
            next = read_places(own + begin);
        }
        bring_row(&args, x + r * args.length, row);
        __syncthreads();
        if (args.packed) {
            pick_runs(&args, row, own, next, to);
        } else {
            K_BLOCK_LOOP(j, args.picks) {
                to[j] = pick(row, own[j], args.length);
            }
        }
        __syncthreads(); /* the row is done with */
    }
}
