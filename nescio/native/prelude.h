// What the written code calls: functions of one number that a compiler can vectorise, and products of small matrices.
#include <math.h>
#include <stdint.h>
#include <string.h>

#define inlined static inline __attribute__((always_inline))

// ---- single precision, without branches: right to a few units of the last place ----

inlined float power_of_two(int32_t n) {
    int32_t bits = (n + 127) << 23;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

inlined float exp_f32(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;
    float n = rintf(c * 1.44269504f);
    float r = c - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t k = (int32_t)n, half = k >> 1;
    return p * power_of_two(half) * power_of_two(k - half);
}

inlined float log_f32(float x) {
    int tiny = x < 1.17549435e-38f;
    float scaled = tiny ? x * 8388608.0f : x;
    int32_t bits;
    memcpy(&bits, &scaled, 4);
    int32_t e = (bits - 0x3f3504f3) >> 23;
    bits -= e << 23;
    float m;
    memcpy(&m, &bits, 4);
    float n = (float)e - (tiny ? 23.0f : 0.0f), f = m - 1.0f, z = f * f;
    float y = 7.0376836292e-2f;
    y = y * f - 1.1514610310e-1f;
    y = y * f + 1.1676998740e-1f;
    y = y * f - 1.2420140846e-1f;
    y = y * f + 1.4249322787e-1f;
    y = y * f - 1.6668057665e-1f;
    y = y * f + 2.0000714765e-1f;
    y = y * f - 2.4999993993e-1f;
    y = y * f + 3.3333331174e-1f;
    y = y * f * z - n * 2.12194440e-4f - 0.5f * z;
    float value = f + y + n * 0.693359375f;
    value = x == INFINITY ? x : value;
    value = x == 0.0f ? -INFINITY : value;
    return x < 0.0f || x != x ? NAN : value;
}

inlined float log1p_f32(float x) {
    float u = 1.0f + x, d = u - 1.0f;
    float near = d == 0.0f ? x : log_f32(u) * (x / d);
    return x > 1e7f ? log_f32(x) : near;
}

// ---- the largest and the smallest of some numbers, NaN if there is one ----

#define LARGEST(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define SMALLEST(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#pragma omp declare reduction(largest : float, double : omp_out = LARGEST(omp_out, omp_in)) initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(smallest : float, double : omp_out = SMALLEST(omp_out, omp_in)) initializer(omp_priv = INFINITY)

// ---- one name for each kind of number ----

#define FUNCTIONS(T, _, f)                                                                                             \
    inlined T abs##_(T x) { return fabs##f(x); }                                                                       \
    inlined T sqrt##_(T x) { return sqrt##f(x); }                                                                      \
    inlined T expm1##_(T x) { return expm1##f(x); }                                                                    \
    inlined T sin##_(T x) { return sin##f(x); }                                                                        \
    inlined T cos##_(T x) { return cos##f(x); }                                                                        \
    inlined T erf##_(T x) { return erf##f(x); }                                                                        \
    inlined T lgamma##_(T x) { return lgamma##f(x); }                                                                  \
    inlined T tanh##_(T x) { return tanh##f(x); }                                                                      \
    inlined T pow##_(T x, T y) { return pow##f(x, y); }                                                                \
    inlined T floor##_(T x) { return floor##f(x); }                                                                    \
    inlined T sigmoid##_(T x) { return 1 / (1 + exp##_(-x)); }                                                         \
    inlined T remainder##_(T x, T y) {                                                                                 \
        T r = fmod##f(x, y);                                                                                           \
        return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                                               \
    }                                                                                                                  \
    inlined T softplus##_(T x, T beta, T threshold) {                                                                  \
        T z = x * beta;                                                                                                \
        T low = z > threshold ? threshold : z;                                                                         \
        return z > threshold ? x : log1p##_(exp##_(low)) / beta;                                                       \
    }                                                                                                                  \
    inlined T softplus_backward##_(T g, T x, T beta, T threshold) {                                                    \
        T z = x * beta;                                                                                                \
        T e = exp##_(z > threshold ? threshold : z);                                                                   \
        return z > threshold ? g : g * (e / (e + 1));                                                                  \
    }                                                                                                                  \
    inlined T logaddexp##_(T a, T b) {                                                                                 \
        T most = a > b || a != a ? a : b;                                                                              \
        T value = most + log1p##_(exp##_(-fabs##f(a - b)));                                                            \
        return a == b && fabs##f(a) == INFINITY ? a : value;                                                           \
    }

inlined double exp_f64(double x) { return exp(x); }
inlined double log_f64(double x) { return log(x); }
inlined double log1p_f64(double x) { return log1p(x); }
FUNCTIONS(float, _f32, f)
FUNCTIONS(double, _f64, )

/* Number i of n; one that is not there becomes the first, and is told of. */
inlined int64_t place(int64_t i, int64_t n, int64_t *outside) {
    int wrong = i < 0 || i >= n;
    *outside |= wrong;
    return wrong ? 0 : i;
}

/* The same, counted from the end where it is negative. */
inlined int64_t either(int64_t i, int64_t n, int64_t *outside) { return place(i < 0 ? i + n : i, n, outside); }

inlined int64_t abs_i64(int64_t x) { return x < 0 ? -x : x; }
inlined int64_t remainder_i64(int64_t x, int64_t y) { // y is a number in the text, and not 0
    int64_t r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// ---- products: tiles of M by N vectors or dot products held in registers, what is left over in narrower ones ----

#define ROW 64 // bytes: rows of a tile are stretches of so many
#ifdef VECTOR
#elif defined(__AVX512F__)
#define VECTOR 64
#elif defined(__AVX__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
#define PER (ROW / VECTOR)

#define PRODUCTS(T, _, W)                                                                                              \
    typedef T vector##_ __attribute__((vector_size(VECTOR), aligned(sizeof(T)), may_alias));                           \
    /* C[:, j] = sum_p A[:, p] B[p, j], columns of A and C in whole rows of a tile: `ap`, `cj` between columns */        \
    inlined void columns##_(                                                                                           \
        const int M, const int N, long k, const T *a, const T *b, T *c, long ai, long ap, long bp, long bj, long ci,   \
        long cj                                                                                                        \
    ) {                                                                                                                \
        vector##_ sum[4 * PER][6];                                                                                     \
        for (int i = 0; i < M * PER; i++)                                                                              \
            for (int j = 0; j < N; j++) sum[i][j] = (vector##_){0};                                                    \
        for (long p = 0; p < k; p++) {                                                                                 \
            vector##_ x[4 * PER];                                                                                      \
            for (int i = 0; i < M * PER; i++) x[i] = *(const vector##_ *)(a + p * ap + i * W);                         \
            for (int j = 0; j < N; j++) {                                                                              \
                T y = b[p * bp + j * bj];                                                                              \
                for (int i = 0; i < M * PER; i++) sum[i][j] += x[i] * y;                                               \
            }                                                                                                          \
        }                                                                                                              \
        for (int j = 0; j < N; j++) /* the next column covers what this one leaves behind a narrow one's end */         \
            for (int i = 0; i < M * PER; i++) *(vector##_ *)(c + j * cj + i * W) = sum[i][j];                          \
    }                                                                                                                  \
    /* C[i, j] = sum_p A[i, p] B[p, j], rows of A and columns of B without gaps */                                     \
    inlined void dots##_(                                                                                              \
        const int M, const int N, long k, const T *a, const T *b, T *c, long ai, long ap, long bp, long bj, long ci,   \
        long cj                                                                                                        \
    ) {                                                                                                                \
        vector##_ sum[4][4];                                                                                           \
        long whole = k / W * W;                                                                                        \
        for (int i = 0; i < M; i++)                                                                                    \
            for (int j = 0; j < N; j++) sum[i][j] = (vector##_){0};                                                    \
        for (long p = 0; p < whole; p += W) {                                                                          \
            vector##_ y[4];                                                                                            \
            for (int j = 0; j < N; j++) y[j] = *(const vector##_ *)(b + j * bj + p);                                   \
            for (int i = 0; i < M; i++) {                                                                              \
                vector##_ x = *(const vector##_ *)(a + i * ai + p);                                                    \
                for (int j = 0; j < N; j++) sum[i][j] += x * y[j];                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < M; i++)                                                                                    \
            for (int j = 0; j < N; j++) {                                                                              \
                vector##_ s = sum[i][j];                                                                               \
                T total = 0;                                                                                           \
                for (int w = 0; w < W; w++) total += s[w];                                                             \
                for (long p = whole; p < k; p++) total += a[i * ai + p] * b[j * bj + p];                               \
                c[i * ci + j * cj] = total;                                                                            \
            }                                                                                                          \
    }

/* Many tiles of one size: `some` beside each other, `others` above each other. A function for each size that is used, for compiling
   one takes long. */
#define TILES(kind, T, E, M, N)                                                                                        \
    static __attribute__((noinline)) void kind##E##_##M##_##N(                                                         \
        long some, long others, long k, const T *a, const T *b, T *c, long ai, long ap, long bp, long bj, long ci,     \
        long cj                                                                                                        \
    ) {                                                                                                                \
        for (long j = 0; j < others; j++)                                                                              \
            for (long i = 0; i < some; i++)                                                                            \
                kind##E(M, N, k, a + i * M * ai, b + j * N * bj, c + i * M * ci + j * N * cj, ai, ap, bp, bj, ci, cj); \
    }

PRODUCTS(float, _f32, (VECTOR / 4))
PRODUCTS(double, _f64, (VECTOR / 8))

// ---- X of A X = B, in the place of B; A (m, m) is triangular, its lower half or its upper ----

#define SOLVE(T, _)                                                                                                    \
    inlined void solve##_(                                                                                             \
        int upper, int unit, long m, long n, const T *a, long ai, long ap, T *x, long xi, long xj                      \
    ) {                                                                                                                \
        for (long row = 0; row < m; row++) {                                                                           \
            long i = upper ? m - 1 - row : row;                                                                        \
            for (long p = upper ? i + 1 : 0; p < (upper ? m : i); p++) {                                               \
                T y = a[i * ai + p * ap];                                                                              \
                for (long j = 0; j < n; j++) x[i * xi + j * xj] -= y * x[p * xi + j * xj];                             \
            }                                                                                                          \
            for (long j = 0; j < n && !unit; j++) x[i * xi + j * xj] /= a[i * ai + i * ap];                            \
        }                                                                                                              \
    }

SOLVE(float, _f32)
SOLVE(double, _f64)
