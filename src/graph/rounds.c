/* rounds.c - see rounds.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/rounds.h"

#include <stdlib.h>
#include <string.h>

mp_tensor mp_loop_head(const mp_loop *loop, int i) {
    const mp_graph *body = loop->body;
    mp_tensor head = {.type = i == 0 ? MP_I64 : MP_BOOL};
    if (body->values[body->inputs[i]].tensor.shape.rank == 1) {
        head.shape = (mp_shape){.rank = 1, .dim = {1}};
    }
    return head;
}

bool mp_loop_hands_condition_on(const mp_loop *loop) {
    const mp_graph *body = loop->body;
    int32_t value = body->outputs[0];
    while (body->values[value].producer != MP_NO_NODE) {
        const mp_vertex *v = &body->nodes[body->values[value].producer];
        if (!mp_vertex_is(v, "Identity") || v->guard != 0) {
            return false;
        }
        value = v->in[0];
    }
    return value == body->inputs[1];
}

void mp_rounds_destroy(mp_rounds *rounds) {
    if (rounds == NULL) {
        return;
    }
    mp_program_release(rounds->body);
    free(rounds->slices);
    free(rounds->carried_bytes);
    free(rounds->places[0]);
    free(rounds->places[1]);
    free(rounds);
}

size_t mp_rounds_scratch(const mp_rounds *rounds) {
    return rounds->scratch;
}

size_t mp_rounds_literals(mp_rounds *rounds, size_t at, unsigned char *to) {
    size_t bytes = 0;
    const void *theirs = mp_program_literals(rounds->body, &bytes);
    const size_t numbers = rounds->is_scan ? 0 : MP_NUMBER_BYTES * ((size_t)rounds->trips + 1);
    rounds->literal_at = at;
    rounds->body_literals = bytes;
    if (to != NULL) {
        memcpy(to, theirs != NULL ? theirs : "", bytes);
        for (int64_t i = 0; numbers > 0 && i < rounds->trips; i++) {
            memcpy(to + bytes + (size_t)i * MP_NUMBER_BYTES, &i, sizeof i);
        }
        if (numbers > 0) {
            to[bytes + numbers - MP_NUMBER_BYTES] = 1; /* the condition */
        }
    }
    return MP_ALIGN_UP(bytes + numbers, (size_t)MP_ALIGNMENT);
}

/* ---- running ---- */

/* What the rounds of one run have in common. */
typedef struct rounds_run {
    const mp_rounds *r;
    mp_device *device;
    mp_stream *stream;
    const mp_addr *in, *out; /* of the loop, carried values first */
    mp_addr scratch, literals;
    mp_addr *body_in, *body_out;
} rounds_run;

static mp_addr slice_at(const rounds_run *run, const mp_round_slice *s, mp_addr whole,
                        int64_t round) {
    return whole + (size_t)(s->backwards ? run->r->trips - 1 - round : round) * s->bytes;
}

/* Where the carried value lies behind round `round`; -1: before the first. */
static mp_addr carried_at(const rounds_run *run, int32_t i, int64_t round) {
    const mp_rounds *r = run->r;
    if (round < 0) {
        return run->in[i];
    }
    return round == r->trips - 1 && run->out[i] != 0 ? run->out[i]
                                                     : run->scratch + r->places[round % 2][i];
}

static mp_status set_inputs(const rounds_run *run, int64_t round) {
    const mp_rounds *r = run->r;
    mp_addr *to = run->body_in;
    if (!r->is_scan) {
        const mp_addr numbers = run->literals + r->literal_at + r->body_literals;
        *to++ = numbers + (size_t)round * MP_NUMBER_BYTES;
        *to++ = numbers + (size_t)r->trips * MP_NUMBER_BYTES;
    }
    for (int32_t i = 0; i < r->carried; i++) {
        *to++ = carried_at(run, i, round - 1);
    }
    for (int32_t i = 0; i < r->sliced; i++, to++) {
        const mp_round_slice *s = &r->slices[i];
        *to = slice_at(run, s, run->in[r->carried + i], round);
        if (s->goes_aside) {
            MP_TRY(run->device->ops->copy(run->device, run->stream, run->scratch + s->aside, *to,
                                          s->bytes));
            *to = run->scratch + s->aside;
        }
    }
    memcpy(to, run->in + r->carried + r->sliced, (size_t)r->captured * sizeof *to);
    return MP_OK;
}

static void set_outputs(const rounds_run *run, int64_t round) {
    const mp_rounds *r = run->r;
    mp_addr *to = run->body_out;
    if (!r->is_scan) {
        *to++ = run->scratch + r->condition;
    }
    for (int32_t i = 0; i < r->carried; i++) {
        *to++ = carried_at(run, i, round);
    }
    for (int32_t i = 0; i < r->stacked; i++) {
        const mp_round_slice *s = &r->slices[r->sliced + i];
        const mp_addr whole = run->out[r->carried + i];
        *to++ =
            s->goes_aside || whole == 0 ? run->scratch + s->aside : slice_at(run, s, whole, round);
    }
}

static mp_status bring_stacked(const rounds_run *run, int64_t round) {
    const mp_rounds *r = run->r;
    for (int32_t i = 0; i < r->stacked; i++) {
        const mp_round_slice *s = &r->slices[r->sliced + i];
        const mp_addr whole = run->out[r->carried + i];
        if (s->goes_aside && whole != 0 && s->bytes > 0) {
            MP_TRY(run->device->ops->copy(run->device, run->stream, slice_at(run, s, whole, round),
                                          run->scratch + s->aside, s->bytes));
        }
    }
    return MP_OK;
}

static mp_status run_rounds(const rounds_run *run) {
    const mp_rounds *r = run->r;
    const mp_program_call call = {.in = run->body_in,
                                  .out = run->body_out,
                                  .block = run->scratch + r->block,
                                  .literals = run->literals + r->literal_at};
    for (int64_t round = 0; round < r->trips; round++) {
        MP_TRY(set_inputs(run, round));
        set_outputs(run, round);
        MP_TRY(mp_program_run(r->body, run->stream, &call));
        MP_TRY(bring_stacked(run, round));
    }
    for (int32_t i = 0; i < r->carried && r->trips == 0; i++) {
        if (r->carried_bytes[i] > 0 && run->out[i] != 0) {
            MP_TRY(run->device->ops->copy(run->device, run->stream, run->out[i], run->in[i],
                                          r->carried_bytes[i]));
        }
    }
    return MP_OK;
}

mp_status mp_rounds_run(const mp_rounds *rounds, mp_device *device, mp_stream *stream,
                        const mp_addr *in, const mp_addr *out, mp_addr scratch, mp_addr literals) {
    const int head = rounds->is_scan ? 0 : MP_LOOP_HEAD_IN;
    const size_t values = (size_t)rounds->carried + (size_t)rounds->sliced +
                          (size_t)rounds->captured + (size_t)rounds->stacked + MP_LOOP_HEAD_IN;
    mp_addr *addresses = calloc(2 * values, sizeof *addresses);
    if (addresses == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a loop");
    }
    const rounds_run run = {.r = rounds,
                            .device = device,
                            .stream = stream,
                            .in = in + head,
                            .out = out,
                            .scratch = scratch,
                            .literals = literals,
                            .body_in = addresses,
                            .body_out = addresses + values};
    const mp_status status = run_rounds(&run);
    free(addresses);
    return status;
}
