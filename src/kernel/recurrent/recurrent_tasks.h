/* recurrent_tasks.h - R v for the units of a block, by tasks: the rows of all gates of a unit over
 * TASK_SPAN columns are multiplied by a whole warp, each lane a few elements of each row. A warp
 * has TASKS tasks at a time in registers, where K_KEPT says from the first step to the last;
 * otherwise it brings them from shared memory, and what had no room there from R, at every step.
 *
 *     lane l, word n:  elements k = 4 l + (n of f32, 2 n and 2 n + 1 of 16 bits), of which those
 *                      beyond the fourth lie 128 columns further on, so that the lanes of a warp
 *                      read neighbouring floats of v
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RECURRENT_TASKS_H
#define MP_KERNEL_RECURRENT_TASKS_H

#include "kernel/recurrent/recurrent_args.h"

enum {
    GATES = K_GATES,
    TASKS = K_TASK_VALUES / GATES,
    WARP = 32,
    PER_WORD = 4 / sizeof(T),
    QUADS = K_TASK_WORDS / sizeof(T), /* of neighbouring columns in a lane */
    QUAD_STEP = WARP * 4,
    TASK_SPAN = K_TASK_BYTES / sizeof(T)
};

/* What the tasks of a block are. */
typedef struct t_block {
    const T *r;            /* of the direction */
    int64_t hidden, first; /* unit */
    int32_t units;         /* of this block: the last ones may have fewer or none */
    int32_t rows;          /* of v */
    int32_t pitch;         /* of v, which is 0 from `hidden` on */
    int32_t pieces, tasks; /* as in mp_recurrent_group_args */
    int32_t shared_tasks, wide;
    uint32_t *words; /* [shared_tasks][GATES][WARP][K_TASK_WORDS] */
    float *partial;  /* [rows][tasks][GATES] */
} t_block;

#if K_HOST

/* One lane for a warp, and R from where it is. */
typedef struct t_weights {
    int32_t unused;
} t_weights;

K_FN void t_begin(const t_block *b, t_weights *kept) {
    (void)b;
    kept->unused = 0;
}

K_FN void t_products(const t_block *b, const t_weights *kept, const float *v) {
    (void)kept;
    for (int64_t i = threadIdx.x; i < (int64_t)b->units * b->pieces; i += blockDim.x) {
        const int64_t unit = b->first + i / b->pieces, begin = i % b->pieces * TASK_SPAN;
        const int64_t end = begin + TASK_SPAN < b->hidden ? begin + TASK_SPAN : b->hidden;
        for (int32_t g = 0; g < GATES; g++) {
            const T *row = b->r + (g * b->hidden + unit) * b->hidden;
            for (int32_t n = 0; n < b->rows; n++) {
                const float *x = v + (int64_t)n * b->pitch;
                double sum[4] = {0, 0, 0, 0};
                for (int64_t k = begin; k < end; k++) {
                    sum[k % 4] += (double)T_load(row[k]) * (double)x[k];
                }
                b->partial[((int64_t)n * b->tasks + i) * GATES + g] =
                    (float)((sum[0] + sum[1]) + (sum[2] + sum[3]));
            }
        }
    }
}

#else

/* Elements of 16 bits stay in words: one by one, each would have a register of its own. */
typedef struct t_weights {
    uint32_t of[TASKS][GATES][K_TASK_WORDS];
} t_weights;

typedef struct K_ALIGN(4 * sizeof(T)) t_quad {
    uint32_t word[sizeof(T)];
} t_quad;

typedef union t_elements {
    T of[4];
    t_quad quad;
} t_elements;

typedef union t_word {
    uint32_t word;
    T of[PER_WORD];
} t_word;

typedef struct K_ALIGN(16) t_floats {
    float of[4];
} t_floats;

/* Elements k ... k + 3 of a row; 0 beyond its end. */
K_FN t_quad t_read(const t_block *b, const T *row, int64_t k) {
    t_elements made;
    if (b->wide && k < b->hidden) {
        return *(const t_quad *)(const void *)(row + k);
    }
    K_UNROLL for (int32_t e = 0; e < 4; e++) {
        made.of[e] = k + e < b->hidden ? row[k + e] : T_store((TC)0);
    }
    return made.quad;
}

/* Task `task` from R; zeros where there is none. */
K_FN void t_from_r(const t_block *b, int32_t task, int32_t lane, uint32_t (*out)[K_TASK_WORDS]) {
    const int32_t unit = task / b->pieces, piece = task - unit * b->pieces;
    const int32_t there = unit < b->units;
    const T *row = b->r + (there ? b->first + unit : 0) * b->hidden;
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        K_UNROLL for (int32_t q = 0; q < QUADS; q++) {
            const int64_t k = (int64_t)piece * TASK_SPAN + q * QUAD_STEP + lane * 4;
            const t_quad quad =
                t_read(b, row + (int64_t)g * b->hidden * b->hidden, there ? k : b->hidden);
            K_UNROLL for (int32_t n = 0; n < (int32_t)sizeof(T); n++) {
                out[g][q * sizeof(T) + n] = quad.word[n];
            }
        }
    }
}

K_FN uint32_t *t_place(const t_block *b, int32_t task, int32_t gate, int32_t lane) {
    return b->words + ((int64_t)(task * GATES + gate) * WARP + lane) * K_TASK_WORDS;
}

typedef struct K_ALIGN(16) t_words {
    uint32_t of[K_TASK_WORDS];
} t_words;

K_FN void t_to_shared(const t_block *b, int32_t task, int32_t lane, uint32_t (*in)[K_TASK_WORDS]) {
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        t_words words;
        K_UNROLL for (int32_t n = 0; n < K_TASK_WORDS; n++) {
            words.of[n] = in[g][n];
        }
        *(t_words *)(void *)t_place(b, task, g, lane) = words;
    }
}

K_FN void t_from_shared(const t_block *b, int32_t task, int32_t lane,
                        uint32_t (*out)[K_TASK_WORDS]) {
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        const t_words words = *(const t_words *)(const void *)t_place(b, task, g, lane);
        K_UNROLL for (int32_t n = 0; n < K_TASK_WORDS; n++) {
            out[g][n] = words.of[n];
        }
    }
}

/* Before the first step. A lane reads from shared memory only what it wrote there. */
K_FN void t_begin(const t_block *b, t_weights *kept) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, warp = (int32_t)threadIdx.x / WARP;
    const int32_t step = (int32_t)blockDim.x / WARP * TASKS;
#if K_KEPT
    (void)step;
    K_UNROLL for (int32_t i = 0; i < TASKS; i++) {
        t_from_r(b, warp * TASKS + i, lane, kept->of[i]);
    }
#else
    (void)kept;
    for (int32_t first = warp * TASKS; first < b->shared_tasks; first += step) {
        K_ONE_COPY for (int32_t i = 0; i < TASKS; i++) {
            uint32_t words[GATES][K_TASK_WORDS];
            t_from_r(b, first + i, lane, words);
            t_to_shared(b, first + i, lane, words);
        }
    }
#endif
}

/* One halving: lanes whose bit `half` * 2 is set go on with the upper values, others with the lower
 * ones, each with what the other had of them added. */
#define T_HALVE(half)                                                    \
    K_UNROLL for (int32_t i = 0; i < (half); i++) {                      \
        const int32_t upper = (lane & ((half)*2)) != 0;                  \
        const float mine = upper ? value[i + (half)] : value[i];         \
        const float other = upper ? value[i] : value[i + (half)];        \
        value[i] = mine + __shfl_xor_sync(0xffffffffu, other, (half)*2); \
    }

/* The sums over the warp of K_TASK_VALUES values: that of value i comes to lanes 2 i and 2 i + 1.
 * Both halves of each pair add the same two numbers. */
K_FN float t_meet(float (&value)[K_TASK_VALUES], int32_t lane) {
    T_HALVE(8)
    T_HALVE(4)
    T_HALVE(2)
    T_HALVE(1)
    return value[0] + __shfl_xor_sync(0xffffffffu, value[0], 1);
}

/* The word, unpacked where it is used: compilers would do so once, before the first step, into more
 * registers than there are. */
K_FN uint32_t t_here(uint32_t word) {
    if (sizeof(T) == 2) {
        asm volatile("" : "+r"(word));
    }
    return word;
}

/* One row of v by the tasks from `first` on. */
K_FN void t_row(const t_block *b, const t_weights *w, const float *v, int32_t row, int32_t first,
                int32_t begin, int32_t lane) {
    float value[K_TASK_VALUES];
    const float *x = v + (int64_t)row * b->pitch + lane * 4;
    int32_t column = begin;
    K_UNROLL for (int32_t i = 0; i < K_TASK_VALUES; i++) {
        value[i] = 0;
    }
    K_UNROLL for (int32_t i = 0; i < TASKS; i++) {
        K_UNROLL for (int32_t q = 0; q < QUADS; q++) {
            const t_floats at = *(const t_floats *)(const void *)(x + column + q * QUAD_STEP);
            K_UNROLL for (int32_t g = 0; g < GATES; g++) {
                K_UNROLL for (int32_t n = 0; n < (int32_t)sizeof(T); n++) {
                    t_word weight;
                    weight.word = t_here(w->of[i][g][q * sizeof(T) + n]);
                    K_UNROLL for (int32_t e = 0; e < PER_WORD; e++) {
                        value[i * GATES + g] +=
                            (float)T_load(weight.of[e]) * at.of[n * PER_WORD + e];
                    }
                }
            }
        }
        column += TASK_SPAN;
        column = column == b->pitch ? 0 : column;
    }
    const float sum = t_meet(value, lane);
    if (lane % 2 == 0 && lane / 2 < TASKS * GATES) {
        b->partial[((int64_t)row * b->tasks + first) * GATES + lane / 2] = sum;
    }
}

/* R v of all tasks of the block and all rows of v, to `partial`. */
K_FN void t_products(const t_block *b, const t_weights *kept, const float *v) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, warp = (int32_t)threadIdx.x / WARP;
    int32_t first = warp * TASKS;
#if K_KEPT
    const int32_t begin = first % b->pieces * TASK_SPAN;
    if (first < b->tasks) {
        K_ONE_COPY for (int32_t row = 0; row < b->rows; row++) {
            t_row(b, kept, v, row, first, begin, lane);
        }
    }
#else
    (void)kept;
    for (; first < b->tasks; first += (int32_t)blockDim.x / WARP * TASKS) {
        const int32_t begin = first % b->pieces * TASK_SPAN;
        t_weights brought;
        K_UNROLL for (int32_t i = 0; i < TASKS; i++) {
            if (first < b->shared_tasks) {
                t_from_shared(b, first + i, lane, brought.of[i]);
            } else {
                t_from_r(b, first + i, lane, brought.of[i]);
            }
        }
        K_ONE_COPY for (int32_t row = 0; row < b->rows; row++) {
            t_row(b, &brought, v, row, first, begin, lane);
        }
    }
#endif
}

#endif

#endif
