/* host_memory.h - memory of the emulated device: its own, ordered by streams, reserved, shared with
 * other processes, and that of other APIs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_MEMORY_H
#define MP_DEVICE_HOST_MEMORY_H

#include "device/host/host_internal.h"

/* ---- host_memory.c: the table's memory entries ---- */

mp_status mp__host_alloc(mp_device *self, size_t size, mp_addr *out);
void mp__host_free(mp_device *self, mp_addr addr, size_t size);
mp_status mp__host_alloc_pinned(mp_device *self, size_t size, mp_addr *out);
void mp__host_free_pinned(mp_device *self, mp_addr addr, size_t size);
void mp__host_note(mp_device *self, mp_addr addr, size_t size, bool live);
mp_status mp__host_memory_info(mp_device *self, size_t *free_bytes, size_t *total_bytes);

/* Takes `size` bytes from the device's memory, or gives them back. */
mp_status mp__host_charge(host_device *host, size_t size);
void mp__host_refund(host_device *host, size_t size);
/* Memory of the machine for the device, not charged to it. `mempool` is kept; NULL for none. */
mp_status mp__host_obtain(host_device *host, size_t size, host_range_kind kind, mp_mempool *mempool,
                          mp_addr *out);
void mp__host_give_back(host_device *host, mp_addr addr, size_t size, bool pinned);
/* Whether [addr, addr + size) is one allocation that its user has. Under memory_lock. */
bool mp__host_is_lent(const host_range *range, mp_addr addr, size_t size, bool pinned);
/* Reports queued work that still uses what is about to go. */
void mp__host_check_unused(host_device *host, mp_addr addr, size_t size, const char *call);
/* Frees what is left at the end; returns how many allocations and reservations that was. */
size_t mp__host_memory_close(host_device *host);

/* ---- host_mempool.c: memory ordered by streams ---- */

mp_status mp__host_mempool_create(mp_device *self, size_t release_threshold, mp_mempool **out);
void mp__host_mempool_destroy(mp_device *self, mp_mempool *mempool);
mp_status mp__host_mempool_alloc(mp_device *self, mp_mempool *mempool, mp_stream *stream,
                                 size_t size, mp_addr *out);
mp_status mp__host_free_async(mp_device *self, mp_stream *stream, mp_addr addr, size_t size);
mp_status mp__host_mempool_trim(mp_device *self, mp_mempool *mempool, size_t keep);
mp_status mp__host_mempool_usage(mp_device *self, mp_mempool *mempool, mp_mempool_usage *out);
mp_status mp__host_mempool_reset_peaks(mp_device *self, mp_mempool *mempool);
/* The range, charged to the device, is free again. Under memory_lock. */
void mp__host_mempool_return(host_device *host, host_range *range);
/* What a synchronization does: mempools give back what is beyond their thresholds. */
void mp__host_mempools_settle(host_device *host);

/* ---- host_ipc.c: memory that other processes may open ---- */

mp_status mp__host_ipc_export(mp_device *self, mp_addr base, unsigned char *handle);
mp_status mp__host_ipc_open(mp_device *self, const unsigned char *handle, mp_addr *out,
                            size_t *size);
mp_status mp__host_ipc_close(mp_device *self, mp_addr addr);
/* Memory in the device's shared file. `*offset` is its place there, never 0.
 * Fails: OUT_OF_MEMORY. */
mp_status mp__host_file_alloc(host_device *host, size_t size, void **out, uint64_t *offset);
void mp__host_file_free(host_device *host, void *memory, size_t size, uint64_t offset);

/* ---- host_external.c: memory and semaphores of other APIs ---- */

mp_status mp__host_import_open(mp_device *self, int fd, size_t size, mp_import **out,
                               mp_addr *addr);
void mp__host_import_close(mp_device *self, mp_import *import);
mp_status mp__host_semaphore_open(mp_device *self, int fd, mp_semaphore **out);
void mp__host_semaphore_close(mp_device *self, mp_semaphore *semaphore);
mp_status mp__host_semaphore_signal(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                    uint64_t value);
mp_status mp__host_semaphore_wait(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                  uint64_t value);

/* ---- host_map.c: reserved addresses ---- */

size_t mp__host_granule(mp_device *self);
mp_status mp__host_reserve(mp_device *self, size_t size, mp_addr *out);
void mp__host_unreserve(mp_device *self, mp_addr addr, size_t size);
mp_status mp__host_map(mp_device *self, mp_addr addr, size_t size);
mp_status mp__host_unmap(mp_device *self, mp_addr addr, size_t size);
mp_status mp__host_remap(mp_device *self, mp_addr target, mp_addr source, size_t size);
/* Unmaps all reservations at the end of the device. */
void mp__host_map_close(host_device *host);

#endif
