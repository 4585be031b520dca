/* plugin.h - the objects of the provider and how they own each other.
 *
 *     plugin (one a process)   the API tables of the ONNX Runtime that loaded us
 *       factory                one a registration: devices, kernel registry, data transfer
 *         unit                 one a device: its memory infos
 *         provider             one a session: options, streams
 *           kernel             one a node
 *
 * Every callback of ONNX Runtime's ABI gets the first member of one of these.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_PLUGIN_H
#define MP_EP_PLUGIN_H

#include "ep/abi/ort.h"

#include "base/note.h"
#include "ep/session/ep_name.h"
#include "graph/graph.h"
#include "millpond/millpond.h"

#include <pthread.h>
#include <stdatomic.h>

#define MP_EP_VENDOR       "NVIDIA"
#define MP_EMULATED_VENDOR "Millpond" /* of the emulated device */

enum {
    MP_VENDOR_ID = 0x10DE, /* NVIDIA; memory of the emulated device has it too */
    MP_ORT_API_MIN = 26,
    MP_ORT_API_MAX = 29, /* the newest that ort_abi.h describes */
    MP_UNITS_MAX = 8,    /* devices of a factory; ONNX Runtime takes no more */
    MP_REASON_MAX = 512,
};

/* The tables of the runtime that loaded the plugin. Set by the first CreateEpFactories before
 * anything else runs, and the same for the life of the process. */
typedef struct mp_plugin {
    const OrtApi *ort;
    const OrtEpApi *ep;
    uint32_t version; /* of both tables: MP_ORT_API_MIN to MP_ORT_API_MAX */
    uint32_t runtime; /* 31 of ONNX Runtime 1.31 */
} mp_plugin;

extern mp_plugin mp_the_plugin;
#define ORT    (mp_the_plugin.ort)
#define ORT_EP (mp_the_plugin.ep)

typedef struct mp_factory mp_factory;
typedef struct mp_provider mp_provider;

/* One device as the factory offers it. */
typedef struct mp_unit {
    mp_factory *factory;                  /* borrowed; whoever uses the unit keeps it */
    mp_device *device;                    /* borrowed from the process */
    const OrtHardwareDevice *hardware;    /* borrowed from ORT, or `own_hardware` */
    OrtHardwareDevice *own_hardware;      /* owned; NULL where ORT listed the device */
    OrtMemoryInfo *memory, *pinned;       /* owned */
    OrtMemoryInfo *constant;              /* owned; `memory` for what stays: weights */
    const OrtMemoryDevice *memory_device; /* borrowed from `memory` */
} mp_unit;

struct mp_factory {
    OrtEpFactory base; /* first */
    const mp_ep_name *name;
    atomic_int references; /* the registration, providers, allocators, streams, transfers */
    pthread_mutex_t lock;
    mp_unit units[MP_UNITS_MAX];
    int unit_count;
    char device_reason[MP_REASON_MAX]; /* why these devices, in one clause */
    bool emulation_unasked;            /* there is no GPU, and nobody asked for this */
    OrtKernelRegistry *registry;       /* owned; made by the first session */
    OrtDataTransferImpl transfer;
};

/* What a session asked for; see options.c for the keys. */
typedef struct mp_options {
    int64_t fusion;          /* 0: node by node; 1: islands; 2: also of single nodes */
    int64_t fusion_programs; /* of an island */
    size_t fusion_memory;    /* bytes that programs keep on the device between runs */
    bool prefer_nhwc;
    bool use_tf32;
    bool enable_cudnn;
    bool cudnn_conv_use_max_workspace;
    int cudnn_conv_algo_search; /* as mp_conv.search */
    bool cudnn_conv1d_pad_to_nc1d, fuse_conv_bias;
    bool enable_skip_layer_norm_strict_mode;
    int64_t sdpa_kernel;
    size_t partition_memory_limit; /* bytes; 0: none */
    bool tunable_op_enable, tunable_op_tuning_enable;
    int64_t tunable_op_max_tuning_duration_ms;
    int64_t device_id; /* of the device that the session was given */
    /* addresses of functions that own the memory beneath; 0: ours does */
    uintptr_t gpu_external_alloc, gpu_external_free, gpu_external_empty_cache;
    bool enable_cuda_graph;
    int64_t min_num_runs_before_cuda_graph_capture;
    bool has_user_compute_stream, use_ep_level_unified_stream, do_copy_in_default_stream;
    uintptr_t user_compute_stream; /* a native handle */
    /* what millpond.onnxruntime says, and no option of users */
    bool strict;     /* an option that is not taken is an error, not a warning */
    bool meant_host; /* the emulated device was asked for by the session */
    bool explain;    /* somebody will look for the note of islands, see island_note.h */
} mp_options;

/* See left_note.h. */
typedef struct mp_left_nodes {
    char *text;    /* owned; NULL for none */
    mp_note *note; /* owned */
} mp_left_nodes;

/* See island_note.h, and island_keep.c for what is kept. */
typedef struct mp_island_list {
    pthread_mutex_t lock;    /* guards the next two; taken before an island's */
    struct mp_island *first; /* borrowed: those that are compiled now */
    char *outside;           /* owned; JSON of nodes that are in none; NULL for none */
    mp_note *note;           /* owned; NULL where nobody will look */
    atomic_int made;         /* so far */
    int64_t rewrites;        /* of passes, so far; only while islands are compiled */
    bool has_hook;           /* what they keep goes where memory is short */
    atomic_size_t kept;      /* bytes on the device, of all their programs */
    _Atomic uint64_t clock;  /* counts uses of programs */
} mp_island_list;

typedef enum mp_presence { MP_NOT_TRIED, MP_THERE, MP_MISSING } mp_presence;
enum { MP_KEPT_MAX = 32 };

struct mp_provider {
    OrtEp base; /* first */
    mp_factory *factory;
    mp_unit *unit;
    mp_options options;
    mp_op_options op_options;
    mp_note *options_note; /* owned; what mp__options_publish left */
    char *session_name;    /* owned; what the session goes by, NULL for none */
    mp_left_nodes left;    /* nodes that are left to the CPU on purpose */
    mp_island_list islands;
    mp_computer computer;          /* for their passes */
    mp_presence convolutions;      /* whether the device has them; see refusal.c */
    const char *kept[MP_KEPT_MAX]; /* operators whose layout stays; static storage, see nhwc.c */
    int kept_count;
    struct mp_budget *budget;                /* owned; NULL without a limit, see budget.h */
    struct mp_weights *weights;              /* owned; constants of islands, see weights.h */
    struct mp_context *context;              /* owned; NULL: no compiled model is asked for */
    char *context_path;                      /* owned; ep.context_file_path; "" for none */
    mp_pool *pool;                           /* owned; where scratch comes from */
    mp_pool *pinned;                         /* owned; for as long as the session lives */
    struct mp_run_stream *only_stream;       /* a reference; NULL where each thread has its own */
    struct mp_thread_record *thread_records; /* see per_thread.h */
    uint64_t lacking_told;   /* operators that no provider has, which the user was told of */
    atomic_int kernel_count; /* nodes that the session has given to us */
    atomic_bool runs_once;   /* one of them is as mp_op.once says: no run is repeated unasked */
};

/* ---- factory.c ---- */
mp_status mp__factory_create(const char *registration, mp_factory **out);
/* A session or a value may outlive its registration: each holds the factory until it goes too. */
void mp__factory_keep(mp_factory *factory);
void mp__factory_drop(mp_factory *factory);

/* ---- incompatibility.c, external.c: of the factory's table ---- */
OrtStatus *mp__incompatibility(OrtEpFactory *self, const OrtHardwareDevice *hardware,
                               OrtDeviceEpIncompatibilityDetails *details);
OrtStatus *mp__external_create(OrtEpFactory *self, const OrtEpDevice *device,
                               OrtExternalResourceImporterImpl **out);

/* ---- units.c ---- */
/* Opens the devices that MILLPOND_DEVICE (auto, host, cuda) chooses and pairs them with `hardware`,
 * what ORT found; a device that ORT did not find gets a hardware device of our own. */
mp_status mp__units_open(mp_factory *factory, const OrtHardwareDevice *const *hardware,
                         size_t count);
void mp__units_close(mp_factory *factory);
/* The unit with this hardware, or NULL. */
mp_unit *mp__unit_with(mp_factory *factory, const OrtHardwareDevice *hardware);
/* The unit whose memory is `device`, or NULL. */
mp_unit *mp__unit_of(mp_factory *factory, const OrtMemoryDevice *device);

/* ---- provider.c ---- */
OrtStatus *mp__provider_create(mp_factory *factory, mp_unit *unit, const OrtSessionOptions *session,
                               OrtEp **out);
void mp__provider_release(mp_provider *provider);

/* ---- resource.c ---- */
/* Sets what tells ONNX Runtime of a session's device and memory. */
void mp__resource_install(OrtEp *ep);

/* ---- options.c ---- */
/* For a session on `unit`. Fails: INVALID_ARGUMENT where the options name another device. */
mp_status mp__options_read(const OrtSessionOptions *session, const mp_unit *unit, mp_options *out);
/* Those that concern operators. */
mp_op_options mp__options_of_ops(const mp_options *options);
/* Makes known what the session runs with: a line for the log, and a note under the name that the
 * session gives itself, if it does. Gives: `*note`, until mp_note_remove, and `*name`, until free;
 * NULL for none. */
void mp__options_publish(const OrtSessionOptions *session, const mp_options *options, char **name,
                         mp_note **note);

/* ---- capability.c ---- */
void mp__budget_release(struct mp_budget *budget); /* budget.c; NULL is ignored */
OrtStatus *mp__get_capability(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *support);

/* ---- registry.c ---- */
typedef struct mp_kernels {
    OrtKernelRegistry *registry;
    const char *provider;
} mp_kernels;

/* Gives: `*out`, one kernel for each row and schema version, of a provider of that name. Rows that
 * disagree with ORT's own schema are reported to the log and left out. */
OrtStatus *mp__registry_create(const char *provider, OrtKernelRegistry **out);
/* Adds one row: part of the above. */
OrtStatus *mp__registry_add_row(const mp_kernels *to, const mp_op *op);
/* The types that `schema` allows for the constraint `name`; `*found` tells whether it has it. */
OrtStatus *mp__schema_types(const OrtOpSchema *schema, const char *name, bool *found,
                            mp_dtypes *out);

/* ---- kernel.c, memcpy_kernel.c ---- */
OrtStatus *mp__kernel_create(void *op, const OrtKernelInfo *info, OrtKernelImpl **out);
OrtStatus *mp__memcpy_create(void *unused, const OrtKernelInfo *info, OrtKernelImpl **out);

/* ---- memory.c ---- */
/* A handle on the unit's pool; `pairs` (NULL for none) are the options asked for, of which those
 * that begin with "arena." count, over those of the environment. Allocators that wait for the pool
 * (pool_later.h) have it then, too. Gives: `*out`, until mp_pool_close. */
mp_status mp__memory_open(const mp_unit *unit, mp_memory memory, const OrtKeyValuePairs *pairs,
                          mp_pool **out);
/* Whether a pool could be opened so, and whether there is an option in `pairs` that the environment
 * does not say as well. Fails: INVALID_ARGUMENT. */
mp_status mp__memory_check(const mp_unit *unit, const OrtKeyValuePairs *pairs, bool *asks);
/* The pool's name of an option, "arena.max_mem" for example, which ONNX Runtime's CUDA provider may
 * call otherwise; NULL where it is not one of the pool's. */
const char *mp__memory_option(const char *name);
/* The pools of a session, of device and pinned memory: the former over the functions that the
 * session's options name, if any. Gives: both until mp_pool_close, `*memory` also when it fails
 * (or NULL). */
mp_status mp__memory_open_session(const mp_unit *unit, const OrtSessionOptions *session,
                                  const mp_options *options, mp_pool **memory, mp_pool **pinned);

/* ---- allocator.c ---- */
/* Takes: `pool`, also when it fails; NULL: one that is opened when it is needed. */
OrtStatus *mp__allocator_create(mp_unit *unit, const OrtMemoryInfo *asked, mp_pool *pool,
                                OrtAllocator **out);
void mp__allocator_release(OrtAllocator *self); /* NULL is ignored */

/* ---- sync_stream.c ---- */
/* Takes: `stream`, also when it fails. */
OrtStatus *mp__sync_stream_create(struct mp_run_stream *stream, OrtSyncStreamImpl **out);
/* The stream behind one of ours; NULL for NULL and for others. */
mp_stream *mp__stream_of(const OrtSyncStream *stream);
/* What the pool knows the stream by; MP_NO_STREAM for one that is none of ours, and for NULL. */
void *mp__native_of(const OrtSyncStream *stream);
/* The pool that is told of the stream's work; NULL for one that is none of ours, and for NULL. */
mp_pool *mp__pool_of_stream(const OrtSyncStream *stream);
/* The stream a node runs on: ORT's for this run, or the thread's own, where `*own` is set. */
mp_status mp__stream_of_context(mp_provider *provider, const OrtKernelContext *context,
                                mp_stream **out, bool *own);
/* After the node's work is queued. ORT knows nothing of a thread's own stream and takes the work
 * for done when the node returns, so that stream is waited for. */
mp_status mp__stream_done(const mp_provider *provider, mp_stream *stream, bool own);

/* ---- peers.c ---- */
/* Lets two devices reach each other's memory from now on, if they can; copies between them go
 * through the host otherwise. Cheap after the first time. */
void mp__peers_connect(mp_device *a, mp_device *b);

/* ---- transfer.c ---- */
void mp__transfer_init(OrtDataTransferImpl *transfer);
/* Copies a tensor's bytes; `stream` may be NULL. */
mp_status mp__copy_value(mp_factory *factory, const OrtValue *source, OrtValue *target,
                         mp_stream *stream);

#endif
