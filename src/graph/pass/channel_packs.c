/* channel_packs.c - images whose channels come last, and do not fill packs of 16 bytes, are stored
 * with some channels twice (channel_copies.h), so that they do.
 *
 * Libraries pad image and weights of a convolution of such channels in each run, and cut what they
 * made; products read rows that are not aligned element by element. Images that nodes make of each
 * other channel by channel are a group: all of it is stored so or none. Where something else makes
 * one of them, or reads one, that gets a copy of its own.
 *
 *     Conv --- a --- Relu --- b --- Conv       a, b, c and d are a group; d needs no copy, if
 *              |              |                nothing but such nodes reads it
 *             Add --- c       MaxPool --- d
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/channel_copies.h"
#include "graph/pass/channel_slots.h"
#include "op/core/host_float.h"

#include <stdlib.h>
#include <string.h>

enum { GAINS_EACH = 2, ATTRS_MAX = 24 };

/* What is known of a value. */
typedef struct image {
    int32_t leader; /* of its group; MP_NO_VALUE: not an image that may be stored so */
    int32_t stored; /* what takes its place; MP_NO_VALUE */
    bool enters;    /* it is made by a node that knows nothing of copies */
    bool leaves;    /* it is read by one, or by whoever runs the graph */
    bool has_data;  /* somebody reads more of it than its shape */
    /* of a leader, about its group */
    int gains, copies; /* convolutions that are sooner done; images that are moved for it */
    int32_t joined;    /* a Concat that makes one of it with copies; MP_NO_NODE */
    int32_t part;      /* the input of that which is repeated */
    mp_channel_map map;
    bool is_taken;
} image;

/* What is known of a node. */
typedef struct place {
    bool is_known;
    int32_t first; /* what its inputs are begins here in `slots` */
} place;

typedef struct packs {
    mp_graph *graph;
    image *images;          /* by value */
    int32_t count, nodes;   /* values and nodes that there were at first */
    place *places;          /* by node */
    mp_channel_slot *slots; /* of all inputs */
    bool forced;
} packs;

static bool is_member(const packs *p, int32_t value) {
    return value != MP_NO_VALUE && value < p->count && p->images[value].leader != MP_NO_VALUE;
}

static image *group_of(const packs *p, int32_t value) {
    int32_t at = value;
    while (p->images[at].leader != at) {
        p->images[at].leader = p->images[p->images[at].leader].leader;
        at = p->images[at].leader;
    }
    return &p->images[at];
}

/* What the inputs of node `n` are; NULL where it knows nothing of copies. */
static const mp_channel_slot *slots_of(const packs *p, int32_t n) {
    return p->places[n].is_known ? p->slots + p->places[n].first : NULL;
}

/* ---- groups ---- */

static mp_status open(packs *p) {
    size_t inputs = 0;
    for (int32_t n = 0; n < p->nodes; n++) {
        inputs += (size_t)p->graph->nodes[n].in_count;
    }
    p->images = calloc((size_t)p->count + 1, sizeof *p->images);
    p->places = calloc((size_t)p->nodes + 1, sizeof *p->places);
    p->slots = calloc(inputs + 1, sizeof *p->slots);
    return p->images != NULL && p->places != NULL && p->slots != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a pass");
}

static void close(const packs *p) {
    free(p->images);
    free(p->places);
    free(p->slots);
}

/* Before anything is changed, from which what is known of it would follow. */
static void look_at_nodes(const packs *p) {
    int32_t first = 0;
    for (int32_t n = 0; n < p->nodes; n++) {
        mp_channels_name(p->graph, &p->graph->nodes[n]);
    }
    for (int32_t n = 0; n < p->nodes; n++) {
        const mp_vertex *v = &p->graph->nodes[n];
        mp_channel_slot slots[MP_CHANNEL_SLOTS_MAX];
        p->places[n] = (place){.is_known = v->node.attr_count <= ATTRS_MAX &&
                                           mp_channel_slots(p->graph, v, slots),
                               .first = first};
        if (p->places[n].is_known) {
            memcpy(p->slots + first, slots, (size_t)v->in_count * sizeof *slots);
        }
        first += v->in_count;
    }
}

static void look_at_values(const packs *p) {
    for (int32_t i = 0; i < p->count; i++) {
        const int64_t stored = mp_channels_stored(p->graph, i);
        const int64_t channels = stored > 0 ? mp_graph_dim(p->graph, i, -1) : 0;
        p->images[i] = (image){
            .leader = stored > 0 ? i : MP_NO_VALUE,
            .stored = MP_NO_VALUE,
            .joined = MP_NO_NODE,
            .map = {.count = channels, .stored = stored, .first = 0, .period = stored - channels}};
    }
}

static void join(const packs *p) {
    for (int32_t n = 0; n < p->nodes; n++) {
        const mp_vertex *v = &p->graph->nodes[n];
        const mp_channel_slot *slots = slots_of(p, n);
        for (int i = 0; slots != NULL && i < v->in_count; i++) {
            if (slots[i] == MP_SLOT_SAME && is_member(p, v->in[i]) && is_member(p, v->out[0])) {
                group_of(p, v->in[i])->leader = group_of(p, v->out[0])->leader;
            }
        }
    }
}

/* A Concat reads one of its parts several times, so that its result has whole packs: a part with so
 * few channels that it fits, over and over. It decides which channels there are copies of. */
static void find_repeated(const packs *p, int32_t n) {
    enum { TIMES_MAX = 8 };
    const mp_vertex *v = &p->graph->nodes[n];
    image *group = is_member(p, v->out[0]) ? group_of(p, v->out[0]) : NULL;
    const int64_t more = group != NULL ? group->map.stored - group->map.count : 0;
    int64_t first = 0;
    for (int i = 0; group != NULL && group->joined == MP_NO_NODE && i < v->in_count; i++) {
        const int64_t channels = mp_graph_dim(p->graph, v->in[i], -1);
        if (channels <= 0) {
            return;
        }
        if (more % channels == 0 && more / channels <= TIMES_MAX &&
            v->in_count + more / channels <= MP_CHANNEL_SLOTS_MAX) {
            group->joined = n;
            group->part = i;
            group->map.first = first;
            group->map.period = channels;
        }
        first += channels;
    }
}

/* A Pad behind the channels of another image makes all that follow alike, also those that are
 * stored more: these are copies of its own. */
static void find_padded(const packs *p, int32_t n) {
    const mp_vertex *v = &p->graph->nodes[n];
    const int64_t kept = mp_graph_dim(p->graph, v->in[0], -1);
    image *group = is_member(p, v->out[0]) ? group_of(p, v->out[0]) : NULL;
    if (group != NULL && group->joined == MP_NO_NODE && kept < group->map.count) {
        group->map.first = MP_MAX(group->map.first, kept);
        group->map.period = group->map.count - group->map.first;
    }
}

/* Which channels there are copies of: first where a Concat says it, then where a Pad does. */
static void find_maps(const packs *p) {
    for (int32_t n = 0; n < p->nodes; n++) {
        if (mp_vertex_is(&p->graph->nodes[n], "Concat") && slots_of(p, n) != NULL) {
            find_repeated(p, n);
        }
    }
    for (int32_t n = 0; n < p->nodes; n++) {
        if (slots_of(p, n) != NULL && slots_of(p, n)[0] == MP_SLOT_KEPT) {
            find_padded(p, n);
        }
    }
}

/* ---- what it costs, and what it gains ---- */

/* Readers before makers: a node that only sees shapes, or makes what nobody needs, needs none. */
static void find_data(const packs *p) {
    for (int32_t i = 0; i < p->graph->output_count; i++) {
        p->images[p->graph->outputs[i]].has_data = true;
    }
    for (int32_t n = p->nodes; n-- > 0;) {
        const mp_vertex *v = &p->graph->nodes[n];
        bool needs = v->loop != NULL || v->guard != 0;
        for (int i = 0; i < v->out_count; i++) {
            needs = needs || (v->out[i] != MP_NO_VALUE && p->images[v->out[i]].has_data);
        }
        needs = needs && !v->is_gone && !mp_vertex_is(v, "Shape") && !mp_vertex_is(v, "Size");
        for (int i = 0; needs && i < v->in_count; i++) {
            if (v->in[i] != MP_NO_VALUE) {
                p->images[v->in[i]].has_data = true;
            }
        }
    }
}

/* Floats are multiplied by tensor cores where TF32 is allowed. */
static bool gains(const packs *p, const mp_vertex *v) {
    return mp_gains_by_packs(p->graph, v) &&
           (p->forced || v->node.options.tf32 || mp_graph_type(p->graph, v->out[0]) != MP_F32);
}

static void count_inputs(const packs *p, const mp_vertex *v, const mp_channel_slot *slots) {
    for (int i = 0; i < v->in_count; i++) {
        const mp_channel_slot slot = slots != NULL ? slots[i] : MP_SLOT_PART;
        if (!is_member(p, v->in[i])) {
            continue;
        }
        if (slot == MP_SLOT_MIXED) {
            group_of(p, v->in[i])->gains += gains(p, v);
        } else if (slot != MP_SLOT_SAME && slot != MP_SLOT_SHAPE && slot != MP_SLOT_KEPT) {
            p->images[v->in[i]].leaves = true;
        }
    }
}

/* Whether node `n`, which knows of copies, makes its result with those that the group has. */
static bool makes_copies(const packs *p, int32_t n) {
    const mp_vertex *v = &p->graph->nodes[n];
    const image *group = group_of(p, v->out[0]);
    const bool pads = slots_of(p, n)[0] == MP_SLOT_KEPT;
    return mp_vertex_is(v, "Concat")
               ? group->joined == n
               : !pads || (group->joined == MP_NO_NODE &&
                           group->map.first >= mp_graph_dim(p->graph, v->in[0], -1));
}

static void count_outputs(const packs *p, int32_t n) {
    const mp_vertex *v = &p->graph->nodes[n];
    const bool known = slots_of(p, n) != NULL;
    for (int i = 0; i < v->out_count; i++) {
        if (is_member(p, v->out[i])) {
            p->images[v->out[i]].enters = !known || !makes_copies(p, n);
            group_of(p, v->out[i])->gains += known && gains(p, v);
        }
    }
}

static void count(const packs *p) {
    for (int32_t i = 0; i < p->graph->input_count; i++) {
        p->images[p->graph->inputs[i]].enters = true;
    }
    for (int32_t i = 0; i < p->graph->output_count; i++) {
        p->images[p->graph->outputs[i]].leaves = true;
    }
    for (int32_t n = 0; n < p->nodes; n++) {
        const mp_vertex *v = &p->graph->nodes[n];
        if (!v->is_gone) {
            count_inputs(p, v, slots_of(p, n));
            count_outputs(p, n);
        }
    }
    for (int32_t i = 0; i < p->count; i++) {
        const image *at = &p->images[i];
        if (is_member(p, i)) {
            group_of(p, i)->copies += at->enters || (at->leaves && at->has_data);
        }
    }
}

/* A copy is a launch, and what a library does before or behind one convolution is one or two. */
static void choose(const packs *p, mp_rewrites *rewrites) {
    for (int32_t i = 0; i < p->count; i++) {
        image *at = &p->images[i];
        at->is_taken = at->leader == i && at->gains > 0 && at->gains >= GAINS_EACH * at->copies &&
                       mp_rewrite_allowed(rewrites);
    }
}

/* ---- rewriting ---- */

/* What takes the value's place, or the value. */
static int32_t stored_of(const packs *p, int32_t value) {
    return is_member(p, value) && p->images[value].stored != MP_NO_VALUE ? p->images[value].stored
                                                                         : value;
}

static mp_status add_stored(packs *p) {
    for (int32_t i = 0; i < p->count; i++) {
        if (is_member(p, i) && group_of(p, i)->is_taken) {
            mp_tensor tensor = p->graph->values[i].tensor;
            tensor.type = mp_graph_type(p->graph, i);
            if (tensor.shape.rank < 0) {
                tensor.shape.rank = mp_graph_rank(p->graph, i);
                for (int d = 0; d < tensor.shape.rank; d++) {
                    tensor.shape.dim[d] = MP_DIM_UNKNOWN;
                }
            }
            tensor.shape.dim[tensor.shape.rank - 1] = group_of(p, i)->map.stored;
            MP_TRY(mp_graph_add_value(p->graph, p->graph->values[i].name, &tensor,
                                      &p->images[i].stored));
        }
    }
    return MP_OK;
}

/* The weights of convolution `v`: rows of `out` with copies, columns that `x` with copies needs. */
static mp_status widen_weights(packs *p, const mp_vertex *v, bool turned, int32_t *weights) {
    const int32_t x = v->in[0], out = v->out[0];
    if (stored_of(p, out) != out) {
        MP_TRY(
            mp_channels_copy(p->graph, *weights, turned ? 1 : 0, &group_of(p, out)->map, weights));
    }
    return stored_of(p, x) != x ? mp_channels_share(p->graph, *weights, turned ? 0 : 1,
                                                    &group_of(p, x)->map, weights)
                                : MP_OK;
}

static mp_status add_list(mp_graph *graph, const char *name, int64_t length, int32_t *out) {
    const mp_tensor list = {.type = MP_I64, .shape = {.rank = 1, .dim = {length}}};
    return mp_graph_add_value(graph, name, &list, out);
}

/* Makes list `to` of `from`, of so many numbers, with another last one; beside node `n`. */
static mp_status change_last(mp_graph *graph, int32_t n, int length, int64_t last, int32_t from,
                             int32_t to) {
    const mp_attr axis = {.name = "axis", .kind = MP_ATTR_INT, .i = 0};
    const char *name = graph->values[from].name;
    const mp_node slice = {.op = mp_op_find("", "Slice", 13), .version = 13, .name = name};
    const mp_node concat = {.op = mp_op_find("", "Concat", 13),
                            .version = 13,
                            .name = name,
                            .attrs = &axis,
                            .attr_count = 1};
    int32_t cut[] = {from, MP_NO_VALUE, MP_NO_VALUE}, parts[] = {MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(mp_graph_add_number(graph, 0, &cut[1]));
    MP_TRY(mp_graph_add_number(graph, length - 1, &cut[2]));
    MP_TRY(mp_graph_add_number(graph, last, &parts[1]));
    MP_TRY(add_list(graph, name, length - 1, &parts[0]));
    MP_TRY(mp_graph_add_beside(graph, n, &slice, cut, MP_COUNT_OF(cut), parts[0]));
    return mp_graph_add_beside(graph, n, &concat, parts, MP_COUNT_OF(parts), to);
}

static mp_status widen_sizes(packs *p, int32_t n, int64_t channels, int32_t *list) {
    const int32_t from = *list;
    const int rank = mp_graph_rank(p->graph, p->graph->nodes[n].out[0]);
    MP_TRY(add_list(p->graph, p->graph->values[from].name, rank, list));
    return change_last(p->graph, n, rank, channels, from, *list);
}

/* A Shape gives the channels that the image has. */
static mp_status rewrite_shape(packs *p, int32_t n) {
    const mp_vertex v = p->graph->nodes[n];
    const int32_t x = v.in[0], stored = stored_of(p, x);
    const int rank = mp_graph_rank(p->graph, stored);
    int32_t made = MP_NO_VALUE;
    MP_TRY(add_list(p->graph, p->graph->values[v.out[0]].name, rank, &made));
    MP_TRY(mp_graph_change_node(p->graph, n, &v.node, &stored, 1, &made, 1));
    return change_last(p->graph, n, rank, group_of(p, x)->map.count, made, v.out[0]);
}

/* Input `value` of node `n`, with what its slot needs. */
static mp_status widen(packs *p, int32_t n, mp_channel_slot slot, int32_t *value) {
    const mp_vertex v = p->graph->nodes[n];
    const bool is_wide = stored_of(p, v.out[0]) != v.out[0];
    const mp_channel_map *map = is_wide ? &group_of(p, v.out[0])->map : NULL;
    if (slot == MP_SLOT_WEIGHTS || slot == MP_SLOT_TURNED) {
        return widen_weights(p, &v, slot == MP_SLOT_TURNED, value);
    }
    if (slot == MP_SLOT_MIXED || (slot == MP_SLOT_SAME && is_wide)) {
        *value = stored_of(p, *value);
    }
    if (map == NULL || *value == MP_NO_VALUE) {
        return MP_OK;
    }
    if (slot == MP_SLOT_FIRST || slot == MP_SLOT_LAST) {
        const int rank = p->graph->values[*value].tensor.shape.rank;
        return mp_channels_copy(p->graph, *value, slot == MP_SLOT_FIRST ? 0 : rank - 1, map, value);
    }
    return slot == MP_SLOT_SIZES ? widen_sizes(p, n, map->stored, value) : MP_OK;
}

/* The attributes, of which one may be the number of channels. */
static void widen_attrs(const packs *p, const mp_vertex *v, mp_node *node, mp_attr *attrs) {
    const bool alone = mp_is_channel_alone(p->graph, v);
    memcpy(attrs, v->node.attrs, v->node.attr_count * sizeof *attrs);
    for (size_t i = 0; alone && i < node->attr_count; i++) {
        if (strcmp(attrs[i].name, "group") == 0) {
            attrs[i].i = group_of(p, v->out[0])->map.stored;
        }
    }
    node->attrs = attrs;
}

/* A Pad of which image and result are stored with copies, or one of both. */
static mp_status rewrite_pad(packs *p, int32_t n) {
    const mp_vertex v = p->graph->nodes[n];
    const int32_t value = mp_vertex_in(&v, 2), x = stored_of(p, v.in[0]);
    const int32_t out = p->images[v.out[0]].enters ? v.out[0] : stored_of(p, v.out[0]);
    const double number =
        value != MP_NO_VALUE ? mp_host_float(&p->graph->values[value].tensor, 0) : 0;
    const mp_attr attrs[] = {
        {.name = "kept", .kind = MP_ATTR_INT, .i = mp_graph_dim(p->graph, v.in[0], -1)},
        {.name = "size", .kind = MP_ATTR_INT, .i = mp_graph_dim(p->graph, out, -1)},
        {.name = "value", .kind = MP_ATTR_FLOAT, .f = (float)number}};
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "KeepFirst", 1),
                          .version = 1,
                          .name = v.node.name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = v.node.options};
    return mp_graph_change_node(p->graph, n, &node, &x, 1, &out, 1);
}

static mp_status rewrite_node(packs *p, int32_t n, const mp_channel_slot *slots) {
    const mp_vertex v = p->graph->nodes[n];
    const int32_t out = stored_of(p, v.out[0]);
    int32_t in[MP_CHANNEL_SLOTS_MAX];
    mp_attr attrs[ATTRS_MAX];
    mp_node node = v.node;
    int in_count = v.in_count;
    if (out != v.out[0]) {
        widen_attrs(p, &v, &node, attrs);
    }
    for (int i = 0; i < v.in_count; i++) {
        in[i] = v.in[i];
        MP_TRY(widen(p, n, slots[i], &in[i]));
    }
    if (mp_vertex_is(&v, "Concat")) {
        const image *group = group_of(p, v.out[0]);
        for (int64_t c = group->map.count; c < group->map.stored; c += group->map.period) {
            in[in_count++] = v.in[group->part];
        }
    }
    return mp_graph_change_node(p->graph, n, &node, in, in_count, &out, 1);
}

/* Whether a node that knows of copies has any to do with. */
static bool is_touched(const packs *p, int32_t n, const mp_channel_slot *slots) {
    const mp_vertex *v = &p->graph->nodes[n];
    const bool is_wide = stored_of(p, v->out[0]) != v->out[0];
    const bool reads =
        slots[0] == MP_SLOT_MIXED || slots[0] == MP_SLOT_SHAPE || slots[0] == MP_SLOT_KEPT;
    return (is_wide && makes_copies(p, n)) || (reads && stored_of(p, v->in[0]) != v->in[0]);
}

static mp_status rewrite(packs *p) {
    MP_TRY(add_stored(p));
    for (int32_t n = 0; n < p->nodes; n++) {
        const mp_channel_slot *slots = slots_of(p, n);
        if (slots != NULL && is_touched(p, n, slots)) {
            MP_TRY(slots[0] == MP_SLOT_SHAPE  ? rewrite_shape(p, n)
                   : slots[0] == MP_SLOT_KEPT ? rewrite_pad(p, n)
                                              : rewrite_node(p, n, slots));
        }
    }
    for (int32_t i = 0; i < p->count; i++) {
        const image at = p->images[i];
        if (at.stored == MP_NO_VALUE) {
            continue;
        }
        if (at.enters) {
            MP_TRY(mp_channels_add(p->graph, i, &group_of(p, i)->map, at.stored));
        } else if (at.leaves) {
            MP_TRY(mp_channels_cut(p->graph, at.stored, &group_of(p, i)->map, i));
        }
    }
    return mp_graph_tidy(p->graph, true);
}

static mp_status run(packs *p, mp_rewrites *rewrites) {
    const int64_t before = rewrites->done;
    look_at_nodes(p);
    look_at_values(p);
    join(p);
    find_maps(p);
    find_data(p);
    count(p);
    choose(p, rewrites);
    return rewrites->done > before ? rewrite(p) : MP_OK;
}

mp_status mp_pass_channel_packs(mp_graph *graph, mp_rewrites *rewrites) {
    packs p = {.graph = graph,
               .count = graph->value_count,
               .nodes = graph->node_count,
               .forced = rewrites->forced};
    if (!graph->prefers_last && !rewrites->forced) {
        return MP_OK;
    }
    mp_status status = open(&p);
    if (status == MP_OK) {
        status = run(&p, rewrites);
    }
    close(&p);
    return status;
}
