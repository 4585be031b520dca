/* relu_attention_test.c - attention without a softmax over an image's pixels, of heads in one image
 * or two.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct image {
    int64_t batch, height, width, size, heads, more; /* more: heads of the second image */
} image;

static double relu(double x) {
    return x < 0 ? 0 : x;
}

/* Element `at` of a head's query, key and value at a pixel. */
static double part(const image *m, mp_dtype type, void *const *x, int64_t pixel, int64_t head,
                   int64_t at) {
    const bool is_first = head < m->heads;
    const int64_t heads = is_first ? m->heads : m->more;
    const int64_t own = is_first ? head : head - m->heads;
    return op_real(type, x[!is_first], (pixel * heads + own) * 3 * m->size + at);
}

/* The result of one pixel and head; `keys` [size] and `matrix` [size][size] are those of its image.
 */
static void check_pixel(const image *m, mp_dtype type, void *const *x, const op_case *c,
                        int64_t pixel, int64_t head, const double *keys, const double *matrix) {
    for (int64_t j = 0; j < m->size; j++) {
        double sum = 0, weights = 0.25;
        for (int64_t i = 0; i < m->size; i++) {
            const double weight = relu(part(m, type, x, pixel, head, i));
            sum += weight * matrix[i * m->size + j];
            weights += weight * keys[i];
        }
        const int64_t at = (pixel * (m->heads + m->more) + head) * m->size + j;
        op_check_close(op_real(type, c->out[0].data, at), sum / weights, op_precision(type) + 1e-5,
                       "attended", at);
    }
}

static void check_head(const image *m, mp_dtype type, void *const *x, const op_case *c,
                       int64_t entry, int64_t head) {
    const int64_t pixels = m->height * m->width, size = m->size;
    double *keys = calloc((size_t)size, sizeof *keys);
    double *matrix = calloc((size_t)(size * size), sizeof *matrix);
    for (int64_t p = entry * pixels; p < (entry + 1) * pixels; p++) {
        for (int64_t i = 0; i < size; i++) {
            const double key = relu(part(m, type, x, p, head, size + i));
            keys[i] += key;
            for (int64_t j = 0; j < size; j++) {
                matrix[i * size + j] += key * part(m, type, x, p, head, 2 * size + j);
            }
        }
    }
    for (int64_t p = entry * pixels; p < (entry + 1) * pixels; p++) {
        check_pixel(m, type, x, c, p, head, keys, matrix);
    }
    free(keys);
    free(matrix);
}

static void check_image(mp_device *device, mp_dtype type, image m) {
    const int64_t each = m.batch * m.height * m.width * 3 * m.size;
    const mp_attr attrs[] = {OP_FLOAT("epsilon", 0.25f), OP_INT("size", m.size)};
    void *x[] = {op_numbers(type, 1, each * m.heads), op_numbers(type, 2, each * m.more)};
    op_case c = {.domain = MP_OWN_NHWC_DOMAIN,
                 .name = "ReluAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {OP_TENSOR(type, x[0], m.batch, m.height, m.width, m.heads * 3 * m.size),
                        OP_TENSOR(type, x[1], m.batch, m.height, m.width, m.more * 3 * m.size)},
                 .in_count = m.more > 0 ? 2 : 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[3], (m.heads + m.more) * m.size);
    for (int64_t entry = 0; m.height > 0 && entry < m.batch; entry++) {
        for (int64_t head = 0; head < m.heads + m.more; head++) {
            check_head(&m, type, x, &c, entry, head);
        }
    }
    op_close(device, &c);
    free(x[0]);
    free(x[1]);
}

DEVICE_TEST(relu_attention_of_images) {
    check_image(device, MP_F32, (image){1, 7, 7, 16, 2, 2});
    check_image(device, MP_F16, (image){2, 5, 3, 16, 1, 2});
    check_image(device, MP_BF16, (image){1, 4, 4, 16, 3, 0});
    check_image(device, MP_F32, (image){2, 3, 5, 32, 1, 1});
    check_image(device, MP_F16, (image){1, 1, 1, 32, 2, 0});
    check_image(device, MP_F16, (image){1, 23, 25, 16, 1, 0});
    check_image(device, MP_F32, (image){1, 0, 7, 16, 1, 1});
    check_image(device, MP_F32, (image){0, 2, 2, 16, 1, 0});
}

DEVICE_TEST(relu_attention_refuses_what_does_not_fit) {
    float x[96] = {0};
    mp_plan *plan = NULL;
    const mp_attr size = OP_INT("size", 16), other = OP_INT("size", 8);
    op_case c = {.domain = MP_OWN_NHWC_DOMAIN,
                 .name = "ReluAttention",
                 .version = 1,
                 .attrs = &size,
                 .attr_count = 1,
                 .in = {op_f32(x, 1, 1, 2, 47)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "heads of 48 are wanted");
    c.attrs = &other;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "heads of 8 elements");
}
