/* test_port.h - ports of this machine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_TEST_PORT_H
#define MP_TESTS_UNIT_TEST_PORT_H

#include "unit/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port that was free a moment ago. */
static inline int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

#endif
