/* log.c - the log's threshold and its sink.
 *
 * Lines are written under a read lock and the sink is changed under the write lock: that is what
 * lets mp_log_set_sink promise that nobody is left in the old sink.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/escape.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LEVEL_OFF = -1 };

static const char *const level_words[] = {"error", "warning", "info", "debug"};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t threshold_once = PTHREAD_ONCE_INIT;
static int threshold = MP_LOG_WARNING;

static void write_stderr(void *context, mp_log_level level, const char *file, int line,
                         const char *text) {
    (void)context;
    const char *name = strrchr(file, '/');
    (void)fprintf(stderr, "millpond %s: %s (%s:%d)\n", level_words[level], text,
                  name != NULL ? name + 1 : file, line);
}

static mp_log_fn *current = write_stderr;
static void *current_context;

static void read_threshold(void) {
    const char *word = getenv("MILLPOND_LOG");
    if (word == NULL || *word == 0) {
        return;
    }
    if (strcasecmp(word, "off") == 0) {
        threshold = LEVEL_OFF;
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

void mp_log_set_sink(mp_log_fn *sink, void *context) {
    (void)pthread_rwlock_wrlock(&lock);
    current = sink != NULL ? sink : write_stderr;
    current_context = sink != NULL ? context : NULL;
    (void)pthread_rwlock_unlock(&lock);
}

bool mp_log_enabled(mp_log_level level) {
    (void)pthread_once(&threshold_once, read_threshold);
    return (int)level <= threshold;
}

void mp__log(mp_log_level level, const char *file, int line, const char *format, ...) {
    char given[1024];
    char text[sizeof given];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(given, sizeof given, format, args);
    va_end(args);
    mp_escape(text, sizeof text, given);
    (void)pthread_rwlock_rdlock(&lock);
    current(current_context, level, file, line, text);
    (void)pthread_rwlock_unlock(&lock);
}
