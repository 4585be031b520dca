/* main.c - pool_bench: times one allocator in a process of its own; bench_pool.py runs many.
 *
 *     pool_bench (--library FILE | --builtin NAME) [--init TEXT] [--symbols alloc=NAME,...]
 *                [--stage auto|cuda|host] [--cases NAME,...] [--trace FILE]... [--limit-ms N]
 *                [--cap-mib N] [--threads N] [--quick] [--list]
 *
 * Prints JSON, an object a line: first the setting, then the begin of each case and its rows, last
 * {"done": true}. Exit status 2 means that the allocator or the device failed, with one sentence on
 * standard error.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACES_MAX = 32 };

static const bench_case cases[] = {
    {"pair", "allocate and free one size, one thread", case_pair},
    {"live", "free one and allocate another in a live set", case_live},
    {"random", "RMM's random_allocations, cold and warm", case_random},
    {"threads", "threads with live sets, on one stream and on own streams", case_threads},
    {"handover", "allocated by one thread, freed by another on another stream", case_handover},
    {"streams", "slow kernels on several streams, a block around each", case_streams},
    {"pingpong", "freed on a stream at work, wanted on another", case_pingpong},
    {"replay", "recorded traces", case_replay},
    {"phases", "phases of varying sizes: fragmentation", case_phases},
    {"full", "churn on a device that is nearly full", case_full},
    {"trim", "memory given back to the device", case_trim},
};

/* The options; those before WORDS take one word each. */
enum { LIBRARY, BUILTIN, INIT, SYMBOLS, STAGE, CASES, LIMIT_MS, CAP_MIB, THREADS, WORDS };
enum { TRACE = WORDS, QUICK, LIST };

static const struct option options[] = {
    {"library", required_argument, NULL, LIBRARY},
    {"builtin", required_argument, NULL, BUILTIN},
    {"init", required_argument, NULL, INIT},
    {"symbols", required_argument, NULL, SYMBOLS},
    {"stage", required_argument, NULL, STAGE},
    {"cases", required_argument, NULL, CASES},
    {"limit-ms", required_argument, NULL, LIMIT_MS},
    {"cap-mib", required_argument, NULL, CAP_MIB},
    {"threads", required_argument, NULL, THREADS},
    {"trace", required_argument, NULL, TRACE},
    {"quick", no_argument, NULL, QUICK},
    {"list", no_argument, NULL, LIST},
    {NULL, 0, NULL, 0},
};

typedef struct arguments {
    const char *words[WORDS]; /* NULL: not given */
    const char *traces[TRACES_MAX + 1];
    size_t trace_count;
    bool quick, list;
} arguments;

static arguments read_arguments(int count, char **words) {
    arguments out = {.words = {[INIT] = "",
                               [STAGE] = "auto",
                               [LIMIT_MS] = "500",
                               [CAP_MIB] = "32000",
                               [THREADS] = "0"}};
    for (int c; (c = getopt_long(count, words, "", options, NULL)) != -1;) {
        if (c < WORDS) {
            out.words[c] = optarg;
        } else if (c == QUICK) {
            out.quick = true;
        } else if (c == LIST) {
            out.list = true;
        } else if (c != TRACE) {
            exit(2); /* getopt has said why */
        } else if (out.trace_count == TRACES_MAX) {
            die("more than %d traces", TRACES_MAX);
        } else {
            out.traces[out.trace_count++] = optarg;
        }
    }
    if (optind < count) {
        die("'%s' is no option", words[optind]);
    }
    return out;
}

static double number(const arguments *given, int which) {
    const char *text = given->words[which];
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= 0 && value < 1e9)) {
        die("--%s takes a number, not '%s'", options[which].name, text);
    }
    return value;
}

static stage *stage_open(const char *name) {
    const char *why = "it is neither auto nor cuda nor host";
    stage *found = NULL;
    if (strcmp(name, "auto") == 0 || strcmp(name, "cuda") == 0) {
        found = stage_cuda(&why);
    }
    if ((found == NULL && strcmp(name, "auto") == 0) || strcmp(name, "host") == 0) {
        found = stage_host(&why);
    }
    if (found == NULL) {
        die("no stage '%s': %s", name, why);
    }
    return found;
}

/* Whether `list` (NULL: all) has `name` between its commas. */
static bool listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = list; at != NULL && *at != 0;) {
        const size_t word = strcspn(at, ",");
        if (word == length && strncmp(at, name, length) == 0) {
            return true;
        }
        at += word + (at[word] == ',');
    }
    return list == NULL;
}

static void check_names(const char *list) {
    size_t known = 0, wanted = list != NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        known += list != NULL && listed(list, cases[i].name);
    }
    for (const char *at = list; at != NULL && *at != 0; at++) {
        wanted += *at == ',';
    }
    if (known != wanted) {
        die("--cases %s: at least one is unknown; --list names them", list);
    }
}

static void report_setting(const bench *self) {
    (void)printf("{\"stage\": \"%s\", \"device\": \"%s\", \"driver\": \"%s\"", self->stage->name,
                 self->stage->device, self->stage->driver);
    row_number("processors", processor_count());
    row_number("tick_overhead_ns", tick_overhead_ns());
    row_number("limit_ms", self->limit_ms);
    row_number("cap_mib", (double)self->cap / (double)MIB);
    row_flag("quick", self->quick);
    row_end();
}

int main(int count, char **words) {
    const arguments given = read_arguments(count, words);
    size_t left, total;
    if (given.list) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            (void)printf("%-9s %s\n", cases[i].name, cases[i].what);
        }
        return 0;
    }
    if ((given.words[LIBRARY] == NULL) == (given.words[BUILTIN] == NULL)) {
        die("name an allocator: either --library FILE or --builtin NAME");
    }
    check_names(given.words[CASES]);
    const uint64_t cap = (uint64_t)number(&given, CAP_MIB) * MIB;
    const unsigned threads = (unsigned)number(&given, THREADS);
    bench self = {.limit_ms = number(&given, LIMIT_MS),
                  .stage = stage_open(given.words[STAGE]),
                  .init = given.words[INIT],
                  .quick = given.quick,
                  .traces = given.traces};
    /* The pool under test opens the device of the stage. */
    if (setenv("MILLPOND_DEVICE", self.stage->name, 1) != 0) {
        die("the environment is full");
    }
    if (given.words[LIBRARY] != NULL) {
        backend_load(given.words[LIBRARY], given.words[SYMBOLS], &self.backend);
    } else {
        backend_builtin(given.words[BUILTIN], &self.backend);
    }
    self.stage->memory(&left, &total);
    self.cap = cap < left / 2 ? cap : left / 2;
    self.threads_max = threads != 0 ? threads : processor_count();
    tick_calibrate();
    report_setting(&self);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (listed(given.words[CASES], cases[i].name)) {
            (void)printf("{\"begin\": \"%s\"}\n", cases[i].name); /* whose fault an end would be */
            (void)fflush(stdout);
            cases[i].run(&self);
        }
    }
    (void)puts("{\"done\": true}");
    return 0;
}
