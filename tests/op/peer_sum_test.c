/* peer_sum_test.c - sums of ranks, processes of this machine on emulated devices, by the kernel
 * that reaches the other ranks' memory, beside plain loops: sizes, types, the limits at which they
 * are made another way, numbers that come again, captured graphs, and ranks that are gone or hang.
 * Two streams of one device, a GPU too, are two ranks as well.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include "base/clock.h"
#include "base/half.h"
#include "device/host/host_device.h"
#include "device/rank/rank_group.h"
#include "device/rank/rank_peers.h"
#include "kernel/core/peers_args.h"
#include "op/core/kernel_cache.h"
#include "unit/test_port.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, NUMBER_BITS = 16, SOON_MS = 20000 };

/* ---- ranks ---- */

typedef struct ranked {
    int rank, size;
    mp_device *device;
} ranked;

typedef void rank_fn(const ranked *self);

typedef struct setting {
    mp_host_config config;
    int apart;           /* the rank that `with` and `shares_not` are of; -1: all */
    const char *with[2]; /* a variable and its value */
    bool shares_not;     /* its memory cannot be opened */
} setting;

static void be_rank(int rank, int size, int port, const setting *given) {
    const bool is_apart = given->apart < 0 || given->apart == rank;
    char text[3][16];
    (void)snprintf(text[0], sizeof text[0], "%d", rank);
    (void)snprintf(text[1], sizeof text[1], "%d", size);
    (void)snprintf(text[2], sizeof text[2], "%d", port);
    CHECK(setenv("RANK", text[0], 1) == 0 && setenv("WORLD_SIZE", text[1], 1) == 0 &&
          setenv("MILLPOND_RANK_PORT", text[2], 1) == 0 &&
          setenv("MASTER_ADDR", "127.0.0.1", 1) == 0 &&
          setenv("MILLPOND_RANK_TIMEOUT", "60", 1) == 0 && unsetenv("MILLPOND_RANK_DIRECT") == 0);
    CHECK(!is_apart || given->with[0] == NULL || setenv(given->with[0], given->with[1], 1) == 0);
}

static void run_rank(rank_fn *fn, int rank, int size, int port, const setting *given) {
    mp_host_config config = given->config;
    ranked self = {.rank = rank, .size = size};
    be_rank(rank, size, port, given);
    config.ipc = !(given->shares_not && given->apart == rank);
    config.memory_bytes = (size_t)1 << 30;
    config.seed += (uint64_t)rank;
    CHECK_OK(mp__host_device_create(&config, &self.device));
    fn(&self);
    const char *breach = mp__host_device_breach(self.device);
    if (breach != NULL) {
        test_fail(__FILE__, __LINE__, "%s", breach);
    }
    _exit(0);
}

/* Each rank is a child, and a test of its own. */
static void run_ranks_with(rank_fn *fn, int size, const setting *given) {
    pid_t children[MP_PEERS_MAX + 1] = {0};
    int states[MP_PEERS_MAX + 1] = {0};
    bool good = true;
    NEEDS_OWN_PROCESS();
    const int port = free_port();
    for (int r = 0; r < size; r++) {
        children[r] = fork();
        CHECK(children[r] >= 0);
        if (children[r] == 0) {
            run_rank(fn, r, size, port, given);
        }
    }
    for (int r = 0; r < size; r++) {
        CHECK(waitpid(children[r], &states[r], 0) == children[r]);
        good = good && WIFEXITED(states[r]) && WEXITSTATUS(states[r]) == 0;
    }
    for (int r = 0; r < size; r++) {
        if (!WIFEXITED(states[r])) {
            test_fail(__FILE__, __LINE__, "rank %d was ended by signal %d", r, WTERMSIG(states[r]));
        }
    }
    if (!good) { /* the sentence is the child's */
        _exit(1);
    }
}

static void run_ranks(rank_fn *fn, int size) {
    run_ranks_with(fn, size, &(setting){.apart = -1});
}

/* ---- values ---- */

/* Of many sizes, so that sums are rounded, and are others in another order. */
static double value_of(int rank, int64_t i, int turn) {
    uint64_t state = (uint64_t)i * 64 + (uint64_t)rank * 7 + (uint64_t)turn * 131;
    const uint64_t drawn = test_random(&state);
    const double value = (double)(int64_t)(drawn % 20001 - 10000) / 997.0;
    return drawn >> 40 & 1 ? value : value / 513.0;
}

static void store(mp_dtype type, void *target, int64_t i, double value) {
    switch (type) {
    case MP_F64:
        ((double *)target)[i] = value;
        return;
    case MP_F16:
        ((uint16_t *)target)[i] = mp_to_f16((float)value);
        return;
    case MP_BF16:
        ((uint16_t *)target)[i] = mp_to_bf16((float)value);
        return;
    default:
        ((float *)target)[i] = (float)value;
    }
}

static float narrow(mp_dtype type, double value) {
    return type == MP_F16    ? mp_from_f16(mp_to_f16((float)value))
           : type == MP_BF16 ? mp_from_bf16(mp_to_bf16((float)value))
                             : (float)value;
}

static void store_sum(mp_dtype type, void *target, int64_t i, int size, int turn) {
    double wide = value_of(0, i, turn);
    float sum = narrow(type, wide);
    for (int r = 1; r < size; r++) {
        wide += value_of(r, i, turn);
        sum += narrow(type, value_of(r, i, turn));
    }
    store(type, target, i, type == MP_F64 ? wide : (double)sum);
}

static void *fresh(mp_dtype type, int64_t count) {
    void *memory = calloc((size_t)count + 1, mp_dtype_size(type));
    CHECK(memory != NULL);
    return memory;
}

/* ---- a sum ---- */

static op_case sum_case(mp_dtype type, const void *source, int64_t count, uint32_t skew) {
    return (op_case){.domain = "ai.millpond",
                     .name = "AllReduce",
                     .version = 1,
                     .in_count = 1,
                     .out_count = 1,
                     .align = skew != 0 ? 1 : 16,
                     .skew = skew,
                     .in = {OP_TENSOR(type, source, count)}};
}

static void check_sum(const ranked *self, mp_dtype type, int64_t count, uint32_t skew, int turn) {
    void *source = fresh(type, count), *want = fresh(type, count);
    for (int64_t i = 0; i < count; i++) {
        store(type, source, i, value_of(self->rank, i, turn));
        store_sum(type, want, i, self->size, turn);
    }
    op_case c = sum_case(type, source, count, skew);
    op_run(self->device, &c);
    if (memcmp(c.out[0].data, want, (size_t)count * mp_dtype_size(type)) != 0) {
        test_fail(__FILE__, __LINE__, "rank %d: another sum of %" PRId64 " %s", self->rank, count,
                  mp_dtype_name(type));
    }
    op_close(self->device, &c);
    free(source);
    free(want);
}

static const mp_peers *peers_for(const ranked *self, mp_dtype type, int64_t count) {
    const mp_collective what = {.kind = MP_ALL_REDUCE, .type = type, .count = count};
    const mp_peers *peers = NULL;
    mp_math *math = NULL;
    CHECK_OK(self->device->ops->collective_prepare(self->device, &what, &math));
    CHECK_OK(self->device->ops->collective_peers(self->device, math, &peers));
    self->device->ops->math_release(self->device, math);
    return peers;
}

static uint64_t sums_by_kernel(const mp_peers *peers) {
    return *(const uint64_t *)peers->turns >> NUMBER_BITS;
}

/* Nothing stays in the box of a rank whose sums have ended, once the others' have, too. */
static void check_empty(const ranked *self, const mp_peers *peers) {
    const unsigned char *box = (const unsigned char *)peers->box[self->rank];
    check_sum(self, MP_F32, (int64_t)(MP_PEERS_BYTES_MAX / sizeof(float)), 0, 0); /* all meet */
    for (size_t i = 0; i < (size_t)peers->part * 2 * (size_t)self->size; i++) {
        if (box[i] != 0) {
            test_fail(__FILE__, __LINE__, "rank %d: byte %zu of the box is %d", self->rank, i,
                      box[i]);
        }
    }
}

/* ---- sizes and types ---- */

enum { LIMIT_OF_TWO = 1 << 20, LIMIT_OF_FOUR = 256 << 10 };

static void sums_everything(const ranked *self) {
    static const mp_dtype types[] = {MP_F16, MP_BF16, MP_F32, MP_F64};
    static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 127, 1000, 1001, 4096, 4099};
    uint64_t done = 0;
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t i = 0; i < MP_COUNT_OF(counts); i++) {
            for (uint32_t skew = 0; skew < 8; skew += 2) {
                check_sum(self, types[t], counts[i], skew, (int)(i + skew));
                done++;
            }
        }
    }
    const mp_peers *peers = peers_for(self, MP_F16, 1);
    CHECK(peers != NULL && peers->ranks == self->size && peers->rank == self->rank);
    CHECK_EQ_INT(sums_by_kernel(peers), done);
    check_empty(self, peers);
}

TEST(peer_sum_of_two) {
    run_ranks(sums_everything, 2);
}

TEST(peer_sum_of_three) {
    run_ranks(sums_everything, RANKS);
}

TEST(peer_sum_of_eight) {
    run_ranks(sums_everything, MP_PEERS_MAX);
}

/* Shuffled lanes, work that runs late, and on threads. */
static void sums_some(const ranked *self) {
    for (int turn = 0; turn < 12; turn++) {
        check_sum(self, turn % 2 == 0 ? MP_F16 : MP_F32, 1 + 137 * turn, turn % 3 == 0 ? 2 : 0,
                  turn);
    }
    CHECK_EQ_INT(sums_by_kernel(peers_for(self, MP_F16, 1)), 12);
}

TEST(peer_sum_queued) {
    for (uint64_t seed = 0; seed < 5; seed++) {
        run_ranks_with(
            sums_some, RANKS,
            &(setting){.apart = -1, .config = {.mode = MP_HOST_ADVERSARIAL, .seed = seed * 16}});
    }
    run_ranks_with(sums_some, RANKS, &(setting){.apart = -1, .config = {.mode = MP_HOST_THREADED}});
}

/* ---- what is summed how ---- */

static void checks_limit(const ranked *self, int64_t limit) {
    const int64_t most = limit / 2;
    CHECK(peers_for(self, MP_F16, most) != NULL);
    CHECK(peers_for(self, MP_F16, most + 1) == NULL && peers_for(self, MP_F64, most) == NULL);
    const mp_peers *peers = peers_for(self, MP_F16, 1);
    check_sum(self, MP_F16, most, 0, 1);
    check_sum(self, MP_F16, most, 2, 2);
    CHECK_EQ_INT(sums_by_kernel(peers), 2);
    check_sum(self, MP_F16, most + 1, 0, 3);
    CHECK_EQ_INT(sums_by_kernel(peers), 2);
    check_sum(self, MP_F16, most, 0, 4); /* over what a large one left */
    check_empty(self, peers);
}

static void has_limit_of_two(const ranked *self) {
    checks_limit(self, LIMIT_OF_TWO);
}

static void has_limit_of_four(const ranked *self) {
    checks_limit(self, LIMIT_OF_FOUR);
}

static void has_limit_of_one(const ranked *self) {
    checks_limit(self, 4096);
}

TEST(peer_sum_limits) {
    run_ranks(has_limit_of_two, 2);
    run_ranks(has_limit_of_four, RANKS);
    run_ranks_with(has_limit_of_one, 2,
                   &(setting){.apart = 1, .with = {"MILLPOND_RANK_DIRECT", "4096"}});
}

/* All choose alike, though one alone cannot, or will not. */
static void has_no_peers(const ranked *self) {
    check_sum(self, MP_F32, 100, 0, 1);
    CHECK(peers_for(self, MP_F32, 100) == NULL);
    check_sum(self, MP_F32, 101, 0, 2);
}

TEST(peer_sum_by_all_or_none) {
    run_ranks_with(has_no_peers, RANKS, &(setting){.apart = 2, .shares_not = true});
    run_ranks_with(has_no_peers, RANKS,
                   &(setting){.apart = 0, .with = {"MILLPOND_RANK_DIRECT", "0"}});
    run_ranks_with(has_no_peers, 2, &(setting){.apart = -1, .with = {"MILLPOND_RANK_DIRECT", "0"}});
    run_ranks(has_no_peers, MP_PEERS_MAX + 1);
}

/* ---- numbers ---- */

/* Those of 31 bits, of 32 and of all 48 come to their end. */
static void numbers_come_again(const ranked *self) {
    static const uint64_t ends[] = {UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 48};
    const mp_peers *peers = peers_for(self, MP_F32, 1);
    CHECK(peers != NULL);
    for (size_t i = 0; i < MP_COUNT_OF(ends); i++) {
        *(uint64_t *)peers->turns = (ends[i] - 5) << NUMBER_BITS;
        check_sum(self, MP_F32, 600000 / 8, 0, 0); /* too large: all have set theirs */
        for (int turn = 0; turn < 10; turn++) {
            check_sum(self, MP_F16, turn % 3 == 0 ? 5000 : 7 * turn, 0, turn);
        }
        CHECK_EQ_INT(sums_by_kernel(peers), (ends[i] + 5) & ((UINT64_C(1) << 48) - 1));
    }
    check_empty(self, peers);
}

TEST(peer_sum_numbers_come_again) {
    run_ranks(numbers_come_again, RANKS);
}

/* ---- captured graphs ---- */

enum { IN_GRAPH = 3, GRAPH_COUNT = 777 };

/* x -> sum -> sum of sums -> ..., as often as the graph is launched. */
static void replays_a_graph(const ranked *self) {
    const mp_device_ops *ops = self->device->ops;
    const size_t size = GRAPH_COUNT * sizeof(float);
    float *x = fresh(MP_F32, GRAPH_COUNT), *got = fresh(MP_F32, GRAPH_COUNT);
    op_case c = sum_case(MP_F32, x, GRAPH_COUNT, 0);
    mp_addr memory[IN_GRAPH + 1];
    mp_stream *stream = NULL;
    mp_graph_exec *graph = NULL;
    mp_plan *plan = NULL;
    CHECK_OK(ops->stream_create(self->device, &stream));
    CHECK_OK(op_plan(self->device, &c, &plan));
    for (int i = 0; i <= IN_GRAPH; i++) {
        CHECK_OK(ops->alloc(self->device, size, &memory[i]));
    }
    CHECK(peers_for(self, MP_F32, GRAPH_COUNT) != NULL); /* before: not all of it can be captured */
    CHECK_OK(ops->capture_begin(self->device, stream));
    for (int i = 0; i < IN_GRAPH; i++) {
        CHECK_OK(mp_plan_run(plan, stream, &memory[i], &memory[i + 1], 0));
    }
    CHECK_OK(ops->capture_end(self->device, stream, &graph));
    for (int launch = 0; launch < 7; launch++) {
        for (int64_t i = 0; i < GRAPH_COUNT; i++) {
            x[i] = (float)((self->rank + 1) * (launch + 1) + i % 5);
        }
        CHECK_OK(ops->copy(self->device, stream, memory[0], (mp_addr)x, size));
        CHECK_OK(ops->graph_launch(self->device, graph, stream));
        CHECK_OK(ops->copy(self->device, stream, (mp_addr)got, memory[IN_GRAPH], size));
        CHECK_OK(ops->stream_synchronize(self->device, stream));
        for (int64_t i = 0; i < GRAPH_COUNT; i++) {
            float want = 0; /* small integers: exact */
            for (int r = 0; r < self->size; r++) {
                want += (float)((r + 1) * (launch + 1) + i % 5);
            }
            CHECK(got[i] == want * (float)(self->size * self->size));
        }
    }
    CHECK_EQ_INT(sums_by_kernel(peers_for(self, MP_F32, 1)), 7 * IN_GRAPH);
    ops->graph_destroy(self->device, graph);
    mp_plan_release(plan);
    ops->stream_destroy(self->device, stream);
    free(x);
    free(got);
}

TEST(peer_sum_in_graphs) {
    run_ranks(replays_a_graph, RANKS);
    run_ranks_with(replays_a_graph, 2,
                   &(setting){.apart = -1, .config = {.mode = MP_HOST_THREADED}});
    run_ranks_with(replays_a_graph, 2,
                   &(setting){.apart = -1, .config = {.mode = MP_HOST_ADVERSARIAL, .seed = 32}});
}

/* ---- ranks that are gone, or hang ---- */

static mp_status run_four(const ranked *self) {
    const float x[4] = {1, 2, 3, 4};
    op_case c = sum_case(MP_F32, x, 4, 0);
    mp_addr in = 0, out = 0;
    mp_stream *stream = NULL;
    mp_plan *plan = NULL;
    CHECK_OK(self->device->ops->stream_create(self->device, &stream));
    CHECK_OK(self->device->ops->alloc(self->device, sizeof x, &in));
    CHECK_OK(self->device->ops->alloc(self->device, sizeof x, &out));
    CHECK_OK(self->device->ops->copy(self->device, NULL, in, (mp_addr)x, sizeof x));
    CHECK_OK(op_plan(self->device, &c, &plan));
    const mp_status status = mp_plan_run(plan, stream, &in, &out, 0);
    mp_plan_release(plan);
    return status;
}

/* Agrees to a sum, as a rank does before its kernel comes. */
static void agree_only(void) {
    const mp_collective four = {.kind = MP_ALL_REDUCE, .type = MP_F32, .count = 4};
    mp_group *group = NULL;
    CHECK_OK(mp__group_get("", &group));
    CHECK_OK(mp__group_agree(group, &four));
}

static void check_told(const ranked *self, const char *text) {
    const int64_t begin = mp_clock_ms();
    CHECK_FAILS(run_four(self), DEVICE, text);
    CHECK(mp_clock_ms() - begin < SOON_MS);
    CHECK_FAILS(run_four(self), DEVICE, text); /* and from then on */
}

static void one_dies(const ranked *self, int which) {
    char text[64];
    (void)snprintf(text, sizeof text, "rank %d: it has", which);
    CHECK_OK(run_four(self));
    if (self->rank == which) {
        agree_only();
        _exit(0);
    }
    check_told(self, text);
}

static void rank_one_dies(const ranked *self) {
    one_dies(self, 1);
}

static void rank_zero_dies(const ranked *self) {
    one_dies(self, 0);
}

TEST(peer_sum_of_a_rank_that_dies) {
    run_ranks(rank_one_dies, RANKS);
    run_ranks(rank_zero_dies, 2);
}

static void rank_one_hangs(const ranked *self) {
    CHECK_OK(run_four(self));
    if (self->rank != 1) {
        check_told(self, "rank 0 waited for work between ranks for 1 s (MILLPOND_RANK_TIMEOUT)");
        return;
    }
    agree_only();
    (void)usleep(3000 * 1000);
    check_told(self, "rank 0 waited for work between ranks for 1 s (MILLPOND_RANK_TIMEOUT)");
}

TEST(peer_sum_of_a_rank_that_hangs) {
    run_ranks_with(rank_one_hangs, 2,
                   &(setting){.apart = -1, .with = {"MILLPOND_RANK_TIMEOUT", "1"}});
}

/* One that has sent all it had may go before the others are done. */
static void ends_at_once(const ranked *self) {
    for (int turn = 0; turn < 50; turn++) {
        check_sum(self, MP_F16, 3000, 0, turn);
    }
}

TEST(peer_sum_of_ranks_that_end) {
    run_ranks(ends_at_once, RANKS);
}

/* ---- on one device ----
 * Two ranks as two streams of it: on a GPU all but the way between GPUs is as it is for two. */

enum { GPU_TURNS = 6, GIVE_UP_MS = 10000 };

typedef struct two_streams {
    mp_device *device;
    mp_stream *stream[2];
    mp_addr box, source[2], target[2], stop;
    size_t part;
    atomic_bool done;
} two_streams;

/* Where kernels do not run side by side, as under a tool that looks at each alone, the first one
 * waits in vain. */
static void *let_go(void *context) {
    two_streams *two = context;
    const int64_t until = mp_clock_ms() + GIVE_UP_MS;
    while (!atomic_load(&two->done) && mp_clock_ms() < until) {
        (void)usleep(1000);
    }
    if (!atomic_load(&two->done)) {
        atomic_store((atomic_uint *)two->stop, 1);
    }
    return NULL;
}

static void open_two(two_streams *two, size_t bytes) {
    const mp_device_ops *ops = two->device->ops;
    const size_t size = 2 * 2 * 2 * bytes + 2 * sizeof(uint64_t); /* boxes; then what counts */
    two->part = 2 * bytes;
    CHECK_OK(ops->alloc(two->device, 2 * size, &two->box));
    CHECK_OK(ops->fill(two->device, NULL, two->box, 0, 4, 2 * size / 4));
    CHECK_OK(ops->alloc_pinned(two->device, sizeof(uint64_t), &two->stop));
    memset((void *)two->stop, 0, sizeof(uint64_t));
    for (int r = 0; r < 2; r++) {
        CHECK_OK(ops->stream_create(two->device, &two->stream[r]));
        CHECK_OK(ops->alloc(two->device, bytes + 16, &two->source[r]));
        CHECK_OK(ops->alloc(two->device, bytes + 16, &two->target[r]));
    }
}

static void close_two(two_streams *two, size_t bytes) {
    const mp_device_ops *ops = two->device->ops;
    for (int r = 0; r < 2; r++) {
        ops->stream_destroy(two->device, two->stream[r]);
        ops->free(two->device, two->source[r], bytes + 16);
        ops->free(two->device, two->target[r], bytes + 16);
    }
    ops->free_pinned(two->device, two->stop, sizeof(uint64_t));
    ops->free(two->device, two->box, 2 * (2 * 2 * 2 * bytes + 2 * sizeof(uint64_t)));
    mp_kernel_cache_drop(two->device);
}

static void launch_two(const two_streams *two, const mp_kernel *kernel, int64_t count, size_t bytes,
                       size_t skew) {
    const size_t packets = MP_CEIL_DIV(bytes, (size_t)8);
    const size_t blocks = MP_CEIL_DIV(packets, (size_t)256);
    const mp_grid grid = {.blocks = (uint32_t)MP_MIN(blocks, (size_t)24), .lanes = 256};
    for (int r = 0; r < 2; r++) {
        mp_peer_sum_args args = {.source = (const void *)(two->source[r] + skew),
                                 .target = (void *)(two->target[r] + skew),
                                 .count = count,
                                 .peers = {.box = {two->box, two->box + 4 * two->part},
                                           .turns = two->box + 8 * two->part + (size_t)r * 8,
                                           .stop = two->stop,
                                           .part = two->part,
                                           .rank = r,
                                           .ranks = 2}};
        CHECK_OK(two->device->ops->launch(two->device, two->stream[r], kernel, grid, &args,
                                          sizeof args));
    }
}

/* The same bits as the loop's, on both, in all turns; zeros behind. */
static void sum_on_two(const two_streams *two, mp_dtype type, int64_t count, size_t skew) {
    const mp_device_ops *ops = two->device->ops;
    const size_t bytes = (size_t)count * mp_dtype_size(type);
    const mp_kernel *kernel = NULL;
    char name[32];
    (void)snprintf(name, sizeof name, "peer_sum_%s", mp_dtype_word(type));
    CHECK_OK(mp_kernel_cache_get(two->device, name, &kernel));
    void *value = fresh(type, count), *want = fresh(type, count), *got = fresh(type, count);
    for (int turn = 0; turn < GPU_TURNS; turn++) {
        for (int r = 0; r < 2; r++) {
            for (int64_t i = 0; i < count; i++) {
                store(type, value, i, value_of(r, i, turn));
                store_sum(type, want, i, 2, turn);
            }
            CHECK_OK(ops->copy(two->device, NULL, two->source[r] + skew, (mp_addr)value, bytes));
        }
        launch_two(two, kernel, count, bytes, skew);
        for (int r = 0; r < 2; r++) {
            CHECK_OK(ops->stream_synchronize(two->device, two->stream[r]));
            if (*(const uint32_t *)two->stop != 0) {
                SKIP("kernels of two streams do not run side by side here");
            }
            CHECK_OK(ops->copy(two->device, NULL, (mp_addr)got, two->target[r] + skew, bytes));
            CHECK(memcmp(got, want, bytes) == 0);
        }
    }
    free(value);
    free(want);
    free(got);
}

static void check_no_bytes(const two_streams *two) {
    const size_t size = 8 * two->part;
    unsigned char *boxes = malloc(size);
    CHECK(boxes != NULL);
    CHECK_OK(two->device->ops->copy(two->device, NULL, (mp_addr)boxes, two->box, size));
    for (size_t i = 0; i < size; i++) {
        CHECK_EQ_INT(boxes[i], 0);
    }
    free(boxes);
}

static void sum_on_streams(mp_device *device) {
    static const mp_dtype types[] = {MP_F16, MP_BF16, MP_F32, MP_F64};
    static const int64_t counts[] = {1, 3, 4096, 4099, 32768};
    const size_t bytes = 32768 * sizeof(double);
    two_streams two = {.device = device};
    pthread_t helper;
    open_two(&two, bytes);
    CHECK(pthread_create(&helper, NULL, let_go, &two) == 0);
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t i = 0; i < MP_COUNT_OF(counts); i++) {
            sum_on_two(&two, types[t], counts[i], 0);
            sum_on_two(&two, types[t], counts[i], mp_dtype_size(types[t]));
        }
    }
    atomic_store(&two.done, true);
    CHECK(pthread_join(helper, NULL) == 0);
    check_no_bytes(&two);
    close_two(&two, bytes);
}

TEST(peer_sum_of_two_streams) {
    const mp_host_config config = {.mode = MP_HOST_THREADED, .memory_bytes = (size_t)1 << 30};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    sum_on_streams(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(peer_sum_of_two_streams_of_a_gpu) {
    sum_on_streams(test_gpu());
}
