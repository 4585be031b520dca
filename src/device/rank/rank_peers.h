/* rank_peers.h - memory of each rank that the others reach, where all are on one machine.
 *
 * It is opened by all ranks or by none, once, as the first thing that they do when they have met.
 * They stay without it where a device cannot share memory, cannot reach that of another, or where
 * bytes that were sent for a test did not come; and where one of them wants none
 * (MILLPOND_RANK_DIRECT=0).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_RANK_PEERS_H
#define MP_DEVICE_RANK_PEERS_H

#include "device/rank/rank_group.h"

/* Opens it where that has not been tried. Without it is a success, too. Threads: any. Blocks: until
 * all ranks have come here. Fails: DEVICE where the group is broken. */
MP_MUST_CHECK mp_status mp__group_peers_open(mp_group *group, mp_device *device);

/* What work that all ranks agree on is done with; NULL: as without it. After
 * mp__group_peers_open. */
const mp_peers *mp__group_peers(const mp_group *group, const mp_collective *what);

/* Kernels wait for other ranks no more, from now on and for good. */
void mp__group_peers_stop(mp_group *group);
bool mp__group_peers_stopped(const mp_group *group);

#endif
