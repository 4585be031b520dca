/* program_loop.c - plans a loop as one step (rounds.h), where it is one that can be.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 1 << 16 };

/* Counted for loops within loops, whose product with another ROUNDS_MAX is still a number. */
static const int64_t launches_most = INT64_C(1) << 40;

/* The shape of one slice. Returns false where there is none. */
static bool slice_of(const mp_tensor *whole, mp_tensor *out) {
    *out = (mp_tensor){.type = whole->type, .shape = {.rank = whole->shape.rank - 1}};
    for (int d = 1; d < whole->shape.rank; d++) {
        out->shape.dim[d - 1] = whole->shape.dim[d];
    }
    return whole->shape.rank > 0;
}

static mp_tensor stack_of(const mp_tensor *one, int64_t trips) {
    mp_tensor all = {.type = one->type, .shape = {.rank = one->shape.rank + 1}};
    all.shape.dim[0] = trips;
    memcpy(&all.shape.dim[1], one->shape.dim, (size_t)one->shape.rank * sizeof(int64_t));
    return all;
}

/* How often the body runs; false where that is not known. */
static bool count_trips(const mp_loop *loop, const mp_tensor *in, int64_t *trips) {
    if (loop->is_scan) {
        const mp_tensor *first = &in[loop->carried];
        *trips = first->shape.rank > 0 ? first->shape.dim[0] : -1;
        for (int32_t i = 0; i < loop->sliced; i++) {
            const mp_shape *other = &in[loop->carried + i].shape;
            *trips = other->rank > 0 && other->dim[0] == *trips ? *trips : -1;
        }
        return *trips >= 0;
    }
    if (in[0].type == MP_NONE || in[0].data == 0) {
        return false;
    }
    const bool holds = in[1].type == MP_NONE || *(const bool *)(uintptr_t)in[1].data;
    *trips = holds ? MP_MAX(*(const int64_t *)(uintptr_t)in[0].data, 0) : 0;
    return true;
}

/* What the body is planned with. Values that change from one iteration to the next are not known.
 */
static bool body_inputs(const mp_loop *loop, const mp_tensor *in, int captured, mp_tensor *out) {
    mp_tensor *to = out;
    const mp_tensor *from = in;
    if (!loop->is_scan) {
        *to++ = mp_loop_head(loop, 0);
        *to++ = mp_loop_head(loop, 1);
        from += MP_LOOP_HEAD_IN;
    }
    for (int32_t i = 0; i < loop->carried; i++, from++, to++) {
        *to = *from;
        to->data = 0;
    }
    for (int32_t i = 0; i < loop->sliced; i++, from++, to++) {
        if (!slice_of(from, to)) {
            return false;
        }
    }
    memcpy(to, from, (size_t)captured * sizeof *to);
    return true;
}

/* Whether the body's condition is what it was given, or always true. */
static bool goes_on(const mp_loop *loop, const mp_program *body) {
    const bool *known = loop->is_scan ? NULL : mp_program_output_known(body, 0);
    return loop->is_scan || mp_loop_hands_condition_on(loop) || (known != NULL && *known);
}

static bool keeps_shapes(const mp_rounds *r, const mp_tensor *in) {
    const int head_in = r->is_scan ? 0 : MP_LOOP_HEAD_IN;
    const int head_out = r->is_scan ? 0 : MP_LOOP_HEAD_OUT;
    for (int32_t i = 0; i < r->carried; i++) {
        const mp_tensor *out = mp_program_output_at(r->body, head_out + i);
        if (out->type != in[head_in + i].type ||
            !mp_shape_equal(&out->shape, &in[head_in + i].shape)) {
            return false;
        }
    }
    for (int32_t i = 0; i < r->stacked; i++) {
        if (mp_program_output_at(r->body, head_out + r->carried + i)->shape.rank >= MP_RANK_MAX) {
            return false;
        }
    }
    return true;
}

static size_t take(mp_rounds *r, size_t bytes) {
    const size_t at = r->scratch;
    r->scratch += MP_ALIGN_UP(bytes, (size_t)MP_ALIGNMENT);
    return at;
}

/* `wanted`: it lies in what the loop reads, or in a result that somebody reads. */
static mp_status set_slice(mp_rounds *r, int32_t align, const mp_tensor *one, bool backwards,
                           bool wanted, mp_round_slice *out) {
    MP_TRY(mp_shape_bytes(&one->shape, one->type, &out->bytes));
    out->backwards = backwards;
    out->goes_aside = out->bytes % (size_t)align != 0;
    out->aside = out->goes_aside || !wanted ? take(r, out->bytes) : 0;
    return MP_OK;
}

/* The body makes what nobody reads, too, which needs a place of its own. */
static mp_status lay_out(mp_rounds *r, const mp_vertex *v, int32_t align,
                         const mp_tensor *body_in) {
    const mp_loop *loop = v->loop;
    const int head_in = r->is_scan ? 0 : MP_LOOP_HEAD_IN;
    const int head_out = r->is_scan ? 0 : MP_LOOP_HEAD_OUT;
    r->block = take(r, mp_program_block_bytes(r->body));
    r->condition = take(r, MP_NUMBER_BYTES);
    for (int32_t i = 0; i < r->carried; i++) {
        const mp_tensor *t = &body_in[head_in + i];
        MP_TRY(mp_shape_bytes(&t->shape, t->type, &r->carried_bytes[i]));
        const int64_t within =
            r->trips - (mp_vertex_out(v, i) != MP_NO_VALUE); /* the last is out */
        r->places[0][i] = within > 0 ? take(r, r->carried_bytes[i]) : 0;
        r->places[1][i] = within > 1 ? take(r, r->carried_bytes[i]) : 0;
    }
    for (int32_t i = 0; i < r->sliced; i++) {
        MP_TRY(set_slice(r, align, &body_in[head_in + r->carried + i], loop->backwards[i], true,
                         &r->slices[i]));
    }
    for (int32_t i = 0; i < r->stacked; i++) {
        MP_TRY(set_slice(r, align, mp_program_output_at(r->body, head_out + r->carried + i),
                         loop->backwards[r->sliced + i],
                         mp_vertex_out(v, r->carried + i) != MP_NO_VALUE,
                         &r->slices[r->sliced + i]));
    }
    return MP_OK;
}

static mp_status open_rounds(const mp_loop *loop, int64_t trips, int captured, mp_rounds **out) {
    mp_rounds *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a loop");
    }
    const size_t carried = (size_t)loop->carried + 1;
    *r = (mp_rounds){
        .is_scan = loop->is_scan,
        .trips = trips,
        .carried = loop->carried,
        .sliced = loop->sliced,
        .stacked = loop->stacked,
        .captured = captured,
        .slices = calloc((size_t)loop->sliced + (size_t)loop->stacked + 1, sizeof(mp_round_slice)),
        .carried_bytes = calloc(carried, sizeof(size_t)),
        .places = {calloc(carried, sizeof(size_t)), calloc(carried, sizeof(size_t))}};
    if (r->slices == NULL || r->carried_bytes == NULL || r->places[0] == NULL ||
        r->places[1] == NULL) {
        mp_rounds_destroy(r);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a loop");
    }
    *out = r;
    return MP_OK;
}

mp_tensor mp_rounds_output(const mp_rounds *rounds, int i) {
    const int head = rounds->is_scan ? 0 : MP_LOOP_HEAD_OUT;
    const mp_tensor *made = mp_program_output_at(rounds->body, head + i);
    mp_tensor out = i < rounds->carried ? *made : stack_of(made, rounds->trips);
    out.data = 0;
    return out;
}

static mp_status add_step(mp_draft *draft, int32_t node, mp_rounds *r) {
    const mp_vertex *v = &draft->graph->nodes[node];
    mp_program_step *step = mp_draft_step(draft, node, true);
    step->kind = MP_STEP_LOOP;
    step->rounds = r;
    draft->program->launches =
        MP_MIN(draft->program->launches + r->trips * (mp_program_launch_count(r->body) + 1),
               launches_most);
    draft->program->draws = draft->program->draws || mp_program_draws(r->body);
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            draft->tensors[v->out[i]] = mp_rounds_output(r, i);
        }
    }
    return mp_program_name_node(step, v);
}

/* `body_in` has room for the body's inputs. */
static mp_status plan_with(mp_draft *draft, int32_t node, const mp_tensor *in, int64_t trips,
                           mp_tensor *body_in, bool *done) {
    const mp_loop *loop = draft->graph->nodes[node].loop;
    const int head = loop->is_scan ? 0 : MP_LOOP_HEAD_IN;
    const int captured = draft->graph->nodes[node].in_count - head - loop->carried - loop->sliced;
    mp_rounds *r = NULL;
    if (!body_inputs(loop, in, captured, body_in)) {
        return MP_OK;
    }
    MP_TRY(open_rounds(loop, trips, captured, &r));
    const mp_program_step *like = mp_draft_like(draft, node);
    const mp_program *like_body = like != NULL && like->rounds != NULL ? like->rounds->body : NULL;
    mp_status status = mp_program_make(draft->program->device, loop->body, body_in,
                                       draft->program->align, like_body, &r->body);
    const bool fits = status == MP_OK && mp_program_is_last(r->body) && goes_on(loop, r->body) &&
                      keeps_shapes(r, body_in);
    if (fits) {
        status = lay_out(r, &draft->graph->nodes[node], draft->program->align, body_in);
    }
    if (!fits || status != MP_OK) {
        const bool may_fail = trips == 0 && status != MP_OUT_OF_MEMORY; /* as nobody runs it */
        mp_rounds_destroy(r);
        return may_fail ? MP_OK : status;
    }
    *done = true;
    return add_step(draft, node, r);
}

/* Of no iteration the model, not the body's program, says what is stacked: as ONNX Runtime does. */
static bool lacks_shapes(const mp_loop *loop, int64_t trips) {
    return !loop->is_scan && trips == 0 && loop->stacked > 0;
}

mp_status mp_rounds_plan(mp_draft *draft, int32_t node, const mp_tensor *in, bool *done) {
    const mp_vertex *v = &draft->graph->nodes[node];
    int64_t trips = 0;
    *done = false;
    if (!count_trips(v->loop, in, &trips) || trips > ROUNDS_MAX || lacks_shapes(v->loop, trips)) {
        return MP_OK;
    }
    mp_tensor *body_in = calloc((size_t)v->loop->body->input_count + 1, sizeof *body_in);
    if (body_in == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a loop");
    }
    const mp_status status = plan_with(draft, node, in, trips, body_in, done);
    free(body_in);
    return status;
}
