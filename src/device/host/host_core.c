/* host_core.c - what every part of the emulated device stands on: injected faults, breaches, random
 * numbers, counted objects, the list of all devices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers, faults, breaches ---- */

static uint64_t mix(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t mp__host_random(host_device *host, uint32_t bound) {
    return (uint32_t)(((mix(&host->random) >> 32) * bound) >> 32);
}

mp_status mp__host_call(host_device *host, const char *call) {
    uint64_t left = atomic_load_explicit(&host->fault_in, memory_order_relaxed);
    while (left != 0) {
        if (!atomic_compare_exchange_weak(&host->fault_in, &left, left - 1)) {
            continue;
        }
        if (left == 1) {
            return mp__fail((mp_status)atomic_load(&host->fault_status),
                            "%s fails on the emulated device because a test asked for it", call);
        }
        break;
    }
    return MP_OK;
}

bool mp__host_device_fail(mp_device *device, uint64_t nth, mp_status status) {
    host_device *host = mp__host_from(device);
    atomic_store(&host->fault_status, (int)status);
    return atomic_exchange(&host->fault_in, nth) != 0;
}

void mp__host_breach(host_device *host, const char *format, ...) {
    char text[sizeof host->breach - 64];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)pthread_mutex_lock(&host->breach_lock);
    const bool first = !atomic_load(&host->broken);
    if (first) {
        if (mp__host_adversarial(host)) {
            (void)snprintf(host->breach, sizeof host->breach,
                           "%s (MILLPOND_HOST=adversarial:%" PRIu64 ")", text, host->config.seed);
        } else {
            (void)snprintf(host->breach, sizeof host->breach, "%s", text);
        }
        atomic_store(&host->broken, true);
    }
    (void)pthread_mutex_unlock(&host->breach_lock);
    if (first) {
        MP_LOG(ERROR, "emulated device %d: %s", host->base.ordinal, host->breach);
    }
}

const char *mp__host_device_breach(mp_device *device) {
    host_device *host = mp__host_from(device);
    return atomic_load(&host->broken) ? host->breach : NULL;
}

mp_status mp__host_health(host_device *host) {
    if (atomic_load_explicit(&host->broken, memory_order_acquire)) {
        return MP_FAIL(DEVICE, "%s", host->breach);
    }
    return MP_OK;
}

/* ---- objects ---- */

mp_status mp__host_object_create(host_device *host, host_kind kind, size_t size, void *out) {
    host_object *object = calloc(1, size);
    if (object == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for a record of %zu bytes", size);
    }
    object->kind = kind;
    atomic_init(&object->references, 1);
    (void)pthread_mutex_lock(&host->lock);
    object->next = &host->objects;
    object->prev = host->objects.prev;
    object->prev->next = object;
    object->next->prev = object;
    (void)pthread_mutex_unlock(&host->lock);
    memcpy(out, &object, sizeof object);
    return MP_OK;
}

void mp__host_object_destroy(host_device *host, host_object *object) {
    (void)pthread_mutex_lock(&host->lock);
    object->prev->next = object->next;
    object->next->prev = object->prev;
    (void)pthread_mutex_unlock(&host->lock);
    mp__host_object_drop(object);
}

size_t mp__host_device_objects(mp_device *device) {
    host_device *host = mp__host_from(device);
    size_t count = 0;
    (void)pthread_mutex_lock(&host->lock);
    for (const host_object *o = host->objects.next; o != &host->objects; o = o->next) {
        count++;
    }
    (void)pthread_mutex_unlock(&host->lock);
    return count;
}

void mp__host_object_keep(host_object *object) {
    atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
}

void mp__host_object_drop(host_object *object) {
    if (atomic_fetch_sub(&object->references, 1) != 1) {
        return;
    }
    if (object->clear != NULL) {
        object->clear(object);
    }
    free(object);
}

/* ---- all devices ---- */

static pthread_mutex_t every_lock = PTHREAD_MUTEX_INITIALIZER;
static host_device *every; /* under every_lock; shared and private ones */

host_device *mp__host_each(host_device *after) {
    (void)pthread_mutex_lock(&every_lock);
    host_device *next = after == NULL ? every : after->next_device;
    (void)pthread_mutex_unlock(&every_lock);
    return next;
}

void mp__host_link(host_device *host) {
    (void)pthread_mutex_lock(&every_lock);
    host->next_device = every;
    every = host;
    (void)pthread_mutex_unlock(&every_lock);
}

void mp__host_unlink(host_device *host) {
    (void)pthread_mutex_lock(&every_lock);
    host_device **link = &every;
    while (*link != host) {
        link = &(*link)->next_device;
    }
    *link = host->next_device;
    (void)pthread_mutex_unlock(&every_lock);
}
