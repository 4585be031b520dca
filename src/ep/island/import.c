/* import.c - see import.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/import.h"

#include "ep/abi/bridge.h"
#include "ep/abi/node_attrs.h"
#include "ep/island/import_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

static mp_status read_row(const OrtNode *node, mp_node *out) {
    const char *type = NULL;
    const char *domain = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    MP_TRY(mp__from_ort(ORT->Node_GetSinceVersion(node, &out->version)));
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &out->name)));
    out->name = out->name != NULL ? out->name : "";
    out->op = mp_op_find(strcmp(domain, "ai.onnx") == 0 ? "" : domain, type, out->version);
    return out->op != NULL
               ? MP_OK
               : MP_FAIL(INTERNAL, "there is no operator %s of version %d", type, out->version);
}

static uint32_t absent_of(const mp_value_list *made) {
    uint32_t absent = 0;
    for (size_t i = 0; i < made->count && i < 32; i++) {
        absent |= made->values[i] == MP_NO_VALUE ? 1u << i : 0;
    }
    return absent;
}

static mp_status add_with(mp_import *im, const OrtNode *node, mp_value_list *in,
                          mp_value_list *out) {
    mp_node ours = {.options = im->provider->op_options};
    mp_attr_store *attrs = NULL;
    MP_TRY(read_row(node, &ours));
    MP_TRY(mp__import_list(im, node, MP_SIDE_IN, mp__import_read, in));
    MP_TRY(mp__import_list(im, node, MP_SIDE_OUT, mp__import_made, out));
    if (in->count > INT32_MAX / 2 || out->count > INT32_MAX / 2) {
        return MP_FAIL(INVALID_ARGUMENT, "a node with %zu inputs is too large", in->count);
    }
    ours.out_absent = absent_of(out);
    MP_TRY(mp__attrs_of_node(ours.op, node, &attrs));
    ours.attrs = mp__attrs_list(attrs, &ours.attr_count);
    const mp_status status = mp_graph_add_node(im->graph, &ours, in->values, (int)in->count,
                                               out->values, (int)out->count);
    mp__attrs_release(attrs);
    return status;
}

/* ---- any node ---- */

static mp_status add_plain(mp_import *im, const OrtNode *node) {
    mp_value_list in = {NULL, 0};
    mp_value_list out = {NULL, 0};
    const mp_status status = add_with(im, node, &in, &out);
    free(in.values);
    free(out.values);
    return status;
}

static mp_status add_node(mp_import *im, const OrtNode *node) {
    const char *type = "";
    size_t count = 0;
    MP_TRY(mp__from_ort(ORT->Node_GetNumSubgraphs(node, &count)));
    if (count == 0) {
        return add_plain(im, node);
    }
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    return strcmp(type, "If") == 0 ? mp__import_if(im, node)
                                   : mp__import_loop(im, node, strcmp(type, "Scan") == 0);
}

mp_status mp__import_nodes(mp_import *im, const OrtGraph *group) {
    size_t count = 0;
    MP_TRY(mp__from_ort(ORT->Graph_GetNumNodes(group, &count)));
    const OrtNode **nodes = calloc(count + 1, sizeof *nodes);
    if (nodes == NULL) {
        return mp__import_no_memory();
    }
    mp_status status = mp__from_ort(ORT->Graph_GetNodes(group, nodes, count));
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        status = add_node(im, nodes[i]);
    }
    free(nodes);
    return status;
}

/* ---- the fused node ---- */

/* Fused nodes have constants as inputs where ONNX Runtime is to keep these in a compiled model. Of
 * an input of theirs it does not say so, but of the group's. */
static mp_status note_constants(mp_import *im, const OrtGraph *group) {
    size_t count = 0;
    if (im->provider->context == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->Graph_GetNumInitializers(group, &count)));
    im->held_values = calloc(count + 1, sizeof(void *));
    if (im->held_values == NULL) {
        return mp__import_no_memory();
    }
    MP_TRY(mp__from_ort(ORT->Graph_GetInitializers(group, im->held_values, count)));
    for (size_t i = 0; i < count; i++) {
        const OrtValueInfo *value = im->held_values[i];
        const char *name = "";
        int number = 0;
        MP_TRY(mp__value_name(value, &name));
        MP_TRY(mp__name_set_add(&im->held, name, &number));
        im->held_values[number] = value; /* names come once; else they move up */
    }
    return MP_OK;
}

static mp_status look_at_input(mp_import *im, const OrtValueInfo *value, int32_t *out) {
    const char *name = "";
    MP_TRY(mp__value_name(value, &name));
    const int number = mp__name_set_find(&im->held, name);
    return number != MP_NO_NAME ? mp__import_read(im, im->held_values[number], out)
                                : mp__import_made(im, value, out);
}

static mp_status add_inputs(mp_import *im, const OrtNode *fused, mp_island_ports *ports) {
    mp_value_list ends = {NULL, 0};
    mp_status status = mp__import_list(im, fused, MP_SIDE_IN, look_at_input, &ends);
    for (size_t i = 0; status == MP_OK && i < ends.count; i++) {
        if (!im->graph->values[ends.values[i]].is_constant) {
            status = mp_graph_add_input(im->graph, ends.values[i]);
        }
    }
    *ports = (mp_island_ports){ends.values, ends.count};
    return status;
}

static mp_status add_outputs(mp_import *im, const OrtNode *fused) {
    mp_value_list ends = {NULL, 0};
    mp_status status = mp__import_list(im, fused, MP_SIDE_OUT, mp__import_read, &ends);
    for (size_t i = 0; status == MP_OK && i < ends.count; i++) {
        status = mp_graph_add_output(im->graph, ends.values[i]);
    }
    free(ends.values);
    return status;
}

mp_status mp__island_import(const mp_provider *provider, const OrtGraph *group,
                            const OrtNode *fused, mp_graph **out, mp_island_ports *ports) {
    mp_import im = {.provider = provider};
    MP_TRY(mp_graph_create(&im.graph));
    mp_graph_suit(im.graph, &provider->computer);
    mp_status status = note_constants(&im, group);
    if (status == MP_OK) {
        status = add_inputs(&im, fused, ports);
    }
    if (status == MP_OK) {
        status = mp__import_nodes(&im, group);
    }
    if (status == MP_OK) {
        status = add_outputs(&im, fused);
    }
    mp__import_close(&im);
    if (status != MP_OK) {
        mp_graph_destroy(im.graph);
        free(ports->values);
        *ports = (mp_island_ports){NULL, 0};
        return status;
    }
    *out = im.graph;
    return MP_OK;
}
