/* plan_record.h - what the files of plans share: how a plan lies in memory.
 *
 * A plan is one growing byte buffer of records, each a `plan_step` followed by its arguments and
 * bindings, so that running it is one walk over memory in order. plan.c lists the steps,
 * plan_make.c makes and drops plans, plan_run.c runs them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PLAN_RECORD_H
#define MP_OP_PLAN_RECORD_H

#include "base/macros.h"
#include "op/core/plan.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_ARGS_MAX = 4096 }; /* bytes of a launch's arguments */

typedef enum plan_step_kind {
    STEP_LAUNCH,
    STEP_COPY,
    STEP_FILL,
    STEP_HOST,
    STEP_MATH,
    STEP_COLLECTIVE,
} plan_step_kind;

typedef struct plan_step {
    plan_step_kind kind;
    uint32_t size; /* of the whole record, a multiple of 16 */
    union {
        struct {
            const mp_kernel *kernel;
            mp_grid grid;
            uint32_t args_size;
            uint32_t bind_count;
        } launch; /* then: the arguments, padded to 16; the bindings */
        struct {
            mp_ref target, source;
            size_t size;
        } copy;
        struct {
            mp_ref target;
            uint32_t value;
            size_t width, count;
        } fill;
        struct {
            uint32_t index;
            size_t size;
        } host; /* then: the bytes */
        struct {
            mp_math *math; /* owned by the plan */
            mp_ref operands[MP_MATH_OPERANDS_MAX];
            mp_ref workspace;
            int64_t m, n, k, batch; /* of a product; a batch of 0: a convolution */
        } math;
        struct {
            mp_math *math; /* owned by the plan */
            mp_ref operands[MP_COLLECTIVE_OPERANDS];
            mp_collective_kind kind;
            int64_t count;
            size_t bytes;
            const mp_kernel *kernel; /* that does it by the peers' memory; NULL: none does */
            mp_grid grid;
        } collective;
    };
} plan_step;

struct mp_plan {
    atomic_int references;
    atomic_ullong runs; /* started so far */
    mp_device *device;  /* borrowed */
    int out_count;
    int step_count;
    mp_tensor *out; /* owned; type MP_NONE until declared */
    size_t scratch;
    mp_ref found; /* what is read back after a run */
    int found_count;
    size_t used, capacity;
    unsigned char *steps; /* owned */
};

/* Records and what lies within them begin at multiples of this. */
static inline size_t plan_padded(size_t size) {
    return MP_ALIGN_UP(size, 16);
}

/* What follows the record itself. */
static inline void *step_tail(const plan_step *at) {
    return (char *)(uintptr_t)at + plan_padded(sizeof *at);
}

static inline plan_step *step_at(const mp_plan *plan, size_t offset) {
    return (plan_step *)(void *)(plan->steps + offset);
}

#endif
