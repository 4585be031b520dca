/* host_real.h - the few loops of library math that depend on the element type, as a table.
 *
 * Each type has a type it is computed in ("real"): double for double, float for the others.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_REAL_H
#define MP_DEVICE_HOST_REAL_H

#include "base/dtype.h"
#include "device/host/math/host_blas.h"

#include <stddef.h>

typedef struct host_real {
    mp_dtype type;
    size_t size;      /* of an element as stored */
    size_t real_size; /* of an element as computed */
    bool direct;      /* both are the same type */
    /* to[i] = from[i * step], computed from stored. */
    void (*load)(void *to, const void *from, size_t count, size_t step);
    /* to[i] = from[i], stored from computed. */
    void (*store)(void *to, const void *from, size_t count);
    /* to[i] = value[0], all computed; zero when `value` is NULL. */
    void (*fill)(void *to, const void *value, size_t count);
    /* to[i] += value[0], all computed. */
    void (*shift)(void *to, const void *value, size_t count);
    /* to[i] += more[i] * scale, all computed. */
    void (*add)(void *to, const void *more, size_t count, float scale);
    /* to[i * to_step] += from[i * from_step] * weight[0], all computed. */
    void (*gather)(void *to, size_t to_step, const void *from, size_t from_step, const void *weight,
                   size_t count);
    void (*product)(const host_product *product); /* all computed */
} host_real;

/* The row of a type; NULL for a type that library math does not know. */
const host_real *mp__host_real(mp_dtype type);

#endif
