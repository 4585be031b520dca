/* cuda_glue.c - text and launch of the small kernels of cuda_glue.h.
 *
 * Their text lives here and not in the kernel layer, which is above the devices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_glue.h"

#include "device/cuda/cuda_jit.h"

#define TEXT(...)    TEXT_OF(__VA_ARGS__)
#define TEXT_OF(...) #__VA_ARGS__
enum { LANES = 256, BLOCKS_MAX = 4096, BLOCKS_Y_MAX = 65535 };

/* G_NAME, G_KIND (as glue_kind) and G_TYPE (as mp_dtype) come from the image. A is the type of
 * arithmetic; T is what lies in memory. */
static const char source_text[] =
    "#if G_TYPE == 10\n"
    "typedef unsigned short T; typedef float A;\n"
    "static A load(T x) { A y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x)); return y; }\n"
    "static T store(A x) {\n"
    "    T y; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x)); return y;\n"
    "}\n"
    "#elif G_TYPE == 16\n"
    "typedef unsigned short T; typedef float A;\n"
    "static A load(T x) { return __uint_as_float((unsigned)x << 16); }\n"
    "static T store(A x) {\n"
    "    const unsigned u = __float_as_uint(x);\n"
    "    if ((u & 0x7fffffffu) > 0x7f800000u) { return (T)(u >> 16 | 0x40u); }\n"
    "    return (T)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);\n"
    "}\n"
    "#else\n"
    "#if G_TYPE == 11\n"
    "typedef double T; typedef double A;\n"
    "#else\n"
    "typedef float T; typedef float A;\n"
    "#endif\n"
    "static A load(T x) { return x; }\n"
    "static T store(A x) { return x; }\n"
    "#endif\n"
    "typedef long long wide;\n" TEXT(GLUE_ROWS_ARGS) "\n" TEXT(
        GLUE_WINDOW_ARGS) "\n"
                          "#if G_KIND == 0\n"
                          "extern \"C\" __global__ void G_NAME(const glue_rows_args a) {\n"
                          "    T *c = (T *)a.c; const T *d = (const T *)a.d; const T *bias = "
                          "(const T *)a.bias;\n"
                          "    const wide count = a.batch * a.m * a.n;\n"
                          "    const wide step = (wide)gridDim.x * blockDim.x;\n"
                          "    for (wide i = (wide)blockIdx.x * blockDim.x + threadIdx.x; i < "
                          "count; i += step) {\n"
                          "        const wide row = i / a.n, j = i - row * a.n, b = row / a.m;\n"
                          "        const wide at = b * a.stride + (row - b * a.m) * a.ldc + j;\n"
                          "        A value = d ? (A)a.beta * load(d[at]) : (A)0;\n"
                          "        if (bias) { value += load(bias[j]); }\n"
                          "        c[at] = store(value);\n"
                          "    }\n"
                          "}\n"
                          "#else\n"
                          "extern \"C\" __global__ void G_NAME(const glue_window_args a) {\n"
                          "    const unsigned h = (unsigned)a.y_size[1], w = "
                          "(unsigned)a.y_size[2];\n"
                          "    const unsigned size = (unsigned)a.y_size[0] * h * w;\n"
                          "    const wide x_plane = a.x_size[0] * a.x_size[1] * a.x_size[2];\n"
                          "    for (wide p = blockIdx.y; p < a.planes; p += gridDim.y) {\n"
                          "        const T *x = (const T *)a.x + p * x_plane;\n"
                          "        T *y = (T *)a.y + p * size;\n"
                          "        const T *biases = (const T *)a.bias;\n"
                          "        const bool whole = biases && !a.channels_last;\n"
                          "        const A bias = whole ? load(biases[p % a.channels]) : (A)0;\n"
                          "        for (unsigned o = blockIdx.x * blockDim.x + threadIdx.x; o < "
                          "size;\n"
                          "             o += gridDim.x * blockDim.x) {\n"
                          "            A value = 0;\n"
                          "            if (a.in_place) {\n"
                          "                value = load(y[o]);\n"
                          "            } else {\n"
                          "                const unsigned r = o / w;\n"
                          "                const wide i0 = r / h + a.offset[0], i1 = r % h + "
                          "a.offset[1];\n"
                          "                const wide i2 = o % w + a.offset[2];\n"
                          "                if (i0 >= 0 && i0 < a.x_size[0] && i1 >= 0 && i1 < "
                          "a.x_size[1] &&\n"
                          "                    i2 >= 0 && i2 < a.x_size[2]) {\n"
                          "                    value = load(x[(i0 * a.x_size[1] + i1) * "
                          "a.x_size[2] + i2]);\n"
                          "                }\n"
                          "            }\n"
                          "            value += bias;\n"
                          "            if (biases && a.channels_last) {\n"
                          "                value += load(biases[o % (unsigned)a.channels]);\n"
                          "            }\n"
                          "            y[o] = store(value);\n"
                          "        }\n"
                          "    }\n"
                          "}\n"
                          "#endif\n";

static const mp_source sources[] = {{"cuda/glue.cu", source_text}, {NULL, NULL}};

#define DEFINES(kind, kind_word, type, word)                                                 \
    static const char *const kind_word##_##word[] = {"G_NAME=mp_cuda_" #kind_word "_" #word, \
                                                     "G_KIND=" kind, "G_TYPE=" type, NULL};
DEFINES("0", rows, "1", f32)
DEFINES("0", rows, "11", f64)
DEFINES("0", rows, "10", f16)
DEFINES("0", rows, "16", bf16)
DEFINES("1", window, "1", f32)
DEFINES("1", window, "11", f64)
DEFINES("1", window, "10", f16)
DEFINES("1", window, "16", bf16)

enum { TYPE_COUNT = 4 };
static const mp_dtype types[TYPE_COUNT] = {MP_F32, MP_F64, MP_F16, MP_BF16};

#define IMAGE(kind_word, word)                                                                 \
    {                                                                                          \
        .name = "mp_cuda_" #kind_word "_" #word, .source = "cuda/glue.cu", .sources = sources, \
        .defines = kind_word##_##word                                                          \
    }
static const mp_kernel_image images[GLUE_KINDS * TYPE_COUNT] = {
    IMAGE(rows, f32),   IMAGE(rows, f64),   IMAGE(rows, f16),   IMAGE(rows, bf16),
    IMAGE(window, f32), IMAGE(window, f64), IMAGE(window, f16), IMAGE(window, bf16),
};

const mp_kernel_image *mp__cuda_own_images(size_t *count) {
    *count = MP_COUNT_OF(images);
    return images;
}

mp_status mp__cuda_glue_load(cuda_device *device, glue_kind kind, mp_dtype type, mp_kernel **out) {
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (types[i] == type) {
            return mp__cuda_kernel_load(&device->base, &images[(size_t)kind * TYPE_COUNT + i], out);
        }
    }
    return MP_FAIL(UNSUPPORTED, "library math has no element type %s", mp_dtype_name(type));
}

static uint32_t blocks_for(int64_t count, int64_t lanes, int64_t most) {
    const int64_t blocks = MP_CEIL_DIV(count, lanes);
    return (uint32_t)(blocks < 1 ? 1 : MP_MIN(blocks, most));
}

mp_status mp__cuda_glue_rows(cuda_device *device, mp_stream *stream, const mp_kernel *kernel,
                             const glue_rows_args *args) {
    const mp_grid grid = {.blocks = blocks_for(args->batch * args->m * args->n, LANES, BLOCKS_MAX),
                          .lanes = LANES};
    return mp__cuda_launch(&device->base, stream, kernel, grid, args, sizeof *args);
}

mp_status mp__cuda_glue_window(cuda_device *device, mp_stream *stream, const mp_kernel *kernel,
                               const glue_window_args *args) {
    const int64_t size = args->y_size[0] * args->y_size[1] * args->y_size[2];
    const uint32_t lanes = size < LANES ? (uint32_t)(size + 31) / 32 * 32 : LANES;
    const mp_grid grid = {.blocks = blocks_for(size, lanes, BLOCKS_MAX),
                          .blocks_y = blocks_for(args->planes, 1, BLOCKS_Y_MAX),
                          .lanes = lanes};
    return mp__cuda_launch(&device->base, stream, kernel, grid, args, sizeof *args);
}
