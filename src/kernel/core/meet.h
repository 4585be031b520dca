/* meet.h - blocks that wait for one another: those of a cluster, or a group among the blocks of a
 * cooperative launch. All lanes of all these blocks arrive, and then wait; between the two is time
 * for what concerns nobody else. A group of one block meets at __syncthreads(), on the emulated
 * device every group.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MEET_H
#define MP_KERNEL_MEET_H

#include "kernel/core/prelude.h"

#if K_HOST || __CUDA_ARCH__ < 900

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
/* Four floats, at a multiple of 16 bytes. */
K_FN void k_cluster_store_four(float *place, int32_t block, const float *value) {
    (void)block;
    for (int32_t i = 0; i < 4; i++) {
        place[i] = value[i];
    }
}

/* A box counts the bytes that blocks of the cluster send to this one, which waits for no block but
 * for those bytes: sooner than a meeting, at which all a block has stored must have been seen. All
 * lanes call; it is open when the cluster has met, and it is used once. Not for a block alone. */
K_FN void k_box_open(uint64_t *box, uint32_t bytes) {
    (void)box;
    (void)bytes;
}
/* To the same place in the shared memory of block `block` of the cluster. */
K_FN void k_box_send(uint64_t *box, float *place, int32_t block, float value) {
    (void)box;
    (void)block;
    *place = value;
}
/* The same of four floats, at a multiple of 16 bytes. */
K_FN void k_box_send_four(uint64_t *box, float *place, int32_t block, const float *value) {
    (void)box;
    k_cluster_store_four(place, block, value);
}
K_FN void k_box_wait(uint64_t *box) {
    (void)box;
    __syncthreads();
}

#else

/* What a block stored before it arrives is seen by all after they have waited. */
K_FN void k_cluster_arrive(void) {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/* The same where there is nothing to be seen but that the block has begun. */
K_FN void k_cluster_begin(void) {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
K_FN void k_cluster_wait(void) {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
K_FN uint32_t k_shared_of(const void *place, int32_t block) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"((uint32_t)__cvta_generic_to_shared(place)), "r"(block));
    return there;
}
K_FN void k_cluster_store(float *place, int32_t block, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(k_shared_of(place, block)), "f"(value)
                 : "memory");
}
K_FN void k_cluster_store_four(float *place, int32_t block, const float *value) {
    asm volatile(
        "st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(k_shared_of(place, block)),
        "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3])
        : "memory");
}
K_FN void k_box_open(uint64_t *box, uint32_t bytes) {
    const uint32_t here = (uint32_t)__cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (bytes > 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(here),
                         "r"(bytes)
                         : "memory");
        } else {
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(here) : "memory");
        }
    }
}
K_FN void k_box_send(uint64_t *box, float *place, int32_t block, float value) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     k_shared_of(place, block)),
                 "f"(value), "r"(k_shared_of(box, block))
                 : "memory");
}
K_FN void k_box_send_four(uint64_t *box, float *place, int32_t block, const float *value) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, "
                 "%4}, [%5];" ::"r"(k_shared_of(place, block)),
                 "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]),
                 "r"(k_shared_of(box, block))
                 : "memory");
}
/* What was sent lies in this block's own shared memory, as the box does: to acquire it for the
 * whole cluster would empty the multiprocessor's cache. */
K_FN void k_box_wait(uint64_t *box) {
    const uint32_t here = (uint32_t)__cvta_generic_to_shared(box);
    uint32_t there;
    do {
        asm volatile("{ .reg .pred there;\n"
                     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 there, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, there; }"
                     : "=r"(there)
                     : "r"(here)
                     : "memory");
    } while (there == 0);
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
K_FN void k_grid_load_four(const void *place, uint32_t *words) {
    for (int32_t i = 0; i < 4; i++) {
        words[i] = ((const uint32_t *)place)[i];
    }
}

#else

/* `arrived` counts blocks; it is 0 when the first arrives, and `wanted` is how many have then
 * arrived in all, at this meeting and those before. What a block stored before its barrier is
 * released by the lane that counts, and acquired for all lanes behind the other barrier: a fence
 * beside these would wait for stores that concern nobody. */
K_FN void k_grid_arrive(uint32_t *arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    }
}
K_FN void k_grid_wait(const uint32_t *arrived, uint32_t wanted) {
    if (threadIdx.x == 0) {
        uint32_t there;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(there) : "l"(arrived) : "memory");
        } while ((int32_t)(there - wanted) < 0);
    }
    __syncthreads();
}
/* What another block stored before it arrived: not from the cache of this multiprocessor. */
K_FN float k_grid_load(const float *place) {
    float value;
    asm volatile("ld.relaxed.gpu.f32 %0, [%1];" : "=f"(value) : "l"(place) : "memory");
    return value;
}
/* The same of 16 bytes. */
K_FN void k_grid_load_four(const void *place, uint32_t *words) {
    asm volatile("ld.relaxed.gpu.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(place)
                 : "memory");
}

#endif

#endif
