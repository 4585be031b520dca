/* program_ask.c - what is read back behind a segment.
 *
 * Sizes are often computed on the device from a few numbers, a box of four say, by a dozen small
 * integer nodes, and one after the other is asked for. So not what is asked for is read, but the
 * fewest numbers from which all of it follows, with what else later nodes will ask for and follows
 * from the same; the next segment, which knows them, computes the rest on the host (host_value.h).
 * Nodes that do nothing else in this segment are taken back.
 *
 * Fewest, since programs are found by what was read: the largest of eight lengths is read, and not
 * the eight. Of as few, those nearest to where they come from, so that most of the rest need not be
 * launched, but no number before it is divided or compared.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/least_cut.h"
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGNED = 16,
    COUNT_MOST = 64,  /* elements of what is computed on the host instead */
    BYTE_WEIGHT = 64, /* in a cut; what is lost behind a value weighs less than a byte */
    LOST_MOST = 63,
};

/* ---- the list ---- */

mp_status mp_draft_read(mp_draft *draft, mp_program_read read) {
    mp_program *program = draft->program;
    if (program->read_count == program->read_capacity) {
        const int32_t capacity = program->read_capacity * 2 + 8;
        mp_program_read *grown = realloc(program->reads, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph");
        }
        program->reads = grown;
        program->read_capacity = capacity;
    }
    read.offset = program->found_bytes;
    program->found_bytes += MP_ALIGN_UP(read.bytes, (size_t)ALIGNED);
    program->reads[program->read_count++] = read;
    return MP_OK;
}

/* ---- what is found out ---- */

typedef struct asking {
    mp_draft *draft;
    bool *passes;        /* by node: the host can compute it from its inputs; owned, as all here */
    bool *covered;       /* by value: it follows from what those that are asked for follow from */
    bool *within;        /* by value: what is wanted on the host follows from it */
    bool *is_read;       /* by value */
    bool *is_needed;     /* by value: on the device, in this segment */
    unsigned char *lost; /* by value: nodes that lose some of it, on the way to what is wanted */
    mp_least_cut cut;
} asking;

/* ---- nodes ---- */

typedef struct number_op {
    const char *name;
    bool loses; /* many inputs give the same output, of as many bytes; bounds seldom do */
} number_op;

/* Their kernels give the same bits on any device for integers of all values. */
static const number_op number_ops[] = {
    {"Abs", false},        {"Add", false},       {"And", true},         {"Cast", false},
    {"Concat", false},     {"Div", true},        {"Equal", true},       {"Expand", false},
    {"Flatten", false},    {"Gather", false},    {"Greater", true},     {"GreaterOrEqual", true},
    {"Identity", false},   {"Less", true},       {"LessOrEqual", true}, {"Max", false},
    {"Min", false},        {"Mod", true},        {"Mul", false},        {"Neg", false},
    {"Not", false},        {"Or", true},         {"ReduceMax", false},  {"ReduceMin", false},
    {"ReduceProd", false}, {"ReduceSum", false}, {"Reshape", false},    {"Sign", true},
    {"Slice", false},      {"Split", false},     {"Squeeze", false},    {"Sub", false},
    {"Tile", false},       {"Transpose", false}, {"Unsqueeze", false},  {"Where", true},
    {"Xor", true},
};

static const number_op *find_op(const mp_op *op) {
    for (size_t i = 0; i < MP_COUNT_OF(number_ops) && op->domain[0] == '\0'; i++) {
        if (strcmp(number_ops[i].name, op->name) == 0) {
            return &number_ops[i];
        }
    }
    return NULL;
}

static bool are_few_integers(const mp_draft *draft, const int32_t *values, int count) {
    bool are = true;
    for (int i = 0; i < count && are; i++) {
        const mp_tensor *tensor = values[i] != MP_NO_VALUE ? &draft->tensors[values[i]] : NULL;
        are = tensor == NULL || ((MP_BIT(tensor->type) & (MP_INTS | MP_BIT(MP_BOOL))) != 0 &&
                                 mp_shape_count(&tensor->shape) <= COUNT_MOST);
    }
    return are;
}

static bool is_unknown(const mp_draft *draft, int32_t value) {
    return value != MP_NO_VALUE && draft->tensors[value].type != MP_NONE &&
           draft->tensors[value].data == 0;
}

static bool has_unknown(const mp_draft *draft, const mp_vertex *v) {
    bool has = false;
    for (int i = 0; i < v->in_count && !has; i++) {
        has = is_unknown(draft, v->in[i]);
    }
    return has;
}

/* Of this segment, on the device. What is there although all its inputs are known was no work for
 * the host. */
static bool passes(const mp_draft *draft, int32_t n) {
    const mp_vertex *v = &draft->graph->nodes[n];
    return draft->fates[n] != MP_FATE_NOTHING && draft->program->is_done[n] && v->loop == NULL &&
           find_op(v->node.op) != NULL && are_few_integers(draft, v->in, v->in_count) &&
           are_few_integers(draft, v->out, v->out_count) && has_unknown(draft, v);
}

/* Whether one of the node's outputs is marked. */
static bool makes_any(const mp_vertex *v, const bool *marks) {
    bool makes = false;
    for (int i = 0; i < v->out_count && !makes; i++) {
        makes = v->out[i] != MP_NO_VALUE && marks[v->out[i]];
    }
    return makes;
}

/* Whether all inputs that are not known are marked. */
static bool needs_only(const mp_draft *draft, const mp_vertex *v, const bool *marks) {
    bool only = true;
    for (int i = 0; i < v->in_count && only; i++) {
        only = !is_unknown(draft, v->in[i]) || marks[v->in[i]];
    }
    return only;
}

static void mark(const int32_t *values, int count, bool *marks) {
    for (int i = 0; i < count; i++) {
        if (values[i] != MP_NO_VALUE) {
            marks[values[i]] = true;
        }
    }
}

/* All that nodes compute from what is marked is marked, too. */
static void follow(const asking *a, bool *marks) {
    for (int32_t n = 0; n < a->draft->graph->node_count; n++) {
        const mp_vertex *v = &a->draft->graph->nodes[n];
        if (a->passes[n] && needs_only(a->draft, v, marks)) {
            mark(v->out, v->out_count, marks);
        }
    }
}

/* ---- what is wanted ---- */

/* What the values that are marked are computed from. */
static void follow_back(const asking *a, bool *marks) {
    for (int32_t n = a->draft->graph->node_count - 1; n >= 0; n--) {
        const mp_vertex *v = &a->draft->graph->nodes[n];
        if (a->passes[n] && makes_any(v, marks)) {
            mark(v->in, v->in_count, marks);
        }
    }
}

static bool is_computed(const asking *a, int32_t value) {
    const int32_t producer = a->draft->graph->values[value].producer;
    return producer != MP_NO_NODE && a->passes[producer];
}

static void find_covered(const asking *a) {
    const int32_t values = a->draft->graph->value_count;
    memcpy(a->covered, a->draft->is_asked, (size_t)values);
    follow_back(a, a->covered);
    for (int32_t i = 0; i < values; i++) {
        a->covered[i] = a->covered[i] && !is_computed(a, i);
    }
    follow(a, a->covered);
}

/* What is asked for, and what later nodes will ask for that is covered. */
static mp_status want(asking *a, int32_t value) {
    if (!is_unknown(a->draft, value) || !a->covered[value] || a->within[value]) {
        return MP_OK;
    }
    a->within[value] = true;
    return mp_least_cut_sink(&a->cut, value);
}

static mp_status want_all(asking *a) {
    const mp_graph *graph = a->draft->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (a->draft->is_asked[i]) {
            MP_TRY(want(a, i));
        }
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !a->draft->program->is_done[n]; i++) {
            if (mp_op_host_in(v->node.op, (size_t)i)) {
                MP_TRY(want(a, v->in[i]));
            }
        }
    }
    return MP_OK;
}

/* ---- the cut ---- */

static void lose(const asking *a, const mp_vertex *v) {
    unsigned lost = 0;
    for (int i = 0; i < v->out_count; i++) {
        lost = v->out[i] != MP_NO_VALUE ? MP_MAX(lost, a->lost[v->out[i]]) : lost;
    }
    lost = MP_MIN(lost + (find_op(v->node.op)->loses ? 1 : 0), LOST_MOST);
    for (int i = 0; i < v->in_count; i++) {
        if (is_unknown(a->draft, v->in[i])) {
            a->lost[v->in[i]] = (unsigned char)MP_MAX(lost, a->lost[v->in[i]]);
        }
    }
}

static mp_status lead(asking *a, const mp_vertex *v) {
    for (int i = 0; i < v->in_count; i++) {
        for (int o = 0; o < v->out_count && is_unknown(a->draft, v->in[i]); o++) {
            if (v->out[o] != MP_NO_VALUE) {
                MP_TRY(mp_least_cut_lead(&a->cut, v->in[i], v->out[o]));
            }
        }
    }
    return MP_OK;
}

static mp_status weigh(asking *a, int32_t value) {
    const mp_tensor *tensor = &a->draft->tensors[value];
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    MP_TRY(mp_least_cut_weigh(&a->cut, value, (int64_t)bytes * BYTE_WEIGHT + a->lost[value]));
    return is_computed(a, value) ? MP_OK : mp_least_cut_source(&a->cut, value);
}

static mp_status find_reads(asking *a) {
    const mp_graph *graph = a->draft->graph;
    MP_TRY(want_all(a));
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const mp_vertex *v = &graph->nodes[n];
        if (a->passes[n] && makes_any(v, a->within)) {
            mark(v->in, v->in_count, a->within);
            mark(v->out, v->out_count, a->within);
            lose(a, v);
            MP_TRY(lead(a, v));
        }
    }
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (a->within[i] && is_unknown(a->draft, i)) {
            MP_TRY(weigh(a, i));
        }
    }
    mp_least_cut_find(&a->cut, a->is_read);
    return MP_OK;
}

static mp_status read_all(const asking *a) {
    for (int32_t i = 0; i < a->draft->graph->value_count; i++) {
        mp_program_read read = {.value = i};
        if (a->is_read[i]) {
            a->draft->outlives[i] = true;
            MP_TRY(mp_shape_bytes(&a->draft->tensors[i].shape, a->draft->tensors[i].type,
                                  &read.bytes));
            MP_TRY(mp_draft_read(a->draft, read));
        }
    }
    return MP_OK;
}

/* ---- what is left to the next segment ---- */

static void take_back(const mp_draft *draft, int32_t n) {
    const mp_vertex *v = &draft->graph->nodes[n];
    draft->fates[n] = MP_FATE_NOTHING;
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            draft->tensors[v->out[i]] = (mp_tensor){.type = MP_NONE};
            draft->is_made[v->out[i]] = false;
        }
    }
}

static void drop_steps(const mp_draft *draft) {
    mp_program *program = draft->program;
    int32_t kept = 0;
    for (int32_t i = 0; i < program->step_count; i++) {
        mp_program_step *step = &program->steps[i];
        if (draft->fates[step->node] != MP_FATE_NOTHING) {
            program->steps[kept++] = *step;
        } else {
            program->launches -= mp_plan_step_count(step->plan);
            mp_program_step_close(step);
        }
    }
    program->step_count = kept;
}

/* From the last node on, so that each comes behind all that read what it makes. One that is needed
 * here stays, and the next segment computes it once more. */
static void hand_over(const asking *a) {
    const mp_draft *draft = a->draft;
    const mp_program *program = draft->program;
    const int32_t values = draft->graph->value_count;
    memcpy(draft->is_again, a->is_read, (size_t)values);
    follow(a, draft->is_again);
    for (int32_t i = 0; i < program->repeat_count; i++) { /* it runs before the next segment */
        const mp_vertex *v = &draft->graph->nodes[program->repeats[i].node];
        mark(v->in, v->in_count, a->is_needed);
    }
    for (int32_t i = 0; i < values; i++) {
        a->is_needed[i] = a->is_needed[i] || a->is_read[i];
    }
    for (int32_t n = draft->graph->node_count - 1; n >= 0; n--) {
        const mp_vertex *v = &draft->graph->nodes[n];
        const bool again = a->passes[n] && needs_only(draft, v, draft->is_again);
        if (again) {
            program->is_done[n] = false;
        }
        if (again && !makes_any(v, a->is_needed)) {
            take_back(draft, n);
        } else if (draft->fates[n] != MP_FATE_NOTHING) {
            mark(v->in, v->in_count, a->is_needed);
        }
    }
    drop_steps(draft);
    for (int32_t i = 0; i < values; i++) {
        draft->is_wanted[i] = draft->is_wanted[i] && a->is_needed[i];
        draft->is_again[i] = draft->is_again[i] && !a->is_read[i];
    }
}

/* ---- all ---- */

static mp_status open_asking(asking *a, mp_draft *draft) {
    const size_t values = (size_t)draft->graph->value_count + 1;
    *a = (asking){.draft = draft,
                  .passes = calloc((size_t)draft->graph->node_count + 1, sizeof(bool)),
                  .covered = calloc(values, sizeof(bool)),
                  .within = calloc(values, sizeof(bool)),
                  .is_read = calloc(values, sizeof(bool)),
                  .is_needed = calloc(values, sizeof(bool)),
                  .lost = calloc(values, 1)};
    return a->passes != NULL && a->covered != NULL && a->within != NULL && a->is_read != NULL &&
                   a->is_needed != NULL && a->lost != NULL
               ? mp_least_cut_open(&a->cut, draft->graph->value_count)
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph of %d nodes",
                         (int)draft->graph->node_count);
}

static void close_asking(asking *a) {
    mp_least_cut_close(&a->cut);
    free(a->passes);
    free(a->covered);
    free(a->within);
    free(a->is_read);
    free(a->is_needed);
    free(a->lost);
}

static mp_status ask(asking *a) {
    for (int32_t n = 0; n < a->draft->graph->node_count; n++) {
        a->passes[n] = passes(a->draft, n);
    }
    find_covered(a);
    MP_TRY(find_reads(a));
    MP_TRY(read_all(a));
    hand_over(a);
    return MP_OK;
}

mp_status mp_draft_ask(mp_draft *draft) {
    asking a;
    if (!draft->asks) {
        return MP_OK;
    }
    mp_status status = open_asking(&a, draft);
    if (status == MP_OK) {
        status = ask(&a);
    }
    close_asking(&a);
    return status;
}
