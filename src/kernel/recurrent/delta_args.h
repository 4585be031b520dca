/* delta_args.h - arguments of the kernels of linear attention and of what stands around it.
 *
 * Tokens are rows of a packed batch, whose `starts` are as in kernel/core/packed_batch.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DELTA_ARGS_H
#define MP_KERNEL_DELTA_ARGS_H

#include "kernel/core/index_args.h"

enum {
    K_DELTA_KEEP = 16,          /* elements of a column of the state that a lane keeps */
    K_DELTA_SIZE_MAX = 512,     /* of a column: 32 lanes of those */
    K_DELTA_LANES = 128,        /* of a block */
    K_DELTA_AHEAD = 16,         /* tokens of a chunk of delta_ahead.cu */
    K_DELTA_TOKEN_COLUMNS = 64, /* of a block of delta_token.cu */
    K_DELTA_WIDTH = 8,          /* lanes of the columns that most models have, of 128 elements */
};
#define K_DELTA_GATES 16 /* bytes of a token's */

/* A state of `size` x `value` floats for each entry and head; its columns do not depend on each
 * other. */
typedef struct mp_delta_args {
    const void *q, *k, *v;
    const void *past; /* or NULL: zeros */
    const void *decay, *beta;
    const float *log_rate, *bias; /* of gate K_DELTA_GATE_QWEN, for each head */
    const int32_t *starts, *counts;
    void *out, *present;
    float *update; /* what changes the state at each of the first tokens, or NULL */
    int64_t batch, tokens, rows;
    int64_t q_pitch, k_pitch, v_pitch, out_pitch; /* from token to token */
    int64_t heads, k_heads, q_heads;              /* of the state; keys and queries are shared */
    int64_t row_step, column_step;                /* within a state */
    int64_t windows;  /* states that are kept: after the last token, the one before, ... */
    int64_t capacity; /* tokens of an entry that `update` has room for */
    int32_t size, value;
    int32_t padded;        /* `size`, filled up to what the lanes of a column keep */
    int32_t width;         /* lanes that share a column */
    int32_t chunk;         /* tokens that delta.cu brings to shared memory at a time */
    int32_t queries;       /* of a state: at least one */
    int32_t decays;        /* 0: not at all; 1: a factor for each head; 2: for each row too */
    int32_t retrieves;     /* the state holds what a key would give already */
    int32_t beta_heads;    /* 1: one for all heads */
    int32_t gates_wide;    /* decay and beta are float, otherwise of the type of the tokens */
    int32_t gate_rates;    /* the decay is -exp(log_rate) * softplus(decay + bias) */
    int32_t beta_sigmoids; /* beta goes through a sigmoid */
    int32_t normed;        /* keys and queries are brought to length 1 */
    float scale;
} mp_delta_args;

/* decay = rate * softplus(x + bias), beta = sigmoid(y); `heads` neighbours. */
typedef struct mp_delta_gate_args {
    const void *x, *y;
    const float *bias, *rate;
    void *decay, *beta;
    int64_t count, heads;
} mp_delta_gate_args;

enum { K_CAUSAL_CONV_OUT, K_CAUSAL_CONV_STATE };

enum { K_CAUSAL_CONV_TAPS = 4 }; /* that causal_conv_line.cu has, at most */

/* Each channel by its own kernel of `taps`, `dilation` tokens apart, the last at the token itself.
 * Before the first token of an entry lie the `state` tokens that `past` has kept. */
typedef struct mp_causal_conv_args {
    const void *x, *weight;
    const void *bias, *past; /* or NULL: zeros */
    const int32_t *starts, *counts;
    void *out, *present;
    void *update; /* the first tokens of each entry, as many as `counts` says, or NULL */
    int64_t batch, tokens, rows, channels;
    int64_t x_step[3], state_step[3]; /* entry, token, channel */
    int64_t taps, dilation, state;
    int64_t windows; /* states that are kept: after the last token, the one before, ... */
    int64_t capacity;
    int32_t channels_first; /* tokens of a channel are neighbours */
    int32_t silu;
    int32_t stage; /* K_CAUSAL_CONV_...: of causal_conv.cu */
    int32_t unused;
    int64_t packs; /* of causal_conv_line.cu: pieces of 16 bytes that the tokens of a channel are */
    k_divider by_packs, by_channels;
} mp_causal_conv_args;

#endif
