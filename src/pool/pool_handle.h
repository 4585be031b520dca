/* pool_handle.h - what our own libraries and tests may ask of a pool beside millpond.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_POOL_HANDLE_H
#define MP_POOL_POOL_HANDLE_H

#include "pool/layout.h"

/* As mp_pool_open, for a device that is open already. */
mp_status mp__pool_open_on(mp_device *device, mp_memory memory, const char *client,
                           const char *const *options, mp_pool **out);

/* The same over `base`: options that are not the opener's own, such as those of its surroundings.
 * They count where it makes the pool, and give no warning where it does not; NULL for none. */
mp_status mp__pool_open_over(mp_device *device, mp_memory memory, const char *client,
                             const char *const *base, const char *const *options, mp_pool **out);
/* Whether a pool could be opened with them. Fails: INVALID_ARGUMENT. */
mp_status mp__pool_options_check(const char *const *base, const char *const *options);
/* Whether the pool, which may have been open before, is as these say. Fails: INVALID_ARGUMENT. */
mp_status mp__pool_options_agree(const mp_pool *pool, const char *const *base,
                                 const char *const *options);

/* As mp_pool_open_external. */
mp_status mp__pool_open_external_on(mp_device *device, const char *client,
                                    const mp_external *external, const char *const *options,
                                    mp_pool **out);

/* Another handle on the same pool, for the same client. Gives: `*out`, until mp_pool_close. */
mp_status mp__pool_again(mp_pool *pool, mp_pool **out);

/* The device whose memory it is; borrowed. */
mp_device *mp__pool_device(const mp_pool *pool);

/* Bytes that the pool could still allocate, at most: what it has and has not allocated, and what
 * the device has free, as far as arena.max_mem and the limit of the process allow. */
mp_status mp__pool_available(mp_pool *pool, uint64_t *out);

/* As mp_pool_alloc, mp_pool_free and mp_pool_free_on, for a caller that holds a lock which others
 * need while they wait for the device: they take no lock for longer than some dozen instructions.
 * BUSY, without a sentence and with nothing done, where that is not enough. `pool` is not NULL. */
mp_status mp__pool_try_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out);
mp_status mp__pool_try_free(mp_pool *pool, mp_addr addr);
mp_status mp__pool_try_free_on(mp_pool *pool, mp_addr addr, void *stream);

/* As mp_pool_record_use, for a stream that has used the block already and was ordered before it
 * did: the stream is not made to wait. `pool` is not NULL. */
mp_status mp__pool_record_end(mp_pool *pool, mp_addr addr, void *stream);

/* As mp_pool_stream_gone, for a stream on which all has ended that this client queued, and that may
 * have been destroyed meanwhile: it is left alone, unless other clients had memory there. */
mp_status mp__pool_stream_over(mp_pool *pool, void *stream);

/* Makes work queued on `consumer` from now on wait for all that is queued on `producer`, and tells
 * the pool; returns once that has ended where `consumer` is MP_NO_STREAM.
 * Fails: UNSUPPORTED while one of them is captured, OUT_OF_MEMORY, DEVICE. */
mp_status mp__pool_follow(mp_pool *pool, void *consumer, void *producer);

/* Waits for what is queued on the device's default stream and on all streams that its pools know:
 * memory was allocated on them, or declared to be used there. Captures are left alone, and default
 * streams of other threads, which only those can reach. */
mp_status mp__pools_wait(mp_device *device);

/* Gives: `*out`, to be freed with mp__layout_free. */
mp_status mp__pool_layout(mp_pool *pool, mp_layout *out);

/* Whether the pool's record of itself is consistent: chunks, counts and lists agree. Looks at
 * everything under all of its locks. Fails: INTERNAL, with the first breach as a sentence. */
mp_status mp__pool_check(mp_pool *pool);

/* Says what a part of an allocated block is for, where its user cuts it up, until the part is
 * dropped; to be dropped before the block is freed. At most one part begins at an address.
 * Fails: NOT_FOUND (it lies in no allocated block), OUT_OF_MEMORY (host). */
mp_status mp__pool_part_set(mp_pool *pool, mp_addr addr, size_t size, mp_label label);
void mp__pool_part_drop(mp_pool *pool, mp_addr addr);
/* Who knows more of memory with a label than its names may leave a note under this and the label's
 * node (base/note.h): lines that a page shows with each block. */
#define MP_LABEL_NOTE "memory of "
/* Adds the parts to a layout just taken. Fails: OUT_OF_MEMORY. */
mp_status mp__pool_parts(mp_pool *pool, mp_layout *layout);

/* After mp_pool_trace: looks at the stack of each thread that allocates, of at most `depth` frames,
 * with the function of mp__stack_looker_set (trace_stack.h). Fails: INVALID_ARGUMENT beyond
 * MP_STACK_FRAMES_MAX. */
mp_status mp__pool_trace_stacks(mp_pool *pool, size_t depth);

/* Whether MILLPOND_DEVICE names a kind of device, so that what is chosen was asked for. */
bool mp__device_is_named(void);

/* The device that MILLPOND_DEVICE (auto, host, cuda) or `wish` chooses, with an ordinal behind a
 * colon; `*why`, of `why_size` characters, says why in one clause.
 * Fails: INVALID_ARGUMENT, NOT_FOUND. */
mp_status mp__choose_device(const char *wish, mp_device_kind *kind, int *ordinal, char *why,
                            size_t why_size);

#endif
