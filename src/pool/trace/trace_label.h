/* trace_label.h - what memory is for: the label that a thread has set, see mp_label_set.
 *
 * Every block keeps the number of the label it was allocated under, traced or not, so that a trace
 * knows also of what was allocated before it began (weights, mostly).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_LABEL_H
#define MP_POOL_TRACE_LABEL_H

#include "millpond/millpond.h"

#include <stdatomic.h>

enum { MP_LABEL_TEXT_MAX = 240 }; /* bytes of a node's or a tensor's name that are kept */

typedef struct mp_label_info {
    mp_label_kind kind;
    const char *node, *tensor; /* valid UTF-8, "" for none; borrowed, for good */
} mp_label_info;

/* What a label says; a number that is none says nothing. Threads: any. */
mp_label_info mp__label_info(uint16_t label);

/* "weights", "activations", "workspace", "other"; static storage. */
const char *mp__label_kind_name(mp_label_kind kind);

/* Whether any thread has ever set a label: until then allocating need not look for one. Of this
 * library alone, so that no table need be asked where it is. */
extern __attribute__((visibility("hidden"))) atomic_bool mp__labels_used;
uint16_t mp__label_of_thread(void);

/* The label under which this thread allocates. */
static inline uint16_t mp__label_now(void) {
    return atomic_load_explicit(&mp__labels_used, memory_order_relaxed) ? mp__label_of_thread() : 0;
}

#endif
