/* Updates of variables by optimizers, where they lie, and casts of variables to bfloat16: handlers that `pool_updates.py`
 * calls, in parts that XLA's own threads compute (`pool_common.c`).
 *
 * XLA compiles a loop for each variable, which takes 15 to 65 ms of processor time. Here one function serves all. Products
 * and sums are contracted as XLA contracts them, so that results are the same to the last bit.
 *
 * Contract: of a variable that is not to change, since a check failed, the old value is the result. The handler checks what
 * it is given, and whatever is wrong becomes an error of XLA's that names the operation, before anything is written.
 */

/* the rules of `pool_updates.py`, and for each: how many arrays it changes, and how many numbers it takes */
enum { GRADIENT_DESCENT, MOMENTUM, ADAM, RULES };
static const struct { int arrays, scalars; } rules[RULES] = {{1, 1}, {2, 2}, {3, 6}};
enum { MOST_STATES = 3, MOST_SCALARS = 6 };
/* a thread has its share from so many elements on */
enum { LEAST_OF_AN_UPDATE = 1 << 15, VECTOR = 16 };

typedef struct {
  Job work;
  int rule, is_narrow;          /* `is_narrow`: the gradient is of bfloat16 */
  int64_t elements;
  const float *old[MOST_STATES];
  float *new[MOST_STATES];
  const char *grad;
  float scalars[MOST_SCALARS];
} UpdateJob;

/* All but the last elements are read and written as whole vectors: stores of some of one's elements are slow. */
enum { ALL = 0xffff };
#define INLINE WIDE static inline __attribute__((always_inline))

INLINE __m512 taken_from(const float *data, int64_t at, __mmask16 some) {
  return some == ALL ? _mm512_loadu_ps(data + at) : _mm512_maskz_loadu_ps(some, data + at);
}

INLINE void given_to(float *data, int64_t at, __mmask16 some, __m512 values) {
  if (some == ALL)
    _mm512_storeu_ps(data + at, values);
  else
    _mm512_mask_storeu_ps(data + at, some, values);
}

INLINE __m512 gradient(const char *data, int64_t at, int is_narrow, __mmask16 some) {
  if (!is_narrow) return taken_from((const float *)data, at, some);
  __m256i half = _mm256_setzero_si256();
  if (some == ALL)
    half = _mm256_loadu_si256((const __m256i *)((const uint16_t *)data + at));
  else
    memcpy(&half, (const uint16_t *)data + at, sizeof(uint16_t) * (size_t)__builtin_popcount(some));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* how many of the sixteen elements from `at` on are before `end` */
static inline __mmask16 before_end(int64_t at, int64_t end) {
  return end - at >= VECTOR ? ALL : (__mmask16)((1u << (end - at)) - 1);
}

WIDE static void descend(const UpdateJob *job, int64_t at, int64_t end) {
  __m512 rate = _mm512_set1_ps(job->scalars[0]);
  for (__mmask16 some; at < end; at += VECTOR) {
    some = before_end(at, end);
    __m512 grad = gradient(job->grad, at, job->is_narrow, some), var = taken_from(job->old[0], at, some);
    given_to(job->new[0], at, some, _mm512_fnmadd_ps(grad, rate, var));
  }
}

/* the numbers: the rate, the momentum */
WIDE static void descend_with_momentum(const UpdateJob *job, int64_t at, int64_t end) {
  __m512 rate = _mm512_set1_ps(job->scalars[0]), momentum = _mm512_set1_ps(job->scalars[1]);
  for (__mmask16 some; at < end; at += VECTOR) {
    some = before_end(at, end);
    __m512 grad = gradient(job->grad, at, job->is_narrow, some), var = taken_from(job->old[0], at, some);
    __m512 accum = _mm512_fmadd_ps(taken_from(job->old[1], at, some), momentum, grad);
    given_to(job->new[1], at, some, accum);
    given_to(job->new[0], at, some, _mm512_fnmadd_ps(accum, rate, var));
  }
}

/* the numbers: the powers of both betas, the rate, both betas, epsilon */
WIDE static void descend_by_adam(const UpdateJob *job, int64_t at, int64_t end) {
  const float *n = job->scalars;
  float corrected = n[2] * __builtin_sqrtf(1.0f - n[1]) / (1.0f - n[0]);
  __m512 rate = _mm512_set1_ps(corrected), epsilon = _mm512_set1_ps(n[5]);
  __m512 share = _mm512_set1_ps(1.0f - n[3]), square_share = _mm512_set1_ps(1.0f - n[4]);
  for (__mmask16 some; at < end; at += VECTOR) {
    some = before_end(at, end);
    __m512 grad = gradient(job->grad, at, job->is_narrow, some), var = taken_from(job->old[0], at, some);
    __m512 m = taken_from(job->old[1], at, some), v = taken_from(job->old[2], at, some);
    m = _mm512_fmadd_ps(_mm512_sub_ps(grad, m), share, m);
    v = _mm512_fmadd_ps(_mm512_fmsub_ps(grad, grad, v), square_share, v);
    __m512 step = _mm512_div_ps(_mm512_mul_ps(m, rate), _mm512_add_ps(_mm512_sqrt_ps(v), epsilon));
    given_to(job->new[1], at, some, m);
    given_to(job->new[2], at, some, v);
    given_to(job->new[0], at, some, _mm512_sub_ps(var, step));
  }
}

static int64_t beginning_of(int64_t elements, int part, int parts) {
  return part == parts ? elements : elements / parts * part / VECTOR * VECTOR;
}

static int compute_update(const Job *work, int part) {
  static void (*const functions[RULES])(const UpdateJob *, int64_t, int64_t) = {descend, descend_with_momentum,
                                                                                descend_by_adam};
  const UpdateJob *job = (const UpdateJob *)work;
  int64_t first = beginning_of(job->elements, part, work->parts), end = beginning_of(job->elements, part + 1, work->parts);
  functions[job->rule](job, first, end);
  return 0;
}

/* Makes as many parts as threads have enough to do with; a job that cannot be shared is the caller's own, in one part. */
static void run_elements(Job *job, size_t size, int64_t elements, const Frame *frame) {
  int64_t most = elements / LEAST_OF_AN_UPDATE;
  int threads = most > 1 ? threads_of(frame) : 1, parts = most < threads ? (most < 1 ? 1 : (int)most) : threads;
  Job *shared = parts > 1 ? malloc(size) : NULL;
  if (shared != NULL) memcpy(shared, job, size), job = shared;
  job->parts = shared != NULL ? parts : 1;
  do_work(job, frame, job->parts - 1, shared == NULL);
}

static int is_like(const Buffer *buffer, int type, int64_t elements) {
  return buffer->type == type && elements_of(buffer) == elements;
}

/* What is wrong with a call; NULL where nothing is. */
static const char *wrong_update(const Frame *frame, const int64_t *n) {
  int arrays = rules[n[0]].arrays, scalars = rules[n[0]].scalars;
  Buffer **arguments = (Buffer **)frame->arguments.values, **results = (Buffer **)frame->results.values;
  if (n[1] < 0 || frame->arguments.count < arrays + 1 + scalars + n[1] || frame->results.count != arrays)
    return "a call has a variable, its slots, a gradient and numbers";
  int64_t elements = elements_of(arguments[0]);
  for (int at = 0; at < arrays; at++)
    if (!is_like(arguments[at], FLOAT32, elements) || !is_like(results[at], FLOAT32, elements))
      return "a slot is not like its variable";
  if (!is_like(arguments[arrays], FLOAT32, elements) && !is_like(arguments[arrays], BFLOAT16, elements))
    return "a gradient is not like its variable";
  for (int at = arrays + 1; at < arrays + 1 + scalars; at++)
    if (!is_like(arguments[at], FLOAT32, 1)) return "a number is none";
  for (int64_t at = 0; at < n[1]; at++)
    if (!is_like(arguments[arrays + 1 + scalars + at], BOOLEAN, 1)) return "a condition is none";
  return NULL;
}

/* The handler: the variable and its slots, the gradient, the numbers of the rule, conditions, and what must be there before;
 * the results are the new variable and slots, in the same memory maybe. Attributes: the operation's name; the rule, and how
 * many conditions there are. */
void *anabranch_pool_updates(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  const int64_t *n = numbers->data;
  const char *reason = numbers->count != 2 || n[0] < 0 || n[0] >= RULES ? "there is no such rule" : unusable(frame);
  if (reason == NULL) reason = wrong_update(frame, n);
  if (reason != NULL) return error_of(frame, reason);
  int arrays = rules[n[0]].arrays, scalars = rules[n[0]].scalars, holds = 1;
  Buffer **arguments = (Buffer **)frame->arguments.values, **results = (Buffer **)frame->results.values;
  UpdateJob job = {.rule = (int)n[0], .is_narrow = arguments[arrays]->type == BFLOAT16, .grad = arguments[arrays]->data};
  job.work.compute = compute_update;
  job.elements = elements_of(arguments[0]);
  for (int64_t at = 0; at < n[1]; at++) holds &= *(const char *)arguments[arrays + 1 + scalars + at]->data;
  for (int at = 0; at < arrays; at++) {
    job.old[at] = arguments[at]->data;
    job.new[at] = results[at]->data;
    if (!holds && job.old[at] != job.new[at]) memcpy(job.new[at], job.old[at], sizeof(float) * (size_t)job.elements);
  }
  for (int at = 0; at < scalars; at++) job.scalars[at] = *(const float *)arguments[arrays + 1 + at]->data;
  if (holds) run_elements(&job.work, sizeof job, job.elements, frame);
  return NULL;
}

/* ---------------------------------------------------------------------- casts */
typedef struct {
  Job work;
  int64_t elements;
  const float *wide;
  uint16_t *narrow;
} CastJob;

/* To the nearest, of two as near to the even one; what is no number stays none. */
WIDE static int compute_cast(const Job *work, int part) {
  const CastJob *job = (const CastJob *)work;
  int64_t at = beginning_of(job->elements, part, work->parts), end = beginning_of(job->elements, part + 1, work->parts);
  for (; at + VECTOR <= end; at += VECTOR) stored((char *)job->narrow, at, 2, _mm512_loadu_ps(job->wide + at));
  if (at < end) {
    uint16_t last[VECTOR];
    stored((char *)last, 0, 2, _mm512_maskz_loadu_ps(before_end(at, end), job->wide + at));
    memcpy(job->narrow + at, last, sizeof(uint16_t) * (size_t)(end - at));
  }
  return 0;
}

/* The handler: numbers of float32, and as many of bfloat16. The attribute is the operation's name. */
void *anabranch_pool_casts(Frame *frame) {
  if (tells_version(frame)) return NULL;
  if (frame->attributes.count != 1 || frame->arguments.count != 1 || frame->results.count != 1)
    return error_of(frame, "a call has a text, numbers, and as many results");
  const Buffer *wide = frame->arguments.values[0], *narrow = frame->results.values[0];
  const char *reason = unusable(frame);
  if (reason == NULL && (wide->type != FLOAT32 || !is_like(narrow, BFLOAT16, elements_of(wide))))
    reason = "the arrays are others than it was prepared for";
  if (reason != NULL) return error_of(frame, reason);
  CastJob job = {.elements = elements_of(wide), .wide = wide->data, .narrow = narrow->data};
  job.work.compute = compute_cast;
  run_elements(&job.work, sizeof job, job.elements, frame);
  return NULL;
}
