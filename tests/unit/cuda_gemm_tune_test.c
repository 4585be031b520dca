/* cuda_gemm_tune_test.c - which of a product's algorithms is taken, and what is kept of it. Only
 * the last test needs a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/log.h"
#include "device/cuda/cuda_gemm_tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- choosing ---- */

typedef struct timed {
    float ms[CUDA_GEMM_CANDIDATES];
    int asked;
    long delay_ms;
} timed;

static float time_of(void *context, int i) {
    timed *t = context;
    const struct timespec delay = {.tv_nsec = t->delay_ms * 1000000};
    CHECK_EQ_INT(t->asked, i);
    t->asked++;
    if (t->delay_ms > 0) {
        (void)nanosleep(&delay, NULL);
    }
    return t->ms[i];
}

TEST(gemm_tune_takes_the_fastest) {
    timed t = {.ms = {5, 4, 2, -1, 3}};
    CHECK_EQ_INT(mp__cuda_gemm_fastest(5, 0, time_of, &t), 2);
    CHECK_EQ_INT(t.asked, 5);
}

TEST(gemm_tune_keeps_the_first_unless_another_is_clearly_faster) {
    timed near = {.ms = {5, 4.9F, 6}};
    CHECK_EQ_INT(mp__cuda_gemm_fastest(3, 0, time_of, &near), 0);
    timed broken = {.ms = {-1, 9, -1}};
    CHECK_EQ_INT(mp__cuda_gemm_fastest(3, 0, time_of, &broken), 1);
    timed none = {.ms = {-1, -1}};
    CHECK_EQ_INT(mp__cuda_gemm_fastest(2, 0, time_of, &none), 0);
}

TEST(gemm_tune_ends_when_its_time_is_over) {
    timed t = {.ms = {5, 4, 3, 2, 1}, .delay_ms = 60};
    const int best = mp__cuda_gemm_fastest(5, 1, time_of, &t);
    CHECK(best == 0 && t.asked == 1);
}

/* ---- remembering ---- */

static mp_gemm product(int64_t m) {
    return (mp_gemm){.type = MP_F16,
                     .m = m,
                     .n = 8,
                     .k = 16,
                     .lda = 16,
                     .ldb = 8,
                     .ldc = 8,
                     .batch = 1,
                     .alpha = 1,
                     .align = 16};
}

TEST(gemm_tune_remembers_by_product_and_device) {
    cublasLtMatmulHeuristicResult_t out = {.workspaceSize = 0};
    for (int64_t m = 1; m <= 100; m++) {
        const mp_gemm shape = product(m);
        const cublasLtMatmulHeuristicResult_t found = {.workspaceSize = (size_t)m};
        CHECK(!mp__cuda_gemm_recall(0, &shape, false, &out));
        mp__cuda_gemm_remember(0, &shape, false, &found);
    }
    mp_gemm shape = product(7);
    const cublasLtMatmulHeuristicResult_t later = {.workspaceSize = 1000};
    mp__cuda_gemm_remember(0, &shape, false, &later);
    shape.tune = MP_TUNE_USE; /* how to choose is no part of what is asked for */
    shape.tune_ms = 3;
    shape.alpha = 0.5F;
    CHECK(mp__cuda_gemm_recall(0, &shape, false, &out));
    CHECK_EQ_INT(out.workspaceSize, 7);
    CHECK(!mp__cuda_gemm_recall(1, &shape, false, &out));
    CHECK(!mp__cuda_gemm_recall(0, &shape, true, &out));
    mp_gemm other = shape;
    other.trans_b = true;
    CHECK(!mp__cuda_gemm_recall(0, &other, false, &out));
    other = shape;
    other.beta = 1;
    CHECK(!mp__cuda_gemm_recall(0, &other, false, &out));
    other = shape;
    other.tf32 = true;
    CHECK(!mp__cuda_gemm_recall(0, &other, false, &out));
}

/* ---- on a GPU ---- */

static int measured; /* lines of the log that say so */

static void count_lines(void *context, mp_log_level level, const char *file, int line,
                        const char *text) {
    (void)context, (void)level, (void)file, (void)line;
    measured += strstr(text, "was measured: algorithm") != NULL;
}

static void prepare(mp_device *device, mp_tune tune) {
    mp_gemm shape = product(512);
    mp_math *math = NULL;
    shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = 512;
    shape.tune = tune;
    CHECK_OK(device->ops->gemm_prepare(device, &shape, &math));
    device->ops->math_release(device, math);
}

/* That products come out right with it is tested with all others (host_math_test.c). */
TEST(gemm_tune_measures_once) {
    (void)setenv("MILLPOND_LOG", "info", 1); /* read at the first line */
    mp_device *device = test_gpu();
    if (!mp_log_enabled(MP_LOG_INFO)) {
        SKIP("lines of the log were written before; set MILLPOND_LOG=info");
    }
    mp_log_set_sink(count_lines, NULL);
    prepare(device, MP_TUNE_OFF);
    prepare(device, MP_TUNE_USE);
    CHECK_EQ_INT(measured, 0);
    prepare(device, MP_TUNE_MEASURE);
    CHECK_EQ_INT(measured, 1);
    prepare(device, MP_TUNE_MEASURE);
    prepare(device, MP_TUNE_USE);
    CHECK_EQ_INT(measured, 1);
    mp_log_set_sink(NULL, NULL);
}
