/* import_value.c - the values of a group of nodes, by their names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/growing.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/island/import_private.h"
#include "ep/run/call.h"
#include "graph/host_value.h"

#include <stdio.h>
#include <stdlib.h>

mp_status mp__import_no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compile an island");
}

/* ---- values ---- */

/* Room for one more. */
static mp_status grow_list(void *list, size_t count, size_t *capacity, size_t width) {
    return mp_grow(list, count + 1, capacity, width) ? MP_OK : mp__import_no_memory();
}

/* A name of a branch is gone behind it. */
static mp_status note_name(mp_import *im, int number, int32_t before) {
    if (im->graph->guard == 0) {
        return MP_OK;
    }
    MP_TRY(grow_list(&im->renamed, im->renamed_count, &im->renamed_capacity, sizeof *im->renamed));
    im->renamed[im->renamed_count++] = (mp_renamed){number, before};
    return MP_OK;
}

void mp__import_forget(mp_import *im, size_t from) {
    while (im->renamed_count > from) {
        const mp_renamed *last = &im->renamed[--im->renamed_count];
        im->values[last->number] = last->before;
    }
}

static mp_status name_value(mp_import *im, const char *name, int32_t value) {
    const size_t known = im->names.count;
    int number = 0;
    MP_TRY(grow_list(&im->values, known, &im->capacity, sizeof *im->values));
    MP_TRY(mp__name_set_add(&im->names, name, &number));
    MP_TRY(note_name(im, number, im->names.count == known ? im->values[number] : MP_NO_VALUE));
    im->values[number] = value;
    return MP_OK;
}

/* A name of a branch says nothing of others. False for one that is too long. */
static bool scope_name(const mp_import *im, const char *name, char *out, size_t size) {
    const int used = im->graph->guard == 0
                         ? snprintf(out, size, "%s", name)
                         : snprintf(out, size, "%d %s", (int)im->graph->guard, name);
    return used > 0 && (size_t)used < size && name[0] != '\0';
}

/* Dimensions that the model gives one name are one number below MP_DIM_UNKNOWN. */
static mp_status name_dims(mp_import *im, const OrtValueInfo *value, mp_tensor *tensor) {
    const OrtTensorTypeAndShapeInfo *info = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const char *called[MP_RANK_MAX] = {NULL};
    char name[256];
    size_t rank = 0;
    if (tensor->shape.rank <= 0) {
        return MP_OK;
    }
    MP_TRY(mp__value_tensor(value, &info, &type, &rank));
    MP_TRY(mp__from_ort(ORT->GetSymbolicDimensions(info, called, rank)));
    for (size_t d = 0; d < rank; d++) {
        int number = 0;
        if (tensor->shape.dim[d] < 0 && called[d] != NULL &&
            scope_name(im, called[d], name, sizeof name)) {
            MP_TRY(mp__name_set_add(&im->dims, name, &number));
            tensor->shape.dim[d] = MP_DIM_UNKNOWN - 1 - number;
        }
    }
    return MP_OK;
}

static mp_status add_value(mp_import *im, const OrtValueInfo *value, const char *name,
                           int32_t *out) {
    mp_tensor tensor;
    MP_TRY(mp__value_describe(value, &tensor));
    MP_TRY(name_dims(im, value, &tensor));
    MP_TRY(mp_graph_add_value(im->graph, name, &tensor, out));
    return name_value(im, name, *out);
}

/* A large constant that another branch has read already. */
static int32_t find_constant(const mp_import *im, const mp_tensor *tensor) {
    for (int32_t i = 0; i < im->graph->value_count; i++) {
        const mp_value *value = &im->graph->values[i];
        if (value->is_constant && value->tensor.data == tensor->data &&
            value->tensor.type == tensor->type &&
            mp_shape_equal(&value->tensor.shape, &tensor->shape)) {
            return i;
        }
    }
    return MP_NO_VALUE;
}

/* `*held`: the bytes of a constant; NULL for other values. */
static mp_status constant_of(const OrtValueInfo *value, const OrtValue **held) {
    bool constant = false;
    *held = NULL;
    MP_TRY(mp__from_ort(ORT->ValueInfo_IsConstantInitializer(value, &constant)));
    return constant ? mp__from_ort(ORT->ValueInfo_GetInitializerValue(value, held)) : MP_OK;
}

static mp_status add_constant(mp_import *im, const OrtValue *held, const char *name, int32_t *out) {
    mp_tensor tensor = {.type = MP_NONE};
    size_t bytes = 0;
    MP_TRY(mp__call_read(held, (mp_port){"constant", 0, name}, &tensor, &tensor.data));
    MP_TRY(mp_shape_bytes(&tensor.shape, tensor.type, &bytes));
    if (bytes <= MP_HOST_VALUE_BYTES) {
        MP_TRY(mp_graph_add_constant(im->graph, name, &tensor, out));
        return name_value(im, name, *out);
    }
    *out = im->graph->guard != 0 ? find_constant(im, &tensor) : MP_NO_VALUE;
    if (*out == MP_NO_VALUE) {
        MP_TRY(mp_graph_add_value(im->graph, name, &tensor, out));
        im->graph->values[*out].is_constant = true;
    }
    return name_value(im, name, *out);
}

/* A value that the body of a loop takes from around it becomes an input of its graph. */
static mp_status capture(mp_import *im, const OrtValueInfo *value, const char *name, int32_t *out) {
    int32_t theirs = MP_NO_VALUE;
    if (im->outer == NULL) {
        return MP_FAIL(INTERNAL, "nothing in its island makes the value '%s'", name);
    }
    MP_TRY(mp__import_read(im->outer, value, &theirs));
    MP_TRY(
        grow_list(&im->captured, im->captured_count, &im->captured_capacity, sizeof *im->captured));
    im->captured[im->captured_count++] = theirs;
    mp_tensor tensor = im->outer->graph->values[theirs].tensor;
    tensor.data = 0;
    for (int d = 0; d < tensor.shape.rank; d++) { /* their names are the other graph's */
        tensor.shape.dim[d] = MP_MAX(tensor.shape.dim[d], (int64_t)MP_DIM_UNKNOWN);
    }
    MP_TRY(mp_graph_add_value(im->graph, name, &tensor, out));
    MP_TRY(mp_graph_add_input(im->graph, *out));
    return name_value(im, name, *out);
}

mp_status mp__import_read(mp_import *im, const OrtValueInfo *value, int32_t *out) {
    const OrtValue *held = NULL;
    const char *name = "";
    *out = MP_NO_VALUE;
    MP_TRY(mp__value_name(value, &name));
    if (name[0] == '\0') {
        return MP_OK;
    }
    const int number = mp__name_set_find(&im->names, name);
    if (number != MP_NO_NAME && im->values[number] != MP_NO_VALUE) {
        *out = im->values[number];
        return MP_OK;
    }
    MP_TRY(constant_of(value, &held));
    return held != NULL ? add_constant(im, held, name, out) : capture(im, value, name, out);
}

mp_status mp__import_made(mp_import *im, const OrtValueInfo *value, int32_t *out) {
    const char *name = "";
    *out = MP_NO_VALUE;
    MP_TRY(mp__value_name(value, &name));
    return name[0] == '\0' ? MP_OK : add_value(im, value, name, out);
}

/* ---- lists of them ---- */

mp_status mp__import_list(mp_import *im, const OrtNode *node, mp_side side, mp_look_fn *look,
                          mp_value_list *out) {
    mp_values theirs;
    MP_TRY(mp__values_of(node, side, &theirs));
    out->count = theirs.count;
    out->values = calloc(theirs.count + 1, sizeof *out->values);
    mp_status status = out->values != NULL ? MP_OK : mp__import_no_memory();
    for (size_t i = 0; status == MP_OK && i < theirs.count; i++) {
        status = look(im, theirs.list[i], &out->values[i]);
    }
    mp__values_release(&theirs);
    return status;
}

void mp__import_close(mp_import *im) {
    mp__name_set_clear(&im->names);
    mp__name_set_clear(&im->dims);
    mp__name_set_clear(&im->held);
    free((void *)im->held_values);
    free(im->values);
    free(im->renamed);
    free(im->captured);
}
