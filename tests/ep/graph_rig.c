/* graph_rig.c - the runtime, the session and its runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/graph_rig.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the runtime ---- */

typedef struct fault {
    char text[512];
} fault;

static OrtStatus *create_status(OrtErrorCode code, const char *message) {
    (void)code;
    fault *made = malloc(sizeof *made);
    CHECK(made != NULL);
    (void)snprintf(made->text, sizeof made->text, "%s", message);
    return (OrtStatus *)(void *)made;
}

static const char *error_message(const OrtStatus *status) {
    return ((const fault *)(const void *)status)->text;
}

static void release_status(OrtStatus *status) {
    free(status);
}

static const char *run_entry(const OrtRunOptions *options, const char *name) {
    CHECK(strcmp(name, "gpu_graph_id") == 0);
    return (const char *)(const void *)options;
}

static OrtStatus *no_stream(const OrtKernelContext *context, void **out) {
    (void)context;
    *out = NULL;
    return NULL;
}

static const OrtApi api = {.CreateStatus = create_status,
                           .GetErrorMessage = error_message,
                           .ReleaseStatus = release_status,
                           .GetRunConfigEntry = run_entry,
                           .KernelContext_GetGPUComputeStream = no_stream};

/* ---- a session ---- */

mp_status rig_open(rig_session *s, mp_device *device, const char *const *options,
                   const mp_options *wishes) {
    mp_the_plugin = (mp_plugin){.ort = &api, .version = 29};
    *s = (rig_session){.unit = {.device = device}};
    atomic_init(&s->factory.references, 1);
    s->unit.factory = &s->factory;
    s->provider.unit = &s->unit;
    s->provider.options = *wishes;
    atomic_init(&s->provider.kernel_count, RIG_NODES);
    MP_TRY(mp__stream_options_settle(&s->provider.options));
    MP_TRY(mp__pool_open_on(device, MP_MEMORY_DEVICE, "session", options, &s->provider.pool));
    MP_TRY(mp__only_stream_open(&s->provider));
    mp__graph_install(&s->provider);
    return MP_OK;
}

void rig_close(rig_session *s) {
    mp__thread_records_close(&s->provider);
    mp__run_stream_drop(s->provider.only_stream);
    mp_pool_close(s->provider.pool);
    CHECK_EQ_INT(atomic_load(&s->factory.references), 1);
}

const mp_options rig_wishes = {.enable_cuda_graph = true,
                               .min_num_runs_before_cuda_graph_capture = 2,
                               .do_copy_in_default_stream = true};

/* ---- runs ---- */

static mp_device *device_of(const rig_session *s) {
    return s->unit.device;
}

/* A block that the driver's pool did not take back stays allocated; a second try is in order. */
static mp_status give_back(const rig_session *s, mp_addr addr) {
    const mp_status status = mp__give_back(s->provider.pool, addr);
    return status == MP_DEVICE || status == MP_OUT_OF_MEMORY ? mp__give_back(s->provider.pool, addr)
                                                             : status;
}

mp_status rig_bind(rig_binding *b, rig_session *s) {
    *b = (rig_binding){.s = s};
    MP_TRY(mp_pool_alloc(s->provider.pool, RIG_BYTES, MP_NO_STREAM, &b->x));
    return mp_pool_alloc(s->provider.pool, RIG_BYTES, MP_NO_STREAM, &b->y);
}

void rig_unbind(rig_binding *b) {
    CHECK_OK(give_back(b->s, b->x));
    CHECK_OK(give_back(b->s, b->y));
}

mp_status rig_set(const rig_session *s, mp_addr addr, uint32_t value) {
    uint32_t values[RIG_COUNT];
    for (uint32_t i = 0; i < RIG_COUNT; i++) {
        values[i] = value + i;
    }
    return device_of(s)->ops->copy(device_of(s), NULL, addr, (mp_addr)values, RIG_BYTES);
}

mp_status rig_is(const rig_session *s, mp_addr addr, uint32_t value) {
    uint32_t values[RIG_COUNT];
    MP_TRY(device_of(s)->ops->copy(device_of(s), NULL, (mp_addr)values, addr, RIG_BYTES));
    for (uint32_t i = 0; i < RIG_COUNT; i++) {
        if (values[i] != value + i) {
            return MP_FAIL(INTERNAL, "element %u is %u, not %u", i, values[i], value + i);
        }
    }
    return MP_OK;
}

static mp_status node_work(const rig_session *s, mp_addr from, mp_addr to) {
    mp_stream *stream = NULL;
    bool own = false;
    mp_addr scratch = 0;
    mp_provider *provider = (mp_provider *)(uintptr_t)&s->provider;
    mp_device *device = device_of(s);
    MP_TRY(mp__run_saw(&from, 1, &to, 1));
    MP_TRY(mp__lend(provider->pool, RIG_BYTES, MP_NO_STREAM, &scratch));
    mp_status status = mp__stream_of_context(provider, NULL, &stream, &own);
    if (status == MP_OK) {
        status = device->ops->copy(device, stream, scratch, from, RIG_BYTES);
    }
    if (status == MP_OK) {
        status = device->ops->copy(device, stream, to, scratch, RIG_BYTES);
    }
    if (status == MP_OK) {
        status =
            mp__stream_done(provider, stream, own); /* before the memory goes: it has no order */
    }
    const mp_status freed = give_back(s, scratch);
    return status != MP_OK ? status : freed;
}

static mp_status node(rig_binding *b, int index, mp_addr from, mp_addr to) {
    if (b->foreign_node == index + 1) {
        b->foreign_node = 0;
        return MP_FAIL(INVALID_ARGUMENT, "a node of another provider");
    }
    const bool fails = b->fail_node == index + 1;
    b->fail_node = fails ? 0 : b->fail_node;
    const mp_status status = fails ? MP_FAIL(INVALID_ARGUMENT, "node %d does as it is told", index)
                                   : node_work(b->s, from, to);
    mp__run_nodes_ended(&b->s->provider, 1, status);
    return status;
}

static mp_status nodes(rig_binding *b) {
    mp_addr last = b->x;
    mp_status status = MP_OK;
    b->runs++;
    if (b->is_unfit) {
        MP_TRY(mp__run_unfit("the test says so"));
    }
    for (int i = 0; i < RIG_NODES && status == MP_OK; i++) {
        mp_addr next = b->y;
        if (i == RIG_NODES - 1 && b->is_stopped) {
            status = mp__run_stop_recording("the test says so");
        } else if (i < RIG_NODES - 1) {
            status = mp__lend(b->s->provider.pool, RIG_BYTES, MP_NO_STREAM, &next);
        }
        if (status == MP_OK) {
            status = node(b, i, last, next);
        }
        if (last != b->x) {
            const mp_status freed = give_back(b->s, last);
            status = status == MP_OK ? freed : status;
        }
        last = next;
    }
    if (last != b->y && last != b->x && last != 0) {
        (void)give_back(b->s, last);
    }
    return status;
}

static mp_status one_run(rig_binding *b, const char *id) {
    OrtEp *ep = &b->s->provider.base;
    OrtRunOptions *options = (OrtRunOptions *)(uintptr_t)id;
    MP_TRY(mp__from_ort(ep->OnRunStart(ep, options)));
    const mp_status status = nodes(b);
    const mp_status ended = mp__from_ort(ep->OnRunEnd(ep, options, !b->is_unsynced));
    return status != MP_OK ? status : ended;
}

static mp_status launch(rig_binding *b, int id) {
    OrtEp *ep = &b->s->provider.base;
    MP_TRY(mp__from_ort(ep->ReplayGraph(ep, id)));
    MP_TRY(b->is_unsynced ? MP_OK : mp__from_ort(ep->Sync(ep)));
    (void)ep->IsGraphCaptured(ep, id);
    return MP_OK;
}

mp_status rig_run(rig_binding *b, const char *id) {
    OrtEp *ep = &b->s->provider.base;
    const int number = id != NULL ? atoi(id) : 0;
    for (int i = 0; i < RIG_RUNS_MAX; i++) {
        if (ep->IsGraphCaptured(ep, number)) {
            return launch(b, number);
        }
        MP_TRY(one_run(b, id));
        if (number == -1 || ep->IsGraphCaptured(ep, number)) {
            return MP_OK;
        }
    }
    return MP_FAIL(INTERNAL, "there was no graph after %d runs", RIG_RUNS_MAX);
}

bool rig_run_is_launch(rig_binding *b, const char *id, uint32_t value) {
    const int before = b->runs;
    CHECK_OK(rig_set(b->s, b->x, value));
    CHECK_OK(rig_run(b, id));
    if (b->is_unsynced) {
        CHECK_OK(mp__from_ort(b->s->provider.base.Sync(&b->s->provider.base)));
    }
    CHECK_OK(rig_is(b->s, b->y, value));
    return b->runs == before;
}

void rig_release_graph(rig_session *s, int id) {
    OrtEp *ep = &s->provider.base;
    CHECK_OK(mp__from_ort(ep->ReleaseCapturedGraph(ep, id)));
}
