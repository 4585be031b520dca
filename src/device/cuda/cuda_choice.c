/* cuda_choice.c - see cuda_choice.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_choice.h"

#include "device/cuda/cuda_cache.h"

#include <stdlib.h>
#include <string.h>

static void key_of(const cuda_question *q, uint8_t key[MP_SHA256_SIZE]) {
    const int64_t head[] = {q->device->info.arch, (int64_t)q->version, q->count};
    mp_sha256 hash;
    mp_sha256_init(&hash);
    mp_sha256_add_text(&hash, "choice of Millpond " MILLPOND_VERSION);
    mp_sha256_add_text(&hash, q->kind);
    mp_sha256_add_text(&hash, q->device->info.name);
    mp_sha256_add_text(&hash, q->device->info.driver);
    mp_sha256_add(&hash, head, sizeof head);
    mp_sha256_add(&hash, q->numbers, (size_t)q->count * sizeof *q->numbers);
    mp_sha256_end(&hash, key);
}

bool mp__cuda_choice_recall(const cuda_question *question, int64_t *answer, int count) {
    uint8_t key[MP_SHA256_SIZE];
    cuda_blob found = {0};
    const size_t size = (size_t)count * sizeof *answer;
    key_of(question, key);
    if (!mp__cuda_cache_load(key, &found)) {
        return false;
    }
    const bool fits = found.size == size;
    if (fits) {
        memcpy(answer, found.data, size);
    }
    free(found.data);
    return fits;
}

void mp__cuda_choice_keep(const cuda_question *question, const int64_t *answer, int count) {
    uint8_t key[MP_SHA256_SIZE];
    key_of(question, key);
    mp__cuda_cache_store(key, answer, (size_t)count * sizeof *answer);
}
