/* choose.c - which device a process uses: what the caller names, MILLPOND_DEVICE, or what is there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/option.h"
#include "pool/pool_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts "cuda:1" into its kind and its ordinal. */
static mp_status parse(const char *wish, char kind[8], int *ordinal) {
    const char *colon = strchr(wish, ':');
    const size_t size = colon != NULL ? (size_t)(colon - wish) : strlen(wish);
    int64_t number = 0;
    if (size >= 8) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no device '%s'; use auto, host:N or cuda:N",
                       wish);
    }
    memcpy(kind, wish, size);
    kind[size] = '\0';
    if (colon != NULL) {
        MP_TRY(mp_parse_int(wish, colon + 1, 0, INT32_MAX, &number));
    }
    *ordinal = (int)number;
    return MP_OK;
}

static mp_status choose(const char *wish, const char *asked_by, mp_device_kind *kind, int *ordinal,
                        char *why, size_t why_size) {
    char word[8];
    MP_TRY(parse(wish, word, ordinal));
    const bool any = strcmp(word, "auto") == 0;
    if (!any && strcmp(word, "host") != 0 && strcmp(word, "cuda") != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%s is '%s'; use auto, host or cuda", asked_by, wish);
    }
    if (strcmp(word, "host") == 0) {
        (void)snprintf(why, why_size, "%s=%s asks for it", asked_by, wish);
        *kind = MP_DEVICE_HOST;
        return MP_OK;
    }
    const char *missing = NULL;
    const int gpus = mp_device_count(MP_DEVICE_CUDA, &missing);
    missing = missing != NULL ? missing : "the driver lists none";
    if (gpus > 0) {
        *kind = MP_DEVICE_CUDA;
        if (any) {
            (void)snprintf(why, why_size, "the CUDA driver lists %d GPU%s", gpus,
                           gpus > 1 ? "s" : "");
        } else {
            (void)snprintf(why, why_size, "%s=%s asks for it", asked_by, wish);
        }
        return MP_OK;
    }
    if (!any) {
        return MP_FAIL(NOT_FOUND, "%s is '%s', but no GPU can be used: %s", asked_by, wish,
                       missing);
    }
    (void)snprintf(why, why_size, "no GPU can be used: %s", missing);
    *kind = MP_DEVICE_HOST;
    return MP_OK;
}

bool mp__device_is_named(void) {
    const char *environment = getenv("MILLPOND_DEVICE");
    return environment != NULL && environment[0] != '\0' && strcmp(environment, "auto") != 0;
}

mp_status mp__choose_device(const char *wish, mp_device_kind *kind, int *ordinal, char *why,
                            size_t why_size) {
    const char *environment = getenv("MILLPOND_DEVICE");
    if (wish != NULL && strcmp(wish, "auto") != 0) {
        return choose(wish, "the device asked for", kind, ordinal, why, why_size);
    }
    const bool set = environment != NULL && environment[0] != '\0';
    return choose(set ? environment : "auto", "MILLPOND_DEVICE", kind, ordinal, why, why_size);
}
