/* cluster.h - what kernel/core/meet.h offers to blocks of a cluster, for texts that run on threads.
 * Included before the text. Blocks of a grid that meet are those of the one cluster.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_CLUSTER_H
#define MP_TESTS_LANES_CLUSTER_H

#define MP_KERNEL_MEET_H /* instead of it */

#include <cstdint>

void k_cluster_begin();
void k_cluster_arrive();
void k_cluster_wait();
void k_cluster_store(float *place, int block, float value);
void k_cluster_store_four(float *place, int block, const float *values);
void k_box_open(uint64_t *box, uint32_t bytes);
void k_box_send(uint64_t *box, float *place, int block, float value);
void k_box_send_four(uint64_t *box, float *place, int block, const float *values);
void k_box_wait(uint64_t *box);
void k_grid_arrive(uint32_t *arrived);
void k_grid_wait(const uint32_t *arrived, uint32_t wanted);
void k_grid_load_four(const void *place, uint32_t *words);

#endif
