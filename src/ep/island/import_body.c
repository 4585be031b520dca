/* import_body.c - If, Loop and Scan with their bodies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/abi/node_attrs.h"
#include "ep/island/import_private.h"
#include "ep/island/scan_axes.h"

#include <stdlib.h>
#include <string.h>

enum { BODIES_MAX = 2 };

typedef struct bodies {
    const OrtGraph *graphs[BODIES_MAX];
    const char *names[BODIES_MAX];
    size_t count;
} bodies;

static mp_status bodies_of(const OrtNode *node, bodies *out) {
    MP_TRY(mp__from_ort(ORT->Node_GetNumSubgraphs(node, &out->count)));
    if (out->count > BODIES_MAX) {
        return MP_FAIL(INTERNAL, "a node has %zu bodies", out->count);
    }
    return out->count > 0
               ? mp__from_ort(ORT->Node_GetSubgraphs(node, out->graphs, out->count, out->names))
               : MP_OK;
}

typedef OrtStatus *(count_fn)(const OrtGraph *graph, size_t *count);
typedef OrtStatus *(values_fn)(const OrtGraph *graph, const OrtValueInfo **values, size_t count);

/* What goes into a body or comes out of it. Gives: `*out`, also where it fails. */
static mp_status body_ends(mp_import *im, const OrtGraph *body, count_fn *count_of,
                           values_fn *list_of, mp_look_fn *look, mp_value_list *out) {
    size_t count = 0;
    MP_TRY(mp__from_ort(count_of(body, &count)));
    const OrtValueInfo **theirs = calloc(count + 1, sizeof(void *));
    out->values = calloc(count + 1, sizeof *out->values);
    if (theirs == NULL || out->values == NULL) {
        free(theirs);
        return mp__import_no_memory();
    }
    mp_status status = mp__from_ort(list_of(body, theirs, count));
    for (; status == MP_OK && out->count < count; out->count++) {
        status = look(im, theirs[out->count], &out->values[out->count]);
    }
    free(theirs);
    return status;
}

/* ---- If: both branches, each behind a guard, and a choice of each result ---- */

static mp_status add_branch(mp_import *im, const OrtGraph *branch, int32_t condition, bool wanted,
                            mp_value_list *results) {
    const size_t names = im->renamed_count;
    MP_TRY(mp_graph_open_guard(im->graph, condition, wanted));
    mp_status status = mp__import_nodes(im, branch);
    if (status == MP_OK) {
        status = body_ends(im, branch, ORT->Graph_GetNumOutputs, ORT->Graph_GetOutputs,
                           mp__import_read, results);
    }
    mp_graph_close_guard(im->graph);
    mp__import_forget(im, names);
    return status;
}

static mp_status add_choice(mp_graph *graph, const mp_node *node, const int32_t in[3],
                            int32_t out) {
    MP_TRY(mp_graph_add_node(graph, node, in, 3, &out, 1));
    const int32_t n = graph->node_count - 1;
    const mp_origin itself = {.op = "If", .name = graph->nodes[n].node.name};
    return mp_graph_set_origins(graph, n, (mp_origins){&itself, 1});
}

static mp_status add_choices(mp_import *im, const OrtNode *node, int32_t condition,
                             const mp_value_list results[2]) {
    mp_value_list out = {NULL, 0};
    mp_node choose = {.op = mp_op_find(MP_OWN_DOMAIN, "Choose", 1), .version = 1};
    mp_status status = mp__from_ort(ORT->Node_GetName(node, &choose.name));
    choose.name = choose.name != NULL ? choose.name : "";
    if (status == MP_OK) {
        status = mp__import_list(im, node, MP_SIDE_OUT, mp__import_made, &out);
    }
    for (size_t i = 0; status == MP_OK && i < out.count; i++) {
        if (i >= results[0].count || i >= results[1].count) {
            status = MP_FAIL(INTERNAL, "the branches of If '%s' give too little", choose.name);
        } else if (out.values[i] != MP_NO_VALUE) {
            const int32_t in[] = {condition, results[0].values[i], results[1].values[i]};
            status = add_choice(im->graph, &choose, in, out.values[i]);
        }
    }
    free(out.values);
    return status;
}

mp_status mp__import_if(mp_import *im, const OrtNode *node) {
    mp_value_list in = {NULL, 0};
    mp_value_list results[2] = {{NULL, 0}, {NULL, 0}}; /* then, else */
    bodies both = {.count = 0};
    mp_status status = mp__import_list(im, node, MP_SIDE_IN, mp__import_read, &in);
    if (status == MP_OK) {
        status = bodies_of(node, &both);
    }
    for (size_t i = 0; status == MP_OK && i < both.count; i++) {
        const bool is_then = strcmp(both.names[i], "then_branch") == 0;
        status = add_branch(im, both.graphs[i], in.values[0], is_then, &results[is_then ? 0 : 1]);
    }
    if (status == MP_OK) {
        status = add_choices(im, node, in.values[0], results);
    }
    free(in.values);
    free(results[0].values);
    free(results[1].values);
    return status;
}

/* ---- Loop and Scan: the body is a graph of its own ---- */

static mp_status add_body_ends(mp_import *im, const OrtGraph *body, bool inputs) {
    mp_value_list ends = {NULL, 0};
    mp_status status = inputs ? body_ends(im, body, ORT->Graph_GetNumInputs, ORT->Graph_GetInputs,
                                          mp__import_made, &ends)
                              : body_ends(im, body, ORT->Graph_GetNumOutputs, ORT->Graph_GetOutputs,
                                          mp__import_read, &ends);
    for (size_t i = 0; status == MP_OK && i < ends.count; i++) {
        status = inputs ? mp_graph_add_input(im->graph, ends.values[i])
                        : mp_graph_add_output(im->graph, ends.values[i]);
    }
    free(ends.values);
    return status;
}

static mp_status import_body(mp_import *body, const OrtGraph *theirs) {
    MP_TRY(mp_graph_create(&body->graph));
    mp_graph_suit(body->graph, &body->provider->computer);
    mp_status status = add_body_ends(body, theirs, true);
    if (status == MP_OK) {
        status = mp__import_nodes(body, theirs);
    }
    if (status == MP_OK) {
        status = add_body_ends(body, theirs, false);
    }
    if (status != MP_OK) {
        mp_graph_destroy(body->graph);
        body->graph = NULL;
    }
    return status;
}

static const mp_attr_def scan_attrs[] = {{"num_scan_inputs", MP_ATTR_INT},
                                         {"scan_input_directions", MP_ATTR_INTS},
                                         {"scan_output_directions", MP_ATTR_INTS},
                                         {NULL, 0}};
static const mp_op scan_row = {.domain = "", .name = "Scan", .attrs = scan_attrs};

static void read_directions(const mp_node *node, const char *name, int32_t count, bool *out) {
    const mp_attr *attr = mp_node_attr(node, name);
    for (int32_t i = 0; attr != NULL && i < count && (size_t)i < attr->count; i++) {
        out[i] = attr->ints[i] == 1;
    }
}

/* A Loop has a trip count and a condition, and gives as many results as the body but for one. */
static mp_status describe_loop(const OrtNode *node, const mp_import *body, size_t in_count,
                               mp_loop *loop) {
    const int32_t outputs = body->graph->output_count;
    const int32_t inputs = body->graph->input_count - (int32_t)body->captured_count;
    mp_attr_store *attrs = NULL;
    if (!loop->is_scan) {
        loop->carried = inputs - 2;
        loop->stacked = outputs - 1 - loop->carried;
        return loop->carried >= 0 && loop->stacked >= 0
                   ? MP_OK
                   : MP_FAIL(INVALID_ARGUMENT, "a loop's body has %d inputs and %d outputs",
                             (int)inputs, (int)outputs);
    }
    MP_TRY(mp__attrs_of_node(&scan_row, node, &attrs));
    mp_node ours = {.op = &scan_row, .name = ""};
    ours.attrs = mp__attrs_list(attrs, &ours.attr_count);
    const int64_t sliced = mp_node_int(&ours, "num_scan_inputs", 0);
    const bool fits = sliced >= 1 && sliced <= inputs && inputs - sliced <= outputs;
    mp_status status = MP_OK;
    if (!fits || (size_t)inputs != in_count) {
        status = MP_FAIL(INVALID_ARGUMENT,
                         "a Scan of %zu inputs, %lld of them sliced, has a body of %d inputs and "
                         "%d outputs",
                         in_count, (long long)sliced, (int)inputs, (int)outputs);
    } else {
        loop->sliced = (int32_t)sliced;
        loop->carried = inputs - loop->sliced;
        loop->stacked = outputs - loop->carried;
        read_directions(&ours, "scan_input_directions", loop->sliced, loop->backwards);
        read_directions(&ours, "scan_output_directions", loop->stacked,
                        loop->backwards + loop->sliced);
    }
    mp__attrs_release(attrs);
    return status;
}

/* Results that the model leaves out are made, too, and read by nobody. */
static mp_status fill_results(mp_import *im, const mp_import *body, const mp_loop *loop,
                              mp_value_list *out) {
    const size_t wanted = (size_t)loop->carried + (size_t)loop->stacked;
    int32_t *values = calloc(wanted + 1, sizeof *values);
    if (values == NULL) {
        return mp__import_no_memory();
    }
    for (size_t i = 0; i < wanted; i++) {
        values[i] = i < out->count ? out->values[i] : MP_NO_VALUE;
        const int32_t theirs = body->graph->outputs[(loop->is_scan ? 0 : 1) + (int32_t)i];
        const mp_tensor tensor = {.type = body->graph->values[theirs].tensor.type,
                                  .shape = {.rank = MP_DIM_UNKNOWN}};
        if (values[i] == MP_NO_VALUE) {
            const mp_status status = mp_graph_add_value(im->graph, "", &tensor, &values[i]);
            if (status != MP_OK) {
                free(values);
                return status;
            }
        }
    }
    free(out->values);
    *out = (mp_value_list){values, wanted};
    return MP_OK;
}

/* What goes in: what the node names, where a Loop may leave the first two out, and what the body
 * takes from around it. */
static mp_status fill_inputs(const mp_import *body, const mp_loop *loop, mp_value_list *in) {
    const size_t named = (size_t)loop->carried + (size_t)loop->sliced + (loop->is_scan ? 0 : 2);
    int32_t *values = calloc(named + body->captured_count + 1, sizeof *values);
    if (values == NULL) {
        return mp__import_no_memory();
    }
    for (size_t i = 0; i < named; i++) {
        values[i] = i < in->count ? in->values[i] : MP_NO_VALUE;
    }
    for (size_t i = 0; i < body->captured_count; i++) {
        values[named + i] = body->captured[i];
    }
    free(in->values);
    *in = (mp_value_list){values, named + body->captured_count};
    return MP_OK;
}

static mp_status add_loop_node(mp_import *im, const mp_node *node, mp_import *body, mp_loop *loop,
                               const mp_value_list *in, mp_value_list *out) {
    MP_TRY(fill_results(im, body, loop, out));
    loop->body = body->graph;
    body->graph = NULL;
    return mp_graph_add_loop(im->graph, node, loop, in->values, (int)in->count, out->values,
                             (int)out->count);
}

static mp_status add_scan(mp_import *im, const OrtNode *node, const mp_node *ours, mp_import *body,
                          mp_loop *loop, mp_value_list *in, mp_value_list *out) {
    int32_t *wanted = calloc(out->count + 1, sizeof *wanted);
    if (wanted == NULL) {
        return mp__import_no_memory();
    }
    const size_t count = out->count;
    memcpy(wanted, out->values, count * sizeof *wanted);
    mp_status status = mp__scan_turn_inputs(im, node, loop->carried, in);
    if (status == MP_OK) {
        status = mp__scan_plan_outputs(im, node, loop->carried, out);
    }
    if (status == MP_OK) {
        status = add_loop_node(im, ours, body, loop, in, out);
    }
    if (status == MP_OK) {
        const mp_value_list stacked = {out->values, MP_MIN(count, out->count)};
        status = mp__scan_turn_outputs(im, node, loop->carried, &stacked, wanted);
    }
    free(wanted);
    return status;
}

static mp_status add_loop_with(mp_import *im, const OrtNode *node, mp_import *body, mp_loop *loop,
                               mp_value_list *in, mp_value_list *out) {
    mp_node ours = {.options = im->provider->op_options};
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &ours.name)));
    ours.name = ours.name != NULL ? ours.name : "";
    MP_TRY(mp__import_list(im, node, MP_SIDE_IN, mp__import_read, in));
    MP_TRY(describe_loop(node, body, in->count, loop));
    MP_TRY(fill_inputs(body, loop, in));
    MP_TRY(mp__import_list(im, node, MP_SIDE_OUT, mp__import_made, out));
    return loop->is_scan ? add_scan(im, node, &ours, body, loop, in, out)
                         : add_loop_node(im, &ours, body, loop, in, out);
}

mp_status mp__import_loop(mp_import *im, const OrtNode *node, bool is_scan) {
    mp_import body = {.provider = im->provider, .outer = im};
    mp_loop loop = {.is_scan = is_scan};
    mp_value_list in = {NULL, 0};
    mp_value_list out = {NULL, 0};
    bodies one = {.count = 0};
    mp_status status = bodies_of(node, &one);
    if (status == MP_OK && one.count != 1) {
        status = MP_FAIL(INTERNAL, "a loop has %zu bodies", one.count);
    }
    if (status == MP_OK) {
        status = import_body(&body, one.graphs[0]);
    }
    if (status == MP_OK) {
        loop.backwards =
            calloc((size_t)body.graph->input_count + (size_t)body.graph->output_count + 1,
                   sizeof *loop.backwards);
        status = loop.backwards != NULL ? add_loop_with(im, node, &body, &loop, &in, &out)
                                        : mp__import_no_memory();
    }
    mp_graph_destroy(body.graph);
    mp__import_close(&body);
    free(loop.backwards);
    free(in.values);
    free(out.values);
    return status;
}
