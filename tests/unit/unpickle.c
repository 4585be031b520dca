/* unpickle.c - a reader of pickles that keeps every value as its text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit/unpickle.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEPTH_MAX = 4096, MEMO_MAX = 1024 };

typedef struct reader {
    const unsigned char *at, *end;
    char *stack[DEPTH_MAX]; /* owned texts */
    size_t depth;
    size_t marks[DEPTH_MAX];
    size_t mark_count;
    char *memo[MEMO_MAX]; /* owned */
    size_t memo_count;
} reader;

static void push(reader *r, const char *text, size_t length) {
    CHECK(r->depth < DEPTH_MAX);
    char *copy = strndup(text, length);
    CHECK(copy != NULL);
    r->stack[r->depth++] = copy;
}

static uint64_t number(reader *r, size_t size) {
    uint64_t value = 0;
    CHECK((size_t)(r->end - r->at) >= size);
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)*r->at++ << (8 * i);
    }
    return value;
}

static void push_int(reader *r, int64_t value) {
    char text[32];
    push(r, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

static void push_text(reader *r) {
    char text[300];
    const size_t length = number(r, 1);
    CHECK((size_t)(r->end - r->at) >= length);
    push(r, text, (size_t)snprintf(text, sizeof text, "'%.*s'", (int)length, (const char *)r->at));
    r->at += length;
}

/* Replaces the values from `first` on, and the container before them, by the container with the
 * values in it: their texts between ", ", or ": " after each key. */
static void gather(reader *r, size_t first, bool pairs, char open, char close) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    CHECK(out != NULL);
    const char *before = first > 0 && open != '(' ? r->stack[first - 1] : "";
    const size_t kept = strlen(before);
    if (open != '(') {
        CHECK(kept >= 2 && before[0] == open && before[kept - 1] == close);
        (void)fwrite(before, 1, kept - 1, out);
    } else {
        (void)fputc(open, out);
    }
    for (size_t i = first; i < r->depth; i++) {
        const bool value = pairs && (i - first) % 2 == 1;
        const bool starts = i == first && kept <= 2;
        (void)fprintf(out, "%s%s", value ? ": " : starts ? "" : ", ", r->stack[i]);
        free(r->stack[i]);
    }
    (void)fputc(close, out);
    (void)fclose(out);
    r->depth = first;
    if (open != '(') {
        free(r->stack[--r->depth]);
    }
    r->stack[r->depth++] = text;
}

static size_t take_mark(reader *r) {
    CHECK(r->mark_count > 0);
    const size_t mark = r->marks[--r->mark_count];
    CHECK(mark > 0 && mark <= r->depth);
    return mark;
}

static void memoize(reader *r) {
    CHECK(r->depth > 0 && r->memo_count < MEMO_MAX);
    r->memo[r->memo_count] = strdup(r->stack[r->depth - 1]);
    CHECK(r->memo[r->memo_count] != NULL);
    r->memo_count++;
}

static void recall(reader *r, size_t index) {
    CHECK(index < r->memo_count);
    push(r, r->memo[index], strlen(r->memo[index]));
}

/* One opcode other than the first and the last. */
static void step(reader *r, unsigned char opcode) {
    switch (opcode) {
    case '(':
        CHECK(r->mark_count < DEPTH_MAX);
        r->marks[r->mark_count++] = r->depth;
        break;
    case '}':
        push(r, "{}", 2);
        break;
    case ']':
        push(r, "[]", 2);
        break;
    case 'u':
        gather(r, take_mark(r), true, '{', '}');
        break;
    case 'e':
        gather(r, take_mark(r), false, '[', ']');
        break;
    case 0x86:
        CHECK(r->depth >= 2);
        gather(r, r->depth - 2, false, '(', ')');
        break;
    case 0x88:
        push(r, "True", 4);
        break;
    case 0x89:
        push(r, "False", 5);
        break;
    case 'K':
        push_int(r, (int64_t)number(r, 1));
        break;
    case 'M':
        push_int(r, (int64_t)number(r, 2));
        break;
    case 'J':
        push_int(r, (int32_t)number(r, 4));
        break;
    case 0x8a:
        CHECK_EQ_INT(number(r, 1), 8);
        push_int(r, (int64_t)number(r, 8));
        break;
    case 0x8c:
        push_text(r);
        break;
    case 0x94:
        memoize(r);
        break;
    case 'h':
        recall(r, number(r, 1));
        break;
    case 'j':
        recall(r, number(r, 4));
        break;
    default:
        test_fail(__FILE__, __LINE__, "opcode 0x%02x", opcode);
    }
}

char *test_unpickle(const char *pickle, size_t size) {
    reader *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    r->at = (const unsigned char *)pickle;
    r->end = r->at + size;
    CHECK_EQ_INT(number(r, 1), 0x80);
    CHECK_EQ_INT(number(r, 1), 4);
    for (uint64_t opcode = number(r, 1); opcode != '.'; opcode = number(r, 1)) {
        step(r, (unsigned char)opcode);
    }
    CHECK(r->at == r->end && r->depth == 1 && r->mark_count == 0);
    char *text = r->stack[0];
    for (size_t i = 0; i < r->memo_count; i++) {
        free(r->memo[i]);
    }
    free(r);
    return text;
}
