/* host_work.h - work of the emulated device: what can be queued, and who queues and runs it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_WORK_H
#define MP_DEVICE_HOST_WORK_H

#include "device/host/host_internal.h"

/* ---- host_copy.c ---- */

mp_status mp__host_copy(mp_device *self, mp_stream *stream, mp_addr target, mp_addr source,
                        size_t size);
mp_status mp__host_fill(mp_device *self, mp_stream *stream, mp_addr target, uint32_t value,
                        size_t width, size_t count);

/* ---- host_item.c ---- */

/* Runs an item, or one random node of a graph's. Returns whether all of it has run. For a node
 * `replay` is the item that launched its graph, otherwise NULL. */
bool mp__host_item_run(host_device *host, host_queue *queue, host_item *item,
                       const host_item *replay);
/* Whether nothing in other queues keeps it waiting. Under `lock`. */
bool mp__host_item_ready(const host_item *item);
/* Gives: a copy that keeps the objects it uses, NULL without memory. */
host_item *mp__host_item_clone(const host_item *item);
void mp__host_item_free(host_item *item);

/* ---- host_profile.c: what it tells a profiler ---- */

mp_status mp__host_profile_begin(mp_device *self);
void mp__host_profile_flush(mp_device *self, const mp_profile *listener);
void mp__host_profile_end(mp_device *self);
static inline bool mp__host_profiled(const host_device *host) {
    return __builtin_expect(atomic_load_explicit(&host->profiles, memory_order_relaxed) != 0, 0);
}
/* Writes the thread's mark into an item that is about to be queued or run. */
void mp__host_profile_mark(host_item *item);
/* Tells what an item did from `begin_ns` until now. */
void mp__host_profile_tell(host_device *host, const host_queue *queue, const host_item *item,
                           const host_item *replay, int64_t begin_ns);

/* ---- host_queue.c: what waits, and who runs it ---- */

/* Queues a copy of the item, adds it to the stream's capture, or runs it (eager). */
mp_status mp__host_enqueue(host_device *host, host_queue *queue, host_item *item);

/* Waits until `done(what)`, which is asked under `lock`; the work to run for that is in `target`,
 * or anywhere when that is NULL. Entered and left without the lock. */
typedef bool host_done(const host_device *host, const void *what);
void mp__host_wait(host_device *host, host_queue *target, host_done *done, const void *what);
/* Waits until nothing is queued in `queue`; in no queue when that is NULL. */
void mp__host_drain(host_device *host, host_queue *queue);
/* An adversarial device runs a little now, or nothing, and after enough calls all of `queue`. */
void mp__host_nudge(host_device *host, host_queue *queue);
void mp__host_queue_open(host_device *host, host_queue *queue, void *native);
/* Waits for what is queued, then ends the queue. */
void mp__host_queue_close(host_queue *queue);

/* ---- host_stream.c: the table's stream and event entries ---- */

mp_status mp__host_stream_create(mp_device *self, mp_stream **out);
mp_status mp__host_stream_wrap(mp_device *self, void *native, mp_stream **out);
void mp__host_stream_destroy(mp_device *self, mp_stream *stream);
void *mp__host_stream_native(mp_device *self, mp_stream *stream);
mp_status mp__host_stream_id(mp_device *self, mp_stream *stream, uint64_t *out);
mp_status mp__host_stream_synchronize(mp_device *self, mp_stream *stream);
mp_status mp__host_stream_query(mp_device *self, mp_stream *stream, bool *idle);
mp_status mp__host_stream_call(mp_device *self, mp_stream *stream, mp_host_call *fn, void *context);
mp_status mp__host_synchronize(mp_device *self);
mp_status mp__host_event_create(mp_device *self, bool timed, mp_event **out);
void mp__host_event_destroy(mp_device *self, mp_event *event);
mp_status mp__host_event_record(mp_device *self, mp_event *event, mp_stream *stream);
mp_status mp__host_event_wait(mp_device *self, mp_event *event, mp_stream *stream);
mp_status mp__host_event_synchronize(mp_device *self, mp_event *event);
mp_status mp__host_event_query(mp_device *self, mp_event *event, bool *reached);
mp_status mp__host_event_elapsed(mp_device *self, mp_event *start, mp_event *end, float *ms);
/* Ends the threads' default streams. */
void mp__host_thread_queues_close(host_device *host);

/* ---- host_graph.c ---- */

mp_status mp__host_capture_begin(mp_device *self, mp_stream *stream);
mp_status mp__host_capture_end(mp_device *self, mp_stream *stream, mp_graph_exec **out);
mp_status mp__host_capture_active(mp_device *self, mp_stream *stream, bool *active);
mp_status mp__host_graph_launch(mp_device *self, mp_graph_exec *graph, mp_stream *stream);
void mp__host_graph_destroy(mp_device *self, mp_graph_exec *graph);
/* Fails when the calling thread captures a stream: what a GPU does then for calls that could wait
 * or that change what is captured. */
mp_status mp__host_not_capturing(host_device *host, const char *call);
/* A call that CUDA forbids during capture was made: `id` is the capture's, 0 for all of them.
 * Returns whether there was one. */
bool mp__host_capture_break(host_device *host, uint64_t id);
uint64_t mp__host_capture_id(const host_capture *capture);
mp_status mp__host_capture_add(host_device *host, host_queue *queue, const host_item *item);
mp_status mp__host_capture_record(host_device *host, host_queue *queue, mp_event *event);
mp_status mp__host_capture_wait(host_device *host, host_queue *queue, mp_event *event);
/* The graph becomes a node that runs where the byte holds as wanted. */
mp_status mp__host_capture_add_branch(host_device *host, mp_stream *stream, mp_graph_exec *graph,
                                      mp_addr condition, bool wanted);
/* The stream goes away: its capture, if any, ends without a graph. */
void mp__host_capture_abandon(host_queue *queue);
void mp__host_nodes_free(host_nodes *nodes);

/* ---- host_branch.c ---- */

mp_status mp__host_branch_prepare(mp_device *self);
mp_status mp__host_branch_begin(mp_device *self, mp_stream *stream, mp_addr condition, bool wanted,
                                mp_stream **inside);
mp_status mp__host_branch_end(mp_device *self, mp_stream *stream, mp_stream *inside);

/* ---- host_kernel.c, host_block.c ---- */

mp_status mp__host_kernel_load(mp_device *self, const mp_kernel_image *image, mp_kernel **out);
mp_status mp__host_kernel_open(mp_device *self, const mp_kernel_image *image, mp_kernel **out);
mp_status mp__host_kernel_ready(mp_device *self, mp_kernel *kernel);
bool mp__host_kernel_ready_later(mp_device *self, mp_kernel *kernel, mp_kernel *stand_in);
bool mp__host_kernels_settled(mp_device *self, bool wait);
void mp__host_kernel_unload(mp_device *self, mp_kernel *kernel);
mp_status mp__host_launch(mp_device *self, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                          const void *args, size_t args_size);

/* What mp__host_launch queues; borrows `args`. Fails: as that. */
mp_status mp__host_launch_item(mp_device *self, mp_stream *stream, const mp_kernel *kernel,
                               mp_grid grid, const void *args, size_t args_size, host_item *out);
/* Runs the kernel of such an item, and reports what it did wrong. */
void mp__host_launch_run(host_device *host, const host_queue *queue, const host_item *item);

/* Runs a kernel, its blocks spread over the workers, each with one lane. */
void mp__host_run_blocks(const mp_kernel_image *image, mp_grid grid, const void *args);
/* Runs a kernel on this thread with blocks, and lanes between barriers, in an order drawn from
 * `random`. Returns NULL, or what the kernel did wrong; static storage. */
const char *mp__host_run_shuffled(const mp_kernel_image *image, mp_grid grid, const void *args,
                                  uint64_t random);

/* ---- host_check.c: what an adversarial device looks for ---- */

enum { HOST_POISON_FRESH = 0xfff5, HOST_POISON_FREED = 0xfffb }; /* NaN in every float type */

void mp__host_poison(mp_addr addr, size_t size, uint16_t pattern);
/* Whether all of it still is `pattern`. */
bool mp__host_poisoned(mp_addr addr, size_t size, uint16_t pattern);
/* Looks at what the item refers to: when it is queued, which sets its `loans`, and again when it
 * runs. `loans`: those of the item, or of the one that launched its graph. */
void mp__host_check_queued(host_device *host, const host_queue *queue, host_item *item);
void mp__host_check_running(host_device *host, const host_queue *queue, const host_item *item,
                            uint64_t loans);
/* Reports queued items that refer to a range which is about to go. Under `lock`. */
void mp__host_check_gone(host_device *host, mp_addr addr, size_t size, const char *call);
/* Whether a queued item refers to the range. Under `lock`. */
bool mp__host_in_use(const host_device *host, mp_addr addr, size_t size);
/* Looks for writes into freed memory, in `bytes_max` bytes of it. */
void mp__host_check_freed(host_device *host, size_t bytes_max);

/* ---- host_ranks.c ---- */

mp_status mp__host_collective_peers(mp_device *self, mp_math *math, const mp_peers **out);
mp_status mp__host_collective_launch(mp_device *self, mp_stream *stream, mp_math *math,
                                     const mp_kernel *kernel, mp_grid grid, const void *args,
                                     size_t args_size);
/* Agrees with the other ranks on the item's work, and runs its kernel, which meets theirs. */
mp_status mp__host_ranks_launch(host_device *host, const host_queue *queue, const host_item *item);
/* Does the work by way of rank 0. */
mp_status mp__host_ranks_run(host_device *host, const mp_collective *what, const mp_addr *operands);

/* ---- host_math.c ---- */

mp_status mp__host_gemm_prepare(mp_device *self, const mp_gemm *gemm, mp_math **out);
mp_status mp__host_conv_prepare(mp_device *self, const mp_conv *conv, mp_math **out, bool *whole);
mp_status mp__host_collective_prepare(mp_device *self, const mp_collective *what, mp_math **out);
size_t mp__host_math_workspace(mp_device *self, const mp_math *math);
mp_status mp__host_math_run(mp_device *self, mp_stream *stream, mp_math *math,
                            const mp_addr *operands, mp_addr workspace);
void mp__host_math_release(mp_device *self, mp_math *math);

#endif
