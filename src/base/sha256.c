/* sha256.c - SHA-256 as FIPS 180-4 describes it; the names follow its section 6.2.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include "base/macros.h"

#include <string.h>

static const uint32_t round_words[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, unsigned by) {
    return word >> by | word << (32 - by);
}

/* One round. Instead of moving all variables on by one, variable `i` is at v[(a + i) % 8]. */
static inline void turn(uint32_t v[8], unsigned a, uint32_t word) {
    const uint32_t e = v[(a + 4) % 8];
    const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const uint32_t choice = (e & v[(a + 5) % 8]) ^ (~e & v[(a + 6) % 8]);
    const uint32_t t1 = v[(a + 7) % 8] + s1 + choice + word;
    const uint32_t x = v[a % 8], y = v[(a + 1) % 8], z = v[(a + 2) % 8];
    const uint32_t s0 = rotate(x, 2) ^ rotate(x, 13) ^ rotate(x, 22);
    v[(a + 3) % 8] += t1;
    v[(a + 7) % 8] = t1 + s0 + ((x & y) ^ (x & z) ^ (y & z));
}

static void compress(uint32_t state[8], const uint8_t block[64]) {
    uint32_t w[64];
    for (size_t t = 0; t < 16; t++) {
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    }
    for (size_t t = 16; t < 64; t++) {
        const uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        const uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
    uint32_t v[8]; /* a to h */
    memcpy(v, state, sizeof v);
    for (size_t t = 0; t < 64; t += 8) { /* after eight rounds each is where it was */
        for (unsigned i = 0; i < 8; i++) {
            turn(v, 8 - i, round_words[t + i] + w[t + i]);
        }
    }
    for (size_t i = 0; i < 8; i++) {
        state[i] += v[i];
    }
}

void mp_sha256_init(mp_sha256 *hash) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->length = 0;
}

void mp_sha256_add(mp_sha256 *hash, const void *data, size_t size) {
    const uint8_t *bytes = data;
    while (size > 0) {
        const size_t filled = (size_t)(hash->length % sizeof hash->block);
        const size_t room = sizeof hash->block - filled;
        const size_t step = MP_MIN(size, room);
        memcpy(hash->block + filled, bytes, step);
        hash->length += step;
        bytes += step;
        size -= step;
        if (step == room) {
            compress(hash->state, hash->block);
        }
    }
}

void mp_sha256_add_text(mp_sha256 *hash, const char *text) {
    mp_sha256_add(hash, text, strlen(text) + 1);
}

void mp_sha256_end(mp_sha256 *hash, uint8_t out[MP_SHA256_SIZE]) {
    static const uint8_t padding[64] = {0x80};
    const uint64_t bits = hash->length * 8;
    const size_t filled = (size_t)(hash->length % 64);
    mp_sha256_add(hash, padding, filled < 56 ? 56 - filled : 120 - filled);
    uint8_t tail[8];
    for (size_t i = 0; i < 8; i++) {
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    mp_sha256_add(hash, tail, sizeof tail);
    for (size_t i = 0; i < MP_SHA256_SIZE; i++) {
        out[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void mp_sha256_of(const void *data, size_t size, uint8_t out[MP_SHA256_SIZE]) {
    mp_sha256 hash;
    mp_sha256_init(&hash);
    mp_sha256_add(&hash, data, size);
    mp_sha256_end(&hash, out);
}
