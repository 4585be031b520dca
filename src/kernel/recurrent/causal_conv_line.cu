/* causal_conv_line.cu - causal_conv.cu where the tokens of a channel are neighbours, in whole
 * pieces of 16 bytes, and there are few taps: bound by memory. A lane makes a piece of the result
 * of two pieces of its channel, the one before being of the past for the channel's first. Only the
 * lane that has that one reads the past, and then writes the tokens that are kept: so they may
 * replace it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/word.h"
#include "kernel/recurrent/delta_args.h"

enum {
    L_PACK = 16 / sizeof(T),
    L_WORDS = 4,
    L_TAPS = K_CAUSAL_CONV_TAPS,
    L_STATE = L_TAPS - 1, /* tokens that are kept, at most */
};

typedef struct K_ALIGN(16) l_pack {
    uint32_t words[L_WORDS];
} l_pack;

K_FN void l_unpack(l_pack pack, float *out) {
    K_UNROLL
    for (int i = 0; i < L_WORDS; i++) {
        T_unpack(pack.words[i], out + i * K_WORD);
    }
}

/* The last tokens before a channel's first one. */
K_FN void l_past(const mp_causal_conv_args *args, int64_t line, float *end) {
    const int64_t state = args->state;
    const T *past = (const T *)args->past + line * state;
    K_UNROLL
    for (int64_t back = 1; back <= L_STATE; back++) {
        const int is = args->past != 0 && back <= state;
        end[-back] = is ? T_load(past[state - back]) : 0.0f;
    }
}

/* The sums of a piece, whose tokens begin at `x` with those of the piece before in front of it. */
K_FN l_pack l_convolved(const mp_causal_conv_args *args, int64_t channel, const float *x) {
    const T *weight = (const T *)args->weight + channel * args->taps;
    const float bias = args->bias ? T_load(((const T *)args->bias)[channel]) : 0.0f;
    float sum[L_PACK];
    l_pack made;
    K_UNROLL
    for (int i = 0; i < L_PACK; i++) {
        sum[i] = bias;
    }
    K_UNROLL
    for (int back = L_TAPS - 1; back >= 0; back--) {
        if (back < args->taps) {
            const float factor = T_load(weight[args->taps - 1 - back]);
            K_UNROLL
            for (int i = 0; i < L_PACK; i++) {
                sum[i] += factor * x[i - back];
            }
        }
    }
    K_UNROLL
    for (int i = 0; i < L_PACK; i++) {
        sum[i] = args->silu ? sum[i] / (1.0f + expf(-sum[i])) : sum[i];
    }
    K_UNROLL
    for (int i = 0; i < L_WORDS; i++) {
        made.words[i] = T_repack(sum + i * K_WORD);
    }
    return made;
}

K_KERNEL(mp_causal_conv_args, args) {
    const l_pack *x = (const l_pack *)args.x;
    const int64_t state = args.state;
    K_GRID_LOOP(i, args.batch * args.channels * args.packs) {
        const uint32_t line = k_divide((uint32_t)i, args.by_packs);
        const int64_t channel = line - k_divide(line, args.by_channels) * args.channels;
        const int first = i == line * args.packs, keeps = first && args.present != 0;
        const T *end = (const T *)args.x + (line + (int64_t)1) * args.rows;
        const l_pack own = x[i], before = x[first ? i : i - 1];
        T kept[L_STATE];
        float tokens[2 * L_PACK];
        K_UNROLL
        for (int64_t back = 1; back <= L_STATE; back++) {
            kept[back - 1] = keeps && back <= state ? end[-back] : T_store(0.0f);
        }
        l_unpack(before, tokens);
        l_unpack(own, tokens + L_PACK);
        if (first) {
            l_past(&args, line, tokens + L_PACK);
        }
        ((l_pack *)args.out)[i] = l_convolved(&args, channel, tokens + L_PACK);
        K_UNROLL
        for (int64_t back = 1; back <= L_STATE; back++) {
            if (keeps && back <= state) {
                ((T *)args.present)[(line + (int64_t)1) * state - back] = kept[back - 1];
            }
        }
    }
}
