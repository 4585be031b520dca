/* nvtx_injection.c - a profiler of our own, loaded through NVTX_INJECTION64_PATH: counts ranges.
 *
 * It listens to the domain "Millpond" alone. nvtx_test.c reads the counters by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <string.h>

int nvtx_injection_domains, nvtx_injection_pushes, nvtx_injection_pops;
char nvtx_injection_last[64];

static nvtxDomainHandle_t create_domain(const char *name) {
    if (strcmp(name, "Millpond") != 0) {
        return NULL;
    }
    nvtx_injection_domains++;
    return (nvtxDomainHandle_t)(void *)&nvtx_injection_domains;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
    if ((void *)domain != (void *)&nvtx_injection_domains ||
        range->messageType != NVTX_MESSAGE_TYPE_ASCII) {
        return NVTX_NO_PUSH_POP_TRACKING;
    }
    (void)snprintf(nvtx_injection_last, sizeof nvtx_injection_last, "%s", range->message.ascii);
    return nvtx_injection_pushes++;
}

static int pop(nvtxDomainHandle_t domain) {
    (void)domain;
    return nvtx_injection_pops++;
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table); // NOLINT

/* The name that NVTX looks for. */
int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) { // NOLINT
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (callbacks == NULL ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
        size <= NVTX_CBID_CORE2_DomainCreateA) {
        return 0;
    }
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
