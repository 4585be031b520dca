/* sha256_test.c - the hash against the examples that come with its standard.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/sha256.h"

#include <stdio.h>

static void check(const char *text, size_t repeats, size_t piece, const char *expected) {
    uint8_t sum[MP_SHA256_SIZE];
    char hex[2 * MP_SHA256_SIZE + 1];
    mp_sha256 hash;
    mp_sha256_init(&hash);
    for (size_t i = 0; i < repeats; i++) {
        for (size_t at = 0; at < strlen(text); at += piece) {
            const size_t left = strlen(text) - at;
            mp_sha256_add(&hash, text + at, left < piece ? left : piece);
        }
    }
    mp_sha256_end(&hash, sum);
    for (size_t i = 0; i < sizeof sum; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }
    CHECK_STR_HAS(hex, expected);
}

TEST(sha256_known_answers) {
    check("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 1, 2, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece <= 56; piece++) {
        check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, piece,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    check("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 12500,
          33, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256_texts_keep_their_borders) {
    uint8_t first[MP_SHA256_SIZE];
    uint8_t second[MP_SHA256_SIZE];
    mp_sha256 hash;
    mp_sha256_init(&hash);
    mp_sha256_add_text(&hash, "ab");
    mp_sha256_add_text(&hash, "c");
    mp_sha256_end(&hash, first);
    mp_sha256_init(&hash);
    mp_sha256_add_text(&hash, "a");
    mp_sha256_add_text(&hash, "bc");
    mp_sha256_end(&hash, second);
    CHECK(memcmp(first, second, sizeof first) != 0);
}
