/* base_test.c - quotients, lists, options, conversions of narrow floats, workers, the log.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/escape.h"
#include "base/growing.h"
#include "base/half.h"
#include "base/json.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/option.h"
#include "base/worker.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- quotients ---- */

TEST(quotients_are_rounded_up) {
    for (int64_t a = 0; a < 40; a++) {
        for (int64_t b = 1; b < 10; b++) {
            const int64_t up = MP_CEIL_DIV(a, b);
            CHECK(up * b >= a && (up - 1) * b < a);
            CHECK_EQ_INT(MP_ALIGN_UP(a, b), up * b);
        }
    }
}

TEST(quotients_do_not_overflow) {
    const size_t most = SIZE_MAX;
    const int64_t most_signed = INT64_MAX;
    CHECK(MP_CEIL_DIV(most, (size_t)1) == SIZE_MAX);
    CHECK(MP_CEIL_DIV(most, (size_t)2) == SIZE_MAX / 2 + 1);
    CHECK(MP_CEIL_DIV(most, most) == 1);
    CHECK_EQ_INT(MP_CEIL_DIV(most_signed, INT64_C(1)), INT64_MAX);
    CHECK_EQ_INT(MP_CEIL_DIV(most_signed, INT64_C(2)), INT64_MAX / 2 + 1);
    CHECK_EQ_INT(MP_CEIL_DIV(most_signed, most_signed), 1);
}

/* ---- lists ---- */

TEST(lists_grow_and_keep_what_they_have) {
    int32_t *list = NULL;
    size_t capacity = 0;
    for (int32_t i = 0; i < 1000; i++) {
        CHECK(mp_grow(&list, (size_t)i + 1, &capacity, sizeof *list));
        CHECK(capacity > (size_t)i);
        list[i] = i;
    }
    CHECK(capacity < 2000);
    const int32_t *before = list;
    const size_t room = capacity;
    CHECK(mp_grow(&list, 5, &capacity, sizeof *list));
    CHECK(!mp_grow(&list, SIZE_MAX, &capacity, sizeof *list));
    CHECK(!mp_grow(&list, SIZE_MAX / 2, &capacity, sizeof *list));
    CHECK(list == before && capacity == room);
    for (int32_t i = 0; i < 1000; i++) {
        CHECK_EQ_INT(list[i], i);
    }
    free(list);
}

/* ---- options ---- */

typedef struct settings {
    bool graph;
    int64_t device;
    size_t limit;
    int strategy;
    uintptr_t stream;
} settings;

static const char *const strategies[] = {"kNextPowerOfTwo", "kSameAsRequested", NULL};

static const mp_option table[] = {
    {.name = "enable_cuda_graph", .kind = MP_OPTION_BOOL, .offset = offsetof(settings, graph)},
    {.name = "device_id",
     .kind = MP_OPTION_INT,
     .offset = offsetof(settings, device),
     .least = 0,
     .most = 15},
    {.name = "gpu_mem_limit", .kind = MP_OPTION_SIZE, .offset = offsetof(settings, limit)},
    {.name = "arena_extend_strategy",
     .kind = MP_OPTION_WORD,
     .offset = offsetof(settings, strategy),
     .words = strategies},
    {.name = "stream", .kind = MP_OPTION_ADDRESS, .offset = offsetof(settings, stream)},
};

static mp_status set(settings *target, const char *name, const char *value) {
    return mp_option_set(table, MP_COUNT_OF(table), target, name, value);
}

TEST(options_are_read) {
    settings s = {.device = 7};
    CHECK_OK(set(&s, "enable_cuda_graph", "TRUE"));
    CHECK(s.graph);
    CHECK_OK(set(&s, "enable_cuda_graph", "0"));
    CHECK(!s.graph);
    CHECK_OK(set(&s, "Device_ID", "15"));
    CHECK_EQ_INT(s.device, 15);
    CHECK_OK(set(&s, "gpu_mem_limit", "18446744073709551615"));
    CHECK(s.limit == SIZE_MAX);
    CHECK_OK(set(&s, "gpu_mem_limit", "2g"));
    CHECK(s.limit == (size_t)2 << 30);
    CHECK_OK(set(&s, "gpu_mem_limit", "0x10"));
    CHECK(s.limit == 16);
    CHECK_OK(set(&s, "arena_extend_strategy", "ksameasrequested"));
    CHECK_EQ_INT(s.strategy, 1);
    CHECK_OK(set(&s, "stream", "0xFFFFFFFFFFFFFFFF"));
    CHECK(s.stream == UINTPTR_MAX);
    CHECK_OK(set(&s, "stream", "4096"));
    CHECK(s.stream == 4096);
}

TEST(options_are_printed_as_they_are_read) {
    static const char *const texts[] = {"1", "-3", "2147483648", "kSameAsRequested", "0x7f00"};
    settings s = {.device = -3};
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        char text[32];
        if (i != 1) {
            CHECK_OK(set(&s, table[i].name, texts[i]));
        }
        mp_option_print(&table[i], &s, text, sizeof text);
        CHECK(strcmp(text, texts[i]) == 0);
    }
    char cut[4];
    mp_option_print(&table[3], &s, cut, sizeof cut);
    CHECK(strcmp(cut, "kSa") == 0);
}

TEST(wrong_options_are_explained) {
    settings s = {.device = 7, .limit = 5};
    CHECK_FAILS(set(&s, "enable_cuda_graph", "yes"), INVALID_ARGUMENT, "\"yes\"; use 1 or true");
    CHECK_FAILS(set(&s, "device_id", "16"), INVALID_ARGUMENT, "from 0 to 15");
    CHECK_FAILS(set(&s, "device_id", "1x"), INVALID_ARGUMENT, "\"1x\"");
    CHECK_FAILS(set(&s, "device_id", " 1"), INVALID_ARGUMENT, "whole number");
    CHECK_FAILS(set(&s, "device_id", ""), INVALID_ARGUMENT, "whole number");
    CHECK_FAILS(set(&s, "gpu_mem_limit", "-1"), INVALID_ARGUMENT, "bytes");
    CHECK_FAILS(set(&s, "gpu_mem_limit", "18446744073709551616"), INVALID_ARGUMENT, "bytes");
    CHECK_FAILS(set(&s, "gpu_mem_limit", "99999999999T"), INVALID_ARGUMENT, "bytes");
    CHECK_FAILS(set(&s, "gpu_mem_limit", "1MB"), INVALID_ARGUMENT, "bytes");
    CHECK_FAILS(set(&s, "arena_extend_strategy", "kFast"), INVALID_ARGUMENT,
                "kNextPowerOfTwo, kSameAsRequested");
    CHECK_FAILS(set(&s, "stream", "-1"), INVALID_ARGUMENT, "an address");
    CHECK_FAILS(set(&s, "stream", "0x10000000000000000"), INVALID_ARGUMENT, "an address");
    CHECK_FAILS(set(&s, "stream", "12 "), INVALID_ARGUMENT, "\"12 \"");
    CHECK_FAILS(set(&s, "stream", "4K"), INVALID_ARGUMENT, "0x");
    CHECK_FAILS(set(&s, "stream", ""), INVALID_ARGUMENT, "an address");
    CHECK_EQ_INT(s.device, 7);
    CHECK_EQ_INT(s.limit, 5);
    CHECK(s.stream == 0);
}

TEST(unknown_options_have_a_neighbour) {
    settings s = {.device = 0};
    CHECK_FAILS(set(&s, "enable_cuda_grpah", "1"), INVALID_ARGUMENT,
                "did you mean \"enable_cuda_graph\"?");
    CHECK_FAILS(set(&s, "deviceid", "1"), INVALID_ARGUMENT, "\"device_id\"");
    CHECK_FAILS(set(&s, "colour", "1"), INVALID_ARGUMENT, "no option \"colour\"");
    CHECK(strstr(mp_error_message(), "mean") == NULL);
}

/* ---- narrow floats ---- */

/* What a pattern of sign, exponent and mantissa means, by arithmetic in double. */
static double meaning(uint32_t pattern, int mantissa_bits, int exponent_bits) {
    const uint32_t mantissa = pattern & ((1u << mantissa_bits) - 1);
    const int exponent = (int)(pattern >> mantissa_bits & ((1u << exponent_bits) - 1));
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = pattern >> (mantissa_bits + exponent_bits) ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    const double whole = mantissa + (exponent > 0 ? ldexp(1, mantissa_bits) : 0);
    return sign * ldexp(whole, (exponent > 0 ? exponent : 1) - bias - mantissa_bits);
}

typedef float widen_fn(uint16_t value);
typedef uint16_t narrow_fn(float value);

static void check_nearby(uint16_t low, int mantissa_bits, int exponent_bits, narrow_fn *narrow) {
    const double a = meaning(low, mantissa_bits, exponent_bits);
    const double b = meaning(low + 1u, mantissa_bits, exponent_bits);
    if (isinf(b)) {
        return;
    }
    const float middle = (float)((a + b) / 2); /* exact: a float has bits to spare */
    const uint16_t even = (uint16_t)(low + (low & 1));
    CHECK_EQ_INT(narrow(middle), even);
    CHECK_EQ_INT(narrow(-middle), even | 0x8000);
    CHECK_EQ_INT(narrow(nextafterf(middle, 0)), low);
    CHECK_EQ_INT(narrow(nextafterf(middle, INFINITY)), low + 1);
}

static void check_narrow_float(int mantissa_bits, int exponent_bits, widen_fn *widen,
                               narrow_fn *narrow) {
    for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
        const float value = widen((uint16_t)pattern);
        const double expected = meaning(pattern, mantissa_bits, exponent_bits);
        if (isnan(expected)) {
            CHECK(isnan(value));
            CHECK(isnan(widen(narrow(value))));
            CHECK_EQ_INT(narrow(value) >> 15, pattern >> 15);
            continue;
        }
        CHECK((double)value == expected && !signbit(value) == !signbit(expected));
        CHECK_EQ_INT(narrow(value), pattern);
        if (pattern < 0x7fff && !isinf(expected)) {
            check_nearby((uint16_t)pattern, mantissa_bits, exponent_bits, narrow);
        }
    }
    CHECK(isnan(widen(narrow(mp_float_of(0x7f800001)))));
    CHECK(isnan(widen(narrow(mp_float_of(0xffffffff)))));
}

static float from_f16(uint16_t value) {
    return mp_from_f16(value);
}
static uint16_t to_f16(float value) {
    return mp_to_f16(value);
}
static float from_bf16(uint16_t value) {
    return mp_from_bf16(value);
}
static uint16_t to_bf16(float value) {
    return mp_to_bf16(value);
}

TEST(float16_is_exact) {
    check_narrow_float(10, 5, from_f16, to_f16);
    CHECK_EQ_INT(mp_to_f16(65519.996F), 0x7bff);
    CHECK_EQ_INT(mp_to_f16(65520.0F), 0x7c00);
    CHECK_EQ_INT(mp_to_f16(-1e30F), 0xfc00);
    CHECK_EQ_INT(mp_to_f16(1e-30F), 0);
    CHECK_EQ_INT(mp_to_f16(-1e-45F), 0x8000);
}

TEST(bfloat16_is_exact) {
    check_narrow_float(7, 8, from_bf16, to_bf16);
    CHECK_EQ_INT(mp_to_bf16(3.4028235e38F), 0x7f80);
    CHECK_EQ_INT(mp_to_bf16(-3.4028235e38F), 0xff80);
}

/* ---- workers ---- */

typedef struct tally {
    atomic_uint *seen;
    size_t piece;
    atomic_size_t largest;
} tally;

static void count_items(void *context, size_t begin, size_t end) {
    tally *t = context;
    if (end - begin > atomic_load(&t->largest)) {
        atomic_store(&t->largest, end - begin);
    }
    for (size_t i = begin; i < end; i++) {
        atomic_fetch_add(&t->seen[i], 1);
    }
}

static void run_and_check(size_t count, size_t piece) {
    tally t = {.seen = calloc(count + 1, sizeof(atomic_uint)), .piece = piece};
    CHECK(t.seen != NULL);
    mp_worker_run(count, piece, count_items, &t);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ_INT(atomic_load(&t.seen[i]), 1);
    }
    CHECK(atomic_load(&t.largest) <= piece);
    free(t.seen);
}

TEST(workers_do_each_item_once) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_HOST_THREADS", "4", 1);
    CHECK_EQ_INT(mp_worker_count(), 4);
    for (size_t round = 0; round < 200; round++) {
        run_and_check(round * 7, 1 + round % 5);
    }
    run_and_check(0, 1);
    run_and_check(1, 100);
}

static void *many_loops(void *unused) {
    for (int i = 0; i < 100; i++) {
        run_and_check(500, 3);
    }
    return unused;
}

TEST(loops_of_many_threads_do_not_mix) {
    (void)setenv("MILLPOND_HOST_THREADS", "3", 1);
    pthread_t threads[4];
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, many_loops, NULL) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void nested(void *context, size_t begin, size_t end) {
    (void)context;
    for (size_t i = begin; i < end; i++) {
        run_and_check(50, 3);
    }
}

TEST(a_loop_inside_a_loop_ends) {
    (void)setenv("MILLPOND_HOST_THREADS", "3", 1);
    mp_worker_run(20, 1, nested, NULL);
}

TEST(workers_survive_a_fork) {
    (void)setenv("MILLPOND_HOST_THREADS", "3", 1);
    run_and_check(100, 1);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_and_check(100, 1);
        _exit(0);
    }
    int state = 0;
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    run_and_check(100, 1);
}

TEST(a_wrong_thread_count_is_ignored) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_HOST_THREADS", "0", 1);
    CHECK(mp_worker_count() >= 1);
}

/* ---- log ---- */

typedef struct lines {
    int count;
    mp_log_level level;
    char text[200];
} lines;

static void keep(void *context, mp_log_level level, const char *file, int line, const char *text) {
    lines *kept = context;
    CHECK(line > 0);
    CHECK_STR_HAS(file, "base_test.c");
    kept->count++;
    kept->level = level;
    (void)strncpy(kept->text, text, sizeof kept->text - 1);
}

TEST(the_log_has_a_threshold_and_a_sink) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_LOG", "Info", 1);
    lines kept = {.count = 0};
    mp_log_set_sink(keep, &kept);
    MP_LOG(DEBUG, "below");
    CHECK_EQ_INT(kept.count, 0);
    MP_LOG(INFO, "pond %d", 7);
    CHECK_EQ_INT(kept.count, 1);
    CHECK_EQ_INT(kept.level, MP_LOG_INFO);
    CHECK_STR_HAS(kept.text, "pond 7");
    mp_log_set_sink(NULL, NULL);
    MP_LOG(ERROR, "to stderr");
    CHECK_EQ_INT(kept.count, 1);
}

static bool take_warnings(mp_log_level level, const char *file, int line, const char *text) {
    CHECK_STR_HAS(file, "base_test.c");
    CHECK(line > 0);
    CHECK_STR_HAS(text, "pond");
    return level == MP_LOG_WARNING;
}

TEST(lines_of_the_log_can_be_taken_and_handed_back) {
    NEEDS_OWN_PROCESS();
    lines kept = {.count = 0};
    mp_log_set_sink(keep, &kept);
    mp_log_set_taker(take_warnings);
    MP_LOG(WARNING, "a pond");
    CHECK_EQ_INT(kept.count, 0);
    MP_LOG(ERROR, "another pond");
    CHECK_EQ_INT(kept.count, 1);
    mp_log_write(MP_LOG_WARNING, __FILE__, __LINE__, "a pond");
    CHECK_EQ_INT(kept.count, 2);
    CHECK_EQ_INT(kept.level, MP_LOG_WARNING);
    mp_log_set_taker(NULL);
    MP_LOG(WARNING, "no taker");
    CHECK_EQ_INT(kept.count, 3);
    mp_log_set_sink(NULL, NULL);
}

TEST(the_logs_threshold_can_be_set) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_LOG", "debug", 1);
    mp_log_set_threshold(MP_LOG_ERROR); /* before the variable was read: it does not come back */
    CHECK_EQ_INT(mp_log_get_threshold(), MP_LOG_ERROR);
    CHECK(mp_log_enabled(MP_LOG_ERROR) && !mp_log_enabled(MP_LOG_WARNING));
    mp_log_set_threshold(MP_LOG_OFF);
    CHECK(!mp_log_enabled(MP_LOG_ERROR));
}

TEST(the_log_can_be_off) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_LOG", "off", 1);
    CHECK(!mp_log_enabled(MP_LOG_ERROR));
}

/* ---- text from outside ---- */

static void check_escaped(const char *text, const char *want) {
    char out[64];
    mp_escape(out, sizeof out, text);
    if (strcmp(out, want) != 0) {
        test_fail(__FILE__, __LINE__, "\"%s\" became \"%s\", not \"%s\"", text, out, want);
    }
}

static void check_json(const char *text, const char *want) {
    char *out = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&out, &size);
    CHECK(file != NULL);
    mp_json_text(file, text);
    CHECK_EQ_INT(fclose(file), 0);
    CHECK_EQ_INT(strcmp(out, want), 0);
    free(out);
}

TEST(text_in_json_is_valid) {
    check_json("", "\"\"");
    check_json("a/b 'c' \xc3\xa9", "\"a/b 'c' \xc3\xa9\"");
    check_json("\"\\\n\x01\x7f</script>", "\"\\u0022\\u005c\\u000a\\u0001\\u007f\\u003c/script>\"");
    check_json("\xff\xc3", "\"??\"");
}

TEST(text_that_is_no_utf8_is_escaped) {
    check_escaped("", "");
    check_escaped("plain, tab\t, end\n", "plain, tab\t, end\n");
    check_escaped("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
                  "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    check_escaped("\xff\xfe!", "\\xff\\xfe!");
    check_escaped("a\x01\x7f\r", "a\\x01\\x7f\\x0d");
    check_escaped("\xc3", "\\xc3");                            /* ends too early */
    check_escaped("\xe2\x82z", "\\xe2\\x82z");                 /* is broken off */
    check_escaped("\xc0\xaf", "\\xc0\\xaf");                   /* a longer form */
    check_escaped("\xe0\x9f\xbf", "\\xe0\\x9f\\xbf");          /* another */
    check_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");          /* a surrogate */
    check_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */
    char out[6];
    mp_escape(out, sizeof out, "abcd\xc3\xa9"); /* is cut before a character */
    CHECK(strcmp(out, "abcd") == 0);
    mp_escape(out, sizeof out, "abc\xff");
    CHECK(strcmp(out, "abc") == 0);
}

TEST(sentences_and_log_lines_are_escaped) {
    NEEDS_OWN_PROCESS();
    lines kept = {.count = 0};
    CHECK_FAILS(MP_FAIL(NOT_FOUND, "'%s' is not known", "\xff\xc3\xa9"), NOT_FOUND,
                "'\\xff\xc3\xa9' is not known");
    mp_log_set_sink(keep, &kept);
    MP_LOG(ERROR, "node '%s'", "\x80");
    CHECK_STR_HAS(kept.text, "node '\\x80'");
    mp_log_set_sink(NULL, NULL);
}
