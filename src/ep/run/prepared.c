/* prepared.c - see prepared.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/prepared.h"

#include "ep/capture/session_graph.h"

#include <stdio.h>
#include <stdlib.h>

/* The session begins, and has no stream yet. */
mp_status mp__prepare_run(const mp_provider *provider, const mp_plan *plan, int i, mp_addr from,
                          mp_addr to) {
    mp_device *device = provider->unit->device;
    mp_addr in[32] = {0};
    mp_addr scratch = 0;
    mp_stream *stream = NULL;
    const size_t size = mp_plan_scratch_bytes(plan);
    in[i] = from;
    if (size > 0) {
        MP_TRY(mp__lend(provider->pool, size, MP_NO_STREAM, &scratch));
    }
    mp_status status = device->ops->stream_create(device, &stream);
    if (status == MP_OK) {
        status = mp_plan_run(plan, stream, in, &to, scratch);
        const mp_status waited = device->ops->stream_synchronize(device, stream);
        device->ops->stream_destroy(device, stream);
        status = status != MP_OK ? status : waited;
    }
    const mp_status freed = mp__give_back(provider->pool, scratch);
    return status != MP_OK ? status : freed;
}

/* Memory for the input as the node wants it. */
static mp_status lend(const mp_provider *provider, const mp_node *node, int i, size_t size,
                      mp_addr *out) {
    char name[64];
    (void)snprintf(name, sizeof name, "prepared input %d", i);
    const mp_label before = mp_label_set(mp_label_make(MP_LABEL_WEIGHTS, node->name, name));
    const mp_status status = mp__lend(provider->pool, size, MP_NO_STREAM, out);
    (void)mp_label_set(before);
    return status;
}

static mp_status make(const mp_provider *provider, const mp_node *node, const mp_plan *plan, int i,
                      const mp_tensor *given, mp_addr addr, mp_prepared **list) {
    size_t size = 0;
    mp_prepared *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a prepared input");
    }
    *fresh = (mp_prepared){.next = *list, .input = i, .given = *given};
    mp_status status = mp_shape_bytes(&given->shape, given->type, &size);
    if (status == MP_OK) {
        status = lend(provider, node, i, size, &fresh->addr);
    }
    if (status == MP_OK) {
        status = mp__prepare_run(provider, plan, i, addr, fresh->addr);
    }
    if (status != MP_OK) {
        (void)mp__give_back(provider->pool, fresh->addr);
        free(fresh);
        return status;
    }
    *list = fresh;
    return MP_OK;
}

mp_status mp__prepare(const mp_provider *provider, mp_node *node, int i, const mp_tensor *given,
                      mp_addr addr, mp_prepared **list, bool *done) {
    mp_tensor in[32] = {0};
    mp_plan *plan = NULL;
    *done = false;
    if (i < 0 || i >= 32 || mp_shape_count(&given->shape) == 0) {
        return MP_OK;
    }
    in[i] = *given;
    const int32_t align = addr % 16 == 0 ? 16 : 1;
    MP_TRY(mp_plan_prepare(provider->unit->device, node, in, i, align, &plan));
    if (plan == NULL) {
        return MP_OK;
    }
    const mp_status status = make(provider, node, plan, i, given, addr, list);
    mp_plan_release(plan);
    if (status == MP_OUT_OF_MEMORY) {
        return MP_OK; /* it is prepared in each run instead */
    }
    MP_TRY(status);
    node->prepared |= 1u << i;
    *done = true;
    return MP_OK;
}

const mp_prepared *mp__prepared_input(const mp_prepared *list, int i) {
    while (list != NULL && list->input != i) {
        list = list->next;
    }
    return list;
}

void mp__prepared_release(const mp_provider *provider, mp_prepared *list) {
    while (list != NULL) {
        mp_prepared *next = list->next;
        (void)mp__give_back(provider->pool, list->addr);
        free(list);
        list = next;
    }
}
