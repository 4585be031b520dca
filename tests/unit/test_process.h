/* test_process.h - a piece of work in a process of its own, with a time limit and its output kept.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_TEST_PROCESS_H
#define MP_TESTS_UNIT_TEST_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TEST_PROCESSES_MAX = 64 };

typedef struct test_process {
    pid_t child; /* 0: none */
    int from;    /* owned; its output */
    double start_ms, until_ms;
    bool in_time;     /* false: it was killed when its time was up */
    int state;        /* as waitpid says, once it has ended */
    char text[16384]; /* the beginning of its output, since the first report tells most */
    size_t text_size;
} test_process;

double test_now_ms(void);

/* Forks; the child calls `work` and exits with 0 unless that exits. Ends the program where the
 * system gives no process. */
void test_process_start(test_process *process, int limit_s, void (*work)(void *context),
                        void *context);

/* Waits until one of `count` processes, at most TEST_PROCESSES_MAX and some of them running, has
 * ended. Returns it; its `child` is 0. */
test_process *test_process_wait(test_process *processes, size_t count);

#endif
