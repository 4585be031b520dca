/* plan_write.c - see plan_write.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/plan_write.h"

#include "base/json.h"
#include "op/core/kernel_cache.h"
#include "op/core/plan_record.h"
#include "op/fused/fused_kernel.h"

#include <inttypes.h>

static void write_launch(const mp_plan *plan, const plan_step *s, FILE *out) {
    const mp_grid *grid = &s->launch.grid;
    const char *cached = mp_kernel_cache_name(plan->device, s->launch.kernel);
    const char *name =
        cached != NULL ? cached : mp_fused_kernel_name(plan->device, s->launch.kernel);
    const uint64_t rows = grid->blocks_y > 0 ? grid->blocks_y : 1;
    (void)fputs("{\"kind\":\"kernel\",\"name\":", out);
    mp_json_text(out, name != NULL ? name : "");
    (void)fprintf(out, ",\"blocks\":%" PRIu64 ",\"lanes\":%" PRIu32 "}", grid->blocks * rows,
                  grid->lanes);
}

static void write_math(const plan_step *s, FILE *out) {
    if (s->math.batch == 0) {
        (void)fputs("{\"kind\":\"convolution\"}", out);
        return;
    }
    (void)fprintf(out,
                  "{\"kind\":\"product\",\"m\":%" PRId64 ",\"n\":%" PRId64 ",\"k\":%" PRId64
                  ",\"batch\":%" PRId64 "}",
                  s->math.m, s->math.n, s->math.k, s->math.batch);
}

static void write_bytes(const char *kind, size_t bytes, FILE *out) {
    (void)fprintf(out, "{\"kind\":\"%s\",\"bytes\":%zu}", kind, bytes);
}

static void write_step(const mp_plan *plan, const plan_step *s, FILE *out) {
    switch (s->kind) {
    case STEP_LAUNCH:
        write_launch(plan, s, out);
        return;
    case STEP_COPY:
        write_bytes("copy", s->copy.size, out);
        return;
    case STEP_FILL:
        write_bytes("fill", s->fill.count * s->fill.width, out);
        return;
    case STEP_HOST:
        write_bytes("host", s->host.size, out);
        return;
    case STEP_MATH:
        write_math(s, out);
        return;
    case STEP_COLLECTIVE:
        (void)fprintf(out, "{\"kind\":\"collective\",\"name\":\"%s\",\"bytes\":%zu}",
                      mp_collective_name(s->collective.kind), s->collective.bytes);
        return;
    }
}

void mp_plan_write(const mp_plan *plan, FILE *out) {
    (void)fputc('[', out);
    for (size_t at = 0; at < plan->used; at += step_at(plan, at)->size) {
        (void)fputs(at > 0 ? "," : "", out);
        write_step(plan, step_at(plan, at), out);
    }
    (void)fputc(']', out);
}
