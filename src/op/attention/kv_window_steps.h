/* kv_window_steps.h - caches of keys and values that keep a window of the tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_KV_WINDOW_STEPS_H
#define MP_OP_KV_WINDOW_STEPS_H

#include "op/attention/kv_steps.h"

/* Before mp_plan_kv_append: lets `append` grow into scratch memory, and `lengths` there say how
 * many rows each entry has then, less one. Its present rows are those of the past, which has at
 * least `window`. After it, and after what reads the rows: leaves the last of them in the present
 * caches. */
typedef struct mp_kv_window {
    mp_kv_append append; /* as it would be without a window */
    mp_ref lengths, all[2];
    int64_t all_rows;
    int64_t window;
} mp_kv_window;

mp_status mp_plan_kv_window(mp_planner *p, mp_kv_window *w, mp_kv_append *append);
mp_status mp_plan_kv_keep(mp_planner *p, const mp_kv_window *w);

#endif
