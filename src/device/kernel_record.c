/* kernel_record.c - one list for the process. An image may be loaded on several devices, and then
 * stays in the list until it is unloaded from all.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/kernel_record.h"

#include "base/growing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct record {
    const mp_kernel_image *image; /* borrowed */
    size_t loads;
} record;

static atomic_bool started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static record *records; /* under the lock, as is all below */
static size_t count, capacity;

void mp_kernel_record_start(void) {
    atomic_store(&started, true);
}

bool mp_kernel_record_on(void) {
    return atomic_load(&started);
}

static record *find(const mp_kernel_image *image) {
    for (size_t i = 0; i < count; i++) {
        if (records[i].image == image) {
            return &records[i];
        }
    }
    return NULL;
}

static bool add(const mp_kernel_image *image) {
    record *found = find(image);
    if (found != NULL) {
        found->loads++;
        return true;
    }
    if (!mp_grow(&records, count + 1, &capacity, sizeof *records)) {
        return false;
    }
    records[count++] = (record){.image = image, .loads = 1};
    return true;
}

mp_status mp_kernel_record_add(const mp_kernel_image *image) {
    if (!mp_kernel_record_on()) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&lock);
    const bool added = add(image);
    (void)pthread_mutex_unlock(&lock);
    return added ? MP_OK
                 : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to note kernel %s",
                           image->name);
}

void mp_kernel_record_remove(const mp_kernel_image *image) {
    if (!mp_kernel_record_on()) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    record *found = find(image);
    if (found != NULL && --found->loads == 0) {
        count--;
        memmove(found, found + 1, (size_t)(records + count - found) * sizeof *found);
    }
    (void)pthread_mutex_unlock(&lock);
}

size_t mp_kernel_record_list(const mp_kernel_image **out, size_t most) {
    (void)pthread_mutex_lock(&lock);
    const size_t there = count;
    for (size_t i = 0; i < MP_MIN(there, most); i++) {
        out[i] = records[i].image;
    }
    (void)pthread_mutex_unlock(&lock);
    return there;
}
