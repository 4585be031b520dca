/* island_loop.c - loops that are not known before they run: the condition is computed on the
 * device, or values change their shape from one iteration to the next.
 *
 * The host walks the body's segments once an iteration, and waits where it has to read the
 * condition. Results of an iteration are the next one's inputs where they are. What is stacked goes
 * by memory that is the same in each iteration, so that iterations of one shape can be replayed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"
#include "ep/run/call.h"
#include "graph/rounds.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 8 };

typedef struct stack {
    mp_addr memory; /* owned, as all memory here */
    mp_addr part;   /* what the iteration writes */
    mp_tensor one;  /* type MP_NONE before the first iteration */
    size_t bytes;   /* of one */
    size_t part_room;
    int64_t room; /* for so many */
} stack;

typedef struct looped {
    mp_walk *walk;
    mp_island *body;
    const mp_program_round *what;
    const mp_loop *loop;
    int head_in, head_out;
    int64_t trips, round;
    mp_tensor *in;      /* owned; of the body */
    mp_addr *in_addr;   /* owned */
    const void **known; /* owned */
    mp_addr *out_addr;  /* owned */
    mp_addr *carried;   /* owned: memory of carried values, 0 for the loop's own inputs */
    mp_addr *fresh;     /* owned: the same of this iteration's */
    stack *stacks;      /* owned */
    mp_addr small;      /* number, condition, the body's condition */
    bool number_is_read;
    bool holds;
} looped;

static mp_pool *pool_of(const looped *l) {
    return l->body->provider->pool;
}

static mp_device *device_of(const looped *l) {
    return l->body->provider->unit->device;
}

static mp_status lend(const looped *l, size_t bytes, mp_addr *out) {
    *out = 0;
    return bytes > 0 ? mp__lend(pool_of(l), bytes, l->walk->native, out) : MP_OK;
}

static void give(const looped *l, mp_addr *addr) {
    (void)mp__give_back(pool_of(l), *addr);
    *addr = 0;
}

/* ---- life ---- */

static mp_status open_loop(looped *l) {
    const size_t in = (size_t)l->body->graph->input_count + 1;
    const size_t out = (size_t)l->body->graph->output_count + 1;
    l->in = calloc(in, sizeof *l->in);
    l->in_addr = calloc(in, sizeof *l->in_addr);
    l->known = calloc(in, sizeof *l->known);
    l->out_addr = calloc(out, sizeof *l->out_addr);
    l->carried = calloc(out, sizeof *l->carried);
    l->fresh = calloc(out, sizeof *l->fresh);
    l->stacks = calloc(out, sizeof *l->stacks);
    return l->in != NULL && l->in_addr != NULL && l->known != NULL && l->out_addr != NULL &&
                   l->carried != NULL && l->fresh != NULL && l->stacks != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a loop");
}

static void close_loop(looped *l) {
    const bool is_open = l->carried != NULL && l->fresh != NULL && l->stacks != NULL;
    for (int32_t i = 0; is_open && i < l->loop->carried; i++) {
        give(l, &l->carried[i]);
        give(l, &l->fresh[i]);
    }
    for (int32_t i = 0; is_open && i < l->loop->stacked; i++) {
        give(l, &l->stacks[i].memory);
        give(l, &l->stacks[i].part);
    }
    give(l, &l->small);
    free(l->in);
    free(l->in_addr);
    free(l->known);
    free(l->out_addr);
    free(l->carried);
    free(l->fresh);
    free(l->stacks);
}

/* ---- before the first iteration ---- */

static void read_limits(looped *l, const mp_program *program, int i) {
    const mp_tensor *most = mp_program_repeat_in(program, i, 0);
    const mp_tensor *first = mp_program_repeat_in(program, i, 1);
    l->trips = most->type != MP_NONE && most->data != 0 ? *(const int64_t *)(uintptr_t)most->data
                                                        : INT64_MAX;
    l->holds = first->type == MP_NONE || first->data == 0 || *(const bool *)(uintptr_t)first->data;
}

static mp_status read_slices(looped *l, const mp_program *program, int i) {
    l->holds = true;
    l->trips = 0;
    for (int32_t k = 0; k < l->loop->sliced; k++) {
        const mp_shape *shape = &mp_program_repeat_in(program, i, l->loop->carried + k)->shape;
        const int64_t count = shape->rank > 0 ? shape->dim[0] : -1;
        if (count < 0 || (k > 0 && count != l->trips)) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "Scan '%s' has inputs of %lld and %lld slices; they must have one count",
                           l->what->name, (long long)l->trips, (long long)count);
        }
        l->trips = count;
    }
    return MP_OK;
}

/* Small memory for what the body may read on the device. */
static mp_status open_small(looped *l) {
    enum { WORD = 256 };
    mp_device *device = device_of(l);
    MP_TRY(lend(l, 3 * (size_t)WORD, &l->small));
    if (l->loop->is_scan) {
        return MP_OK;
    }
    l->number_is_read = mp_graph_uses(l->body->graph, l->body->graph->inputs[0]) > 0;
    l->in[0] = mp_loop_head(l->loop, 0);
    l->in[1] = mp_loop_head(l->loop, 1);
    l->in_addr[0] = l->small;
    l->in_addr[1] = l->small + WORD;
    l->known[0] = &l->round;
    l->known[1] = &l->holds;
    l->out_addr[0] = l->small + (size_t)2 * WORD;
    MP_TRY(device->ops->fill(device, l->walk->stream, l->small, 0, 4, 2));
    return device->ops->fill(device, l->walk->stream, l->small + WORD, 1, 1, 1);
}

static void take_inputs(looped *l, const mp_program *program, int i, const mp_program_call *call) {
    for (int32_t k = l->head_in; k < l->body->graph->input_count; k++) {
        const mp_tensor *given = mp_program_repeat_in(program, i, k);
        l->in[k] = *given;
        l->in[k].data = 0;
        l->in_addr[k] = mp_program_repeat_addr(program, i, k, call);
        l->known[k] = (const void *)given->data;
    }
    for (int32_t k = 0; k < l->loop->sliced; k++) { /* what is known is all of it */
        mp_shape *shape = &l->in[l->head_in + l->loop->carried + k].shape;
        memmove(&shape->dim[0], &shape->dim[1], (size_t)(shape->rank - 1) * sizeof(int64_t));
        shape->rank--;
        l->known[l->head_in + l->loop->carried + k] = NULL;
    }
}

/* ---- one iteration ---- */

static size_t bytes_of(const mp_tensor *tensor) {
    size_t bytes = 0;
    return mp_shape_bytes(&tensor->shape, tensor->type, &bytes) == MP_OK ? bytes : 0;
}

static mp_status part_of_stack(looped *l, stack *s, const mp_tensor *one, size_t bytes) {
    if (one->shape.rank >= MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "an iteration of Loop '%s' gave a result of rank %d; put together, results "
                       "may have ranks up to %d",
                       l->what->name, (int)one->shape.rank, MP_RANK_MAX);
    }
    if (s->one.type != MP_NONE &&
        (s->one.type != one->type || !mp_shape_equal(&s->one.shape, &one->shape))) {
        char now[MP_SHAPE_TEXT];
        char before[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "an iteration of Loop '%s' gave a result of shape %s where the first gave "
                       "%s; results that are put together must have one shape",
                       l->what->name, mp_shape_text(&one->shape, now),
                       mp_shape_text(&s->one.shape, before));
    }
    s->one = *one;
    s->bytes = bytes;
    return s->part == 0 ? lend(l, bytes, &s->part) : MP_OK;
}

typedef struct body_walk {
    mp_walk walk; /* first */
    looped *l;
} body_walk;

static mp_status give_output(mp_walk *walk, const mp_program *program, int i) {
    looped *l = ((body_walk *)walk)->l;
    const size_t bytes = mp_program_output_bytes(program, i);
    const int k = i - l->head_out;
    if (k < 0) {
        return MP_OK; /* its place is there */
    }
    if (k < l->loop->carried) {
        MP_TRY(lend(l, bytes, &l->fresh[k]));
        walk->out[i] = l->fresh[k];
        return MP_OK;
    }
    stack *s = &l->stacks[k - l->loop->carried];
    MP_TRY(part_of_stack(l, s, mp_program_output_at(program, i), bytes));
    walk->out[i] = s->part;
    return MP_OK;
}

/* Room for one more; twice as much where there is none. */
static mp_status make_room(looped *l, stack *s) {
    mp_device *device = device_of(l);
    mp_addr more = 0;
    if (l->round < s->room || s->bytes == 0) {
        return MP_OK;
    }
    int64_t room = s->room > 0 ? s->room * 2 : FIRST_ROOM;
    room = l->loop->is_scan ? l->trips : MP_MIN(room, l->trips);
    size_t bytes = 0;
    if (__builtin_mul_overflow((size_t)room, s->bytes, &bytes)) {
        return MP_FAIL(OUT_OF_MEMORY, "%lld results of a loop are too many", (long long)room);
    }
    MP_TRY(lend(l, bytes, &more));
    mp_status status = MP_OK;
    if (s->memory != 0) {
        status =
            device->ops->copy(device, l->walk->stream, more, s->memory, (size_t)s->room * s->bytes);
    }
    give(l, &s->memory);
    s->memory = more;
    s->room = room;
    return status;
}

static mp_status push_all(looped *l) {
    mp_device *device = device_of(l);
    for (int32_t i = 0; i < l->loop->stacked; i++) {
        stack *s = &l->stacks[i];
        const bool backwards = l->loop->backwards[l->loop->sliced + i];
        const int64_t at = backwards ? l->trips - 1 - l->round : l->round;
        MP_TRY(make_room(l, s));
        if (s->bytes > 0) {
            MP_TRY(device->ops->copy(device, l->walk->stream, s->memory + (size_t)at * s->bytes,
                                     s->part, s->bytes));
        }
    }
    return MP_OK;
}

static void hand_on(looped *l, const mp_walk *walk, const mp_program *end) {
    for (int32_t i = 0; i < l->loop->carried; i++) {
        const int out = l->head_out + i;
        l->in[l->head_in + i] = *mp_program_output_at(end, out);
        l->in[l->head_in + i].data = 0;
        l->in_addr[l->head_in + i] = walk->out[out];
        l->known[l->head_in + i] = NULL;
        give(l, &l->carried[i]);
        l->carried[i] = l->fresh[i];
        l->fresh[i] = 0;
    }
}

/* Whether there is another iteration. */
static mp_status read_condition(looped *l, const mp_program *end) {
    mp_device *device = device_of(l);
    mp_pool *pinned_pool = l->body->provider->pinned;
    mp_addr pinned = 0;
    if (l->loop->is_scan || mp_loop_hands_condition_on(l->loop) || l->round + 1 >= l->trips) {
        return MP_OK;
    }
    const bool *known = mp_program_output_known(end, 0);
    if (known != NULL) {
        l->holds = *known;
        return MP_OK;
    }
    MP_TRY(mp_pool_alloc(pinned_pool, sizeof(bool), MP_NO_STREAM, &pinned));
    mp_status status =
        device->ops->copy(device, l->walk->stream, pinned, l->out_addr[0], sizeof(bool));
    const mp_status waited = device->ops->stream_synchronize(device, l->walk->stream);
    status = status == MP_OK ? waited : status;
    if (status == MP_OK) {
        l->holds = *(const bool *)pinned;
    }
    const mp_status freed = mp_pool_free(pinned_pool, pinned);
    return status != MP_OK ? status : freed;
}

static mp_status walk_body(looped *l, mp_island_program *p) {
    body_walk body = {.walk = {.island = l->body,
                               .stream = l->walk->stream,
                               .native = l->walk->native,
                               .in = l->in_addr,
                               .known = l->known,
                               .out = l->out_addr,
                               .output = give_output},
                      .l = l};
    mp_status status = mp__walk_outputs(&body.walk, p->program);
    if (status == MP_OK) {
        status = mp__walk(&body.walk, p);
    }
    if (status == MP_OK) {
        status = push_all(l);
    }
    if (status == MP_OK) {
        const mp_program *end = mp__walk_end(&body.walk, p);
        status = read_condition(l, end);
        hand_on(l, &body.walk, end);
    }
    const mp_status closed = mp__walk_close(&body.walk);
    return status != MP_OK ? status : closed;
}

static mp_status run_body(looped *l) {
    mp_island_program *p = NULL;
    const int32_t inputs = l->body->graph->input_count;
    const int32_t align = mp__all_aligned(l->in_addr, inputs) ? MP_CALL_ALIGNED : 1;
    const mp_label before = mp_label_set(l->body->label);
    mp_status status = mp__island_program_get(l->body, l->in, align, &p);
    if (status == MP_OK) {
        status = walk_body(l, p);
        mp__island_program_drop(l->body, p);
    }
    (void)mp_label_set(before);
    return status;
}

static mp_status start_round(looped *l, const mp_addr *slices) {
    mp_device *device = device_of(l);
    for (int32_t i = 0; i < l->loop->sliced; i++) {
        const int32_t in = l->head_in + l->loop->carried + i;
        const int64_t at = l->loop->backwards[i] ? l->trips - 1 - l->round : l->round;
        l->in_addr[in] = slices[i] + (size_t)at * bytes_of(&l->in[in]);
    }
    return l->number_is_read && l->round > 0
               ? device->ops->fill(device, l->walk->stream, l->small, (uint32_t)l->round, 4, 1)
               : MP_OK;
}

/* ---- results ---- */

/* Of no iteration: as far as the model says what the shape would be. */
static mp_tensor empty_stack(const looped *l, int32_t i) {
    const mp_graph *graph = l->body->graph;
    const mp_tensor *said =
        &graph->values[graph->outputs[l->head_out + l->loop->carried + i]].tensor;
    mp_tensor none = {.type = said->type, .shape = {.rank = 1}};
    for (int d = 0; d < said->shape.rank && said->shape.rank < MP_RANK_MAX; d++) {
        none.shape.dim[none.shape.rank++] = MP_MAX(said->shape.dim[d], 0);
    }
    return none;
}

static mp_tensor full_stack(const stack *s, int64_t rounds) {
    mp_tensor all = {.type = s->one.type, .shape = {.rank = s->one.shape.rank + 1}};
    all.shape.dim[0] = rounds;
    memcpy(&all.shape.dim[1], s->one.shape.dim, (size_t)s->one.shape.rank * sizeof(int64_t));
    return all;
}

/* Of each tensor only what it says is written, so that equal ones have equal bytes. */
static void write_tensor(unsigned char *to, const mp_tensor *tensor) {
    mp_tensor *out = (mp_tensor *)(void *)to;
    out->type = tensor->type;
    out->shape.rank = tensor->shape.rank;
    memcpy(out->shape.dim, tensor->shape.dim, (size_t)tensor->shape.rank * sizeof(int64_t));
}

/* A value that no iteration has made is the loop's own input, of which a result is a copy. */
static mp_status copy_first(looped *l, int32_t i) {
    mp_device *device = device_of(l);
    const size_t bytes = bytes_of(&l->in[l->head_in + i]);
    MP_TRY(lend(l, bytes, &l->carried[i]));
    return bytes > 0 ? device->ops->copy(device, l->walk->stream, l->carried[i],
                                         l->in_addr[l->head_in + i], bytes)
                     : MP_OK;
}

static mp_status give_results(looped *l, unsigned char *found) {
    mp_addr *bases = &l->walk->bases[l->what->base];
    unsigned char *tensors = found + l->what->offset;
    for (int32_t i = 0; i < l->loop->carried; i++) {
        if (l->round == 0) {
            MP_TRY(copy_first(l, i));
        }
        write_tensor(tensors + (size_t)i * sizeof(mp_tensor), &l->in[l->head_in + i]);
        bases[i] = l->carried[i];
        l->carried[i] = 0;
    }
    for (int32_t i = 0; i < l->loop->stacked; i++) {
        const int32_t k = l->loop->carried + i;
        const mp_tensor all =
            l->round == 0 ? empty_stack(l, i) : full_stack(&l->stacks[i], l->round);
        write_tensor(tensors + (size_t)k * sizeof(mp_tensor), &all);
        bases[k] = l->stacks[i].memory;
        l->stacks[i].memory = 0;
    }
    return MP_OK;
}

/* ---- all ---- */

static mp_island *body_of(const mp_island *island, const mp_loop *loop) {
    for (int32_t i = 0; i < island->body_count; i++) {
        if (island->bodies[i].loop == loop) {
            return island->bodies[i].island;
        }
    }
    return NULL;
}

static mp_status run_all(looped *l) {
    const int32_t first = l->head_in + l->loop->carried;
    mp_addr *slices = calloc((size_t)l->loop->sliced + 1, sizeof *slices);
    if (slices == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a loop");
    }
    memcpy(slices, &l->in_addr[first], (size_t)l->loop->sliced * sizeof *slices);
    mp_status status = MP_OK;
    for (; status == MP_OK && l->holds && l->round < l->trips; l->round++) {
        status = start_round(l, slices);
        if (status == MP_OK) {
            status = run_body(l);
        }
    }
    free(slices);
    return status;
}

static mp_status run_loop(looped *l, const mp_program *program, int i, const mp_program_call *call,
                          unsigned char *found) {
    MP_TRY(open_loop(l));
    if (l->loop->is_scan) {
        MP_TRY(read_slices(l, program, i));
    } else {
        read_limits(l, program, i);
    }
    MP_TRY(open_small(l));
    take_inputs(l, program, i, call);
    MP_TRY(run_all(l));
    return give_results(l, found);
}

mp_status mp__walk_loop(mp_walk *walk, const mp_program *program, int i,
                        const mp_program_call *call, unsigned char *found) {
    const mp_program_round what = mp_program_repeat_at(program, i);
    looped l = {.walk = walk,
                .body = body_of(walk->island, what.loop),
                .what = &what,
                .loop = what.loop,
                .head_in = what.loop->is_scan ? 0 : MP_LOOP_HEAD_IN,
                .head_out = what.loop->is_scan ? 0 : MP_LOOP_HEAD_OUT};
    if (l.body == NULL) {
        return MP_FAIL(INTERNAL, "the body of '%s' has not been compiled", what.name);
    }
    const mp_status status = run_loop(&l, program, i, call, found);
    close_loop(&l);
    return status;
}
