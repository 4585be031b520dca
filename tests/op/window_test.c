/* window_test.c - where windows lie, against counting them one by one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/signal_window.h"

#include "op/op_test.h"
#include "unit/test.h"

/* Windows by counting: each begins a stride after the last, from -pad_begin on. */
static int64_t counted(const mp_window *w, int64_t in, bool ceil_mode) {
    const int64_t extent = w->dilation[0] * (w->kernel[0] - 1) + 1;
    const int64_t end = in + w->pad_end[0];
    int64_t count = 0;
    for (int64_t at = -w->pad_begin[0];; at += w->stride[0]) {
        const bool whole = at + extent <= end;
        /* The last window of ceil_mode hangs over the end but begins before it. */
        const bool part = ceil_mode && at < in && at + extent < end + w->stride[0];
        if (!whole && !part) {
            return count;
        }
        if (ceil_mode && at >= in) {
            return count;
        }
        count++;
    }
}

/* The next digit, below `base`, of what `*code` counts through. */
static int64_t digit(int64_t *code, int64_t base) {
    const int64_t found = *code % base;
    *code /= base;
    return found;
}

TEST(windows_slide_as_counted) {
    for (int64_t code = 0; code < 8 * 4 * 3 * 3 * 3 * 3 * 2; code++) {
        int64_t rest = code;
        const int64_t in = 1 + digit(&rest, 8);
        mp_window w = {.spatial = 1, .kernel = {1 + digit(&rest, 4)}};
        w.stride[0] = 1 + digit(&rest, 3);
        w.dilation[0] = 1 + digit(&rest, 3);
        w.pad_begin[0] = digit(&rest, 3);
        w.pad_end[0] = digit(&rest, 3);
        const bool ceil_mode = rest != 0;
        if (ceil_mode && w.pad_end[0] >= mp_window_extent(&w, 0)) {
            continue; /* whole windows of padding, which pools refuse */
        }
        int64_t out = -1;
        int64_t over = -1;
        const int64_t beyond = mp_window_extent(&w, 0) - (in + w.pad_begin[0] + w.pad_end[0]);
        const int64_t want = beyond > 0 ? 0 : counted(&w, in, ceil_mode);
        if (!ceil_mode) {
            CHECK_EQ_INT(mp_window_slide(&w, &in, &out) == MP_OK, want > 0);
            CHECK(want == 0 || out == want);
        }
        /* One that is too large by less than a stride counts, by less than two gives nothing. */
        CHECK_EQ_INT(mp_window_slide_over(&w, &in, ceil_mode, &over) == MP_OK,
                     beyond < 2 * w.stride[0]);
        if (beyond < 2 * w.stride[0]) {
            CHECK_EQ_INT(over, beyond <= 0 ? want : beyond < w.stride[0]);
        }
    }
}

TEST(windows_of_same_padding_cover_the_input) {
    for (int64_t code = 0; code < 12 * 5 * 4 * 3 * 2; code++) {
        int64_t rest = code;
        const int64_t in = 1 + digit(&rest, 12);
        mp_window w = {.spatial = 1, .kernel = {1 + digit(&rest, 5)}};
        w.stride[0] = 1 + digit(&rest, 4);
        w.dilation[0] = 1 + digit(&rest, 3);
        const bool upper = rest != 0;
        w.auto_pad = upper ? MP_PAD_SAME_UPPER : MP_PAD_SAME_LOWER;
        int64_t out = -1;
        CHECK_OK(mp_window_slide(&w, &in, &out));
        CHECK_EQ_INT(out, (in + w.stride[0] - 1) / w.stride[0]);
        const int64_t odd = upper ? w.pad_end[0] - w.pad_begin[0] : w.pad_begin[0] - w.pad_end[0];
        CHECK(odd == 0 || odd == 1);
    }
}

static mp_status read_with(const mp_attr *attrs, size_t count, int spatial, const int64_t *kernel,
                           mp_window *out) {
    const mp_node node = {.op = mp_op_find("", "Conv", 22), .attrs = attrs, .attr_count = count};
    return mp_window_read(&node, spatial, kernel, out);
}

TEST(window_attributes_are_read) {
    const mp_attr attrs[] = {OP_INTS("strides", 2, 3), OP_INTS("dilations", 1, 2),
                             OP_INTS("pads", 1, 2, 3, 4), OP_INTS("kernel_shape", 5, 7)};
    mp_window w;
    CHECK_OK(read_with(attrs, MP_COUNT_OF(attrs), 2, NULL, &w));
    CHECK(w.stride[1] == 3 && w.dilation[1] == 2 && w.kernel[1] == 7 && w.pad_begin[1] == 2 &&
          w.pad_end[0] == 3 && w.pad_end[1] == 4);
    CHECK_EQ_INT(mp_window_extent(&w, 1), 13);
    const mp_attr valid[] = {OP_TEXT("auto_pad", "VALID"), OP_INTS("pads", 1, 1)};
    CHECK_OK(read_with(valid, 2, 1, (const int64_t[]){3}, &w));
    CHECK(w.pad_begin[0] == 0 && w.pad_end[0] == 0 && w.stride[0] == 1 && w.dilation[0] == 1);
}

TEST(window_attributes_are_checked) {
    const int64_t kernel[] = {3};
    const struct {
        mp_attr attr;
        mp_status status;
        const char *part;
    } rows[] = {
        {OP_INTS("strides", 0), MP_INVALID_ARGUMENT, "strides has the value 0"},
        {OP_INTS("strides", -1), MP_INVALID_ARGUMENT, "strides has the value -1"},
        {OP_INTS("strides", 1, 1), MP_INVALID_ARGUMENT, "strides has 2 values where 1 are needed"},
        {OP_INTS("strides", INT64_MAX), MP_INVALID_ARGUMENT, "strides has the value 92"},
        {OP_INTS("dilations", 0), MP_INVALID_ARGUMENT, "dilations"},
        {OP_INTS("pads", INT64_MIN, 0), MP_INVALID_ARGUMENT, "pads"},
        {OP_INTS("pads", -1, 0), MP_UNSUPPORTED, "negative padding"},
        {OP_INTS("pads", 1), MP_INVALID_ARGUMENT, "pads has 1 values where 2"},
        {OP_INTS("kernel_shape", 4), MP_INVALID_ARGUMENT, "kernel_shape says 4"},
        {OP_TEXT("auto_pad", "SIDEWAYS"), MP_INVALID_ARGUMENT, "auto_pad 'SIDEWAYS'"},
    };
    mp_window w;
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        CHECK_EQ_INT(read_with(&rows[i].attr, 1, 1, kernel, &w), rows[i].status);
        CHECK_STR_HAS(mp_error_message(), rows[i].part);
    }
    CHECK_FAILS(read_with(NULL, 0, 1, (const int64_t[]){0}, &w), INVALID_ARGUMENT, "kernel_shape");
    CHECK_FAILS(read_with(NULL, 0, 4, kernel, &w), UNSUPPORTED, "4 spatial dimensions");
    CHECK_FAILS(read_with(NULL, 0, 1, NULL, &w), INVALID_ARGUMENT, "kernel_shape has the value 0");
}

TEST(windows_at_the_limits_do_not_overflow) {
    const int64_t most = 1 << 30;
    const mp_attr attrs[] = {OP_INTS("strides", 1 << 30), OP_INTS("dilations", 1 << 30),
                             OP_INTS("pads", 1 << 30, 1 << 30)};
    int64_t out = 0;
    mp_window w;
    CHECK_OK(read_with(attrs, 3, 1, &most, &w));
    CHECK_FAILS(mp_window_slide(&w, &(int64_t){1}, &out), INVALID_ARGUMENT, "does not fit");
    CHECK_FAILS(mp_window_slide_over(&w, &(int64_t){1}, true, &out), INVALID_ARGUMENT,
                "does not fit");
    CHECK_FAILS(mp_window_slide(&w, &(int64_t){(int64_t)1 << 60}, &out), INVALID_ARGUMENT,
                "spatial dimension 0 has");
    w.auto_pad = MP_PAD_SAME_LOWER;
    CHECK_OK(mp_window_slide(&w, &(int64_t){(int64_t)1 << 31}, &out));
    CHECK_EQ_INT(out, 2);
}
