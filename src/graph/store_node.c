/* store_node.c - nodes from bytes, see store.h: plain ones, choices of branches, loops.
 *
 * The first are checked by their operators' signatures. Of the others, which no schema knows, here
 * is checked what graph.h says of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/store_private.h"
#include "op/core/signature.h"

#include <stdlib.h>

/* Of one node: more than any operator has, and few enough for a list of them. */
enum { ENDS_MAX = 1 << 16, VERSION_MAX = 1 << 20 };

typedef enum node_form { PLAIN, CHOICE, LOOP } node_form;

typedef struct ends {
    int32_t *in, *out; /* the graph's */
    size_t in_count, out_count;
} ends;

/* ---- what a node reads and makes ---- */

/* The result of a branch, which the choice behind it reads. */
static bool is_result(const mp_store_reader *r, const ends *e, size_t i) {
    const int32_t under = r->guards[e->in[i]];
    if (i == 0 || under == 0) {
        return false;
    }
    const mp_guard *guard = &r->graph->guards[under - 1];
    return guard->condition == e->in[0] && guard->wanted == (i == 1) &&
           guard->outer == r->graph->guard;
}

static mp_status look_at_inputs(const mp_store_reader *r, const ends *e, node_form form) {
    for (size_t i = 0; i < e->in_count; i++) {
        const int32_t value = e->in[i];
        r->work[i] = (mp_tensor){.type = MP_NONE};
        if (value == MP_NO_VALUE) {
            continue;
        }
        if (value < 0 || value >= r->graph->value_count || !r->made[value]) {
            return mp__store_damaged("a node reads what is not there");
        }
        if (!mp_graph_guard_within(r->graph, r->graph->guard, r->guards[value]) &&
            (form != CHOICE || !is_result(r, e, i))) {
            return mp__store_damaged("a node reads what another branch makes");
        }
        r->work[i] = r->graph->values[value].tensor;
        r->work[i].data = 0;
    }
    return MP_OK;
}

static mp_status look_at_outputs(const mp_store_reader *r, const ends *e) {
    mp_tensor *made = r->work + e->in_count;
    for (size_t i = 0; i < e->out_count; i++) {
        const int32_t value = e->out[i];
        made[i] = (mp_tensor){.type = MP_NONE};
        if (value == MP_NO_VALUE) {
            continue;
        }
        if (value < 0 || value >= r->graph->value_count || r->made[value] ||
            r->kinds[value] != MP_STORE_MADE) {
            return mp__store_damaged("a node makes what it cannot");
        }
        made[i] = r->graph->values[value].tensor;
        r->made[value] = true;
        r->guards[value] = r->graph->guard;
    }
    return MP_OK;
}

/* What decides about the branch of the node must be known before it. */
static mp_status check_guard(const mp_store_reader *r) {
    for (int32_t g = r->graph->guard; g != 0; g = r->graph->guards[g - 1].outer) {
        const mp_guard *guard = &r->graph->guards[g - 1];
        if (!r->made[guard->condition] ||
            !mp_graph_guard_within(r->graph, guard->outer, r->guards[guard->condition])) {
            return mp__store_damaged("a branch has a condition that is not known");
        }
    }
    return MP_OK;
}

static mp_dtype type_at(const mp_store_reader *r, size_t i) {
    return r->work[i].type;
}

/* ---- plain nodes ---- */

/* Whether one value is wanted both on the host and on the device, see ep/placement/row.c. */
static bool is_torn(const mp_op *op, const ends *e) {
    for (size_t i = 0; i < e->in_count && op->host_in != 0; i++) {
        for (size_t j = 0; j < e->in_count && mp_op_host_in(op, i); j++) {
            if (e->in[i] == e->in[j] && e->in[i] != MP_NO_VALUE && !mp_op_host_in(op, j)) {
                return true;
            }
        }
    }
    return false;
}

static mp_status add_plain(mp_store_reader *r, mp_node *node, const ends *e) {
    MP_TRY(mp__store_take_attrs(r, node));
    for (size_t i = 0; i < e->out_count && i < 32; i++) {
        node->out_absent |= e->out[i] == MP_NO_VALUE ? 1u << i : 0;
    }
    if (is_torn(node->op, e)) {
        return mp__store_damaged("a node reads a value in two places");
    }
    MP_TRY(mp_signature_check(node, r->work, (int)e->in_count, r->work + e->in_count,
                              (int)e->out_count));
    return mp_graph_add_node(r->graph, node, e->in, (int)e->in_count, e->out, (int)e->out_count);
}

/* ---- choices ---- */

static mp_status add_choice(mp_store_reader *r, mp_node *node, const ends *e) {
    MP_TRY(mp__store_take_attrs(r, node));
    if (e->in_count != 3 || e->out_count != 1 || type_at(r, 0) != MP_BOOL ||
        type_at(r, 1) == MP_NONE || type_at(r, 1) != type_at(r, 2) ||
        type_at(r, 1) != type_at(r, 3)) {
        return mp__store_damaged("the results of two branches differ");
    }
    MP_TRY(mp_graph_add_node(r->graph, node, e->in, 3, e->out, 1));
    const int32_t n = r->graph->node_count - 1;
    const mp_origin itself = {.op = "If", .name = r->graph->nodes[n].node.name};
    return mp_graph_set_origins(r->graph, n, (mp_origins){&itself, 1});
}

/* ---- loops ---- */

/* Whether the body has an input for each of the node's, and an output for each, and there are as
 * many as the loop says. */
static bool counts_fit(const mp_loop *loop, const ends *e) {
    const int64_t head = loop->is_scan ? 0 : 2;
    const int64_t results = (int64_t)loop->carried + loop->stacked;
    return loop->carried >= 0 && (loop->is_scan ? loop->sliced > 0 : loop->sliced == 0) &&
           head + loop->carried + loop->sliced <= (int64_t)e->in_count &&
           loop->body->input_count == (int64_t)e->in_count && results == (int64_t)e->out_count &&
           loop->body->output_count == results + (loop->is_scan ? 0 : 1);
}

/* Of a Loop the first two inputs may be left out. */
static bool has_all(const mp_loop *loop, const ends *e) {
    bool all = true;
    for (size_t i = loop->is_scan ? 0 : 2; i < e->in_count; i++) {
        all = all && e->in[i] != MP_NO_VALUE;
    }
    for (size_t i = 0; i < e->out_count; i++) {
        all = all && e->out[i] != MP_NO_VALUE;
    }
    return all;
}

static mp_dtype body_in(const mp_loop *loop, size_t i) {
    return loop->body->values[loop->body->inputs[i]].tensor.type;
}

static mp_dtype body_out(const mp_loop *loop, size_t i) {
    return loop->body->values[loop->body->outputs[i]].tensor.type;
}

/* Trip count and condition, and what the body has of them. */
static bool head_fits(const mp_store_reader *r, const mp_loop *loop) {
    const bool counts = type_at(r, 0) == MP_NONE || type_at(r, 0) == MP_I64;
    const bool decides = type_at(r, 1) == MP_NONE || type_at(r, 1) == MP_BOOL;
    return counts && decides && body_in(loop, 0) == MP_I64 && body_in(loop, 1) == MP_BOOL &&
           body_out(loop, 0) == MP_BOOL;
}

static bool types_fit(const mp_store_reader *r, const mp_loop *loop, const ends *e) {
    const size_t head = loop->is_scan ? 0 : 2;
    const size_t head_out = loop->is_scan ? 0 : 1;
    bool fits = loop->is_scan || head_fits(r, loop);
    for (size_t i = head; i < e->in_count; i++) {
        fits = fits && type_at(r, i) == body_in(loop, i);
    }
    for (size_t i = 0; i < e->out_count; i++) {
        const mp_dtype made = body_out(loop, head_out + i);
        fits = fits && type_at(r, e->in_count + i) == made;
        fits = fits && (i >= (size_t)loop->carried || made == body_in(loop, head + i));
    }
    return fits;
}

/* Gives: `*out`, until mp_graph_destroy. */
static mp_status take_body(mp_store_reader *r, mp_graph **out) {
    mp_store_reader inner = {.at = r->at,
                             .end = r->end,
                             .ports = r->ports,
                             .port_count = r->port_count,
                             .options = r->options,
                             .depth = r->depth + 1};
    if (inner.depth > MP_STORE_DEPTH) {
        return mp__store_damaged("bodies lie too deep in each other");
    }
    MP_TRY(mp_graph_create(&inner.graph));
    inner.graph->has_claimed_types = true;
    const mp_status status = mp__store_take_graph(&inner);
    r->at = inner.at;
    mp__store_reader_close(&inner);
    if (status != MP_OK) {
        mp_graph_destroy(inner.graph);
        return status;
    }
    *out = inner.graph;
    return MP_OK;
}

static mp_status take_loop(mp_store_reader *r, mp_loop *loop) {
    uint32_t is_scan = 0;
    void *flags = NULL;
    MP_TRY(mp__store_take_number(r, &is_scan));
    MP_TRY(mp__store_take(r, &loop->carried, sizeof loop->carried));
    MP_TRY(mp__store_take(r, &loop->sliced, sizeof loop->sliced));
    MP_TRY(mp__store_take(r, &loop->stacked, sizeof loop->stacked));
    loop->is_scan = is_scan != 0;
    if (loop->sliced < 0 || loop->stacked < 0 || loop->sliced > ENDS_MAX ||
        loop->stacked > ENDS_MAX) {
        return mp__store_damaged("a loop has too many slices");
    }
    const size_t count = (size_t)loop->sliced + (size_t)loop->stacked;
    MP_TRY(mp_graph_keep(r->graph, (count + 1) * sizeof(bool), &flags));
    loop->backwards = flags;
    for (size_t i = 0; i < count; i++) {
        unsigned char word = 0;
        MP_TRY(mp__store_take(r, &word, 1));
        loop->backwards[i] = word != 0;
    }
    return take_body(r, &loop->body);
}

static mp_status add_loop(mp_store_reader *r, const mp_node *node, const ends *e) {
    mp_loop loop = {.body = NULL};
    MP_TRY(take_loop(r, &loop));
    if (!counts_fit(&loop, e) || !has_all(&loop, e) || !types_fit(r, &loop, e)) {
        mp_graph_destroy(loop.body);
        return mp__store_damaged("a loop and its body differ");
    }
    return mp_graph_add_loop(r->graph, node, &loop, e->in, (int)e->in_count, e->out,
                             (int)e->out_count);
}

/* ---- any node ---- */

static node_form form_of(const char *domain, const char *name) {
    if (strcmp(domain, MP_OWN_DOMAIN) != 0) {
        return PLAIN;
    }
    return strcmp(name, "Choose") == 0                              ? CHOICE
           : strcmp(name, "Loop") == 0 || strcmp(name, "Scan") == 0 ? LOOP
                                                                    : PLAIN;
}

static mp_status take_row(mp_store_reader *r, mp_node *node, node_form *form) {
    const char *domain = NULL;
    const char *name = NULL;
    uint32_t version = 0;
    MP_TRY(mp__store_take_text(r, &domain));
    MP_TRY(mp__store_take_text(r, &name));
    MP_TRY(mp__store_take_number(r, &version));
    MP_TRY(mp__store_take_text(r, &node->name));
    *form = form_of(domain, name);
    node->op = version < VERSION_MAX ? mp_op_find(domain, name, (int)version) : NULL;
    node->version = (int)version;
    if (*form != LOOP && (node->op == NULL || (*form == PLAIN && mp_op_is_own(node->op)))) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no operator '%.80s' of version %u", name,
                       version);
    }
    return MP_OK;
}

static mp_status take_ends(mp_store_reader *r, ends *e) {
    void *in = NULL;
    void *out = NULL;
    MP_TRY(mp__store_take_list(r, sizeof(int32_t), &in, &e->in_count));
    MP_TRY(mp__store_take_list(r, sizeof(int32_t), &out, &e->out_count));
    if (e->in_count > ENDS_MAX || e->out_count > ENDS_MAX) {
        return mp__store_damaged("a node has too many inputs or outputs");
    }
    e->in = in;
    e->out = out;
    free(r->work); /* with room for what a choice and a loop look at, whatever there is */
    r->work = calloc(e->in_count + e->out_count + 4, sizeof *r->work);
    return r->work != NULL ? MP_OK : mp__store_no_memory();
}

mp_status mp__store_take_node(mp_store_reader *r) {
    mp_node node = {.options = *r->options};
    node_form form = PLAIN;
    int32_t guard = 0;
    ends e = {NULL, NULL, 0, 0};
    MP_TRY(take_row(r, &node, &form));
    MP_TRY(mp__store_take(r, &guard, sizeof guard));
    if (guard < 0 || guard > r->graph->guard_count) {
        return mp__store_damaged("a node is in no such branch");
    }
    r->graph->guard = guard;
    MP_TRY(check_guard(r));
    MP_TRY(take_ends(r, &e));
    MP_TRY(look_at_inputs(r, &e, form));
    MP_TRY(look_at_outputs(r, &e));
    return form == PLAIN    ? add_plain(r, &node, &e)
           : form == CHOICE ? add_choice(r, &node, &e)
                            : add_loop(r, &node, &e);
}
