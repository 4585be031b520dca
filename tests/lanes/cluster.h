/* cluster.h - what kernel/core/meet.h offers to blocks of a cluster, for texts that run on threads.
 * Included before the text.
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

#endif
