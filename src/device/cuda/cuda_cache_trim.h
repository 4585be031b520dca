/* cuda_cache_trim.h - keeps the folder of compiled kernels from growing without end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_CACHE_TRIM_H
#define MP_DEVICE_CUDA_CACHE_TRIM_H

#include <stdint.h>

/* Where the files of the folder have more than `limit` bytes together, those go that were used
 * longest ago, until three quarters of that are left. What a process left half written goes after
 * an hour. Several processes may do this at once. Gives: how many files went.
 * Blocks: reads the folder. */
int mp__cuda_cache_trim(int folder, uint64_t limit);

/* Marks an open file as used now; to the day, so that reading rarely writes. */
void mp__cuda_cache_touch(int fd);

#endif
