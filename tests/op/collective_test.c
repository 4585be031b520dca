/* collective_test.c - AllReduce, AllGather and AllToAll of a single rank, whose result follows from
 * the operators' definition alone, and what each of them refuses. Several ranks are in
 * unit/rank_test.c and in tests/ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include <stdlib.h>

static void be_rank(const char *rank, const char *size) {
    NEEDS_OWN_PROCESS();
    CHECK(setenv("RANK", rank, 1) == 0 && setenv("WORLD_SIZE", size, 1) == 0);
}

static const float x[6] = {1, 2, 3, 4, 5, 6};

static op_case case_of(const char *name, const mp_attr *attrs, size_t attr_count) {
    return (op_case){.domain = "com.microsoft",
                     .name = name,
                     .version = 1,
                     .in_count = 1,
                     .out_count = 1,
                     .attrs = attrs,
                     .attr_count = attr_count,
                     .in = {op_f32(x, 2, 3)}};
}

DEVICE_TEST(collective_of_one_rank) {
    static const char *const names[] = {"AllReduce", "AllGather", "AllToAll"};
    const mp_attr axis = OP_INT("axis", 1);
    be_rank("0", "1");
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        op_case c = case_of(names[i], &axis, i == 1);
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].shape.rank, 2);
        CHECK_EQ_INT(c.out[0].shape.dim[1], 3);
        for (int k = 0; k < 6; k++) {
            CHECK(((const float *)c.out[0].data)[k] == x[k]);
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(collective_of_nothing) {
    be_rank("0", "4"); /* whom nobody has to meet for that */
    op_case c = case_of("AllReduce", NULL, 0);
    c.in[0] = op_f32(x, 0, 3);
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[0], 0);
    op_close(device, &c);
}

static void check_refused(mp_device *device, const op_case *c, const char *text) {
    mp_plan *plan = NULL;
    CHECK(op_plan(device, c, &plan) != MP_OK);
    if (strstr(mp_error_message(), text) == NULL) {
        test_fail(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", text, mp_error_message());
    }
}

DEVICE_TEST(collective_refuses) {
    const mp_attr three[] = {OP_INT("group_size", 3)};
    const mp_attr none[] = {OP_INT("group_size", 0)};
    const mp_attr four[] = {OP_INT("group_size", 4)};
    const mp_attr far[] = {OP_INT("group_size", 4), OP_INT("axis", 2)};
    const mp_attr most[] = {OP_INT("group_size", INT64_MAX)};
    be_rank("0", "4");
    op_case c = case_of("AllGather", three, 1);
    check_refused(device, &c, "for 3 ranks (group_size) and there are 4 (WORLD_SIZE)");
    c = case_of("AllGather", NULL, 0);
    check_refused(device, &c, "for 1 ranks (group_size) and there are 4 (WORLD_SIZE)");
    c = case_of("AllToAll", none, 1);
    check_refused(device, &c, "group_size is 0");
    c = case_of("AllToAll", four, 1);
    check_refused(device, &c, "cannot deal 6 elements to 4 ranks");
    c = case_of("AllGather", far, 2);
    check_refused(device, &c, "axis");
    c = case_of("AllGather", most, 1);
    check_refused(device, &c, "by 9223372036854775807 ranks");
    c = case_of("AllReduce", NULL, 0);
    c.in[0] = OP_TENSOR(MP_I64, x, 3);
    check_refused(device, &c, "AllReduce of 3 elements of int64");
    CHECK(unsetenv("RANK") == 0 && unsetenv("WORLD_SIZE") == 0);
    c = case_of("AllReduce", NULL, 0);
    check_refused(device, &c, "nothing says which rank this process is");
}
