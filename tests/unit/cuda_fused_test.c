/* cuda_fused_test.c - what NVRTC says of the text of fused kernels; needs no GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/later.h"
#include "device/cuda/cuda_jit.h"
#include "device/cuda/cuda_load.h"
#include "kernel/kernel_table.h"
#include "op/fused/fused_source.h"
#include "op/op_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const words[] = {
#define K_POINTWISE(word, ...) #word,
#include "kernel/pointwise/pointwise.def"
#undef K_POINTWISE
};

/* The first functions of one type, folded. */
static void fold_functions(mp_dtype type, size_t count, mp_expression *e) {
    memset(e, 0, sizeof *e);
    int x = mp_expression_input(e, type);
    const int y = mp_expression_input(e, type);
    const int one = mp_expression_input(e, type);
    for (size_t i = 0; i < count; i++) {
        const mp_function *function = mp_function_find(words[i]);
        const int second = function->arity == 2 ? i % 2 == 0 ? y : one : MP_NO_REGISTER;
        const int made = mp_expression_function(e, words[i], x, second, 0.5f, 2.0f);
        if (made != MP_NO_REGISTER && mp_expression_type(e, made) != type) {
            x = mp_expression_where(e, made, x, y);
        } else {
            x = made != MP_NO_REGISTER ? made : x;
        }
    }
    CHECK(mp_expression_output(e, x));
}

/* Casts from a type to every other, and back. */
static void fold_casts(mp_dtype type, mp_expression *e) {
    memset(e, 0, sizeof *e);
    int x = mp_expression_input(e, type);
    const int y = mp_expression_input(e, MP_BOOL);
    const int z = mp_expression_input(e, type);
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        const int there = mp_expression_cast(e, x, op_types[t]);
        const int back = mp_expression_cast(e, there, type);
        x = mp_expression_where(e, y, back, z);
    }
    CHECK(mp_expression_output(e, x));
}

static void compile(const mp_expression *e, const mp_reading *readings, int arch) {
    static const char *const defines[] = {"K_NAME=mp_k_fused_test", NULL};
    char *text = NULL;
    cuda_blob code = {0};
    CHECK_OK(mp_fused_source(e, readings, &text));
    const mp_kernel_image image = {.name = "mp_k_fused_test",
                                   .source = "fused_test.cu",
                                   .text = text,
                                   .defines = defines,
                                   .sources = mp__kernel_images[0].sources,
                                   .headers = mp__kernel_images[0].headers,
                                   .rounds = true};
    CHECK_OK(mp__cuda_compile_native(&image, arch, &code));
    free(code.data);
    free(text);
}

/* Every type and every function in turn over the architectures. */
static bool there_is_nvrtc(void) {
    int major = 0;
    int minor = 0;
    return mp__cuda_compiler_version(&major, &minor) == MP_OK;
}

/* A line of the log, "fused_NAME reads w1v: EXPRESSION". */
static void compile_line(char *line, int arch) {
    mp_expression e;
    mp_reading readings[K_FUSED_IN];
    char *read = strstr(line, " reads ");
    CHECK(read != NULL);
    read += strlen(" reads ");
    char *text = strstr(read, ": ");
    CHECK(text != NULL);
    *text = '\0';
    CHECK_OK(mp_expression_read(text + 2, &e));
    CHECK_EQ_INT((int64_t)strlen(read), e.input_count);
    for (int i = 0; i < e.input_count; i++) {
        readings[i] = MP_READ_WHOLE;
        while (mp_reading_letter(readings[i]) != read[i]) {
            CHECK(readings[i] + 1 != MP_READING_END);
            readings[i]++;
        }
    }
    compile(&e, readings, arch);
}

/* Those in the file $MILLPOND_FUSED_LINES, for $MILLPOND_FUSED_ARCH: see test_fused_texts.py. */
TEST(fused_lines_compile) {
    const char *path = getenv("MILLPOND_FUSED_LINES");
    const char *arch = getenv("MILLPOND_FUSED_ARCH");
    char *line = NULL;
    size_t room = 0;
    if (path == NULL || arch == NULL) {
        SKIP("no file is named by MILLPOND_FUSED_LINES");
    }
    if (!there_is_nvrtc()) {
        SKIP("%s", mp_error_message());
    }
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    int count = 0;
    for (ssize_t length = 0; (length = getline(&line, &room, file)) > 0; count++) {
        line[strcspn(line, "\n")] = '\0';
        compile_line(line, (int)strtol(arch, NULL, 10));
    }
    CHECK(count > 0);
    free(line);
    CHECK(fclose(file) == 0);
}

TEST(fused_text_compiles_for_every_gpu) {
    static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
    static const mp_reading readings[] = {MP_READ_WHOLE, MP_READ_VIEW, MP_READ_ONE};
    mp_expression e;
    if (MP_WITH_ASAN || MP_WITH_TSAN) {
        SKIP("what takes long is NVRTC, which no sanitizer looks into");
    }
    if (!there_is_nvrtc()) {
        SKIP("%s", mp_error_message());
    }
    for (size_t t = 0; op_types[t] != MP_NONE; t++) {
        fold_functions(op_types[t], MP_COUNT_OF(words), &e);
        compile(&e, readings, archs[t % MP_COUNT_OF(archs)]);
        fold_casts(op_types[t], &e);
        e.is_apart = t % 2 == 0;
        compile(&e, readings, archs[(t + 3) % MP_COUNT_OF(archs)]);
    }
}

/* Rows that are kept and long ones, with inputs that are read in each way. */
TEST(fused_text_of_rows_compiles_for_every_gpu) {
    static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
    static const char *const types[] = {"f32", "f16", "bf16", "f64"};
    static const mp_reading readings[][6] = {
        {MP_READ_WHOLE, MP_READ_VIEW, MP_READ_COLUMN, MP_READ_ROW, MP_READ_VIEW, MP_READ_ROWS},
        {MP_READ_WHOLE, MP_READ_ROWS, MP_READ_VIEW, MP_READ_ROW, MP_READ_ONE, MP_READ_COLUMN}};
    if (MP_WITH_ASAN || MP_WITH_TSAN) {
        SKIP("what takes long is NVRTC, which no sanitizer looks into");
    }
    if (!there_is_nvrtc()) {
        SKIP("%s", mp_error_message());
    }
    int kept = 0;
    for (size_t i = 0; i < MP_COUNT_OF(archs) * 2; i++) {
        const char *type = types[i % MP_COUNT_OF(types)];
        char text[1024];
        mp_expression e;
        (void)snprintf(text, sizeof text,
                       "row=1%s x0=%s x1=%s x2=%s x3=%s:row x4=%s:row x5=bool n0=f32:3f800000 "
                       "t0=mul(x0,x1) t1=rowmax(t0) t2=sub(t0,t1) t3=exp(t2) t4=rowsum(t3) "
                       "t5=max(t4,x3) t6=div(t3,t5) t7=neg(t6) t8=mul(t7,x2) t9=add(t8,x4) "
                       "t10=where(x5,t9,t8) t11=rowmean(t10) t12=rowmin(t9) t13=rowproduct(t8) "
                       "t14=add(t11,t11) t15=sub(t10,t14) -> t15 t6 t13:flat t12",
                       i % 2 == 0 ? "" : ":long", type, type, type, type, type);
        CHECK_OK(mp_expression_read(text, &e));
        e.is_long = e.is_long || mp_fused_row_keep(&e, readings[i % 3 == 0]) == 0;
        kept += !e.is_long;
        compile(&e, readings[i % 3 == 0], archs[i % MP_COUNT_OF(archs)]);
    }
    CHECK(kept > 0);
}

/* ---- the end of a process while NVRTC compiles ---- */

enum { LATER_FUNCTIONS = 14 }; /* two texts of so many take longer than any of the delays below */

static void compile_later(mp_later *self) {
    static const mp_reading readings[] = {MP_READ_WHOLE, MP_READ_VIEW, MP_READ_ONE};
    mp_expression e;
    (void)self;
    fold_functions(MP_F32, LATER_FUNCTIONS, &e);
    if (mp__cuda_need(CUDA_LIB_NVRTC) == MP_OK) {
        mp_later_loaded();
        compile(&e, readings, 80);
        mp_later_loaded();
    }
}

static void end_after(long ms) {
    static mp_later work[2] = {{.run = compile_later}, {.run = compile_later}};
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    for (size_t i = 0; i < MP_COUNT_OF(work); i++) {
        CHECK(mp_later_add(&work[i]));
    }
    (void)nanosleep(&time, NULL);
    exit(0);
}

/* Before NVRTC is there, while it is loaded, and at any time after that. */
TEST(fused_texts_may_be_compiled_when_the_process_ends) {
    static const long delays[] = {0, 3, 20, 60, 120, 300};
    if (MP_WITH_ASAN || MP_WITH_TSAN) {
        SKIP("what takes long is NVRTC, which no sanitizer looks into");
    }
    NEEDS_OWN_PROCESS();
    for (size_t i = 0; i < MP_COUNT_OF(delays); i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            end_after(delays[i]);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            test_fail(__FILE__, __LINE__, "after %ld ms the process ended with status %x",
                      delays[i], (unsigned)status);
        }
    }
}
