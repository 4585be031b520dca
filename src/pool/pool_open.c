/* pool_open.c - handles on pools: opened by the name of a device, or by the device itself, and
 * closed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "pool/handle.h"
#include "pool/pool_argument.h"
#include "pool/pool_handle.h"
#include "pool/pool_registry.h"

#include <stdio.h>
#include <string.h>

const char *mp_version(void) {
    return MILLPOND_VERSION;
}

static mp_status add_client(arena *a, const char *name, uint8_t *out) {
    mp_status status = MP_OK;
    arena_lock(a);
    size_t i = 0;
    while (i < a->client_count && strcmp(a->clients[i], name) != 0) {
        i++;
    }
    if (i == MP_CLIENTS_MAX) {
        status = MP_FAIL(UNSUPPORTED, "a pool distinguishes %d clients; '%s' is one too many",
                         MP_CLIENTS_MAX, name);
    } else if (i == a->client_count) {
        (void)snprintf(a->clients[i], sizeof a->clients[i], "%s", name);
        a->client_count++;
    }
    arena_unlock(a);
    *out = (uint8_t)i;
    return status;
}

static mp_status open_handle(arena *a, uint8_t client, mp_pool **out) {
    mp_pool *pool = mp__handle_open(a, client);
    if (pool == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a handle");
    }
    *out = pool;
    return MP_OK;
}

static mp_status open_source(const source *from, const char *client, const char *const *base,
                             const char *const *options, mp_pool **out) {
    arena_options read;
    MP_TRY(mp__arena_options_read(base, options, &read));
    mp__forks_watch();
    arena *a = NULL;
    uint8_t number = 0;
    MP_TRY(mp__registry_get(from, &read, &a));
    mp_status status = add_client(a, client, &number);
    if (status == MP_OK) {
        status = open_handle(a, number, out);
    }
    if (status != MP_OK) {
        mp__registry_release(a);
    }
    return status;
}

static mp_status check_client(const char *client) {
    const size_t size = client != NULL ? strnlen(client, MP_CLIENT_NAME_MAX) : 0;
    return size > 0 && size < MP_CLIENT_NAME_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "a client's name has 1 to %d characters, not '%.*s%s'",
                         MP_CLIENT_NAME_MAX - 1, MP_CLIENT_NAME_MAX, client != NULL ? client : "",
                         size == MP_CLIENT_NAME_MAX ? "..." : "");
}

mp_status mp__pool_open_on(mp_device *device, mp_memory memory, const char *client,
                           const char *const *options, mp_pool **out) {
    return mp__pool_open_over(device, memory, client, NULL, options, out);
}

mp_status mp__pool_options_check(const char *const *base, const char *const *options) {
    arena_options read;
    return mp__arena_options_read(base, options, &read);
}

mp_status mp__pool_options_agree(const mp_pool *pool, const char *const *base,
                                 const char *const *options) {
    TAKE_ARENA(a, pool);
    arena_options wanted;
    arena_told told = {.count = 0};
    arena_difference found;
    MP_TRY(mp__arena_options_read(base, options, &wanted));
    if (!mp__arena_options_differ(&a->options, &wanted, &told, &found)) {
        return MP_OK;
    }
    return MP_FAIL(
        INVALID_ARGUMENT,
        "%s=%s comes too late: the pool of %s memory of device %d is in use with %s; set "
        "it where the pool is opened first, or in MILLPOND_POOL",
        found.key, found.wanted, source_memory_name(&a->source), a->device->ordinal, found.kept);
}

mp_status mp__pool_open_over(mp_device *device, mp_memory memory, const char *client,
                             const char *const *base, const char *const *options, mp_pool **out) {
    CHECK_PROCESS();
    CHECK_ARGUMENT(device != NULL, "device is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    if (memory != MP_MEMORY_DEVICE && memory != MP_MEMORY_PINNED) {
        return MP_FAIL(INVALID_ARGUMENT, "%d is not a kind of memory", (int)memory);
    }
    MP_TRY(check_client(client));
    return open_source(&(source){.device = device, .memory = memory}, client, base, options, out);
}

mp_status mp__pool_open_external_on(mp_device *device, const char *client,
                                    const mp_external *external, const char *const *options,
                                    mp_pool **out) {
    CHECK_PROCESS();
    CHECK_ARGUMENT(device != NULL, "device is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(external != NULL, "external is NULL");
    CHECK_ARGUMENT(external->alloc != NULL, "external has no function alloc");
    CHECK_ARGUMENT(external->free != NULL, "external has no function free");
    MP_TRY(check_client(client));
    return open_source(&(source){.device = device,
                                 .memory = MP_MEMORY_DEVICE,
                                 .is_external = true,
                                 .external = *external},
                       client, NULL, options, out);
}

mp_status mp__pool_again(mp_pool *pool, mp_pool **out) {
    TAKE_ARENA(a, pool);
    mp__registry_keep(a);
    const mp_status status = open_handle(a, pool->client, out);
    if (status != MP_OK) {
        mp__registry_release(a);
    }
    return status;
}

mp_device *mp__pool_device(const mp_pool *pool) {
    return mp__handle_arena(pool)->device;
}

static mp_status find_device(const char *name, mp_device **out) {
    char why[512];
    mp_device_kind kind = MP_DEVICE_HOST;
    int ordinal = 0;
    MP_TRY(mp__choose_device(name, &kind, &ordinal, why, sizeof why));
    const int count = mp_device_count(kind, NULL);
    if (ordinal >= count) {
        return MP_FAIL(NOT_FOUND, "there is no device '%s': the last one is number %d", name,
                       count - 1);
    }
    return mp_device_get(kind, ordinal, out);
}

mp_status mp_pool_open(const char *device, mp_memory memory, const char *client,
                       const char *const *options, mp_pool **out) {
    mp_device *found = NULL;
    CHECK_PROCESS();
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    MP_TRY(find_device(device, &found));
    return mp__pool_open_on(found, memory, client, options, out);
}

mp_status mp_pool_open_external(const char *device, const char *client, const mp_external *external,
                                const char *const *options, mp_pool **out) {
    mp_device *found = NULL;
    CHECK_PROCESS();
    CHECK_ARGUMENT(external != NULL, "external is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    MP_TRY(find_device(device, &found));
    return mp__pool_open_external_on(found, client, external, options, out);
}

void mp_pool_close(mp_pool *pool) {
    if (pool == NULL || process_is_forked()) {
        return;
    }
    arena *a = mp__handle_close(pool);
    if (a != NULL) {
        mp__registry_release(a);
    } else {
        MP_LOG(ERROR, "mp_pool_close: the pool handle was closed already; nothing is done");
    }
}

mp_status mp_pool_get_device(mp_pool *pool, mp_pool_device *out, size_t size) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(size > 0, "size is 0; give sizeof(mp_pool_device)");
    const source *from = &a->source;
    const mp_device *device = from->device;
    mp_pool_device fresh = {.ordinal = device->ordinal,
                            .is_emulated = device->info.kind == MP_DEVICE_HOST,
                            .memory = from->memory};
    size_t left = 0;
    size_t all = 0;
    if (mp__source_info(from, &left, &all)) {
        fresh.memory_free = left;
        fresh.memory_total = all;
    }
    (void)snprintf(fresh.device, sizeof fresh.device, "%s:%d", fresh.is_emulated ? "host" : "cuda",
                   device->ordinal);
    (void)snprintf(fresh.name, sizeof fresh.name, "%s", device->info.name);
    (void)snprintf(fresh.bus_id, sizeof fresh.bus_id, "%s", device->info.pci_bus_id);
    memset(out, 0, size);
    memcpy(out, &fresh, size < sizeof fresh ? size : sizeof fresh);
    return MP_OK;
}
