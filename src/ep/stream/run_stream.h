/* run_stream.h - a stream that sessions run on, shared by all who refer to it.
 *
 *     ORT's stream objects ----+
 *     a thread's record -------+--> mp_run_stream --> the device's stream
 *     a session's only stream -+
 *
 * Whoever keeps it may use it. The last to drop it waits for its work.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_RUN_STREAM_H
#define MP_EP_RUN_STREAM_H

#include "ep/session/plugin.h"

#include <stdatomic.h>

typedef struct mp_run_stream {
    mp_unit *unit;            /* its factory is kept */
    mp_pool *pool;            /* owned; it is told when memory of the stream may serve others */
    mp_stream *stream;        /* owned; a wrap where `is_wrap` */
    void *native;             /* never NULL: the legacy default stream goes by 1 */
    const mp_provider *owner; /* whose runs are queued here; only compared. NULL: a factory's */
    bool is_wrap;             /* of a stream of the user's */
    uint64_t thread;          /* the only one that launches graphs here; 0: no such stream */
    pthread_mutex_t lock;     /* held while the host waits for the stream; guards these four */
    bool captured;
    mp_event *end;              /* owned; of a wrap, NULL until mp__run_stream_mark */
    bool is_marked;             /* nobody has waited for the stream since its end was marked */
    unsigned marked;            /* `uses` then, or when it was waited for */
    atomic_uint uses;           /* how often it was taken to queue work on, see below */
    atomic_uint ended;          /* of them those that the end of a run has waited for */
    int references;             /* guarded by the list's lock */
    struct mp_run_stream *next; /* in the list of all */
} mp_run_stream;

/* A new stream, or a wrap of the user's `native`. Takes: `pool`, also when it fails.
 * Gives: `*out` with one reference. */
mp_status mp__run_stream_create(mp_unit *unit, mp_pool *pool, const mp_provider *owner,
                                mp_run_stream **out);
mp_status mp__run_stream_wrap(mp_unit *unit, mp_pool *pool, const mp_provider *owner, void *native,
                              mp_run_stream **out);
void mp__run_stream_keep(mp_run_stream *stream);
void mp__run_stream_drop(mp_run_stream *stream); /* NULL is ignored */

/* The stream with this handle, of `owner` if it has one with it; NULL where there is none.
 * Borrowed: for as long as who passed the handle on keeps it. */
mp_run_stream *mp__run_stream_find(const void *native, const mp_provider *owner);

/* The one that this thread found last, if no stream has gone since; else NULL. Borrowed in the same
 * way: within a run, it is the run's. */
mp_run_stream *mp__run_stream_last(void);

/* The device's stream, for who queues work on it. */
mp_stream *mp__run_stream_use(mp_run_stream *stream);
/* Whether it was taken since the last end of a run on it. */
bool mp__run_stream_is_used(const mp_run_stream *stream);

/* Waits until the stream's work has ended; does nothing while it is captured. */
mp_status mp__run_stream_wait(mp_run_stream *stream);
/* At the end of a run that nobody waits for: notes where a wrap's work ends. */
void mp__run_stream_mark(mp_run_stream *stream);
/* As mp__run_stream_wait, for what was queued through mp__run_stream_use alone. A wrap whose end is
 * known is left alone, since the user may have destroyed the stream. */
mp_status mp__run_stream_finish(mp_run_stream *stream);
/* As mp__run_stream_wait for the stream that this thread works with; where that is not known any
 * more, since a stream went meanwhile, for all that are not the user's. */
mp_status mp__run_stream_wait_last(void);
/* As mp__run_stream_finish for every stream of `owner`. */
mp_status mp__run_streams_finish(const mp_provider *owner);
/* Waits for all that has been queued on the owner's device, by whomever: on streams of sessions and
 * of ONNX Runtime's users, and on those that pools know. Captured streams are left alone. */
mp_status mp__run_streams_wait_device(const mp_provider *owner);
/* The same but for the streams on which other threads launch graphs, and for other libraries'. */
mp_status mp__run_streams_wait_launch(const mp_provider *owner);

/* For who begins and ends a capture: nobody waits for the stream in between. */
void mp__run_stream_set_captured(mp_run_stream *stream, bool captured);

#endif
