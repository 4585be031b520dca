/* test_process.c - see test_process.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test_process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double test_now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void test_process_start(test_process *process, int limit_s, void (*work)(void *context),
                        void *context) {
    int ends[2];
    (void)fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        perror("pipe2");
        exit(2);
    }
    const pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        work(context);
        exit(0); /* not _exit: sanitizers look for leaks on the way out */
    }
    (void)close(ends[1]);
    process->child = child;
    process->from = ends[0];
    process->start_ms = test_now_ms();
    process->until_ms = process->start_ms + limit_s * 1e3;
    process->in_time = true;
    process->text_size = 0;
}

/* Takes what is there of the output. Returns whether the process has closed its end. */
static bool read_some(test_process *process) {
    char some[4096];
    const ssize_t got = read(process->from, some, sizeof some);
    if (got <= 0) {
        return got == 0 || errno != EINTR;
    }
    const size_t room = sizeof process->text - 1 - process->text_size;
    const size_t kept = (size_t)got < room ? (size_t)got : room;
    memcpy(process->text + process->text_size, some, kept);
    process->text_size += kept;
    return false;
}

static test_process *ended(test_process *process) {
    if (!process->in_time) {
        (void)kill(process->child, SIGKILL);
    }
    (void)close(process->from);
    while (waitpid(process->child, &process->state, 0) < 0 && errno == EINTR) {
    }
    process->child = 0;
    process->text[process->text_size] = 0;
    return process;
}

/* Sleeps until a process has said something or has had its time. */
static void wait_for_any(const test_process *processes, size_t count) {
    struct pollfd waiting[TEST_PROCESSES_MAX];
    double until_ms = 0;
    nfds_t running = 0;
    for (size_t i = 0; i < count; i++) {
        if (processes[i].child != 0) {
            until_ms = running == 0 ? processes[i].until_ms : fmin(until_ms, processes[i].until_ms);
            waiting[running++] = (struct pollfd){.fd = processes[i].from, .events = POLLIN};
        }
    }
    const double left_ms = until_ms - test_now_ms();
    (void)poll(waiting, running, left_ms > 0 ? (int)left_ms + 1 : 0);
}

test_process *test_process_wait(test_process *processes, size_t count) {
    for (;;) {
        wait_for_any(processes, count);
        for (size_t i = 0; i < count; i++) {
            test_process *process = processes + i;
            if (process->child == 0) {
                continue;
            }
            process->in_time = process->until_ms > test_now_ms();
            struct pollfd waiting = {.fd = process->from, .events = POLLIN};
            const bool speaks = poll(&waiting, 1, 0) > 0;
            if (!process->in_time || (speaks && read_some(process))) {
                return ended(process);
            }
        }
    }
}
