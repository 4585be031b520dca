/* trace_pickle.h - writes Python's pickle format, protocol 4, in the opcodes that PyTorch's memory
 * viewer reads.
 *
 * A value is written by what it is made of: mp__pickle_dict, then for each item a key and a value,
 * then mp__pickle_end_dict. Words that come often are written once and then referred to.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_PICKLE_H
#define MP_POOL_TRACE_PICKLE_H

#include "pool/trace/trace_writer.h"

#include <stdbool.h>
#include <stdint.h>

enum { MP_PICKLE_WORDS_MAX = 64 };

typedef struct mp_pickle {
    mp_writer *writer;                  /* borrowed */
    const char *const *words;           /* borrowed */
    unsigned kept[MP_PICKLE_WORDS_MAX]; /* the number of each word, plus 1; 0: not written yet */
    unsigned count;                     /* values that can be referred to */
} mp_pickle;

void mp__pickle_begin(mp_pickle *pickle, mp_writer *writer, const char *const *words);
void mp__pickle_end(mp_pickle *pickle);

void mp__pickle_dict(mp_pickle *pickle);
void mp__pickle_end_dict(mp_pickle *pickle);
void mp__pickle_list(mp_pickle *pickle);
void mp__pickle_end_list(mp_pickle *pickle);
/* Before item `index` of a list: ends a batch now and then, since a reader holds the items of a
 * batch apart until its end. */
void mp__pickle_item(mp_pickle *pickle, size_t index);
/* The last two values become one tuple. */
void mp__pickle_pair(mp_pickle *pickle);

void mp__pickle_int(mp_pickle *pickle, int64_t value);
void mp__pickle_bool(mp_pickle *pickle, bool value);
/* At most 255 bytes of valid UTF-8. */
void mp__pickle_text(mp_pickle *pickle, const char *text);
/* One of `words`, by its index. */
void mp__pickle_word(mp_pickle *pickle, unsigned word);

/* Lets the value just written be referred to by the number returned. */
unsigned mp__pickle_keep(mp_pickle *pickle);
void mp__pickle_kept(mp_pickle *pickle, unsigned number);

#endif
