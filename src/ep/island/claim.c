/* claim.c - groups by levels.
 *
 * Nodes that can be in an island have even levels, others odd ones; a node's level is the least of
 * its parity that is not below that of any node it reads from. So a path from one node of a level
 * to another never leaves the level, and all nodes of an even level are one group. Nodes are then
 * left out until every value that is read on the host is known within its group, or made by a node
 * of an island and read back, none that is known is read there by nodes of no island, and none
 * works on what is in host memory and not known: those keep to the ways of single nodes, or of the
 * CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/claim.h"

#include "base/growing.h"
#include "ep/abi/bridge.h"
#include "ep/abi/node_values.h"
#include "ep/placement/name_set.h"

#include <limits.h>
#include <stdlib.h>

enum { LEAST_NODES = 2, EVERYTHING = 2 };

/* What is known of a value; found by the number of its name. */
typedef struct value_fact {
    int maker;    /* node; -1: none of the graph */
    int known_at; /* the level at which it follows from shapes and constants; -1 */
    bool constant;
} value_fact;

/* What a node reads and makes, as numbers of values; MP_NO_NAME for those left out. */
typedef struct reader {
    int *list; /* owned: inputs, what bodies read, outputs */
    int *in, *out;
    int in_count, seen_count, out_count; /* seen: inputs, and what bodies read */
    int level;
} reader;

typedef struct claim {
    bool may_wait; /* islands may read values back */
    mp_candidate *nodes;
    reader *readers; /* owned; one a node */
    size_t count;
    mp_name_set names;
    value_fact *facts; /* owned; one a name */
    size_t fact_capacity;
} claim;

/* ---- reading the graph ---- */

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to find islands in a graph");
}

static mp_status number_of(claim *c, const OrtValueInfo *value, int *out) {
    const char *name = "";
    const size_t before = c->names.count;
    *out = MP_NO_NAME;
    MP_TRY(mp__value_name(value, &name));
    if (name[0] == '\0') {
        return MP_OK;
    }
    if (!mp_grow(&c->facts, before + 1, &c->fact_capacity, sizeof(value_fact))) {
        return no_memory();
    }
    MP_TRY(mp__name_set_add(&c->names, name, out));
    if (c->names.count == before) {
        return MP_OK;
    }
    value_fact *fresh = &c->facts[*out];
    *fresh = (value_fact){.maker = -1, .known_at = -1};
    return mp__from_ort(ORT->ValueInfo_IsConstantInitializer(value, &fresh->constant));
}

static mp_status read_values(claim *c, const mp_values *values, int *out) {
    for (size_t i = 0; i < values->count; i++) {
        MP_TRY(number_of(c, values->list[i], &out[i]));
    }
    return MP_OK;
}

static mp_status read_sides(claim *c, reader *r, const mp_values sides[3]) {
    const size_t total =
        sides[MP_SIDE_IN].count + sides[MP_SIDE_IMPLICIT].count + sides[MP_SIDE_OUT].count;
    r->list = calloc(total + 1, sizeof *r->list);
    if (r->list == NULL || total > INT_MAX) {
        return no_memory();
    }
    r->in_count = (int)sides[MP_SIDE_IN].count;
    r->seen_count = r->in_count + (int)sides[MP_SIDE_IMPLICIT].count;
    r->out_count = (int)sides[MP_SIDE_OUT].count;
    r->in = r->list;
    r->out = r->list + r->seen_count;
    MP_TRY(read_values(c, &sides[MP_SIDE_IN], r->in));
    MP_TRY(read_values(c, &sides[MP_SIDE_IMPLICIT], r->in + r->in_count));
    return read_values(c, &sides[MP_SIDE_OUT], r->out);
}

static mp_status read_node(claim *c, size_t i) {
    mp_values sides[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    mp_status status = MP_OK;
    for (int side = 0; side < 3 && status == MP_OK; side++) {
        status = mp__values_of(c->nodes[i].node, (mp_side)side, &sides[side]);
    }
    if (status == MP_OK) {
        status = read_sides(c, &c->readers[i], sides);
    }
    for (int side = 0; side < 3; side++) {
        mp__values_release(&sides[side]);
    }
    return status;
}

static mp_status open_claim(claim *c) {
    c->readers = calloc(c->count + 1, sizeof *c->readers);
    if (c->readers == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < c->count; i++) {
        MP_TRY(read_node(c, i));
        for (int o = 0; o < c->readers[i].out_count; o++) {
            if (c->readers[i].out[o] != MP_NO_NAME) {
                c->facts[c->readers[i].out[o]].maker = (int)i;
            }
        }
    }
    return MP_OK;
}

static void close_claim(claim *c) {
    for (size_t i = 0; c->readers != NULL && i < c->count; i++) {
        free(c->readers[i].list);
    }
    free(c->readers);
    free(c->facts);
    mp__name_set_clear(&c->names);
}

/* What is known of the value that node `i` reads at `k`; NULL for a constant, or none. */
static value_fact *fact_of(const claim *c, const reader *r, int k) {
    value_fact *fact = r->in[k] != MP_NO_NAME ? &c->facts[r->in[k]] : NULL;
    return fact != NULL && !fact->constant ? fact : NULL;
}

/* ---- levels ---- */

static void set_levels(claim *c) {
    for (size_t i = 0; i < c->count; i++) {
        reader *r = &c->readers[i];
        const int parity = c->nodes[i].can_join ? 0 : 1;
        r->level = parity;
        for (int k = 0; k < r->seen_count; k++) {
            const value_fact *fact = fact_of(c, r, k);
            const bool before = fact != NULL && fact->maker >= 0 && fact->maker < (int)i;
            const int least = before ? c->readers[fact->maker].level : 0;
            r->level = least > r->level ? least + (least % 2 != parity) : r->level;
        }
    }
}

/* Whether all that a node reads is known at its level. */
static bool reads_known(const claim *c, const reader *r) {
    for (int k = 0; k < r->in_count; k++) {
        const value_fact *fact = fact_of(c, r, k);
        if (fact != NULL && fact->known_at != r->level) {
            return false;
        }
    }
    return true;
}

static void set_known(claim *c) {
    for (size_t i = 0; i < c->names.count; i++) {
        c->facts[i].known_at = -1;
    }
    for (size_t i = 0; i < c->count; i++) {
        const mp_candidate *n = &c->nodes[i];
        const reader *r = &c->readers[i];
        const bool known = n->can_join && !n->is_held &&
                           (n->op->host_out != 0 || (!n->op->draws && reads_known(c, r)));
        for (int o = 0; known && o < r->out_count; o++) {
            if (r->out[o] != MP_NO_NAME) {
                c->facts[r->out[o]].known_at = r->level;
            }
        }
    }
}

/* ---- who must stay out ---- */

/* Whether an island may wait for the value, and read it back. */
static bool is_read_back(const claim *c, const value_fact *fact) {
    return c->may_wait && fact->maker >= 0 && c->nodes[fact->maker].can_join;
}

static bool needs_more_than_is_known(const claim *c, size_t i) {
    const reader *r = &c->readers[i];
    if (c->nodes[i].is_held) {
        return false;
    }
    for (int k = 0; k < r->in_count; k++) {
        const value_fact *fact = fact_of(c, r, k);
        if (fact != NULL && mp_op_host_in(c->nodes[i].op, (size_t)k) &&
            fact->known_at != r->level && !is_read_back(c, fact)) {
            return true;
        }
    }
    return false;
}

/* Whether something makes the value in host memory, where no island can know it before it runs. */
static bool is_on_host(const claim *c, const value_fact *fact, const reader *r) {
    if (fact == NULL || fact->maker < 0 || fact->known_at == r->level) {
        return false;
    }
    const mp_candidate *maker = &c->nodes[fact->maker];
    return !maker->can_join &&
           (maker->of_shapes || (maker->op != NULL && maker->op->host_out != 0));
}

/* Whether the node works on values in host memory that are not known before a run: in an island
 * they would go to the device, and what is made of them back. */
static bool works_on_host(const claim *c, size_t i) {
    const reader *r = &c->readers[i];
    bool does = c->nodes[i].of_body;
    for (int k = 0; k < r->in_count && !does; k++) {
        does = is_on_host(c, fact_of(c, r, k), r);
    }
    return does && c->nodes[i].of_shapes && !c->nodes[i].is_held;
}

/* Whether node `i`, which is in no group or in another, wants what it reads at `k` on the host. */
static bool wants_on_host(const claim *c, size_t i, int k) {
    const mp_candidate *n = &c->nodes[i];
    if (n->can_join && c->may_wait) {
        return false; /* it is read back */
    }
    return k >= c->readers[i].in_count || n->op == NULL || mp_op_host_in(n->op, (size_t)k);
}

/* Gives: whether it could join before. */
static bool leave(mp_candidate *n, const char *why) {
    const bool could = n->can_join;
    n->can_join = false;
    n->why = could ? why : n->why;
    return could;
}

/* Leaves out what makes values that are known in their group and wanted on the host elsewhere. */
static bool leave_makers(claim *c, size_t i) {
    const reader *r = &c->readers[i];
    bool changed = false;
    for (int k = 0; k < r->seen_count; k++) {
        const value_fact *fact = fact_of(c, r, k);
        if (fact != NULL && fact->maker >= 0 && fact->known_at >= 0 && fact->known_at != r->level &&
            wants_on_host(c, i, k)) {
            changed =
                leave(&c->nodes[fact->maker],
                      "it makes a value that is wanted in host memory outside of its group") ||
                changed;
        }
    }
    return changed;
}

static bool leave_some_out(claim *c) {
    bool changed = false;
    for (size_t i = 0; i < c->count; i++) {
        if (c->nodes[i].can_join && needs_more_than_is_known(c, i)) {
            changed = leave(&c->nodes[i],
                            "it reads a value in host memory that does not follow from shapes");
        }
        if (c->nodes[i].can_join && works_on_host(c, i)) {
            changed = leave(&c->nodes[i],
                            "it works on values in host memory that are not known before a run");
        }
        changed = leave_makers(c, i) || changed;
    }
    return changed;
}

/* ---- groups ---- */

/* Whether a node has work to do on the device, as far as that can be known now. */
static bool works(const claim *c, size_t i) {
    const reader *r = &c->readers[i];
    const bool known =
        r->out_count > 0 && r->out[0] != MP_NO_NAME && c->facts[r->out[0]].known_at >= 0;
    return !known && c->nodes[i].op != NULL && c->nodes[i].op->view_of == 0;
}

/* Fewer nodes than this are no island, since each would be launched alone as well; but where they
 * are all there is, a captured graph of one launch ends sooner than the launch. */
static size_t least_of(const claim *c, int64_t fusion) {
    bool is_whole = true;
    for (size_t i = 0; i < c->count; i++) {
        is_whole = is_whole && c->nodes[i].can_join && c->readers[i].level == c->readers[0].level;
    }
    return is_whole || fusion >= EVERYTHING ? 1 : LEAST_NODES;
}

static mp_status number_groups(claim *c, size_t least) {
    int levels = 0;
    for (size_t i = 0; i < c->count; i++) {
        c->nodes[i].island = -1;
        levels = c->readers[i].level >= levels ? c->readers[i].level + 1 : levels;
    }
    size_t *sizes = calloc((size_t)levels + 1, sizeof *sizes);
    if (sizes == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < c->count; i++) {
        sizes[c->readers[i].level] += c->nodes[i].can_join && works(c, i);
        sizes[c->readers[i].level] += c->nodes[i].is_held ? least : 0;
    }
    for (size_t i = 0; i < c->count; i++) {
        const int level = c->readers[i].level;
        mp_candidate *n = &c->nodes[i];
        n->island = n->can_join && sizes[level] >= least ? level : -1;
        if (n->can_join && n->island < 0) {
            n->why = "no other node beside it, or too few that work on the device";
        }
    }
    free(sizes);
    return MP_OK;
}

bool mp__islands_wanted(const mp_provider *provider) {
    return provider->options.fusion > 0 && !provider->options.prefer_nhwc &&
           provider->options.partition_memory_limit == 0;
}

mp_status mp__islands_find(const mp_provider *provider, mp_candidate *nodes, size_t count) {
    claim c = {.may_wait = !provider->options.enable_cuda_graph, .nodes = nodes, .count = count};
    mp_status status = open_claim(&c);
    bool changed = status == MP_OK;
    while (changed) {
        set_levels(&c);
        set_known(&c);
        changed = leave_some_out(&c);
    }
    if (status == MP_OK) {
        status = number_groups(&c, least_of(&c, provider->options.fusion));
    }
    close_claim(&c);
    return status;
}

/* ---- telling ONNX Runtime ---- */

static mp_status add_group(OrtEpGraphSupportInfo *support, const mp_candidate *nodes, size_t count,
                           const OrtNode **list, int island, bool drops) {
    const OrtNodeFusionOptions options = {.ort_version_supported = mp_the_plugin.version,
                                          .drop_constant_initializers = drops};
    size_t members = 0;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].island == island) {
            list[members++] = nodes[i].node;
        }
    }
    return members == 0 ? MP_OK
                        : mp__from_ort(ORT_EP->EpGraphSupportInfo_AddNodesToFuse(
                              support, list, members, &options));
}

mp_status mp__islands_add(const mp_provider *provider, OrtEpGraphSupportInfo *support,
                          const mp_candidate *nodes, size_t count) {
    const bool drops = provider->context == NULL; /* else they are inputs, for the compiled model */
    int most = -1;
    for (size_t i = 0; i < count; i++) {
        most = MP_MAX(nodes[i].island, most);
    }
    const OrtNode **list = calloc(count + 1, sizeof *list);
    mp_status status = list != NULL ? MP_OK : no_memory();
    for (int island = 0; status == MP_OK && island <= most; island += 2) {
        status = add_group(support, nodes, count, list, island, drops);
    }
    free(list);
    return status;
}
