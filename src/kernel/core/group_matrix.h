/* group_matrix.h - products of 64 rows by the tensor cores of a group of four warps, whose right
 * operands are read from shared memory: twice as fast as those of one warp (warp_matrix.h), and
 * they go on while a lane works. Only where K_GROUP_MATRIX is 1: GPUs of compute capability 9.0,
 * for which the text is compiled with what they alone have. All 128 lanes of a group take part.
 *
 * Of the left operand and of the sums warp w of the group has rows 16 w to 16 w + 15, laid out over
 * its lanes as warp_matrix.h says for A and C; eight columns of sums after eight others.
 *
 * A right operand lies in lines of 128 bytes, a group of eight lines at a multiple of 1,024 bytes,
 * piece p of 16 bytes of line l at place p ^ l % 8. Lines are its columns, 32 bytes along k taken
 * at a time, or ("rows", of two-byte elements only) what up to 64 columns have of one k, 16 at a
 * time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GROUP_MATRIX_H
#define MP_KERNEL_GROUP_MATRIX_H

#include "kernel/core/prelude.h"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define K_GROUP_MATRIX 0
#else
#define K_GROUP_MATRIX       1

/* What the group's warps have in common, so that the compiler knows. */
K_FN int32_t k_group_number(void) {
    return __shfl_sync(0xffffffffU, (int32_t)threadIdx.x / 128, 0);
}

/* The lanes of the first group or the second meet, and nobody else. */
K_FN void k_group_meet(int32_t group) {
    if (group == 0) {
        asm volatile("bar.sync 1, 128;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 128;" ::: "memory");
    }
}

/* Lanes meet at one of 15 places, numbers 1 to 15, at which `lanes` of them, of whole warps,
 * arrive: some wait there, some do not. What a lane has stored before is seen behind the wait. */
K_FN void k_place_wait(int32_t place, int32_t lanes) {
    asm volatile("bar.sync %0, %1;" ::"r"(place), "r"(lanes) : "memory");
}
K_FN void k_place_pass(int32_t place, int32_t lanes) {
    asm volatile("bar.arrive %0, %1;" ::"r"(place), "r"(lanes) : "memory");
}

/* What was copied to shared memory before may be read by products behind. */
K_FN void k_group_copies_seen(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Where products find a right operand that begins at `place`, and how they step through it. */
K_FN uint64_t k_group_operand(uint32_t place) {
    const uint64_t eight_lines = 1024 >> 4, in_turn = 1;
    return (place & 0x3ffff) >> 4 | in_turn << 16 | eight_lines << 32 | in_turn << 62;
}

/* What was written to the sums and left operands before is seen by the products behind. */
K_FN void k_group_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The products since the last call become a batch. */
K_FN void k_group_batch(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits for all batches of the group; and for all but the last one. */
K_FN void k_group_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

K_FN void k_group_wait_but_one(void) {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/* What stands behind comes no sooner than the value is known: the compiler would put a wait for
 * products in front of all that they were to go on beside. It does not move that over a loop, which
 * this is for one value of them all, and then of one turn. */
K_FN void k_group_hold(uint32_t value) {
    K_ONE_COPY while (value == 0x9e3779b9U) {
        asm volatile("nanosleep.u32 0;");
        value++;
    }
}

/* Of the registers that lanes of the group have, all but `count` become free for the block's other
 * groups; and one waits until its lanes have `count`. Constants, multiples of 8, of kernels whose
 * lanes and blocks are bounded; the compiler keeps to them behind. */
#define K_GROUP_LEAVE(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
#define K_GROUP_TAKE(count)  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))

/* Waits for all products of the group. */
K_FN void k_group_end(void) {
    k_group_batch();
    k_group_wait();
}

#define K_SUMS_8(c)                                                                     \
    "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3]), "+f"((c)[4]), "+f"((c)[5]), \
        "+f"((c)[6]), "+f"((c)[7])
#define K_SUMS_16(c) K_SUMS_8(c), K_SUMS_8((c) + 8)
#define K_SUMS_24(c) K_SUMS_16(c), K_SUMS_8((c) + 16)
#define K_SUMS_32(c) K_SUMS_16(c), K_SUMS_16((c) + 16)

/* k_group_<name>_<columns>(c, a, b): c += a b; `shape`, `types` and `how` are the instruction's. */
#define K_GROUP_PRODUCT_32(name, shape, types, how)                                       \
    K_FN void k_group_##name##_32(float *c, const uint32_t *a, uint64_t b) {              \
        asm volatile("{ .reg .pred adds;\n"                                               \
                     "setp.eq.u32 adds, 0, 0;\n"                                          \
                     "wgmma.mma_async.sync.aligned.m64n32" shape ".f32." types " "        \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                     "%15}, {%16, %17, %18, %19}, %20, adds, 1, 1" how "; }"              \
                     : K_SUMS_16(c)                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));               \
    }
#define K_GROUP_PRODUCT_48(name, shape, types, how)                                       \
    K_FN void k_group_##name##_48(float *c, const uint32_t *a, uint64_t b) {              \
        asm volatile("{ .reg .pred adds;\n"                                               \
                     "setp.eq.u32 adds, 0, 0;\n"                                          \
                     "wgmma.mma_async.sync.aligned.m64n48" shape ".f32." types " "        \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                     "%15, %16, %17, %18, %19, %20, %21, %22, %23}, "                     \
                     "{%24, %25, %26, %27}, %28, adds, 1, 1" how "; }"                    \
                     : K_SUMS_24(c)                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));               \
    }
#define K_GROUP_PRODUCT_64(name, shape, types, how)                                         \
    K_FN void k_group_##name##_64(float *c, const uint32_t *a, uint64_t b) {                \
        asm volatile("{ .reg .pred adds;\n"                                                 \
                     "setp.eq.u32 adds, 0, 0;\n"                                            \
                     "wgmma.mma_async.sync.aligned.m64n64" shape ".f32." types " "          \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "   \
                     "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "    \
                     "%28, %29, %30, %31}, {%32, %33, %34, %35}, %36, adds, 1, 1" how "; }" \
                     : K_SUMS_32(c)                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                 \
    }

#define K_SUMS_48(c) K_SUMS_32(c), K_SUMS_16((c) + 32)
#define K_SUMS_64(c) K_SUMS_32(c), K_SUMS_32((c) + 32)
#define K_SUMS_96(c) K_SUMS_64(c), K_SUMS_32((c) + 64)
#define K_GROUP_PRODUCT_96(name, shape, types, how)                                \
    K_FN void k_group_##name##_96(float *c, const uint32_t *a, uint64_t b) {       \
        asm volatile("{ .reg .pred adds;\n"                                        \
                     "setp.eq.u32 adds, 0, 0;\n"                                   \
                     "wgmma.mma_async.sync.aligned.m64n96" shape ".f32." types " " \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "    \
                     "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "     \
                     "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "     \
                     "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "     \
                     "%46, %47}, "                                                 \
                     "{%48, %49, %50, %51}, %52, adds, 1, 1" how "; }"             \
                     : K_SUMS_48(c)                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));        \
    }
#define K_GROUP_PRODUCT_128(name, shape, types, how)                                \
    K_FN void k_group_##name##_128(float *c, const uint32_t *a, uint64_t b) {       \
        asm volatile("{ .reg .pred adds;\n"                                         \
                     "setp.eq.u32 adds, 0, 0;\n"                                    \
                     "wgmma.mma_async.sync.aligned.m64n128" shape ".f32." types " " \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "               \
                     "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "      \
                     "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, "      \
                     "%33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "      \
                     "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, "      \
                     "%55, %56, %57, %58, %59, %60, %61, %62, %63}, "               \
                     "{%64, %65, %66, %67}, %68, adds, 1, 1" how "; }"              \
                     : K_SUMS_64(c)                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));         \
    }

#define K_GROUP_PRODUCT_192(name, shape, types, how)                                \
    K_FN void k_group_##name##_192(float *c, const uint32_t *a, uint64_t b) {       \
        asm volatile("{ .reg .pred adds;\n"                                         \
                     "setp.eq.u32 adds, 0, 0;\n"                                    \
                     "wgmma.mma_async.sync.aligned.m64n192" shape ".f32." types " " \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "     \
                     "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "      \
                     "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "      \
                     "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "      \
                     "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "      \
                     "%57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "      \
                     "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "      \
                     "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "      \
                     "%90, %91, %92, %93, %94, %95}, "                              \
                     "{%96, %97, %98, %99}, %100, adds, 1, 1" how "; }"             \
                     : K_SUMS_96(c)                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));         \
    }

K_GROUP_PRODUCT_32(f16, "k16", "f16.f16", ", 0")
K_GROUP_PRODUCT_64(f16, "k16", "f16.f16", ", 0")
K_GROUP_PRODUCT_96(f16, "k16", "f16.f16", ", 0")
K_GROUP_PRODUCT_128(f16, "k16", "f16.f16", ", 0")
K_GROUP_PRODUCT_192(f16, "k16", "f16.f16", ", 0")
K_GROUP_PRODUCT_32(bf16, "k16", "bf16.bf16", ", 0")
K_GROUP_PRODUCT_64(bf16, "k16", "bf16.bf16", ", 0")
K_GROUP_PRODUCT_96(bf16, "k16", "bf16.bf16", ", 0")
K_GROUP_PRODUCT_128(bf16, "k16", "bf16.bf16", ", 0")
K_GROUP_PRODUCT_192(bf16, "k16", "bf16.bf16", ", 0")
K_GROUP_PRODUCT_32(f32, "k8", "tf32.tf32", "")
K_GROUP_PRODUCT_64(f32, "k8", "tf32.tf32", "")
K_GROUP_PRODUCT_96(f32, "k8", "tf32.tf32", "")
K_GROUP_PRODUCT_128(f32, "k8", "tf32.tf32", "")
K_GROUP_PRODUCT_192(f32, "k8", "tf32.tf32", "")
K_GROUP_PRODUCT_48(rows_f16, "k16", "f16.f16", ", 1")
K_GROUP_PRODUCT_48(rows_bf16, "k16", "bf16.bf16", ", 1")
K_GROUP_PRODUCT_64(rows_f16, "k16", "f16.f16", ", 1")
K_GROUP_PRODUCT_64(rows_bf16, "k16", "bf16.bf16", ", 1")

#endif

#endif
