/* profile.h - what devices did, when, and for whom: kernels, copies and fills with begin and end.
 *
 *     listener   a session that is profiled         mp_profile_open ... mp_profile_close
 *     mark       a thread works for a listener       mp_profile_push ... mp_profile_pop
 *     part       of what a mark is for               mp_profile_part_begin ... mp_profile_part_end
 *     record     a device has ended a piece of work  mp__profile_add
 *
 * Work belongs to the mark that its thread had when it was queued, which is the record's `tag`; in
 * a replay of a graph that is the mark of the replay, and `node_tag` is that of the capture. Work
 * without a mark is nobody's and is dropped. Times are nanoseconds of mp_clock_ns().
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_PROFILE_H
#define MP_DEVICE_PROFILE_H

#include "device/device.h"

typedef enum mp_profile_kind {
    MP_PROFILE_KERNEL,
    MP_PROFILE_COPY,
    MP_PROFILE_FILL
} mp_profile_kind;

typedef struct mp_profile_record {
    mp_profile_kind kind;
    const char *name; /* of the kernel, or what is copied where */
    int64_t begin_ns, end_ns;
    uint64_t tag, node_tag; /* equal outside of graphs; node_tag 0: not known */
    const char *part;       /* of its mark, in a replay that of the capture; NULL for none */
    uint64_t correlation;   /* the same for all the work of one call, and of no other call */
    uint64_t stream;
    int32_t device;
    bool in_graph;              /* part of a replay */
    uint32_t grid[3], block[3]; /* of a kernel */
    uint64_t bytes;             /* of a copy or fill */
} mp_profile_record;

/* ---- for who profiles ---- */

/* Begins to listen to the work of `device`. Gives: `*out`, until mp_profile_close. Blocks: yes.
 * Fails: NOT_FOUND or UNSUPPORTED where the device cannot tell of its work, with what is missing.
 */
MP_MUST_CHECK mp_status mp_profile_open(mp_device *device, mp_profile **out);

/* Work that this thread queues from now on is for event `id` of the listener, until the pop; marks
 * nest. Blocks: no. */
void mp_profile_push(mp_profile *profile, uint64_t id);
/* Ends the thread's last mark for `id`. Gives the mark's tag, or 0 where no work was queued under
 * it. */
uint64_t mp_profile_pop(mp_profile *profile, uint64_t id);

/* Work that this thread queues from now on, until the end, is for a part of what its mark is for:
 * `text` says which. Parts do not nest. Borrows: `text`, for the call. Gives: whether it has begun;
 * not on a thread without a mark, nor within a part. Blocks: no. */
bool mp_profile_part_begin(const char *text);
void mp_profile_part_end(void);
/* Who listens to this thread, as a number that no other listener of the process has; 0 for nobody.
 * What is captured for one listener does not tell another one for whom it was. */
uint64_t mp_profile_listener(void);

typedef void mp_profile_visit(void *context, const mp_profile_record *record);

/* Ends listening: shows every record of work that has ended, by begin. Takes: `profile`. Gives: how
 * many records there was no memory for. Blocks: until the device has told all. */
size_t mp_profile_close(mp_profile *profile, mp_profile_visit *visit, void *context);

/* Order of elements that begin with a tag, and the element with this one in a list that is in that
 * order; NULL for none. */
int mp_profile_by_tag(const void *left, const void *right);
const void *mp_profile_find(uint64_t tag, const void *list, size_t count, size_t width);

/* ---- for devices ---- */

/* The mark of this thread, as a tag; 0 where it has none. Counts as work under the mark. */
uint64_t mp__profile_tag(void);
/* Keeps a record for the listener of its tag, if that still listens. Borrows: all of it. */
void mp__profile_add(const mp_profile_record *record);
/* Calls under a mark whose records are still to come: `change` to their number, and how many there
 * are. For devices that tell later. */
void mp__profile_expect(uint64_t tag, int change);
int64_t mp__profile_pending(const mp_profile *profile);
/* A number for `correlation` that no other call has. */
uint64_t mp__profile_correlation(void);

/* Names of records that have none of their own; a copy's by which sides are memory of a device. */
#define MP_PROFILE_FILL_NAME "Memset"
static inline const char *mp__profile_copy_name(bool from_device, bool to_device) {
    static const char *const names[2][2] = {{"MemcpyHostToHost", "MemcpyHostToDevice"},
                                            {"MemcpyDeviceToHost", "MemcpyDeviceToDevice"}};
    return names[from_device][to_device];
}

#endif
