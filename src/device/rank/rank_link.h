/* rank_link.h - messages between two ranks: a TCP connection on which nothing waits beyond a given
 * time, and nothing comes in that was not asked for.
 *
 * A message is a head, with a mark, a word that says what it is, and a size, and that many bytes.
 * Whoever receives says which message and which size it expects; of others only refusals are read,
 * whose text is bounded. Peers are not trusted, but neither are they proven to be who they say.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_RANK_LINK_H
#define MP_DEVICE_RANK_LINK_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mp_link_word {
    MP_LINK_HELLO = 1, /* to rank 0: who joins */
    MP_LINK_WELCOME,   /* from rank 0: all are there */
    MP_LINK_ASK,       /* to rank 0: what this rank is about to do */
    MP_LINK_GO,        /* from rank 0: all do the same */
    MP_LINK_DATA,
    MP_LINK_REFUSE, /* a sentence: not this, but the link stays */
    MP_LINK_END,    /* a sentence: nothing more comes */
} mp_link_word;

enum { MP_LINK_TEXT_MAX = 512 };

/* Sends a message; `until` is a moment of mp_clock_ms(). Fails: DEVICE where the peer has gone, or
 * does not read until `until`. */
MP_MUST_CHECK mp_status mp__link_send(int fd, mp_link_word word, const void *bytes, size_t size,
                                      int64_t until);

/* Receives the message `word` of exactly `size` bytes. Fails: INVALID_ARGUMENT with the text of a
 * refusal that came in its place, the link as good as before; NOT_FOUND with the text of an end;
 * DEVICE where the peer has gone, sent anything else, or nothing until `until`. */
MP_MUST_CHECK mp_status mp__link_receive(int fd, mp_link_word word, void *bytes, size_t size,
                                         int64_t until);

/* Whether the peer has closed its side, or sent something. Does not wait. */
bool mp__link_stirs(int fd);

/* Lets mp__link_stirs, and any poll for input, wait for a whole message of `size` bytes; 0: for
 * anything again. Who sends half of one keeps nobody. */
void mp__link_wait_whole(int fd, size_t size);

/* Listens for ranks at `host`, or at all addresses where it is no address of this machine.
 * Gives: `*fd`, until close. Fails: DEVICE, INVALID_ARGUMENT for a host that is not known. */
MP_MUST_CHECK mp_status mp__link_listen(const char *host, int port, int *fd);

/* Takes a connection that waits; `*fd` is -1 where there is none. */
MP_MUST_CHECK mp_status mp__link_accept(int listener, int *fd);

/* Connects, again and again until `until`. Gives: `*fd`, until close. Fails: as above. */
MP_MUST_CHECK mp_status mp__link_connect(const char *host, int port, int64_t until, int *fd);

#endif
