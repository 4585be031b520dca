/* kv_window.h - caches that keep a window of the tokens: which of them are there. Row i of an entry
 * with T tokens so far is token T - k_window_rows(T) + i.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_KV_WINDOW_H
#define MP_KERNEL_KV_WINDOW_H

#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

/* Tokens of an entry, of which there are as many rows at most as fresh ones and full caches. */
K_FN int64_t w_tokens(const mp_kv_window_args *args, int64_t entry) {
    const int64_t tokens = (int64_t)((const int32_t *)args->lengths)[entry] + 1;
    return tokens < 0 ? 0 : args->prompt && tokens > args->fresh_rows ? args->fresh_rows : tokens;
}

/* Rows that a cache has after so many tokens: all while there is room, then those that are left
 * when `spare` + 1 go at a time. */
K_FN int64_t w_rows(const mp_kv_window_args *args, int64_t tokens) {
    const int64_t more = tokens - args->capacity, at_once = args->spare + 1;
    return tokens < 0 ? 0 : more <= 0 ? tokens : tokens - (more + at_once - 1) / at_once * at_once;
}

/* Rows of an entry in caches as they were, before the fresh ones. */
K_FN int64_t w_past(const mp_kv_window_args *args, int64_t tokens) {
    return args->prompt ? 0 : w_rows(args, tokens - args->fresh_rows);
}

#endif
