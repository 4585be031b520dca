/* swapped.c - see swapped.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/swapped.h"

#include "base/macros.h"

#include <string.h>

enum { TILE = 32 }; /* elements of a row that are read while their cache lines are here */

static void swap_tile(const unsigned char *from, unsigned char *to, int64_t rows, int64_t columns,
                      int64_t row, int64_t column, size_t size) {
    for (int64_t r = row; r < MP_MIN(row + TILE, rows); r++) {
        for (int64_t c = column; c < MP_MIN(column + TILE, columns); c++) {
            memcpy(to + (size_t)(r * columns + c) * size, from + (size_t)(c * rows + r) * size,
                   size);
        }
    }
}

mp_status mp_graph_add_swapped(mp_graph *graph, int32_t value, int64_t rows, int64_t columns,
                               const mp_shape *shape, int32_t *out) {
    const mp_value was = graph->values[value];
    const mp_tensor tensor = {.type = was.tensor.type, .shape = *shape};
    const size_t size = mp_dtype_size(tensor.type);
    const int64_t each = rows * columns, count = mp_shape_count(shape);
    MP_TRY(mp_graph_add_constant(graph, was.name, &tensor, out));
    const unsigned char *from = (const unsigned char *)was.tensor.data;
    unsigned char *to = (unsigned char *)graph->values[*out].tensor.data;
    for (int64_t first = 0; first < count; first += each) {
        for (int64_t r = 0; r < rows; r += TILE) {
            for (int64_t c = 0; c < columns; c += TILE) {
                swap_tile(from + (size_t)first * size, to + (size_t)first * size, rows, columns, r,
                          c, size);
            }
        }
    }
    return MP_OK;
}
