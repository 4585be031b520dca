/* rank_link.c - see rank_link.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/rank/rank_link.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAITING_MAX = 1024, AGAIN_MS = 50, ONE_TRY_MS = 5000 };

static const uint32_t mark = 0x314b524d; /* "MRK1" in memory; another order of bytes differs */

typedef struct head {
    uint32_t mark, word;
    uint64_t size;
} head;

static_assert(sizeof(head) == 16, "it is sent as it lies in memory");

/* Waits until the socket is ready for `events`. */
static mp_status wait_for(int fd, short events, int64_t until) {
    for (;;) {
        const int64_t left = until - mp_clock_ms();
        struct pollfd one = {.fd = fd, .events = events};
        const int ready = poll(&one, 1, left <= 0 ? 0 : (int)MP_MIN(left, INT32_MAX));
        if (ready > 0) {
            return MP_OK;
        }
        if (ready < 0 && errno != EINTR) {
            return MP_FAIL(DEVICE, "poll of a connection failed: %s", strerror(errno));
        }
        if (ready == 0 && left <= 0) {
            return MP_FAIL(DEVICE, "it did not answer in time");
        }
    }
}

static bool would_wait(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* ---- messages ---- */

static mp_status send_all(int fd, const void *bytes, size_t size, int64_t until) {
    const char *at = bytes;
    while (size > 0) {
        const ssize_t sent = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && !would_wait()) {
            return MP_FAIL(DEVICE, "it has gone (%s)", strerror(errno));
        }
        if (sent <= 0) {
            MP_TRY(wait_for(fd, POLLOUT, until));
            continue;
        }
        at += sent;
        size -= (size_t)sent;
    }
    return MP_OK;
}

static mp_status receive_all(int fd, void *bytes, size_t size, int64_t until) {
    char *at = bytes;
    while (size > 0) {
        const ssize_t got = recv(fd, at, size, MSG_DONTWAIT);
        if (got == 0) {
            return MP_FAIL(DEVICE, "it has gone (its connection was closed)");
        }
        if (got < 0 && !would_wait()) {
            return MP_FAIL(DEVICE, "it has gone (%s)", strerror(errno));
        }
        if (got < 0) {
            MP_TRY(wait_for(fd, POLLIN, until));
            continue;
        }
        at += got;
        size -= (size_t)got;
    }
    return MP_OK;
}

mp_status mp__link_send(int fd, mp_link_word word, const void *bytes, size_t size, int64_t until) {
    const head begin = {mark, word, size};
    MP_TRY(send_all(fd, &begin, sizeof begin, until));
    return send_all(fd, bytes, size, until);
}

/* The sentence of a refusal or an end, which becomes ours. */
static mp_status receive_text(int fd, const head *begin, int64_t until) {
    char text[MP_LINK_TEXT_MAX];
    if (begin->size >= sizeof text) {
        return MP_FAIL(DEVICE, "it sent a sentence of %llu bytes", (unsigned long long)begin->size);
    }
    MP_TRY(receive_all(fd, text, begin->size, until));
    text[begin->size] = '\0';
    return begin->word == MP_LINK_REFUSE ? MP_FAIL(INVALID_ARGUMENT, "%s", text)
                                         : MP_FAIL(NOT_FOUND, "%s", text);
}

mp_status mp__link_receive(int fd, mp_link_word word, void *bytes, size_t size, int64_t until) {
    head begin;
    MP_TRY(receive_all(fd, &begin, sizeof begin, until));
    if (begin.mark != mark) {
        return MP_FAIL(DEVICE, "it does not speak Millpond's language");
    }
    if (begin.word == MP_LINK_REFUSE || begin.word == MP_LINK_END) {
        return receive_text(fd, &begin, until);
    }
    if (begin.word != (uint32_t)word || begin.size != size) {
        return MP_FAIL(DEVICE,
                       "it sent message %u of %llu bytes where message %d of %zu was expected",
                       begin.word, (unsigned long long)begin.size, (int)word, size);
    }
    return receive_all(fd, bytes, size, until);
}

bool mp__link_stirs(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&one, 1, 0) > 0;
}

void mp__link_wait_whole(int fd, size_t size) {
    const int least = size > 0 ? (int)(sizeof(head) + size) : 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

/* ---- connections ---- */

static mp_status look_up(const char *host, int port, int flags, struct addrinfo **out) {
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    char service[16];
    (void)snprintf(service, sizeof service, "%d", port);
    const int fault = getaddrinfo(host, service, &hints, out);
    if (fault == EAI_AGAIN) {
        return MP_FAIL(BUSY, "the name of MASTER_ADDR, '%s', cannot be looked up now (%s)",
                       host != NULL ? host : "", gai_strerror(fault));
    }
    return fault == 0 ? MP_OK
                      : MP_FAIL(INVALID_ARGUMENT, "MASTER_ADDR names no host: '%s' (%s)",
                                host != NULL ? host : "", gai_strerror(fault));
}

static int open_socket(const struct addrinfo *at) {
    return socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
}

/* Small messages are not held back; a machine that is gone without a word is noticed. */
static void set_up(int fd) {
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static int listen_at(const struct addrinfo *at) {
    const int on = 1;
    const int fd = open_socket(at);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, WAITING_MAX) == 0) {
        return fd;
    }
    const int fault = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    errno = fault;
    return -1;
}

/* -1 with errno where none of the addresses will do. */
static mp_status listen_at_any(const char *host, int port, int *fd) {
    struct addrinfo *list = NULL;
    *fd = -1;
    MP_TRY(look_up(host, port, AI_PASSIVE, &list));
    for (const struct addrinfo *at = list; at != NULL && *fd < 0; at = at->ai_next) {
        *fd = listen_at(at);
    }
    const int fault = errno;
    freeaddrinfo(list);
    errno = fault;
    return MP_OK;
}

mp_status mp__link_listen(const char *host, int port, int *fd) {
    MP_TRY(listen_at_any(host, port, fd));
    if (*fd < 0 && errno == EADDRNOTAVAIL) { /* a name of this machine that only others know */
        MP_TRY(listen_at_any(NULL, port, fd));
    }
    return *fd >= 0 ? MP_OK
                    : MP_FAIL(DEVICE,
                              "rank 0 cannot listen at %s, port %d: %s; set MASTER_PORT to another "
                              "port (the one behind it is used), or MILLPOND_RANK_PORT",
                              host, port, strerror(errno));
}

mp_status mp__link_accept(int listener, int *fd) {
    *fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd >= 0) {
        set_up(*fd);
        return MP_OK;
    }
    return would_wait() || errno == ECONNABORTED || errno == EPROTO
               ? MP_OK
               : MP_FAIL(DEVICE, "rank 0 cannot take a connection: %s", strerror(errno));
}

/* A port that nobody listens at may be the one that the system picks for this end. */
static bool is_itself(int fd) {
    struct sockaddr_storage own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 && own_size == peer_size &&
           memcmp(&own, &peer, own_size) == 0;
}

/* -1 with errno. */
static int connect_to(const struct addrinfo *at, int64_t until) {
    const int fd = open_socket(at);
    int fault = 0;
    socklen_t size = sizeof fault;
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        fault = errno;
    }
    if (fault == EINPROGRESS) {
        fault = ETIMEDOUT;
        if (wait_for(fd, POLLOUT, until) == MP_OK &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size) != 0) {
            fault = errno;
        }
    }
    if (fault == 0 && is_itself(fd)) {
        fault = ECONNREFUSED;
    }
    if (fault == 0) {
        set_up(fd);
        return fd;
    }
    (void)close(fd);
    errno = fault;
    return -1;
}

static mp_status connect_once(const char *host, int port, int64_t until, int *fd) {
    struct addrinfo *list = NULL;
    *fd = -1;
    MP_TRY(look_up(host, port, 0, &list));
    for (const struct addrinfo *at = list; at != NULL && *fd < 0; at = at->ai_next) {
        *fd = connect_to(at, MP_MIN(until, mp_clock_ms() + ONE_TRY_MS));
    }
    const int fault = errno;
    freeaddrinfo(list);
    errno = fault;
    return MP_OK;
}

mp_status mp__link_connect(const char *host, int port, int64_t until, int *fd) {
    for (;;) {
        const mp_status status = connect_once(host, port, until, fd);
        const bool is_late = mp_clock_ms() >= until;
        if (*fd >= 0 || (status != MP_OK && (status != MP_BUSY || is_late))) {
            return status;
        }
        if (is_late) {
            return MP_FAIL(DEVICE,
                           "rank 0 is not at %s, port %d: %s; check MASTER_ADDR and MASTER_PORT "
                           "and that rank 0 was started",
                           host, port, strerror(errno));
        }
        (void)poll(NULL, 0, AGAIN_MS);
    }
}
