/* trace_numbering.c - see trace_numbering.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_numbering.h"

#include <stdlib.h>

mp_status mp__number(mp_numbering *all, uint64_t value) {
    uint64_t known;
    if (mp__map_get(&all->numbers, value, &known)) {
        return MP_OK;
    }
    if (all->numbers.count == all->capacity) {
        const size_t capacity = all->capacity * 2 + 16;
        uint64_t *values = realloc(all->values, capacity * sizeof *values);
        if (values == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "no memory for a list of %zu names of a trace", capacity);
        }
        all->values = values;
        all->capacity = capacity;
    }
    all->values[all->numbers.count] = value;
    return mp__map_set(&all->numbers, value, all->numbers.count);
}

uint64_t mp__number_of(const mp_numbering *all, uint64_t value) {
    uint64_t found = 0;
    (void)mp__map_get(&all->numbers, value, &found);
    return found;
}

void mp__numbering_free(mp_numbering *all) {
    mp__map_free(&all->numbers);
    free(all->values);
}
