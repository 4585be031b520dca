/* ort_abi_api.h - the tables of functions that ONNX Runtime offers.
 *
 * Tables only ever grow at their end, so a slot's place is its identity: no member may be
 * left out, reordered or retyped.
 *
 * Written by tools/ort_abi_gen.py from tests/data/ort_abi.tsv; change those, not this file.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ORT_ABI_API_H
#define MP_EP_ORT_ABI_API_H

#include "ep/abi/ort_abi_types.h"

/* What CreateEpFactories gets: the way to every other table. */
struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t);
    const char *(*GetVersionString)(void);
};

/* What an EP asks of ONNX Runtime: devices, kernel registries, schemas, profiling events. */
struct OrtEpApi {
    /* since 1.22 */
    OrtStatusPtr (*CreateEpDevice)(OrtEpFactory *, const OrtHardwareDevice *,
                                   const OrtKeyValuePairs *, const OrtKeyValuePairs *,
                                   OrtEpDevice **);
    void (*ReleaseEpDevice)(OrtEpDevice *);
    /* since 1.23 */
    OrtStatusPtr (*EpGraphSupportInfo_AddNodesToFuse)(OrtEpGraphSupportInfo *,
                                                      const OrtNode *const *, size_t,
                                                      const OrtNodeFusionOptions *);
    OrtStatusPtr (*EpGraphSupportInfo_AddSingleNode)(OrtEpGraphSupportInfo *, const OrtNode *);
    const char *(*NodeComputeContext_NodeName)(const OrtNodeComputeContext *);
    OrtStatusPtr (*EpDevice_AddAllocatorInfo)(OrtEpDevice *, const OrtMemoryInfo *);
    const OrtMemoryDevice *(*MemoryInfo_GetMemoryDevice)(const OrtMemoryInfo *);
    const OrtMemoryDevice *(*Value_GetMemoryDevice)(const OrtValue *);
    bool (*MemoryDevice_AreEqual)(const OrtMemoryDevice *, const OrtMemoryDevice *);
    OrtMemoryInfoDeviceType (*MemoryDevice_GetDeviceType)(const OrtMemoryDevice *);
    OrtDeviceMemoryType (*MemoryDevice_GetMemoryType)(const OrtMemoryDevice *);
    uint32_t (*MemoryDevice_GetVendorId)(const OrtMemoryDevice *);
    uint32_t (*MemoryDevice_GetDeviceId)(const OrtMemoryDevice *);
    const OrtSyncStreamImpl *(*SyncStream_GetImpl)(const OrtSyncStream *);
    uint64_t (*SyncStream_GetSyncId)(const OrtSyncStream *);
    uint64_t (*GetSyncIdForLastWaitOnSyncStream)(const OrtSyncStream *, const OrtSyncStream *);
    /* since 1.24 */
    OrtStatusPtr (*CreateHardwareDevice)(OrtHardwareDeviceType, uint32_t, uint32_t, const char *,
                                         const OrtKeyValuePairs *, OrtHardwareDevice **);
    void (*ReleaseHardwareDevice)(OrtHardwareDevice *);
    OrtStatusPtr (*CreateKernelRegistry)(OrtKernelRegistry **);
    void (*ReleaseKernelRegistry)(OrtKernelRegistry *);
    OrtStatusPtr (*KernelRegistry_AddKernel)(OrtKernelRegistry *, const OrtKernelDef *,
                                             OrtKernelCreateFunc, void *);
    OrtStatusPtr (*CreateKernelDefBuilder)(OrtKernelDefBuilder **);
    void (*ReleaseKernelDefBuilder)(OrtKernelDefBuilder *);
    OrtStatusPtr (*KernelDefBuilder_SetOperatorType)(OrtKernelDefBuilder *, const char *);
    OrtStatusPtr (*KernelDefBuilder_SetDomain)(OrtKernelDefBuilder *, const char *);
    OrtStatusPtr (*KernelDefBuilder_SetSinceVersion)(OrtKernelDefBuilder *, int, int);
    OrtStatusPtr (*KernelDefBuilder_SetExecutionProvider)(OrtKernelDefBuilder *, const char *);
    OrtStatusPtr (*KernelDefBuilder_SetInputMemType)(OrtKernelDefBuilder *, size_t, OrtMemType);
    OrtStatusPtr (*KernelDefBuilder_SetOutputMemType)(OrtKernelDefBuilder *, size_t, OrtMemType);
    OrtStatusPtr (*KernelDefBuilder_AddTypeConstraint)(OrtKernelDefBuilder *, const char *,
                                                       const OrtDataType *const *, size_t);
    OrtStatusPtr (*KernelDefBuilder_AddInputOutputAliases)(OrtKernelDefBuilder *, const int *,
                                                           const int *, size_t);
    OrtStatusPtr (*KernelDefBuilder_AddInputOutputMutableAliases)(OrtKernelDefBuilder *,
                                                                  const int *, const int *, size_t);
    OrtStatusPtr (*KernelDefBuilder_Build)(OrtKernelDefBuilder *, OrtKernelDef **);
    void (*ReleaseKernelDef)(OrtKernelDef *);
    const char *(*KernelDef_GetOperatorType)(const OrtKernelDef *);
    const char *(*KernelDef_GetDomain)(const OrtKernelDef *);
    OrtStatusPtr (*KernelDef_GetSinceVersion)(const OrtKernelDef *, int *, int *);
    const char *(*KernelDef_GetExecutionProvider)(const OrtKernelDef *);
    OrtStatusPtr (*KernelDef_GetInputMemType)(const OrtKernelDef *, size_t, OrtMemType *);
    OrtStatusPtr (*KernelDef_GetOutputMemType)(const OrtKernelDef *, size_t, OrtMemType *);
    OrtStatusPtr (*GetTensorDataType)(ONNXTensorElementDataType, const OrtDataType **);
    OrtStatusPtr (*EpGraphSupportInfo_LookUpKernel)(OrtEpGraphSupportInfo *, const OrtNode *,
                                                    const OrtKernelDef **);
    OrtStatusPtr (*SharedPrePackedWeightCache_StoreWeightData)(OrtSharedPrePackedWeightCache *,
                                                               void **, size_t *, size_t);
    OrtStatusPtr (*KernelInfo_GetEp)(const OrtKernelInfo *, const OrtEp **);
    OrtStatusPtr (*DeviceEpIncompatibilityDetails_SetDetails)(OrtDeviceEpIncompatibilityDetails *,
                                                              uint32_t, int32_t, const char *);
    OrtStatusPtr (*CreateIfKernel)(const OrtKernelInfo *, OrtKernelImpl **);
    OrtStatusPtr (*CreateLoopKernel)(const OrtKernelInfo *, OrtLoopKernelHelper *,
                                     OrtKernelImpl **);
    OrtStatusPtr (*CreateScanKernel)(const OrtKernelInfo *, OrtScanKernelHelper *,
                                     OrtKernelImpl **);
    void (*ReleaseKernelImpl)(OrtKernelImpl *);
    OrtStatusPtr (*GetEnvConfigEntries)(OrtKeyValuePairs **);
    /* since 1.25 */
    OrtStatusPtr (*GetOpSchema)(const char *, int, const char *, OrtOpSchema **);
    void (*ReleaseOpSchema)(OrtOpSchema *);
    OrtStatusPtr (*OpSchema_GetSinceVersion)(const OrtOpSchema *, int *);
    OrtStatusPtr (*OpSchema_GetNumInputs)(const OrtOpSchema *, size_t *);
    OrtStatusPtr (*OpSchema_GetInputName)(const OrtOpSchema *, size_t, const char **);
    OrtStatusPtr (*OpSchema_GetInputTypeConstraint)(const OrtOpSchema *, size_t,
                                                    const OrtOpSchemaTypeConstraint **);
    OrtStatusPtr (*OpSchema_GetNumOutputs)(const OrtOpSchema *, size_t *);
    OrtStatusPtr (*OpSchema_GetOutputName)(const OrtOpSchema *, size_t, const char **);
    OrtStatusPtr (*OpSchema_GetOutputTypeConstraint)(const OrtOpSchema *, size_t,
                                                     const OrtOpSchemaTypeConstraint **);
    OrtStatusPtr (*OpSchema_GetTypeConstraintCount)(const OrtOpSchema *, size_t *);
    OrtStatusPtr (*OpSchema_GetTypeConstraint)(const OrtOpSchema *, size_t,
                                               const OrtOpSchemaTypeConstraint **);
    OrtStatusPtr (*OpSchemaTypeConstraint_GetTypeParamName)(const OrtOpSchemaTypeConstraint *,
                                                            const char **);
    OrtStatusPtr (*OpSchemaTypeConstraint_GetAllowedTypes)(const OrtOpSchemaTypeConstraint *,
                                                           const char *const **, size_t *);
    OrtStatusPtr (*OpSchemaTypeConstraint_GetInputIndices)(const OrtOpSchemaTypeConstraint *,
                                                           const size_t **, size_t *);
    OrtStatusPtr (*OpSchemaTypeConstraint_GetOutputIndices)(const OrtOpSchemaTypeConstraint *,
                                                            const size_t **, size_t *);
    OrtStatusPtr (*CreateProfilingEvent)(OrtProfilingEventCategory, int32_t, int32_t, const char *,
                                         int64_t, int64_t, const char *const *, const char *const *,
                                         size_t, OrtProfilingEvent **);
    void (*ReleaseProfilingEvent)(OrtProfilingEvent *);
    OrtStatusPtr (*ProfilingEvent_GetCategory)(const OrtProfilingEvent *,
                                               OrtProfilingEventCategory *);
    OrtStatusPtr (*ProfilingEvent_GetName)(const OrtProfilingEvent *, const char **);
    OrtStatusPtr (*ProfilingEvent_GetTimestampUs)(const OrtProfilingEvent *, int64_t *);
    OrtStatusPtr (*ProfilingEvent_GetDurationUs)(const OrtProfilingEvent *, int64_t *);
    OrtStatusPtr (*ProfilingEvent_GetArgValue)(const OrtProfilingEvent *, const char *,
                                               const char **);
    OrtStatusPtr (*ProfilingEventsContainer_AddEvents)(OrtProfilingEventsContainer *,
                                                       const OrtProfilingEvent *const *, size_t);
    /* since 1.29 */
    OrtStatusPtr (*SessionOptionsGetWeightlessSourceModelBuffer)(const OrtSessionOptions *,
                                                                 const void **, size_t *);
};

/* Builds graphs node by node. */
struct OrtModelEditorApi {
    /* since 1.22 */
    OrtStatusPtr (*CreateTensorTypeInfo)(const OrtTensorTypeAndShapeInfo *, OrtTypeInfo **);
    OrtStatusPtr (*CreateSparseTensorTypeInfo)(const OrtTensorTypeAndShapeInfo *, OrtTypeInfo **);
    OrtStatusPtr (*CreateMapTypeInfo)(ONNXTensorElementDataType, const OrtTypeInfo *,
                                      OrtTypeInfo **);
    OrtStatusPtr (*CreateSequenceTypeInfo)(const OrtTypeInfo *, OrtTypeInfo **);
    OrtStatusPtr (*CreateOptionalTypeInfo)(const OrtTypeInfo *, OrtTypeInfo **);
    OrtStatusPtr (*CreateValueInfo)(const char *, const OrtTypeInfo *, OrtValueInfo **);
    OrtStatusPtr (*CreateNode)(const char *, const char *, const char *, const char *const *,
                               size_t, const char *const *, size_t, OrtOpAttr **, size_t,
                               OrtNode **);
    OrtStatusPtr (*CreateGraph)(OrtGraph **);
    OrtStatusPtr (*SetGraphInputs)(OrtGraph *, OrtValueInfo **, size_t);
    OrtStatusPtr (*SetGraphOutputs)(OrtGraph *, OrtValueInfo **, size_t);
    OrtStatusPtr (*AddInitializerToGraph)(OrtGraph *, const char *, OrtValue *, bool);
    OrtStatusPtr (*AddNodeToGraph)(OrtGraph *, OrtNode *);
    OrtStatusPtr (*CreateModel)(const char *const *, const int *, size_t, OrtModel **);
    OrtStatusPtr (*AddGraphToModel)(OrtModel *, OrtGraph *);
    OrtStatusPtr (*CreateSessionFromModel)(const OrtEnv *, const OrtModel *,
                                           const OrtSessionOptions *, OrtSession **);
    OrtStatusPtr (*CreateModelEditorSession)(const OrtEnv *, const char *,
                                             const OrtSessionOptions *, OrtSession **);
    OrtStatusPtr (*CreateModelEditorSessionFromArray)(const OrtEnv *, const void *, size_t,
                                                      const OrtSessionOptions *, OrtSession **);
    OrtStatusPtr (*SessionGetOpsetForDomain)(const OrtSession *, const char *, int *);
    OrtStatusPtr (*ApplyModelToModelEditorSession)(OrtSession *, OrtModel *);
    OrtStatusPtr (*FinalizeModelEditorSession)(OrtSession *, const OrtSessionOptions *,
                                               OrtPrepackedWeightsContainer *);
};

/* Ahead-of-time compilation of a model. */
struct OrtCompileApi {
    void (*ReleaseModelCompilationOptions)(OrtModelCompilationOptions *);
    /* since 1.22 */
    OrtStatusPtr (*CreateModelCompilationOptionsFromSessionOptions)(const OrtEnv *,
                                                                    const OrtSessionOptions *,
                                                                    OrtModelCompilationOptions **);
    OrtStatusPtr (*ModelCompilationOptions_SetInputModelPath)(OrtModelCompilationOptions *,
                                                              const char *);
    OrtStatusPtr (*ModelCompilationOptions_SetInputModelFromBuffer)(OrtModelCompilationOptions *,
                                                                    const void *, size_t);
    OrtStatusPtr (*ModelCompilationOptions_SetOutputModelPath)(OrtModelCompilationOptions *,
                                                               const char *);
    OrtStatusPtr (*ModelCompilationOptions_SetOutputModelExternalInitializersFile)(
        OrtModelCompilationOptions *, const char *, size_t);
    OrtStatusPtr (*ModelCompilationOptions_SetOutputModelBuffer)(OrtModelCompilationOptions *,
                                                                 OrtAllocator *, void **, size_t *);
    OrtStatusPtr (*ModelCompilationOptions_SetEpContextEmbedMode)(OrtModelCompilationOptions *,
                                                                  bool);
    OrtStatusPtr (*CompileModel)(const OrtEnv *, const OrtModelCompilationOptions *);
    /* since 1.23 */
    OrtStatusPtr (*ModelCompilationOptions_SetFlags)(OrtModelCompilationOptions *, uint32_t);
    OrtStatusPtr (*ModelCompilationOptions_SetEpContextBinaryInformation)(
        OrtModelCompilationOptions *, const char *, const char *);
    OrtStatusPtr (*ModelCompilationOptions_SetGraphOptimizationLevel)(OrtModelCompilationOptions *,
                                                                      GraphOptimizationLevel);
    OrtStatusPtr (*ModelCompilationOptions_SetOutputModelWriteFunc)(OrtModelCompilationOptions *,
                                                                    OrtWriteBufferFunc, void *);
    OrtStatusPtr (*ModelCompilationOptions_SetOutputModelGetInitializerLocationFunc)(
        OrtModelCompilationOptions *, OrtGetInitializerLocationFunc, void *);
    /* since 1.24 */
    OrtStatusPtr (*ModelCompilationOptions_SetInputModel)(OrtModelCompilationOptions *,
                                                          const OrtModel *);
    /* since 1.29 */
    OrtStatusPtr (*ModelCompilationOptions_SetWeightlessEnabled)(OrtModelCompilationOptions *,
                                                                 bool);
};

/* Memory and semaphores of other graphics APIs, seen from the application. */
struct OrtInteropApi {
    /* since 1.24 */
    OrtStatusPtr (*CreateExternalResourceImporterForDevice)(const OrtEpDevice *,
                                                            OrtExternalResourceImporter **);
    void (*ReleaseExternalResourceImporter)(OrtExternalResourceImporter *);
    OrtStatusPtr (*CanImportMemory)(const OrtExternalResourceImporter *,
                                    OrtExternalMemoryHandleType, bool *);
    OrtStatusPtr (*ImportMemory)(OrtExternalResourceImporter *, const OrtExternalMemoryDescriptor *,
                                 OrtExternalMemoryHandle **);
    void (*ReleaseExternalMemoryHandle)(OrtExternalMemoryHandle *);
    OrtStatusPtr (*CreateTensorFromMemory)(OrtExternalResourceImporter *,
                                           const OrtExternalMemoryHandle *,
                                           const OrtExternalTensorDescriptor *, OrtValue **);
    OrtStatusPtr (*CanImportSemaphore)(const OrtExternalResourceImporter *,
                                       OrtExternalSemaphoreType, bool *);
    OrtStatusPtr (*ImportSemaphore)(OrtExternalResourceImporter *,
                                    const OrtExternalSemaphoreDescriptor *,
                                    OrtExternalSemaphoreHandle **);
    void (*ReleaseExternalSemaphoreHandle)(OrtExternalSemaphoreHandle *);
    OrtStatusPtr (*WaitSemaphore)(OrtExternalResourceImporter *, OrtExternalSemaphoreHandle *,
                                  OrtSyncStream *, uint64_t);
    OrtStatusPtr (*SignalSemaphore)(OrtExternalResourceImporter *, OrtExternalSemaphoreHandle *,
                                    OrtSyncStream *, uint64_t);
    /* since 1.25 */
    OrtStatusPtr (*InitGraphicsInteropForEpDevice)(const OrtEpDevice *,
                                                   const OrtGraphicsInteropConfig *);
    OrtStatusPtr (*DeinitGraphicsInteropForEpDevice)(const OrtEpDevice *);
};

/* Settings of an environment. */
struct OrtEnvCreationOptions {
    uint32_t version;
    /* since 1.24 */
    int32_t logging_severity_level;
    const char *log_id;
    void (*custom_logging_function)(void *, OrtLoggingLevel, const char *, const char *,
                                    const char *, const char *);
    void *custom_logging_param;
    const OrtThreadingOptions *threading_options;
    const OrtKeyValuePairs *config_entries;
};

/* Hooks around the work of a session's thread pool. */
struct OrtThreadPoolCallbacksConfig {
    uint32_t version;
    /* since 1.25 */
    void *(*on_enqueue)(void *);
    void (*on_start_work)(void *, void *);
    void (*on_stop_work)(void *, void *);
    void (*on_abandon)(void *, void *);
    void *user_context;
};

/* A custom operator; an EP may bring domains of them. */
struct OrtCustomOp {
    uint32_t version;
    void *(*CreateKernel)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
    const char *(*GetName)(const OrtCustomOp *);
    const char *(*GetExecutionProviderType)(const OrtCustomOp *);
    ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp *, size_t);
    size_t (*GetInputTypeCount)(const OrtCustomOp *);
    ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp *, size_t);
    size_t (*GetOutputTypeCount)(const OrtCustomOp *);
    void (*KernelCompute)(void *, OrtKernelContext *);
    void (*KernelDestroy)(void *);
    OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(const OrtCustomOp *, size_t);
    OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(const OrtCustomOp *, size_t);
    OrtMemType (*GetInputMemoryType)(const OrtCustomOp *, size_t);
    int (*GetVariadicInputMinArity)(const OrtCustomOp *);
    int (*GetVariadicInputHomogeneity)(const OrtCustomOp *);
    int (*GetVariadicOutputMinArity)(const OrtCustomOp *);
    int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *);
    OrtStatusPtr (*CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *,
                                   void **);
    OrtStatusPtr (*KernelComputeV2)(void *, OrtKernelContext *);
    OrtStatusPtr (*InferOutputShapeFn)(const OrtCustomOp *, OrtShapeInferContext *);
    int (*GetStartVersion)(const OrtCustomOp *);
    int (*GetEndVersion)(const OrtCustomOp *);
    size_t (*GetMayInplace)(int **, int **);
    void (*ReleaseMayInplace)(int *, int *);
    size_t (*GetAliasMap)(int **, int **);
    void (*ReleaseAliasMap)(int *, int *);
};

/* The main table. A slot newer than the version asked of GetApi must not be read. */
struct OrtApi {
    OrtStatus *(*CreateStatus)(OrtErrorCode, const char *);
    OrtErrorCode (*GetErrorCode)(const OrtStatus *);
    const char *(*GetErrorMessage)(const OrtStatus *);
    OrtStatusPtr (*CreateEnv)(OrtLoggingLevel, const char *, OrtEnv **);
    OrtStatusPtr (*CreateEnvWithCustomLogger)(OrtLoggingFunction, void *, OrtLoggingLevel,
                                              const char *, OrtEnv **);
    OrtStatusPtr (*EnableTelemetryEvents)(const OrtEnv *);
    OrtStatusPtr (*DisableTelemetryEvents)(const OrtEnv *);
    OrtStatusPtr (*CreateSession)(const OrtEnv *, const char *, const OrtSessionOptions *,
                                  OrtSession **);
    OrtStatusPtr (*CreateSessionFromArray)(const OrtEnv *, const void *, size_t,
                                           const OrtSessionOptions *, OrtSession **);
    OrtStatusPtr (*Run)(OrtSession *, const OrtRunOptions *, const char *const *,
                        const OrtValue *const *, size_t, const char *const *, size_t, OrtValue **);
    OrtStatusPtr (*CreateSessionOptions)(OrtSessionOptions **);
    OrtStatusPtr (*SetOptimizedModelFilePath)(OrtSessionOptions *, const char *);
    OrtStatusPtr (*CloneSessionOptions)(const OrtSessionOptions *, OrtSessionOptions **);
    OrtStatusPtr (*SetSessionExecutionMode)(OrtSessionOptions *, ExecutionMode);
    OrtStatusPtr (*EnableProfiling)(OrtSessionOptions *, const char *);
    OrtStatusPtr (*DisableProfiling)(OrtSessionOptions *);
    OrtStatusPtr (*EnableMemPattern)(OrtSessionOptions *);
    OrtStatusPtr (*DisableMemPattern)(OrtSessionOptions *);
    OrtStatusPtr (*EnableCpuMemArena)(OrtSessionOptions *);
    OrtStatusPtr (*DisableCpuMemArena)(OrtSessionOptions *);
    OrtStatusPtr (*SetSessionLogId)(OrtSessionOptions *, const char *);
    OrtStatusPtr (*SetSessionLogVerbosityLevel)(OrtSessionOptions *, int);
    OrtStatusPtr (*SetSessionLogSeverityLevel)(OrtSessionOptions *, int);
    OrtStatusPtr (*SetSessionGraphOptimizationLevel)(OrtSessionOptions *, GraphOptimizationLevel);
    OrtStatusPtr (*SetIntraOpNumThreads)(OrtSessionOptions *, int);
    OrtStatusPtr (*SetInterOpNumThreads)(OrtSessionOptions *, int);
    OrtStatusPtr (*CreateCustomOpDomain)(const char *, OrtCustomOpDomain **);
    OrtStatusPtr (*CustomOpDomain_Add)(OrtCustomOpDomain *, const OrtCustomOp *);
    OrtStatusPtr (*AddCustomOpDomain)(OrtSessionOptions *, OrtCustomOpDomain *);
    OrtStatusPtr (*RegisterCustomOpsLibrary)(OrtSessionOptions *, const char *, void **);
    OrtStatusPtr (*SessionGetInputCount)(const OrtSession *, size_t *);
    OrtStatusPtr (*SessionGetOutputCount)(const OrtSession *, size_t *);
    OrtStatusPtr (*SessionGetOverridableInitializerCount)(const OrtSession *, size_t *);
    OrtStatusPtr (*SessionGetInputTypeInfo)(const OrtSession *, size_t, OrtTypeInfo **);
    OrtStatusPtr (*SessionGetOutputTypeInfo)(const OrtSession *, size_t, OrtTypeInfo **);
    OrtStatusPtr (*SessionGetOverridableInitializerTypeInfo)(const OrtSession *, size_t,
                                                             OrtTypeInfo **);
    OrtStatusPtr (*SessionGetInputName)(const OrtSession *, size_t, OrtAllocator *, char **);
    OrtStatusPtr (*SessionGetOutputName)(const OrtSession *, size_t, OrtAllocator *, char **);
    OrtStatusPtr (*SessionGetOverridableInitializerName)(const OrtSession *, size_t, OrtAllocator *,
                                                         char **);
    OrtStatusPtr (*CreateRunOptions)(OrtRunOptions **);
    OrtStatusPtr (*RunOptionsSetRunLogVerbosityLevel)(OrtRunOptions *, int);
    OrtStatusPtr (*RunOptionsSetRunLogSeverityLevel)(OrtRunOptions *, int);
    OrtStatusPtr (*RunOptionsSetRunTag)(OrtRunOptions *, const char *);
    OrtStatusPtr (*RunOptionsGetRunLogVerbosityLevel)(const OrtRunOptions *, int *);
    OrtStatusPtr (*RunOptionsGetRunLogSeverityLevel)(const OrtRunOptions *, int *);
    OrtStatusPtr (*RunOptionsGetRunTag)(const OrtRunOptions *, const char **);
    OrtStatusPtr (*RunOptionsSetTerminate)(OrtRunOptions *);
    OrtStatusPtr (*RunOptionsUnsetTerminate)(OrtRunOptions *);
    OrtStatusPtr (*CreateTensorAsOrtValue)(OrtAllocator *, const int64_t *, size_t,
                                           ONNXTensorElementDataType, OrtValue **);
    OrtStatusPtr (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *, size_t,
                                                   const int64_t *, size_t,
                                                   ONNXTensorElementDataType, OrtValue **);
    OrtStatusPtr (*IsTensor)(const OrtValue *, int *);
    OrtStatusPtr (*GetTensorMutableData)(OrtValue *, void **);
    OrtStatusPtr (*FillStringTensor)(OrtValue *, const char *const *, size_t);
    OrtStatusPtr (*GetStringTensorDataLength)(const OrtValue *, size_t *);
    OrtStatusPtr (*GetStringTensorContent)(const OrtValue *, void *, size_t, size_t *, size_t);
    OrtStatusPtr (*CastTypeInfoToTensorInfo)(const OrtTypeInfo *,
                                             const OrtTensorTypeAndShapeInfo **);
    OrtStatusPtr (*GetOnnxTypeFromTypeInfo)(const OrtTypeInfo *, ONNXType *);
    OrtStatusPtr (*CreateTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo **);
    OrtStatusPtr (*SetTensorElementType)(OrtTensorTypeAndShapeInfo *, ONNXTensorElementDataType);
    OrtStatusPtr (*SetDimensions)(OrtTensorTypeAndShapeInfo *, const int64_t *, size_t);
    OrtStatusPtr (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *,
                                         ONNXTensorElementDataType *);
    OrtStatusPtr (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *, size_t *);
    OrtStatusPtr (*GetDimensions)(const OrtTensorTypeAndShapeInfo *, int64_t *, size_t);
    OrtStatusPtr (*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo *, const char *[],
                                          size_t);
    OrtStatusPtr (*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *, size_t *);
    OrtStatusPtr (*GetTensorTypeAndShape)(const OrtValue *, OrtTensorTypeAndShapeInfo **);
    OrtStatusPtr (*GetTypeInfo)(const OrtValue *, OrtTypeInfo **);
    OrtStatusPtr (*GetValueType)(const OrtValue *, ONNXType *);
    OrtStatusPtr (*CreateMemoryInfo)(const char *, OrtAllocatorType, int, OrtMemType,
                                     OrtMemoryInfo **);
    OrtStatusPtr (*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo **);
    OrtStatusPtr (*CompareMemoryInfo)(const OrtMemoryInfo *, const OrtMemoryInfo *, int *);
    OrtStatusPtr (*MemoryInfoGetName)(const OrtMemoryInfo *, const char **);
    OrtStatusPtr (*MemoryInfoGetId)(const OrtMemoryInfo *, int *);
    OrtStatusPtr (*MemoryInfoGetMemType)(const OrtMemoryInfo *, OrtMemType *);
    OrtStatusPtr (*MemoryInfoGetType)(const OrtMemoryInfo *, OrtAllocatorType *);
    OrtStatusPtr (*AllocatorAlloc)(OrtAllocator *, size_t, void **);
    OrtStatusPtr (*AllocatorFree)(OrtAllocator *, void *);
    OrtStatusPtr (*AllocatorGetInfo)(const OrtAllocator *, const OrtMemoryInfo **);
    OrtStatusPtr (*GetAllocatorWithDefaultOptions)(OrtAllocator **);
    OrtStatusPtr (*AddFreeDimensionOverride)(OrtSessionOptions *, const char *, int64_t);
    OrtStatusPtr (*GetValue)(const OrtValue *, int, OrtAllocator *, OrtValue **);
    OrtStatusPtr (*GetValueCount)(const OrtValue *, size_t *);
    OrtStatusPtr (*CreateValue)(const OrtValue *const *, size_t, ONNXType, OrtValue **);
    OrtStatusPtr (*CreateOpaqueValue)(const char *, const char *, const void *, size_t,
                                      OrtValue **);
    OrtStatusPtr (*GetOpaqueValue)(const char *, const char *, const OrtValue *, void *, size_t);
    OrtStatusPtr (*KernelInfoGetAttribute_float)(const OrtKernelInfo *, const char *, float *);
    OrtStatusPtr (*KernelInfoGetAttribute_int64)(const OrtKernelInfo *, const char *, int64_t *);
    OrtStatusPtr (*KernelInfoGetAttribute_string)(const OrtKernelInfo *, const char *, char *,
                                                  size_t *);
    OrtStatusPtr (*KernelContext_GetInputCount)(const OrtKernelContext *, size_t *);
    OrtStatusPtr (*KernelContext_GetOutputCount)(const OrtKernelContext *, size_t *);
    OrtStatusPtr (*KernelContext_GetInput)(const OrtKernelContext *, size_t, const OrtValue **);
    OrtStatusPtr (*KernelContext_GetOutput)(OrtKernelContext *, size_t, const int64_t *, size_t,
                                            OrtValue **);
    void (*ReleaseEnv)(OrtEnv *);
    void (*ReleaseStatus)(OrtStatus *);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *);
    void (*ReleaseSession)(OrtSession *);
    void (*ReleaseValue)(OrtValue *);
    void (*ReleaseRunOptions)(OrtRunOptions *);
    void (*ReleaseTypeInfo)(OrtTypeInfo *);
    void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *);
    void (*ReleaseSessionOptions)(OrtSessionOptions *);
    void (*ReleaseCustomOpDomain)(OrtCustomOpDomain *);
    OrtStatusPtr (*GetDenotationFromTypeInfo)(const OrtTypeInfo *, const char **const, size_t *);
    OrtStatusPtr (*CastTypeInfoToMapTypeInfo)(const OrtTypeInfo *, const OrtMapTypeInfo **);
    OrtStatusPtr (*CastTypeInfoToSequenceTypeInfo)(const OrtTypeInfo *,
                                                   const OrtSequenceTypeInfo **);
    OrtStatusPtr (*GetMapKeyType)(const OrtMapTypeInfo *, ONNXTensorElementDataType *);
    OrtStatusPtr (*GetMapValueType)(const OrtMapTypeInfo *, OrtTypeInfo **);
    OrtStatusPtr (*GetSequenceElementType)(const OrtSequenceTypeInfo *, OrtTypeInfo **);
    void (*ReleaseMapTypeInfo)(OrtMapTypeInfo *);
    void (*ReleaseSequenceTypeInfo)(OrtSequenceTypeInfo *);
    OrtStatusPtr (*SessionEndProfiling)(OrtSession *, OrtAllocator *, char **);
    OrtStatusPtr (*SessionGetModelMetadata)(const OrtSession *, OrtModelMetadata **);
    OrtStatusPtr (*ModelMetadataGetProducerName)(const OrtModelMetadata *, OrtAllocator *, char **);
    OrtStatusPtr (*ModelMetadataGetGraphName)(const OrtModelMetadata *, OrtAllocator *, char **);
    OrtStatusPtr (*ModelMetadataGetDomain)(const OrtModelMetadata *, OrtAllocator *, char **);
    OrtStatusPtr (*ModelMetadataGetDescription)(const OrtModelMetadata *, OrtAllocator *, char **);
    OrtStatusPtr (*ModelMetadataLookupCustomMetadataMap)(const OrtModelMetadata *, OrtAllocator *,
                                                         const char *, char **);
    OrtStatusPtr (*ModelMetadataGetVersion)(const OrtModelMetadata *, int64_t *);
    void (*ReleaseModelMetadata)(OrtModelMetadata *);
    OrtStatusPtr (*CreateEnvWithGlobalThreadPools)(OrtLoggingLevel, const char *,
                                                   const OrtThreadingOptions *, OrtEnv **);
    OrtStatusPtr (*DisablePerSessionThreads)(OrtSessionOptions *);
    OrtStatusPtr (*CreateThreadingOptions)(OrtThreadingOptions **);
    void (*ReleaseThreadingOptions)(OrtThreadingOptions *);
    OrtStatusPtr (*ModelMetadataGetCustomMetadataMapKeys)(const OrtModelMetadata *, OrtAllocator *,
                                                          char ***, int64_t *);
    OrtStatusPtr (*AddFreeDimensionOverrideByName)(OrtSessionOptions *, const char *, int64_t);
    OrtStatusPtr (*GetAvailableProviders)(char ***, int *);
    OrtStatusPtr (*ReleaseAvailableProviders)(char **, int);
    OrtStatusPtr (*GetStringTensorElementLength)(const OrtValue *, size_t, size_t *);
    OrtStatusPtr (*GetStringTensorElement)(const OrtValue *, size_t, size_t, void *);
    OrtStatusPtr (*FillStringTensorElement)(OrtValue *, const char *, size_t);
    OrtStatusPtr (*AddSessionConfigEntry)(OrtSessionOptions *, const char *, const char *);
    OrtStatusPtr (*CreateAllocator)(const OrtSession *, const OrtMemoryInfo *, OrtAllocator **);
    void (*ReleaseAllocator)(OrtAllocator *);
    OrtStatusPtr (*RunWithBinding)(OrtSession *, const OrtRunOptions *, const OrtIoBinding *);
    OrtStatusPtr (*CreateIoBinding)(OrtSession *, OrtIoBinding **);
    void (*ReleaseIoBinding)(OrtIoBinding *);
    OrtStatusPtr (*BindInput)(OrtIoBinding *, const char *, const OrtValue *);
    OrtStatusPtr (*BindOutput)(OrtIoBinding *, const char *, const OrtValue *);
    OrtStatusPtr (*BindOutputToDevice)(OrtIoBinding *, const char *, const OrtMemoryInfo *);
    OrtStatusPtr (*GetBoundOutputNames)(const OrtIoBinding *, OrtAllocator *, char **, size_t **,
                                        size_t *);
    OrtStatusPtr (*GetBoundOutputValues)(const OrtIoBinding *, OrtAllocator *, OrtValue ***,
                                         size_t *);
    void (*ClearBoundInputs)(OrtIoBinding *);
    void (*ClearBoundOutputs)(OrtIoBinding *);
    OrtStatusPtr (*TensorAt)(OrtValue *, const int64_t *, size_t, void **);
    OrtStatusPtr (*CreateAndRegisterAllocator)(OrtEnv *, const OrtMemoryInfo *,
                                               const OrtArenaCfg *);
    OrtStatusPtr (*SetLanguageProjection)(const OrtEnv *, OrtLanguageProjection);
    OrtStatusPtr (*SessionGetProfilingStartTimeNs)(const OrtSession *, uint64_t *);
    OrtStatusPtr (*SetGlobalIntraOpNumThreads)(OrtThreadingOptions *, int);
    OrtStatusPtr (*SetGlobalInterOpNumThreads)(OrtThreadingOptions *, int);
    OrtStatusPtr (*SetGlobalSpinControl)(OrtThreadingOptions *, int);
    OrtStatusPtr (*AddInitializer)(OrtSessionOptions *, const char *, const OrtValue *);
    OrtStatusPtr (*CreateEnvWithCustomLoggerAndGlobalThreadPools)(OrtLoggingFunction, void *,
                                                                  OrtLoggingLevel, const char *,
                                                                  const OrtThreadingOptions *,
                                                                  OrtEnv **);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_CUDA)(OrtSessionOptions *,
                                                               const OrtCUDAProviderOptions *);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_ROCM)(OrtSessionOptions *,
                                                               const OrtROCMProviderOptions *);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_OpenVINO)(
        OrtSessionOptions *, const OrtOpenVINOProviderOptions *);
    OrtStatusPtr (*SetGlobalDenormalAsZero)(OrtThreadingOptions *);
    OrtStatusPtr (*CreateArenaCfg)(size_t, int, int, int, OrtArenaCfg **);
    void (*ReleaseArenaCfg)(OrtArenaCfg *);
    OrtStatusPtr (*ModelMetadataGetGraphDescription)(const OrtModelMetadata *, OrtAllocator *,
                                                     char **);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_TensorRT)(
        OrtSessionOptions *, const OrtTensorRTProviderOptions *);
    OrtStatusPtr (*SetCurrentGpuDeviceId)(int);
    OrtStatusPtr (*GetCurrentGpuDeviceId)(int *);
    OrtStatusPtr (*KernelInfoGetAttributeArray_float)(const OrtKernelInfo *, const char *, float *,
                                                      size_t *);
    OrtStatusPtr (*KernelInfoGetAttributeArray_int64)(const OrtKernelInfo *, const char *,
                                                      int64_t *, size_t *);
    OrtStatusPtr (*CreateArenaCfgV2)(const char *const *, const size_t *, size_t, OrtArenaCfg **);
    OrtStatusPtr (*AddRunConfigEntry)(OrtRunOptions *, const char *, const char *);
    OrtStatusPtr (*CreatePrepackedWeightsContainer)(OrtPrepackedWeightsContainer **);
    void (*ReleasePrepackedWeightsContainer)(OrtPrepackedWeightsContainer *);
    OrtStatusPtr (*CreateSessionWithPrepackedWeightsContainer)(const OrtEnv *, const char *,
                                                               const OrtSessionOptions *,
                                                               OrtPrepackedWeightsContainer *,
                                                               OrtSession **);
    OrtStatusPtr (*CreateSessionFromArrayWithPrepackedWeightsContainer)(
        const OrtEnv *, const void *, size_t, const OrtSessionOptions *,
        OrtPrepackedWeightsContainer *, OrtSession **);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_TensorRT_V2)(
        OrtSessionOptions *, const OrtTensorRTProviderOptionsV2 *);
    OrtStatusPtr (*CreateTensorRTProviderOptions)(OrtTensorRTProviderOptionsV2 **);
    OrtStatusPtr (*UpdateTensorRTProviderOptions)(OrtTensorRTProviderOptionsV2 *,
                                                  const char *const *, const char *const *, size_t);
    OrtStatusPtr (*GetTensorRTProviderOptionsAsString)(const OrtTensorRTProviderOptionsV2 *,
                                                       OrtAllocator *, char **);
    void (*ReleaseTensorRTProviderOptions)(OrtTensorRTProviderOptionsV2 *);
    OrtStatusPtr (*EnableOrtCustomOps)(OrtSessionOptions *);
    OrtStatusPtr (*RegisterAllocator)(OrtEnv *, OrtAllocator *);
    OrtStatusPtr (*UnregisterAllocator)(OrtEnv *, const OrtMemoryInfo *);
    OrtStatusPtr (*IsSparseTensor)(const OrtValue *, int *);
    OrtStatusPtr (*CreateSparseTensorAsOrtValue)(OrtAllocator *, const int64_t *, size_t,
                                                 ONNXTensorElementDataType, OrtValue **);
    OrtStatusPtr (*FillSparseTensorCoo)(OrtValue *, const OrtMemoryInfo *, const int64_t *, size_t,
                                        const void *, const int64_t *, size_t);
    OrtStatusPtr (*FillSparseTensorCsr)(OrtValue *, const OrtMemoryInfo *, const int64_t *, size_t,
                                        const void *, const int64_t *, size_t, const int64_t *,
                                        size_t);
    OrtStatusPtr (*FillSparseTensorBlockSparse)(OrtValue *, const OrtMemoryInfo *, const int64_t *,
                                                size_t, const void *, const int64_t *, size_t,
                                                const int32_t *);
    OrtStatusPtr (*CreateSparseTensorWithValuesAsOrtValue)(const OrtMemoryInfo *, void *,
                                                           const int64_t *, size_t, const int64_t *,
                                                           size_t, ONNXTensorElementDataType,
                                                           OrtValue **);
    OrtStatusPtr (*UseCooIndices)(OrtValue *, int64_t *, size_t);
    OrtStatusPtr (*UseCsrIndices)(OrtValue *, int64_t *, size_t, int64_t *, size_t);
    OrtStatusPtr (*UseBlockSparseIndices)(OrtValue *, const int64_t *, size_t, int32_t *);
    OrtStatusPtr (*GetSparseTensorFormat)(const OrtValue *, OrtSparseFormat *);
    OrtStatusPtr (*GetSparseTensorValuesTypeAndShape)(const OrtValue *,
                                                      OrtTensorTypeAndShapeInfo **);
    OrtStatusPtr (*GetSparseTensorValues)(const OrtValue *, const void **);
    OrtStatusPtr (*GetSparseTensorIndicesTypeShape)(const OrtValue *, OrtSparseIndicesFormat,
                                                    OrtTensorTypeAndShapeInfo **);
    OrtStatusPtr (*GetSparseTensorIndices)(const OrtValue *, OrtSparseIndicesFormat, size_t *,
                                           const void **);
    OrtStatusPtr (*HasValue)(const OrtValue *, int *);
    OrtStatusPtr (*KernelContext_GetGPUComputeStream)(const OrtKernelContext *, void **);
    OrtStatusPtr (*GetTensorMemoryInfo)(const OrtValue *, const OrtMemoryInfo **);
    OrtStatusPtr (*GetExecutionProviderApi)(const char *, uint32_t, const void **);
    OrtStatusPtr (*SessionOptionsSetCustomCreateThreadFn)(OrtSessionOptions *,
                                                          OrtCustomCreateThreadFn);
    OrtStatusPtr (*SessionOptionsSetCustomThreadCreationOptions)(OrtSessionOptions *, void *);
    OrtStatusPtr (*SessionOptionsSetCustomJoinThreadFn)(OrtSessionOptions *, OrtCustomJoinThreadFn);
    OrtStatusPtr (*SetGlobalCustomCreateThreadFn)(OrtThreadingOptions *, OrtCustomCreateThreadFn);
    OrtStatusPtr (*SetGlobalCustomThreadCreationOptions)(OrtThreadingOptions *, void *);
    OrtStatusPtr (*SetGlobalCustomJoinThreadFn)(OrtThreadingOptions *, OrtCustomJoinThreadFn);
    OrtStatusPtr (*SynchronizeBoundInputs)(OrtIoBinding *);
    OrtStatusPtr (*SynchronizeBoundOutputs)(OrtIoBinding *);
    /* since 1.11 */
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_CUDA_V2)(OrtSessionOptions *,
                                                                  const OrtCUDAProviderOptionsV2 *);
    OrtStatusPtr (*CreateCUDAProviderOptions)(OrtCUDAProviderOptionsV2 **);
    OrtStatusPtr (*UpdateCUDAProviderOptions)(OrtCUDAProviderOptionsV2 *, const char *const *,
                                              const char *const *, size_t);
    OrtStatusPtr (*GetCUDAProviderOptionsAsString)(const OrtCUDAProviderOptionsV2 *, OrtAllocator *,
                                                   char **);
    void (*ReleaseCUDAProviderOptions)(OrtCUDAProviderOptionsV2 *);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_MIGraphX)(
        OrtSessionOptions *, const OrtMIGraphXProviderOptions *);
    /* since 1.12 */
    OrtStatusPtr (*AddExternalInitializers)(OrtSessionOptions *, const char *const *,
                                            const OrtValue *const *, size_t);
    OrtStatusPtr (*CreateOpAttr)(const char *, const void *, int, OrtOpAttrType, OrtOpAttr **);
    void (*ReleaseOpAttr)(OrtOpAttr *);
    OrtStatusPtr (*CreateOp)(const OrtKernelInfo *, const char *, const char *, int, const char **,
                             const ONNXTensorElementDataType *, int, const OrtOpAttr *const *, int,
                             int, int, OrtOp **);
    OrtStatusPtr (*InvokeOp)(const OrtKernelContext *, const OrtOp *, const OrtValue *const *, int,
                             OrtValue *const *, int);
    void (*ReleaseOp)(OrtOp *);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider)(OrtSessionOptions *, const char *,
                                                          const char *const *, const char *const *,
                                                          size_t);
    OrtStatusPtr (*CopyKernelInfo)(const OrtKernelInfo *, OrtKernelInfo **);
    void (*ReleaseKernelInfo)(OrtKernelInfo *);
    /* since 1.13 */
    const OrtTrainingApi *(*GetTrainingApi)(uint32_t);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_CANN)(OrtSessionOptions *,
                                                               const OrtCANNProviderOptions *);
    OrtStatusPtr (*CreateCANNProviderOptions)(OrtCANNProviderOptions **);
    OrtStatusPtr (*UpdateCANNProviderOptions)(OrtCANNProviderOptions *, const char *const *,
                                              const char *const *, size_t);
    OrtStatusPtr (*GetCANNProviderOptionsAsString)(const OrtCANNProviderOptions *, OrtAllocator *,
                                                   char **);
    void (*ReleaseCANNProviderOptions)(OrtCANNProviderOptions *);
    /* since 1.14 */
    void (*MemoryInfoGetDeviceType)(const OrtMemoryInfo *, OrtMemoryInfoDeviceType *);
    OrtStatusPtr (*UpdateEnvWithCustomLogLevel)(OrtEnv *, OrtLoggingLevel);
    OrtStatusPtr (*SetGlobalIntraOpThreadAffinity)(OrtThreadingOptions *, const char *);
    OrtStatusPtr (*RegisterCustomOpsLibrary_V2)(OrtSessionOptions *, const char *);
    OrtStatusPtr (*RegisterCustomOpsUsingFunction)(OrtSessionOptions *, const char *);
    OrtStatusPtr (*KernelInfo_GetInputCount)(const OrtKernelInfo *, size_t *);
    OrtStatusPtr (*KernelInfo_GetOutputCount)(const OrtKernelInfo *, size_t *);
    OrtStatusPtr (*KernelInfo_GetInputName)(const OrtKernelInfo *, size_t, char *, size_t *);
    OrtStatusPtr (*KernelInfo_GetOutputName)(const OrtKernelInfo *, size_t, char *, size_t *);
    OrtStatusPtr (*KernelInfo_GetInputTypeInfo)(const OrtKernelInfo *, size_t, OrtTypeInfo **);
    OrtStatusPtr (*KernelInfo_GetOutputTypeInfo)(const OrtKernelInfo *, size_t, OrtTypeInfo **);
    OrtStatusPtr (*KernelInfoGetAttribute_tensor)(const OrtKernelInfo *, const char *,
                                                  OrtAllocator *, OrtValue **);
    OrtStatusPtr (*HasSessionConfigEntry)(const OrtSessionOptions *, const char *, int *);
    OrtStatusPtr (*GetSessionConfigEntry)(const OrtSessionOptions *, const char *, char *,
                                          size_t *);
    /* since 1.15 */
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_Dnnl)(OrtSessionOptions *,
                                                               const OrtDnnlProviderOptions *);
    OrtStatusPtr (*CreateDnnlProviderOptions)(OrtDnnlProviderOptions **);
    OrtStatusPtr (*UpdateDnnlProviderOptions)(OrtDnnlProviderOptions *, const char *const *,
                                              const char *const *, size_t);
    OrtStatusPtr (*GetDnnlProviderOptionsAsString)(const OrtDnnlProviderOptions *, OrtAllocator *,
                                                   char **);
    void (*ReleaseDnnlProviderOptions)(OrtDnnlProviderOptions *);
    OrtStatusPtr (*KernelInfo_GetNodeName)(const OrtKernelInfo *, char *, size_t *);
    OrtStatusPtr (*KernelInfo_GetLogger)(const OrtKernelInfo *, const OrtLogger **);
    OrtStatusPtr (*KernelContext_GetLogger)(const OrtKernelContext *, const OrtLogger **);
    OrtStatusPtr (*Logger_LogMessage)(const OrtLogger *, OrtLoggingLevel, const char *,
                                      const char *, int, const char *);
    OrtStatusPtr (*Logger_GetLoggingSeverityLevel)(const OrtLogger *, OrtLoggingLevel *);
    OrtStatusPtr (*KernelInfoGetConstantInput_tensor)(const OrtKernelInfo *, size_t, int *,
                                                      const OrtValue **);
    OrtStatusPtr (*CastTypeInfoToOptionalTypeInfo)(const OrtTypeInfo *,
                                                   const OrtOptionalTypeInfo **);
    OrtStatusPtr (*GetOptionalContainedTypeInfo)(const OrtOptionalTypeInfo *, OrtTypeInfo **);
    OrtStatusPtr (*GetResizedStringTensorElementBuffer)(OrtValue *, size_t, size_t, char **);
    OrtStatusPtr (*KernelContext_GetAllocator)(const OrtKernelContext *, const OrtMemoryInfo *,
                                               OrtAllocator **);
    const char *(*GetBuildInfoString)(void);
    /* since 1.16 */
    OrtStatusPtr (*CreateROCMProviderOptions)(OrtROCMProviderOptions **);
    OrtStatusPtr (*UpdateROCMProviderOptions)(OrtROCMProviderOptions *, const char *const *,
                                              const char *const *, size_t);
    OrtStatusPtr (*GetROCMProviderOptionsAsString)(const OrtROCMProviderOptions *, OrtAllocator *,
                                                   char **);
    void (*ReleaseROCMProviderOptions)(OrtROCMProviderOptions *);
    OrtStatusPtr (*CreateAndRegisterAllocatorV2)(OrtEnv *, const char *, const OrtMemoryInfo *,
                                                 const OrtArenaCfg *, const char *const *,
                                                 const char *const *, size_t);
    OrtStatusPtr (*RunAsync)(OrtSession *, const OrtRunOptions *, const char *const *,
                             const OrtValue *const *, size_t, const char *const *, size_t,
                             OrtValue **, RunAsyncCallbackFn, void *);
    OrtStatusPtr (*UpdateTensorRTProviderOptionsWithValue)(OrtTensorRTProviderOptionsV2 *,
                                                           const char *, void *);
    OrtStatusPtr (*GetTensorRTProviderOptionsByName)(const OrtTensorRTProviderOptionsV2 *,
                                                     const char *, void **);
    OrtStatusPtr (*UpdateCUDAProviderOptionsWithValue)(OrtCUDAProviderOptionsV2 *, const char *,
                                                       void *);
    OrtStatusPtr (*GetCUDAProviderOptionsByName)(const OrtCUDAProviderOptionsV2 *, const char *,
                                                 void **);
    OrtStatusPtr (*KernelContext_GetResource)(const OrtKernelContext *, int, int, void **);
    /* since 1.17 */
    OrtStatusPtr (*SetUserLoggingFunction)(OrtSessionOptions *, OrtLoggingFunction, void *);
    OrtStatusPtr (*ShapeInferContext_GetInputCount)(const OrtShapeInferContext *, size_t *);
    OrtStatusPtr (*ShapeInferContext_GetInputTypeShape)(const OrtShapeInferContext *, size_t,
                                                        OrtTensorTypeAndShapeInfo **);
    OrtStatusPtr (*ShapeInferContext_GetAttribute)(const OrtShapeInferContext *, const char *,
                                                   const OrtOpAttr **);
    OrtStatusPtr (*ShapeInferContext_SetOutputTypeShape)(const OrtShapeInferContext *, size_t,
                                                         const OrtTensorTypeAndShapeInfo *);
    OrtStatusPtr (*SetSymbolicDimensions)(OrtTensorTypeAndShapeInfo *, const char *[], size_t);
    OrtStatusPtr (*ReadOpAttr)(const OrtOpAttr *, OrtOpAttrType, void *, size_t, size_t *);
    OrtStatusPtr (*SetDeterministicCompute)(OrtSessionOptions *, bool);
    OrtStatusPtr (*KernelContext_ParallelFor)(const OrtKernelContext *, void (*)(void *, size_t),
                                              size_t, size_t, void *);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_OpenVINO_V2)(OrtSessionOptions *,
                                                                      const char *const *,
                                                                      const char *const *, size_t);
    /* since 1.18 */
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_VitisAI)(OrtSessionOptions *,
                                                                  const char *const *,
                                                                  const char *const *, size_t);
    OrtStatusPtr (*KernelContext_GetScratchBuffer)(const OrtKernelContext *, const OrtMemoryInfo *,
                                                   size_t, void **);
    OrtStatusPtr (*KernelInfoGetAllocator)(const OrtKernelInfo *, OrtMemType, OrtAllocator **);
    OrtStatusPtr (*AddExternalInitializersFromFilesInMemory)(OrtSessionOptions *,
                                                             const char *const *, char *const *,
                                                             const size_t *, size_t);
    /* since 1.20 */
    OrtStatusPtr (*CreateLoraAdapter)(const char *, OrtAllocator *, OrtLoraAdapter **);
    OrtStatusPtr (*CreateLoraAdapterFromArray)(const void *, size_t, OrtAllocator *,
                                               OrtLoraAdapter **);
    void (*ReleaseLoraAdapter)(OrtLoraAdapter *);
    OrtStatusPtr (*RunOptionsAddActiveLoraAdapter)(OrtRunOptions *, const OrtLoraAdapter *);
    OrtStatusPtr (*SetEpDynamicOptions)(OrtSession *, const char *const *, const char *const *,
                                        size_t);
    /* since 1.22 */
    void (*ReleaseValueInfo)(OrtValueInfo *);
    void (*ReleaseNode)(OrtNode *);
    void (*ReleaseGraph)(OrtGraph *);
    void (*ReleaseModel)(OrtModel *);
    OrtStatusPtr (*GetValueInfoName)(const OrtValueInfo *, const char **);
    OrtStatusPtr (*GetValueInfoTypeInfo)(const OrtValueInfo *, const OrtTypeInfo **);
    const OrtModelEditorApi *(*GetModelEditorApi)(void);
    OrtStatusPtr (*CreateTensorWithDataAndDeleterAsOrtValue)(OrtAllocator *, void *, size_t,
                                                             const int64_t *, size_t,
                                                             ONNXTensorElementDataType,
                                                             OrtValue **);
    OrtStatusPtr (*SessionOptionsSetLoadCancellationFlag)(OrtSessionOptions *, bool);
    const OrtCompileApi *(*GetCompileApi)(void);
    void (*CreateKeyValuePairs)(OrtKeyValuePairs **);
    void (*AddKeyValuePair)(OrtKeyValuePairs *, const char *, const char *);
    const char *(*GetKeyValue)(const OrtKeyValuePairs *, const char *);
    void (*GetKeyValuePairs)(const OrtKeyValuePairs *, const char *const **, const char *const **,
                             size_t *);
    void (*RemoveKeyValuePair)(OrtKeyValuePairs *, const char *);
    void (*ReleaseKeyValuePairs)(OrtKeyValuePairs *);
    OrtStatusPtr (*RegisterExecutionProviderLibrary)(OrtEnv *, const char *, const char *);
    OrtStatusPtr (*UnregisterExecutionProviderLibrary)(OrtEnv *, const char *);
    OrtStatusPtr (*GetEpDevices)(const OrtEnv *, const OrtEpDevice *const **, size_t *);
    OrtStatusPtr (*SessionOptionsAppendExecutionProvider_V2)(OrtSessionOptions *, OrtEnv *,
                                                             const OrtEpDevice *const *, size_t,
                                                             const char *const *,
                                                             const char *const *, size_t);
    OrtStatusPtr (*SessionOptionsSetEpSelectionPolicy)(OrtSessionOptions *,
                                                       OrtExecutionProviderDevicePolicy);
    OrtStatusPtr (*SessionOptionsSetEpSelectionPolicyDelegate)(OrtSessionOptions *,
                                                               EpSelectionDelegate, void *);
    OrtHardwareDeviceType (*HardwareDevice_Type)(const OrtHardwareDevice *);
    uint32_t (*HardwareDevice_VendorId)(const OrtHardwareDevice *);
    const char *(*HardwareDevice_Vendor)(const OrtHardwareDevice *);
    uint32_t (*HardwareDevice_DeviceId)(const OrtHardwareDevice *);
    const OrtKeyValuePairs *(*HardwareDevice_Metadata)(const OrtHardwareDevice *);
    const char *(*EpDevice_EpName)(const OrtEpDevice *);
    const char *(*EpDevice_EpVendor)(const OrtEpDevice *);
    const OrtKeyValuePairs *(*EpDevice_EpMetadata)(const OrtEpDevice *);
    const OrtKeyValuePairs *(*EpDevice_EpOptions)(const OrtEpDevice *);
    const OrtHardwareDevice *(*EpDevice_Device)(const OrtEpDevice *);
    const OrtEpApi *(*GetEpApi)(void);
    /* since 1.23 */
    OrtStatusPtr (*GetTensorSizeInBytes)(const OrtValue *, size_t *);
    OrtStatusPtr (*AllocatorGetStats)(const OrtAllocator *, OrtKeyValuePairs **);
    OrtStatusPtr (*CreateMemoryInfo_V2)(const char *, OrtMemoryInfoDeviceType, uint32_t, int32_t,
                                        OrtDeviceMemoryType, size_t, OrtAllocatorType,
                                        OrtMemoryInfo **);
    OrtDeviceMemoryType (*MemoryInfoGetDeviceMemType)(const OrtMemoryInfo *);
    uint32_t (*MemoryInfoGetVendorId)(const OrtMemoryInfo *);
    OrtStatusPtr (*ValueInfo_GetValueProducer)(const OrtValueInfo *, const OrtNode **, size_t *);
    OrtStatusPtr (*ValueInfo_GetValueNumConsumers)(const OrtValueInfo *, size_t *);
    OrtStatusPtr (*ValueInfo_GetValueConsumers)(const OrtValueInfo *, const OrtNode **, int64_t *,
                                                size_t);
    OrtStatusPtr (*ValueInfo_GetInitializerValue)(const OrtValueInfo *, const OrtValue **);
    OrtStatusPtr (*ValueInfo_GetExternalInitializerInfo)(const OrtValueInfo *,
                                                         OrtExternalInitializerInfo **);
    OrtStatusPtr (*ValueInfo_IsRequiredGraphInput)(const OrtValueInfo *, bool *);
    OrtStatusPtr (*ValueInfo_IsOptionalGraphInput)(const OrtValueInfo *, bool *);
    OrtStatusPtr (*ValueInfo_IsGraphOutput)(const OrtValueInfo *, bool *);
    OrtStatusPtr (*ValueInfo_IsConstantInitializer)(const OrtValueInfo *, bool *);
    OrtStatusPtr (*ValueInfo_IsFromOuterScope)(const OrtValueInfo *, bool *);
    OrtStatusPtr (*Graph_GetName)(const OrtGraph *, const char **);
    OrtStatusPtr (*Graph_GetModelPath)(const OrtGraph *, const char **);
    OrtStatusPtr (*Graph_GetOnnxIRVersion)(const OrtGraph *, int64_t *);
    OrtStatusPtr (*Graph_GetNumOperatorSets)(const OrtGraph *, size_t *);
    OrtStatusPtr (*Graph_GetOperatorSets)(const OrtGraph *, const char **, int64_t *, size_t);
    OrtStatusPtr (*Graph_GetNumInputs)(const OrtGraph *, size_t *);
    OrtStatusPtr (*Graph_GetInputs)(const OrtGraph *, const OrtValueInfo **, size_t);
    OrtStatusPtr (*Graph_GetNumOutputs)(const OrtGraph *, size_t *);
    OrtStatusPtr (*Graph_GetOutputs)(const OrtGraph *, const OrtValueInfo **, size_t);
    OrtStatusPtr (*Graph_GetNumInitializers)(const OrtGraph *, size_t *);
    OrtStatusPtr (*Graph_GetInitializers)(const OrtGraph *, const OrtValueInfo **, size_t);
    OrtStatusPtr (*Graph_GetNumNodes)(const OrtGraph *, size_t *);
    OrtStatusPtr (*Graph_GetNodes)(const OrtGraph *, const OrtNode **, size_t);
    OrtStatusPtr (*Graph_GetParentNode)(const OrtGraph *, const OrtNode **);
    OrtStatusPtr (*Graph_GetGraphView)(const OrtGraph *, const OrtNode **, size_t, OrtGraph **);
    OrtStatusPtr (*Node_GetId)(const OrtNode *, size_t *);
    OrtStatusPtr (*Node_GetName)(const OrtNode *, const char **);
    OrtStatusPtr (*Node_GetOperatorType)(const OrtNode *, const char **);
    OrtStatusPtr (*Node_GetDomain)(const OrtNode *, const char **);
    OrtStatusPtr (*Node_GetSinceVersion)(const OrtNode *, int *);
    OrtStatusPtr (*Node_GetNumInputs)(const OrtNode *, size_t *);
    OrtStatusPtr (*Node_GetInputs)(const OrtNode *, const OrtValueInfo **, size_t);
    OrtStatusPtr (*Node_GetNumOutputs)(const OrtNode *, size_t *);
    OrtStatusPtr (*Node_GetOutputs)(const OrtNode *, const OrtValueInfo **, size_t);
    OrtStatusPtr (*Node_GetNumImplicitInputs)(const OrtNode *, size_t *);
    OrtStatusPtr (*Node_GetImplicitInputs)(const OrtNode *, const OrtValueInfo **, size_t);
    OrtStatusPtr (*Node_GetNumAttributes)(const OrtNode *, size_t *);
    OrtStatusPtr (*Node_GetAttributes)(const OrtNode *, const OrtOpAttr **, size_t);
    OrtStatusPtr (*Node_GetAttributeByName)(const OrtNode *, const char *, const OrtOpAttr **);
    OrtStatusPtr (*OpAttr_GetTensorAttributeAsOrtValue)(const OrtOpAttr *, OrtValue **);
    OrtStatusPtr (*OpAttr_GetType)(const OrtOpAttr *, OrtOpAttrType *);
    OrtStatusPtr (*OpAttr_GetName)(const OrtOpAttr *, const char **);
    OrtStatusPtr (*Node_GetNumSubgraphs)(const OrtNode *, size_t *);
    OrtStatusPtr (*Node_GetSubgraphs)(const OrtNode *, const OrtGraph **, size_t, const char **);
    OrtStatusPtr (*Node_GetGraph)(const OrtNode *, const OrtGraph **);
    OrtStatusPtr (*Node_GetEpName)(const OrtNode *, const char **);
    void (*ReleaseExternalInitializerInfo)(OrtExternalInitializerInfo *);
    const char *(*ExternalInitializerInfo_GetFilePath)(const OrtExternalInitializerInfo *);
    int64_t (*ExternalInitializerInfo_GetFileOffset)(const OrtExternalInitializerInfo *);
    size_t (*ExternalInitializerInfo_GetByteSize)(const OrtExternalInitializerInfo *);
    const char *(*GetRunConfigEntry)(const OrtRunOptions *, const char *);
    const OrtMemoryInfo *(*EpDevice_MemoryInfo)(const OrtEpDevice *, OrtDeviceMemoryType);
    OrtStatusPtr (*CreateSharedAllocator)(OrtEnv *, const OrtEpDevice *, OrtDeviceMemoryType,
                                          OrtAllocatorType, const OrtKeyValuePairs *,
                                          OrtAllocator **);
    OrtStatusPtr (*GetSharedAllocator)(OrtEnv *, const OrtMemoryInfo *, OrtAllocator **);
    OrtStatusPtr (*ReleaseSharedAllocator)(OrtEnv *, const OrtEpDevice *, OrtDeviceMemoryType);
    OrtStatusPtr (*GetTensorData)(const OrtValue *, const void **);
    OrtStatusPtr (*GetSessionOptionsConfigEntries)(const OrtSessionOptions *, OrtKeyValuePairs **);
    OrtStatusPtr (*SessionGetMemoryInfoForInputs)(const OrtSession *, const OrtMemoryInfo **,
                                                  size_t);
    OrtStatusPtr (*SessionGetMemoryInfoForOutputs)(const OrtSession *, const OrtMemoryInfo **,
                                                   size_t);
    OrtStatusPtr (*SessionGetEpDeviceForInputs)(const OrtSession *, const OrtEpDevice **, size_t);
    OrtStatusPtr (*CreateSyncStreamForEpDevice)(const OrtEpDevice *, const OrtKeyValuePairs *,
                                                OrtSyncStream **);
    void *(*SyncStream_GetHandle)(OrtSyncStream *);
    void (*ReleaseSyncStream)(OrtSyncStream *);
    OrtStatusPtr (*CopyTensors)(const OrtEnv *, const OrtValue *const *, OrtValue *const *,
                                OrtSyncStream *, size_t);
    OrtStatusPtr (*Graph_GetModelMetadata)(const OrtGraph *, OrtModelMetadata **);
    OrtStatusPtr (*GetModelCompatibilityForEpDevices)(const OrtEpDevice *const *, size_t,
                                                      const char *,
                                                      OrtCompiledModelCompatibility *);
    OrtStatusPtr (*CreateExternalInitializerInfo)(const char *, int64_t, size_t,
                                                  OrtExternalInitializerInfo **);
    /* since 1.24 */
    bool (*TensorTypeAndShape_HasShape)(const OrtTensorTypeAndShapeInfo *);
    OrtStatusPtr (*KernelInfo_GetConfigEntries)(const OrtKernelInfo *, OrtKeyValuePairs **);
    OrtStatusPtr (*KernelInfo_GetOperatorDomain)(const OrtKernelInfo *, char *, size_t *);
    OrtStatusPtr (*KernelInfo_GetOperatorType)(const OrtKernelInfo *, char *, size_t *);
    OrtStatusPtr (*KernelInfo_GetOperatorSinceVersion)(const OrtKernelInfo *, int *);
    const OrtInteropApi *(*GetInteropApi)(void);
    OrtStatusPtr (*SessionGetEpDeviceForOutputs)(const OrtSession *, const OrtEpDevice **, size_t);
    OrtStatusPtr (*GetNumHardwareDevices)(const OrtEnv *, size_t *);
    OrtStatusPtr (*GetHardwareDevices)(const OrtEnv *, const OrtHardwareDevice **, size_t);
    OrtStatusPtr (*GetHardwareDeviceEpIncompatibilityDetails)(const OrtEnv *, const char *,
                                                              const OrtHardwareDevice *,
                                                              OrtDeviceEpIncompatibilityDetails **);
    OrtStatusPtr (*DeviceEpIncompatibilityDetails_GetReasonsBitmask)(
        const OrtDeviceEpIncompatibilityDetails *, uint32_t *);
    OrtStatusPtr (*DeviceEpIncompatibilityDetails_GetNotes)(
        const OrtDeviceEpIncompatibilityDetails *, const char **);
    OrtStatusPtr (*DeviceEpIncompatibilityDetails_GetErrorCode)(
        const OrtDeviceEpIncompatibilityDetails *, int32_t *);
    void (*ReleaseDeviceEpIncompatibilityDetails)(OrtDeviceEpIncompatibilityDetails *);
    OrtStatusPtr (*GetCompatibilityInfoFromModel)(const char *, const char *, OrtAllocator *,
                                                  char **);
    OrtStatusPtr (*GetCompatibilityInfoFromModelBytes)(const void *, size_t, const char *,
                                                       OrtAllocator *, char **);
    OrtStatusPtr (*CreateEnvWithOptions)(const OrtEnvCreationOptions *, OrtEnv **);
    OrtStatusPtr (*Session_GetEpGraphAssignmentInfo)(const OrtSession *,
                                                     const OrtEpAssignedSubgraph *const **,
                                                     size_t *);
    OrtStatusPtr (*EpAssignedSubgraph_GetEpName)(const OrtEpAssignedSubgraph *, const char **);
    OrtStatusPtr (*EpAssignedSubgraph_GetNodes)(const OrtEpAssignedSubgraph *,
                                                const OrtEpAssignedNode *const **, size_t *);
    OrtStatusPtr (*EpAssignedNode_GetName)(const OrtEpAssignedNode *, const char **);
    OrtStatusPtr (*EpAssignedNode_GetDomain)(const OrtEpAssignedNode *, const char **);
    OrtStatusPtr (*EpAssignedNode_GetOperatorType)(const OrtEpAssignedNode *, const char **);
    void (*RunOptionsSetSyncStream)(OrtRunOptions *, OrtSyncStream *);
    OrtStatusPtr (*GetTensorElementTypeAndShapeDataReference)(const OrtValue *,
                                                              ONNXTensorElementDataType *,
                                                              const int64_t **, size_t *);
    /* since 1.25 */
    OrtStatusPtr (*RunOptionsEnableProfiling)(OrtRunOptions *, const char *);
    OrtStatusPtr (*RunOptionsDisableProfiling)(OrtRunOptions *);
    OrtStatusPtr (*KernelInfoGetAttributeArray_string)(const OrtKernelInfo *, const char *,
                                                       OrtAllocator *, char ***, size_t *);
    OrtStatusPtr (*SetPerSessionThreadPoolCallbacks)(OrtEnv *,
                                                     const OrtThreadPoolCallbacksConfig *);
    /* since 1.27 */
    OrtStatusPtr (*GetMemPatternEnabled)(const OrtSessionOptions *, int *);
    OrtStatusPtr (*GetSessionExecutionMode)(const OrtSessionOptions *, ExecutionMode *);
    OrtStatusPtr (*SessionReleaseCapturedGraph)(OrtSession *, int);
    /* since 1.28 */
    OrtExperimentalFnPtr (*GetExperimentalFunction)(const char *);
    OrtStatusPtr (*KernelContext_GetSyncStream)(const OrtKernelContext *, OrtSyncStream **);
    /* since 1.29 */
    OrtStatusPtr (*SessionOptionsSetWeightlessSourceModelBuffer)(OrtSessionOptions *, const void *,
                                                                 size_t);
};

#endif
