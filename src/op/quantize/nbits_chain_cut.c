/* nbits_chain_cut.c - see nbits_chain_cut.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/nbits_chain_cut.h"

#include "base/macros.h"

enum {
    ARCH = 90,
    BLOCKS_LOG = 4,  /* of the cluster: what whole GPUs have */
    FIXED = 1 << 10, /* shared memory that the device takes for each block */
    WARPS_MIN = 8,
    /* Bytes of packed weights that one group of multiprocessors reads in less time than passes
     * between kernels that all of them read with. */
    BYTES_MAX = 3 << 20,
};

static int32_t place(int64_t *end, int64_t bytes) {
    const int64_t at = *end;
    *end = MP_ALIGN_UP(at + bytes, 16);
    return (int32_t)at;
}

/* Tiles of the block that has most of them. */
static int64_t most_tiles(const k_chain_link *link, int blocks_log) {
    return MP_CEIL_DIV((int64_t)link->tiles, (int64_t)1 << blocks_log);
}

/* `column`, `stage`: bytes of one. */
static k_chain_pitch pitch_of(const k_chain_link *link, int blocks_log, int64_t column,
                              int64_t stage) {
    const int64_t tile = ((int64_t)link->each << blocks_log) * column; /* to the block's next one */
    return (k_chain_pitch){.column = (int32_t)column,
                           .stage = (int32_t)stage,
                           .apart = (int32_t)(column * link->apart),
                           .next = (int32_t)(link->next_tiles * tile)};
}

static void cut_link(int bits, int blocks_log, int warps, k_chain_link *link) {
    link->chunks = link->k / K_NBITS_CHUNK;
    link->mean = 1 / (float)link->k;
    link->made = link->gated ? link->n / 2 : link->n;
    link->each = link->gated ? K_CHAIN_COLUMNS / 2 : K_CHAIN_COLUMNS;
    link->apart = link->gated ? link->n / 2 : K_CHAIN_COLUMNS / 2;
    link->stages = (int32_t)MP_CEIL_DIV(link->chunks, K_CHAIN_CHUNKS);
    link->by_stages = (1 << 16) / link->stages + 1;
    link->tiles = link->n / K_CHAIN_COLUMNS;
    link->next_tiles = MP_MAX(warps / link->stages, 1);
    link->weights = pitch_of(link, blocks_log, (int64_t)link->k * bits / 8,
                             K_CHAIN_CHUNKS * K_NBITS_CHUNK * bits / 8);
    link->scales = pitch_of(link, blocks_log, (int64_t)(link->chunks >> link->chunks_log) * 2,
                            K_CHAIN_CHUNKS * 2 >> link->chunks_log);
}

int64_t mp_nbits_chain_lay_out(int bits, uint32_t normed, int blocks_log, int warps,
                               mp_nbits_chain_args *args) {
    int64_t row = 0, sums = 0, given[2] = {0}, end;
    args->blocks_log = blocks_log;
    args->width = 0;
    end = K_CHAIN_HEAD + (int64_t)warps * K_CHAIN_AHEAD(bits) * K_CHAIN_STAGE(bits);
    for (int i = 0; i < args->links; i++) {
        k_chain_link *link = &args->link[i];
        cut_link(bits, blocks_log, warps, link);
        row = MP_MAX(row, (int64_t)link->k * 2);
        sums = MP_MAX(sums, most_tiles(link, blocks_log) * link->stages);
        given[i % 2] = MP_MAX(given[i % 2], (int64_t)link->made * 2);
        if ((normed >> i & 1) != 0) {
            args->width = link->k;
            link->norm_at = place(&end, (int64_t)link->k * 2);
        }
    }
    args->row = place(&end, row);
    args->given[0] = place(&end, given[0]);
    args->given[1] = place(&end, given[1]);
    args->sums = place(&end, sums * K_CHAIN_COLUMNS * (int64_t)sizeof(float));
    return end;
}

static bool suits(const mp_nbits_chain_args *args, int bits) {
    int64_t bytes = 0;
    for (int i = 0; i < args->links; i++) {
        const k_chain_link *link = &args->link[i];
        if (link->k % (2 * K_NBITS_CHUNK << link->chunks_log) != 0 ||
            link->n % K_CHAIN_COLUMNS != 0) {
            return false;
        }
        bytes += (int64_t)link->n * link->k * bits / 8;
    }
    return bytes <= BYTES_MAX;
}

/* Whether there is a warp for each stage of a column, and a lane for each four elements of what is
 * given and of rows with a norm. */
static bool are_enough(const mp_nbits_chain_args *args, uint32_t normed, int warps) {
    const int lanes = MP_MIN(warps * 32, K_CHAIN_NORM_LANES);
    for (int i = 0; i < args->links; i++) {
        const bool is_made = i == 0 || (normed >> i & 1) != 0;
        if (MP_CEIL_DIV(args->link[i].k, K_NBITS_CHUNK * K_CHAIN_CHUNKS) > warps ||
            (is_made && args->link[i].k > lanes * 4)) {
            return false;
        }
    }
    return true;
}

/* Stages that a warp has, at most. */
static int64_t rounds(const mp_nbits_chain_args *args, int warps) {
    int64_t all = 0;
    for (int i = 0; i < args->links; i++) {
        const k_chain_link *link = &args->link[i];
        all += MP_CEIL_DIV(most_tiles(link, BLOCKS_LOG), (int64_t)(warps / link->stages));
    }
    return all;
}

bool mp_nbits_chain_cut_for(const mp_device_info *info, int bits, uint32_t normed,
                            mp_nbits_chain_args *args, mp_nbits_chain_cut *out) {
    const int64_t room = (int64_t)info->shared_bytes_max - FIXED;
    int best = 0;
    if (info->arch < ARCH || info->cluster_blocks_max < 1 << BLOCKS_LOG || !suits(args, bits)) {
        return false;
    }
    for (int warps = WARPS_MIN; warps <= K_CHAIN_WARPS; warps++) {
        if (are_enough(args, normed, warps) &&
            mp_nbits_chain_lay_out(bits, normed, BLOCKS_LOG, warps, args) <= room &&
            (best == 0 || rounds(args, warps) < rounds(args, best))) {
            best = warps;
        }
    }
    if (best == 0) {
        return false;
    }
    const int64_t bytes = mp_nbits_chain_lay_out(bits, normed, BLOCKS_LOG, best, args);
    *out = (mp_nbits_chain_cut){
        .blocks = 1u << BLOCKS_LOG, .lanes = (uint32_t)best * 32, .shared_bytes = (uint32_t)bytes};
    return true;
}
