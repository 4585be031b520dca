/* cuda_gemm_tune.c - choosing by time, and what was chosen.
 *
 * The results are a list for the process, which ends with it: a session that asks for them finds
 * what another measured.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_gemm_tune.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- choosing ---- */

int mp__cuda_gemm_fastest(int count, int64_t max_ms, cuda_gemm_time *time, void *context) {
    const float clearly = 0.97F; /* of the first one's time */
    const int64_t begin = mp_clock_ms();
    float best_ms = -1;
    int best = 0;
    for (int i = 0; i < count && (i == 0 || max_ms <= 0 || mp_clock_ms() - begin < max_ms); i++) {
        const float ms = time(context, i);
        const float limit = best == 0 ? best_ms * clearly : best_ms;
        if (ms >= 0 && (best_ms < 0 || ms < limit)) {
            best = i;
            best_ms = ms;
        }
    }
    return best;
}

/* ---- remembering ---- */

enum { KEPT_MAX = 1 << 14 };

typedef struct kept {
    int ordinal;
    bool bias_fused;
    mp_gemm shape;
    cublasLtMatmulHeuristicResult_t found;
} kept;

static struct {
    pthread_mutex_t lock;
    kept *list; /* owned, as long as the process lives */
    size_t count, capacity;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Scales do not change which algorithms there are, but whether D is read does. */
static bool is_same(const mp_gemm *a, const mp_gemm *b) {
    return a->type == b->type && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->tf32 == b->tf32 && a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldc == b->ldc && a->batch == b->batch &&
           a->stride_a == b->stride_a && a->stride_b == b->stride_b && a->stride_c == b->stride_c &&
           (a->beta != 0) == (b->beta != 0) && a->align == b->align &&
           a->activation == b->activation;
}

/* With the lock held. */
static const kept *kept_find(int ordinal, const mp_gemm *shape, bool bias_fused) {
    for (size_t i = 0; i < memory.count; i++) {
        const kept *entry = &memory.list[i];
        if (entry->ordinal == ordinal && entry->bias_fused == bias_fused &&
            is_same(&entry->shape, shape)) {
            return entry;
        }
    }
    return NULL;
}

bool mp__cuda_gemm_recall(int ordinal, const mp_gemm *shape, bool bias_fused,
                          cublasLtMatmulHeuristicResult_t *out) {
    (void)pthread_mutex_lock(&memory.lock);
    const kept *entry = kept_find(ordinal, shape, bias_fused);
    if (entry != NULL) {
        *out = entry->found;
    }
    (void)pthread_mutex_unlock(&memory.lock);
    return entry != NULL;
}

/* Whether the list has room for one more; with the lock held. */
static bool make_room(void) {
    if (memory.count < memory.capacity) {
        return true;
    }
    const size_t capacity = memory.capacity > 0 ? memory.capacity * 2 : 64;
    kept *grown = capacity <= KEPT_MAX ? realloc(memory.list, capacity * sizeof *grown) : NULL;
    if (grown == NULL) {
        return false;
    }
    memory.list = grown;
    memory.capacity = capacity;
    return true;
}

void mp__cuda_gemm_remember(int ordinal, const mp_gemm *shape, bool bias_fused,
                            const cublasLtMatmulHeuristicResult_t *found) {
    (void)pthread_mutex_lock(&memory.lock);
    if (kept_find(ordinal, shape, bias_fused) == NULL && make_room()) {
        memory.list[memory.count++] =
            (kept){.ordinal = ordinal, .bias_fused = bias_fused, .shape = *shape, .found = *found};
    }
    (void)pthread_mutex_unlock(&memory.lock);
}
