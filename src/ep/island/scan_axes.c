/* scan_axes.c - see scan_axes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/scan_axes.h"

#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_attrs.h"

#include <stdlib.h>

static const mp_attr_def axis_attrs[] = {{"num_scan_inputs", MP_ATTR_INT},
                                         {"scan_input_axes", MP_ATTR_INTS},
                                         {"scan_output_axes", MP_ATTR_INTS},
                                         {NULL, 0}};
static const mp_op scan_row = {.domain = "", .name = "Scan", .attrs = axis_attrs};

/* The axes of a Scan, as they are given. */
typedef struct axes {
    mp_attr_store *store; /* owned */
    const char *name;     /* of the node */
    int64_t sliced;
    const mp_attr *of_in, *of_out; /* NULL: all are 0 */
} axes;

static mp_status read_axes(const OrtNode *node, axes *out) {
    mp_node given = {.op = &scan_row, .name = ""};
    *out = (axes){.name = ""};
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &out->name)));
    MP_TRY(mp__attrs_of_node(&scan_row, node, &out->store));
    out->name = out->name != NULL ? out->name : "";
    given.attrs = mp__attrs_list(out->store, &given.attr_count);
    out->sliced = mp_node_int(&given, "num_scan_inputs", 0);
    out->of_in = mp_node_attr(&given, "scan_input_axes");
    out->of_out = mp_node_attr(&given, "scan_output_axes");
    return MP_OK;
}

static int64_t given_axis(const mp_attr *list, size_t i) {
    return list != NULL && i < list->count ? list->ints[i] : 0;
}

/* The axis, from 0 on; -1 where it is none of `rank` dimensions, or these are not known. */
static int axis_within(int64_t axis, int rank) {
    return axis == 0 ? 0 : axis >= -rank && axis < rank ? (int)(axis < 0 ? axis + rank : axis) : -1;
}

/* ---- whether they can be turned ---- */

static mp_status side_fits(const OrtNode *node, mp_side side, size_t first, const mp_attr *list,
                           bool *out) {
    mp_values values = {NULL, 0};
    mp_status status = mp__values_of(node, side, &values);
    for (size_t i = first; status == MP_OK && *out && i < values.count; i++) {
        const int64_t axis = given_axis(list, i - first);
        const char *name = "";
        mp_tensor tensor = {.shape = {.rank = 0}};
        status = axis != 0 ? mp__value_name(values.list[i], &name) : MP_OK;
        if (name[0] != '\0' && status == MP_OK) {
            status = mp__value_describe(values.list[i], &tensor);
            *out = status == MP_OK && axis_within(axis, tensor.shape.rank) >= 0;
        }
    }
    mp__values_release(&values);
    return status;
}

mp_status mp__scan_axes_fit(const OrtNode *node, bool *out) {
    axes a;
    size_t inputs = 0;
    mp_status status = read_axes(node, &a);
    *out = true;
    if (status == MP_OK) {
        status = mp__from_ort(ORT->Node_GetNumInputs(node, &inputs));
    }
    *out = a.sliced >= 0 && (size_t)a.sliced <= inputs;
    const size_t carried = *out ? inputs - (size_t)a.sliced : 0;
    if (status == MP_OK && *out) {
        status = side_fits(node, MP_SIDE_IN, carried, a.of_in, out);
    }
    if (status == MP_OK && *out) {
        status = side_fits(node, MP_SIDE_OUT, carried, a.of_out, out);
    }
    mp__attrs_release(a.store);
    return status;
}

/* ---- turning ---- */

/* The tensor with dimension `from` put where `to` is; `perm` says so to a Transpose. */
static mp_tensor moved(const mp_tensor *tensor, int from, int to, int64_t *perm) {
    mp_tensor out = *tensor;
    int next = 0;
    out.data = 0;
    for (int d = 0; d < tensor->shape.rank; d++) {
        next += next == from; /* the others keep their order */
        perm[d] = d == to ? from : next++;
        out.shape.dim[d] = tensor->shape.dim[perm[d]];
    }
    return out;
}

static mp_status add_turn(mp_import *im, const char *name, const int64_t *perm, int rank,
                          int32_t from, int32_t to) {
    const mp_attr attr = {
        .name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = (size_t)rank};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = name,
                          .attrs = &attr,
                          .attr_count = 1,
                          .options = im->provider->op_options};
    MP_TRY(mp_graph_add_node(im->graph, &node, &from, 1, &to, 1));
    const int32_t n = im->graph->node_count - 1;
    const mp_origin itself = {.op = "Scan", .name = im->graph->nodes[n].node.name};
    return mp_graph_set_origins(im->graph, n, (mp_origins){&itself, 1});
}

/* Gives: the axis of entry `i` of what is sliced or stacked; fails where it is none. */
static mp_status axis_of(const mp_import *im, const axes *a, const mp_attr *list, size_t i,
                         int32_t value, int *out) {
    const int rank = value != MP_NO_VALUE ? im->graph->values[value].tensor.shape.rank : 0;
    const int64_t given = value != MP_NO_VALUE ? given_axis(list, i) : 0;
    *out = axis_within(given, rank);
    return *out >= 0 ? MP_OK
                     : MP_FAIL(INVALID_ARGUMENT,
                               "Scan '%s' names axis %lld of a tensor that has %d dimensions",
                               a->name, (long long)given, rank);
}

static mp_status turn_input(mp_import *im, const axes *a, size_t i, int32_t *value) {
    int64_t perm[MP_RANK_MAX];
    int32_t turned = MP_NO_VALUE;
    int axis = 0;
    MP_TRY(axis_of(im, a, a->of_in, i, *value, &axis));
    if (axis == 0) {
        return MP_OK;
    }
    const mp_tensor tensor = moved(&im->graph->values[*value].tensor, axis, 0, perm);
    MP_TRY(mp_graph_add_value(im->graph, "", &tensor, &turned));
    MP_TRY(add_turn(im, a->name, perm, tensor.shape.rank, *value, turned));
    *value = turned;
    return MP_OK;
}

mp_status mp__scan_turn_inputs(mp_import *im, const OrtNode *node, int32_t carried,
                               mp_value_list *in) {
    axes a;
    mp_status status = read_axes(node, &a);
    const size_t end = MP_MIN(in->count, (size_t)carried + (size_t)MP_MAX(a.sliced, 0));
    for (size_t i = (size_t)carried; status == MP_OK && i < end; i++) {
        status = turn_input(im, &a, i - (size_t)carried, &in->values[i]);
    }
    mp__attrs_release(a.store);
    return status;
}

mp_status mp__scan_plan_outputs(mp_import *im, const OrtNode *node, int32_t carried,
                                mp_value_list *out) {
    axes a;
    mp_status status = read_axes(node, &a);
    for (size_t i = (size_t)carried; status == MP_OK && i < out->count; i++) {
        int64_t perm[MP_RANK_MAX];
        int axis = 0;
        status = axis_of(im, &a, a.of_out, i - (size_t)carried, out->values[i], &axis);
        if (status == MP_OK && axis > 0) {
            const mp_tensor tensor =
                moved(&im->graph->values[out->values[i]].tensor, axis, 0, perm);
            status = mp_graph_add_value(im->graph, "", &tensor, &out->values[i]);
        }
    }
    mp__attrs_release(a.store);
    return status;
}

mp_status mp__scan_turn_outputs(mp_import *im, const OrtNode *node, int32_t carried,
                                const mp_value_list *stacked, const int32_t *wanted) {
    axes a;
    mp_status status = read_axes(node, &a);
    for (size_t i = (size_t)carried; status == MP_OK && i < stacked->count; i++) {
        const int32_t value = stacked->values[i];
        int64_t perm[MP_RANK_MAX];
        int axis = 0;
        if (wanted[i] == MP_NO_VALUE || wanted[i] == value) {
            continue;
        }
        status = axis_of(im, &a, a.of_out, i - (size_t)carried, wanted[i], &axis);
        if (status == MP_OK) {
            const mp_tensor tensor = moved(&im->graph->values[value].tensor, 0, axis, perm);
            status = add_turn(im, a.name, perm, tensor.shape.rank, value, wanted[i]);
        }
    }
    mp__attrs_release(a.store);
    return status;
}
