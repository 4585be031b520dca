/* fuzz_driver.c - runs a fuzz target for some seconds: changes inputs at random, and keeps those
 * that reach code which none has reached.
 *
 * The code under test is compiled with -fsanitize-coverage=trace-pc, which calls
 * __sanitizer_cov_trace_pc at each branch; without that the driver works blindly. Inputs run in a
 * process of their own that notes the current one in shared memory, so one that ends the process is
 * known, and is written to a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "fuzz_mutate.h"
#include "unit/random.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAP_SIZE = 1 << 16, CORPUS_MAX = 4096, INPUT_LIMIT_S = 20 };

typedef struct input {
    uint8_t *bytes; /* owned */
    size_t size;
} input;

typedef struct shared { /* of both processes */
    uint64_t runs, kept, reached;
    size_t size;
    uint8_t bytes[FUZZ_INPUT_MAX];
} shared;

static struct {
    double seconds;
    uint64_t runs; /* at most; 0: as many as there is time for */
    uint64_t seed;
    const char *save; /* folder for inputs that reached something new; NULL: they are not kept */
} options = {.seconds = 10, .seed = 1};

static input corpus[CORPUS_MAX];
static size_t corpus_count;
static shared *page;
static uint8_t seen[MAP_SIZE];

/* ---- what code was reached ---- */

static uint8_t hits[MAP_SIZE];
static _Thread_local uintptr_t last_place;

void __sanitizer_cov_trace_pc(void); // NOLINT

void __sanitizer_cov_trace_pc(void) { // NOLINT
    const uintptr_t place = (uintptr_t)__builtin_return_address(0);
    const uintptr_t mixed = place * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    uint8_t *hit = &hits[(mixed ^ last_place) % MAP_SIZE];
    *hit = (uint8_t)(*hit + (*hit < 255));
    last_place = mixed >> 1;
}

/* One bit for each order of magnitude of a count. */
static uint8_t class_of(uint8_t count) {
    static const uint8_t from[] = {128, 32, 16, 8, 4, 3, 2, 1};
    for (int i = 0; i < 8; i++) {
        if (count >= from[i]) {
            return (uint8_t)(0x80 >> i);
        }
    }
    return 0;
}

/* Whether the last run reached something new; notes it. */
static bool reached_more(void) {
    bool more = false;
    for (size_t i = 0; i < MAP_SIZE; i++) {
        const uint8_t found = class_of(hits[i]);
        if ((found & ~seen[i]) != 0) {
            page->reached += seen[i] == 0;
            seen[i] |= found;
            more = true;
        }
    }
    return more;
}

/* ---- inputs ---- */

static bool keep(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL || corpus_count == CORPUS_MAX) {
        free(copy);
        return false;
    }
    memcpy(copy, bytes, size);
    corpus[corpus_count++] = (input){.bytes = copy, .size = size};
    return true;
}

static void write_input(const char *path, const uint8_t *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        (void)fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
    }
}

static void read_input(const char *path) {
    static uint8_t bytes[FUZZ_INPUT_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        (void)fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
        exit(2);
    }
    (void)keep(bytes, fread(bytes, 1, sizeof bytes, file));
    (void)fclose(file);
}

static int by_name(const struct dirent **left, const struct dirent **right) {
    return strcmp((*left)->d_name, (*right)->d_name);
}

static void read_folder(const char *folder) {
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, by_name);
    if (count < 0) {
        (void)fprintf(stderr, "cannot read %s: %s\n", folder, strerror(errno));
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            read_input(path);
        }
        free(entries[i]);
    }
    free(entries);
}

static void read_path(const char *path) {
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        read_folder(path);
    } else {
        read_input(path);
    }
}

/* ---- running ---- */

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Runs what lies in the page. Returns whether it reached something new. */
static bool run_one(void) {
    memset(hits, 0, sizeof hits);
    last_place = 0;
    (void)alarm(INPUT_LIMIT_S);
    (void)LLVMFuzzerTestOneInput(page->bytes, page->size);
    page->runs++;
    return reached_more();
}

static void run_known(size_t at) {
    memcpy(page->bytes, corpus[at].bytes, corpus[at].size);
    page->size = corpus[at].size;
    (void)run_one();
}

static void save(void) {
    char path[4096];
    if (options.save != NULL) {
        (void)snprintf(path, sizeof path, "%s/%06" PRIu64, options.save, page->kept);
        write_input(path, page->bytes, page->size);
    }
}

static void run_changed(uint64_t *random) {
    const input *first = &corpus[test_random(random) % corpus_count];
    const input *second = &corpus[test_random(random) % corpus_count];
    memcpy(page->bytes, first->bytes, first->size);
    page->size = first->size;
    fuzz_mutate(page->bytes, &page->size, second->bytes, second->size, random);
    if (run_one() && keep(page->bytes, page->size)) {
        page->kept++;
        save();
    }
}

static void work(void) {
    const double until = now_s() + options.seconds;
    uint64_t random = options.seed;
    const size_t known = corpus_count;
    for (size_t i = 0; i < known; i++) {
        run_known(i);
    }
    while (now_s() < until && (options.runs == 0 || page->runs < options.runs)) {
        run_changed(&random);
    }
    for (size_t i = 0; i < corpus_count; i++) {
        free(corpus[i].bytes);
    }
}

static int report(int state) {
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) {
        (void)printf("%" PRIu64 " inputs run, %" PRIu64 " found new paths, %" PRIu64
                     " branches reached\n1 passed, 0 failed, 0 skipped\n",
                     page->runs, page->kept, page->reached);
        return 0;
    }
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/fuzz-failure-%d.bin",
                   options.save != NULL ? options.save : ".", (int)getpid());
    write_input(path, page->bytes, page->size);
    (void)printf("not ok 1 - after %" PRIu64 " inputs, this one ended the process (%s %d): %s\n",
                 page->runs, WIFSIGNALED(state) ? "signal" : "exit status",
                 WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state), path);
    (void)printf("0 passed, 1 failed, 0 skipped\n");
    return 1;
}

/* ---- the command line ---- */

static _Noreturn void usage(const char *program) {
    (void)fprintf(stderr,
                  "usage: %s [--seconds S] [--runs N] [--seed N] [--save FOLDER] [PATH...]\n"
                  "Runs the inputs in PATHs (files, or folders of them), then changed ones.\n"
                  "FOLDER gets those that reach something new, and one that ends the process.\n"
                  "--runs 0 --seconds 0 with one file runs that file again.\n",
                  program);
    exit(2);
}

static void parse(char **argv) {
    for (int i = 1; argv[i] != NULL; i++) {
        const char *value = argv[i + 1];
        if (argv[i][0] != '-') {
            read_path(argv[i]);
            continue;
        }
        if (value == NULL) {
            usage(argv[0]);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            options.seconds = strtod(value, NULL);
        } else if (strcmp(argv[i], "--runs") == 0) {
            options.runs = strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            options.seed = strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--save") == 0) {
            options.save = value;
        } else {
            usage(argv[0]);
        }
        i++;
    }
}

int main(int argc, char **argv) {
    (void)argc;
    parse(argv);
    if (corpus_count == 0) {
        (void)keep((const uint8_t *)"", 0);
    }
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = page != MAP_FAILED ? fork() : -1;
    if (child < 0) {
        perror("fuzz_driver");
        return 2;
    }
    if (child == 0) {
        work();
        exit(0); /* not _exit: sanitizers look for leaks on the way out */
    }
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    return report(state);
}
