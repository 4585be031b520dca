/* trace_pickle.c - writes Python's pickle format. The opcodes are those of the module pickletools.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_pickle.h"

#include <assert.h>
#include <string.h>

enum { PROTOCOL = 4, BATCH = 1000 };

enum opcode {
    OP_PROTO = 0x80,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_EMPTY_DICT = '}',
    OP_SETITEMS = 'u',
    OP_EMPTY_LIST = ']',
    OP_APPENDS = 'e',
    OP_TUPLE2 = 0x86,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_BININT = 'J',
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_MEMOIZE = 0x94,
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
};

static void put(mp_pickle *pickle, enum opcode opcode) {
    const unsigned char byte = (unsigned char)opcode;
    mp__writer_put(pickle->writer, &byte, 1);
}

/* An opcode and `count` bytes of a number, the lowest first. */
static void put_number(mp_pickle *pickle, enum opcode opcode, uint64_t number, size_t count) {
    unsigned char bytes[1 + sizeof number];
    bytes[0] = (unsigned char)opcode;
    for (size_t i = 0; i < count; i++) {
        bytes[1 + i] = (unsigned char)(number >> (8 * i));
    }
    mp__writer_put(pickle->writer, bytes, 1 + count);
}

void mp__pickle_begin(mp_pickle *pickle, mp_writer *writer, const char *const *words) {
    *pickle = (mp_pickle){.writer = writer, .words = words};
    put_number(pickle, OP_PROTO, PROTOCOL, 1);
}

void mp__pickle_end(mp_pickle *pickle) {
    put(pickle, OP_STOP);
}

void mp__pickle_dict(mp_pickle *pickle) {
    put(pickle, OP_EMPTY_DICT);
    put(pickle, OP_MARK);
}

void mp__pickle_end_dict(mp_pickle *pickle) {
    put(pickle, OP_SETITEMS);
}

void mp__pickle_list(mp_pickle *pickle) {
    put(pickle, OP_EMPTY_LIST);
    put(pickle, OP_MARK);
}

void mp__pickle_end_list(mp_pickle *pickle) {
    put(pickle, OP_APPENDS);
}

void mp__pickle_item(mp_pickle *pickle, size_t index) {
    if (index > 0 && index % BATCH == 0) {
        put(pickle, OP_APPENDS);
        put(pickle, OP_MARK);
    }
}

void mp__pickle_pair(mp_pickle *pickle) {
    put(pickle, OP_TUPLE2);
}

void mp__pickle_int(mp_pickle *pickle, int64_t value) {
    if (value >= 0 && value <= UINT8_MAX) {
        put_number(pickle, OP_BININT1, (uint64_t)value, 1);
    } else if (value >= 0 && value <= UINT16_MAX) {
        put_number(pickle, OP_BININT2, (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put_number(pickle, OP_BININT, (uint64_t)value, 4);
    } else {
        put_number(pickle, OP_LONG1, sizeof value, 1);
        for (size_t i = 0; i < sizeof value; i++) {
            const unsigned char byte = (unsigned char)((uint64_t)value >> (8 * i));
            mp__writer_put(pickle->writer, &byte, 1);
        }
    }
}

void mp__pickle_bool(mp_pickle *pickle, bool value) {
    put(pickle, value ? OP_NEWTRUE : OP_NEWFALSE);
}

void mp__pickle_text(mp_pickle *pickle, const char *text) {
    const size_t length = strlen(text);
    assert(length <= UINT8_MAX);
    put_number(pickle, OP_SHORT_BINUNICODE, length, 1);
    mp__writer_put(pickle->writer, text, length);
}

void mp__pickle_word(mp_pickle *pickle, unsigned word) {
    assert(word < MP_PICKLE_WORDS_MAX);
    if (pickle->kept[word] > 0) {
        mp__pickle_kept(pickle, pickle->kept[word] - 1);
        return;
    }
    mp__pickle_text(pickle, pickle->words[word]);
    pickle->kept[word] = mp__pickle_keep(pickle) + 1;
}

unsigned mp__pickle_keep(mp_pickle *pickle) {
    put(pickle, OP_MEMOIZE);
    return pickle->count++;
}

void mp__pickle_kept(mp_pickle *pickle, unsigned number) {
    const bool is_small = number <= UINT8_MAX;
    put_number(pickle, is_small ? OP_BINGET : OP_LONG_BINGET, number, is_small ? 1 : 4);
}
