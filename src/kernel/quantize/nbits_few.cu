/* nbits_few.cu - up to K_ROWS rows times packed integers of K_BITS bits: bound by how soon they
 * come. The lanes of a group go along a column, each with chunks of 16 or 32 bytes that share a
 * scale, all of which it asks for at once, before the kernel before has ended where they are
 * constants.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/quantize/quantize_args.h"
#include "kernel/rows/before.h"

enum {
    N_CHUNK = K_NBITS_CHUNK,
    N_AHEAD = 16 / K_BITS, /* chunks of a lane that are on their way at once */
    N_WORDS = N_CHUNK * K_BITS / 32,
    N_EACH = 32 / K_BITS, /* weights of a word */
    N_MASK = (1 << K_BITS) - 1,
    N_PACKS = N_CHUNK / K_PACK, /* of A, that go with a chunk */
};

/* As it is loaded. */
typedef struct n_chunk {
    uint32_t words[N_WORDS];
    T scale;
    uint32_t zero; /* the byte that it is in */
} n_chunk;

K_FN void n_load(const k_nbits *w, int64_t column, int64_t chunk, n_chunk *out) {
    const int64_t k = chunk * N_CHUNK;
    const int is = column < w->n && k < w->k;
    const int64_t row = is ? column : 0, block = is ? k >> w->block_shift : 0;
    const uint8_t *at = (const uint8_t *)w->weight + row * w->weight_row;
    K_UNROLL
    for (int i = 0; i < N_WORDS; i += 4) {
        k_fetch(at + (is ? k * K_BITS / 8 + i * 4 : 0), is, out->words + i);
    }
    out->scale = ((const T *)w->scale)[row * w->blocks + block];
    out->zero = 0;
    if (w->zero != 0) {
        out->zero = ((const uint8_t *)w->zero)[row * w->zero_row + block * K_BITS / 8];
    }
}

/* What a chunk's weights are counted from; 2^23 is added, as it is to them. */
K_FN float n_base(const k_nbits *w, int64_t chunk, uint32_t byte) {
    const int64_t block = chunk * N_CHUNK >> w->block_shift;
    const uint32_t zero = byte >> block * K_BITS % 8 & N_MASK;
    return 8388608.0f + (float)(w->zero != 0 ? (int32_t)zero : w->middle);
}

#if K_BEFORE == K_BEFORE_NOTHING
/* The rows of A into shared memory, where a gap behind each chunk lets lanes that read chunks side
 * by side meet other banks. What is beyond the rows is 0. */
K_FN void n_stage(const mp_nbits_args *args, k_pack *rows) {
    k_wait();
    const int32_t packs = (int32_t)((args->w.k + N_CHUNK - 1) / N_CHUNK) * N_PACKS;
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        const k_pack *from = (const k_pack *)((const T *)args->a + r * args->w.k);
        for (int32_t i = (int32_t)threadIdx.x; i < packs; i += (int32_t)blockDim.x) {
            k_pack pack;
            K_UNROLL
            for (int j = 0; j < 4; j++) {
                pack.words.at[j] = 0;
            }
            if (r < args->m && i * K_PACK < args->w.k) {
                pack.words = from[i].words;
            }
            rows[(r * packs + i) / N_PACKS * (N_PACKS + 1) + i % N_PACKS].words = pack.words;
        }
    }
    __syncthreads();
}
#endif

K_FN void n_add(const mp_nbits_args *args, const k_pack *rows, int64_t chunk, const n_chunk *c,
                K_SUM *sum) {
    const float base = n_base(&args->w, chunk, c->zero), scale = T_load(c->scale);
    const int64_t chunks = (args->w.k + N_CHUNK - 1) / N_CHUNK;
    float part[K_ROWS];
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        part[r] = 0;
    }
    K_UNROLL
    for (int p = 0; p < N_PACKS; p++) {
        float x[K_ROWS][K_PACK];
        K_UNROLL
        for (int i = 0; i < K_ROWS * 4; i++) {
            const int r = i / 4, j = i % 4;
            const k_pack *pack = rows + (r * chunks + chunk) * (N_PACKS + 1) + p;
            T_unpack(pack->words.at[j], x[r] + j * K_WORD);
        }
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            const int at = p * K_PACK + i;
            const uint32_t q = c->words[at / N_EACH] >> at % N_EACH * K_BITS & N_MASK;
            const float weight = k_float_of_bits(0x4b000000u | q) - base;
            K_UNROLL
            for (int r = 0; r < K_ROWS; r++) {
                part[r] += x[r][i] * weight;
            }
        }
    }
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        sum[r] += (K_SUM)part[r] * (K_SUM)scale;
    }
}

K_BLOCK_KERNEL_LATE(K_NBITS_LANES, mp_nbits_args, args) {
    K_SHARED(k_pack, rows);
    const k_round t = k_rounds(args.width);
    int staged = 0;
    if (!args.constant) {
        k_wait();
    }
    K_ONE_COPY
    for (int64_t first = t.first; first < args.w.n; first += t.step) {
        const int64_t column = first + t.group;
        K_SUM sum[K_ROWS];
        K_UNROLL
        for (int r = 0; r < K_ROWS; r++) {
            sum[r] = 0;
        }
        K_ONE_COPY
        for (int64_t k = 0; k * N_CHUNK < args.w.k; k += N_AHEAD * (int64_t)t.width) {
            n_chunk chunks[N_AHEAD];
            K_UNROLL
            for (int i = 0; i < N_AHEAD; i++) {
                n_load(&args.w, column, k + t.lane + i * (int64_t)t.width, &chunks[i]);
            }
            if (!staged) { /* the same for all lanes */
#if K_BEFORE == K_BEFORE_NOTHING
                n_stage(&args, rows);
#else
                b_make(&args.before, rows, N_PACKS);
#endif
                staged = 1;
            }
            K_UNROLL
            for (int i = 0; i < N_AHEAD; i++) {
                const int64_t chunk = k + t.lane + i * (int64_t)t.width;
                if (chunk * N_CHUNK < args.w.k) {
                    n_add(&args, rows, chunk, &chunks[i], sum);
                }
            }
        }
        K_UNROLL
        for (int r = 0; r < K_ROWS; r++) {
            const float total = (float)k_group_sum(sum[r], t.width);
            if (t.lane == 0 && column < args.w.n && r < args.m) {
                const float more = args.bias != 0 ? T_load(((const T *)args.bias)[column]) : 0;
                ((T *)args.out)[r * args.w.n + column] = T_store(total + more);
            }
        }
    }
}
