/* table_cache.c - one list of all devices' tables, looked through while a plan is made and never
 * while one runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/table_cache.h"

#include "op/core/kernel_batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    mp_device *device; /* borrowed */
    mp_table_fill *fill;
    mp_addr addr; /* owned, `size` bytes */
    size_t size, key_size;
    unsigned char key[];
} entry;

static entry *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- with the lock held ---- */

static entry *entry_find(const mp_device *device, const mp_table *table) {
    entry *at = first;
    while (at != NULL &&
           (at->device != device || at->fill != table->fill || at->key_size != table->key_size ||
            memcmp(at->key, table->key, table->key_size) != 0)) {
        at = at->next;
    }
    return at;
}

static bool has_room(const mp_device *device, size_t size) {
    size_t used = 0;
    int count = 0;
    for (const entry *at = first; at != NULL; at = at->next) {
        used += at->device == device ? at->size : 0;
        count += at->device == device;
    }
    return count < MP_TABLES_MAX && size <= MP_TABLES_BYTES_MAX / 4 &&
           used <= MP_TABLES_BYTES_MAX - size;
}

static mp_status entry_fill(mp_device *device, const mp_table *table, mp_addr addr) {
    mp_stream *stream = NULL;
    if (!table->copied) { /* the kernel that fills it is of an open batch, too */
        MP_TRY(mp_kernel_batch_settle(device));
    }
    MP_TRY(device->ops->stream_create(device, &stream));
    const mp_status status = table->fill(table->context, device, stream, addr, table->size);
    const mp_status waited = device->ops->stream_synchronize(device, stream);
    device->ops->stream_destroy(device, stream);
    return status != MP_OK ? status : waited;
}

/* `*out` stays NULL where the device has no memory left. */
static mp_status entry_add(mp_device *device, const mp_table *table, entry **out) {
    entry *fresh = calloc(1, sizeof *fresh + table->key_size);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the key of a table");
    }
    *fresh = (entry){.next = first,
                     .device = device,
                     .fill = table->fill,
                     .size = table->size,
                     .key_size = table->key_size};
    memcpy(fresh->key, table->key, table->key_size);
    mp_status status = device->ops->alloc(device, table->size, &fresh->addr);
    if (status != MP_OK) {
        free(fresh);
        return status == MP_OUT_OF_MEMORY ? MP_OK : status;
    }
    status = entry_fill(device, table, fresh->addr);
    if (status != MP_OK) {
        device->ops->free(device, fresh->addr, fresh->size);
        free(fresh);
        return status;
    }
    *out = first = fresh;
    return MP_OK;
}

/* ---- the interface ---- */

mp_status mp_table_cache_get(mp_device *device, const mp_table *table, mp_addr *out) {
    mp_status status = MP_OK;
    (void)pthread_mutex_lock(&lock);
    entry *found = entry_find(device, table);
    if (found == NULL && has_room(device, table->size)) {
        status = entry_add(device, table, &found);
    }
    *out = found != NULL ? found->addr : 0;
    (void)pthread_mutex_unlock(&lock);
    return status;
}

void mp_table_cache_drop(mp_device *device) {
    (void)pthread_mutex_lock(&lock);
    for (entry **at = &first; *at != NULL;) {
        entry *found = *at;
        if (found->device != device) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        device->ops->free(device, found->addr, found->size);
        free(found);
    }
    (void)pthread_mutex_unlock(&lock);
}
