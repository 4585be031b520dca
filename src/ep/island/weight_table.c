/* weight_table.c - see weight_table.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/weight_table.h"

#include "base/growing.h"

#include <stdlib.h>
#include <string.h>

enum { COMPARED_BYTES = 1 << 20 }; /* at once */

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of constants");
}

/* The first weight of this name: its place. */
static mp_status first_of(mp_weight_table *table, const char *name, int **out) {
    int number = 0;
    MP_TRY(mp__name_set_add(&table->names, name, &number));
    if (!mp_grow(&table->first, table->names.count, &table->first_capacity, sizeof(int))) {
        return no_memory();
    }
    while (table->first_count <= (size_t)number) {
        table->first[table->first_count++] = -1;
    }
    *out = &table->first[number];
    return MP_OK;
}

static mp_status compare_there(mp_device *device, const mp_weight *w, const char *data,
                               bool *same) {
    const size_t most = MP_MIN(w->bytes, COMPARED_BYTES);
    char *there = malloc(most);
    mp_status status = there != NULL ? MP_OK : no_memory();
    *same = true;
    for (size_t at = 0; status == MP_OK && *same && at < w->bytes; at += most) {
        const size_t bytes = w->bytes - at < most ? w->bytes - at : most;
        status = device->ops->copy(device, NULL, (mp_addr)there, w->addr + at, bytes);
        *same = status == MP_OK && memcmp(there, data + at, bytes) == 0;
    }
    free(there);
    return status;
}

/* Once a weight is on the device its host memory may be that of something else. */
static mp_status compare(mp_device *device, const mp_weight *w, const mp_value *constant,
                         size_t bytes, bool *same) {
    const void *data = (const void *)constant->tensor.data;
    *same = false;
    if (w->type != constant->tensor.type || w->bytes != bytes) {
        return MP_OK;
    }
    if (w->addr != 0) {
        return compare_there(device, w, data, same);
    }
    *same = w->data == constant->tensor.data || memcmp((const void *)w->data, data, bytes) == 0;
    return MP_OK;
}

static mp_status add(mp_weight_table *table, const mp_value *constant, size_t bytes, int *first,
                     size_t *index) {
    if (!mp_grow(&table->list, table->count + 1, &table->capacity, sizeof(mp_weight))) {
        return no_memory();
    }
    *index = table->count++;
    table->list[*index] = (mp_weight){.type = constant->tensor.type,
                                      .bytes = bytes,
                                      .data = constant->tensor.data,
                                      .next = *first};
    *first = (int)*index;
    return MP_OK;
}

mp_status mp__weight_find(mp_weight_table *table, mp_device *device, const mp_value *constant,
                          size_t bytes, size_t *index, bool *found) {
    int *first = NULL;
    *found = false;
    MP_TRY(first_of(table, constant->name, &first));
    for (int i = *first; i >= 0; i = table->list[i].next) {
        MP_TRY(compare(device, &table->list[i], constant, bytes, found));
        if (*found) {
            *index = (size_t)i;
            return MP_OK;
        }
    }
    return add(table, constant, bytes, first, index);
}

void mp__weight_table_cut(mp_weight_table *table) {
    for (size_t i = 0; i < table->first_count; i++) {
        while (table->first[i] >= 0 && table->list[table->first[i]].addr == 0) {
            table->first[i] = table->list[table->first[i]].next;
        }
    }
    while (table->count > 0 && table->list[table->count - 1].addr == 0) {
        table->count--;
    }
}

void mp__weight_table_clear(mp_weight_table *table) {
    mp__name_set_clear(&table->names);
    free(table->list);
    free(table->first);
    *table = (mp_weight_table){.list = NULL};
}
