/* test_kernels.c - the kernels that tests of devices launch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test_kernels.h"

#include "device/host/host_lane.h"

static void affine_on_host(const void *packed) {
    const affine_args *a = packed;
    const struct k_lane here = k_lane;
    const int64_t begin = a->count * here.block.x / here.grid_dim.x;
    const int64_t end = a->count * (here.block.x + (int64_t)1) / here.grid_dim.x;
    for (int64_t i = begin; i < end; i++) {
        a->y[i] = a->x[i] * a->scale + a->shift;
    }
}

static void sum_on_host(const void *packed) {
    const sum_args *a = packed;
    const struct k_lane here = k_lane;
    const uint32_t lanes = here.block_dim.x, lane = here.thread.x;
    int64_t *parts = k_host_shared();
    for (int64_t row = here.block.x; row < a->rows; row += here.grid_dim.x) {
        int64_t sum = 0;
        for (int64_t i = lane; i < a->columns; i += lanes) {
            sum += a->x[row * a->columns + i];
        }
        parts[lane] = sum;
        k_host_barrier();
        for (uint32_t half = lanes / 2; half > 0; half /= 2) {
            if (lane < half) {
                parts[lane] += parts[lane + half];
            }
            k_host_barrier();
        }
        if (lane == 0) {
            a->y[row] = parts[0];
        }
        k_host_barrier();
    }
}

static const char affine_text[] =
    "struct affine_args { long long *y; const long long *x; long long count, scale, shift; };\n"
    "extern \"C\" __global__ void test_affine(const affine_args a) {\n"
    "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.count;\n"
    "         i += (long long)blockDim.x * gridDim.x) {\n"
    "        a.y[i] = a.x[i] * a.scale + a.shift;\n"
    "    }\n"
    "}\n";

static const char sum_text[] =
    "struct sum_args { long long *y; const long long *x; long long rows, columns; };\n"
    "extern __shared__ long long parts[];\n"
    "extern \"C\" __global__ void test_sum(const sum_args a) {\n"
    "    for (long long row = blockIdx.x; row < a.rows; row += gridDim.x) {\n"
    "        long long sum = 0;\n"
    "        for (long long i = threadIdx.x; i < a.columns; i += blockDim.x) {\n"
    "            sum += a.x[row * a.columns + i];\n"
    "        }\n"
    "        parts[threadIdx.x] = sum;\n"
    "        __syncthreads();\n"
    "        for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {\n"
    "            if (threadIdx.x < half) {\n"
    "                parts[threadIdx.x] += parts[threadIdx.x + half];\n"
    "            }\n"
    "            __syncthreads();\n"
    "        }\n"
    "        if (threadIdx.x == 0) {\n"
    "            a.y[row] = parts[0];\n"
    "        }\n"
    "        __syncthreads();\n"
    "    }\n"
    "}\n";

static const mp_source sources[] = {
    {.name = "test_affine.cu", .text = affine_text},
    {.name = "test_sum.cu", .text = sum_text},
    {.name = NULL, .text = NULL},
};
static const char *const no_defines[] = {NULL};

const mp_kernel_image test_affine_image = {
    .name = "test_affine",
    .source = "test_affine.cu",
    .defines = no_defines,
    .sources = sources,
    .host = affine_on_host,
};

const mp_kernel_image test_sum_image = {
    .name = "test_sum",
    .source = "test_sum.cu",
    .defines = no_defines,
    .sources = sources,
    .host = sum_on_host,
    .lanes = true,
};
