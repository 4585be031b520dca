/* host_conv.c - convolutions on the CPU, forward.
 *
 * An image and a group become a matrix product: the weights [channels, taps] times the taps of
 * every output point [taps, points]. The second matrix is built a panel of points at a time, small
 * enough for the cache, in the thread's scratch memory; panels are what the workers share. A
 * convolution with one input channel a group, and few output channels, is too thin for that and is
 * summed tap by tap.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_conv.h"

#include "base/worker.h"

#include <string.h>

enum {
    PANEL_BYTES = 1 << 20, /* of the matrix built for one panel */
    STEP = 16,             /* panels begin at multiples of it */
    FILTERS_MIN = 8,       /* of one channel, for which its taps are worth being found once */
};

#define SMALL_WORK 65536.0 /* multiplications */

static bool is_pointwise(const conv_shape *s) {
    for (int i = 0; i < 3; i++) {
        if (s->kernel[i] != 1 || s->stride[i] != 1 || s->pad[i] != 0 || s->in[i] != s->out[i]) {
            return false;
        }
    }
    return true;
}

/* ---- the taps of a panel ---- */

typedef struct row {   /* one channel and one tap of it, for the points of a panel */
    const char *plane; /* of the channel */
    tap_range d, h, w;
} row;

/* Points [begin, end) of one line of the output. */
static void load_line(const conv_shape *s, const row *r, int64_t d, int64_t h, int64_t begin,
                      int64_t end, char *to) {
    const size_t real_size = s->real->real_size;
    int64_t first = begin, last = begin; /* the part that lies in the image */
    if (d >= r->d.begin && d < r->d.end && h >= r->h.begin && h < r->h.end) {
        first = MP_MAX(r->w.begin, begin);
        last = MP_MIN(r->w.end, end);
        if (first > last) {
            first = last = begin;
        }
    }
    memset(to, 0, (size_t)(first - begin) * real_size);
    if (first < last) {
        const int64_t z = d * s->stride[0] + r->d.offset, y = h * s->stride[1] + r->h.offset;
        const int64_t at = (z * s->in[1] + y) * s->in[2] + first * s->stride[2] + r->w.offset;
        s->real->load(to + (size_t)(first - begin) * real_size,
                      r->plane + (size_t)at * s->real->size, (size_t)(last - first),
                      (size_t)s->stride[2]);
    }
    memset(to + (size_t)(last - begin) * real_size, 0, (size_t)(end - last) * real_size);
}

static void load_row(const conv_shape *s, const row *r, int64_t begin, int64_t end, char *to) {
    const int64_t width = s->out[2];
    for (int64_t point = begin; point < end;) {
        const int64_t line = point / width, from = point % width;
        const int64_t left = end - point;
        const int64_t count = MP_MIN(width - from, left);
        load_line(s, r, line / s->out[1], line % s->out[1], from, from + count, to);
        to += (size_t)count * s->real->real_size;
        point += count;
    }
}

/* [group_in * taps, end - begin] of the channels at `x`. */
static void load_panel(const conv_shape *s, const char *x, int64_t begin, int64_t end, char *to) {
    const size_t row_bytes = (size_t)(end - begin) * s->real->real_size;
    for (int64_t channel = 0; channel < s->group_in; channel++) {
        for (int64_t tap = 0; tap < s->taps; tap++) {
            const int64_t w = tap % s->kernel[2], rest = tap / s->kernel[2];
            const row r = {
                .plane = x + (size_t)(channel * s->in_points) * s->real->size,
                .d = mp__host_conv_range(s, 0, rest / s->kernel[1]),
                .h = mp__host_conv_range(s, 1, rest % s->kernel[1]),
                .w = mp__host_conv_range(s, 2, w),
            };
            load_row(s, &r, begin, end, to);
            to += row_bytes;
        }
    }
}

/* ---- panels ---- */

typedef struct plan {
    conv_shape shape;
    const char *x, *w, *bias;
    char *y;
    int64_t panel, panels; /* points of a panel, and how many panels an image has */
    int64_t part, parts;   /* output channels of a task, and how many parts a group has */
    bool pointwise;        /* the image itself is the second matrix */
    atomic_bool failed;
} plan;

typedef struct task {
    int64_t batch, group, begin, end; /* points */
    int64_t channel, channels;        /* output channels, within the group */
} task;

static task find_task(const plan *p, int64_t index) {
    const conv_shape *s = &p->shape;
    task t = {0};
    t.begin = index % p->panels * p->panel;
    t.end = MP_MIN(t.begin + p->panel, s->out_points);
    index /= p->panels;
    t.channel = index % p->parts * p->part;
    t.channels = MP_MIN(s->group_out - t.channel, p->part);
    index /= p->parts;
    t.group = index % s->conv->groups;
    t.batch = index / s->conv->groups;
    return t;
}

/* Sums begin with the channel's bias. */
static void begin_sums(const plan *p, int64_t channel, char *sums, size_t count) {
    const host_real *real = p->shape.real;
    double value;
    if (p->bias != NULL) {
        real->load(&value, p->bias + (size_t)channel * real->size, 1, 1);
    }
    real->fill(sums, p->bias != NULL ? &value : NULL, count);
}

static void begin_task(const plan *p, const task *t, char *sums, int64_t pitch) {
    const int64_t first = t->group * p->shape.group_out + t->channel;
    for (int64_t i = 0; p->bias != NULL && i < t->channels; i++) {
        begin_sums(p, first + i, sums + (size_t)(i * pitch) * p->shape.real->real_size,
                   (size_t)(t->end - t->begin));
    }
}

static void finish_task(const plan *p, const task *t, const char *sums, char *y) {
    const conv_shape *s = &p->shape;
    const size_t points = (size_t)(t->end - t->begin);
    for (int64_t i = 0; !s->real->direct && i < t->channels; i++) {
        s->real->store(y + (size_t)(i * s->out_points) * s->real->size,
                       sums + (size_t)i * points * s->real->real_size, points);
    }
}

static void run_task(plan *p, const task *t) {
    const conv_shape *s = &p->shape;
    const int64_t points = t->end - t->begin, depth = s->group_in * s->taps;
    const size_t real_size = s->real->real_size;
    const size_t panel_size = p->pointwise ? 0 : (size_t)(depth * points) * real_size;
    const size_t sums_size = s->real->direct ? 0 : (size_t)(t->channels * points) * real_size;
    const int64_t in_channel = t->batch * s->conv->in_channels + t->group * s->group_in;
    const int64_t out_channel = t->group * s->group_out + t->channel;
    const char *x = p->x + (size_t)(in_channel * s->in_points) * s->real->size;
    char *y = p->y + (size_t)((t->batch * s->conv->out_channels + out_channel) * s->out_points +
                              t->begin) *
                         s->real->size;
    char *scratch = mp__host_scratch(panel_size + sums_size + 1); /* 1: never of no size */
    if (scratch == NULL) {
        atomic_store(&p->failed, true);
        return;
    }
    if (!p->pointwise) {
        load_panel(s, x, t->begin, t->end, scratch);
    }
    char *sums = s->real->direct ? y : scratch + panel_size;
    const int64_t pitch = s->real->direct ? s->out_points : points;
    begin_task(p, t, sums, pitch);
    s->real->product(&(host_product){
        .m = t->channels,
        .n = points,
        .k = depth,
        .lda = depth,
        .ldb = p->pointwise ? s->out_points : points,
        .ldc = pitch,
        .a = p->w + (size_t)(out_channel * depth) * real_size,
        .b = p->pointwise ? x + (size_t)t->begin * real_size : scratch,
        .c = sums,
        .alpha = 1.0F,
        .beta = p->bias != NULL ? 1.0F : 0.0F,
    });
    finish_task(p, t, sums, y);
}

static void run_tasks(void *context, size_t begin, size_t end) {
    plan *p = context;
    for (size_t i = begin; i < end; i++) {
        const task t = find_task(p, (int64_t)i);
        run_task(p, &t);
    }
}

/* Whether one thread does it sooner than two. */
static bool is_small(const conv_shape *s) {
    const double sums = (double)s->out_points * (double)(s->conv->batch * s->conv->out_channels);
    return sums * (double)(s->group_in * s->taps) < SMALL_WORK;
}

/* Tasks that a thread takes at a time. */
static size_t piece_of(const conv_shape *s, size_t count) {
    return is_small(s) ? count : 1;
}

static void choose_panels(plan *p) {
    const conv_shape *s = &p->shape;
    const int64_t column_bytes = s->group_in * s->taps * (int64_t)s->real->real_size;
    const int64_t images = s->conv->batch * s->conv->groups;
    const int64_t wanted = is_small(s) ? 1 : (int64_t)mp_worker_count() * 2;
    const int64_t fitting = PANEL_BYTES / column_bytes, shared = s->out_points * images / wanted;
    const int64_t points = MP_MIN(fitting, shared) / STEP * STEP;
    p->panel = MP_MAX(points, STEP);
    p->panel = MP_MIN(p->panel, s->out_points);
    p->panels = MP_CEIL_DIV(s->out_points, p->panel);
    const int64_t parts = p->panels * images >= wanted ? 1 : wanted / (p->panels * images);
    p->part = MP_CEIL_DIV(s->group_out, parts);
    p->parts = MP_CEIL_DIV(s->group_out, p->part);
}

static void run_panels(plan *p) {
    const mp_conv *conv = p->shape.conv;
    p->pointwise = p->shape.real->direct && is_pointwise(&p->shape);
    choose_panels(p);
    const size_t count = (size_t)(conv->batch * conv->groups * p->parts * p->panels);
    mp_worker_run(count, piece_of(&p->shape, count), run_tasks, p);
}

/* ---- one input channel a group, and few output channels ---- */

static void add_tap(const conv_shape *s, const char *x, int64_t tap, const char *weight,
                    char *sums) {
    const size_t size = s->real->real_size;
    const tap_range d = mp__host_conv_range(s, 0, tap / s->kernel[2] / s->kernel[1]);
    const tap_range h = mp__host_conv_range(s, 1, tap / s->kernel[2] % s->kernel[1]);
    const tap_range w = mp__host_conv_range(s, 2, tap % s->kernel[2]);
    for (int64_t z = d.begin; z < d.end; z++) {
        for (int64_t y = h.begin; y < h.end; y++) {
            const int64_t in_line =
                (z * s->stride[0] + d.offset) * s->in[1] + y * s->stride[1] + h.offset;
            const int64_t from = in_line * s->in[2] + w.begin * s->stride[2] + w.offset;
            const int64_t to = (z * s->out[1] + y) * s->out[2] + w.begin;
            if (w.begin < w.end) {
                s->real->gather(sums + (size_t)to * size, 1, x + (size_t)from * size,
                                (size_t)s->stride[2], weight, (size_t)(w.end - w.begin));
            }
        }
    }
}

static void run_plane(plan *p, int64_t index) {
    const conv_shape *s = &p->shape;
    const int64_t out_channel = index % s->conv->out_channels;
    const int64_t batch = index / s->conv->out_channels;
    const size_t in_count = (size_t)s->in_points, out_count = (size_t)s->out_points;
    const size_t real_size = s->real->real_size;
    const char *x = p->x + (size_t)(batch * s->conv->groups + out_channel / s->group_out) *
                               in_count * s->real->size;
    char *y = p->y + (size_t)index * out_count * s->real->size;
    char *sums = y;
    if (!s->real->direct) {
        char *scratch = mp__host_scratch((in_count + out_count) * real_size);
        if (scratch == NULL) {
            atomic_store(&p->failed, true);
            return;
        }
        s->real->load(scratch, x, in_count, 1);
        x = scratch;
        sums = scratch + in_count * real_size;
    }
    begin_sums(p, out_channel, sums, out_count);
    for (int64_t tap = 0; tap < s->taps; tap++) {
        add_tap(s, x, tap, p->w + (size_t)(out_channel * s->taps + tap) * real_size, sums);
    }
    if (!s->real->direct) {
        s->real->store(y, sums, out_count);
    }
}

static void run_planes(void *context, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        run_plane(context, (int64_t)i);
    }
}

mp_status mp__host_conv_forward(const conv_shape *shape, const char *x, const char *w,
                                const char *bias, char *y) {
    plan p = {.shape = *shape, .x = x, .w = w, .bias = bias};
    p.y = y;
    if (p.shape.group_in == 1 && p.shape.group_out < FILTERS_MIN) {
        const size_t count = (size_t)(shape->conv->batch * shape->conv->out_channels);
        mp_worker_run(count, piece_of(shape, count), run_planes, &p);
    } else {
        run_panels(&p);
    }
    return atomic_load(&p.failed) ? mp__host_conv_no_scratch() : MP_OK;
}
