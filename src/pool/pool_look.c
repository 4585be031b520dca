/* pool_look.c - the public functions that show what is in a pool: statistics, shares, the page of
 * text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/handle.h"
#include "pool/pool_argument.h"
#include "pool/pool_handle.h"

#include <string.h>

mp_status mp_pool_get_stats(mp_pool *pool, mp_pool_stats *out, size_t size) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(size > 0, "size is 0; give sizeof(mp_pool_stats)");
    mp_pool_stats stats;
    MP_TRY(a->mode->get_stats(a, &stats));
    memset(out, 0, size);
    memcpy(out, &stats, size < sizeof stats ? size : sizeof stats);
    return MP_OK;
}

void mp_pool_reset_peaks(mp_pool *pool) {
    arena *a = mp__handle_arena(pool);
    if (a != NULL && !process_is_forked()) {
        a->mode->reset_peaks(a);
    }
}

mp_status mp_pool_get_clients(mp_pool *pool, mp_share *out, size_t capacity, size_t *count) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(count != NULL, "count is NULL");
    CHECK_ARGUMENT(out != NULL || capacity == 0, "out is NULL with a capacity above 0");
    a->mode->get_clients(a, out, capacity, count);
    return MP_OK;
}

mp_status mp_pool_get_streams(mp_pool *pool, mp_share *out, size_t capacity, size_t *count) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(count != NULL, "count is NULL");
    CHECK_ARGUMENT(out != NULL || capacity == 0, "out is NULL with a capacity above 0");
    return a->mode->get_streams(a, out, capacity, count);
}

mp_status mp_pool_dump(mp_pool *pool, mp_write_fn *write, void *context) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(write != NULL, "write is NULL");
    return a->mode->dump(a, write, context);
}

mp_status mp__pool_check(mp_pool *pool) {
    TAKE_ARENA(a, pool);
    return a->mode->check(a);
}
