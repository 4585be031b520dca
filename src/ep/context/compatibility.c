/* compatibility.c - a compiled model says in its metadata who has compiled it. Nothing in it is for
 * a certain device, so only the version counts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/context/compatibility.h"

#include "graph/store.h"

#include <string.h>

#define TEXT_OF(x)   #x
#define NUMBER_OF(x) TEXT_OF(x)
#define FORMAT       1
static_assert(FORMAT == MP_STORE_FORMAT, "what is told is what is written");

static const char info[] = "millpond " MILLPOND_VERSION " format " NUMBER_OF(FORMAT);

static const char *get_info(OrtEp *self, const OrtGraph *graph) {
    (void)self;
    (void)graph;
    return info;
}

static OrtStatus *validate(OrtEpFactory *self, const OrtHardwareDevice *const *devices,
                           size_t count, const char *theirs, OrtCompiledModelCompatibility *out) {
    (void)self;
    (void)devices;
    (void)count;
    *out = theirs == NULL || strncmp(theirs, "millpond ", strlen("millpond ")) != 0
               ? OrtCompiledModelCompatibility_EP_NOT_APPLICABLE
           : strcmp(theirs, info) == 0 ? OrtCompiledModelCompatibility_EP_SUPPORTED_OPTIMAL
                                       : OrtCompiledModelCompatibility_EP_UNSUPPORTED;
    return NULL;
}

void mp__compatibility_install(OrtEp *ep) {
    ep->GetCompiledModelCompatibilityInfo = get_info;
}

void mp__compatibility_install_factory(OrtEpFactory *factory) {
    factory->ValidateCompiledModelCompatibilityInfo = validate;
}
