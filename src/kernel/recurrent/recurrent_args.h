/* recurrent_args.h - arguments of the kernels of LSTM, GRU and RNN. Sizes: D directions, B entries,
 * H hidden units, G gates (LSTM 4: input, output, forget, cell; GRU 3: update, reset, hidden; RNN
 * 1).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RECURRENT_ARGS_H
#define MP_KERNEL_RECURRENT_ARGS_H

#include "kernel/core/types.h"

enum {
    K_RECURRENT_ROWS = 4,    /* entries that a block does at a time */
    K_RECURRENT_LANES = 512, /* of a block */
    K_RECURRENT_GATES = 4
};

/* Elements of R that a lane has at a time: of doubles 16 bytes, so that neighbouring lanes read
 * what lies side by side. */
#define K_RECURRENT_PIECE(size) ((size) == 8 ? 2 : 8)

typedef enum k_cell_kind {
    K_CELL_RNN = 1,
    K_CELL_GRU = 3,
    K_CELL_LSTM = 4
} k_cell_kind; /* gates */

typedef enum k_activation {
    K_ACT_SIGMOID,
    K_ACT_TANH,
    K_ACT_RELU,
    K_ACT_AFFINE,
    K_ACT_LEAKY_RELU,
    K_ACT_THRESHOLDED_RELU,
    K_ACT_SCALED_TANH,
    K_ACT_HARD_SIGMOID,
    K_ACT_ELU,
    K_ACT_SOFTSIGN,
    K_ACT_SOFTPLUS
} k_activation;

typedef struct k_activation_of {
    int32_t kind;
    float alpha, beta;
    int32_t unused;
} k_activation_of;

/* What a cell does, apart from how its products are made. */
typedef struct k_cell {
    const void *projected;         /* [D][time and entry][G * H]: W x of every step */
    const void *bias;              /* [D][2][G * H], or NULL */
    const void *peephole;          /* [D][3 * H]: input, output, forget; or NULL */
    const void *lengths;           /* int32 [B], or NULL: every sequence has all steps */
    const void *h_first, *c_first; /* of the type of X; NULL: zeros */
    void *y, *y_h, *y_c;           /* each may be NULL */
    int64_t steps, batch, hidden;
    int64_t x_step, x_batch;              /* rows of `projected` */
    int64_t y_step, y_direction, y_batch; /* elements */
    int64_t s_direction, s_batch;         /* elements of states as inputs and outputs */
    int32_t directions, reverse; /* reverse: of the only direction; of two it is the second */
    int32_t kind;
    int32_t linear_before_reset, input_forget;
    int32_t clipped;
    float clip;
    int32_t unused;
    k_activation_of act[2][3]; /* f, g, h of each direction */
} k_cell;

/* Steps [step_first, step_first + step_count) in one launch. With several blocks to a direction's
 * units only one step is possible, since blocks do not meet. */
typedef struct mp_recurrent_args {
    const void *recurrence; /* [D][G * H][H] */
    const void *h_from; /* [D][B][H] of accumulators: the state before, unless step_first is 0 */
    void *h_to;         /* the state after */
    void *c;            /* read and written */
    int64_t step_first, step_count;
    int64_t unit_blocks; /* that share the units of a direction */
    int32_t lanes;       /* that share a unit's products: K_RECURRENT_ROWS at least */
    int32_t wide;        /* rows of `recurrence` begin at multiples of 16 bytes */
    k_cell cell;
} mp_recurrent_args;

/* ---- all steps in one launch, by groups of blocks that meet ---- */

typedef enum k_recurrent_meet {
    K_MEET_ALONE,   /* a group is one block */
    K_MEET_CLUSTER, /* a cluster: states go to the shared memory of each of its blocks */
    K_MEET_GRID     /* blocks of a grid that are all there at once: states go through `state` */
} k_recurrent_meet;

/* What a warp has of R at a time: `K_TASK_WORDS` words in each lane, of K_TASK_VALUES / gates
 * tasks. A task is the rows of all gates of one unit over K_TASK_BYTES of their columns. */
enum { K_TASK_VALUES = 16, K_TASK_WORDS = 4, K_TASK_BYTES = 32 * K_TASK_WORDS * 4 };

/* A group has a direction and some entries; its blocks share the units. */
typedef struct mp_recurrent_group_args {
    const void *recurrence; /* [D][G * H][H] */
    void *state;            /* of K_MEET_GRID: float [3][groups][rows][H] */
    void *arrived;          /* of K_MEET_GRID: uint32_t [groups], zeros */
    int64_t entry_groups;   /* of a direction */
    int32_t meet;           /* k_recurrent_meet */
    int32_t blocks;         /* of a group */
    int32_t rows;           /* entries of a group, at most */
    int32_t units;          /* of a block, at most */
    int32_t pieces;         /* tasks of a unit */
    int32_t tasks;          /* of a block, filled up to whole warps */
    int32_t shared_tasks;   /* how many of them lie in shared memory, unless registers keep all */
    int32_t wide;           /* rows of `recurrence` may be read four elements at a time */
    k_cell cell;
} mp_recurrent_group_args;

/* ---- the same with products by tensor cores ---- */

/* Of a warp: tiles of 16 rows of R, and pieces of 64 bytes of their columns, for elements of `size`
 * bytes. Both take 64 registers a lane, and 64 columns. */
#define K_RECURRENT_MMA_TILES(size)  ((size) == 2 ? 4 : 2)
#define K_RECURRENT_MMA_PIECES(size) ((size) == 2 ? 2 : 4)
enum {
    K_RECURRENT_MMA_DEPTH = 64, /* columns of a warp */
    K_RECURRENT_MMA_SIDE = 8,   /* entries of a right operand */
    K_RECURRENT_MMA_APART = 32  /* words from a group's count to the next one's */
};
/* Floats of shared memory before the sums: states, biases. */
#define K_RECURRENT_MMA_HELD(units, sides, gates) \
    (((units) * (sides)*K_RECURRENT_MMA_SIDE * 2 + (units) * ((gates) + 1) + 3) / 4 * 4)

typedef struct mp_recurrent_mma_args {
    const void *recurrence; /* [D][G * H][H] */
    void *meeting;          /* zeros: counts [groups], states [2 or 3][groups][sides * 8][pitch] */
    int64_t entry_groups;   /* of a direction */
    int32_t blocks;         /* of a group */
    int32_t entries;        /* of a group, at most */
    int32_t sides;          /* of eight entries each */
    int32_t units;          /* of a block, at most */
    int32_t depth_warps;    /* that share a row of R */
    int32_t tile_warps;     /* that share the rows of a block */
    int32_t pitch;          /* elements of a state: 64 for each of depth_warps */
    int32_t wide;           /* rows of `recurrence` may be read 16 bytes at a time */
    k_cell cell;
} mp_recurrent_mma_args;

typedef enum k_cell_phase {
    K_PHASE_ALL,
    K_PHASE_GATES, /* GRU that resets before the product: update and reset */
    K_PHASE_HIDDEN,
    K_PHASE_BEGIN /* the first state */
} k_cell_phase;

/* One step, element by element, whose products h R^T are there. */
typedef struct mp_recurrent_cell_args {
    const void *product;  /* [D][B][G * H], or of a phase's gates only */
    void *h;              /* [D][B][H] of the type of X */
    void *c;              /* [D][B][H] of accumulators */
    void *update, *reset; /* GRU: z of accumulators, r (.) h of the type of X */
    int64_t step;
    int32_t phase, unused;
    k_cell cell;
} mp_recurrent_cell_args;

/* ---- LSTM with weights of 8 bits, activations quantised on the way ---- */

enum { K_QUANT_BLOCKS = 256 /* parts of a tensor whose ranges are found apart */ };

typedef struct mp_quantized_range_args {
    const void *x;
    void *range; /* float [blocks][2]: least and largest, 0 included */
    int64_t count;
} mp_quantized_range_args;

typedef struct mp_quantized_rows_args {
    const void *x, *range;
    void *out;       /* uint8 */
    void *parameter; /* float [2]: scale and zero point */
    int64_t count;
    int64_t parts; /* of the range */
} mp_quantized_rows_args;

/* How a weight matrix [D][N][K] is read: one scale and zero point for each direction or column. */
typedef struct k_quantized {
    const void *weight, *scale, *zero;
    int64_t columns, depth;
    int32_t per_column, is_signed;
} k_quantized;

/* out[D][M][N] = (a - za) (w - zw)^T scaled, with a uint8 [M][K] for all directions. */
typedef struct mp_quantized_product_args {
    const void *a, *parameter;
    void *out;
    int64_t rows, directions;
    int64_t tiles_down, tiles_across;
    k_quantized w;
} mp_quantized_product_args;

typedef struct mp_quantized_lstm_args {
    void *h, *c; /* float [D][B][H] */
    void *bytes; /* uint8 [D][B][pitch]: h, quantised; NULL: in shared memory */
    int64_t pitch;
    int32_t lanes, wide;
    k_quantized r;
    k_cell cell;
} mp_quantized_lstm_args;

/* A direction's units are shared by a cluster of `blocks`; the state of all entries is in each. */
typedef struct mp_quantized_group_args {
    int32_t blocks, units; /* units of a block, at most */
    int32_t lanes;         /* that share a row of R */
    int32_t pitch;         /* words from a row of R to the next, in shared memory */
    int32_t wide;
    k_quantized r;
    k_cell cell;
} mp_quantized_group_args;
/* Bytes of shared memory: two states, c, the state as bytes, R, and for each of its rows its sum
 * and the products of an entry, the entries' own sums, the ranges that warps find. */
#define K_QUANTIZED_GROUP_PITCH(hidden) (((hidden) / 4 + 32) / 32 * 32 + 4)
#define K_QUANTIZED_GROUP_WORDS(hidden) (((hidden) + 3) / 4)
#define K_QUANTIZED_GROUP_HELD(batch, hidden, units)                                \
    (4 * ((batch) * (2 * (hidden) + (units) + K_QUANTIZED_GROUP_WORDS(hidden)) +    \
          4 * (units) * (K_QUANTIZED_GROUP_PITCH(hidden) + 1 + (batch)) + (batch) + \
          K_RECURRENT_LANES / 32 * 2))

#endif
