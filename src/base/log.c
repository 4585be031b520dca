/* log.c - the log's threshold, who takes lines, and the sink.
 *
 * Lines are written under a read lock and the sink is changed under the write lock: that is what
 * lets mp_log_set_sink promise that nobody is left in the old sink.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/escape.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const level_words[] = {"error", "warning", "info", "debug"};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int threshold = MP_LOG_WARNING;
static _Atomic(mp_log_take_fn *) taker;

static void write_stderr(void *context, mp_log_level level, const char *file, int line,
                         const char *text) {
    (void)context;
    const char *name = strrchr(file, '/');
    (void)fprintf(stderr, "millpond %s: %s (%s:%d)\n", level_words[level], text,
                  name != NULL ? name + 1 : file, line);
}

static mp_log_fn *current = write_stderr;
static void *current_context;

/* A thread that was writing is not there to unlock it; who forks is in no sink. */
static void in_child(void) {
    (void)pthread_rwlock_init(&lock, NULL);
}

static void read_threshold(void) {
    const char *word = getenv("MILLPOND_LOG");
    if (word == NULL || *word == 0) {
        return;
    }
    if (strcasecmp(word, "off") == 0) {
        threshold = MP_LOG_OFF;
        return;
    }
    for (int level = MP_LOG_ERROR; level <= MP_LOG_DEBUG; level++) {
        if (strcasecmp(word, level_words[level]) == 0) {
            threshold = level;
            return;
        }
    }
    (void)fprintf(stderr,
                  "millpond warning: MILLPOND_LOG is \"%s\"; use off, error, warning, info or "
                  "debug\n",
                  word);
}

static void prepare(void) {
    read_threshold();
    (void)pthread_atfork(NULL, NULL, in_child);
}

void mp_log_set_sink(mp_log_fn *sink, void *context) {
    (void)pthread_rwlock_wrlock(&lock);
    current = sink != NULL ? sink : write_stderr;
    current_context = sink != NULL ? context : NULL;
    (void)pthread_rwlock_unlock(&lock);
}

void mp_log_set_taker(mp_log_take_fn *take) {
    atomic_store(&taker, take);
}

static int get_threshold(void) {
    (void)pthread_once(&once, prepare);
    return atomic_load_explicit(&threshold, memory_order_relaxed);
}

bool mp_log_enabled(mp_log_level level) {
    return (int)level <= get_threshold();
}

mp_log_level mp_log_get_threshold(void) {
    return (mp_log_level)get_threshold();
}

void mp_log_set_threshold(mp_log_level level) {
    (void)get_threshold(); /* which would overwrite it later */
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void mp_log_write(mp_log_level level, const char *file, int line, const char *text) {
    (void)pthread_rwlock_rdlock(&lock);
    current(current_context, level, file, line, text);
    (void)pthread_rwlock_unlock(&lock);
}

void mp__log(mp_log_level level, const char *file, int line, const char *format, ...) {
    char given[1024];
    char text[sizeof given];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(given, sizeof given, format, args);
    va_end(args);
    mp_escape(text, sizeof text, given);
    mp_log_take_fn *take = atomic_load(&taker);
    if (take == NULL || !take(level, file, line, text)) {
        mp_log_write(level, file, line, text);
    }
}
