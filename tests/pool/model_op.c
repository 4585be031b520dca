/* model_op.c - which operations there are, and how they follow from a seed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "model_state.h"
#include "unit/random.h"

#include <stdio.h>
#include <string.h>

const model_config model_configs[] = {
    {.name = "default", .options = {NULL}, .size_max = 1 << 20, .live_max = 400},
    {.name = "small",
     .options = {"arena.max_mem=4M", "arena.max_dead_bytes_per_chunk=0", NULL},
     .size_max = 1 << 18,
     .live_max = 200},
    {.name = "expandable",
     .options = {"arena.expandable=1", "arena.max_dead_bytes_per_chunk=0", NULL},
     .size_max = 6 << 20,
     .live_max = 100},
    {.name = "expandable-small",
     .options = {"arena.expandable=1", "arena.max_mem=12M", "arena.max_dead_bytes_per_chunk=0",
                 NULL},
     .size_max = 3 << 20,
     .live_max = 60},
    {.name = "guard",
     .options = {"arena.guard=1", "arena.max_mem=16M", NULL},
     .size_max = 1 << 17,
     .live_max = 200,
     .border = 256},
    {.name = "as-requested",
     .options = {"arena.extend_strategy=1", "arena.max_mem=32M", NULL},
     .size_max = 1 << 19,
     .live_max = 150},
};
const size_t model_config_count = sizeof model_configs / sizeof model_configs[0];

const model_config *model_config_named(const char *name) {
    for (size_t i = 0; i < model_config_count; i++) {
        if (strcmp(model_configs[i].name, name) == 0) {
            return &model_configs[i];
        }
    }
    return NULL;
}

static const uint16_t weights[] = {
#define WEIGHT(name, weight) weight,
    MODEL_OPS(WEIGHT)
#undef WEIGHT
};

static const char *const names[] = {
#define NAME(name, weight) #name,
    MODEL_OPS(NAME)
#undef NAME
};

static model_kind kind_of(uint64_t random) {
    uint32_t sum = 0;
    for (int i = 0; i < MODEL_KINDS; i++) {
        sum += weights[i];
    }
    uint32_t left = (uint32_t)(random % sum);
    int kind = 0;
    while (left >= weights[kind]) {
        left -= weights[kind++];
    }
    return (model_kind)kind;
}

/* Mostly small sizes, a few that come again and again, and now and then a large one. */
static uint32_t size_of(uint64_t random, size_t most) {
    static const uint32_t common[] = {1, 256, 512, 1000, 4096, 5000, 16384, 65536};
    const uint64_t value = random >> 8;
    switch (random % 8) {
    case 0:
    case 1:
    case 2:
        return common[value % 8];
    case 3:
    case 4:
    case 5:
        return (uint32_t)(value % 3000);
    case 6:
        return (uint32_t)(value % (most / 16));
    default:
        return (uint32_t)(value % most);
    }
}

model_op model_op_at(const model_config *config, uint64_t seed, uint64_t index) {
    const uint64_t base = test_mix(seed * UINT64_C(0x9e3779b97f4a7c15) + index);
    const uint64_t more = test_mix(base + UINT64_C(0x632be59bd9b4e019));
    return (model_op){
        .kind = kind_of(test_mix(base + 1) >> 7),
        .which = (uint32_t)(base >> 32),
        .size = size_of(more, config->size_max),
        .client = (uint8_t)(base % MODEL_CLIENTS),
        .stream = (uint8_t)((base >> 8) % MODEL_STREAMS),
        .other = (uint8_t)((base >> 16) % MODEL_STREAMS),
    };
}

model_op model_op_from(const unsigned char *bytes) {
    const uint32_t word = (uint32_t)(bytes[4] | bytes[5] << 8 | bytes[6] << 16);
    return (model_op){
        .kind = (model_kind)(bytes[0] % MODEL_KINDS),
        .client = bytes[1] % MODEL_CLIENTS,
        .stream = bytes[2] % MODEL_STREAMS,
        .other = bytes[3] % MODEL_STREAMS,
        .size = bytes[7] % 16 == 15 ? UINT32_MAX - word : word >> bytes[7] % 16,
        .which = word,
    };
}

void model_op_print(const model_op *op, char *text, size_t size) {
    (void)snprintf(text, size, "%-14s which %-10u size %-8u client %u stream %u other %u",
                   names[op->kind], op->which, op->size, op->client, op->stream, op->other);
}
