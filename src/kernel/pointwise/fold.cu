/* fold.cu - out[i] = f(.. f(f(x0[i], x1[i]), x2[i]) ..) of several inputs, each of which is read
 * once; a float is rounded once. Bound by memory: a lane asks for a pack of each input before it
 * folds them.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_OUT_BOOL 0
#include "kernel/pointwise/pointwise.h"
#include "kernel/pointwise/pointwise_args.h"

#define F_sum 0
#define F_max 1
#define F_min 2
#define F_HOW K_JOIN(F_, K_HOW)

/* Its words are what is loaded: narrow elements would be taken apart at once, and the next load
 * would wait for that. */
#if K_HOST
enum { F_WIDTH = 1 };
typedef T f_word;
#else
enum { F_WIDTH = 16 / sizeof(T) };
typedef uint32_t f_word;
#endif
typedef union K_ALIGN(sizeof(T) * F_WIDTH) f_pack {
    T lane[F_WIDTH];
    struct {
        f_word at[sizeof(T) * F_WIDTH / sizeof(f_word)];
    } words;
} f_pack;

K_FN TC f_first(const mp_fold_args *args, TC x, TC share) {
    return F_HOW == F_sum && !args->goes_on ? x * share : x;
}

K_FN TC f_next(TC folded, TC x, TC share) {
#if F_HOW == F_max
    (void)share;
    return p_max(folded, x);
#elif F_HOW == F_min
    (void)share;
    return p_min(folded, x);
#else
    return folded + x * share;
#endif
}

/* What each input counts: for a mean one of all there are. */
K_FN TC f_share(const mp_fold_args *args) {
    return args->mean_of > 1 ? (TC)1 / (TC)args->mean_of : (TC)1;
}

/* `inputs` is a constant, so that packs stay in registers. */
K_FN void f_fold(const mp_fold_args *args, const int inputs) {
    const TC share = f_share(args);
    const int64_t packs = args->whole ? args->count / F_WIDTH : 0;
    K_GRID_LOOP(i, packs) {
        f_pack pack[K_FOLD_INPUTS], made;
        K_UNROLL
        for (int v = 0; v < inputs; v++) {
            pack[v].words = ((const f_pack *)args->in[v])[i].words;
        }
        K_UNROLL
        for (int k = 0; k < F_WIDTH; k++) {
            TC folded = f_first(args, T_load(pack[0].lane[k]), share);
            K_UNROLL
            for (int v = 1; v < inputs; v++) {
                folded = f_next(folded, T_load(pack[v].lane[k]), share);
            }
            made.lane[k] = T_store(folded);
        }
        ((f_pack *)args->out)[i].words = made.words;
    }
    const int64_t done = packs * F_WIDTH;
    K_ONE_COPY
    K_GRID_LOOP(i, args->count - done) {
        TC folded = f_first(args, T_load(((const T *)args->in[0])[done + i]), share);
        K_UNROLL
        for (int v = 1; v < inputs; v++) {
            folded = f_next(folded, T_load(((const T *)args->in[v])[done + i]), share);
        }
        ((T *)args->out)[done + i] = T_store(folded);
    }
}

K_KERNEL(mp_fold_args, args) { /* out may be any of the inputs */
    switch (args.inputs) {
    case 2:
        f_fold(&args, 2);
        break;
    case 3:
        f_fold(&args, 3);
        break;
    case 4:
        f_fold(&args, 4);
        break;
    case 5:
        f_fold(&args, 5);
        break;
    case 6:
        f_fold(&args, 6);
        break;
    case 7:
        f_fold(&args, 7);
        break;
    default:
        f_fold(&args, K_FOLD_INPUTS);
    }
}
