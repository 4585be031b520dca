/* core_log.c - lines of the C library's log on their way to Python's `logging`.
 *
 * A line may come from any thread, with the GIL or without, and with locks of the pool held; so the
 * thread that writes it only queues it. It is handed over
 *   - by the same thread when it leaves the call of the extension that it is in, if that call says
 *     so (core_log_hold, core_log_release): so a program sees what Pool(...) has to say before the
 *     next line of its own runs;
 *   - else by a thread of our own, which takes the GIL and lives as long as there are lines.
 * One thread at a time hands lines over, so they arrive in order. `logging` may refuse a line,
 * since the program has set up nothing that would get it; the log's own sink has it then.
 *
 * No line is lost: what cannot be queued, comes after the end of the interpreter, or is still
 * queued then, goes to the sink. A forked child begins with an empty queue: its parent has it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUEUED_MAX = 10000, END_WAIT_S = 5, FLUSH_WAIT_S = 1 };

typedef struct queued {
    struct queued *next;
    const char *file; /* static */
    int line;
    mp_log_level level;
    double seconds;       /* since 1970 */
    unsigned long thread; /* as Python's threading.get_ident has it */
    char text[];
} queued;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle; /* nobody hands lines over */
static queued *first, **last = &first;
static size_t count;
static bool is_on;
static bool is_carrying;              /* a thread hands lines over */
static _Thread_local bool is_carrier; /* it is this one */
static _Thread_local unsigned held;   /* this thread hands its lines over itself, later */
static PyObject *receive_line;        /* owned */

/* ---- the queue, under the lock ---- */

static void append(queued *line) {
    *last = line;
    last = &line->next;
    count++;
}

static queued *pop(void) {
    (void)pthread_mutex_lock(&lock);
    queued *line = first;
    if (line != NULL) {
        first = line->next;
        last = first != NULL ? last : &first;
        count--;
    }
    (void)pthread_mutex_unlock(&lock);
    return line;
}

static queued *make(mp_log_level level, const char *file, int line, const char *text) {
    const size_t size = strlen(text) + 1;
    struct timespec now = {.tv_sec = 0};
    queued *made = malloc(sizeof *made + size);
    if (made == NULL) {
        return NULL;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *made = (queued){.file = file,
                     .line = line,
                     .level = level,
                     .seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                     .thread = (unsigned long)pthread_self()};
    memcpy(made->text, text, size);
    return made;
}

/* ---- handing over ---- */

static void write_to_sink(const queued *line) {
    mp_log_write(line->level, line->file, line->line, line->text);
}

/* With the GIL. A Ctrl-C that came meanwhile is left for the program. */
static bool receive(const queued *line) {
    PyObject *answer = PyObject_CallFunction(receive_line, "issidk", (int)line->level, line->text,
                                             line->file, line->line, line->seconds, line->thread);
    const bool received = answer != NULL && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    if (PyErr_Occurred() != NULL) {
        if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
            PyErr_SetInterrupt();
            PyErr_Clear();
        } else {
            PyErr_WriteUnraisable(receive_line);
        }
    }
    return received;
}

/* Takes: `line`. With the GIL. */
static void hand_over(queued *line) {
    if (!receive(line)) {
        Py_BEGIN_ALLOW_THREADS write_to_sink(line); /* whose locks may wait */
        Py_END_ALLOW_THREADS
    }
    free(line);
}

/* Up to `limit` lines, with the GIL. */
static void carry(size_t limit) {
    queued *line = NULL;
    is_carrier = true;
    while (limit-- > 0 && (line = pop()) != NULL) {
        hand_over(line);
    }
    is_carrier = false;
}

/* Whether the queue is empty, and so nobody carries any more. */
static bool stop_carrying(void) {
    (void)pthread_mutex_lock(&lock);
    const bool is_empty = first == NULL;
    if (is_empty) {
        is_carrying = false;
        (void)pthread_cond_broadcast(&idle);
    }
    (void)pthread_mutex_unlock(&lock);
    return is_empty;
}

/* The interpreter does not end before this thread is done: core_log_end waits for it. */
static void *run(void *unused) {
    (void)unused;
    do {
        const PyGILState_STATE state = PyGILState_Ensure();
        carry(SIZE_MAX);
        PyGILState_Release(state);
    } while (!stop_carrying());
    return NULL;
}

/* Signals are for the program's own threads. */
static bool start_thread(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, &attributes, run, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return started;
}

static bool take(mp_log_level level, const char *file, int line, const char *text) {
    queued *made = make(level, file, line, text);
    (void)pthread_mutex_lock(&lock);
    bool taken = made != NULL && is_on && count < QUEUED_MAX;
    if (taken && held == 0 && !is_carrying) {
        is_carrying = taken = start_thread();
    }
    if (taken) {
        append(made);
    }
    (void)pthread_mutex_unlock(&lock);
    if (!taken) {
        free(made);
    }
    return taken;
}

/* ---- calls of the extension ---- */

void core_log_hold(void) {
    held++;
}

/* Whether this thread carries from now on, and how many lines there are. */
static bool begin_carrying(size_t *lines) {
    (void)pthread_mutex_lock(&lock);
    const bool begins = first != NULL && !is_carrying;
    is_carrying = is_carrying || begins;
    *lines = count;
    (void)pthread_mutex_unlock(&lock);
    return begins;
}

/* Lines that others write meanwhile are left to a thread, so that this one gets away. */
static void carry_here(size_t lines) {
    carry(lines);
    while (!stop_carrying()) {
        (void)pthread_mutex_lock(&lock);
        const bool started = start_thread();
        (void)pthread_mutex_unlock(&lock);
        if (started) {
            return;
        }
        carry(1);
    }
}

void core_log_release(void) {
    size_t lines = 0;
    if (--held > 0 || !begin_carrying(&lines)) {
        return;
    }
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    carry_here(lines);
    PyErr_Restore(type, error, trace);
}

/* Without the GIL, which the carrier needs. */
static void wait_until_idle(int seconds) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    (void)pthread_mutex_lock(&lock);
    int status = 0;
    while (is_carrying && !is_carrier && status == 0) {
        status = pthread_cond_timedwait(&idle, &lock, &until);
    }
    (void)pthread_mutex_unlock(&lock);
}

static void flush(int seconds) {
    core_log_hold();
    core_log_release();
    Py_BEGIN_ALLOW_THREADS wait_until_idle(seconds);
    Py_END_ALLOW_THREADS
}

PyObject *core_log_flush(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    flush(FLUSH_WAIT_S);
    Py_RETURN_NONE;
}

PyObject *core_log_threshold(PyObject *module, PyObject *level) {
    const long wanted = level != Py_None ? PyLong_AsLong(level) : mp_log_get_threshold();
    (void)module;
    if (wanted == -1 && PyErr_Occurred() != NULL) {
        return NULL;
    }
    mp_log_set_threshold((mp_log_level)(wanted < MP_LOG_OFF     ? MP_LOG_OFF
                                        : wanted > MP_LOG_DEBUG ? MP_LOG_DEBUG
                                                                : wanted));
    return PyLong_FromLong(mp_log_get_threshold());
}

/* ---- beginning and end ---- */

static void before_fork(void) {
    (void)pthread_mutex_lock(&lock);
}

static void after_fork(void) {
    (void)pthread_mutex_unlock(&lock);
}

static void make_idle(void) {
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&idle, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

static void in_child(void) {
    for (queued *line = first; line != NULL;) { /* the parent has them */
        queued *next = line->next;
        free(line);
        line = next;
    }
    first = NULL;
    last = &first;
    count = 0;
    is_carrying = false;
    make_idle(); /* it may still count threads of the parent, for which a signal would wait */
    (void)pthread_mutex_unlock(&lock);
}

static void prepare(void) {
    make_idle();
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

PyObject *core_log_start(PyObject *module, PyObject *receiver) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)module;
    (void)pthread_once(&once, prepare);
    PyObject *before = receive_line;
    receive_line = Py_NewRef(receiver);
    Py_XDECREF(before);
    (void)pthread_mutex_lock(&lock);
    is_on = true;
    (void)pthread_mutex_unlock(&lock);
    mp_log_set_taker(take);
    Py_RETURN_NONE;
}

/* No line is queued from now on. Returns whether there are some. */
static bool stop_taking(void) {
    mp_log_set_taker(NULL);
    (void)pthread_mutex_lock(&lock); /* a thread may be in take */
    is_on = false;
    const bool are_left = first != NULL;
    (void)pthread_mutex_unlock(&lock);
    return are_left;
}

/* What is left, as after a handler that does not return; without the interpreter. */
static void write_rest(void) {
    for (queued *line = pop(); line != NULL; line = pop()) {
        write_to_sink(line);
        free(line);
    }
}

PyObject *core_log_end(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    (void)stop_taking(); /* else a line of another thread could begin a carrier after flush */
    flush(END_WAIT_S);
    Py_BEGIN_ALLOW_THREADS write_rest();
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* A process may end without the interpreter's end: exit() in C, or in a child of a fork. The sink
 * may be gone by now. */
__attribute__((destructor)) static void at_exit(void) {
    if (stop_taking()) {
        mp_log_set_sink(NULL, NULL);
        write_rest();
    }
}
