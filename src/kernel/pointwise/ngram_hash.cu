/* ngram_hash.cu - hashes of the n-grams that end at each id: products of the ids with odd numbers,
 * their bits put together by exclusive or, modulo the size of a table. All wraps around. A second
 * launch keeps the last ids for the next run, a lane an entry in the order in which they are read,
 * so that they may replace those of the past.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/packed_batch.h"
#include "kernel/pointwise/ngram_args.h"

K_FN T g_fill(const mp_ngram_args *args) {
    return args->end ? *(const T *)args->end : (T)args->pad;
}

/* The id at `at` of an entry, from -kept on. */
K_FN T g_id(const mp_ngram_args *args, int64_t entry, int64_t first, int64_t at) {
    if (at >= 0) {
        return ((const T *)args->ids)[first + at];
    }
    return args->past ? ((const T *)args->past)[(entry + 1) * args->kept + at] : g_fill(args);
}

/* Whether another segment begins behind `at`. */
K_FN int g_ends(const mp_ngram_args *args, int64_t entry, int64_t first, int64_t at) {
    if (!args->segments || (at < 0 && !args->past_segments)) {
        return 0;
    }
    const int32_t *past = args->past_segments + (entry + 1) * args->kept;
    const int32_t before = at >= 0 ? args->segments[first + at] : past[at];
    return before != (at + 1 >= 0 ? args->segments[first + at + 1] : past[at + 1]);
}

/* Of the n-gram of `ids` ids that ends at `at`. */
K_FN T g_mix(const mp_ngram_args *args, int64_t entry, int64_t first, int64_t at, int64_t ids) {
    const T *multipliers = (const T *)args->multipliers;
    uint64_t mix = 0;
    int cut = 0;
    for (int64_t k = 0; k < ids; k++) {
        cut = cut || (k > 0 && g_ends(args, entry, first, at - k));
        const T id = cut ? g_fill(args) : g_id(args, entry, first, at - k);
        cut = cut || (k > 0 && args->resets && args->end && id == *(const T *)args->end);
        mix ^= (uint64_t)id * (uint64_t)multipliers[k];
    }
    return (T)mix;
}

/* A size that is not positive gives 0. */
K_FN T g_modulo(T mix, T size) {
    const T rest = size > 0 ? (T)(mix % size) : (T)0;
    return rest < 0 ? (T)(rest + size) : rest;
}

K_FN void g_hash(const mp_ngram_args *args) {
    const int64_t line = args->kept * args->heads;
    K_GRID_LOOP(i, args->tokens * line) {
        const int64_t token = i / line, head = i - token * line;
        const int64_t entry =
            k_entry_of(args->starts, args->batch, args->rows, args->tokens, token);
        T hash = 0; /* of a token of no entry */
        if (entry >= 0) {
            const int64_t first = k_tokens_of(args->starts, entry, args->rows, args->tokens).first;
            const T mix = g_mix(args, entry, first, token - first, head / args->heads + 2);
            hash = g_modulo(mix, ((const T *)args->sizes)[head]);
            if (args->offsets) {
                hash = (T)((uint64_t)hash + (uint64_t)((const T *)args->offsets)[head]);
            }
        }
        ((T *)args->hashes)[i] = hash;
    }
}

K_FN void g_update(const mp_ngram_args *args, int64_t entry, k_tokens tokens) {
    const int64_t most = tokens.count < args->capacity ? tokens.count : args->capacity;
    T *to = (T *)args->update + entry * args->capacity * args->kept;
    for (int64_t row = 0; row < args->capacity; row++) {
        const int taken = row < most && row < args->counts[entry];
        for (int64_t j = 0; j < args->kept; j++) {
            to[row * args->kept + j] =
                taken ? g_id(args, entry, tokens.first, row + 1 - args->kept + j) : (T)args->pad;
        }
    }
}

K_FN void g_state(const mp_ngram_args *args) {
    K_GRID_LOOP(entry, args->batch) {
        const k_tokens tokens = k_tokens_of(args->starts, entry, args->rows, args->tokens);
        if (args->update) {
            g_update(args, entry, tokens);
        }
        for (int64_t j = 0; j < args->kept; j++) {
            const int64_t at = tokens.count - args->kept + j, to = entry * args->kept + j;
            if (args->present) {
                ((T *)args->present)[to] = g_id(args, entry, tokens.first, at);
            }
            if (args->present_segments) {
                const int32_t *past = args->past_segments;
                args->present_segments[to] = at >= 0 ? args->segments[tokens.first + at]
                                             : past  ? past[(entry + 1) * args->kept + at]
                                                     : 0;
            }
        }
    }
}

K_KERNEL(mp_ngram_args, args) {
    if (args.stage == K_NGRAM_HASH) {
        g_hash(&args);
    } else {
        g_state(&args);
    }
}
