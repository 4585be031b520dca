/* image_rows.h - images [batch, channels, height, width] that are seen as rows of pixels, [batch,
 * height * width, channels], and back: with channels last both are views of each other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_IMAGE_ROWS_H
#define MP_GRAPH_PASS_IMAGE_ROWS_H

#include "graph/graph.h"

/* Whether node `n` makes rows of an image, by a Reshape and a Transpose. `dim`: what a Reshape of
 * the image with its channels last is to be given. */
bool mp_rows_of_image(const mp_graph *graph, int32_t n, int32_t *image, int64_t dim[3]);

/* The same of images [batch * heads, channels, height, width] that become rows of each head,
 * [batch, heads, height * width, channels]. */
bool mp_heads_of_image(const mp_graph *graph, int32_t n, int32_t *image, int64_t dim[4]);

/* Whether `image` is made of rows by a Transpose and a Reshape, and the list of its dimensions. */
bool mp_image_of_rows(const mp_graph *graph, int32_t image, int32_t *rows, int32_t *list);

#endif
