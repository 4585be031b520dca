/* runner.c - runs the registered tests and prints TAP, then one line that counts.
 *
 * A test runs in a forked process whose output is shown only when it fails. What it wants to say
 * beyond its exit status (the failure, the reason to skip) lies in a page shared with the runner.
 * The runner itself opens no device and starts no thread, so that forking stays safe.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/host/host_device.h"
#include "test_process.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum outcome { PASSED, FAILED, SKIPPED, OUTCOMES } outcome;

typedef struct shared_page { /* written by the test's process, read by the runner */
    char text[3072];
} shared_page;

typedef enum variant { PLAIN, EAGER, THREADED, ADVERSARIAL, CUDA } variant;

static const char *const variant_names[] = {"", "@eager", "@threaded", "@adversarial", "@cuda"};

static struct {
    const char *filter;
    const char *modes; /* names of variants, separated by commas; NULL for all */
    uint64_t seed;
    int seeds;
    int limit_s;
    int jobs; /* tests at the same time; those on a GPU run alone */
    bool list, forks, verbose, cuda;
} options = {.seed = 1, .seeds = 20, .limit_s = 120, .jobs = 1, .forks = true};

static test_case *tests;
static shared_page *page; /* of the test that runs in this process */
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

/* ---- tests in processes of their own ---- */

typedef struct job {
    const test_case *test;
    variant kind;
    shared_page *page;
} job;

static void run_job(void *context) {
    const job *j = context;
    page = j->page;
    run_variant(j->test, j->kind);
}

/* What became of a test whose process has ended. */
static outcome outcome_of(const test_process *process, shared_page *said) {
    char more[128] = "";
    const int state = process->state;
    if (!process->in_time) {
        (void)snprintf(more, sizeof more, "no end after %d s", options.limit_s);
    } else if (WIFSIGNALED(state)) {
        (void)snprintf(more, sizeof more, "killed by signal %d", WTERMSIG(state));
    } else if (WEXITSTATUS(state) < OUTCOMES) {
        return (outcome)WEXITSTATUS(state);
    } else {
        (void)snprintf(more, sizeof more, "exit status %d", WEXITSTATUS(state));
    }
    if (said->text[0] == 0) {
        (void)snprintf(said->text, sizeof said->text, "%s", more);
    }
    return FAILED;
}

static void print_comment(const char *text) {
    while (*text != 0) {
        const size_t length = strcspn(text, "\n");
        (void)printf("# %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void print_result(int number, const job *j, outcome result, double ms, const char *output) {
    (void)printf("%s %d - %s%s", result == FAILED ? "not ok" : "ok", number, j->test->name,
                 variant_names[j->kind]);
    if (result == SKIPPED) {
        (void)printf(" # SKIP %s\n", j->page->text);
    } else {
        (void)printf(" # %.0f ms\n", ms);
    }
    if (result == FAILED) {
        print_comment(j->page->text);
    }
    if (result == FAILED || options.verbose) {
        print_comment(output);
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

/* Tests without a device have no mode and are always wanted. */
static bool is_wanted_mode(variant kind) {
    return kind == PLAIN || options.modes == NULL ||
           strstr(options.modes, variant_names[kind] + 1) != NULL;
}

static bool is_wanted(const test_case *test, variant kind) {
    if ((test->run != NULL) != (kind == PLAIN) || (kind == CUDA && !options.cuda) ||
        !is_wanted_mode(kind)) {
        return false;
    }
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s", test->name, variant_names[kind]);
    return options.filter == NULL || strstr(name, options.filter) != NULL;
}

/* The next wanted test after `*test` and `*kind`, into them; false at the end. Begins with NULL. */
static bool next_test(const test_case **test, variant *kind) {
    bool begins = *test == NULL;
    for (*test = begins ? tests : *test; *test != NULL; *test = (*test)->next) {
        for (variant next = begins ? PLAIN : *kind + 1; next <= CUDA; next++) {
            if (is_wanted(*test, next)) {
                *kind = next;
                return true;
            }
        }
        begins = true;
    }
    return false;
}

/* Such a test may fill the device, or look at how full it is. */
static bool is_alone(const test_case *test, variant kind) {
    return kind == CUDA || (options.cuda && strncmp(test->name, "cuda_", 5) == 0);
}

static void list_all(void) {
    const test_case *test = NULL;
    for (variant kind = PLAIN; next_test(&test, &kind);) {
        (void)printf("%s%s\n", test->name, variant_names[kind]);
    }
}

static int run_all_here(int counts[OUTCOMES]) {
    job j = {.page = page};
    int number = 0;
    while (next_test(&j.test, &j.kind)) {
        page->text[0] = 0;
        const double start_ms = test_now_ms();
        const outcome result = run_here(j.test, j.kind);
        counts[result]++;
        print_result(++number, &j, result, test_now_ms() - start_ms, "");
    }
    return number;
}

/* Results come in the order in which tests end. */
static int run_all_forked(int counts[OUTCOMES]) {
    static test_process processes[TEST_PROCESSES_MAX];
    job jobs[TEST_PROCESSES_MAX];
    const test_case *test = NULL;
    variant kind = PLAIN;
    bool alone = false; /* whether what runs is */
    int number = 0, running = 0;
    for (bool more = next_test(&test, &kind); more || running > 0;) {
        alone = running > 0 && alone;
        if (more && running < (alone || is_alone(test, kind) ? 1 : options.jobs)) {
            int free_slot = 0;
            while (processes[free_slot].child != 0) {
                free_slot++;
            }
            jobs[free_slot] = (job){test, kind, page + free_slot};
            jobs[free_slot].page->text[0] = 0;
            test_process_start(&processes[free_slot], options.limit_s, run_job, &jobs[free_slot]);
            alone = is_alone(test, kind);
            running++;
            more = next_test(&test, &kind);
            continue;
        }
        const test_process *done = test_process_wait(processes, (size_t)options.jobs);
        const job *j = &jobs[done - processes];
        const outcome result = outcome_of(done, j->page);
        counts[result]++;
        print_result(++number, j, result, test_now_ms() - done->start_ms, done->text);
        running--;
    }
    return number;
}

static _Noreturn void usage(const char *program) {
    (void)fprintf(
        stderr,
        "usage: %s [filter] [--modes eager,threaded,adversarial,cuda] [--seed N] [--seeds COUNT]\n"
        "       [--list] [--timeout SECONDS] [--jobs N] [--no-fork] [--verbose]\n"
        "Runs the tests whose name contains `filter`, those of a device in all modes or in\n"
        "those named. --seed N runs the adversarial devices with that seed alone; --seeds says\n"
        "how many follow from it.\n",
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
        } else if (strcmp(argv[i], "--modes") == 0 && argv[i + 1] != NULL) {
            options.modes = argv[++i];
        } else if (strcmp(argv[i], "--jobs") == 0) {
            const uint64_t jobs = number_after(argv, &i);
            options.jobs = (int)(jobs < 1                    ? 1
                                 : jobs < TEST_PROCESSES_MAX ? jobs
                                                             : TEST_PROCESSES_MAX);
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
    const size_t pages = TEST_PROCESSES_MAX * sizeof *page;
    page = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    options.cuda = cuda_is_there();
    if (options.list) {
        list_all();
        return 0;
    }
    int counts[OUTCOMES] = {0};
    const int number = options.forks ? run_all_forked(counts) : run_all_here(counts);
    (void)printf("1..%d\n", number);
    (void)printf("%d passed, %d failed, %d skipped\n", counts[PASSED], counts[FAILED],
                 counts[SKIPPED]);
    return counts[FAILED] == 0 ? 0 : 1;
}
