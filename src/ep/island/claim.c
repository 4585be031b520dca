/* claim.c - groups by levels.
 *
 * Nodes that can be in an island have even levels, others odd ones; a node's level is the least of
 * its parity that is not below that of any node it reads from. So a path from one node of a level
 * to another never leaves the level, and all nodes of an even level are one group. Nodes are then
 * left out until every value that is read on the host is known within its group, and none is that
 * others read there: those keep to the ways of single nodes, or of the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/claim.h"

#include "ep/abi/bridge.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_NODES = 2, EVERYTHING = 2 };

/* What a value is known by: its name, in a tree. */
typedef struct value_fact {
    const char *name;
    int node;     /* that makes it */
    int known_at; /* the level at which its value follows from shapes and constants; -1 */
    bool constant;
} value_fact;

typedef struct reader {
    int *in; /* owned by the claim; entries, or -1 */
    int *out;
    int in_count, out_count, seen_count; /* the last inputs are those of bodies */
    int level;
} reader;

typedef struct claim {
    mp_candidate *nodes;
    reader *readers; /* owned; one a node */
    size_t count;
    value_fact *entries; /* owned */
    size_t entry_count, entry_capacity;
    void *names; /* a tree of name_slot */
} claim;

typedef struct name_slot {
    const char *name; /* ORT's, for as long as the graph is looked at */
    int entry;
} name_slot;

static int by_name(const void *left, const void *right) {
    return strcmp(((const name_slot *)left)->name, ((const name_slot *)right)->name);
}

/* ---- reading the graph ---- */

static mp_status is_constant(const OrtValueInfo *value, bool *out) {
    return mp__from_ort(ORT->ValueInfo_IsConstantInitializer(value, out));
}

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to find islands in a graph");
}

static mp_status entry_of(claim *c, const OrtValueInfo *value, int *out) {
    const char *name = NULL;
    *out = -1;
    if (value == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(value, &name)));
    if (name == NULL || name[0] == '\0') {
        return MP_OK;
    }
    name_slot *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return no_memory();
    }
    *fresh = (name_slot){name, (int)c->entry_count};
    name_slot **found = tsearch(fresh, &c->names, by_name);
    if (found == NULL || *found != fresh) {
        free(fresh);
        *out = found != NULL ? (*found)->entry : -1;
        return found != NULL ? MP_OK : no_memory();
    }
    if (c->entry_count == c->entry_capacity) {
        const size_t capacity = c->entry_capacity * 2 + 256;
        value_fact *grown = realloc(c->entries, capacity * sizeof *grown);
        if (grown == NULL) {
            return no_memory();
        }
        c->entries = grown;
        c->entry_capacity = capacity;
    }
    value_fact *e = &c->entries[c->entry_count];
    *e = (value_fact){.name = name, .node = -1, .known_at = -1};
    *out = (int)c->entry_count++;
    return is_constant(value, &e->constant);
}

static mp_status entries_of(claim *c, const OrtValueInfo *const *values, size_t count, int *out) {
    for (size_t i = 0; i < count; i++) {
        MP_TRY(entry_of(c, values[i], &out[i]));
    }
    return MP_OK;
}

typedef OrtStatusPtr(count_fn)(const OrtNode *, size_t *);
typedef OrtStatusPtr(list_fn)(const OrtNode *, const OrtValueInfo **, size_t);

/* Appends one kind of the node's values to `*list`. */
static mp_status append(claim *c, const OrtNode *node, count_fn *count_of, list_fn *list_of,
                        int **list, int *count) {
    size_t more = 0;
    MP_TRY(mp__from_ort(count_of(node, &more)));
    const OrtValueInfo **values = calloc(more + 1, sizeof *values);
    int *grown = realloc(*list, ((size_t)*count + more + 1) * sizeof *grown);
    if (grown != NULL) {
        *list = grown;
    }
    mp_status status = values != NULL && grown != NULL ? MP_OK : no_memory();
    if (status == MP_OK) {
        status = mp__from_ort(list_of(node, values, more));
    }
    if (status == MP_OK) {
        status = entries_of(c, values, more, *list + *count);
        *count += (int)more;
    }
    free(values);
    return status;
}

static mp_status read_node(claim *c, size_t i) {
    reader *r = &c->readers[i];
    const OrtNode *node = c->nodes[i].node;
    MP_TRY(append(c, node, ORT->Node_GetNumInputs, ORT->Node_GetInputs, &r->in, &r->in_count));
    r->seen_count = r->in_count;
    MP_TRY(append(c, node, ORT->Node_GetNumImplicitInputs, ORT->Node_GetImplicitInputs, &r->in,
                  &r->seen_count));
    MP_TRY(append(c, node, ORT->Node_GetNumOutputs, ORT->Node_GetOutputs, &r->out, &r->out_count));
    for (int o = 0; o < r->out_count; o++) {
        if (r->out[o] >= 0) {
            c->entries[r->out[o]].node = (int)i;
        }
    }
    return MP_OK;
}

static mp_status open_claim(claim *c) {
    c->readers = calloc(c->count + 1, sizeof *c->readers);
    if (c->readers == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < c->count; i++) {
        MP_TRY(read_node(c, i));
    }
    return MP_OK;
}

static void close_claim(claim *c) {
    for (size_t i = 0; c->readers != NULL && i < c->count; i++) {
        free(c->readers[i].in);
        free(c->readers[i].out);
    }
    free(c->readers);
    free(c->entries);
    tdestroy(c->names, free);
}

/* ---- levels ---- */

static void set_levels(claim *c) {
    for (size_t i = 0; i < c->count; i++) {
        reader *r = &c->readers[i];
        const int parity = c->nodes[i].can_join ? 0 : 1;
        int level = parity;
        for (int k = 0; k < r->seen_count; k++) {
            const int from = r->in[k] >= 0 ? c->entries[r->in[k]].node : -1;
            const int least = from >= 0 && from < (int)i ? c->readers[from].level : 0;
            level = least > level ? least + (least % 2 != parity) : level;
        }
        r->level = level;
    }
}

/* The level at which all that `r` reads is known, -1 where it is not. */
static bool reads_known(const claim *c, const reader *r) {
    for (int k = 0; k < r->in_count; k++) {
        const value_fact *e = r->in[k] >= 0 ? &c->entries[r->in[k]] : NULL;
        if (e != NULL && !e->constant && e->known_at != r->level) {
            return false;
        }
    }
    return true;
}

static void set_known(claim *c) {
    for (size_t i = 0; i < c->entry_count; i++) {
        c->entries[i].known_at = -1;
    }
    for (size_t i = 0; i < c->count; i++) {
        const mp_candidate *n = &c->nodes[i];
        const reader *r = &c->readers[i];
        const bool known =
            n->can_join && (n->op->host_out != 0 || (!n->op->draws && reads_known(c, r)));
        for (int o = 0; known && o < r->out_count; o++) {
            if (r->out[o] >= 0) {
                c->entries[r->out[o]].known_at = r->level;
            }
        }
    }
}

/* ---- who must stay out ---- */

static bool needs_more_than_is_known(const claim *c, size_t i) {
    const reader *r = &c->readers[i];
    for (int k = 0; k < r->in_count; k++) {
        const value_fact *e = r->in[k] >= 0 ? &c->entries[r->in[k]] : NULL;
        if (e != NULL && !e->constant && mp_op_host_in(c->nodes[i].op, (size_t)k) &&
            e->known_at != r->level) {
            return true;
        }
    }
    return false;
}

/* Whether node `i`, which is in no group or in another, wants input `k` on the host. */
static bool wants_on_host(const claim *c, size_t i, int k) {
    const mp_candidate *n = &c->nodes[i];
    return k >= c->readers[i].in_count || n->op == NULL || mp_op_host_in(n->op, (size_t)k);
}

/* Leaves out what makes values that are known in their group and wanted on the host elsewhere. */
static bool leave_makers(claim *c, size_t i) {
    const reader *r = &c->readers[i];
    bool changed = false;
    for (int k = 0; k < r->seen_count; k++) {
        const value_fact *e = r->in[k] >= 0 ? &c->entries[r->in[k]] : NULL;
        if (e == NULL || e->constant || e->node < 0 || e->known_at < 0 || e->known_at == r->level ||
            !wants_on_host(c, i, k)) {
            continue;
        }
        changed = changed || c->nodes[e->node].can_join;
        c->nodes[e->node].can_join = false;
    }
    return changed;
}

static bool leave_some_out(claim *c) {
    bool changed = false;
    for (size_t i = 0; i < c->count; i++) {
        if (c->nodes[i].can_join && needs_more_than_is_known(c, i)) {
            c->nodes[i].can_join = false;
            changed = true;
        }
        changed = leave_makers(c, i) || changed;
    }
    return changed;
}

/* ---- groups ---- */

/* Whether a node has work to do on the device, as far as that can be known now. */
static bool works(const claim *c, size_t i) {
    const reader *r = &c->readers[i];
    const bool known = r->out_count > 0 && r->out[0] >= 0 && c->entries[r->out[0]].known_at >= 0;
    return !known && c->nodes[i].op->view_of == 0;
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
    }
    for (size_t i = 0; i < c->count; i++) {
        const int level = c->readers[i].level;
        c->nodes[i].island = c->nodes[i].can_join && sizes[level] >= least ? level : -1;
    }
    free(sizes);
    return MP_OK;
}

bool mp__islands_wanted(const mp_provider *provider) {
    return provider->options.fusion > 0 && !provider->options.prefer_nhwc &&
           provider->options.partition_memory_limit == 0;
}

mp_status mp__islands_find(const mp_provider *provider, mp_candidate *nodes, size_t count) {
    claim c = {.nodes = nodes, .count = count};
    mp_status status = open_claim(&c);
    bool changed = status == MP_OK;
    while (changed) {
        set_levels(&c);
        set_known(&c);
        changed = leave_some_out(&c);
    }
    if (status == MP_OK) {
        status = number_groups(&c, provider->options.fusion >= EVERYTHING ? 1 : LEAST_NODES);
    }
    close_claim(&c);
    return status;
}

/* ---- telling ONNX Runtime ---- */

static mp_status add_group(OrtEpGraphSupportInfo *support, const mp_candidate *nodes, size_t count,
                           const OrtNode **list, int island) {
    const OrtNodeFusionOptions options = {.ort_version_supported = mp_the_plugin.version,
                                          .drop_constant_initializers = true};
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

mp_status mp__islands_add(OrtEpGraphSupportInfo *support, const mp_candidate *nodes, size_t count) {
    int most = -1;
    for (size_t i = 0; i < count; i++) {
        most = nodes[i].island > most ? nodes[i].island : most;
    }
    const OrtNode **list = calloc(count + 1, sizeof *list);
    mp_status status = list != NULL ? MP_OK : no_memory();
    for (int island = 0; status == MP_OK && island <= most; island += 2) {
        status = add_group(support, nodes, count, list, island);
    }
    free(list);
    return status;
}
