/* ort.h - the one door to ONNX Runtime's ABI for the files of this folder.
 *
 * Our own header is the default. With the CMake option MILLPOND_ORT_HEADERS=DIR the build
 * defines MILLPOND_ORT_OFFICIAL_HEADERS=1 and takes the header of ONNX Runtime in DIR.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ORT_H
#define MP_EP_ORT_H

#if defined(MILLPOND_ORT_OFFICIAL_HEADERS) && MILLPOND_ORT_OFFICIAL_HEADERS
#include "onnxruntime_c_api.h"
#else
#include "ep/abi/ort_abi.h"
#endif

#endif
