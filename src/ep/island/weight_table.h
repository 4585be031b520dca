/* weight_table.h - the constants that a session has on the device as its model has them, by name.
 *
 * A constant of which there is one by that name already is compared with it, byte by byte unless
 * both are the same host memory, so that islands share what they have in common.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_WEIGHT_TABLE_H
#define MP_EP_WEIGHT_TABLE_H

#include "ep/placement/name_set.h"
#include "graph/graph.h"

typedef struct mp_weight {
    mp_dtype type;
    size_t bytes;
    mp_addr data; /* host memory that it comes from; borrowed until it is on the device */
    mp_addr addr; /* on the device; 0: not yet */
    int next;     /* of the same name; -1 */
} mp_weight;

/* Zeroed at first. */
typedef struct mp_weight_table {
    mp_weight *list; /* owned */
    size_t count, capacity;
    mp_name_set names;
    int *first; /* owned; of the list, by the number of a name */
    size_t first_count, first_capacity;
} mp_weight_table;

/* The weight with the bytes of this constant, `bytes` of them; added where there is none.
 * Gives: `*index` in the list, and whether it was `*found`. Blocks: while it is compared with what
 * is on the device. Fails: OUT_OF_MEMORY (host), DEVICE. */
mp_status mp__weight_find(mp_weight_table *table, mp_device *device, const mp_value *constant,
                          size_t bytes, size_t *index, bool *found);
/* Forgets those that are not on the device. */
void mp__weight_table_cut(mp_weight_table *table);
void mp__weight_table_clear(mp_weight_table *table);

#endif
