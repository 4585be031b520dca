/* option.c - reads settings, and says in one sentence what is wrong with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/option.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_COMPARED = 63, WORDS_TEXT_MAX = 256 };

/* ---- values ---- */

mp_status mp_parse_bool(const char *name, const char *value, bool *out) {
    static const char *const yes[] = {"1", "true", "on"}, *const no[] = {"0", "false", "off"};
    for (size_t i = 0; i < MP_COUNT_OF(yes); i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *out = strcasecmp(value, yes[i]) == 0;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "%s is \"%s\"; use 1 or true, 0 or false", name, value);
}

mp_status mp_parse_int(const char *name, const char *value, int64_t least, int64_t most,
                       int64_t *out) {
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    if (end == value || *end != 0 || isspace((unsigned char)*value) || errno != 0 ||
        number < least || number > most) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s is \"%s\"; use a whole number from %" PRId64 " to %" PRId64, name, value,
                       least, most);
    }
    *out = number;
    return MP_OK;
}

/* How many bits the unit behind a size moves it; -1 for something else than a unit. */
static int unit_shift(const char *unit) {
    static const char units[] = "KMGT";
    if (*unit == 0) {
        return 0;
    }
    const char *found = unit[1] == 0 ? strchr(units, toupper((unsigned char)*unit)) : NULL;
    return found != NULL ? 10 * (int)(found - units + 1) : -1;
}

mp_status mp_parse_size(const char *name, const char *value, size_t *out) {
    const int base = value[0] == '0' && (value[1] == 'x' || value[1] == 'X') ? 16 : 10;
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(value, &end, base);
    const int shift =
        end != value && isdigit((unsigned char)*value) && errno == 0 ? unit_shift(end) : -1;
    if (shift < 0 || number > SIZE_MAX >> shift) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "%s is \"%s\"; use a number of bytes, with K, M, G or T behind it if need be", name,
            value);
    }
    *out = (size_t)number << shift;
    return MP_OK;
}

mp_status mp_parse_address(const char *name, const char *value, uintptr_t *out) {
    const int base = value[0] == '0' && (value[1] == 'x' || value[1] == 'X') ? 16 : 10;
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(value, &end, base);
    if (!isdigit((unsigned char)*value) || *end != 0 || errno != 0 || number > UINTPTR_MAX) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s is \"%s\"; use an address as a whole number, decimal or 0x...", name,
                       value);
    }
    *out = (uintptr_t)number;
    return MP_OK;
}

mp_status mp_parse_word(const char *name, const char *value, const char *const *words, int *out) {
    char all[WORDS_TEXT_MAX] = "";
    for (int i = 0; words[i] != NULL; i++) {
        if (strcasecmp(value, words[i]) == 0) {
            *out = i;
            return MP_OK;
        }
        const size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    return MP_FAIL(INVALID_ARGUMENT, "%s is \"%s\"; use one of %s", name, value, all);
}

/* ---- names ---- */

static size_t least3(size_t a, size_t b, size_t c) {
    const size_t least = MP_MIN(a, b);
    return MP_MIN(least, c);
}

/* How many letters must be put in, taken out or changed to make one word of the other. */
static size_t distance(const char *left, const char *right) {
    const size_t columns = strnlen(right, NAME_MAX_COMPARED);
    size_t row[NAME_MAX_COMPARED + 1];
    for (size_t j = 0; j <= columns; j++) {
        row[j] = j;
    }
    for (size_t i = 0; i < NAME_MAX_COMPARED && left[i] != 0; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= columns; j++) {
            const bool same =
                tolower((unsigned char)left[i]) == tolower((unsigned char)right[j - 1]);
            const size_t above = row[j];
            row[j] = least3(row[j - 1] + 1, above + 1, diagonal + !same);
            diagonal = above;
        }
    }
    return row[columns];
}

const char *mp_option_nearest(const mp_option *table, size_t count, const char *name) {
    const char *nearest = NULL;
    size_t least = 2 + strnlen(name, NAME_MAX_COMPARED) / 4; /* farther names would not help */
    for (size_t i = 0; i < count; i++) {
        const size_t found = distance(name, table[i].name);
        if (found <= least && (nearest == NULL || found < least)) {
            least = found;
            nearest = table[i].name;
        }
    }
    return nearest;
}

static mp_status unknown(const mp_option *table, size_t count, const char *name) {
    const char *nearest = mp_option_nearest(table, count, name);
    if (nearest != NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no option \"%s\"; did you mean \"%s\"?", name,
                       nearest);
    }
    return MP_FAIL(INVALID_ARGUMENT, "there is no option \"%s\"", name);
}

mp_status mp_option_set(const mp_option *table, size_t count, void *target, const char *name,
                        const char *value) {
    for (size_t i = 0; i < count; i++) {
        const mp_option *row = &table[i];
        void *field = (char *)target + row->offset;
        if (strcasecmp(row->name, name) != 0) {
            continue;
        }
        switch (row->kind) {
        case MP_OPTION_BOOL:
            return mp_parse_bool(row->name, value, field);
        case MP_OPTION_INT:
            return mp_parse_int(row->name, value, row->least, row->most, field);
        case MP_OPTION_SIZE:
            return mp_parse_size(row->name, value, field);
        case MP_OPTION_WORD:
            return mp_parse_word(row->name, value, row->words, field);
        case MP_OPTION_ADDRESS:
            return mp_parse_address(row->name, value, field);
        }
    }
    return unknown(table, count, name);
}

void mp_option_print(const mp_option *row, const void *source, char *text, size_t size) {
    const void *field = (const char *)source + row->offset;
    switch (row->kind) {
    case MP_OPTION_BOOL:
        (void)snprintf(text, size, "%d", *(const bool *)field);
        return;
    case MP_OPTION_INT:
        (void)snprintf(text, size, "%" PRId64, *(const int64_t *)field);
        return;
    case MP_OPTION_SIZE:
        (void)snprintf(text, size, "%zu", *(const size_t *)field);
        return;
    case MP_OPTION_WORD:
        (void)snprintf(text, size, "%s", row->words[*(const int *)field]);
        return;
    case MP_OPTION_ADDRESS:
        (void)snprintf(text, size, "0x%" PRIxPTR, *(const uintptr_t *)field);
        return;
    }
}
