/* warp_matrix.h - products of small matrices by the tensor cores, and copies to shared memory that
 * go on while a lane works. Only where K_WARP_MATRIX is 1: GPUs from 8.0 on. All 32 lanes of a warp
 * take part.
 *
 * Elements of two bytes are had in pairs, the first in the low half. With g = lane / 4 and
 * t = lane % 4 a lane holds of
 *     A, 16 x 16   (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), and their right neighbours
 *     B, 16 x 8    (2t, g), (2t + 8, g), and their lower neighbours
 *     C, 16 x 8    (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1), as float
 * and of signed bytes in fours, the first in the low bits,
 *     A, 16 x 32   (g, 4t), (g + 8, 4t), (g, 4t + 16), (g + 8, 4t + 16), and their right neighbours
 *     B, 32 x 8    (4t, g), (4t + 16, g), and their lower neighbours
 *     C            the same places, as int32, of sums that wrap
 * and of floats, by k_near_tf32 or k_tf32,
 *     A, 16 x 8    (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
 *     B, 8 x 8     (t, g), (t + 4, g)
 *     C            as of two bytes
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_WARP_MATRIX_H
#define MP_KERNEL_WARP_MATRIX_H

#include "kernel/core/prelude.h"

#if K_HOST || __CUDA_ARCH__ < 800
#define K_WARP_MATRIX 0
#else
#define K_WARP_MATRIX 1

/* c += a b */
K_FN void k_mma_f16(float *c, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

K_FN void k_mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

K_FN void k_mma_i8(int32_t *c, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same where A is of unsigned bytes. */
K_FN void k_mma_u8(int32_t *c, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

K_FN void k_mma_tf32(float *c, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* By the words of element types: K_JOIN(k_mma_, K_T0). */
#define k_mma_f32     k_mma_tf32

/* A float as an operand of k_mma_tf32, which leaves out its last 13 bits: larger by what that
 * takes on average. A number of TF32 stays what it is, and a NaN one. */
K_FN uint32_t k_near_tf32(float x) {
    return __float_as_uint(x * 1.000338F);
}

/* The nearest number of TF32, ten bits behind the point, ties away from zero: in three instructions
 * for that one, so where it is done once. */
K_FN uint32_t k_tf32(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

K_FN uint32_t k_pair_f16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

K_FN uint32_t k_pair_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* a b + c of both halves, rounded once. */
K_FN uint32_t k_pair_fma_f16(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t pair;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
    return pair;
}

K_FN uint32_t k_pair_fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t pair;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
    return pair;
}

/* Four matrices of 8 x 8: lanes 8 i to 8 i + 7 name the rows of matrix i, 16 bytes in shared
 * memory; a lane gets elements 2t and 2t + 1 of row g of each. */
K_FN void k_matrices_load(uint32_t *out, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* The same of their transposes: rows 2t and 2t + 1 of column g. */
K_FN void k_matrices_load_turned(uint32_t *out, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

/* Begins to copy 16 bytes to shared memory, of which those from `count` on become 0. */
K_FN void k_copy_begin(void *to, const void *from, uint32_t count) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(count)
                 : "memory");
}

/* k_copy_begin() of what is read once: the cache that all multiprocessors share keeps other things.
 */
K_FN void k_copy_begin_once(void *to, const void *from, uint32_t count) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(count), "l"(policy)
                 : "memory");
}

/* k_copy_begin(), and has the 128 bytes around brought to the cache that all multiprocessors share.
 */
K_FN void k_copy_begin_near(void *to, const void *from, uint32_t count) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(count)
                 : "memory");
}

/* k_copy_begin() where `is` is not 0, without a branch; and the same of 8 bytes. */
#define K_COPY_IF(name, how, size)                                            \
    K_FN void name(int is, void *to, const void *from, uint32_t count) {      \
        asm volatile("{ .reg .pred is;\n"                                     \
                     "setp.ne.s32 is, %3, 0;\n"                               \
                     "@is cp.async." how ".shared.global [%0], [%1], " size   \
                     ", %2; }" ::"r"((uint32_t)__cvta_generic_to_shared(to)), \
                     "l"(from), "r"(count), "r"(is)                           \
                     : "memory");                                             \
    }
K_COPY_IF(k_copy_begin_if, "cg", "16")
K_COPY_IF(k_copy_half_begin_if, "ca", "8")

/* Eight bytes of shared memory become this word twice where `is` is not 0, without a branch. */
K_FN void k_fill_half_if(int is, void *to, uint32_t word) {
    asm volatile(
        "{ .reg .pred is;\n"
        "setp.ne.s32 is, %2, 0;\n"
        "@is st.shared.v2.u32 [%0], {%1, %1}; }" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "r"(word), "r"(is)
        : "memory");
}

/* 4, 8 or 16 bytes, and both addresses are multiples of that; or none. */
K_FN void k_copy_few(void *to, const void *from, int32_t count) {
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(to);
    if (count == 16) {
        k_copy_begin(to, from, 16);
    } else if (count == 8) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(place), "l"(from) : "memory");
    } else if (count == 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
    }
}

/* The copies since the last call become a group. */
K_FN void k_copies_group(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this lane's groups, all but the last `left` of them; what other lanes have copied is
 * there behind a barrier. */
#define K_COPIES_WAIT(left) asm volatile("cp.async.wait_group %0;" ::"n"((int)(left)) : "memory")

/* Keeps in a register what would otherwise be computed once more at each use. */
#define K_HOLD(x)           asm volatile("" : "+r"(x))
#define K_HOLD_PLACE(x)     asm volatile("" : "+l"(x))
#define K_HOLD_FLOAT(x)     asm volatile("" : "+f"(x))

/* 1 / x, within some 2^-23 of it. */
K_FN float k_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2^x, within some 2^-22 of it. */
K_FN float k_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

#endif
