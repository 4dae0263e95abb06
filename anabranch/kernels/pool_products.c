/* Products of float32 matrices, in parts that XLA's own threads compute (`pool_common.c`): a handler that
 * `pool_products.py` calls. Each part is a call of the library's product on one thread.
 *
 * Contract: the handler checks what it is given, and whatever is wrong becomes an error of XLA's that names the
 * operation.
 */

/* what a call's array of numbers holds */
enum { ROWS, COLUMNS, INNER, FIRST_TURNED, SECOND_TURNED, BATCH, FIRST_STEP, SECOND_STEP, NUMBERS };

/* of oneDNN (dnnl.h) */
static int (*product)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
                      float *, int64_t);

/* Names the functions that are called: to be done before the first call. */
void anabranch_pool_products_use(void *a_product, void *a_get_threads, void *a_set_threads) {
  product = (int (*)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
                     float *, int64_t))a_product;
  get_threads = (int (*)(void))a_get_threads;
  set_threads = (void (*)(int))a_set_threads;
}

/* a thread has its share from so many multiplications on */
static const double LEAST_OF_A_PART = 1 << 19;
/* parts begin at multiples of it: rows or columns */
static const int64_t STEP = 16;

typedef struct {
  Job work;
  int along_batch, along_rows;
  int64_t kept[NUMBERS];
  const float *first, *second;
  float *result;
} ProductJob;

static int64_t beginning(int64_t length, int part, int parts, int64_t step) {
  return part == parts ? length : length * part / parts / step * step;
}

static int one_product(const ProductJob *job, int64_t at, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const int64_t *n = job->kept;
  const float *first = job->first + at * n[FIRST_STEP], *second = job->second + at * n[SECOND_STEP];
  float *result = job->result + at * n[ROWS] * n[COLUMNS] + row * n[COLUMNS] + column;
  if (rows <= 0 || columns <= 0) return 0;
  first += n[FIRST_TURNED] ? row : row * n[INNER];
  second += n[SECOND_TURNED] ? column * n[INNER] : column;
  return product(n[FIRST_TURNED] ? 'T' : 'N', n[SECOND_TURNED] ? 'T' : 'N', rows, columns, n[INNER], 1.0f, first,
                 n[FIRST_TURNED] ? n[ROWS] : n[INNER], second, n[SECOND_TURNED] ? n[INNER] : n[COLUMNS], 0.0f, result,
                 n[COLUMNS]);
}

static int compute_product(const Job *work, int part) {
  const ProductJob *job = (const ProductJob *)work;
  const int64_t *n = job->kept;
  int failed = 0;
  if (job->along_batch) {
    int64_t end = beginning(n[BATCH], part + 1, job->work.parts, 1);
    for (int64_t at = beginning(n[BATCH], part, job->work.parts, 1); at < end; at++)
      failed |= one_product(job, at, 0, n[ROWS], 0, n[COLUMNS]);
    return failed;
  }
  int64_t length = n[job->along_rows ? ROWS : COLUMNS];
  int64_t start = beginning(length, part, job->work.parts, STEP), end = beginning(length, part + 1, job->work.parts, STEP);
  for (int64_t at = 0; at < n[BATCH]; at++)
    failed |= job->along_rows ? one_product(job, at, start, end - start, 0, n[COLUMNS])
                              : one_product(job, at, 0, n[ROWS], start, end - start);
  return failed;
}

static int has(const Buffer *buffer, int64_t elements) {
  return buffer->type == FLOAT32 && elements_of(buffer) == elements;
}

/* Makes as many parts as threads have enough to do with, and asks the pool for that many threads. */
static int run_product(ProductJob *job, const Frame *frame, int is_own) {
  const int64_t *n = job->kept;
  double each = (double)n[ROWS] * n[COLUMNS] * n[INNER], all = each * n[BATCH];
  int threads = all < 2 * LEAST_OF_A_PART ? 1 : threads_of(frame);
  job->along_batch = n[BATCH] >= 2 * threads;
  job->along_rows = n[ROWS] >= n[COLUMNS];
  int64_t length = job->along_batch ? n[BATCH] : n[job->along_rows ? ROWS : COLUMNS] / STEP;
  int64_t most = all / LEAST_OF_A_PART < threads ? (int64_t)(all / LEAST_OF_A_PART) : threads;
  job->work.parts = (int)(is_own || most < 1 || length < 1 ? 1 : most < length ? most : length);
  return do_work(&job->work, frame, job->work.parts - 1, is_own);
}

/* The handler: two factors, one result; attributes are the operation's name and the numbers. */
void *anabranch_pool_products(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != NUMBERS || frame->arguments.count != 2 || frame->results.count != 1)
    return error_of(frame, "a call has eight numbers, two factors and one result");
  const char *reason = product == NULL ? "no library was named to it" : unusable(frame);
  if (reason != NULL) return error_of(frame, reason);
  const int64_t *n = numbers->data;
  const Buffer *first = frame->arguments.values[0], *second = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0];
  for (int at = ROWS; at <= BATCH; at++)
    if (n[at] < (at == FIRST_TURNED || at == SECOND_TURNED ? 0 : 1)) return error_of(frame, "a length is no length");
  int64_t one = n[ROWS] * n[INNER], other = n[INNER] * n[COLUMNS];
  if ((n[FIRST_STEP] != 0 && n[FIRST_STEP] != one) || (n[SECOND_STEP] != 0 && n[SECOND_STEP] != other) ||
      !has(first, n[FIRST_STEP] ? one * n[BATCH] : one) || !has(second, n[SECOND_STEP] ? other * n[BATCH] : other) ||
      !has(result, n[BATCH] * n[ROWS] * n[COLUMNS]))
    return error_of(frame, "the arrays are others than it was prepared for");
  ProductJob own, *shared = malloc(sizeof *shared), *job = shared != NULL ? shared : &own;
  memset(job, 0, sizeof *job);
  job->work.compute = compute_product;
  memcpy(job->kept, n, sizeof job->kept);
  job->first = first->data;
  job->second = second->data;
  job->result = result->data;
  return run_product(job, frame, shared == NULL) ? error_of(frame, "it failed while it ran, or ran out of memory") : NULL;
}
