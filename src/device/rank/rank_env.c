/* rank_env.c - see rank_env.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/rank/rank_env.h"

#include "base/option.h"
#include "device/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PORT_MAX = 65535,
    TORCH_PORT = 29500, /* what torchrun uses where it is told nothing */
    TIMEOUT_S = 300,
    TIMEOUT_S_MAX = 86400,
};

typedef struct launcher {
    const char *rank, *size;
} launcher;

static const launcher launchers[] = {
    {"RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
};

/* The value of a variable; NULL where it is not set, and in a set-user-id program. */
static const char *setting(const char *name) {
    const char *value = secure_getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static mp_status number_setting(const char *name, int64_t least, int64_t most, int64_t fallback,
                                int64_t *out) {
    const char *text = setting(name);
    *out = fallback;
    return text == NULL ? MP_OK : mp_parse_int(name, text, least, most, out);
}

static mp_status read_who(mp_rank *out) {
    const launcher *by = NULL;
    int64_t rank = 0, size = 0;
    for (size_t i = 0; i < MP_COUNT_OF(launchers) && by == NULL; i++) {
        const bool set = setting(launchers[i].rank) != NULL || setting(launchers[i].size) != NULL;
        by = set ? &launchers[i] : NULL;
    }
    if (by == NULL) {
        return MP_FAIL(NOT_FOUND,
                       "nothing says which rank this process is; start all ranks with torchrun or "
                       "mpirun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each");
    }
    if (setting(by->rank) == NULL || setting(by->size) == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "of %s and %s only one is set; set both", by->rank,
                       by->size);
    }
    MP_TRY(number_setting(by->size, 1, MP_RANKS_MAX, 1, &size));
    MP_TRY(number_setting(by->rank, 0, size - 1, 0, &rank));
    out->rank = (int)rank;
    out->size = (int)size;
    return MP_OK;
}

static mp_status read_where(mp_rank *out) {
    const char *host = setting("MASTER_ADDR");
    int64_t port = 0, own = 0;
    host = host != NULL ? host : "127.0.0.1";
    if (strlen(host) >= sizeof out->host) {
        return MP_FAIL(INVALID_ARGUMENT, "MASTER_ADDR has %zu characters; a host's name has %zu",
                       strlen(host), sizeof out->host - 1);
    }
    (void)snprintf(out->host, sizeof out->host, "%s", host);
    MP_TRY(number_setting("MASTER_PORT", 1, PORT_MAX - 1, TORCH_PORT, &port));
    MP_TRY(number_setting("MILLPOND_RANK_PORT", 1, PORT_MAX, port + 1, &own));
    out->port = (int)own;
    return MP_OK;
}

mp_status mp__rank_read(mp_rank *out) {
    int64_t seconds = 0;
    out->direct_bytes = -1;
    MP_TRY(read_who(out));
    MP_TRY(read_where(out));
    MP_TRY(number_setting("MILLPOND_RANK_TIMEOUT", 1, TIMEOUT_S_MAX, TIMEOUT_S, &seconds));
    out->timeout_ms = seconds * 1000;
    return number_setting("MILLPOND_RANK_DIRECT", 0, MP_PEERS_BYTES_MAX, -1, &out->direct_bytes);
}
