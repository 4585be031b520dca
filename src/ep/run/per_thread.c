/* per_thread.c - records by thread and session.
 *
 * A record is in two lists: its thread's, where it is looked for in each run, and its session's.
 * Both change under `all_lock` only; the thread's also under the thread's own lock, so that a run
 * takes no lock that threads share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/per_thread.h"

#include "pool/pool_handle.h"

#include <stdlib.h>

typedef struct mp_thread_owner {
    pthread_mutex_t lock; /* taken after `all_lock`; guards `records` */
    mp_thread_record *records;
} thread_owner;

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its value is the thread's owner; it tells when a thread ends */
static bool key_made;
static _Thread_local thread_owner *mine;

/* ---- taking apart; under `all_lock` ---- */

static void unlink_from_session(const mp_thread_record *record) {
    mp_thread_record **link = &record->provider->thread_records;
    while (*link != record) {
        link = &(*link)->beside;
    }
    *link = record->beside;
}

static void unlink_from_thread(const mp_thread_record *record) {
    thread_owner *owner = record->thread;
    (void)pthread_mutex_lock(&owner->lock);
    mp_thread_record **link = &owner->records;
    while (*link != record) {
        link = &(*link)->next;
    }
    *link = record->next;
    (void)pthread_mutex_unlock(&owner->lock);
}

/* Takes: `record`, which is in no list any more. */
static void destroy(mp_thread_record *record) {
    if (record->graphs != NULL) {
        record->destroy_graphs(record->graphs);
    }
    mp__run_stream_drop(record->stream);
    free(record);
}

static void end_thread(void *value) {
    thread_owner *owner = value;
    (void)pthread_mutex_lock(&all_lock);
    for (mp_thread_record *record = owner->records, *next = NULL; record != NULL; record = next) {
        next = record->next;
        unlink_from_session(record);
        destroy(record);
    }
    (void)pthread_mutex_unlock(&all_lock);
    pthread_mutex_destroy(&owner->lock);
    free(owner);
    mine = NULL;
}

void mp__thread_records_close(mp_provider *provider) {
    (void)pthread_mutex_lock(&all_lock);
    for (mp_thread_record *record = provider->thread_records, *next = NULL; record != NULL;
         record = next) {
        next = record->beside;
        unlink_from_thread(record);
        destroy(record);
    }
    provider->thread_records = NULL;
    (void)pthread_mutex_unlock(&all_lock);
}

/* ---- making ---- */

static void make_key(void) {
    key_made = pthread_key_create(&key, end_thread) == 0;
}

static mp_status open_owner(void) {
    (void)pthread_once(&key_once, make_key);
    thread_owner *fresh = key_made ? calloc(1, sizeof *fresh) : NULL;
    if (fresh == NULL || pthread_setspecific(key, fresh) != 0) {
        free(fresh);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a thread");
    }
    pthread_mutex_init(&fresh->lock, NULL);
    mine = fresh;
    return MP_OK;
}

static void add(mp_thread_record *record) {
    (void)pthread_mutex_lock(&all_lock);
    record->beside = record->provider->thread_records;
    record->provider->thread_records = record;
    (void)pthread_mutex_lock(&mine->lock);
    record->next = mine->records;
    mine->records = record;
    (void)pthread_mutex_unlock(&mine->lock);
    (void)pthread_mutex_unlock(&all_lock);
}

mp_thread_record *mp__thread_record_find(const mp_provider *provider) {
    if (mine == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&mine->lock);
    mp_thread_record *record = mine->records;
    while (record != NULL && record->provider != provider) {
        record = record->next;
    }
    (void)pthread_mutex_unlock(&mine->lock);
    return record;
}

mp_status mp__thread_record_get(mp_provider *provider, mp_thread_record **out) {
    *out = mp__thread_record_find(provider);
    if (*out != NULL) {
        return MP_OK;
    }
    if (mine == NULL) {
        MP_TRY(open_owner());
    }
    mp_thread_record *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for a session's record of a thread");
    }
    fresh->provider = provider;
    fresh->thread = mine;
    add(fresh);
    *out = fresh;
    return MP_OK;
}

/* ---- using ---- */

mp_status mp__thread_stream(mp_thread_record *record, mp_run_stream **out) {
    mp_provider *provider = record->provider;
    if (record->stream == NULL && provider->only_stream != NULL) {
        mp__run_stream_keep(provider->only_stream);
        record->stream = provider->only_stream;
    }
    if (record->stream == NULL) {
        mp_pool *pool = NULL;
        MP_TRY(mp__pool_again(provider->pool, &pool));
        MP_TRY(mp__run_stream_create(provider->unit, pool, provider, &record->stream));
    }
    *out = record->stream;
    return MP_OK;
}

void mp__thread_records_each(mp_provider *provider, void (*visit)(mp_thread_record *, void *),
                             void *context) {
    (void)pthread_mutex_lock(&all_lock);
    for (mp_thread_record *record = provider->thread_records; record != NULL;
         record = record->beside) {
        visit(record, context);
    }
    (void)pthread_mutex_unlock(&all_lock);
}
