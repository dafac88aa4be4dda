/* Compiles the wide kernels for avx512. */
#include "wide.h"

#if PYES_X86_LEVELS
#undef PYES_SUFFIX
#define PYES_SUFFIX avx512
#define PYES_VECTOR_BYTES 64

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

#include "deviation.c"
#include "gradient.c"
#include "noise.c"
#include "optimizers.c"
#include "perturb.c"
#include "policy.c"
#include "virtual_batch_norm.c"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
