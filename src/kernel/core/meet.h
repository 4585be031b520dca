/* meet.h - blocks that wait for one another: those of a cluster, or a group among the blocks of a
 * cooperative launch. All lanes of all these blocks arrive, and then wait; between the two is time
 * for what concerns nobody else. A group of one block meets at __syncthreads(), on the emulated
 * device every group.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MEET_H
#define MP_KERNEL_MEET_H

#include "kernel/core/prelude.h"

/* Where a block is told numbers by the blocks of its cluster: they lie in its shared memory, and
 * are counted by the mailbox, which is there, too. One lane opens it, for as many numbers as will
 * come, before the blocks meet for the first time; they send once they have met. Not for a block
 * alone. */
typedef struct k_mailbox {
    uint64_t state;
} k_mailbox;

#if K_HOST || __CUDA_ARCH__ < 900

K_FN void k_mail_open(k_mailbox *box, int32_t numbers) {
    (void)box, (void)numbers;
}
/* To the same place in the shared memory of block `block`. */
K_FN void k_mail_send(k_mailbox *box, float *place, int32_t block, float value) {
    (void)box, (void)block;
    *place = value;
}
/* Returns when all numbers have come; all lanes call. */
K_FN void k_mail_wait(k_mailbox *box) {
    (void)box;
    __syncthreads();
}

K_FN void k_cluster_arrive(void) {
}
K_FN void k_cluster_begin(void) {
}
K_FN void k_cluster_wait(void) {
    __syncthreads();
}
/* The same place in the shared memory of block `block` of the cluster. */
K_FN void k_cluster_store(float *place, int32_t block, float value) {
    (void)block;
    *place = value;
}
K_FN void k_cluster_store_four(float *place, int32_t block, const float *values) {
    (void)block;
    for (int32_t i = 0; i < 4; i++) {
        place[i] = values[i];
    }
}

#else

K_FN uint32_t k_shared_address(const void *place) {
    return (uint32_t)__cvta_generic_to_shared(place);
}

K_FN void k_mail_open(k_mailbox *box, int32_t numbers) {
    const uint32_t here = k_shared_address(box);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here) : "memory");
    if (numbers > 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(here),
                     "r"(numbers * (int32_t)sizeof(float))
                     : "memory");
    } else {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(here) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
K_FN void k_mail_send(k_mailbox *box, float *place, int32_t block, float value) {
    asm volatile("{ .reg .b32 there, counted;\n"
                 "mapa.shared::cluster.u32 there, %0, %2;\n"
                 "mapa.shared::cluster.u32 counted, %1, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, "
                 "[counted]; }" ::"r"(k_shared_address(place)),
                 "r"(k_shared_address(box)), "r"(block), "r"(__float_as_uint(value))
                 : "memory");
}
K_FN void k_mail_wait(k_mailbox *box) {
    uint32_t come;
    do {
        asm volatile("{ .reg .pred come;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 come, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, come; }"
                     : "=r"(come)
                     : "r"(k_shared_address(box))
                     : "memory");
    } while (come == 0);
}

/* What a block stored before it arrives is seen by all after they have waited. */
K_FN void k_cluster_arrive(void) {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/* Arrives without having stored anything: after the wait all blocks have begun, and may be stored
 * to. */
K_FN void k_cluster_begin(void) {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
K_FN void k_cluster_wait(void) {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
K_FN void k_cluster_store(float *place, int32_t block, float value) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(k_shared_address(place)), "r"(block));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}
/* The same of four, whose place is a multiple of 16 bytes. */
K_FN void k_cluster_store_four(float *place, int32_t block, const float *values) {
    const uint32_t here = (uint32_t)__cvta_generic_to_shared(place);
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there), "f"(values[0]),
                 "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
}

#endif

#if K_HOST

K_FN void k_grid_arrive(uint32_t *arrived) {
    (void)arrived;
}
K_FN void k_grid_wait(const uint32_t *arrived, uint32_t wanted) {
    (void)arrived;
    (void)wanted;
    __syncthreads();
}
K_FN float k_grid_load(const float *place) {
    return *place;
}

#else

/* `arrived` counts blocks; it is 0 when the first arrives, and `wanted` is how many have then
 * arrived in all, at this meeting and those before. */
K_FN void k_grid_arrive(uint32_t *arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        asm volatile("red.release.gpu.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    }
}
K_FN void k_grid_wait(const uint32_t *arrived, uint32_t wanted) {
    if (threadIdx.x == 0) {
        uint32_t there;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(there) : "l"(arrived) : "memory");
        } while ((int32_t)(there - wanted) < 0);
        __threadfence();
    }
    __syncthreads();
}
/* What another block stored before it arrived: not from the cache of this multiprocessor. */
K_FN float k_grid_load(const float *place) {
    float value;
    asm volatile("ld.relaxed.gpu.f32 %0, [%1];" : "=f"(value) : "l"(place) : "memory");
    return value;
}

#endif

#endif
