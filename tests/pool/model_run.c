/* model_run.c - the operations, one after another, on the pool and on the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_state.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUMS_EACH = 61, LAYOUT_EACH = 1009, VERIFY_EACH = 4001 };

/* ---- failing ---- */

bool model_fail(model *m, const char *format, ...) {
    if (!m->result->failed) { /* the first tells most */
        char *why = m->result->why;
        va_list args;
        va_start(args, format);
        /* clang-tidy 14 forgets va_start in a function that it inlines. */
        (void)vsnprintf(why, MODEL_WHY_MAX, format, args); // NOLINT(*-valist.Uninitialized)
        va_end(args);
        m->result->failed = true;
    }
    return false;
}

bool model_ok(model *m, mp_status status, const char *what) {
    return status == MP_OK ||
           model_fail(m, "%s: %s: %s", what, mp_status_name(status), mp_error_message());
}

bool model_excused(const model *m, mp_status status) {
    return m->plan->fault > 0 && status == m->plan->fault_status;
}

/* ---- blocks ---- */

static bool add(model *m, const model_block *block) {
    const size_t at = model_live_after(m, block->addr);
    if (at < m->live_count && m->live[at]->addr < block->addr + block->size) {
        return model_fail(
            m, "0x%zx of %zu bytes was allocated while 0x%zx of %zu bytes is allocated",
            (size_t)block->addr, block->size, (size_t)m->live[at]->addr, m->live[at]->size);
    }
    if (model_graph_in(m, block->addr, block->size) != NULL) {
        return model_fail(m, "0x%zx of %zu bytes was allocated while a graph has it",
                          (size_t)block->addr, block->size);
    }
    model_block *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        return model_fail(m, "cannot allocate memory for the model");
    }
    *copy = *block;
    memmove(&m->live[at + 1], &m->live[at], (m->live_count - at) * sizeof(model_block *));
    m->live[at] = copy;
    m->live_count++;
    m->in_use += model_chunk_size(m, block->size);
    m->in_use_max = m->in_use > m->in_use_max ? m->in_use : m->in_use_max;
    m->requested += block->requested;
    m->alloc_size_max = block->requested > m->alloc_size_max ? block->requested : m->alloc_size_max;
    m->allocs++;
    m->client_allocs[block->client]++;
    return true;
}

static void forget(model *m, size_t at) {
    model_block *block = m->live[at];
    m->in_use -= model_chunk_size(m, block->size);
    m->requested -= block->requested;
    m->frees++;
    m->freed[m->frees % MODEL_FREED] = block->addr;
    memmove(&m->live[at], &m->live[at + 1], (m->live_count - at - 1) * sizeof(model_block *));
    m->live_count--;
    free(block);
}

/* ---- allocating ---- */

static bool lent(model *m, const model_op *op, mp_addr addr, bool reserved) {
    mp_block_info info = {0};
    const size_t requested = op->size > 0 ? op->size : 1;
    const int stream = reserved ? 0 : op->stream;
    if (!model_ok(m, mp_pool_find(m->pools[0], addr, &info), "find")) {
        return false;
    }
    if (addr == 0 || addr % MP_ALIGNMENT != 0 || info.addr != addr || info.requested != requested ||
        info.size < requested || info.stream != m->streams[stream].native ||
        info.client[0] != 'a' + op->client) {
        return model_fail(
            m, "%zu bytes allocated at 0x%zx are found as %zu of %zu at 0x%zx, client %s",
            requested, (size_t)addr, info.requested, info.size, (size_t)info.addr, info.client);
    }
    model_block block = {.addr = addr,
                         .size = info.size,
                         .requested = requested,
                         .stream = (uint8_t)stream,
                         .client = op->client};
    m->reserves += reserved;
    return model_write(m, &block) && add(m, &block);
}

static bool step_alloc(model *m, const model_op *op) {
    if (m->live_count >= m->plan->config->live_max) {
        return true;
    }
    mp_addr addr = 0;
    const mp_status status =
        mp_pool_alloc(m->pools[op->client], op->size, m->streams[op->stream].native, &addr);
    if (status == MP_OK) {
        return lent(m, op, addr, false);
    }
    if (status == MP_OUT_OF_MEMORY) {
        m->failures++;
        m->result->refused++;
        return m->plan->fault > 0 || model_check_refusal(m, op->size);
    }
    return model_excused(m, status) || model_ok(m, status, "alloc");
}

static bool step_reserve(model *m, const model_op *op) {
    if (m->live_count >= m->plan->config->live_max) {
        return true;
    }
    mp_addr addr = 0;
    const mp_status status = mp_pool_reserve(m->pools[op->client], op->size, &addr);
    if (status == MP_OK) {
        return lent(m, op, addr, true);
    }
    if (status == MP_OUT_OF_MEMORY) {
        m->failures++;
        m->result->refused++;
        return true;
    }
    return model_excused(m, status) || model_ok(m, status, "reserve");
}

/* ---- giving back ---- */

static bool free_at(model *m, size_t at, int client) {
    const model_block *block = m->live[at];
    const bool well = model_read(m, block, block->stream) &&
                      model_ok(m, mp_pool_free(m->pools[client], block->addr), "free");
    forget(m, at);
    return well;
}

static bool step_free(model *m, const model_op *op) {
    return m->live_count == 0 || free_at(m, op->which % m->live_count, op->client);
}

/* In the order of another stream, which is made to wait for all that used the block. */
static bool step_free_on(model *m, const model_op *op) {
    if (m->live_count == 0) {
        return true;
    }
    const size_t at = op->which % m->live_count;
    const model_block *block = m->live[at];
    if (block->stream == 0 || op->other == 0) {
        return free_at(m, at, op->client);
    }
    for (int i = 1; i < MODEL_STREAMS; i++) {
        const bool uses = i == block->stream || (block->uses >> i & 1) != 0;
        if (uses && i != op->other && !model_order(m, i, op->other)) {
            return false;
        }
    }
    const bool well =
        model_read(m, block, op->other) &&
        model_ok(m,
                 mp_pool_free_on(m->pools[op->client], block->addr, m->streams[op->other].native),
                 "free_on");
    forget(m, at);
    return well;
}

static bool is_live(const model *m, mp_addr addr) {
    const size_t at = model_live_after(m, addr);
    return at < m->live_count && m->live[at]->addr == addr;
}

static bool refused(model *m, mp_addr addr) {
    const mp_status status = mp_pool_free(m->pools[0], addr);
    return status == MP_INVALID_ARGUMENT ||
           model_fail(m, "free of 0x%zx, which is not allocated: %s", (size_t)addr,
                      mp_status_name(status));
}

static bool step_free_twice(model *m, const model_op *op) {
    const mp_addr addr = m->freed[op->which % MODEL_FREED];
    return addr == 0 || is_live(m, addr) || refused(m, addr);
}

static bool step_free_foreign(model *m, const model_op *op) {
    if (m->live_count > 0 && op->other > 2) {
        const model_block *block = m->live[op->which % m->live_count];
        const mp_addr inside = block->addr + 1 + op->size % block->size;
        return is_live(m, inside) || refused(m, inside);
    }
    return refused(m, (mp_addr)&m->live) && refused(m, op->size | 1U);
}

static bool step_find(model *m, const model_op *op) {
    if (m->live_count == 0) {
        return true;
    }
    const model_block *block = m->live[op->which % m->live_count];
    mp_block_info info = {0};
    return model_ok(m,
                    mp_pool_find(m->pools[op->client], block->addr + op->size % block->size, &info),
                    "find") &&
           (info.addr == block->addr || model_fail(m, "inside of 0x%zx, 0x%zx is found",
                                                   (size_t)block->addr, (size_t)info.addr));
}

/* ---- streams ---- */

/* Another stream waits for the block's own, is declared, and reads. */
static bool step_use(model *m, const model_op *op) {
    if (m->live_count == 0) {
        return true;
    }
    model_block *block = m->live[op->which % m->live_count];
    if (block->stream == 0 || op->other == 0) {
        return true;
    }
    mp_status status;
    if (op->other != block->stream && !model_order(m, block->stream, op->other)) {
        return false;
    }
    MODEL_RETRY(
        m, status,
        mp_pool_record_use(m->pools[op->client], block->addr, m->streams[op->other].native));
    block->uses |= (uint8_t)(1U << op->other);
    return model_ok(m, status, "record_use") && model_read(m, block, op->other);
}

static bool step_read(model *m, const model_op *op) {
    if (m->live_count == 0) {
        return true;
    }
    const model_block *block = m->live[op->which % m->live_count];
    return model_read(m, block, block->stream);
}

static bool step_order(model *m, const model_op *op) {
    uint64_t mark = 0;
    if (op->stream == 0 || op->other == 0 || op->stream == op->other) {
        return true;
    }
    void *producer = m->streams[op->stream].native, *consumer = m->streams[op->other].native;
    mp_status status;
    MODEL_RETRY(m, status, mp_pool_stream_mark(m->pools[0], producer, &mark));
    if (!model_ok(m, status, "stream_mark") || !model_order(m, op->stream, op->other)) {
        return false;
    }
    MODEL_RETRY(m, status, mp_pool_stream_ordered(m->pools[0], consumer, producer, mark));
    return model_ok(m, status, "stream_ordered");
}

static bool step_settle(model *m, const model_op *op) {
    if (op->stream == 0) {
        return true;
    }
    mp_status status;
    MODEL_RETRY(m, status,
                m->device->ops->stream_synchronize(m->device, m->streams[op->stream].queue));
    if (!model_ok(m, status, "stream_synchronize")) {
        return false;
    }
    MODEL_RETRY(m, status, mp_pool_stream_settled(m->pools[0], m->streams[op->stream].native));
    return model_ok(m, status, "stream_settled");
}

static bool step_replace_stream(model *m, const model_op *op) {
    const int stream = 1 + op->stream % (MODEL_STREAMS - 2);
    return model_release_on(m, stream) && model_stream_close(m, stream) &&
           model_stream_open(m, stream);
}

/* ---- the rest ---- */

static bool step_shrink(model *m, const model_op *op) {
    mp_status status;
    MODEL_RETRY(m, status, mp_pool_shrink(m->pools[op->client], NULL));
    return model_ok(m, status, "shrink");
}

static bool open_client(model *m, int client) {
    const char name[] = {(char)('a' + client), 0};
    mp_status status;
    MODEL_RETRY(m, status,
                mp__pool_open_on(m->device, MP_MEMORY_DEVICE, name, m->plan->config->options,
                                 &m->pools[client]));
    return model_ok(m, status, "open");
}

/* The first handle stays open, so that the pool is the same. */
static bool step_reopen(model *m, const model_op *op) {
    const int client = 1 + op->client % (MODEL_CLIENTS - 1);
    mp_pool_close(m->pools[client]);
    m->pools[client] = NULL;
    m->reopened[client] = true;
    return open_client(m, client);
}

static bool step_limit(model *m, const model_op *op) {
    m->limited = !m->limited;
    mp_limit_set(m->limited ? (size_t)(1 + op->which % 16) << 20 : 0);
    return true;
}

static bool step_trace(model *m, const model_op *op) {
    return model_ok(m, mp_pool_trace(m->pools[0], op->which % 2 * 100), "trace");
}

static bool step_reset_peaks(model *m, const model_op *op) {
    mp_pool_reset_peaks(m->pools[op->client]);
    m->in_use_max = m->in_use;
    m->alloc_size_max = 0;
    return true;
}

static bool step_release(model *m, const model_op *op) {
    return model_release(m, &m->graphs[op->which % MODEL_GRAPHS]);
}

static bool step_verify(model *m, const model_op *op) {
    (void)op;
    return model_verify(m);
}

typedef bool step_fn(model *m, const model_op *op);

static step_fn *const steps[MODEL_KINDS] = {
    [MODEL_ALLOC] = step_alloc,
    [MODEL_FREE] = step_free,
    [MODEL_FREE_ON] = step_free_on,
    [MODEL_FREE_TWICE] = step_free_twice,
    [MODEL_FREE_FOREIGN] = step_free_foreign,
    [MODEL_FIND] = step_find,
    [MODEL_USE] = step_use,
    [MODEL_READ] = step_read,
    [MODEL_ORDER] = step_order,
    [MODEL_SETTLE] = step_settle,
    [MODEL_REPLACE_STREAM] = step_replace_stream,
    [MODEL_RESERVE] = step_reserve,
    [MODEL_SHRINK] = step_shrink,
    [MODEL_REOPEN] = step_reopen,
    [MODEL_LIMIT] = step_limit,
    [MODEL_TRACE] = step_trace,
    [MODEL_RESET_PEAKS] = step_reset_peaks,
    [MODEL_CAPTURE] = model_capture,
    [MODEL_REPLAY] = model_replay,
    [MODEL_RELEASE] = step_release,
    [MODEL_VERIFY] = step_verify,
};

/* ---- a run ---- */

static bool begin(model *m) {
    m->live = malloc((m->plan->config->live_max + 1) * sizeof(model_block *));
    if (m->live == NULL) {
        return model_fail(m, "cannot allocate memory for the model");
    }
    for (int client = 0; client < MODEL_CLIENTS; client++) {
        if (!open_client(m, client)) {
            return false;
        }
    }
    return model_work_open(m);
}

static bool check(model *m, uint64_t index) {
    const bool often = m->plan->check_often;
    return (!(often || index % SUMS_EACH == 0) || model_check_sums(m)) &&
           (!(often || index % LAYOUT_EACH == 0) || model_check_layout(m)) &&
           (index % VERIFY_EACH != 0 || model_verify(m));
}

static bool run_steps(model *m) {
    for (uint64_t i = 0; i < m->plan->count; i++) {
        const uint64_t index = m->plan->picked != NULL ? m->plan->picked[i] : i;
        const model_op op = m->plan->bytes != NULL
                                ? model_op_from(m->plan->bytes + index * MODEL_OP_BYTES)
                                : model_op_at(m->plan->config, m->plan->seed, index);
        if (!steps[op.kind](m, &op) || !check(m, i + 1) || m->result->failed) {
            return false;
        }
        m->result->done = i + 1;
    }
    return true;
}

/* Frees everything: then nothing may be left. */
static bool end(model *m) {
    mp_limit_set(0);
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        if (!model_release(m, &m->graphs[i])) {
            return false;
        }
    }
    while (m->live_count > 0) {
        if (!free_at(m, m->live_count - 1, 0)) {
            return false;
        }
    }
    if (!model_check_sums(m) || !model_verify(m)) {
        return false;
    }
    for (int i = 1; i < MODEL_STREAMS; i++) {
        if (!model_stream_close(m, i)) {
            return false;
        }
    }
    mp_pool_stats stats = {0};
    mp_status status;
    MODEL_RETRY(m, status, mp_pool_shrink(m->pools[0], NULL));
    return model_ok(m, status, "shrink") && model_check_layout(m) &&
           model_ok(m, mp_pool_get_stats(m->pools[0], &stats, sizeof stats), "get_stats") &&
           (stats.total == 0 || model_fail(m, "%zu bytes are left", (size_t)stats.total));
}

static void close_all(model *m) {
    for (int client = 0; client < MODEL_CLIENTS; client++) {
        mp_pool_close(m->pools[client]);
    }
    model_work_close(m);
    for (size_t i = 0; i < m->live_count; i++) {
        free(m->live[i]);
    }
    free(m->live);
}

/* Nothing in a run is an error that the pool should have to tell of. */
static void take_line(void *context, mp_log_level level, const char *file, int line,
                      const char *text) {
    model *m = context;
    if (level == MP_LOG_ERROR && m->plan->fault == 0) {
        (void)model_fail(m, "%s:%d: %s", file, line, text);
    }
}

bool model_run(mp_device *device, const model_plan *plan, model_result *result) {
    model *m = calloc(1, sizeof *m);
    *result = (model_result){0};
    if (m == NULL) {
        result->failed = true;
        return false;
    }
    m->device = device;
    m->plan = plan;
    m->result = result;
    const bool host = device->info.kind == MP_DEVICE_HOST;
    if (host) {
        (void)mp__host_device_fail(device, plan->fault, plan->fault_status);
    }
    mp_log_set_sink(take_line, m);
    const bool well = begin(m) && run_steps(m) && end(m);
    (void)well; /* what failed is in the result */
    if (host) {
        result->fault_left = mp__host_device_fail(device, 0, MP_OK);
    }
    close_all(m);
    const char *breach = host ? mp__host_device_breach(device) : NULL;
    if (breach != NULL) {
        (void)model_fail(m, "%s", breach);
    }
    mp_log_set_sink(NULL, NULL);
    free(m);
    return !result->failed;
}
