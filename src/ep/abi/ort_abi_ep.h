/* ort_abi_ep.h - the tables of functions that an execution provider offers.
 *
 * Every table starts with the API version it was filled for; ONNX Runtime reads no slot that
 * is newer, and treats NULL in an optional slot as "not offered".
 *
 * Written by tools/ort_abi_gen.py from tests/data/ort_abi.tsv; change those, not this file.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ORT_ABI_EP_H
#define MP_EP_ORT_ABI_EP_H

#include "ep/abi/ort_abi_types.h"

/* Memory of one device. `version` plays the part of ort_version_supported. */
struct OrtAllocator {
    uint32_t version;
    void *(*Alloc)(OrtAllocator *, size_t);
    void (*Free)(OrtAllocator *, void *);
    const OrtMemoryInfo *(*Info)(const OrtAllocator *);
    /* since 1.18 */
    void *(*Reserve)(OrtAllocator *, size_t);
    /* since 1.23 */
    OrtStatusPtr (*GetStats)(const OrtAllocator *, OrtKeyValuePairs **);
    void *(*AllocOnStream)(OrtAllocator *, size_t, OrtSyncStream *);
    /* since 1.25 */
    OrtStatusPtr (*Shrink)(OrtAllocator *);
};

/* Copies between this EP's memory and the host's, or within it. */
struct OrtDataTransferImpl {
    uint32_t ort_version_supported;
    /* since 1.23 */
    void (*Release)(OrtDataTransferImpl *);
    bool (*CanCopy)(const OrtDataTransferImpl *, const OrtMemoryDevice *, const OrtMemoryDevice *);
    OrtStatusPtr (*CopyTensors)(OrtDataTransferImpl *, const OrtValue **, OrtValue **,
                                OrtSyncStream **, size_t);
};

/* An event on a stream. */
struct OrtSyncNotificationImpl {
    uint32_t ort_version_supported;
    /* since 1.23 */
    void (*Release)(OrtSyncNotificationImpl *);
    OrtStatusPtr (*Activate)(OrtSyncNotificationImpl *);
    OrtStatusPtr (*WaitOnDevice)(OrtSyncNotificationImpl *, OrtSyncStream *);
    OrtStatusPtr (*WaitOnHost)(OrtSyncNotificationImpl *);
};

/* A queue of work on one device. */
struct OrtSyncStreamImpl {
    uint32_t ort_version_supported;
    /* since 1.23 */
    void (*Release)(OrtSyncStreamImpl *);
    void *(*GetHandle)(OrtSyncStreamImpl *);
    OrtStatusPtr (*CreateNotification)(OrtSyncStreamImpl *, OrtSyncNotificationImpl **);
    OrtStatusPtr (*Flush)(OrtSyncStreamImpl *);
    OrtStatusPtr (*OnSessionRunEnd)(OrtSyncStreamImpl *);
};

/* How ONNX Runtime fuses a claimed group of nodes. */
struct OrtNodeFusionOptions {
    /* since 1.23 */
    uint32_t ort_version_supported;
    bool drop_constant_initializers;
};

/* A fused group of nodes, ready to run. */
struct OrtNodeComputeInfo {
    /* since 1.23 */
    uint32_t ort_version_supported;
    OrtStatus *(*CreateState)(OrtNodeComputeInfo *, OrtNodeComputeContext *, void **);
    OrtStatus *(*Compute)(OrtNodeComputeInfo *, void *, OrtKernelContext *);
    void (*ReleaseState)(OrtNodeComputeInfo *, void *);
};

/* One node's kernel. */
struct OrtKernelImpl {
    uint32_t ort_version_supported;
    uint32_t flags;
    /* since 1.24 */
    OrtStatusPtr (*Compute)(OrtKernelImpl *, OrtKernelContext *);
    void (*Release)(OrtKernelImpl *);
    OrtStatusPtr (*PrePackWeight)(OrtKernelImpl *, const OrtValue *, int, OrtAllocator *,
                                  OrtSharedPrePackedWeightCache *, bool *);
    OrtStatusPtr (*SetSharedPrePackedWeight)(OrtKernelImpl *, const void *const *, const size_t *,
                                             size_t, int);
};

/* What ONNX Runtime's own Loop needs of a device. */
struct OrtLoopKernelHelper {
    uint32_t ort_version_supported;
    /* since 1.24 */
    void (*Release)(OrtLoopKernelHelper *);
    OrtStatusPtr (*ConcatOutput)(OrtLoopKernelHelper *, void *, const OrtValue *const *, size_t,
                                 void *, size_t);
};

/* What ONNX Runtime's own Scan needs of a device. */
struct OrtScanKernelHelper {
    uint32_t ort_version_supported;
    /* since 1.24 */
    void (*Release)(OrtScanKernelHelper *);
    OrtStatusPtr (*Transpose)(OrtScanKernelHelper *, const size_t *, size_t, const OrtValue *,
                              OrtSyncStream *, OrtValue *);
};

/* Adds the device's events to ONNX Runtime's profile. */
struct OrtEpProfilerImpl {
    uint32_t ort_version_supported;
    /* since 1.25 */
    void (*Release)(OrtEpProfilerImpl *);
    OrtStatusPtr (*StartProfiling)(OrtEpProfilerImpl *, int64_t);
    OrtStatusPtr (*StartEvent)(OrtEpProfilerImpl *, uint64_t);
    OrtStatusPtr (*StopEvent)(OrtEpProfilerImpl *, uint64_t, const OrtProfilingEvent *);
    OrtStatusPtr (*EndProfiling)(OrtEpProfilerImpl *, OrtProfilingEventsContainer *);
};

/* Memory made by another API. */
struct OrtExternalMemoryDescriptor {
    uint32_t version;
    /* since 1.24 */
    OrtExternalMemoryHandleType handle_type;
    void *native_handle;
    size_t size_bytes;
    size_t offset_bytes;
};

/* A semaphore made by another API. */
struct OrtExternalSemaphoreDescriptor {
    uint32_t version;
    /* since 1.24 */
    OrtExternalSemaphoreType type;
    void *native_handle;
};

/* A tensor inside imported memory. */
struct OrtExternalTensorDescriptor {
    uint32_t version;
    /* since 1.24 */
    ONNXTensorElementDataType element_type;
    const int64_t *shape;
    size_t rank;
    size_t offset_bytes;
};

/* The command queue that a device shares with a graphics API. */
struct OrtGraphicsInteropConfig {
    uint32_t version;
    /* since 1.25 */
    OrtGraphicsApi graphics_api;
    void *command_queue;
    const OrtKeyValuePairs *additional_options;
};

/* Imported memory; the EP embeds this record in its own. */
struct OrtExternalMemoryHandle {
    uint32_t version;
    const OrtEpDevice *ep_device;
    OrtExternalMemoryDescriptor descriptor;
    void (*Release)(OrtExternalMemoryHandle *);
};

/* An imported semaphore; the EP embeds this record in its own. */
struct OrtExternalSemaphoreHandle {
    uint32_t version;
    const OrtEpDevice *ep_device;
    OrtExternalSemaphoreDescriptor descriptor;
    void (*Release)(OrtExternalSemaphoreHandle *);
};

/* Imports memory and semaphores for one device. */
struct OrtExternalResourceImporterImpl {
    uint32_t ort_version_supported;
    /* since 1.24 */
    bool (*CanImportMemory)(const OrtExternalResourceImporterImpl *, OrtExternalMemoryHandleType);
    OrtStatusPtr (*ImportMemory)(OrtExternalResourceImporterImpl *,
                                 const OrtExternalMemoryDescriptor *, OrtExternalMemoryHandle **);
    void (*ReleaseMemory)(OrtExternalResourceImporterImpl *, OrtExternalMemoryHandle *);
    OrtStatusPtr (*CreateTensorFromMemory)(OrtExternalResourceImporterImpl *,
                                           const OrtExternalMemoryHandle *,
                                           const OrtExternalTensorDescriptor *, OrtValue **);
    bool (*CanImportSemaphore)(const OrtExternalResourceImporterImpl *, OrtExternalSemaphoreType);
    OrtStatusPtr (*ImportSemaphore)(OrtExternalResourceImporterImpl *,
                                    const OrtExternalSemaphoreDescriptor *,
                                    OrtExternalSemaphoreHandle **);
    void (*ReleaseSemaphore)(OrtExternalResourceImporterImpl *, OrtExternalSemaphoreHandle *);
    OrtStatusPtr (*WaitSemaphore)(OrtExternalResourceImporterImpl *, OrtExternalSemaphoreHandle *,
                                  OrtSyncStream *, uint64_t);
    OrtStatusPtr (*SignalSemaphore)(OrtExternalResourceImporterImpl *, OrtExternalSemaphoreHandle *,
                                    OrtSyncStream *, uint64_t);
    void (*Release)(OrtExternalResourceImporterImpl *);
};

/* An amount of a resource; `kind` says which member of the union holds it. */
struct OrtResourceCount {
    uint32_t kind;
    /* since 1.26 */
    uint32_t reserved;
    union {
        uint64_t total_bytes;
        uint64_t reserved_words[6];
    } value;
};

/* One EP object, made for one session. */
struct OrtEp {
    /* since 1.22 */
    uint32_t ort_version_supported;
    const char *(*GetName)(const OrtEp *);
    /* since 1.23 */
    OrtStatusPtr (*GetCapability)(OrtEp *, const OrtGraph *, OrtEpGraphSupportInfo *);
    OrtStatusPtr (*Compile)(OrtEp *, const OrtGraph **, const OrtNode **, size_t,
                            OrtNodeComputeInfo **, OrtNode **);
    void (*ReleaseNodeComputeInfos)(OrtEp *, OrtNodeComputeInfo **, size_t);
    OrtStatusPtr (*GetPreferredDataLayout)(OrtEp *, OrtEpDataLayout *);
    OrtStatusPtr (*ShouldConvertDataLayoutForOp)(OrtEp *, const char *, const char *,
                                                 OrtEpDataLayout, int *);
    OrtStatusPtr (*SetDynamicOptions)(OrtEp *, const char *const *, const char *const *, size_t);
    OrtStatusPtr (*OnRunStart)(OrtEp *, const OrtRunOptions *);
    OrtStatusPtr (*OnRunEnd)(OrtEp *, const OrtRunOptions *, bool);
    OrtStatusPtr (*CreateAllocator)(OrtEp *, const OrtMemoryInfo *, OrtAllocator **);
    OrtStatusPtr (*CreateSyncStreamForDevice)(OrtEp *, const OrtMemoryDevice *,
                                              OrtSyncStreamImpl **);
    const char *(*GetCompiledModelCompatibilityInfo)(OrtEp *, const OrtGraph *);
    /* since 1.24 */
    OrtStatusPtr (*GetKernelRegistry)(OrtEp *, const OrtKernelRegistry **);
    OrtStatusPtr (*IsConcurrentRunSupported)(OrtEp *, bool *);
    /* since 1.25 */
    OrtStatusPtr (*Sync)(OrtEp *);
    OrtStatusPtr (*CreateProfiler)(OrtEp *, OrtEpProfilerImpl **);
    /* since 1.26 */
    bool (*IsGraphCaptureEnabled)(const OrtEp *);
    bool (*IsGraphCaptured)(const OrtEp *, int);
    OrtStatusPtr (*ReplayGraph)(OrtEp *, int);
    OrtGraphCaptureNodeAssignmentPolicy (*GetGraphCaptureNodeAssignmentPolicy)(const OrtEp *);
    OrtStatusPtr (*GetAvailableResource)(const OrtEp *, OrtResourceCount *);
    /* since 1.27 */
    OrtStatusPtr (*OnSessionInitializationEnd)(OrtEp *);
    OrtStatusPtr (*GetDefaultMemoryDevice)(const OrtEp *, const OrtMemoryDevice **);
    OrtStatusPtr (*ReleaseCapturedGraph)(OrtEp *, int);
    /* since 1.29 */
    OrtStatusPtr (*GetWeightlessSupport)(const OrtEp *, OrtWeightlessSupport *);
};

/* Makes EPs, allocators, streams and transfers for its devices. */
struct OrtEpFactory {
    /* since 1.22 */
    uint32_t ort_version_supported;
    const char *(*GetName)(const OrtEpFactory *);
    const char *(*GetVendor)(const OrtEpFactory *);
    OrtStatusPtr (*GetSupportedDevices)(OrtEpFactory *, const OrtHardwareDevice *const *, size_t,
                                        OrtEpDevice **, size_t, size_t *);
    OrtStatusPtr (*CreateEp)(OrtEpFactory *, const OrtHardwareDevice *const *,
                             const OrtKeyValuePairs *const *, size_t, const OrtSessionOptions *,
                             const OrtLogger *, OrtEp **);
    void (*ReleaseEp)(OrtEpFactory *, OrtEp *);
    /* since 1.23 */
    uint32_t (*GetVendorId)(const OrtEpFactory *);
    const char *(*GetVersion)(const OrtEpFactory *);
    OrtStatusPtr (*ValidateCompiledModelCompatibilityInfo)(OrtEpFactory *,
                                                           const OrtHardwareDevice *const *, size_t,
                                                           const char *,
                                                           OrtCompiledModelCompatibility *);
    OrtStatusPtr (*CreateAllocator)(OrtEpFactory *, const OrtMemoryInfo *, const OrtKeyValuePairs *,
                                    OrtAllocator **);
    void (*ReleaseAllocator)(OrtEpFactory *, OrtAllocator *);
    OrtStatusPtr (*CreateDataTransfer)(OrtEpFactory *, OrtDataTransferImpl **);
    bool (*IsStreamAware)(const OrtEpFactory *);
    OrtStatusPtr (*CreateSyncStreamForDevice)(OrtEpFactory *, const OrtMemoryDevice *,
                                              const OrtKeyValuePairs *, OrtSyncStreamImpl **);
    /* since 1.24 */
    OrtStatusPtr (*GetHardwareDeviceIncompatibilityDetails)(OrtEpFactory *,
                                                            const OrtHardwareDevice *,
                                                            OrtDeviceEpIncompatibilityDetails *);
    OrtStatusPtr (*CreateExternalResourceImporterForDevice)(OrtEpFactory *, const OrtEpDevice *,
                                                            OrtExternalResourceImporterImpl **);
    OrtStatusPtr (*GetNumCustomOpDomains)(OrtEpFactory *, size_t *);
    OrtStatusPtr (*GetCustomOpDomains)(OrtEpFactory *, OrtCustomOpDomain **, size_t);
    /* since 1.25 */
    OrtStatusPtr (*InitGraphicsInterop)(OrtEpFactory *, const OrtEpDevice *,
                                        const OrtGraphicsInteropConfig *);
    OrtStatusPtr (*DeinitGraphicsInterop)(OrtEpFactory *, const OrtEpDevice *);
    /* since 1.28 */
    OrtStatusPtr (*SelectBestModelCandidate)(OrtEpFactory *, const OrtHardwareDevice *,
                                             const OrtKeyValuePairs *const *, size_t,
                                             const OrtSessionOptions *, size_t *);
};

/* The two functions that a plugin library exports. */
typedef OrtStatus *(*CreateEpApiFactoriesFn)(const char *registered_name,
                                             const OrtApiBase *api_base,
                                             const OrtLogger *default_logger,
                                             OrtEpFactory **factories, size_t max_factories,
                                             size_t *num_factories);
typedef OrtStatus *(*ReleaseEpApiFactoryFn)(OrtEpFactory *factory);

#endif
