/* node_values.c - see node_values.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/node_values.h"

#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <stdlib.h>

static OrtStatus *count_of(const OrtNode *node, mp_side side, size_t *out) {
    switch (side) {
    case MP_SIDE_IN:
        return ORT->Node_GetNumInputs(node, out);
    case MP_SIDE_IMPLICIT:
        return ORT->Node_GetNumImplicitInputs(node, out);
    case MP_SIDE_OUT:
        break;
    }
    return ORT->Node_GetNumOutputs(node, out);
}

static OrtStatus *list_of(const OrtNode *node, mp_side side, const mp_values *into) {
    switch (side) {
    case MP_SIDE_IN:
        return ORT->Node_GetInputs(node, into->list, into->count);
    case MP_SIDE_IMPLICIT:
        return ORT->Node_GetImplicitInputs(node, into->list, into->count);
    case MP_SIDE_OUT:
        break;
    }
    return ORT->Node_GetOutputs(node, into->list, into->count);
}

mp_status mp__values_of(const OrtNode *node, mp_side side, mp_values *out) {
    *out = (mp_values){.list = NULL};
    MP_TRY(mp__from_ort(count_of(node, side, &out->count)));
    out->list = calloc(out->count + 1, sizeof *out->list);
    if (out->list == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory to look at the %zu values of a node",
                       out->count);
    }
    const mp_status status = mp__from_ort(list_of(node, side, out));
    if (status != MP_OK) {
        free(out->list);
        *out = (mp_values){.list = NULL};
    }
    return status;
}

void mp__values_release(const mp_values *values) {
    free(values->list);
}

mp_status mp__value_name(const OrtValueInfo *value, const char **out) {
    *out = "";
    if (value == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(value, out)));
    *out = *out != NULL ? *out : "";
    return MP_OK;
}
