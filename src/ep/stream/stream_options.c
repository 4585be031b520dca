/* stream_options.c - which stream a session's runs are queued on.
 *
 * By default each of ONNX Runtime's streams is one of the device, so that threads run side by side;
 * a session with graphs has one a thread. A session with only one stream runs one thread at a time:
 * that is so with a stream of the user's, and with memory of another library's functions, which
 * know of no streams.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/stream/stream_options.h"

#include "base/log.h"
#include "ep/run/per_thread.h"
#include "pool/pool_handle.h"

enum { PER_THREAD = 2 }; /* the handle that is another stream for each thread */

mp_status mp__stream_options_settle(mp_options *options) {
    options->has_user_compute_stream |= options->user_compute_stream != 0;
    if (options->has_user_compute_stream && options->gpu_external_alloc != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "user_compute_stream and gpu_external_alloc exclude each other; leave one "
                       "of them out");
    }
    if (options->user_compute_stream == PER_THREAD) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "user_compute_stream=2 is another stream for each thread, and a session has "
                       "only one; create a stream");
    }
    if (!options->do_copy_in_default_stream) {
        MP_LOG(WARNING, "do_copy_in_default_stream=0 has no effect: a run's copies are queued on "
                        "the run's stream");
        options->do_copy_in_default_stream = true;
    }
    options->use_ep_level_unified_stream |=
        options->has_user_compute_stream || options->gpu_external_alloc != 0;
    return MP_OK;
}

static mp_status open_stream(mp_provider *provider, mp_run_stream **out) {
    mp_pool *pool = NULL;
    MP_TRY(mp__pool_again(provider->pool, &pool));
    if (!provider->options.has_user_compute_stream) {
        return mp__run_stream_create(provider->unit, pool, provider, out);
    }
    return mp__run_stream_wrap(provider->unit, pool, provider,
                               (void *)provider->options.user_compute_stream, out);
}

mp_status mp__only_stream_open(mp_provider *provider) {
    return provider->options.use_ep_level_unified_stream
               ? open_stream(provider, &provider->only_stream)
               : MP_OK;
}

static OrtStatus *on_run_end(OrtEp *self, const OrtRunOptions *options, bool waits) {
    (void)options;
    if (!waits) {
        mp__run_stream_mark(((mp_provider *)self)->only_stream);
    }
    return NULL;
}

void mp__only_stream_install(mp_provider *provider) {
    if (provider->options.has_user_compute_stream) {
        provider->base.OnRunEnd = on_run_end;
    }
}

mp_status mp__session_stream(mp_provider *provider, mp_run_stream **out) {
    if (provider->only_stream == NULL && !provider->options.enable_cuda_graph) {
        return open_stream(provider, out);
    }
    mp_thread_record *record = NULL;
    MP_TRY(mp__thread_record_get(provider, &record));
    MP_TRY(mp__thread_stream(record, out));
    mp__run_stream_keep(*out);
    return MP_OK;
}
