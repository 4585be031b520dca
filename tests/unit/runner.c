/* runner.c - runs the registered tests and prints TAP, then one line that counts.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A test runs in a forked process whose output is shown only when it fails. What it wants to say
 * beyond its exit status (the failure, the reason to skip) lies in one page shared with the runner.
 * The runner itself opens no device and starts no thread, so that forking stays safe. */
#include "test.h"

#include "device/host/host_device.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef enum outcome { PASSED, FAILED, SKIPPED, OUTCOMES } outcome;

typedef struct shared_page { /* written by the test's process, read by the runner */
    char text[3072];
} shared_page;

typedef enum variant { PLAIN, EAGER, THREADED, ADVERSARIAL, CUDA } variant;

static const char *const variant_names[] = {"", "@eager", "@threaded", "@adversarial", "@cuda"};

static struct {
    const char *filter;
    uint64_t seed;
    int seeds;
    int limit_s;
    bool list, forks, verbose, cuda;
} options = {.seed = 1, .seeds = 20, .limit_s = 120, .forks = true};

static test_case *tests;
static shared_page *page;
static uint64_t current_seed;
static pthread_t test_thread;
static jmp_buf test_end; /* without processes, the way out of a test */
static volatile sig_atomic_t thread_failed;

void test_register(test_case *test) {
    test_case **link = &tests; /* by name, so that the order does not depend on the linker */
    while (*link != NULL && strcmp((*link)->name, test->name) < 0) {
        link = &(*link)->next;
    }
    test->next = *link;
    *link = test;
}

bool test_has_process(void) {
    return options.forks;
}

uint64_t test_seed(void) {
    return current_seed;
}

static _Noreturn void end_test(outcome result) {
    if (options.forks) {
        (void)fflush(NULL);
        _exit((int)result);
    }
    if (pthread_equal(pthread_self(), test_thread)) {
        longjmp(test_end, (int)result);
    }
    thread_failed = 1;
    pthread_exit(NULL);
}

void test_fail(const char *file, int line, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(page->text, sizeof page->text, "%s:%d: %s (seed %" PRIu64 ")", file, line, text,
                   current_seed);
    end_test(FAILED);
}

void test_skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vsnprintf(page->text, sizeof page->text, format, args);
    va_end(args);
    end_test(SKIPPED);
}

mp_device *test_gpu(void) {
    const char *why = NULL;
    mp_device *device = NULL;
    if (mp_device_count(MP_DEVICE_CUDA, &why) == 0) {
        test_skip("%s", why);
    }
    CHECK_OK(mp_device_get(MP_DEVICE_CUDA, 0, &device));
    return device;
}

static void run_on_host(const test_case *test, variant kind, uint64_t seed) {
    const mp_host_config config = {
        .mode = kind == EAGER      ? MP_HOST_EAGER
                : kind == THREADED ? MP_HOST_THREADED
                                   : MP_HOST_ADVERSARIAL,
        .seed = seed,
        .memory_bytes = (size_t)256 << 20,
    };
    current_seed = seed;
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    test->run_on(device);
    CHECK_OK(device->ops->synchronize(device)); /* says so when there was a breach */
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

static void run_on_cuda(const test_case *test) {
    mp_device *device = NULL;
    CHECK_OK(mp_device_get(MP_DEVICE_CUDA, 0, &device));
    test->run_on(device);
    CHECK_OK(device->ops->synchronize(device));
}

static void run_variant(const test_case *test, variant kind) {
    current_seed = options.seed;
    switch (kind) {
    case PLAIN:
        test->run();
        break;
    case EAGER:
    case THREADED:
        run_on_host(test, kind, options.seed);
        break;
    case ADVERSARIAL:
        for (int i = 0; i < options.seeds; i++) {
            run_on_host(test, kind, options.seed + (uint64_t)i);
        }
        break;
    case CUDA:
        run_on_cuda(test);
        break;
    }
}

static outcome run_here(const test_case *test, variant kind) {
    test_thread = pthread_self();
    thread_failed = 0;
    const int result = setjmp(test_end);
    if (result != 0) {
        return (outcome)result;
    }
    run_variant(test, kind);
    return thread_failed ? FAILED : PASSED;
}

static double now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* What a test's process wrote: its beginning, since the first report tells most. */
typedef struct capture {
    char text[16384];
    size_t size;
} capture;

/* Reads until the process has closed its end or the time is up. Returns whether it closed. */
static bool read_output(int from, double until_ms, capture *out) {
    for (;;) {
        const double left = until_ms - now_ms();
        if (left <= 0) {
            return false;
        }
        struct pollfd waiting = {.fd = from, .events = POLLIN};
        if (poll(&waiting, 1, (int)left + 1) <= 0) {
            continue;
        }
        char some[4096];
        const ssize_t got = read(from, some, sizeof some);
        if (got <= 0) {
            return true;
        }
        const size_t room = sizeof out->text - 1 - out->size;
        const size_t kept = (size_t)got < room ? (size_t)got : room;
        memcpy(out->text + out->size, some, kept);
        out->size += kept;
    }
}

static outcome outcome_of(int state, bool in_time) {
    char more[128] = "";
    if (!in_time) {
        (void)snprintf(more, sizeof more, "no end after %d s", options.limit_s);
    } else if (WIFSIGNALED(state)) {
        (void)snprintf(more, sizeof more, "killed by signal %d", WTERMSIG(state));
    } else if (WEXITSTATUS(state) < OUTCOMES) {
        return (outcome)WEXITSTATUS(state);
    } else {
        (void)snprintf(more, sizeof more, "exit status %d", WEXITSTATUS(state));
    }
    if (page->text[0] == 0) {
        (void)snprintf(page->text, sizeof page->text, "%s", more);
    }
    return FAILED;
}

static outcome run_forked(const test_case *test, variant kind, capture *out) {
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
        run_variant(test, kind);
        exit(PASSED); /* not _exit: sanitizers look for leaks on the way out */
    }
    (void)close(ends[1]);
    const bool in_time = read_output(ends[0], now_ms() + options.limit_s * 1e3, out);
    if (!in_time) {
        (void)kill(child, SIGKILL);
    }
    (void)close(ends[0]);
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    return outcome_of(state, in_time);
}

static void print_comment(const char *text) {
    while (*text != 0) {
        const size_t length = strcspn(text, "\n");
        (void)printf("# %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void print_result(int number, const char *name, outcome result, double ms,
                         const capture *out) {
    (void)printf("%s %d - %s", result == FAILED ? "not ok" : "ok", number, name);
    if (result == SKIPPED) {
        (void)printf(" # SKIP %s\n", page->text);
    } else {
        (void)printf(" # %.0f ms\n", ms);
    }
    if (result == FAILED) {
        print_comment(page->text);
    }
    if (result == FAILED || options.verbose) {
        print_comment(out->text);
    }
    (void)fflush(stdout);
}

/* Asks in a process of its own, so that the runner never opens the driver. */
static bool cuda_is_there(void) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(mp_device_count(MP_DEVICE_CUDA, NULL) > 0 ? 0 : 1);
    }
    int state = 1;
    return child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state) &&
           WEXITSTATUS(state) == 0;
}

static bool variant_applies(const test_case *test, variant kind) {
    return (test->run != NULL) == (kind == PLAIN) && (kind != CUDA || options.cuda);
}

static void run_all(int counts[OUTCOMES]) {
    int number = 0;
    for (const test_case *test = tests; test != NULL; test = test->next) {
        for (variant kind = PLAIN; kind <= CUDA; kind++) {
            char name[256];
            (void)snprintf(name, sizeof name, "%s%s", test->name, variant_names[kind]);
            if (!variant_applies(test, kind) ||
                (options.filter != NULL && strstr(name, options.filter) == NULL)) {
                continue;
            }
            if (options.list) {
                (void)puts(name);
                continue;
            }
            static capture out;
            memset(&out, 0, sizeof out);
            page->text[0] = 0;
            const double start_ms = now_ms();
            const outcome result =
                options.forks ? run_forked(test, kind, &out) : run_here(test, kind);
            counts[result]++;
            print_result(++number, name, result, now_ms() - start_ms, &out);
        }
    }
    if (!options.list) {
        (void)printf("1..%d\n", number);
    }
}

static _Noreturn void usage(const char *program) {
    (void)fprintf(stderr,
                  "usage: %s [filter] [--list] [--seed N] [--seeds COUNT] [--timeout SECONDS] "
                  "[--no-fork] [--verbose]\n"
                  "Runs the tests whose name contains `filter`. --seed N runs the adversarial\n"
                  "devices with that seed alone; --seeds says how many follow from it.\n",
                  program);
    exit(2);
}

static uint64_t number_after(char **argv, int *index) {
    const char *text = argv[++*index];
    char *end = NULL;
    const uint64_t number = text != NULL ? strtoull(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != 0) {
        usage(argv[0]);
    }
    return number;
}

static void parse(char **argv) {
    for (int i = 1; argv[i] != NULL; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            options.list = true;
        } else if (strcmp(argv[i], "--no-fork") == 0) {
            options.forks = false;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            options.verbose = true;
        } else if (strcmp(argv[i], "--seed") == 0) {
            options.seed = number_after(argv, &i);
            options.seeds = 1;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            options.seeds = (int)number_after(argv, &i);
        } else if (strcmp(argv[i], "--timeout") == 0) {
            options.limit_s = (int)number_after(argv, &i);
        } else if (argv[i][0] == '-' || options.filter != NULL) {
            usage(argv[0]);
        } else {
            options.filter = argv[i];
        }
    }
}

int main(int argc, char **argv) {
    (void)argc;
    parse(argv);
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    options.cuda = cuda_is_there();
    int counts[OUTCOMES] = {0};
    run_all(counts);
    if (options.list) {
        return 0;
    }
    (void)printf("%d passed, %d failed, %d skipped\n", counts[PASSED], counts[FAILED],
                 counts[SKIPPED]);
    return counts[FAILED] == 0 ? 0 : 1;
}
