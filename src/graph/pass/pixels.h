/* pixels.h - convolutions over images with channels last that are products of their pixels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_PIXELS_H
#define MP_GRAPH_PASS_PIXELS_H

#include "graph/graph.h"

/* Whether the node is a convolution with channels last whose window is moved by one pixel and not
 * beyond the image, in one group; with what follows it, or without. */
bool mp_is_of_pixels(const mp_vertex *v);

#endif
