/* Maxima of windows over images, channels last, in parts (`pool_common.c`): what a plan of `pool_stages.c` may compute
 * instead of primitives. Data are float32, or bfloat16, which is compared as integers. Where each maximum was (the first of
 * equal ones; zeros of either sign are equal in float32 alone) is a byte: the number of the place in its window, row by row.
 * Channels come in sixteens.
 *
 * What is no number is passed over, or not; the caller is told that there is some, or may be.
 */
#define HALVES __attribute__((target("avx512f,avx512bw")))

/* This structure is `pool_pooling.py`'s, too. */
typedef struct {
  int64_t images, height, width, channels, out_height, out_width;
  int64_t window_height, window_width, row_step, column_step, above, before; /* the last two: padding */
  int number_bytes, parts;
} Maxima;

typedef struct {
  Job work;
  const Maxima *of;
  void **arrays;
  atomic_int *odd;
} MaximaJob;

/* The places of a window that lie among the data: how far from its first one, of one channel, and their numbers. Windows have
 * no more than 15 along an axis. */
enum { MOST_PLACES = 225 };
typedef struct {
  int64_t first_row, end_row, first_column, end_column;
  int count, number[MOST_PLACES];
  int64_t at[MOST_PLACES];
} Window;

/* Finds them for the window that begins there. Most windows have as many as the one before: what was found stays. */
static void find_places(const Maxima *m, int64_t top, int64_t left, Window *w) {
  int64_t first_row = top < 0 ? -top : 0, first_column = left < 0 ? -left : 0;
  int64_t end_row = m->height - top < m->window_height ? m->height - top : m->window_height;
  int64_t end_column = m->width - left < m->window_width ? m->width - left : m->window_width;
  if (w->count > 0 && w->first_row == first_row && w->end_row == end_row && w->first_column == first_column &&
      w->end_column == end_column)
    return;
  w->first_row = first_row, w->end_row = end_row, w->first_column = first_column, w->end_column = end_column;
  w->count = 0;
  for (int64_t row = first_row; row < end_row; row++)
    for (int64_t column = first_column; column < end_column; column++) {
      w->at[w->count] = (row * m->width + column) * m->channels;
      w->number[w->count++] = (int)(row * m->window_width + column);
    }
}

/* Sets all channels of one window's maximum, and their places; says whether any is no number. Where there is nothing but minus
 * infinity, the padding is as large: the first place is taken, even there. */
WIDE static int set_wide(const Window *w, int64_t channels, const float *x, int64_t from, float *y, uint8_t *places) {
  __mmask16 odd = 0;
  for (int64_t c = 0; c < channels; c += LANES) {
    __m512 largest = _mm512_loadu_ps(x + from + w->at[0] + c), sum = largest;
    __m512i place = _mm512_set1_epi32(w->number[0]);
    for (int i = 1; i < w->count; i++) {
      __m512 seen = _mm512_loadu_ps(x + from + w->at[i] + c);
      __mmask16 larger = _mm512_cmp_ps_mask(seen, largest, _CMP_GT_OQ);
      largest = _mm512_max_ps(seen, largest); /* of equal ones, and beside what is no number, the second */
      place = _mm512_mask_mov_epi32(place, larger, _mm512_set1_epi32(w->number[i]));
      sum = _mm512_add_ps(sum, seen);
    }
    __mmask16 none = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ);
    place = _mm512_mask_mov_epi32(place, none, _mm512_setzero_si512());
    odd |= _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
    _mm512_storeu_ps(y + c, largest);
    _mm_storeu_si128((__m128i *)(places + c), _mm512_cvtepi32_epi8(place));
  }
  return odd != 0;
}

/* Bits of bfloat16, as integers in the order of the numbers; and back. */
HALVES static inline __m512i in_order(__m512i bits) {
  return _mm512_xor_si512(bits, _mm512_and_si512(_mm512_srai_epi16(bits, 15), _mm512_set1_epi16(0x7fff)));
}

/* The same of bfloat16, of 32 channels or, as the compiler is told, of some of them. */
HALVES static inline __attribute__((always_inline)) int set_some_halves(const Window *w, const uint16_t *x, int64_t from,
                                                                        uint16_t *y, uint8_t *places, __mmask32 some) {
  const __m512i size = _mm512_set1_epi16(0x7fff);
  __m512i bits = _mm512_maskz_loadu_epi16(some, x + from + w->at[0]), most = _mm512_and_si512(bits, size);
  __m512i largest = in_order(bits), place = _mm512_set1_epi16((short)w->number[0]);
  for (int i = 1; i < w->count; i++) {
    bits = _mm512_maskz_loadu_epi16(some, x + from + w->at[i]);
    __m512i seen = in_order(bits);
    place = _mm512_mask_mov_epi16(place, _mm512_cmpgt_epi16_mask(seen, largest), _mm512_set1_epi16((short)w->number[i]));
    largest = _mm512_max_epi16(seen, largest);
    most = _mm512_max_epu16(most, _mm512_and_si512(bits, size));
  }
  __mmask32 none = _mm512_cmpeq_epi16_mask(largest, in_order(_mm512_set1_epi16((short)0xff80)));
  place = _mm512_mask_mov_epi16(place, none, _mm512_setzero_si512());
  _mm512_mask_storeu_epi16(y, some, in_order(largest));
  _mm512_mask_cvtepi16_storeu_epi8(places, some, place);
  return _mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(0x7f80)) != 0;
}

HALVES static int set_halves(const Window *w, int64_t channels, const uint16_t *x, int64_t from, uint16_t *y,
                             uint8_t *places) {
  int64_t c = 0;
  int odd = 0;
  for (; c + 2 * LANES <= channels; c += 2 * LANES) odd |= set_some_halves(w, x, from + c, y + c, places + c, 0xffffffff);
  return c < channels ? odd | set_some_halves(w, x, from + c, y + c, places + c, 0xffff) : odd;
}

static int set_maxima(const Maxima *m, void **arrays, int64_t image) {
  Window window;
  window.count = 0;
  int odd = 0;
  int64_t to = image * m->out_height * m->out_width * m->channels;
  for (int64_t out_row = 0; out_row < m->out_height; out_row++)
    for (int64_t out_column = 0; out_column < m->out_width; out_column++, to += m->channels) {
      int64_t top = out_row * m->row_step - m->above, left = out_column * m->column_step - m->before;
      int64_t from = ((image * m->height + top) * m->width + left) * m->channels;
      find_places(m, top, left, &window);
      uint8_t *places = (uint8_t *)arrays[2] + to;
      odd |= m->number_bytes == 4 ? set_wide(&window, m->channels, arrays[0], from, (float *)arrays[1] + to, places)
                                  : set_halves(&window, m->channels, arrays[0], from, (uint16_t *)arrays[1] + to, places);
    }
  return odd;
}

static int compute_maxima(const Job *work, int part) {
  const MaximaJob *job = (const MaximaJob *)work;
  const Maxima *m = job->of;
  for (int64_t image = m->images * part / m->parts; image < m->images * (part + 1) / m->parts; image++)
    if (set_maxima(m, job->arrays, image)) atomic_store(job->odd, 1);
  return 0;
}

/* Computes on the arrays of a call; `odd` is set where maxima passed over something, or may have. */
static int run_maxima(const Maxima *m, const Frame *frame, void **arrays, atomic_int *odd) {
  int threads = m->parts > 1 ? threads_of(frame) : 1;
  MaximaJob own, *shared = threads > 1 ? malloc(sizeof *shared) : NULL, *job = shared ? shared : &own;
  memset(job, 0, sizeof *job);
  job->work.parts = m->parts;
  job->work.compute = compute_maxima;
  job->of = m;
  job->arrays = arrays;
  job->odd = odd;
  return do_work(&job->work, frame, shared ? (m->parts < threads ? m->parts : threads) - 1 : 0, !shared);
}
