/* cluster.h - what kernel/core/meet.h offers to blocks of a cluster, for texts that run on threads.
 * Included before the text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_CLUSTER_H
#define MP_TESTS_LANES_CLUSTER_H

#define MP_KERNEL_MEET_H /* instead of it */

void k_cluster_begin();
void k_cluster_arrive();
void k_cluster_wait();
void k_cluster_store(float *place, int block, float value);

#endif
