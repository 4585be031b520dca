/* later_test.c - work that nobody waits for: it runs once, on a few threads; who wants to can wait
 * for it or drop it; the end of a process waits for what runs, and children have none of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/later.h"
#include "base/macros.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS = 40, ROUNDS = 50 };

typedef struct job {
    mp_later later;
    atomic_int runs;
    const atomic_bool *gate; /* it ends once this is true */
} job;

static const atomic_bool open_gate = true;

static void pause_ms(long ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

static void run(mp_later *self) {
    job *of = MP_CONTAINER_OF(self, job, later);
    while (!atomic_load(of->gate)) {
        pause_ms(1);
    }
    atomic_fetch_add(&of->runs, 1);
}

static job job_of(const void *owner, const atomic_bool *gate) {
    return (job){.later = {.run = run, .owner = owner}, .gate = gate};
}

TEST(later_work_runs_once) {
    static job jobs[JOBS];
    const int owners[2] = {0, 0};
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = job_of(&owners[i % 2], &open_gate);
        CHECK(mp_later_add(&jobs[i].later));
    }
    mp_later_settle(&owners[0]);
    CHECK(!mp_later_has(&owners[0]));
    for (int i = 0; i < JOBS; i += 2) {
        CHECK_EQ_INT(atomic_load(&jobs[i].runs), 1);
    }
    for (int i = 1; i < JOBS; i += 2) {
        mp_later_wait(&jobs[i].later);
        CHECK_EQ_INT(atomic_load(&jobs[i].runs), 1);
    }
    CHECK(!mp_later_has(&owners[1]));
    CHECK(mp_later_add(&jobs[0].later)); /* again, when it has run */
    mp_later_wait(&jobs[0].later);
    CHECK_EQ_INT(atomic_load(&jobs[0].runs), 2);
}

static void add_all(job *jobs, const void *owner, const atomic_bool *gate) {
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = job_of(owner, gate);
        CHECK(mp_later_add(&jobs[i].later));
    }
}

TEST(later_work_that_is_dropped_does_not_begin) {
    static job jobs[JOBS];
    atomic_bool gate = false;
    const int owner = 0;
    add_all(jobs, &owner, &gate);
    pause_ms(20);
    for (int i = JOBS - 1; i >= 8; i--) { /* no more than four have begun */
        mp_later_drop(&jobs[i].later);
        CHECK_EQ_INT(atomic_load(&jobs[i].runs), 0);
    }
    CHECK(mp_later_has(&owner));
    atomic_store(&gate, true);
    mp_later_drop(&jobs[0].later); /* it runs, and is waited for */
    CHECK_EQ_INT(atomic_load(&jobs[0].runs), 1);
    mp_later_settle(&owner);
    mp_later_drop(&jobs[0].later); /* nothing is left to drop */
}

/* The list has it once: what is behind it is not lost. */
TEST(later_work_is_not_queued_twice) {
    static job jobs[JOBS];
    atomic_bool gate = false;
    const int owner = 0;
    add_all(jobs, &owner, &gate);
    pause_ms(10);
    CHECK(!mp_later_add(&jobs[0].later)); /* it runs */
    CHECK(!mp_later_add(&jobs[JOBS / 2].later));
    CHECK(!mp_later_add(&jobs[JOBS - 1].later));
    atomic_store(&gate, true);
    mp_later_settle(&owner);
    for (int i = 0; i < JOBS; i++) {
        CHECK_EQ_INT(atomic_load(&jobs[i].runs), 1);
    }
}

/* After a while without work there is no thread, and then there is one again. */
TEST(later_work_comes_after_a_pause) {
    job mine = job_of(&mine, &open_gate);
    for (int i = 0; i < 3; i++) {
        CHECK(mp_later_add(&mine.later));
        mp_later_wait(&mine.later);
        pause_ms(i == 0 ? 5 : 150);
    }
    CHECK_EQ_INT(atomic_load(&mine.runs), 3);
}

static void *add_often(void *owner) {
    for (int i = 0; i < ROUNDS; i++) {
        job mine = job_of(owner, &open_gate);
        CHECK(mp_later_add(&mine.later));
        if (i % 3 == 0) {
            mp_later_drop(&mine.later);
        } else {
            mp_later_wait(&mine.later);
            CHECK_EQ_INT(atomic_load(&mine.runs), 1);
        }
    }
    return NULL;
}

TEST(later_work_of_many_threads) {
    pthread_t threads[6];
    int owner = 0;
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, add_often, &owner), 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    }
    CHECK(!mp_later_has(&owner));
}

/* ---- processes ---- */

static int exit_of(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int pipe_out;
static atomic_bool half_time;

static void say_when_done(mp_later *self) {
    (void)self;
    atomic_store(&half_time, true);
    pause_ms(100);
    (void)!write(pipe_out, "x", 1);
}

/* A child that begins something and ends: it says one byte before it is gone. */
static void check_is_said(void (*begin)(void)) {
    int ends[2];
    char said = 0;
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        pipe_out = ends[1];
        begin();
        exit(0);
    }
    CHECK_EQ_INT(exit_of(child), 0);
    CHECK(close(ends[1]) == 0);
    CHECK_EQ_INT(read(ends[0], &said, 1), 1);
    CHECK(close(ends[0]) == 0);
}

static void begin_work(void) {
    static mp_later work = {.run = say_when_done};
    CHECK(mp_later_add(&work));
    while (!atomic_load(&half_time)) {
        pause_ms(1);
    }
}

TEST(later_work_that_runs_is_waited_for_at_the_end) {
    check_is_said(begin_work);
}

/* What a library keeps for a thread goes after the thread's last work. */
static void say_late(void *unused) {
    (void)unused;
    pause_ms(100);
    (void)!write(pipe_out, "x", 1);
}

static pthread_key_t late;

static void keep_something(mp_later *self) {
    (void)pthread_setspecific(late, self);
}

static void begin_thread(void) {
    static mp_later work = {.run = keep_something};
    CHECK_EQ_INT(pthread_key_create(&late, say_late), 0);
    CHECK(mp_later_add(&work));
    mp_later_wait(&work); /* its thread is on its way out */
}

TEST(later_threads_are_gone_before_what_they_use) {
    check_is_said(begin_thread);
}

TEST(later_work_is_the_parents_alone) {
    atomic_bool gate = false;
    const int owner = 0;
    job mine = job_of(&owner, &gate);
    if (MP_WITH_TSAN) {
        SKIP("the thread sanitizer ends a child that starts threads");
    }
    if (getenv("MILLPOND_TEST_EMULATOR") != NULL) {
        SKIP("the emulator ends a child that starts threads");
    }
    CHECK(mp_later_add(&mine.later));
    const pid_t child = fork();
    if (child == 0) {
        job other = job_of(&owner, &open_gate);
        mp_later_wait(&mine.later);
        const bool had = mp_later_has(&owner);
        const bool ran = mp_later_add(&other.later);
        mp_later_settle(&owner);
        _exit(!had && ran && atomic_load(&mine.runs) == 0 && atomic_load(&other.runs) == 1 ? 0 : 1);
    }
    CHECK_EQ_INT(exit_of(child), 0);
    atomic_store(&gate, true);
    mp_later_wait(&mine.later);
    CHECK_EQ_INT(atomic_load(&mine.runs), 1);
}
