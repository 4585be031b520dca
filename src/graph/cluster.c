/* cluster.c - joins element-wise nodes, and reductions along rows, to clusters.
 *
 * Nodes are taken in their order. Each begins as a group of its own and joins those that made its
 * inputs, as long as no other group lies between the two (which would have to run in the middle)
 * and the expression has room. A search for what lies between looks at SEARCH_MAX groups at most,
 * none of which ran before all that is looked for, if that can be told.
 *
 * A group with a reduction is computed over the shape that it reduces, whose last dimensions are
 * its rows. It takes nodes of that shape, reductions of the same rows, and nodes of the shape of
 * rows: with dimensions of 1 where a row's are, or without those ("flat"), as what reduces keeps
 * or drops them. What is flat is read by nothing else: NumPy's rules would see a row in it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/cluster.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SEARCH_MAX = 256, INPUTS_MAX = 64, NONE = -1 };

/* A row up to ALONE elements is done by one block in about the time of the launches that are saved;
 * the kernels for longer ones cut them into pieces for all multiprocessors, which is sooner done
 * unless there are ROWS_MANY, about one for each multiprocessor of a large GPU. */
enum { ALONE = 8192, ROWS_MANY = 128 };

/* What a node or a group is computed over. */
typedef struct domain {
    mp_shape shape;
    int row_dims; /* last dimensions that are reduced; 0: none are */
} domain;

typedef struct group {
    mp_expression *e; /* owned; NULL for a node that is none of such */
    domain over;
    int32_t in[K_FUSED_IN];
    int32_t first, last; /* nodes, linked by `next` */
    int32_t seen;        /* the last search that came by */
    bool is_gone, is_placed;
} group;

typedef struct work {
    const mp_graph *graph;
    const mp_tensor *tensors;
    const mp_node_fate *fates;
    const bool *is_kept;
    group *groups;      /* by number of their first node */
    int32_t *group_of;  /* by node */
    int32_t *next;      /* by node: the next of its group */
    int16_t *registers; /* by value: of the group that makes it */
    int8_t *row_dims;   /* by node: dimensions that it reduces, or takes for rows */
    domain over;        /* of the trial */
    bool *is_read;      /* by value: by another group than the one that makes it, or from outside */
    int32_t *stack;
    int32_t searches;
    int32_t newest;       /* node that was taken last */
    mp_expression *trial; /* to be kept, or thrown away */
    int32_t trial_in[K_FUSED_IN];
} work;

/* ---- what a node computes ---- */

typedef int express_fn(mp_expresser *e);

static express_fn *expresser_of(const mp_vertex *v) {
    const mp_op *op = v->node.op;
    return op->express != NULL ? op->express : op->express_rows;
}

/* For one look at a node: each input is new. */
typedef struct dry_run {
    mp_expresser expresser;
    uint64_t asked;
} dry_run;

static int dry_input(mp_expresser *self, int i) {
    dry_run *run = (dry_run *)(void *)self;
    if (i >= self->in_count || i >= INPUTS_MAX || self->in[i].type == MP_NONE) {
        return MP_NO_REGISTER;
    }
    run->asked |= (uint64_t)1 << i;
    return mp_expression_input(self->to, self->in[i].type);
}

/* Whether rows are left to one kernel that does each by one block. */
static bool fits_rows(const mp_shape *shape, int row_dims) {
    const int64_t columns = mp_shape_span(shape, shape->rank - row_dims, shape->rank);
    const int64_t rows = mp_shape_span(shape, 0, shape->rank - row_dims);
    return columns > 1 && (columns <= ALONE || rows >= ROWS_MANY) && shape->rank <= K_RANK_MAX &&
           mp_shape_count(shape) <= MP_ROW_ELEMENTS_MAX;
}

static bool out_shape(const dry_run *run, mp_shape *out) {
    const mp_tensor *in = run->expresser.in;
    *out = (mp_shape){.rank = 0};
    for (int i = 0; i < run->expresser.in_count && i < INPUTS_MAX; i++) {
        if ((run->asked >> i & 1) != 0 && mp_shape_broadcast(out, &in[i].shape, out) != MP_OK) {
            return false;
        }
    }
    return true;
}

/* As mp_cluster_takes; `*over`: what the node is computed over. */
static bool takes(const mp_vertex *v, const mp_tensor *in, mp_tensor *out, domain *over) {
    mp_expression e;
    dry_run run = {
        .expresser = {
            .node = &v->node, .in = in, .in_count = v->in_count, .to = &e, .input = dry_input}};
    if (expresser_of(v) == NULL || v->out_count != 1 || v->out[0] == MP_NO_VALUE) {
        return false;
    }
    e.input_count = e.number_count = e.term_count = e.output_count = e.row_dims = 0;
    e.row_inputs = e.flat_inputs = e.flat_outputs = 0;
    const int reg = expresser_of(v)(&run.expresser);
    *out = (mp_tensor){.type = mp_expression_type(&e, reg)};
    size_t bytes = 0;
    if (reg < MP_FIRST_TERM || !out_shape(&run, &out->shape) ||
        mp_shape_bytes(&out->shape, out->type, &bytes) != MP_OK || bytes == 0) {
        return false;
    }
    *over = (domain){.shape = out->shape, .row_dims = e.row_dims};
    if (e.row_dims > 0 && mp_expression_is_row(&e, reg)) {
        out->shape = mp_shape_of_rows(&over->shape, e.row_dims, run.expresser.dropped_dims);
    }
    return e.row_dims == 0 || fits_rows(&over->shape, e.row_dims);
}

bool mp_cluster_takes(const mp_vertex *v, const mp_tensor *in, bool rows, mp_tensor *out) {
    domain over;
    return takes(v, in, out, &over) && (rows || over.row_dims == 0);
}

/* ---- adding a node to an expression ---- */

typedef struct adding {
    mp_expresser expresser;
    const work *w;
    const mp_vertex *vertex;
    int32_t *in;            /* values of the expression's inputs */
    const group *into, *of; /* values made by nodes of these are registers */
    bool is_flat;           /* the node is of rows, flat, and no reduction */
} adding;

static bool is_inside(const adding *a, int32_t value) {
    const int32_t producer = a->w->graph->values[value].producer;
    if (producer == MP_NO_NODE || a->w->fates[producer] != MP_FATE_CLUSTER) {
        return false;
    }
    const group *at = &a->w->groups[a->w->group_of[producer]];
    return (at == a->into || at == a->of) && a->w->registers[value] != MP_NO_REGISTER;
}

/* Whether input `i` of one element has more dimensions than any other, which the result has, too:
 * it has to be an input of the cluster, whose shapes count. */
static bool gives_dims(const mp_expresser *e, int i) {
    bool gives = e->in[i].shape.rank > 0;
    for (int k = 0; k < e->in_count; k++) {
        gives = gives &&
                (k == i || e->in[k].type == MP_NONE || e->in[k].shape.rank < e->in[i].shape.rank);
    }
    return gives;
}

/* Whether the value is flat where the trial has rows. */
static bool is_flat(const work *w, const mp_shape *shape) {
    const mp_shape flat = mp_shape_of_rows(&w->over.shape, w->over.row_dims, w->over.row_dims);
    return w->over.row_dims > 0 && mp_shape_equal(shape, &flat);
}

/* Whether it has no extent where a row of the trial has. */
static bool is_along_rows(const work *w, const mp_shape *shape) {
    const int dims = MP_MIN(w->over.row_dims, shape->rank);
    return w->over.row_dims > 0 && mp_shape_span(shape, shape->rank - dims, shape->rank) == 1;
}

/* The register of an input that the trial reads. */
static int new_input(const adding *a, const mp_tensor *in) {
    mp_expression *e = a->expresser.to;
    const bool is_one = mp_shape_count(&in->shape) == 1;
    const bool flat = a->is_flat && !is_one;
    if (flat && !is_flat(a->w, &in->shape)) {
        return MP_NO_REGISTER;
    }
    return flat || is_along_rows(a->w, &in->shape) ? mp_expression_row_input(e, in->type, flat)
                                                   : mp_expression_input(e, in->type);
}

static int real_input(mp_expresser *self, int i) {
    adding *a = (adding *)(void *)self;
    const int32_t value = i < self->in_count ? a->vertex->in[i] : MP_NO_VALUE;
    float number = 0;
    if (value == MP_NO_VALUE) {
        return MP_NO_REGISTER;
    }
    if (is_inside(a, value)) {
        const int reg = a->w->registers[value];
        const bool flat = is_flat(a->w, &self->in[i].shape) && mp_expression_is_row(self->to, reg);
        return flat == a->is_flat || mp_shape_count(&self->in[i].shape) == 1 ? reg : MP_NO_REGISTER;
    }
    for (int k = 0; k < self->to->input_count; k++) {
        const bool flat = (self->to->flat_inputs >> k & 1) != 0;
        if (a->in[k] == value && flat == (a->is_flat && mp_shape_count(&self->in[i].shape) > 1)) {
            return MP_FIRST_INPUT + k;
        }
    }
    if (!gives_dims(self, i) && mp_express_known(self, i, &number)) {
        const int reg = mp_expression_number(self->to, self->in[i].type, number);
        if (reg != MP_NO_REGISTER) {
            return reg;
        }
    }
    const int reg = new_input(a, &self->in[i]);
    if (reg != MP_NO_REGISTER) {
        a->in[reg - MP_FIRST_INPUT] = value;
    }
    return reg;
}

static void set_inputs(const work *w, const mp_vertex *v, mp_tensor *in) {
    for (int i = 0; i < v->in_count; i++) {
        in[i] = v->in[i] != MP_NO_VALUE ? w->tensors[v->in[i]] : (mp_tensor){.type = MP_NONE};
    }
}

/* Whether the result of each node is rounded to its type, as it is where nothing is fused. A graph
 * with branches is planned as segments first and as one program later, and what is one cluster
 * there is several here: without, half types would give other bits from one run to the next. */
static bool is_rounded(const mp_graph *graph) {
    return graph->guard_count > 0;
}

/* Adds node `n` to the trial; `into` and `of` are the groups whose nodes are in it. */
static bool add_node(work *w, int32_t n, const group *into, const group *of) {
    const mp_vertex *v = &w->graph->nodes[n];
    mp_tensor in[INPUTS_MAX];
    adding a = {.expresser = {.node = &v->node,
                              .in = in,
                              .in_count = v->in_count,
                              .to = w->trial,
                              .input = real_input},
                .w = w,
                .vertex = v,
                .in = w->trial_in,
                .into = into,
                .of = of};
    if (v->in_count > INPUTS_MAX) {
        return false;
    }
    set_inputs(w, v, in);
    const mp_shape *out = &w->tensors[v->out[0]].shape;
    a.is_flat = w->row_dims[n] == 0 && is_flat(w, out);
    const int made = expresser_of(v)(&a.expresser);
    const int reg = is_rounded(w->graph) ? mp_expression_round(w->trial, made) : made;
    w->registers[v->out[0]] = (int16_t)(reg >= MP_FIRST_TERM ? reg : MP_NO_REGISTER);
    return reg >= MP_FIRST_TERM;
}

/* ---- joining ---- */

/* Whether both can be computed as one, and over what. */
static bool join_domains(const domain *a, const domain *b, domain *out) {
    const domain *rows = a->row_dims > 0 ? a : b;
    const domain *other = rows == a ? b : a;
    const mp_shape *shape = &other->shape;
    *out = *rows;
    if (mp_shape_equal(shape, &rows->shape)) {
        return other->row_dims == 0 || other->row_dims == rows->row_dims;
    }
    const mp_shape kept = mp_shape_of_rows(&rows->shape, rows->row_dims, 0);
    const mp_shape flat = mp_shape_of_rows(&rows->shape, rows->row_dims, rows->row_dims);
    return rows->row_dims > 0 && other->row_dims == 0 &&
           (mp_shape_equal(shape, &kept) || mp_shape_equal(shape, &flat));
}

static int32_t guard_of(const work *w, const group *g) {
    return w->graph->nodes[g->first].guard;
}

/* The group that makes input `i` of node `n`, or NONE. */
static int32_t maker_of(const work *w, int32_t n, int i) {
    const int32_t value = w->graph->nodes[n].in[i];
    const int32_t producer = value != MP_NO_VALUE ? w->graph->values[value].producer : MP_NO_NODE;
    return producer != MP_NO_NODE && w->fates[producer] != MP_FATE_NOTHING ? w->group_of[producer]
                                                                           : NONE;
}

/* Whether no group has nodes on both sides of where `above` begins, but for `below`, to which no
 * way leads back: what ends before that then reads nothing that `above` makes, in whatever way. */
static bool is_start_clear(const work *w, int32_t above, int32_t below) {
    const int32_t start = w->groups[above].first;
    if (w->newest - start > SEARCH_MAX) {
        return false;
    }
    for (int32_t n = start; n <= w->newest; n++) {
        const int32_t g = w->fates[n] != MP_FATE_NOTHING ? w->group_of[n] : NONE;
        if (g != NONE && g != below && w->groups[g].first < start) {
            return false;
        }
    }
    return true;
}

/* Puts the groups that make the inputs of `g`, and have nodes from `start` on, on the stack, if
 * this search has not seen them. */
static void push_makers(work *w, int32_t g, int32_t start, int32_t *height) {
    for (int32_t n = w->groups[g].first; n != NONE; n = w->next[n]) {
        for (int i = 0; i < w->graph->nodes[n].in_count; i++) {
            const int32_t maker = maker_of(w, n, i);
            if (maker != NONE && w->groups[maker].seen != w->searches &&
                w->groups[maker].last >= start) {
                w->groups[maker].seen = w->searches;
                w->stack[(*height)++] = maker;
            }
        }
    }
}

/* Whether something lies between `above` and `below`, or may: a way from `below` up to `above` that
 * goes through another group. */
static bool is_between(work *w, int32_t above, int32_t below) {
    const int32_t start = is_start_clear(w, above, below) ? w->groups[above].first : 0;
    int32_t height = 0;
    int32_t looked = 0;
    w->searches++;
    w->groups[below].seen = w->searches;
    w->groups[above].seen = w->searches; /* a direct way is none of these */
    push_makers(w, below, start, &height);
    while (height > 0) {
        const int32_t at = w->stack[--height];
        if (++looked > SEARCH_MAX) {
            return true;
        }
        for (int32_t n = w->groups[at].first; n != NONE; n = w->next[n]) {
            for (int i = 0; i < w->graph->nodes[n].in_count; i++) {
                if (maker_of(w, n, i) == above) {
                    return true;
                }
            }
        }
        push_makers(w, at, start, &height);
    }
    return false;
}

/* Whether a kernel has room for the trial: for its values, and for inputs that are repeated along
 * some dimension, or whose rows lie apart, which rows that are reduced do not. */
static bool has_room(const work *w) {
    int views = 0;
    for (int i = 0; i < w->trial->input_count; i++) {
        const mp_tensor *in = &w->tensors[w->trial_in[i]];
        const mp_reading reading = mp_expression_reading(w->trial, i, &in->shape, &w->over.shape);
        views += mp_reading_is_view(reading) || in->pitch > 0;
        if (in->pitch > 0 && w->trial->row_dims > 0) {
            return false;
        }
    }
    return views <= K_WALK_VIEWS && mp_expression_live(w->trial) <= MP_LIVE_MAX;
}

/* Builds the expression of both groups in the trial, over `over`; the nodes of `of` come behind
 * those of `into` or between them. Registers of values change, also where it fails. */
static bool build(work *w, const group *into, const group *of, domain over) {
    int32_t a = into->first;
    int32_t b = of != NULL ? of->first : NONE;
    *w->trial = (mp_expression){.row_dims = over.row_dims};
    w->over = over;
    for (int32_t n = a; n != NONE; n = w->next[n]) {
        w->registers[w->graph->nodes[n].out[0]] = MP_NO_REGISTER;
    }
    for (int32_t n = b; n != NONE; n = w->next[n]) {
        w->registers[w->graph->nodes[n].out[0]] = MP_NO_REGISTER;
    }
    while (a != NONE || b != NONE) {
        const bool take_a = b == NONE || (a != NONE && a < b);
        int32_t *at = take_a ? &a : &b;
        if (!add_node(w, *at, into, of)) {
            return false;
        }
        *at = w->next[*at];
    }
    return has_room(w);
}

/* The nodes of both in their order. */
static void link_nodes(work *w, group *into, const group *of) {
    int32_t a = into->first;
    int32_t b = of->first;
    int32_t *tail = &into->first;
    while (a != NONE || b != NONE) {
        int32_t *at = b == NONE || (a != NONE && a < b) ? &a : &b;
        *tail = *at;
        into->last = *at;
        tail = &w->next[*at];
        *at = *tail;
    }
}

static void keep_trial(work *w, group *g) {
    *g->e = *w->trial;
    g->over = w->over;
    memcpy(g->in, w->trial_in, sizeof g->in);
}

/* Appends: the usual case, where `of` is one node behind all of `into`. */
static bool append(work *w, group *into, const group *of) {
    *w->trial = *into->e;
    w->over = into->over;
    memcpy(w->trial_in, into->in, sizeof into->in);
    w->registers[w->graph->nodes[of->first].out[0]] = MP_NO_REGISTER;
    return add_node(w, of->first, into, of) && has_room(w);
}

static void restore(work *w, const group *g) {
    const bool same = build(w, g, NULL, g->over);
    assert(same);
    (void)same;
}

static void try_join(work *w, int32_t into, int32_t of) {
    group *a = &w->groups[into];
    group *b = &w->groups[of];
    domain over;
    if (a->e == NULL || b->e == NULL || into == of || guard_of(w, a) != guard_of(w, b) ||
        !join_domains(&a->over, &b->over, &over) || is_between(w, into, of) ||
        is_between(w, of, into)) {
        return;
    }
    const bool at_end =
        b->first == b->last && b->first > a->last && a->over.row_dims == over.row_dims;
    if (!(at_end ? append(w, a, b) : build(w, a, b, over))) {
        restore(w, a);
        restore(w, b);
        return;
    }
    keep_trial(w, a);
    for (int32_t n = b->first; n != NONE; n = w->next[n]) {
        w->group_of[n] = into;
    }
    link_nodes(w, a, b);
    free(b->e);
    *b = (group){.is_gone = true, .first = NONE, .last = NONE};
}

/* What a node that was taken is computed over. */
static void find_domain(work *w, int32_t n, domain *over) {
    const mp_vertex *v = &w->graph->nodes[n];
    mp_tensor in[INPUTS_MAX], out;
    *over = (domain){.shape = w->tensors[v->out[0]].shape};
    if (v->in_count <= INPUTS_MAX) {
        set_inputs(w, v, in);
        (void)takes(v, in, &out, over);
    }
    w->row_dims[n] = (int8_t)over->row_dims;
}

/* NOLINTBEGIN(clang-analyzer-unix.Malloc): work_close frees the groups. */
static mp_status add_group(work *w, int32_t n) {
    group *g = &w->groups[n];
    domain over = {.row_dims = 0};
    *g = (group){.first = n, .last = n};
    w->group_of[n] = n;
    w->next[n] = NONE;
    w->newest = n;
    if (w->fates[n] != MP_FATE_CLUSTER) {
        return MP_OK;
    }
    find_domain(w, n, &over);
    if (!build(w, g, NULL, over)) { /* it was taken, so only its inputs are too many */
        return MP_OK;
    }
    g->e = calloc(1, sizeof *g->e);
    if (g->e == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an expression");
    }
    keep_trial(w, g);
    return MP_OK;
}
/* NOLINTEND(clang-analyzer-unix.Malloc) */

/* With those that make its inputs. */
static void join_makers(work *w, int32_t n) {
    for (int i = 0; i < w->graph->nodes[n].in_count; i++) {
        const int32_t maker = maker_of(w, n, i);
        if (maker != NONE) {
            try_join(w, maker, w->group_of[n]);
        }
    }
}

/* ---- what comes out ---- */

static void find_reads(work *w) {
    const mp_graph *graph = w->graph;
    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int i = 0; w->fates[n] != MP_FATE_NOTHING && i < graph->nodes[n].in_count; i++) {
            const int32_t maker = maker_of(w, n, i);
            if (maker != NONE && maker != w->group_of[n]) {
                w->is_read[graph->nodes[n].in[i]] = true;
            }
        }
    }
    for (int32_t i = 0; i < graph->value_count && w->is_kept != NULL; i++) {
        w->is_read[i] = w->is_read[i] || w->is_kept[i];
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        w->is_read[graph->outputs[i]] = true;
    }
}

static int outputs_of(const work *w, const group *g) {
    int count = 0;
    for (int32_t n = g->first; n != NONE; n = w->next[n]) {
        count += w->is_read[w->graph->nodes[n].out[0]];
    }
    return count;
}

/* A group that has more outputs than a kernel may is taken apart. */
static void split(work *w, int32_t number) {
    group *g = &w->groups[number];
    int32_t next = NONE;
    for (int32_t n = g->first; n != NONE; n = next) {
        next = w->next[n];
        w->next[n] = NONE;
        w->group_of[n] = n;
        w->is_read[w->graph->nodes[n].out[0]] = true;
        if (n != number) {
            w->groups[n] = (group){.first = n, .last = n};
        }
    }
    free(g->e);
    *g = (group){.first = number, .last = number};
}

/* Whether a single node is a step by its own kernel, which knows no rows that lie apart. */
static bool is_own_step(const work *w, const group *g) {
    if (g->e == NULL) {
        return true;
    }
    bool own = g->first == g->last && w->tensors[w->graph->nodes[g->first].out[0]].pitch == 0;
    for (int i = 0; i < g->e->input_count; i++) {
        own = own && w->tensors[g->in[i]].pitch == 0;
    }
    return own;
}

static mp_status finish_unit(const work *w, group *g, mp_unit *to) {
    if (is_own_step(w, g)) {
        return MP_OK;
    }
    for (int32_t n = g->first; n != NONE; n = w->next[n]) {
        const int32_t value = w->graph->nodes[n].out[0];
        if (w->is_read[value]) {
            const int reg = w->registers[value];
            const bool fits = mp_expression_output(g->e, reg);
            assert(fits);
            (void)fits;
            if (g->over.row_dims > 0 && mp_expression_is_row(g->e, reg) &&
                w->tensors[value].shape.rank < g->over.shape.rank) {
                g->e->flat_outputs |= 1u << (g->e->output_count - 1);
            }
            to->out[to->out_count++] = value;
        }
    }
    to->in_count = g->e->input_count;
    to->elements = mp_shape_count(&g->over.shape);
    memcpy(to->in, g->in, sizeof to->in);
    return mp_expression_write(g->e, &to->expression);
}

static mp_status emit(work *w, int32_t number, mp_units *out, int32_t *listed) {
    group *g = &w->groups[number];
    if (g->e != NULL && outputs_of(w, g) == 0) {
        return MP_OK; /* only a branch that is not taken would read it */
    }
    mp_unit *unit = &out->units[out->count++];
    *unit = (mp_unit){.node = g->first, .first = *listed};
    for (int32_t n = g->first; n != NONE; n = w->next[n]) {
        out->nodes[(*listed)++] = n;
        unit->count++;
    }
    return finish_unit(w, g, unit);
}

/* The groups in an order in which they can run: each behind those that make its inputs. The stack
 * has those that wait for what is above them. */
static mp_status emit_from(work *w, int32_t number, mp_units *out, int32_t *listed) {
    int32_t height = 0;
    w->searches++;
    w->groups[number].seen = w->searches;
    w->stack[height++] = number;
    while (height > 0) {
        const int32_t at = w->stack[height - 1];
        const int32_t before = height;
        for (int32_t n = w->groups[at].first; n != NONE && height == before; n = w->next[n]) {
            for (int i = 0; i < w->graph->nodes[n].in_count && height == before; i++) {
                const int32_t maker = maker_of(w, n, i);
                if (maker != NONE && maker != at && !w->groups[maker].is_placed) {
                    assert(w->groups[maker].seen != w->searches); /* no circle */
                    w->groups[maker].seen = w->searches;
                    w->stack[height++] = maker;
                }
            }
        }
        if (height == before) {
            w->groups[at].is_placed = true;
            height--;
            MP_TRY(emit(w, at, out, listed));
        }
    }
    return MP_OK;
}

static mp_status emit_all(work *w, mp_units *out) {
    int32_t listed = 0;
    for (int32_t n = 0; n < w->graph->node_count; n++) {
        if (w->fates[n] != MP_FATE_NOTHING && !w->groups[w->group_of[n]].is_placed) {
            MP_TRY(emit_from(w, w->group_of[n], out, &listed));
        }
    }
    return MP_OK;
}

static mp_status run(work *w, mp_units *out) {
    for (int32_t n = 0; n < w->graph->node_count; n++) {
        if (w->fates[n] != MP_FATE_NOTHING) {
            MP_TRY(add_group(w, n));
            join_makers(w, n);
        }
    }
    find_reads(w);
    for (int32_t n = 0; n < w->graph->node_count; n++) {
        const bool is_group = w->fates[n] != MP_FATE_NOTHING && w->group_of[n] == n;
        if (is_group && w->groups[n].e != NULL && outputs_of(w, &w->groups[n]) > K_FUSED_OUT) {
            split(w, n);
        }
    }
    return emit_all(w, out);
}

/* ---- the interface ---- */

void mp_units_close(mp_units *units) {
    for (int32_t i = 0; i < units->count; i++) {
        free(units->units[i].expression);
    }
    free(units->units);
    free(units->nodes);
    *units = (mp_units){.count = 0};
}

static void work_close(work *w) {
    for (int32_t n = 0; w->groups != NULL && n < w->graph->node_count; n++) {
        free(w->groups[n].e);
    }
    free(w->groups);
    free(w->group_of);
    free(w->next);
    free(w->registers);
    free(w->row_dims);
    free(w->is_read);
    free(w->stack);
    free(w->trial);
}

mp_status mp_units_make(const mp_graph *graph, const mp_tensor *tensors, const mp_node_fate *fates,
                        const bool *is_kept, mp_units *out) {
    const size_t nodes = (size_t)graph->node_count + 1;
    const size_t values = (size_t)graph->value_count + 1;
    work w = {.graph = graph,
              .tensors = tensors,
              .fates = fates,
              .is_kept = is_kept,
              .groups = calloc(nodes, sizeof *w.groups),
              .group_of = calloc(nodes, sizeof *w.group_of),
              .next = calloc(nodes, sizeof *w.next),
              .registers = calloc(values, sizeof *w.registers),
              .row_dims = calloc(nodes, sizeof *w.row_dims),
              .is_read = calloc(values, sizeof *w.is_read),
              .stack = calloc(nodes, sizeof *w.stack),
              .trial = calloc(1, sizeof *w.trial)};
    *out = (mp_units){.units = calloc(nodes, sizeof *out->units),
                      .nodes = calloc(nodes, sizeof *out->nodes)};
    const bool whole = w.groups != NULL && w.group_of != NULL && w.next != NULL &&
                       w.registers != NULL && w.row_dims != NULL && w.is_read != NULL &&
                       w.stack != NULL && w.trial != NULL && out->units != NULL &&
                       out->nodes != NULL;
    const mp_status status =
        whole ? run(&w, out)
              : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph of %d nodes",
                        (int)graph->node_count);
    work_close(&w);
    if (status != MP_OK) {
        mp_units_close(out);
    }
    return status;
}
