/* host_config.c - the emulated devices that the process shares, as the environment sets them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"

#include "base/log.h"
#include "base/option.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { DEVICES_MAX = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mp_device *shared[DEVICES_MAX]; /* under lock; they live until the process ends */

/* The value of a setting; NULL where it is not set. */
static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value != NULL && *value != 0 ? value : NULL;
}

static mp_status read_mode(mp_host_config *config) {
    static const char seeded[] = "adversarial";
    static const char *const words[] = {"eager", "threaded", seeded, "adversarial:SEED", NULL};
    const char *text = setting("MILLPOND_HOST");
    int mode = MP_HOST_EAGER;
    if (text == NULL) {
        config->mode = MP_HOST_EAGER;
        return MP_OK;
    }
    config->seed = 1;
    if (strncasecmp(text, seeded, sizeof seeded - 1) == 0 && text[sizeof seeded - 1] == ':') {
        int64_t seed = 0;
        MP_TRY(
            mp_parse_int("the seed in MILLPOND_HOST", text + sizeof seeded, 0, INT64_MAX, &seed));
        config->seed = (uint64_t)seed;
        config->mode = MP_HOST_ADVERSARIAL;
        return MP_OK;
    }
    MP_TRY(mp_parse_word("MILLPOND_HOST", text, words, &mode));
    config->mode = mode == MP_HOST_THREADED ? MP_HOST_THREADED
                   : mode == MP_HOST_EAGER  ? MP_HOST_EAGER
                                            : MP_HOST_ADVERSARIAL;
    return MP_OK;
}

static size_t half_of_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages / 2 * (size_t)page : (size_t)1 << 30;
}

static mp_status read_memory(mp_host_config *config) {
    const char *text = setting("MILLPOND_HOST_MEMORY");
    if (text == NULL) {
        config->memory_bytes = half_of_memory();
        return MP_OK;
    }
    return mp_parse_size("MILLPOND_HOST_MEMORY", text, &config->memory_bytes);
}

/* A switch that is 0 or 1. */
static mp_status read_switch(const char *name, bool *on) {
    const char *text = setting(name);
    int64_t value = *on;
    if (text != NULL) {
        MP_TRY(mp_parse_int(name, text, 0, 1, &value));
    }
    *on = value != 0;
    return MP_OK;
}

static mp_status read_switches(mp_host_config *config) {
    bool mempools = true;
    MP_TRY(read_switch("MILLPOND_HOST_MEMPOOLS", &mempools));
    config->no_mempools = !mempools;
    return read_switch("MILLPOND_HOST_IPC", &config->ipc);
}

static mp_status read_compile_time(mp_host_config *config) {
    enum { MOST_MS = 60000 };
    const char *text = setting("MILLPOND_HOST_COMPILE_MS");
    return text == NULL
               ? MP_OK
               : mp_parse_int("MILLPOND_HOST_COMPILE_MS", text, 0, MOST_MS, &config->compile_ms);
}

static mp_status read_count(int *out) {
    const char *text = setting("MILLPOND_HOST_DEVICES");
    int64_t count = 1;
    if (text != NULL) {
        MP_TRY(mp_parse_int("MILLPOND_HOST_DEVICES", text, 1, DEVICES_MAX, &count));
    }
    *out = (int)count;
    return MP_OK;
}

int mp__host_device_count(void) {
    int count = 1;
    if (read_count(&count) != MP_OK) {
        MP_LOG(WARNING, "%s; one emulated device is shown", mp_error_message());
    }
    return count;
}

static mp_status open_shared(int ordinal) {
    mp_host_config config = {.seed = 0};
    MP_TRY(read_mode(&config));
    MP_TRY(read_memory(&config));
    MP_TRY(read_switches(&config));
    MP_TRY(read_compile_time(&config));
    MP_TRY(mp__host_device_create(&config, &shared[ordinal]));
    shared[ordinal]->ordinal = ordinal;
    return MP_OK;
}

mp_status mp__host_device_get(int ordinal, mp_device **out) {
    int count = 0;
    MP_TRY(read_count(&count));
    if (ordinal < 0 || ordinal >= count) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "emulated device %d requested, but there are %d; MILLPOND_HOST_DEVICES sets "
                       "how many",
                       ordinal, count);
    }
    (void)pthread_mutex_lock(&lock);
    const mp_status status = shared[ordinal] == NULL ? open_shared(ordinal) : MP_OK;
    if (status == MP_OK) {
        *out = shared[ordinal];
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}
