/* model.h - a pool against a simple model of it, driven by random operations.
 *
 * The model knows every allocated block, by address, and what the pool should count; it knows
 * nothing of how the pool finds memory. On every block work is queued that writes a number of its
 * own there and reads it back later, so memory that two streams had at a time shows in what was
 * read.
 *
 * The n-th operation follows from the seed and n alone, and each makes sense in any state of the
 * model. So a list of operations that fails can be cut down to the few that matter.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_POOL_MODEL_H
#define MP_TESTS_POOL_MODEL_H

#include "device/device.h"

enum { MODEL_OPTIONS_MAX = 6, MODEL_WHY_MAX = 512 };

typedef struct model_config {
    const char *name;
    const char *options[MODEL_OPTIONS_MAX]; /* NULL ends */
    size_t size_max;                        /* of a request */
    uint32_t live_max;                      /* blocks */
    uint32_t border;                        /* bytes on each side of a block, in its chunk */
} model_config;

extern const model_config model_configs[];
extern const size_t model_config_count;

/* NULL where there is none. */
const model_config *model_config_named(const char *name);

/* ---- operations ---- */

#define MODEL_OPS(X)     \
    X(ALLOC, 400)        \
    X(FREE, 370)         \
    X(FREE_ON, 20)       \
    X(FREE_TWICE, 10)    \
    X(FREE_FOREIGN, 5)   \
    X(FIND, 20)          \
    X(USE, 30)           \
    X(READ, 40)          \
    X(ORDER, 20)         \
    X(SETTLE, 8)         \
    X(REPLACE_STREAM, 2) \
    X(RESERVE, 4)        \
    X(SHRINK, 1)         \
    X(REOPEN, 2)         \
    X(LIMIT, 1)          \
    X(TRACE, 1)          \
    X(RESET_PEAKS, 1)    \
    X(CAPTURE, 2)        \
    X(REPLAY, 4)         \
    X(RELEASE, 2)        \
    X(VERIFY, 1)

typedef enum model_kind {
#define MODEL_ENUM(name, weight) MODEL_##name,
    MODEL_OPS(MODEL_ENUM)
#undef MODEL_ENUM
        MODEL_KINDS
} model_kind;

typedef struct model_op {
    model_kind kind;
    uint32_t which; /* block, graph: modulo how many there are */
    uint32_t size;  /* of what is asked for */
    uint8_t client, stream, other;
} model_op;

model_op model_op_at(const model_config *config, uint64_t seed, uint64_t index);
/* What MODEL_OP_BYTES bytes from elsewhere mean; any bytes mean something. */
enum { MODEL_OP_BYTES = 8 };
model_op model_op_from(const unsigned char *bytes);
/* What an operation is, in words. */
void model_op_print(const model_op *op, char *text, size_t size);

/* ---- runs ---- */

typedef struct model_plan {
    const model_config *config;
    uint64_t seed;
    uint64_t count;             /* operations */
    const uint64_t *picked;     /* which ones; NULL: the first `count` */
    const unsigned char *bytes; /* where they come from in place of the seed; may be NULL */
    bool check_often;           /* everything after every operation */
    uint64_t fault;             /* the device's call that fails; 0 for none; emulated device only */
    mp_status fault_status;
} model_plan;

typedef struct model_result {
    uint64_t done;    /* operations that ended */
    uint64_t refused; /* requests that ran out of memory */
    bool failed;
    bool fault_left; /* there were fewer calls than that */
    char why[MODEL_WHY_MAX];
} model_result;

/* Runs the operations in a pool of its own on `device`, frees everything, and looks that the pool
 * is empty. `result` may lie in memory shared with another process. Returns whether nothing failed.
 */
bool model_run(mp_device *device, const model_plan *plan, model_result *result);

/* ---- runs in a process of their own ---- */

typedef struct model_job {
    model_plan plan;
    int mode; /* of an emulated device */
    uint64_t device_seed;
} model_job;

/* Runs in a forked process, so that a crash is a failure as any other. The calling process must not
 * have used a pool. Fails: INTERNAL, no process could be had. */
mp_status model_job_run(const model_job *job, model_result *result);

/* Cuts the operations of a job that fails down, for at most `limit_s` seconds, and writes them to
 * stderr, one a line. */
void model_job_report(const model_job *job, const model_result *result, int limit_s);

#endif
