/* refusal.c - what cannot be run is left to the CPU's provider when the session is made, instead of
 * failing in the first run: convolutions, where a session forbids cuDNN or the machine has none,
 * and nodes that their operator does not accept.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/refusal.h"

#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_attrs.h"
#include "ep/abi/node_values.h"

#include <stdlib.h>

/* ---- convolutions ---- */

/* A convolution of one element. */
static mp_status try_convolution(mp_device *device) {
    const mp_conv smallest = {.type = MP_F32,
                              .spatial = 2,
                              .search = 2,
                              .batch = 1,
                              .in_channels = 1,
                              .out_channels = 1,
                              .groups = 1,
                              .in = {1, 1},
                              .out = {1, 1},
                              .kernel = {1, 1},
                              .stride = {1, 1},
                              .dilation = {1, 1}};
    mp_math *math = NULL;
    bool whole = true;
    MP_TRY(device->ops->conv_prepare(device, &smallest, &math, &whole));
    device->ops->math_release(device, math);
    return MP_OK;
}

bool mp__lacks_conv(mp_provider *provider, const mp_op *op) {
    if (!op->needs_conv) {
        return false;
    }
    if (!provider->options.enable_cudnn) {
        return true;
    }
    if (provider->convolutions == MP_NOT_TRIED) {
        const mp_status status = try_convolution(provider->unit->device);
        provider->convolutions = status == MP_UNSUPPORTED ? MP_MISSING : MP_THERE;
        if (status == MP_UNSUPPORTED) {
            MP_LOG(WARNING, "convolutions are left to other providers: %s", mp_error_message());
        }
    }
    return provider->convolutions == MP_MISSING;
}

/* ---- nodes ---- */

/* Gives: `*out`, one for each value, until free; those that are left out are MP_NONE. */
static mp_status describe_all(const mp_values *values, mp_tensor **out) {
    mp_tensor *list = calloc(values->count + 1, sizeof *list);
    mp_status status =
        list != NULL ? MP_OK
                     : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at %zu inputs",
                               values->count);
    for (size_t i = 0; status == MP_OK && i < values->count; i++) {
        status = values->list[i] != NULL ? mp__value_describe(values->list[i], &list[i]) : MP_OK;
    }
    if (status != MP_OK) {
        free(list);
        return status;
    }
    *out = list;
    return MP_OK;
}

/* Which of the first 32 outputs the model leaves out. */
static mp_status absent_outputs(const mp_values *values, uint32_t *out) {
    for (size_t i = 0; i < values->count && i < 32; i++) {
        const char *name = "";
        MP_TRY(mp__value_name(values->list[i], &name));
        *out |= name[0] == '\0' ? 1u << i : 0;
    }
    return MP_OK;
}

/* Asks the operator. Fails only where the graph cannot be read. */
static mp_status ask(const mp_node *as_ours, const mp_values *in, const mp_values *out,
                     bool *refused) {
    mp_tensor *tensors = NULL;
    MP_TRY(describe_all(in, &tensors));
    const mp_planner planner = {
        .node = as_ours, .in = tensors, .in_count = (int)in->count, .out_count = (int)out->count};
    *refused = as_ours->op->accept(&planner) != MP_OK;
    if (*refused) {
        MP_LOG(WARNING, "node '%s' is left to other providers: %s: %s", as_ours->name,
               as_ours->op->name, mp_error_message());
    }
    free(tensors);
    return MP_OK;
}

static mp_status ask_with(mp_node *as_ours, const OrtNode *node, const mp_values *in,
                          const mp_values *out, bool *refused) {
    mp_attr_store *attrs = NULL;
    if (in->count > INT32_MAX / 2 || out->count > INT32_MAX / 2) {
        return MP_FAIL(INVALID_ARGUMENT, "a node with %zu inputs is too large", in->count);
    }
    MP_TRY(absent_outputs(out, &as_ours->out_absent));
    MP_TRY(mp__attrs_of_node(as_ours->op, node, &attrs));
    as_ours->attrs = mp__attrs_list(attrs, &as_ours->attr_count);
    const mp_status status = ask(as_ours, in, out, refused);
    mp__attrs_release(attrs);
    return status;
}

static mp_status is_unacceptable(const mp_op *op, const OrtNode *node, int version, bool *out) {
    mp_node as_ours = {.op = op, .version = version, .name = ""};
    mp_values in = {NULL, 0};
    mp_values made = {NULL, 0};
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &as_ours.name)));
    mp_status status = mp__values_of(node, MP_SIDE_IN, &in);
    if (status == MP_OK) {
        status = mp__values_of(node, MP_SIDE_OUT, &made);
    }
    if (status == MP_OK) {
        status = ask_with(&as_ours, node, &in, &made, out);
    }
    mp__values_release(&in);
    mp__values_release(&made);
    return status;
}

mp_status mp__refused(mp_provider *provider, const mp_op *op, const OrtNode *node, int version,
                      bool *out) {
    *out = mp__lacks_conv(provider, op);
    return *out || op->accept == NULL ? MP_OK : is_unacceptable(op, node, version, out);
}
