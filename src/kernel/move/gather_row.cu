/* gather_row.cu - picks many elements of each row, by indices of its own or those of all: the row
 * is brought into shared memory, from where lanes read any element at once. An index out of range,
 * which only a broken model has, reads the nearest element. U: of the indices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/move/indexed_args.h"

/* Neighbours that a lane picks, and what it reads and writes at once for them. */
enum { PICKED = K_GATHER_PICKED(sizeof(T)), WORD = 16 / sizeof(T) };
typedef struct K_ALIGN(PICKED * sizeof(T)) picked {
    T at[PICKED];
} picked;
typedef struct K_ALIGN(PICKED * sizeof(U) < 16 ? PICKED * sizeof(U) : 16) places {
    U at[PICKED];
} places;
typedef struct K_ALIGN(16) word {
    T at[WORD];
} word;

/* The indices from number `first` on of a row; what is beyond its end is its first. */
K_FN places read_places(const mp_gather_row_args *a, const U *row, int32_t first) {
    places read;
    if (a->packed) {
        return *(const places *)(row + first);
    }
    for (int32_t k = 0; k < PICKED; k++) {
        read.at[k] = row[first + k < a->picks ? first + k : 0];
    }
    return read;
}

K_FN void write_picked(const mp_gather_row_args *a, T *row, int32_t first, picked made) {
    if (a->packed) {
        *(picked *)(row + first) = made;
        return;
    }
    const int32_t left = a->picks - first;
    K_ONE_COPY /* as four stores it would be joined with what is above, and that taken apart */
        for (int32_t k = 0; k < PICKED; k++) {
        if (k < left) {
            row[first + k] = made.at[k];
        }
    }
}

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

K_BLOCK_KERNEL(mp_gather_row_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    const U *__restrict__ indices = (const U *)args.indices;
    T *__restrict__ out = (T *)args.out;
    const int32_t step = (int32_t)blockDim.x * PICKED;
    const int32_t begin = (int32_t)threadIdx.x * PICKED;
    K_SHARED(T, row);
    for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
        const U *own = indices + r * args.index_step;
        places next;
        if (begin < args.picks) {
            next = read_places(&args, own, begin); /* on its way while the row comes */
        }
        bring_row(&args, x + r * args.length, row);
        __syncthreads();
        for (int32_t first = begin; first < args.picks; first += step) {
            const places now = next;
            if (first + step < args.picks) {
                next = read_places(&args, own, first + step);
            }
            picked made;
            for (int32_t k = 0; k < PICKED; k++) {
                made.at[k] = pick(row, now.at[k], args.length);
            }
            write_picked(&args, out + r * args.picks, first, made);
        }
        __syncthreads(); /* the row is done with */
    }
}
