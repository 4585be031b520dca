/* moe_product.h - which kernel multiplies the routes of a mixture of experts by their experts'
 * weights, and its step.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_MOE_PRODUCT_H
#define MP_OP_MOE_PRODUCT_H

#include "op/quantize/moe_steps.h"

typedef enum mp_moe_way {
    MP_MOE_FEW,   /* routes an expert: bound by the reading of the weights */
    MP_MOE_TILES, /* of floats */
    MP_MOE_SOME,  /* tiles by tensor cores: of some routes, ... */
    MP_MOE_MANY,  /* ... or many */
} mp_moe_way;

/* The routes in the order of their experts. */
typedef struct mp_moe_routes {
    int64_t count;
    mp_moe_way way;
    int64_t tile, tiles_max; /* routes of a tile; as many tiles as there may be */
    mp_ref pairs;            /* as they were routed, or MP_NOWHERE where they are gone */
    mp_ref sorted, weight, first, tiles;
} mp_moe_routes;

/* Sets the way, and with it the tiles, by `count`. */
void mp_moe_choose_way(const mp_planner *p, const mp_moe *m, mp_moe_routes *r);

/* What one of the products is of. */
typedef struct mp_moe_factors {
    const mp_expert_matrix *matrix;
    mp_ref a;
    int64_t share;         /* routes that have a row of `a` in common */
    k_moe_between between; /* is done with the result; K_MOE_IDENTITY for nothing */
    int64_t parts;         /* of k; with several the result is as mp_moe_product_args says */
} mp_moe_factors;

/* Parts that k is cut into where a product's tiles would leave the device idle, and nothing is done
 * with its result but to combine it. */
int64_t mp_moe_parts(const mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                     const mp_expert_matrix *matrix);

/* out[route] = a[route / share] . the weights of the route's expert. Fails: INVALID_ARGUMENT. */
mp_status mp_plan_moe_product(mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                              const mp_moe_factors *of, mp_ref out);

#endif
