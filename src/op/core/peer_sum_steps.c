/* peer_sum_steps.c - see peer_sum_steps.h.
 * Kernel: core/peer_sum.cu.
 *
 * Whether ranks reach each other is known when they have met, which the first run makes them do, so
 * the kernel is there beside the device's own way, and each run takes one of the two.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/peer_sum_steps.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(k_peers) == sizeof(mp_peers) &&
                  offsetof(k_peers, turns) == offsetof(mp_peers, turns) &&
                  offsetof(k_peers, ranks) == offsetof(mp_peers, ranks) &&
                  (int)K_PEERS_MAX == (int)MP_PEERS_MAX,
              "a kernel gets it as the device gives it");

enum { PACKET_BYTES = 8, LANES_MIN = 128, LANES_MAX = 512 };

/* A packet a lane, as far as that goes: then all are under way at once. Blocks wait for what other
 * ranks' blocks send, so all of them are to be there; the emulated device has one after the
 * other. */
static mp_grid grid_for(const mp_device *device, size_t bytes) {
    const size_t packets = MP_CEIL_DIV(bytes, (size_t)PACKET_BYTES);
    const size_t most = (size_t)device->info.multiprocessors;
    uint32_t lanes = LANES_MIN;
    if (device->info.kind == MP_DEVICE_HOST) {
        return (mp_grid){.blocks = 1, .lanes = 8};
    }
    while (lanes < LANES_MAX && packets > lanes * most) {
        lanes *= 2;
    }
    const size_t blocks = MP_CEIL_DIV(packets, (size_t)lanes);
    return (mp_grid){.blocks = (uint32_t)MP_MIN(blocks, most), .lanes = lanes};
}

mp_status mp__plan_peer_sum(mp_planner *p, const mp_collective *what, plan_step *step) {
    if (!mp_collective_may_be_direct(what)) {
        return MP_OK;
    }
    step->collective.grid = grid_for(p->device, step->collective.bytes);
    return mp_plan_kernel(p, &step->collective.kernel, "peer_sum_%s", mp_dtype_word(what->type));
}

mp_status mp__plan_run_peer_sum(mp_device *device, mp_stream *stream, const plan_step *step,
                                const mp_addr *operands, bool *done) {
    const mp_peers *peers = NULL;
    MP_TRY(device->ops->collective_peers(device, step->collective.math, &peers));
    if (peers == NULL) {
        return MP_OK;
    }
    mp_peer_sum_args args = {.source = (const void *)operands[MP_COLLECTIVE_SOURCE],
                             .target = (void *)operands[MP_COLLECTIVE_TARGET],
                             .count = step->collective.count};
    memcpy(&args.peers, peers, sizeof args.peers);
    MP_TRY(device->ops->collective_launch(device, stream, step->collective.math,
                                          step->collective.kernel, step->collective.grid, &args,
                                          sizeof args));
    *done = true;
    return MP_OK;
}
