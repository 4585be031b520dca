/* name_set.h - a set of names of a graph's values. By name, since ONNX Runtime may hand out several
 * objects for one value.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_NAME_SET_H
#define MP_EP_NAME_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Zeroed at first; a hash table at most half full. */
typedef struct mp_name_set {
    char **slots; /* owned, as are the names; slot_count is a power of two */
    size_t count, slot_count;
} mp_name_set;

mp_status mp__name_set_add(mp_name_set *set, const char *name); /* a copy */
bool mp__name_set_has(const mp_name_set *set, const char *name);
void mp__name_set_clear(mp_name_set *set);

#endif
