/* test.h - tests that register themselves, and the checks they make.
 *
 * TEST(name) { ... } runs once. DEVICE_TEST(name) { ... device ... } runs on an emulated device of
 * its own in each mode (eager, threaded, and adversarial with many seeds), which must be empty and
 * without a breach afterwards, and on the first GPU where there is one. The runner gives every test
 * a process and a time limit; with --batch, tests of devices share processes. A failed check ends
 * its test; checks may be made from any thread. TEST_ALONE and DEVICE_TEST_ALONE are for tests that
 * fill a GPU or look at how full it is: they run beside no other, after all others.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_TEST_H
#define MP_TESTS_UNIT_TEST_H

#include "base/status.h"
#include "device/device.h"
#include "unit/random.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);                 /* of a TEST */
    void (*run_on)(mp_device *device); /* of a DEVICE_TEST */
    bool alone;                        /* beside no other */
    struct test_case *next;
} test_case;

void test_register(test_case *test);

/* Ends the test as failed, with a sentence. */
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

/* Ends the test as skipped, with the reason. Only from the test's own thread. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The first GPU; ends the test as skipped where there is none. Only from the test's own thread. */
mp_device *test_gpu(void);

/* For tests of what a process does once, as reading its environment: where others run in this one,
 * the test is begun again in a process of its own, or skipped if there are none. */
void test_needs_own_process(void);

/* What drives the random choices of this test: the adversary's seed in a DEVICE_TEST, otherwise the
 * first of the runner's seeds. */
uint64_t test_seed(void);

#define TEST_ENTRY(id, parameter, member, is_alone)                              \
    static void id(parameter);                                                   \
    __attribute__((constructor)) static void id##_register(void) {               \
        static test_case entry = {.name = #id, .member = id, .alone = is_alone}; \
        test_register(&entry);                                                   \
    }                                                                            \
    static void id(parameter)

#define TEST(id)              TEST_ENTRY(id, void, run, false)
#define TEST_ALONE(id)        TEST_ENTRY(id, void, run, true)
#define DEVICE_TEST(id)       TEST_ENTRY(id, mp_device *device, run_on, false)
#define DEVICE_TEST_ALONE(id) TEST_ENTRY(id, mp_device *device, run_on, true)

#define SKIP(...) test_skip(__VA_ARGS__)

#define NEEDS_OWN_PROCESS() test_needs_own_process()

#define CHECK(cond)                                            \
    do {                                                       \
        if (!(cond)) {                                         \
            test_fail(__FILE__, __LINE__, "CHECK(%s)", #cond); \
        }                                                      \
    } while (0)

#define CHECK_OK(expr)                                                                       \
    do {                                                                                     \
        const mp_status check_status = (expr);                                               \
        if (check_status != MP_OK) {                                                         \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #expr, mp_status_name(check_status), \
                      mp_error_message());                                                   \
        }                                                                                    \
    } while (0)

/* The call fails with MP_<code>, and its sentence has `part` in it. */
#define CHECK_FAILS(expr, code, part)                                        \
    do {                                                                     \
        const mp_status check_status = (expr);                               \
        if (check_status != MP_##code) {                                     \
            test_fail(__FILE__, __LINE__, "%s: %s instead of " #code, #expr, \
                      mp_status_name(check_status));                         \
        }                                                                    \
        CHECK_STR_HAS(mp_error_message(), part);                             \
    } while (0)

#define CHECK_EQ_INT(left, right)                                                                 \
    do {                                                                                          \
        const int64_t check_left = (int64_t)(left), check_right = (int64_t)(right);               \
        if (check_left != check_right) {                                                          \
            test_fail(__FILE__, __LINE__, "%s is %" PRId64 ", %s is %" PRId64, #left, check_left, \
                      #right, check_right);                                                       \
        }                                                                                         \
    } while (0)

#define CHECK_STR_HAS(text, part)                                            \
    do {                                                                     \
        const char *check_text = (text), *check_part = (part);               \
        if (check_text == NULL || strstr(check_text, check_part) == NULL) {  \
            test_fail(__FILE__, __LINE__, "no \"%s\" in \"%s\"", check_part, \
                      check_text != NULL ? check_text : "(null)");           \
        }                                                                    \
    } while (0)

#endif
