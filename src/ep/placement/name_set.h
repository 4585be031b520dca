/* name_set.h - a set of names of a graph's values, numbered as they were added.
 *
 * By name, since ONNX Runtime may hand out several objects for one value.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_NAME_SET_H
#define MP_EP_NAME_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { MP_NO_NAME = -1 };

/* Zeroed at first; a hash table at most half full. */
typedef struct mp_name_set {
    struct mp_name_slot *slots; /* owned, as are the names; slot_count is a power of two */
    size_t count, slot_count;
} mp_name_set;

/* Adds a copy, if the name is not there yet. `*number` (may be NULL): the name's, from 0. */
mp_status mp__name_set_add(mp_name_set *set, const char *name, int *number);
/* The name's number, or MP_NO_NAME. */
int mp__name_set_find(const mp_name_set *set, const char *name);
void mp__name_set_clear(mp_name_set *set);

static inline bool mp__name_set_has(const mp_name_set *set, const char *name) {
    return mp__name_set_find(set, name) != MP_NO_NAME;
}

#endif
