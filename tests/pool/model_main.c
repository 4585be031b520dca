/* model_main.c - long runs of the model: pool_model --ops 10000000.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "device/host/host_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPORT_LIMIT_S = 300 };

static const char *const modes[] = {[MP_HOST_EAGER] = "eager",
                                    [MP_HOST_THREADED] = "threaded",
                                    [MP_HOST_ADVERSARIAL] = "adversarial"};

static struct {
    uint64_t ops, seed;
    const char *config; /* NULL: all */
    int mode;           /* -1: eager and adversarial */
    bool check_often;
} options = {.ops = 1000000, .seed = 1, .mode = -1};

static _Noreturn void usage(const char *program) {
    (void)fprintf(stderr,
                  "usage: %s [--ops COUNT] [--seed N] [--config NAME] [--mode MODE] [--check]\n"
                  "Drives pools against a model of them, with COUNT operations in all (1000000).\n"
                  "--check looks at everything after every operation. MODE is one of eager,\n"
                  "threaded and adversarial. NAME is one of:",
                  program);
    for (size_t i = 0; i < model_config_count; i++) {
        (void)fprintf(stderr, " %s", model_configs[i].name);
    }
    (void)fprintf(stderr, "\n");
    exit(2);
}

static uint64_t number(const char *program, const char *text) {
    char *end = NULL;
    const uint64_t value = text != NULL ? strtoull(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != 0) {
        usage(program);
    }
    return value;
}

static int mode_named(const char *program, const char *name) {
    for (int i = 0; i < 3; i++) {
        if (name != NULL && strcmp(modes[i], name) == 0) {
            return i;
        }
    }
    usage(program);
}

static void parse(char **argv) {
    for (int i = 1; argv[i] != NULL; i++) {
        if (strcmp(argv[i], "--ops") == 0) {
            options.ops = number(argv[0], argv[++i]);
        } else if (strcmp(argv[i], "--seed") == 0) {
            options.seed = number(argv[0], argv[++i]);
        } else if (strcmp(argv[i], "--config") == 0 && argv[i + 1] != NULL &&
                   model_config_named(argv[i + 1]) != NULL) {
            options.config = argv[++i];
        } else if (strcmp(argv[i], "--mode") == 0) {
            options.mode = mode_named(argv[0], argv[++i]);
        } else if (strcmp(argv[i], "--check") == 0) {
            options.check_often = true;
        } else {
            usage(argv[0]);
        }
    }
}

static bool is_chosen(const model_config *config, int mode) {
    return (options.config == NULL || strcmp(options.config, config->name) == 0) &&
           (options.mode < 0 ? mode != MP_HOST_THREADED : mode == options.mode);
}

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool run(const model_config *config, int mode, uint64_t ops) {
    const model_job job = {.plan = {.config = config,
                                    .seed = options.seed,
                                    .count = ops,
                                    .check_often = options.check_often},
                           .mode = mode,
                           .device_seed = options.seed};
    model_result result;
    const double start = now_s();
    if (model_job_run(&job, &result) != MP_OK) {
        (void)fprintf(stderr, "%s\n", mp_error_message());
        return false;
    }
    (void)printf("%s - %s, %s: %" PRIu64 " operations, %" PRIu64 " requests refused, %.1f s\n",
                 result.failed ? "not ok" : "ok", config->name, modes[mode], result.done,
                 result.refused, now_s() - start);
    (void)fflush(stdout);
    if (result.failed) {
        model_job_report(&job, &result, REPORT_LIMIT_S);
    }
    return !result.failed;
}

int main(int argc, char **argv) {
    (void)argc;
    parse(argv);
    const uint64_t configs = options.config == NULL ? model_config_count : 1;
    const uint64_t ops = options.ops / (options.mode < 0 ? 2 * configs : configs);
    int passed = 0, failed = 0;
    for (size_t i = 0; i < model_config_count * 3; i++) {
        if (is_chosen(&model_configs[i / 3], (int)(i % 3))) {
            *(run(&model_configs[i / 3], (int)(i % 3), ops) ? &passed : &failed) += 1;
        }
    }
    (void)printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
