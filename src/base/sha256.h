/* sha256.h - the SHA-256 hash (FIPS 180-4), for names and check sums of cached files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_SHA256_H
#define MP_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { MP_SHA256_SIZE = 32 };

typedef struct mp_sha256 {
    uint32_t state[8];
    uint64_t length;   /* bytes so far */
    uint8_t block[64]; /* the last, incomplete block */
} mp_sha256;

void mp_sha256_init(mp_sha256 *hash);
void mp_sha256_add(mp_sha256 *hash, const void *data, size_t size);
/* A string with its final 0, so that "ab","c" and "a","bc" differ. */
void mp_sha256_add_text(mp_sha256 *hash, const char *text);
void mp_sha256_end(mp_sha256 *hash, uint8_t out[MP_SHA256_SIZE]);

/* The hash of one piece of memory. */
void mp_sha256_of(const void *data, size_t size, uint8_t out[MP_SHA256_SIZE]);

#endif
