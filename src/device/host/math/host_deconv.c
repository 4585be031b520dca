/* host_deconv.c - transposed convolutions on the CPU.
 *
 * The transposed weights [channels * taps, inputs] times the image [inputs, points] say what each
 * input point adds to each tap of each output channel; these sums are scattered to the output. A
 * task does some output channels of one image, so that tasks never add to the same place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_conv.h"

#include "base/worker.h"

enum { PANEL_BYTES = 1 << 20 }; /* of one product */

typedef struct plan {
    const conv_shape *shape;
    const char *x, *w, *bias;
    char *y;
    int64_t part, parts; /* output channels of a task, and how many parts a group has */
    int64_t panel;       /* input points of one product */
    atomic_bool failed;
} plan;

typedef struct task {
    int64_t batch, group, channel, channels; /* channels within the group */
    char *image;                             /* computed input of a panel, or NULL */
    char *product;
    char *sums; /* computed output, [channels, out_points] */
} task;

/* Seen from the output, a transposed convolution is a forward one with the sides changed over. */
static tap_range range_of(const conv_shape *s, int axis, int64_t tap) {
    conv_shape turned = *s;
    turned.in[axis] = s->out[axis];
    turned.out[axis] = s->in[axis];
    return mp__host_conv_range(&turned, axis, tap);
}

/* Adds the points [begin, end) of the input, for one tap of one channel, to where they belong. */
static void scatter(const conv_shape *s, const char *from, int64_t begin, int64_t end, int64_t tap,
                    char *sums) {
    static const float one_f32 = 1.0F;
    static const double one_f64 = 1.0;
    const void *one = s->real->real_size == sizeof one_f64 ? (const void *)&one_f64 : &one_f32;
    const size_t size = s->real->real_size;
    const tap_range d = range_of(s, 0, tap / s->kernel[2] / s->kernel[1]);
    const tap_range h = range_of(s, 1, tap / s->kernel[2] % s->kernel[1]);
    const tap_range w = range_of(s, 2, tap % s->kernel[2]);
    for (int64_t point = begin; point < end;) {
        const int64_t line = point / s->in[2], x = point % s->in[2];
        const int64_t z = line / s->in[1], y = line % s->in[1];
        const int64_t stop = s->in[2] - x < end - point ? s->in[2] : x + end - point;
        const int64_t first = MP_MAX(w.begin, x), last = MP_MIN(w.end, stop);
        if (z >= d.begin && z < d.end && y >= h.begin && y < h.end && first < last) {
            const int64_t out_line =
                (z * s->stride[0] + d.offset) * s->out[1] + y * s->stride[1] + h.offset;
            const int64_t to = out_line * s->out[2] + first * s->stride[2] + w.offset;
            s->real->gather(sums + (size_t)to * size, (size_t)s->stride[2],
                            from + (size_t)(point - begin + first - x) * size, 1, one,
                            (size_t)(last - first));
        }
        point += stop - x;
    }
}

static void run_panel(const plan *p, const task *t, int64_t begin, int64_t end) {
    const conv_shape *s = p->shape;
    const size_t real_size = s->real->real_size;
    const int64_t points = end - begin, weights = s->group_out * s->taps;
    const int64_t in_channel = t->batch * s->conv->in_channels + t->group * s->group_in;
    const char *x = p->x + (size_t)(in_channel * s->in_points + begin) * s->real->size;
    for (int64_t i = 0; t->image != NULL && i < s->group_in; i++) {
        s->real->load(t->image + (size_t)(i * points) * real_size,
                      x + (size_t)(i * s->in_points) * s->real->size, (size_t)points, 1);
    }
    s->real->product(&(host_product){
        .trans_a = true,
        .m = t->channels * s->taps,
        .n = points,
        .k = s->group_in,
        .lda = weights,
        .ldb = t->image != NULL ? points : s->in_points,
        .ldc = points,
        .a = p->w + (size_t)(t->group * s->group_in * weights + t->channel * s->taps) * real_size,
        .b = t->image != NULL ? t->image : x,
        .c = t->product,
        .alpha = 1.0F,
    });
    for (int64_t i = 0; i < t->channels * s->taps; i++) {
        scatter(s, t->product + (size_t)(i * points) * real_size, begin, end, i % s->taps,
                t->sums + (size_t)(i / s->taps * s->out_points) * real_size);
    }
}

static bool open_task(plan *p, int64_t index, task *t) {
    const conv_shape *s = p->shape;
    t->channel = index % p->parts * p->part;
    t->channels = MP_MIN(s->group_out - t->channel, p->part);
    t->group = index / p->parts % s->conv->groups;
    t->batch = index / p->parts / s->conv->groups;
    const size_t real_size = s->real->real_size;
    const size_t product = (size_t)(t->channels * s->taps * p->panel) * real_size;
    const size_t image = s->real->direct ? 0 : (size_t)(s->group_in * p->panel) * real_size;
    const size_t sums = (size_t)(t->channels * s->out_points) * real_size;
    char *scratch = mp__host_scratch(product + image + sums);
    t->product = scratch;
    t->image = image > 0 ? scratch + product : NULL;
    t->sums = scratch + product + image;
    return scratch != NULL;
}

static void run_task(plan *p, int64_t index) {
    const conv_shape *s = p->shape;
    task t = {0};
    if (!open_task(p, index, &t)) {
        atomic_store(&p->failed, true);
        return;
    }
    const size_t points = (size_t)s->out_points;
    s->real->fill(t.sums, NULL, (size_t)t.channels * points);
    for (int64_t i = 0; i < s->in_points; i += p->panel) {
        run_panel(p, &t, i, MP_MIN(i + p->panel, s->in_points));
    }
    for (int64_t i = 0; i < t.channels; i++) {
        const int64_t channel = t.group * s->group_out + t.channel + i;
        const size_t plane = (size_t)(t.batch * s->conv->out_channels + channel);
        mp__host_conv_finish(s, p->bias, channel, p->y + plane * points * s->real->size,
                             t.sums + (size_t)i * points * s->real->real_size, points);
    }
}

static void run_tasks(void *context, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        run_task(context, (int64_t)i);
    }
}

static void choose_parts(plan *p) {
    const conv_shape *s = p->shape;
    const int64_t images = s->conv->batch * s->conv->groups;
    const int64_t wanted = (int64_t)mp_worker_count() * 2;
    const int64_t parts = images >= wanted ? 1 : MP_CEIL_DIV(wanted, images);
    p->part = MP_CEIL_DIV(s->group_out, parts);
    p->parts = MP_CEIL_DIV(s->group_out, p->part);
    const int64_t column_bytes = p->part * s->taps * (int64_t)s->real->real_size;
    p->panel = PANEL_BYTES / column_bytes;
    p->panel = MP_MAX(p->panel, 16);
    p->panel = MP_MIN(p->panel, s->in_points);
}

mp_status mp__host_conv_transposed(const conv_shape *shape, const char *x, const char *w,
                                   const char *bias, char *y) {
    plan p = {.shape = shape, .x = x, .w = w, .bias = bias};
    p.y = y;
    choose_parts(&p);
    mp_worker_run((size_t)(shape->conv->batch * shape->conv->groups * p.parts), 1, run_tasks, &p);
    return atomic_load(&p.failed) ? mp__host_conv_no_scratch() : MP_OK;
}
