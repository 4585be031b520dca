/* nbits_few.cu - up to K_ROWS rows times packed integers of K_BITS bits, or with K_CODED times
 * codes of 4 bits, the first of two in the high half of its byte: bound by how soon they come. The
 * lanes of a group go along a column, or two that share what is read of A, each with chunks of 8 to
 * 32 bytes that share a scale. It has several on their way, the first of them before the kernel
 * before has ended, where they are constants; as soon as one has been worked on, the next takes its
 * place. Codes are looked up in shared memory, where each lane of a warp has a table in a bank of
 * its own.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LETS_AT_ONCE 1
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/quantize/quantize_args.h"
#include "kernel/rows/before.h"

enum {
    N_CHUNK = K_NBITS_CHUNK,
    N_AHEAD = K_NBITS_FEW_AHEAD(K_BITS, K_ROWS),
    N_COLUMNS = K_COLUMNS,
    N_WORDS = N_CHUNK * K_BITS / 32,
    N_EACH = 32 / K_BITS, /* weights of a word */
    N_MASK = (1 << K_BITS) - 1,
    N_PLACES = K_BITS == 4   ? 5
               : K_BITS == 8 ? 2
                             : 4, /* of it that a mantissa has room for */
    N_PACKS = N_CHUNK / K_PACK,   /* of A, that go with a chunk */
};

/* As it is loaded. */
typedef struct n_chunk {
    uint32_t words[N_WORDS];
    T scale;
    uint32_t zero; /* the byte that it is in */
} n_chunk;

/* Where a column's parts begin; the first one's where there is none. */
typedef struct n_column {
    const uint8_t *weight, *zero;
    const T *scale;
    int is;
} n_column;

K_FN n_column n_column_at(const k_nbits *w, int64_t column) {
    n_column at;
    at.is = column < w->n;
    const int64_t row = at.is ? column : 0;
    at.weight = (const uint8_t *)w->weight + row * w->weight_row;
    at.scale = (const T *)w->scale + row * w->blocks;
    at.zero = w->zero != 0 ? (const uint8_t *)w->zero + row * w->zero_row : 0;
    return at;
}

/* A chunk beyond the last one is zeros. */
K_FN void n_load(const k_nbits *w, const n_column *from, int32_t chunk, n_chunk *out) {
    const int is = from->is && chunk * N_CHUNK < (int32_t)w->k;
    const int32_t block = is ? chunk * N_CHUNK >> w->block_shift : 0;
    const uint8_t *at = from->weight + (is ? chunk * (N_WORDS * 4) : 0);
#if K_BITS == 2
    k_fetch_half(at, is, out->words);
#else
    K_UNROLL
    for (int i = 0; i < N_WORDS; i += 4) {
        k_fetch(at + i * 4, is, out->words + i);
    }
#endif
    out->scale = from->scale[block];
    out->zero = 0;
    if (!K_CODED && w->zero != 0) {
        out->zero = from->zero[(uint32_t)block * K_BITS / 8];
    }
}

/* ---- what weights mean ---- */

#if K_CODED
enum { N_TABLES = K_NBITS_FEW_TABLES, N_ENTRY_SHIFT = 7 /* of all lanes' tables: 128 bytes */ };

typedef struct n_key {
    const uint8_t *tables; /* a word of each lane of a warp for the first code, and so on */
    uint32_t own;          /* bytes before that of this lane */
} n_key;

/* The tables lie before the rows. */
K_FN n_key n_key_of(const k_nbits *w, const k_pack *rows) {
    n_key key;
    (void)w;
    key.tables = (const uint8_t *)(const void *)rows - N_TABLES;
    key.own = threadIdx.x % K_NBITS_TABLES * 4;
    return key;
}

K_FN void n_make_tables(const k_nbits *w, k_pack *rows) {
    float *tables = (float *)(void *)rows - N_TABLES / 4;
    K_BLOCK_LOOP(i, N_TABLES / 4) {
        tables[i] = ((const float *)w->values)[i / K_NBITS_TABLES];
    }
}

K_FN void n_base(const k_nbits *w, int32_t chunk, uint32_t byte, float *base) {
    (void)w;
    (void)chunk;
    (void)byte;
    base[0] = 0;
}

/* Weight `i` of a word. */
K_FN float n_weight(const n_key *key, const float *base, uint32_t word, int i) {
    const int by = (i ^ 1) * K_BITS - N_ENTRY_SHIFT;
    const uint32_t entry = by < 0 ? word << (-by & 31) : word >> (by & 31);
    (void)base;
    return *(const float *)(const void *)(key->tables +
                                          ((entry & N_MASK << N_ENTRY_SHIFT) | key->own));
}
#else
enum { N_TABLES = 0 };

/* The bits of each place of a word. They come from what the compiler does not know, and so are kept
 * in registers: an instruction has room for one constant, and the other one would be made anew for
 * each. */
typedef struct n_key {
    uint32_t masks[N_PLACES];
} n_key;

K_FN n_key n_key_of(const k_nbits *w, const k_pack *rows) {
    n_key key;
    (void)rows;
    K_UNROLL
    for (int place = 0; place < N_PLACES; place++) {
        key.masks[place] = ((1u << w->bits) - 1) << place * K_BITS;
    }
    return key;
}

/* The bits of the power of two whose mantissa has ones in place `place` of a word: with a weight in
 * that place it is a number that is larger by the weight, so those need not be moved. */
K_FN uint32_t n_power(int place) {
    return (uint32_t)(127 + 23 - place * K_BITS) << 23;
}

/* What a chunk's weights are counted from, in each place. */
K_FN void n_base(const k_nbits *w, int32_t chunk, uint32_t byte, float *base) {
    const uint32_t block = (uint32_t)(chunk * N_CHUNK) >> w->block_shift;
    const uint32_t zero = byte >> block * K_BITS % 8 & N_MASK;
    const float number = (float)(w->zero != 0 ? (int32_t)zero : w->middle);
    K_UNROLL
    for (int place = 0; place < N_PLACES; place++) {
        base[place] = number + k_float_of_bits(n_power(place));
    }
}

/* Weight `i` of a word. */
K_FN float n_weight(const n_key *key, const float *base, uint32_t word, int i) {
    const int turn = i / N_PLACES, place = i % N_PLACES;
    const uint32_t bits = word >> turn * N_PLACES * K_BITS & key->masks[place];
    return k_float_of_bits(bits | n_power(place)) - base[place];
}
#endif

/* ---- rows of A ---- */

#if K_BEFORE == K_BEFORE_NOTHING
/* Pack `i` of a row, or zeros; where it can be, it is on its way when this returns. */
K_FN void n_put_pack(const mp_nbits_args *args, int r, int32_t i, k_pack *to) {
    const int is = r < (int32_t)args->m && i * K_PACK < (int32_t)args->w.k;
    const k_pack *from = (const k_pack *)((const T *)args->a + (is ? r * (int32_t)args->w.k : 0));
#if K_WARP_MATRIX
    k_copy_begin(to, from + (is ? i : 0), is ? 16 : 0);
#else
    k_pack pack;
    K_UNROLL
    for (int j = 0; j < 4; j++) {
        pack.words.at[j] = 0;
    }
    if (is) {
        pack.words = from[i].words;
    }
    to->words = pack.words;
#endif
}

/* The rows of A into shared memory, where a gap behind each chunk lets lanes that read chunks side
 * by side meet other banks. What is beyond the rows is 0. */
K_FN void n_stage(const mp_nbits_args *args, k_pack *rows) {
    k_wait();
    const int32_t packs = (int32_t)((args->w.k + N_CHUNK - 1) / N_CHUNK) * N_PACKS;
    K_UNROLL
    for (int r = 0; r < K_ROWS; r++) {
        for (int32_t i = (int32_t)threadIdx.x; i < packs; i += (int32_t)blockDim.x) {
            const int32_t at = r * packs + i;
            n_put_pack(args, r, i, rows + at / N_PACKS * (N_PACKS + 1) + at % N_PACKS);
        }
    }
#if K_CODED
    n_make_tables(&args->w, rows);
#endif
#if K_WARP_MATRIX
    k_copies_group();
    K_COPIES_WAIT(0);
#endif
    __syncthreads();
}
#endif

/* ---- products ---- */

/* A chunk of each column, and the rows. */
K_FN void n_add(const mp_nbits_args *args, const n_key *key, const k_pack *rows, int32_t chunk,
                const n_chunk *c, K_SUM (*sum)[K_ROWS]) {
    const int32_t chunks = ((int32_t)args->w.k + N_CHUNK - 1) / N_CHUNK;
    float base[N_COLUMNS][N_PLACES], part[N_COLUMNS][K_ROWS];
    K_UNROLL
    for (int i = 0; i < N_COLUMNS; i++) {
        n_base(&args->w, chunk, c[i].zero, base[i]);
    }
    K_UNROLL
    for (int i = 0; i < N_COLUMNS * K_ROWS; i++) {
        part[i / K_ROWS][i % K_ROWS] = 0;
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
        for (int i = 0; i < K_PACK * N_COLUMNS; i++) {
            const int column = i % N_COLUMNS, e = i / N_COLUMNS, at = p * K_PACK + e;
            const float weight =
                n_weight(key, base[column], c[column].words[at / N_EACH], at % N_EACH);
            K_UNROLL
            for (int r = 0; r < K_ROWS; r++) {
                part[column][r] += x[r][e] * weight;
            }
        }
    }
    K_UNROLL
    for (int i = 0; i < N_COLUMNS * K_ROWS; i++) {
        const int column = i / K_ROWS, r = i % K_ROWS;
        sum[column][r] += (K_SUM)part[column][r] * (K_SUM)T_load(c[column].scale);
    }
}

/* The sums of a group over all lanes of it, which go on side by side. All lanes of the block
 * call. */
K_FN void n_meet(const k_round *t, K_SUM (*sum)[K_ROWS]) {
#if K_HOST
    for (int i = 0; i < N_COLUMNS * K_ROWS; i++) {
        sum[i / K_ROWS][i % K_ROWS] = k_group_sum(sum[i / K_ROWS][i % K_ROWS], t->width);
    }
#else
    K_ONE_COPY
    for (uint32_t half = t->width / 2; half > 0; half /= 2) {
        K_UNROLL
        for (int i = 0; i < N_COLUMNS * K_ROWS; i++) {
            K_SUM *mine = &sum[i / K_ROWS][i % K_ROWS];
            *mine += __shfl_xor_sync(0xffffffffu, *mine, half);
        }
    }
#endif
}

K_FN void n_put(const mp_nbits_args *args, const k_round *t, int64_t column, const T *bias,
                K_SUM (*sum)[K_ROWS]) {
    n_meet(t, sum);
    K_UNROLL
    for (int i = 0; i < N_COLUMNS * K_ROWS; i++) {
        const int c = i / K_ROWS, r = i % K_ROWS;
        if (t->lane == 0 && column + c < args->w.n && r < args->m) {
            T *out = (T *)args->out + r * args->w.n + column + c;
            *out = T_store((float)sum[c][r] + T_load(bias[c]));
        }
    }
}

/* Blocks on a multiprocessor, which is how many registers a lane has. */
#define N_BLOCKS (K_BEFORE != 0 ? 3 : K_ROWS == 1 && K_COLUMNS == 1 ? 4 : 2)

K_BLOCK_KERNEL_LATE_OF(K_NBITS_LANES, N_BLOCKS, mp_nbits_args, args) {
    K_SHARED(uint8_t, shared);
    k_pack *rows = (k_pack *)(void *)(shared + N_TABLES);
    const n_key key = n_key_of(&args.w, rows);
    const k_round t = k_rounds(args.width);
    const int32_t chunks = ((int32_t)args.w.k + N_CHUNK - 1) / N_CHUNK;
    const int32_t width = (int32_t)t.width, batch = N_AHEAD * width;
    int staged = 0;
    if (!args.constant) {
        k_wait();
    }
    K_ONE_COPY
    for (int64_t first = t.first; first * N_COLUMNS < args.w.n; first += t.step) {
        const int64_t column = (first + t.group) * N_COLUMNS;
        n_column from[N_COLUMNS];
        n_chunk ahead[N_AHEAD][N_COLUMNS];
        K_SUM sum[N_COLUMNS][K_ROWS];
        K_UNROLL
        for (int c = 0; c < N_COLUMNS; c++) {
            from[c] = n_column_at(&args.w, column + c);
            K_UNROLL
            for (int r = 0; r < K_ROWS; r++) {
                sum[c][r] = 0;
            }
        }
        K_UNROLL
        for (int i = 0; i < N_AHEAD * N_COLUMNS; i++) {
            const int place = i / N_COLUMNS, c = i % N_COLUMNS;
            n_load(&args.w, &from[c], (int32_t)t.lane + place * width, &ahead[place][c]);
        }
        if (!staged) { /* the same for all lanes */
#if K_BEFORE == K_BEFORE_NOTHING
            n_stage(&args, rows);
#else
            b_make(&args.before, rows, N_PACKS);
#endif
            staged = 1;
        }
        T bias[N_COLUMNS]; /* asked for before it is wanted; to convert it would be to wait for it
                            */
        K_UNROLL
        for (int c = 0; c < N_COLUMNS; c++) {
            const int is = args.bias != 0 && from[c].is;
            bias[c] = is ? ((const T *)args.bias)[column + c] : T_store(0);
        }
        K_ONE_COPY
        for (int32_t k = 0; k < chunks; k += batch) {
            const int more = k + batch < chunks; /* the same for all lanes */
            K_UNROLL
            for (int i = 0; i < N_AHEAD; i++) {
                const int32_t chunk = k + (int32_t)t.lane + i * width;
                if (chunk < chunks) {
                    n_add(&args, &key, rows, chunk, ahead[i], sum);
                }
                K_UNROLL
                for (int c = 0; c < N_COLUMNS && more; c++) {
                    n_load(&args.w, &from[c], chunk + batch, &ahead[i][c]);
                }
            }
        }
        n_put(&args, &t, column, bias, sum);
    }
}
