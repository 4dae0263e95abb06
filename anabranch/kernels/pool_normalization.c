/* Normalization of batches and its gradient, channels last, in parts (`pool_common.c`): what a plan of `pool_stages.c` may
 * compute instead of primitives. Data are float32 or bfloat16, all else float32. Where ReLU follows, a bit for each
 * element, in their order, says where the result is positive. Before it, what has come another way may be added; what
 * the ReLU's gradient passes on goes back that way, too. What is no number stays none.
 *
 * Each part goes over its rows twice: first for sums over rows, which the caller merges, then for the results. Means are
 * taken of blocks that stay in a core's cache, and sums of squares around them, so that nothing is lost where means are
 * large. Channels come in sixteens.
 */
#define WIDE __attribute__((target("avx512f")))

/* This structure is `pool_normalization.py`'s, too. */
typedef struct {
  int64_t rows, channels;
  float epsilon;
  int width, relu, added, backward, parts; /* `width`: of the data's numbers (bytes) */
} Normalization;

/* The arrays of a call, forward and backward; what it has not is NULL. */
typedef struct {
  const char *x, *grad, *side;
  const float *scales, *offsets;
  float *means, *variances; /* backward they are read */
  uint16_t *positive;       /* so, too */
  char *y, *to_x, *to_side;
  float *to_scales, *to_offsets;
} Normalized;

static Normalized named(const Normalization *n, void **arrays) {
  Normalized a = {.x = arrays[0]};
  int at = 1;
  if (n->backward) {
    a.grad = arrays[at++];
    a.means = arrays[at++];
    a.variances = arrays[at++];
    a.scales = arrays[at++];
    if (n->relu) a.positive = arrays[at++];
    a.to_x = arrays[at++];
    a.to_scales = arrays[at++];
    a.to_offsets = arrays[at++];
    if (n->added) a.to_side = arrays[at++];
    return a;
  }
  a.scales = arrays[at++];
  a.offsets = arrays[at++];
  if (n->added) a.side = arrays[at++];
  a.y = arrays[at++];
  a.means = arrays[at++];
  a.variances = arrays[at++];
  if (n->relu) a.positive = arrays[at++];
  return a;
}

enum { LANES = 16, BLOCK_NUMBERS = 1 << 15 };

typedef struct {
  Job work;
  const Normalization *of;
  Normalized arrays;
  float *sums;    /* of each part, two for each channel */
  float *factors; /* three for each channel; what each part works in follows, two for each */
  int second;
} NormalizationJob;

WIDE static inline __m512 loaded(const char *data, int64_t at, int width) {
  if (width == 4) return _mm512_loadu_ps((const float *)data + at);
  __m256i half = _mm256_loadu_si256((const __m256i *)((const uint16_t *)data + at));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

WIDE static inline void stored(char *data, int64_t at, int width, __m512 values) {
  if (width == 4) {
    _mm512_storeu_ps((float *)data + at, values);
    return;
  }
  __m512i bits = _mm512_castps_si512(values), one = _mm512_set1_epi32(1);
  __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), one);
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 none = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, none, bits, _mm512_set1_epi32(1 << 22));
  _mm256_storeu_si256((__m256i *)((uint16_t *)data + at), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

/* what came in where the result was positive */
WIDE static inline __m512 passed(const char *data, const uint16_t *positive, int64_t at, int width) {
  __m512 values = loaded(data, at, width);
  return positive == NULL ? values : _mm512_maskz_mov_ps(positive[at / LANES], values);
}

/* The mean of both together, of which the other has this share. Infinities have no difference: each keeps its weight. */
static inline double merged(double mean, double other, double share) {
  double apart = other - mean;
  return __builtin_isfinite(apart) ? mean + apart * share : mean * (1 - share) + other * share;
}

/* Means, and sums of squares around them, of some rows, merged with those of `count` rows before. `block` has room for
 * two numbers of each channel. */
WIDE static void add_block(const Normalization *n, const char *x, int64_t first, int64_t rows, int64_t count, float *means,
                           float *squares, float *block) {
  float *own = block, *around = block + n->channels, all = (float)(count + rows), share = (float)rows / all;
  __m512 inverse = _mm512_set1_ps(1.0f / (float)rows);
  memset(block, 0, sizeof(float) * 2 * (size_t)n->channels);
  for (int64_t row = first; row < first + rows; row++)
    for (int64_t c = 0; c < n->channels; c += LANES)
      _mm512_storeu_ps(own + c, _mm512_add_ps(_mm512_loadu_ps(own + c), loaded(x, row * n->channels + c, n->width)));
  for (int64_t c = 0; c < n->channels; c += LANES)
    _mm512_storeu_ps(own + c, _mm512_mul_ps(_mm512_loadu_ps(own + c), inverse));
  for (int64_t row = first; row < first + rows; row++)
    for (int64_t c = 0; c < n->channels; c += LANES) {
      __m512 off = _mm512_sub_ps(loaded(x, row * n->channels + c, n->width), _mm512_loadu_ps(own + c));
      _mm512_storeu_ps(around + c, _mm512_fmadd_ps(off, off, _mm512_loadu_ps(around + c)));
    }
  for (int64_t c = 0; c < n->channels; c++) {
    float apart = own[c] - means[c];
    means[c] = count ? (float)merged(means[c], own[c], share) : own[c];
    squares[c] = count ? squares[c] + around[c] + apart * apart * share * (float)count : around[c];
  }
}

/* Sums over some rows of what comes in, and of its products with the data less their means. What the ReLU passes on is
 * written down where it goes another way, too. */
WIDE static void add_products(const Normalization *n, const Normalized *a, int64_t first, int64_t rows, float *sums,
                              float *products, float *block) {
  float *own = block, *with = block + n->channels;
  memset(block, 0, sizeof(float) * 2 * (size_t)n->channels);
  for (int64_t row = first; row < first + rows; row++)
    for (int64_t c = 0; c < n->channels; c += LANES) {
      int64_t at = row * n->channels + c;
      __m512 given = passed(a->grad, a->positive, at, n->width);
      if (a->to_side != NULL) stored(a->to_side, at, n->width, given);
      __m512 off = _mm512_sub_ps(loaded(a->x, at, n->width), _mm512_loadu_ps(a->means + c));
      _mm512_storeu_ps(own + c, _mm512_add_ps(_mm512_loadu_ps(own + c), given));
      _mm512_storeu_ps(with + c, _mm512_fmadd_ps(given, off, _mm512_loadu_ps(with + c)));
    }
  for (int64_t c = 0; c < n->channels; c++) {
    sums[c] += own[c];
    products[c] += with[c];
  }
}

WIDE static void set_normal(const Normalization *n, const Normalized *a, const float *factors, int64_t first, int64_t end) {
  __m512 zero = _mm512_setzero_ps();
  for (int64_t row = first; row < end; row++)
    for (int64_t c = 0; c < n->channels; c += LANES) {
      int64_t at = row * n->channels + c;
      __m512 off = _mm512_sub_ps(loaded(a->x, at, n->width), _mm512_loadu_ps(a->means + c));
      __m512 normal = _mm512_fmadd_ps(off, _mm512_loadu_ps(factors + c), _mm512_loadu_ps(a->offsets + c));
      if (a->side != NULL) normal = _mm512_add_ps(normal, loaded(a->side, at, n->width));
      if (a->positive != NULL) {
        a->positive[at / LANES] = _mm512_cmp_ps_mask(normal, zero, _CMP_GT_OQ);
        normal = _mm512_max_ps(zero, normal); /* the second operand, where one is no number */
      }
      stored(a->y, at, n->width, normal);
    }
}

WIDE static void set_gradient(const Normalization *n, const Normalized *a, const float *factors, int64_t first, int64_t end) {
  const float *along = factors + n->channels, *across = along + n->channels;
  /* what the ReLU passes on may lie there already */
  const char *grad = a->to_side != NULL ? a->to_side : a->grad;
  const uint16_t *positive = a->to_side != NULL ? NULL : a->positive;
  for (int64_t row = first; row < end; row++)
    for (int64_t c = 0; c < n->channels; c += LANES) {
      int64_t at = row * n->channels + c;
      __m512 given = passed(grad, positive, at, n->width);
      __m512 off = _mm512_sub_ps(loaded(a->x, at, n->width), _mm512_loadu_ps(a->means + c));
      __m512 value = _mm512_fnmadd_ps(off, _mm512_loadu_ps(across + c), _mm512_sub_ps(given, _mm512_loadu_ps(along + c)));
      stored(a->to_x, at, n->width, _mm512_mul_ps(value, _mm512_loadu_ps(factors + c)));
    }
}

static int compute_normalization(const Job *work, int part) {
  const NormalizationJob *job = (const NormalizationJob *)work;
  const Normalization *n = job->of;
  int64_t first = n->rows * part / n->parts, end = n->rows * (part + 1) / n->parts;
  float *sums = job->sums + 2 * n->channels * part, *others = sums + n->channels;
  float *block = job->factors + 3 * n->channels + 2 * n->channels * part;
  if (job->second) {
    (n->backward ? set_gradient : set_normal)(n, &job->arrays, job->factors, first, end);
    return 0;
  }
  memset(sums, 0, sizeof(float) * 2 * (size_t)n->channels);
  int64_t step = BLOCK_NUMBERS / n->channels > 0 ? BLOCK_NUMBERS / n->channels : 1;
  for (int64_t row = first; row < end; row += step) {
    int64_t rows = row + step < end ? step : end - row;
    if (n->backward)
      add_products(n, &job->arrays, row, rows, sums, others, block);
    else
      add_block(n, job->arrays.x, row, rows, row - first, sums, others, block);
  }
  return 0;
}

/* Means and variances of all parts; what a number less its mean is multiplied by. */
static void merge_means(const Normalization *n, const Normalized *a, const float *sums, float *factors) {
  for (int64_t c = 0; c < n->channels; c++) {
    double mean = sums[c], square = sums[n->channels + c], count = (double)(n->rows / n->parts);
    for (int part = 1; part < n->parts; part++) {
      const float *own = sums + 2 * n->channels * part + c;
      double rows = (double)(n->rows * (part + 1) / n->parts - n->rows * part / n->parts), apart = own[0] - mean;
      square += own[n->channels] + apart * apart * rows / (count + rows) * count;
      mean = merged(mean, own[0], rows / (count + rows));
      count += rows;
    }
    a->means[c] = (float)mean;
    a->variances[c] = (float)(square / (double)n->rows);
    factors[c] = (float)(a->scales[c] / __builtin_sqrt((double)a->variances[c] + n->epsilon));
  }
}

/* Gradients to scales and offsets; what the gradient to the data is made of. */
static void merge_products(const Normalization *n, const Normalized *a, const float *sums, float *factors) {
  for (int64_t c = 0; c < n->channels; c++) {
    double sum = 0, product = 0, inverse = 1 / __builtin_sqrt((double)a->variances[c] + n->epsilon);
    for (int part = 0; part < n->parts; part++) {
      sum += sums[2 * n->channels * part + c];
      product += sums[2 * n->channels * part + n->channels + c];
    }
    a->to_offsets[c] = (float)sum;
    a->to_scales[c] = (float)(product * inverse);
    factors[c] = (float)(a->scales[c] * inverse);
    factors[n->channels + c] = (float)(sum / (double)n->rows);
    factors[2 * n->channels + c] = (float)(inverse * inverse * product / (double)n->rows);
  }
}

/* Computes on the arrays of a call; `scratch` has room for four floats of each part's channels, and three more. */
static int run_normalization(const Normalization *n, const Frame *frame, void **arrays, float *scratch) {
  int threads = n->parts > 1 ? threads_of(frame) : 1;
  float *factors = scratch + 2 * n->channels * n->parts;
  Normalized given = named(n, arrays);
  for (int second = 0; second < 2; second++) {
    NormalizationJob own, *shared = threads > 1 ? malloc(sizeof *shared) : NULL, *job = shared ? shared : &own;
    memset(job, 0, sizeof *job);
    job->work.parts = n->parts;
    job->work.compute = compute_normalization;
    job->of = n;
    job->arrays = given;
    job->sums = scratch;
    job->factors = factors;
    job->second = second;
    do_work(&job->work, frame, shared ? (n->parts < threads ? n->parts : threads) - 1 : 0, !shared);
    if (!second) (n->backward ? merge_products : merge_means)(n, &given, scratch, factors);
  }
  return 0;
}
