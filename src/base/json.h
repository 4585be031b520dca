/* json.h - texts in JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_JSON_H
#define MP_BASE_JSON_H

#include <stdio.h>

/* Writes `text` between quotes, valid whatever bytes it holds: what is no UTF-8 becomes '?'. `<` is
 * escaped, so that the text can stand in a page. */
void mp_json_text(FILE *out, const char *text);

#endif
