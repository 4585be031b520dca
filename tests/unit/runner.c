/* runner.c - runs the registered tests and prints TAP, the slowest ones, and a line that counts.
 *
 * A test runs in a forked process whose output is shown only when it fails. What it wants to say
 * beyond its exit status (the failure, the reason to skip) lies in a page shared with the runner.
 * A process that has a batch of tests ends with the first that does not pass, and the rest goes to
 * another one. The runner itself opens no device and starts no thread, so that forking stays safe.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/host/host_device.h"
#include "test_plan.h"
#include "test_process.h"

#include <math.h>
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

enum {
    AGAIN_STATUS = 90, /* how a process ends whose test needs one of its own */
    SLOWEST_MAX = 15,
};

typedef struct shared_page { /* written by the process of a batch, read by the runner */
    char text[3072];
    size_t passed;             /* tests of the batch */
    double ms[TEST_BATCH_MAX]; /* how long each of them took */
} shared_page;

static struct {
    test_choice choice;
    uint64_t seed;
    int seeds;
    int limit_s;
    int jobs;  /* processes at the same time */
    int batch; /* tests of a device in a process */
    bool list, forks, verbose;
} options = {.seed = 1, .seeds = 20, .limit_s = 120, .jobs = 1, .batch = 1, .forks = true};

static test_case *tests;
static shared_page *page; /* of the test that runs in this process */
static uint64_t current_seed;
static pthread_t test_thread;
static jmp_buf test_end; /* without processes, the way out of a test */
static bool shares_process;
static volatile sig_atomic_t thread_failed;

void test_register(test_case *test) {
    test_case **link = &tests; /* by name, so that the order does not depend on the linker */
    while (*link != NULL && strcmp((*link)->name, test->name) < 0) {
        link = &(*link)->next;
    }
    test->next = *link;
    *link = test;
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

void test_needs_own_process(void) {
    if (!options.forks) {
        test_skip("needs its own process");
    }
    if (shares_process) {
        (void)fflush(NULL);
        _exit(AGAIN_STATUS);
    }
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

static void run_on_host(const test_case *test, test_variant kind, uint64_t seed) {
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

static void run_variant(const test_case *test, test_variant kind) {
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

static outcome run_here(const test_case *test, test_variant kind) {
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
    test_batch batch;
    const test_entry *entries; /* borrowed, those of the batch */
    shared_page *page;
} job;

static void run_job(void *context) {
    const job *j = context;
    page = j->page;
    shares_process = j->batch.count > 1;
    for (size_t i = 0; i < j->batch.count; i++) {
        const double start_ms = test_now_ms();
        if (shares_process) {
            (void)alarm((unsigned)options.limit_s);
        }
        run_variant(j->entries[i].test, j->entries[i].variant);
        page->ms[i] = test_now_ms() - start_ms;
        page->passed = i + 1;
    }
    (void)alarm(0);
}

/* What became of the test in which a process has ended. */
static outcome outcome_of(const test_process *process, shared_page *said) {
    char more[128] = "";
    const int state = process->state;
    if (!process->in_time || (WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM)) {
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

/* ---- what is printed ---- */

typedef struct finished { /* a test that has ended */
    test_entry entry;
    outcome result;
    double from_ms, ms; /* since the runner began */
    const char *said;   /* borrowed; of one that failed or was skipped */
    const char *output; /* borrowed; of its process */
} finished;

static struct {
    int counts[OUTCOMES], number;
    double start_ms;
    finished slowest[SLOWEST_MAX]; /* the slowest first */
} report;

static void print_comment(const char *text) {
    while (*text != 0) {
        const size_t length = strcspn(text, "\n");
        (void)printf("# %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void keep_if_slow(const finished *f) {
    size_t place = SLOWEST_MAX;
    while (place > 0 && report.slowest[place - 1].ms < f->ms) {
        place--;
    }
    for (size_t i = SLOWEST_MAX; i-- > place + 1;) {
        report.slowest[i] = report.slowest[i - 1];
    }
    if (place < SLOWEST_MAX) {
        report.slowest[place] = *f;
    }
}

static void print_result(const finished *f) {
    (void)printf("%s %d - %s%s", f->result == FAILED ? "not ok" : "ok", ++report.number,
                 f->entry.test->name, test_variant_names[f->entry.variant]);
    if (f->result == SKIPPED) {
        (void)printf(" # SKIP %s\n", f->said);
    } else {
        (void)printf(" # %.0f ms, from %.0f ms on\n", f->ms, f->from_ms);
    }
    if (f->result == FAILED) {
        print_comment(f->said);
    }
    if (f->result == FAILED || options.verbose) {
        print_comment(f->output);
    }
    (void)fflush(stdout);
    report.counts[f->result]++;
    keep_if_slow(f);
}

static void print_end(void) {
    for (size_t i = 0; i < SLOWEST_MAX && report.slowest[i].ms > 0; i++) {
        const finished *f = &report.slowest[i];
        (void)printf("# slowest: %.0f ms %s%s\n", f->ms, f->entry.test->name,
                     test_variant_names[f->entry.variant]);
    }
    (void)printf("1..%d\n%d passed, %d failed, %d skipped\n", report.number, report.counts[PASSED],
                 report.counts[FAILED], report.counts[SKIPPED]);
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

static void list_all(const test_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        (void)printf("%s%s\n", plan->entries[i].test->name,
                     test_variant_names[plan->entries[i].variant]);
    }
}

static void run_all_here(const test_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        const test_entry entry = plan->entries[i];
        page->text[0] = 0;
        const double start_ms = test_now_ms();
        const outcome result = run_here(entry.test, entry.variant);
        print_result(&(finished){entry, result, start_ms - report.start_ms,
                                 test_now_ms() - start_ms, page->text, ""});
    }
}

/* Prints what became of a batch whose process has ended; what has not run is given back. */
static void finish(test_plan *plan, const job *j, const test_process *done) {
    const size_t passed = j->page->passed, count = j->batch.count;
    const size_t last = passed < count ? passed : count - 1; /* in which the process ended */
    double from_ms = done->start_ms;
    for (size_t i = 0; i < last; i++) {
        print_result(
            &(finished){j->entries[i], PASSED, from_ms - report.start_ms, j->page->ms[i], "", ""});
        from_ms += j->page->ms[i];
    }
    test_plan_give_back(plan, (test_batch){j->batch.first + last + 1, count - last - 1});
    if (WIFEXITED(done->state) && WEXITSTATUS(done->state) == AGAIN_STATUS) {
        test_plan_give_back(plan, (test_batch){j->batch.first + last, 1});
        return;
    }
    const double ms = passed < count ? fmax(test_now_ms() - from_ms, 0) : j->page->ms[last];
    print_result(&(finished){j->entries[last], outcome_of(done, j->page), from_ms - report.start_ms,
                             ms, j->page->text, done->text});
}

static void start(const test_plan *plan, test_batch batch, job *j, test_process *process) {
    *j = (job){batch, plan->entries + batch.first, j->page};
    j->page->text[0] = 0;
    j->page->passed = 0;
    test_process_start(process, options.limit_s * (int)batch.count, run_job, j);
}

/* Results come in the order in which processes end. */
static void run_all_forked(test_plan *plan) {
    static test_process processes[TEST_PROCESSES_MAX];
    job jobs[TEST_PROCESSES_MAX];
    for (size_t i = 0; i < TEST_PROCESSES_MAX; i++) {
        jobs[i].page = page + i;
    }
    bool alone = false; /* whether what runs is */
    int running = 0;
    test_batch next = test_plan_take(plan, (size_t)options.batch);
    while (next.count > 0 || running > 0) {
        if (next.count > 0 && test_plan_may_start(plan, next, running, alone, options.jobs)) {
            size_t slot = 0;
            while (processes[slot].child != 0) {
                slot++;
            }
            start(plan, next, &jobs[slot], &processes[slot]);
            alone = test_plan_is_alone(plan, next);
            running++;
        } else {
            const test_process *done = test_process_wait(processes, (size_t)options.jobs);
            finish(plan, &jobs[done - processes], done);
            running--;
            if (next.count > 0) {
                continue;
            }
        }
        next = test_plan_take(plan, (size_t)options.batch);
    }
}

static _Noreturn void usage(const char *program) {
    (void)fprintf(
        stderr,
        "usage: %s [filter] [--modes eager,threaded,adversarial,cuda] [--seed N] [--seeds COUNT]\n"
        "       [--shard I/N | --alone] [--jobs N] [--batch N] [--timeout SECONDS] [--no-fork]\n"
        "       [--list] [--verbose]\n"
        "Runs the tests whose name contains `filter`, those of a device in all modes or in\n"
        "those named. --seed N runs the adversarial devices with that seed alone; --seeds says\n"
        "how many follow from it. --jobs says how many processes run at a time, --batch how many\n"
        "tests of a device share one. Tests that fill a GPU, or look at how full it is, run\n"
        "beside no other, last; --alone runs these and no other, --shard I/N the Ith of N equal\n"
        "parts of the others.\n",
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

static int clamped(uint64_t number, int most) {
    return number < 1 ? 1 : number < (uint64_t)most ? (int)number : most;
}

/* "2/8": the second of eight. */
static void parse_shard(char **argv, int *index) {
    const char *text = argv[++*index];
    test_choice *choice = &options.choice;
    char rest = 0;
    if (text == NULL || sscanf(text, "%d/%d%c", &choice->shard, &choice->shards, &rest) != 2 ||
        choice->shard < 1 || choice->shard > choice->shards) {
        usage(argv[0]);
    }
}

static bool parse_switch(const char *word) {
    const struct {
        const char *name;
        bool *flag, value;
    } switches[] = {{"--list", &options.list, true},
                    {"--no-fork", &options.forks, false},
                    {"--verbose", &options.verbose, true},
                    {"--alone", &options.choice.only_alone, true}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        if (strcmp(word, switches[i].name) == 0) {
            *switches[i].flag = switches[i].value;
            return true;
        }
    }
    return false;
}

static void parse(char **argv) {
    for (int i = 1; argv[i] != NULL; i++) {
        if (parse_switch(argv[i])) {
            continue;
        }
        if (strcmp(argv[i], "--seed") == 0) {
            options.seed = number_after(argv, &i);
            options.seeds = 1;
        } else if (strcmp(argv[i], "--seeds") == 0) {
            options.seeds = (int)number_after(argv, &i);
        } else if (strcmp(argv[i], "--modes") == 0 && argv[i + 1] != NULL) {
            options.choice.modes = argv[++i];
        } else if (strcmp(argv[i], "--jobs") == 0) {
            options.jobs = clamped(number_after(argv, &i), TEST_PROCESSES_MAX);
        } else if (strcmp(argv[i], "--batch") == 0) {
            options.batch = clamped(number_after(argv, &i), TEST_BATCH_MAX);
        } else if (strcmp(argv[i], "--shard") == 0) {
            parse_shard(argv, &i);
        } else if (strcmp(argv[i], "--timeout") == 0) {
            options.limit_s = (int)number_after(argv, &i);
        } else if (argv[i][0] == '-' || options.choice.filter != NULL) {
            usage(argv[0]);
        } else {
            options.choice.filter = argv[i];
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
    options.choice.cuda = cuda_is_there();
    static test_plan plan; /* its memory is in reach to the end */
    test_plan_make(&plan, tests, &options.choice);
    if (options.list) {
        list_all(&plan);
        return 0;
    }
    report.start_ms = test_now_ms();
    if (options.forks) {
        run_all_forked(&plan);
    } else {
        run_all_here(&plan);
    }
    print_end();
    return report.counts[FAILED] == 0 ? 0 : 1;
}
