/* causal_conv.cu - a convolution along the tokens of each channel, which sees none that come later,
 * and the tokens that are kept for the next run. The kept ones are written by a second launch, a
 * lane a channel in the order in which they are read, so that they may replace those of the past.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/packed_batch.h"
#include "kernel/recurrent/delta_args.h"

typedef struct c_line { /* a channel of an entry */
    const T *x, *past;
    int64_t step, past_step, state;
} c_line;

K_FN c_line c_line_of(const mp_causal_conv_args *args, int64_t entry, int64_t first,
                      int64_t channel) {
    const int64_t window = (args->windows > 0 ? args->windows - 1 : 0) * args->batch;
    c_line line;
    line.x = (const T *)args->x + channel * args->x_step[2] +
             (args->starts ? first * args->x_step[1] : entry * args->x_step[0]);
    line.past = 0;
    if (args->past) {
        line.past = (const T *)args->past + (window + entry) * args->state_step[0] +
                    channel * args->state_step[2];
    }
    line.step = args->x_step[1];
    line.past_step = args->state_step[1];
    line.state = args->state;
    return line;
}

/* The token at `at`, those before 0 being of the past. */
K_FN T c_token(const c_line *line, int64_t at) {
    if (at >= 0) {
        return line->x[at * line->step];
    }
    return line->past ? line->past[(line->state + at) * line->past_step] : T_store(0.0f);
}

K_FN float c_convolved(const mp_causal_conv_args *args, const c_line *line, int64_t row,
                       int64_t channel) {
    const T *weight = (const T *)args->weight + channel * args->taps;
    float sum = args->bias ? T_load(((const T *)args->bias)[channel]) : 0.0f;
    for (int64_t tap = 0; tap < args->taps; tap++) {
        const int64_t at = row - (args->taps - 1 - tap) * args->dilation;
        sum += T_load(weight[tap]) * T_load(c_token(line, at));
    }
    return args->silu ? sum / (1.0f + expf(-sum)) : sum;
}

K_FN void c_out(const mp_causal_conv_args *args) {
    K_GRID_LOOP(i, args->tokens * args->channels) {
        int64_t token, channel, entry, row;
        if (args->channels_first) {
            const int64_t line = i / args->rows;
            row = i - line * args->rows;
            entry = line / args->channels;
            channel = line - entry * args->channels;
            token = entry * args->rows + row;
        } else {
            token = i / args->channels;
            channel = i - token * args->channels;
            entry = k_entry_of(args->starts, args->batch, args->rows, args->tokens, token);
        }
        if (entry < 0) { /* a token of no entry */
            ((T *)args->out)[i] = T_store(0.0f);
            continue;
        }
        const int64_t first = k_tokens_of(args->starts, entry, args->rows, args->tokens).first;
        const c_line line = c_line_of(args, entry, first, channel);
        row = token - first;
        ((T *)args->out)[i] = T_store(c_convolved(args, &line, row, channel));
    }
}

K_FN void c_put_update(const mp_causal_conv_args *args, const c_line *line, int64_t entry,
                       int64_t channel, int64_t rows) {
    const int64_t most = rows < args->capacity ? rows : args->capacity;
    for (int64_t row = 0; row < args->capacity; row++) {
        const int taken = row < most && row < args->counts[entry];
        ((T *)args->update)[(entry * args->capacity + row) * args->channels + channel] =
            taken ? c_token(line, row) : T_store(0.0f);
    }
}

K_FN void c_state(const mp_causal_conv_args *args) {
    const int64_t windows = args->windows > 0 ? args->windows : 1;
    K_GRID_LOOP(i, args->batch * args->channels) {
        const int64_t entry = i / args->channels, channel = i - entry * args->channels;
        const k_tokens tokens = k_tokens_of(args->starts, entry, args->rows, args->tokens);
        const c_line line = c_line_of(args, entry, tokens.first, channel);
        for (int64_t window = 0; args->present && window < windows; window++) {
            const int64_t end = tokens.count - windows + window + 1;
            const int empty = end <= 0 && window + 1 < windows; /* after no token of this run */
            T *to = (T *)args->present + (window * args->batch + entry) * args->state_step[0] +
                    channel * args->state_step[2];
            for (int64_t at = 0; at < args->state; at++) {
                to[at * args->state_step[1]] =
                    empty ? T_store(0.0f) : c_token(&line, end - args->state + at);
            }
        }
        if (args->update) {
            c_put_update(args, &line, entry, channel, tokens.count);
        }
    }
}

K_KERNEL(mp_causal_conv_args, args) {
    if (args.stage == K_CAUSAL_CONV_OUT) {
        c_out(&args);
    } else {
        c_state(&args);
    }
}
