/* view_test.c - what shapes Reshape, Flatten, Squeeze, Unsqueeze, Shape and Size give, and what
 * they refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

enum { MOST = MP_RANK_MAX };

typedef struct form {
    int in_rank;
    int64_t in[MOST];
    int count; /* of numbers */
    int64_t numbers[MOST];
    int out_rank;
    int64_t out[MOST];
    const char *refusal; /* NULL: it works */
} form;

static float elements[64];

static void check_form(mp_device *device, op_case *c, const form *f) {
    mp_plan *plan = NULL;
    for (int i = 0; i < 64; i++) {
        elements[i] = (float)i;
    }
    c->in[0] = op_tensor_of(MP_F32, elements, f->in_rank, f->in);
    c->out_count = 1;
    if (f->refusal != NULL) {
        const mp_status status = op_plan(device, c, &plan);
        CHECK(status == MP_INVALID_ARGUMENT || status == MP_UNSUPPORTED);
        CHECK_STR_HAS(mp_error_message(), f->refusal);
        return;
    }
    op_run(device, c);
    const mp_shape want = op_tensor_of(MP_F32, NULL, f->out_rank, f->out).shape;
    char got_text[MP_SHAPE_TEXT];
    char want_text[MP_SHAPE_TEXT];
    if (!mp_shape_equal(&c->out[0].shape, &want)) {
        test_fail(__FILE__, __LINE__, "%s gives %s, not %s", c->name,
                  mp_shape_text(&c->out[0].shape, got_text), mp_shape_text(&want, want_text));
    }
    CHECK(op_same(&c->out[0], elements));
    op_close(device, c);
}

/* The numbers as second input. */
static void check_by_input(mp_device *device, const char *name, int version, const form *forms,
                           size_t count) {
    for (size_t k = 0; k < count; k++) {
        op_case c = {.name = name,
                     .version = version,
                     .in = {{.type = MP_NONE}, op_i64(forms[k].numbers, forms[k].count)},
                     .in_count = forms[k].count < 0 ? 1 : 2};
        check_form(device, &c, &forms[k]);
    }
}

/* The numbers as attribute. */
static void check_by_attr(mp_device *device, const char *name, int version, const form *forms,
                          size_t count) {
    for (size_t k = 0; k < count; k++) {
        const mp_attr attrs[] = {{.name = "axes",
                                  .kind = MP_ATTR_INTS,
                                  .ints = forms[k].numbers,
                                  .count = (size_t)forms[k].count}};
        op_case c = {.name = name,
                     .version = version,
                     .attrs = attrs,
                     .attr_count = forms[k].count < 0 ? 0 : 1,
                     .in_count = 1};
        check_form(device, &c, &forms[k]);
    }
}

DEVICE_TEST(reshape_rules) {
    static const form forms[] = {
        {2, {4, 6}, 3, {2, 3, 4}, 3, {2, 3, 4}, NULL},
        {2, {4, 6}, 2, {-1, 8}, 2, {3, 8}, NULL},
        {3, {2, 3, 4}, 3, {0, -1, 2}, 3, {2, 6, 2}, NULL},
        {2, {4, 6}, 1, {-1}, 1, {24}, NULL},
        {1, {1}, 0, {0}, 0, {0}, NULL},
        {0, {0}, 2, {1, -1}, 2, {1, 1}, NULL},
        {2, {0, 3}, 2, {-1, 3}, 2, {0, 3}, NULL},
        {2, {0, 3}, 2, {0, 7}, 2, {0, 7}, NULL},
        {2, {4, 6}, 2, {5, 5}, 0, {0}, "4x6 elements cannot take the shape 5x5"},
        {2, {4, 6}, 2, {-1, 7}, 0, {0}, "cannot take the shape"},
        {2, {4, 6}, 2, {-1, -1}, 0, {0}, "the value -1 at 1"},
        {2, {4, 6}, 2, {-2, 12}, 0, {0}, "the value -2 at 0"},
        {1, {4}, 2, {4, 0}, 0, {0}, "a 0 at 1, where X of shape 4 ends"},
        {2, {4, 6}, 3, {INT64_MAX, INT64_MAX, 4}, 0, {0}, "shape has the value"},
    };
    check_by_input(device, "Reshape", 13, forms, MP_COUNT_OF(forms));
}

DEVICE_TEST(reshape_may_mean_zero) {
    const int64_t shape[] = {3, 0};
    const mp_attr attrs[] = {OP_INT("allowzero", 1)};
    const form f = {2, {0, 5}, 2, {0}, 2, {3, 0}, NULL};
    op_case c = {.name = "Reshape",
                 .version = 14,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {{.type = MP_NONE}, op_i64(shape, 2)},
                 .in_count = 2};
    check_form(device, &c, &f);
}

DEVICE_TEST(squeeze_rules) {
    static const form forms[] = {
        {4, {1, 3, 1, 5}, -1, {0}, 2, {3, 5}, NULL},
        {4, {1, 3, 1, 5}, 1, {0}, 3, {3, 1, 5}, NULL},
        {4, {1, 3, 1, 5}, 2, {-2, 0}, 2, {3, 5}, NULL},
        {2, {1, 1}, 2, {0, 1}, 0, {0}, NULL},
        {2, {1, 3}, 1, {1}, 0, {0}, "axis 1 has 3 elements"},
        {2, {1, 3}, 1, {2}, 0, {0}, "axes 2 is outside"},
        {2, {1, 3}, 2, {0, -2}, 0, {0}, "names axis 0 twice"},
    };
    check_by_input(device, "Squeeze", 13, forms, MP_COUNT_OF(forms));
    check_by_attr(device, "Squeeze", 1, forms, MP_COUNT_OF(forms));
}

DEVICE_TEST(unsqueeze_rules) {
    static const form forms[] = {
        {2, {3, 5}, 1, {0}, 3, {1, 3, 5}, NULL},
        {2, {3, 5}, 2, {-1, 1}, 4, {3, 1, 5, 1}, NULL},
        {0, {0}, 1, {0}, 1, {1}, NULL},
        {2, {3, 5}, 1, {3}, 0, {0}, "axes 3 is outside"},
        {2, {3, 5}, 2, {1, 1}, 0, {0}, "names axis 1 twice"},
        {7, {1, 1, 1, 1, 1, 1, 2}, 2, {0, 1}, 9, {1, 1, 1, 1, 1, 1, 1, 1, 2}, NULL},
        {15, {[14] = 0}, 2, {0, 1}, 0, {0}, "a tensor of rank 17"},
    };
    check_by_input(device, "Unsqueeze", 13, forms, MP_COUNT_OF(forms));
    check_by_attr(device, "Unsqueeze", 11, forms, MP_COUNT_OF(forms));
}

DEVICE_TEST(flatten_rules) {
    static const struct {
        int64_t axis;
        form f;
    } forms[] = {
        {1, {3, {2, 3, 4}, 0, {0}, 2, {2, 12}, NULL}},
        {0, {3, {2, 3, 4}, 0, {0}, 2, {1, 24}, NULL}},
        {3, {3, {2, 3, 4}, 0, {0}, 2, {24, 1}, NULL}},
        {-1, {3, {2, 3, 4}, 0, {0}, 2, {6, 4}, NULL}},
        {0, {0, {0}, 0, {0}, 2, {1, 1}, NULL}},
        {4, {3, {2, 3, 4}, 0, {0}, 0, {0}, "axis 4 is outside [-3, 3]"}},
    };
    for (size_t k = 0; k < MP_COUNT_OF(forms); k++) {
        const mp_attr attrs[] = {OP_INT("axis", forms[k].axis)};
        op_case c = {
            .name = "Flatten", .version = 13, .attrs = attrs, .attr_count = 1, .in_count = 1};
        check_form(device, &c, &forms[k].f);
    }
}

DEVICE_TEST(identity_of_every_type) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        op_case c = {.name = "Identity",
                     .version = 14,
                     .in = {OP_TENSOR(op_types[t], elements, 3, 5)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        CHECK(c.out[0].type == op_types[t]);
        CHECK(op_same(&c.out[0], elements));
        op_close(device, &c);
    }
}

DEVICE_TEST(shape_and_size_are_on_the_host) {
    static const struct {
        int64_t start, end;
        int count;
        int64_t want[3];
    } forms[] = {{0, 3, 3, {2, 3, 4}}, {1, 3, 2, {3, 4}}, {-1, 99, 1, {4}},
                 {0, -1, 2, {2, 3}},   {2, 1, 0, {0}},    {-99, 1, 1, {2}}};
    op_case c = {.version = 15, .in = {op_f32(elements, 2, 3, 4)}, .in_count = 1, .out_count = 1};
    for (size_t k = 0; k < MP_COUNT_OF(forms); k++) {
        const mp_attr attrs[] = {OP_INT("start", forms[k].start), OP_INT("end", forms[k].end)};
        c.name = "Shape";
        c.attrs = attrs;
        c.attr_count = 2;
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].shape.rank, 1);
        CHECK_EQ_INT(c.out[0].shape.dim[0], forms[k].count);
        CHECK(op_same(&c.out[0], forms[k].want));
        op_close(device, &c);
    }
    c.name = "Size";
    c.attr_count = 0;
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.rank, 0);
    CHECK_EQ_INT(*(const int64_t *)c.out[0].data, 24);
    op_close(device, &c);
}
