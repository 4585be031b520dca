/* rank_env.h - who this process is among its ranks, as torchrun, mpirun or the user says.
 *
 * RANK and WORLD_SIZE, which torchrun sets, count before those of Open MPI (OMPI_COMM_WORLD_RANK,
 * OMPI_COMM_WORLD_SIZE) and of other MPIs (PMI_RANK, PMI_SIZE). Rank 0 listens at MASTER_ADDR
 * (127.0.0.1 where it is not set), port MILLPOND_RANK_PORT, or MASTER_PORT + 1, since MASTER_PORT
 * is torch's own. MILLPOND_RANK_TIMEOUT is how many seconds ranks wait for one another.
 * MILLPOND_RANK_DIRECT is up to how many bytes ranks of one machine sum by a kernel of ours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_RANK_ENV_H
#define MP_DEVICE_RANK_ENV_H

#include "base/status.h"

#include <stdint.h>

enum { MP_RANKS_MAX = 1024, MP_RANK_HOST_MAX = 256 };

typedef struct mp_rank {
    int rank, size;
    char host[MP_RANK_HOST_MAX]; /* where rank 0 is */
    int port;
    int64_t timeout_ms;
    int64_t direct_bytes; /* up to which kernels of ours sum; below 0: as is best */
} mp_rank;

/* Fails: NOT_FOUND where nothing says that there are ranks; INVALID_ARGUMENT for values that make
 * no sense. Threads: any that do not change the environment meanwhile. */
MP_MUST_CHECK mp_status mp__rank_read(mp_rank *out);

#endif
