/* model_job.c - runs of the model in processes of their own, and how a failing one is cut down.
 *
 * Cutting down: everything behind the operation that failed goes first; then pieces are left out,
 * half of the list, a quarter, and so on down to single operations, as long as the rest still
 * fails.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"
#include "device/host/host_device.h"
#include "model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPT_LIMIT_S = 600 };

static const size_t memory_bytes = (size_t)256 << 20;

/* ---- one run ---- */

static void run_here(const model_job *job, model_result *result) {
    const mp_host_config config = {
        .mode = (unsigned)job->mode, .seed = job->device_seed, .memory_bytes = memory_bytes};
    mp_device *device = NULL;
    if (mp__host_device_create(&config, &device) != MP_OK) {
        result->failed = true;
        (void)snprintf(result->why, sizeof result->why, "%s", mp_error_message());
        return;
    }
    const bool well = model_run(device, &job->plan, result);
    const size_t left = mp__host_device_destroy(device);
    if (well && left > 0) {
        result->failed = true;
        (void)snprintf(result->why, sizeof result->why, "%zu objects of the device were left",
                       left);
    }
}

static void note_crash(model_result *result, int state) {
    if (!result->failed && WIFSIGNALED(state)) {
        (void)snprintf(result->why, sizeof result->why, "ended by signal %d", WTERMSIG(state));
        result->failed = true;
    } else if (!result->failed && WEXITSTATUS(state) != 0) {
        (void)snprintf(result->why, sizeof result->why, "exit status %d", WEXITSTATUS(state));
        result->failed = true;
    }
}

mp_status model_job_run(const model_job *job, model_result *result) {
    model_result *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = shared != MAP_FAILED ? fork() : -1;
    if (child < 0) {
        return MP_FAIL(INTERNAL, "no process for the model: %s", strerror(errno));
    }
    if (child == 0) {
        (void)alarm(ATTEMPT_LIMIT_S);
        run_here(job, shared);
        exit(0); /* not _exit: sanitizers look for leaks on the way out */
    }
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    note_crash(shared, state);
    *result = *shared;
    (void)munmap(shared, sizeof *shared);
    return MP_OK;
}

/* ---- cutting down ---- */

typedef struct cut {
    model_job job;
    uint64_t *picked, *attempt; /* owned */
    uint64_t count;
    double until_s;
    model_result last; /* of the list as it is */
} cut;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Tries the list without `length` operations from `from`; keeps it so where that fails too. */
static bool leave_out(cut *c, uint64_t from, uint64_t length) {
    const uint64_t rest = c->count - length;
    memcpy(c->attempt, c->picked, from * sizeof *c->attempt);
    memcpy(c->attempt + from, c->picked + from + length, (rest - from) * sizeof *c->attempt);
    c->job.plan.picked = c->attempt;
    c->job.plan.count = rest;
    model_result result;
    if (model_job_run(&c->job, &result) != MP_OK || !result.failed) {
        return false;
    }
    uint64_t *other = c->picked;
    c->picked = c->attempt;
    c->attempt = other;
    c->count = result.done < rest ? result.done + 1 : rest; /* the one that failed is the last */
    c->last = result;
    return true;
}

static void cut_down(cut *c) {
    for (uint64_t length = c->count / 2; length > 0; length /= 2) {
        for (uint64_t from = 0; from + length <= c->count;) {
            if (now_s() > c->until_s) {
                return;
            }
            from += leave_out(c, from, length) ? 0 : length;
        }
    }
}

static void print_list(const cut *c) {
    (void)fprintf(stderr, "%" PRIu64 " operations are left, which end so: %s\n", c->count,
                  c->last.why);
    for (uint64_t i = 0; i < c->count; i++) {
        char text[128];
        const model_op op = model_op_at(c->job.plan.config, c->job.plan.seed, c->picked[i]);
        model_op_print(&op, text, sizeof text);
        (void)fprintf(stderr, "  %10" PRIu64 "  %s\n", c->picked[i], text);
    }
}

void model_job_report(const model_job *job, const model_result *result, int limit_s) {
    const uint64_t count =
        result->done < job->plan.count ? result->done + 1 : job->plan.count; /* as far as it came */
    cut c = {.job = *job, .count = count, .last = *result, .until_s = now_s() + limit_s};
    (void)fprintf(stderr,
                  "config %s, mode %d, seed %" PRIu64 ", device seed %" PRIu64
                  ": operation %" PRIu64 ": %s\n",
                  job->plan.config->name, job->mode, job->plan.seed, job->device_seed, result->done,
                  result->why);
    c.picked = malloc((count + 1) * sizeof *c.picked);
    c.attempt = malloc((count + 1) * sizeof *c.attempt);
    if (c.picked != NULL && c.attempt != NULL) {
        for (uint64_t i = 0; i < count; i++) {
            c.picked[i] = job->plan.picked != NULL ? job->plan.picked[i] : i;
        }
        c.job.plan.check_often = count < 20000; /* an early sign is a short list */
        cut_down(&c);
        print_list(&c);
    }
    free(c.picked);
    free(c.attempt);
}
