/* op_test.c - runs one operator on a device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_test.h"

#include "op/core/kernel_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct on_device {
    mp_addr addr;
    size_t size;
} on_device;

op_tensor op_tensor_of(mp_dtype type, const void *data, int rank, const int64_t *dims) {
    op_tensor tensor = {.type = type, .shape = {.rank = rank}, .data = data};
    for (int d = 0; d < rank; d++) {
        tensor.shape.dim[d] = dims[d];
    }
    return tensor;
}

static size_t bytes_of(const op_tensor *tensor) {
    size_t bytes = 0;
    CHECK_OK(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    return bytes;
}

/* With what lies between rows. */
static size_t bytes_apart(const op_tensor *tensor, int64_t pitch) {
    const mp_shape *shape = &tensor->shape;
    return pitch == 0 ? bytes_of(tensor)
                      : (size_t)(mp_shape_span(shape, 0, shape->rank - 1) * pitch) *
                            mp_dtype_size(tensor->type);
}

static bool on_host(uint32_t mask, int i) {
    return (mask & 1u << i) != 0;
}

static const mp_op *row_of(const op_case *c) {
    const mp_op *op = mp_op_find(c->domain != NULL ? c->domain : "", c->name, c->version);
    if (op == NULL) {
        test_fail(__FILE__, __LINE__, "no row for %s version %d", c->name, c->version);
    }
    return op;
}

static mp_node node_of(const op_case *c) {
    return (mp_node){.op = row_of(c),
                     .version = c->version,
                     .name = "test",
                     .attrs = c->attrs,
                     .attr_count = c->attr_count,
                     .out_absent = c->out_absent,
                     .prepared = c->prepared,
                     .constants = c->constant,
                     .options = c->options};
}

static int32_t align_of(const op_case *c) {
    return c->align != 0 ? c->align : 16;
}

/* The first plan, or with `found` the second. */
static mp_status make_plan(mp_device *device, const op_case *c, const int64_t *found,
                           mp_plan **out) {
    const mp_node node = node_of(c);
    const mp_op *op = node.op;
    const int32_t align = align_of(c);
    mp_tensor in[OP_INPUTS];
    for (int i = 0; i < c->in_count; i++) {
        in[i] =
            (mp_tensor){.type = c->in[i].type, .shape = c->in[i].shape, .pitch = c->in_pitch[i]};
        if (on_host(op->host_in, i) && c->in[i].type != MP_NONE) {
            in[i].data = (mp_addr)c->in[i].data;
        }
    }
    return found != NULL
               ? mp_plan_finish(device, &node, in, c->in_count, c->out_count, align, found, out)
               : mp_plan_make_apart(device, &node, in, c->in_count, c->out_count, c->out_pitch,
                                    align, out);
}

mp_status op_plan(mp_device *device, const op_case *c, mp_plan **out) {
    return make_plan(device, c, NULL, out);
}

mp_status op_finish(mp_device *device, const op_case *c, const int64_t *found, mp_plan **out) {
    return make_plan(device, c, found, out);
}

void op_refuse_fused(mp_device *device, const char *expression, const mp_shape *in, int in_count,
                     mp_status want, const char *part) {
    const mp_attr text = OP_TEXT("expression", expression);
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "Fused",
                 .version = 1,
                 .attrs = &text,
                 .attr_count = 1,
                 .in_count = in_count,
                 .out_count = 1};
    mp_plan *plan = NULL;
    for (int i = 0; i < in_count; i++) {
        c.in[i] = (op_tensor){MP_F32, in[i], NULL};
    }
    CHECK_EQ_INT(op_plan(device, &c, &plan), want);
    CHECK_STR_HAS(mp_error_message(), part);
}

static on_device take(mp_device *device, size_t size) {
    on_device memory = {.size = size > 0 ? size : 1};
    CHECK_OK(device->ops->alloc(device, memory.size, &memory.addr));
    return memory;
}

/* Elements lie at multiples of their size in any case. */
static size_t skew_of(const op_case *c, const op_tensor *tensor) {
    const size_t size = mp_dtype_size(tensor->type);
    return size > 0 ? MP_ALIGN_UP(c->skew, size) : c->skew;
}

static on_device upload(mp_device *device, mp_stream *stream, const op_tensor *tensor,
                        int64_t pitch, size_t skew) {
    const size_t size = bytes_apart(tensor, pitch);
    const on_device memory = take(device, size + skew);
    if (size > 0) {
        CHECK_OK(
            device->ops->copy(device, stream, memory.addr + skew, (mp_addr)tensor->data, size));
    }
    return memory;
}

static void download(mp_device *device, mp_stream *stream, mp_addr from, int64_t pitch,
                     op_tensor *tensor) {
    const size_t size = bytes_apart(tensor, pitch);
    void *data = calloc(1, size + 1);
    CHECK(data != NULL);
    if (size > 0) {
        CHECK_OK(device->ops->copy(device, stream, (mp_addr)data, from, size));
    }
    tensor->data = data;
}

/* Puts input `i` into the form that its operator wants a constant in, if it wants another. */
static void prepare(mp_device *device, mp_stream *stream, op_case *c, int i, on_device *memory,
                    mp_addr *addr) {
    const mp_node node = node_of(c);
    mp_tensor in[OP_INPUTS] = {0};
    mp_addr in_addr[OP_INPUTS] = {0};
    mp_plan *plan = NULL;
    in[i] = (mp_tensor){.type = c->in[i].type, .shape = c->in[i].shape};
    in_addr[i] = *addr;
    CHECK_OK(mp_plan_prepare(device, &node, in, i, align_of(c), &plan));
    if (plan == NULL) {
        return;
    }
    const on_device made = take(device, bytes_of(&c->in[i]));
    CHECK_EQ_INT((int64_t)mp_plan_scratch_bytes(plan), 0);
    CHECK_OK(mp_plan_run(plan, stream, in_addr, &made.addr, 0));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    device->ops->free(device, memory->addr, memory->size);
    mp_plan_release(plan);
    *memory = made;
    *addr = made.addr;
    c->prepared |= 1u << i;
}

void op_run(mp_device *device, op_case *c) {
    const mp_op *op = row_of(c);
    mp_plan *plan = NULL;
    mp_stream *stream = NULL;
    on_device in[OP_INPUTS] = {{0, 0}};
    on_device out[OP_OUTPUTS] = {{0, 0}};
    mp_addr in_addr[OP_INPUTS] = {0};
    mp_addr out_addr[OP_OUTPUTS] = {0};
    CHECK_OK(device->ops->stream_create(device, &stream));
    c->prepared = 0;
    for (int i = 0; i < c->in_count; i++) {
        if (c->in[i].type != MP_NONE && !on_host(op->host_in, i)) {
            const size_t skew = skew_of(c, &c->in[i]);
            in[i] = upload(device, stream, &c->in[i], c->in_pitch[i], skew);
            in_addr[i] = in[i].addr + skew;
        } else {
            in_addr[i] = (mp_addr)c->in[i].data;
        }
        if (on_host(c->constant, i)) {
            prepare(device, stream, c, i, &in[i], &in_addr[i]);
        }
    }
    CHECK_OK(op_plan(device, c, &plan));
    mp_plan *counting = NULL;
    on_device kept = {0, 0};
    if (op->finish != NULL) {
        int64_t found[MP_FOUND_MAX] = {0};
        kept = take(device, mp_plan_scratch_bytes(plan));
        CHECK_OK(mp_plan_run_count(plan, stream, in_addr, kept.addr, found));
        counting = plan;
        CHECK_OK(op_finish(device, c, found, &plan));
    }
    for (int i = 0; i < c->out_count; i++) {
        const mp_tensor *declared = mp_plan_output_at(plan, i);
        c->out[i] = (op_tensor){.type = declared->type, .shape = declared->shape};
        if (on_host(c->out_absent, i)) {
            continue;
        }
        if (on_host(op->host_out, i)) {
            void *data = calloc(1, bytes_of(&c->out[i]) + 1);
            CHECK(data != NULL);
            c->out[i].data = data;
            out_addr[i] = (mp_addr)data;
        } else {
            const size_t skew = skew_of(c, &c->out[i]);
            out[i] = take(device, bytes_apart(&c->out[i], c->out_pitch[i]) + skew);
            out_addr[i] = out[i].addr + skew;
            CHECK_OK(device->ops->fill(device, stream, out[i].addr, OP_BETWEEN, 1, out[i].size));
        }
    }
    const on_device scratch = take(device, mp_plan_scratch_bytes(plan));
    CHECK_OK(mp_plan_run_finish(plan, stream, in_addr, out_addr, scratch.addr, kept.addr));
    for (int i = 0; i < c->out_count; i++) {
        if (!on_host(op->host_out | c->out_absent, i)) {
            download(device, stream, out_addr[i], c->out_pitch[i], &c->out[i]);
        }
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    for (int i = 0; i < OP_INPUTS; i++) {
        if (in[i].addr != 0) {
            device->ops->free(device, in[i].addr, in[i].size);
        }
    }
    for (int i = 0; i < OP_OUTPUTS; i++) {
        if (out[i].addr != 0) {
            device->ops->free(device, out[i].addr, out[i].size);
        }
    }
    device->ops->free(device, scratch.addr, scratch.size);
    if (kept.addr != 0) {
        device->ops->free(device, kept.addr, kept.size);
    }
    mp_plan_release(counting);
    mp_plan_release(plan);
    device->ops->stream_destroy(device, stream);
}

void op_close(mp_device *device, op_case *c) {
    for (int i = 0; i < c->out_count; i++) {
        free((void *)(uintptr_t)c->out[i].data);
        c->out[i].data = NULL;
    }
    mp_kernel_cache_drop(device);
}

float op_value(uint64_t seed, int64_t i) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + (uint64_t)i;
    return (float)((int)(test_random(&state) % 64) - 32) / 16.0f;
}

void op_check_close(double got, double want, double bound, const char *what, int64_t i) {
    if (isnan(want) ? isnan(got) : got == want) {
        return;
    }
    const double scale = fabs(want) > 1 ? fabs(want) : 1;
    if (!(fabs(got - want) <= bound * scale)) {
        test_fail(__FILE__, __LINE__, "%s[%lld] is %.9g, not %.9g", what, (long long)i, got, want);
    }
}
