/* report.c - rows of results, as JSON, one a line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* Names and reasons are our own plain text, but for paths of traces. */
static void quoted(const char *text) {
    (void)putchar('"');
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\') {
            (void)putchar('\\');
        }
        (void)putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    (void)putchar('"');
}

void row_begin(const char *test, const char *format, ...) {
    char row[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(row, sizeof row, format, arguments);
    va_end(arguments);
    (void)printf("{\"case\": ");
    quoted(test);
    (void)printf(", \"row\": ");
    quoted(row);
}

void row_number(const char *name, double value) {
    if (isfinite(value)) {
        (void)printf(", \"%s\": %.6g", name, value);
    } else {
        (void)printf(", \"%s\": null", name);
    }
}

void row_flag(const char *name, bool value) {
    (void)printf(", \"%s\": %s", name, value ? "true" : "false");
}

void row_text(const char *name, const char *value) {
    (void)printf(", \"%s\": ", name);
    quoted(value);
}

void row_end(void) {
    (void)puts("}");
    (void)fflush(stdout);
}

void row_skipped(const char *test, const char *row, const char *reason) {
    row_begin(test, "%s", row);
    row_text("skipped", reason);
    row_end();
}
