/* host_device.h - the emulated device: a GPU's contract kept by CPU threads.
 *
 * MILLPOND_HOST chooses how its streams run queued work:
 *   eager             at once, on the calling thread (the default)
 *   threaded          on one worker thread a stream
 *   adversarial:SEED  as late and in as odd an order as streams and events allow, decided by SEED;
 *                     fresh and freed memory is poisoned, and queued work that touches freed
 *                     memory is reported with the seed
 * In eager mode a host call (stream_call) runs inside the call that queues it; in adversarial mode
 * queued work advances only inside calls to the device. Host calls must therefore not need a lock
 * that a caller of the device holds.
 * MILLPOND_HOST_MEMORY sets its memory in bytes (suffix K, M, G; default: half of the machine's).
 * MILLPOND_HOST_DEVICES sets how many such devices there are (1 to 8, default 1).
 * MILLPOND_HOST_MEMPOOLS=0 leaves out stream-ordered memory, as an old driver does.
 * MILLPOND_HOST_COMPILE_MS says how long a fused kernel takes to become ready, as on a GPU it is
 * compiled (default: 0); until then another stands in for it.
 * MILLPOND_HOST_IPC=1 keeps memory in a file of the system's memory, so that other processes of the
 * user can open it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_DEVICE_H
#define MP_DEVICE_HOST_DEVICE_H

#include "device/device.h"

int mp__host_device_count(void);
mp_status mp__host_device_get(int ordinal, mp_device **out);

typedef struct mp_host_config {
    enum { MP_HOST_EAGER, MP_HOST_THREADED, MP_HOST_ADVERSARIAL } mode;
    uint64_t seed;
    size_t memory_bytes;
    bool no_mempools;
    bool ipc;
    int64_t compile_ms; /* that fused kernels take to become ready; 0: all are at once */
} mp_host_config;

/* A device of its own, beside the shared ones; for tests. Gives: `*out`, until destroy.
 * mp__host_device_destroy reports what was not given back: its return is the count of allocations,
 * streams, events, graphs, kernels, mempools and math objects still alive (which it then frees). */
mp_status mp__host_device_create(const mp_host_config *config, mp_device **out);
size_t mp__host_device_destroy(mp_device *device);

/* Fault injection for tests: the call number `nth` from now (1 is the next) that may fail fails
 * with `status`, once; 0 disarms. Returns whether the previous fault was still waiting. */
bool mp__host_device_fail(mp_device *device, uint64_t nth, mp_status status);

/* How many streams, events, graphs, kernels, mempools and math objects are alive. */
size_t mp__host_device_objects(mp_device *device);

/* The first breach of the contract that an adversarial device has seen, in one sentence with its
 * seed; NULL where there is none. From then on every synchronize fails with that sentence.
 * Borrowed: until the device is destroyed. */
const char *mp__host_device_breach(mp_device *device);

#endif
