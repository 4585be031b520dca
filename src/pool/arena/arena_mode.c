/* arena_mode.c - the tables of a pool that lives from regions of its own, and of one that passes
 * each block on to an external memory manager.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/arena_mode.h"

#include "pool/arena/arena.h"
#include "pool/arena/capture.h"
#include "pool/arena/first_use.h"
#include "pool/arena/inspect.h"
#include "pool/arena/report.h"
#include "pool/arena/reserve.h"
#include "pool/arena/try_alloc.h"
#include "pool/arena/usage.h"
#include "pool/arena/wait.h"
#include "pool/dump.h"

static mp_status get_stats(arena *a, mp_pool_stats *out) {
    mp__usage_stats(a, out);
    return MP_OK;
}

static mp_status dump(arena *a, mp_write_fn *write, void *context) {
    mp__arena_dump(a, write, context);
    return MP_OK;
}

/* They differ in how blocks are allocated. */
#define TABLE(alloc_block, try_alloc_block)                                                  \
    {                                                                                        \
        .alloc = (alloc_block), .try_alloc = (try_alloc_block), .free = mp__arena_free,      \
        .try_free = mp__arena_try_free, .reserve = mp__arena_reserve,                        \
        .record_use = mp__arena_record_use, .record_end = mp__arena_record_end,              \
        .find = mp__arena_find, .stream_settled = mp__arena_stream_settled,                  \
        .stream_gone = mp__arena_stream_gone, .stream_over = mp__arena_stream_over,          \
        .stream_mark = mp__arena_stream_mark, .stream_ordered = mp__arena_stream_ordered,    \
        .wait = mp__arena_wait, .capture_begin = mp__arena_capture_begin,                    \
        .capture_end = mp__arena_capture_end, .capture_release = mp__arena_capture_release,  \
        .shrink = mp__arena_shrink, .regions_are_allocations = true, .get_stats = get_stats, \
        .reset_peaks = mp__usage_reset_peaks, .get_clients = mp__usage_clients,              \
        .get_streams = mp__usage_streams, .dump = dump, .layout = mp__arena_layout,          \
        .check = mp__arena_check, .report_options = mp__report_options,                      \
        .destroy = mp__arena_destroy,                                                        \
    }

const pool_mode mp__mode_arena = TABLE(mp__arena_alloc, mp__arena_try_alloc);
const pool_mode mp__mode_direct = TABLE(mp__arena_pass_on, mp__mode_refuse_try_alloc);
