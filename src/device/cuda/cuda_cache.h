/* cuda_cache.h - compiled kernels kept on disk, from one process to the next.
 *
 * MILLPOND_CACHE_DIR names the folder (default: millpond/kernels in $XDG_CACHE_HOME or ~/.cache);
 * MILLPOND_CACHE=off switches it off; MILLPOND_CACHE_SIZE is how many bytes it keeps to (default: 1
 * GiB), by removing what was used longest ago. Needs neither driver nor GPU. Losing the cache, or
 * sharing it with any number of processes, costs time and nothing else: no function here can fail.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_CACHE_H
#define MP_DEVICE_CUDA_CACHE_H

#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cuda_blob {
    void *data; /* from malloc; owned by whoever holds the struct */
    size_t size;
} cuda_blob;

/* Gives: `*out`, until its data is freed. False where there is no sound file for the key; a damaged
 * one is removed. Threads: any. Blocks: reads a file. */
bool mp__cuda_cache_load(const uint8_t key[MP_SHA256_SIZE], cuda_blob *out);

/* Keeps a copy, where there is a cache. Threads: any. Blocks: writes a file. */
void mp__cuda_cache_store(const uint8_t key[MP_SHA256_SIZE], const void *data, size_t size);

/* The folder in use; "" where the cache is off. Static storage. */
const char *mp__cuda_cache_folder(void);

#endif
