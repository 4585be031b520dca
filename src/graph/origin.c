/* origin.c - see origin.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/origin.h"

#include "base/json.h"

#include <stdbool.h>
#include <stdlib.h>

enum { NAMED_MAX = 3 };

static const char *between(int32_t i, int32_t parts) {
    return i == 0 ? "" : i == parts - 1 ? " and " : ", ";
}

void mp_origins_title(mp_origins origins, char *text, size_t size) {
    const bool all = origins.count <= NAMED_MAX;
    const int32_t named = all ? origins.count : NAMED_MAX;
    const int32_t parts = named + (all ? 0 : 1);
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < named && used < size; i++) {
        const mp_origin *o = &origins.list[i];
        const char *quote = o->name[0] != '\0' ? "'" : "";
        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s%s%s", between(i, parts), o->op,
                                 quote[0] != '\0' ? " " : "", quote, o->name, quote);
    }
    if (!all && used < size) {
        (void)snprintf(text + used, size - used, " and %d more", (int)(origins.count - named));
    }
}

mp_status mp_origins_json(mp_origins origins, char **out) {
    size_t size = 0;
    *out = NULL;
    FILE *text = open_memstream(out, &size);
    for (int32_t i = 0; text != NULL && i < origins.count; i++) {
        (void)fputs(i == 0 ? "[{\"op_type\":" : ",{\"op_type\":", text);
        mp_json_text(text, origins.list[i].op);
        (void)fputs(",\"name\":", text);
        mp_json_text(text, origins.list[i].name);
        (void)fputc('}', text);
    }
    if (text != NULL) {
        (void)fputs(origins.count > 0 ? "]" : "[]", text);
    }
    if (text == NULL || fclose(text) != 0) {
        free(*out);
        *out = NULL;
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for names of nodes");
    }
    return MP_OK;
}
