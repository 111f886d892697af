/* TREC files, read in place by several threads: each reads whole lines into shared columns and
 * numbers the queries it sees; the numbers are made common at the end. Part of _native.c. The twin
 * is the general reader in data/trec.py, which also reads every line that this one refuses. */

/* ------------------------------------------------------------------------------- hashing */

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#define PREFETCH_WRITE(address) __builtin_prefetch(address, 1)
#else
#define PREFETCH(address) ((void)(address))
#define PREFETCH_WRITE(address) ((void)(address))
#endif

/* Mix two words into a hash; every bit of both changes about half of its bits. */
static inline uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    a ^= a >> 29;
    a = (a ^ b) * 0x94D049BB133111EBu;
    return a ^ (a >> 32);
}

static inline uint64_t hash_bytes(const char *text, size_t length) {
    uint64_t h = length, word;
    while (length >= 8) {
        memcpy(&word, text, 8);
        h = mix(h, word);
        text += 8;
        length -= 8;
    }
    word = 0;
    memcpy(&word, text, length);
    return mix(h, word);
}

/* Hash an id. */
static inline uint64_t hash_view(const Text *t, const View *v) {
    uint32_t length = view_length(v);
    return length <= INLINE ? mix(v->low, v->high) : hash_bytes(text_at(t, v), length);
}

/* Return whether two ids, of columns t and u, are equal. */
static inline int same_text(const Text *t, const View *a, const Text *u, const View *b) {
    if (a->low != b->low) return 0;
    if (view_length(a) <= INLINE) return a->high == b->high;
    return memcmp(text_at(t, a), text_at(u, b), view_length(a)) == 0;
}

/* -------------------------------------------------------------- a reader and its queries */

enum { GOOD, MALFORMED, NO_MEMORY, TOO_LONG, UNREAD };

/* What one thread knows: it reads pieces of the file one after the other. */
typedef struct {
    int columns;    /* 6 for a run, 4 for qrels */
    Column queries; /* distinct, in order of appearance */
    int64_t *first_row;   /* (queries,) row that named each query first */
    size_t first_row_room;
    int32_t *slots; /* hash table over `queries`: code + 1, or 0 */
    size_t slot_count;
    int32_t last;   /* code of the previous row, -1 at the start */
    int busy;
    int has_unusual_number;        /* a number is 2^53 or more in size, or a grade not whole */
    int has_spaced_id;     /* a document id seems to hold a blank */
    char *buffer;   /* text of the piece being read */
    size_t buffer_size;
    int64_t first;  /* first row of the piece */
    Column docs;    /* documents of the piece, with room for all of its lines */
    int32_t *codes; /* (rows,) code of the query */
    double *values; /* (rows,) score or grade */
} Reader;

static Text column_text(const Column *c) {
    Text t = {0};
    t.views = c->views;
    t.data = (const char **)c->arenas;
    t.length = (int64_t)c->length;
    return t;
}

/* Double the hash table. */
static int grow_slots(Reader *p) {
    size_t count = p->slot_count ? p->slot_count * 2 : 1024;
    int32_t *slots = calloc(count, sizeof *slots);
    if (!slots) return NO_MEMORY;
    Text t = column_text(&p->queries);
    for (size_t code = 0; code < p->queries.length; code++) {
        const View *v = &t.views[code];
        size_t slot = hash_view(&t, v) & (count - 1);
        while (slots[slot]) slot = (slot + 1) & (count - 1);
        slots[slot] = (int32_t)code + 1;
    }
    free(p->slots);
    p->slots = slots;
    p->slot_count = count;
    return GOOD;
}

/* Return whether a query is this text; `key` is its view if it is short. */
static inline int is_query(const Reader *p, int32_t code, View key, const char *text,
                                  size_t n) {
    const View *v = &p->queries.views[code];
    if (n <= INLINE) return v->low == key.low && v->high == key.high;
    Text t = column_text(&p->queries);
    return view_length(v) == n && memcmp(text_at(&t, v), text, n) == 0;
}

/* Return the code of a query id, known or new; negative if out of memory. */
static int32_t query_code(Reader *p, const char *text, size_t n, const char *end) {
    View key = n <= INLINE ? short_view(text, n, end) : (View){0, 0};
    if (p->last >= 0 && is_query(p, p->last, key, text, n)) return p->last;
    /* Keep the table sparse while it stays in a cache: a collision costs more than an empty slot. */
    size_t least = p->queries.length * (p->slot_count < 1 << 16 ? 8 : 2);
    if (least >= p->slot_count && grow_slots(p)) return -1;
    uint64_t hash = n <= INLINE ? mix(key.low, key.high) : hash_bytes(text, n);
    size_t slot = hash & (p->slot_count - 1);
    while (p->slots[slot]) {
        int32_t code = p->slots[slot] - 1;
        if (is_query(p, code, key, text, n)) return p->last = code;
        slot = (slot + 1) & (p->slot_count - 1);
    }
    if (p->queries.length == p->first_row_room) {
        size_t room = p->first_row_room ? p->first_row_room * 2 : 64;
        int64_t *first_row = realloc(p->first_row, room * sizeof *first_row);
        if (!first_row) return -1;
        p->first_row = first_row;
        p->first_row_room = room;
    }
    if (p->queries.length >= INT32_MAX - 1 || column_append(&p->queries, text, n, end))
        return -1;
    p->last = (int32_t)p->queries.length - 1;
    p->first_row[p->last] = p->first + (int64_t)p->docs.length;
    p->slots[slot] = p->last + 1;
    return p->last;
}

/* ----------------------------------------------------------------------------- numbers */

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Longer numbers are left to the general reader. */
#define NUMBER_LIMIT 64

/* Convert by Python's own function, which is correctly rounded. */
static int parse_number_in_python(const char *text, size_t length, double *out) {
    char copy[NUMBER_LIMIT];
    memcpy(copy, text, length);
    copy[length] = 0;
    PyGILState_STATE state = PyGILState_Ensure();
    char *end = NULL;
    /* Refuse numbers that overflow. */
    double value = PyOS_string_to_double(copy, &end, PyExc_OverflowError);
    int bad = PyErr_Occurred() != NULL || end != copy + length || isnan(value);
    PyErr_Clear();
    PyGILState_Release(state);
    *out = value;
    return bad ? MALFORMED : GOOD;
}

/* Read the digits at s, eight at most, and return how many there are; 8 bytes may be read. */
static inline int eight_digits(const char *s, uint64_t *value) {
    uint64_t x;
    memcpy(&x, s, 8);
    x ^= 0x3030303030303030u; /* a digit becomes 0 to 9 */
    uint64_t other = ((x + 0x7676767676767676u) | x) & 0x8080808080808080u;
    int count = 8;
#if defined(__GNUC__)
    if (other) count = __builtin_ctzll(other) >> 3;
#else
    for (count = 0; count < 8 && !(other >> (8 * count) & 0x80);) count++;
#endif
    if (!count) return 0;
    /* Pad with zeros in front; then join pairs, fours and eights in one step each. */
    x <<= 64 - 8 * count;
    x = (x * (10 << 8 | 1)) >> 8 & 0x00FF00FF00FF00FFu;
    x = (x * (100 << 16 | 1)) >> 16 & 0x0000FFFF0000FFFFu;
    *value = (x * ((uint64_t)10000 << 32 | 1)) >> 32;
    return count;
}

/* Compute mantissa · 10^exponent, correctly rounded, or return MALFORMED if that needs another way.
 * Short numbers take one exact operation (Clinger 1990, "How to read floating point numbers
 * accurately"); up to 19 digits go through the 64-bit significand of an x87 long double, unless it
 * is close to halfway between two doubles. */
static inline int scale_decimal(uint64_t mantissa, int exponent, double *out) {
    if (mantissa == 0) {
        *out = 0.0;
        return GOOD;
    }
    if (mantissa <= ((uint64_t)1 << 53) && exponent >= -22 && exponent <= 22) {
        *out = exponent < 0 ? (double)mantissa / TENS[-exponent]
                            : (double)mantissa * TENS[exponent];
        return GOOD;
    }
#if LDBL_MANT_DIG == 64
    int size = exponent < 0 ? -exponent : exponent;
    if (size > 27) return MALFORMED;
    long double power = (long double)TENS[size > 22 ? 22 : size];
    for (int i = 22; i < size; i++) power *= 10.0L;
    long double wide = exponent < 0 ? (long double)mantissa / power
                                    : (long double)mantissa * power;
    uint64_t significand;
    memcpy(&significand, &wide, 8);
    unsigned below = (unsigned)(significand & 0x7FF);
    if (below >= 0x3FF && below <= 0x401) return MALFORMED;
    *out = (double)wide;
    return GOOD;
#else
    return MALFORMED;
#endif
}

/* Parse a number of any form; hard cases and infinity go to Python. */
static int parse_any_number(const char *text, size_t length, double *out) {
    if (length >= NUMBER_LIMIT) return MALFORMED; /* so that no exponent below can overflow */
    const char *s = text, *end = text + length;
    int negative = 0;
    if (s < end && (*s == '-' || *s == '+')) negative = *s++ == '-';
    uint64_t mantissa = 0;
    int exponent = 0;
    const char *begin = s;
    while (s < end && *s == '0') s++; /* leading zeros are not significant */
    const char *whole = s;
    for (; s < end && (unsigned char)(*s - '0') < 10; s++)
        mantissa = mantissa * 10 + (uint64_t)(*s - '0');
    int64_t digits = s - whole, seen = s - begin;
    if (s < end && *s == '.') {
        const char *fraction = ++s;
        while (!digits && s < end && *s == '0') s++;
        whole = s;
        for (; s < end && (unsigned char)(*s - '0') < 10; s++)
            mantissa = mantissa * 10 + (uint64_t)(*s - '0');
        digits += s - whole;
        seen += s - fraction;
        exponent = -(int)(s - fraction);
    }
    /* 19 digits fit into 64 bits. */
    if (!seen || digits > 19) return parse_number_in_python(text, length, out);
    if (s < end && (*s == 'e' || *s == 'E')) {
        s++;
        int sign = 1, power = 0;
        if (s < end && (*s == '-' || *s == '+')) sign = *s++ == '-' ? -1 : 1;
        if (s == end) return MALFORMED;
        for (; s < end && (unsigned char)(*s - '0') < 10 && power < 10000; s++)
            power = power * 10 + (*s - '0');
        exponent += sign * power;
    }
    double value;
    if (s != end || scale_decimal(mantissa, exponent, &value))
        return parse_number_in_python(text, length, out);
    *out = negative ? -value : value;
    return GOOD;
}

/* Parse a number. Most have up to seven digits and a fraction of up to sixteen, which are read
 * eight at a time; `limit` bounds what may be read after the text. */
static inline int number(const char *text, size_t length, const char *limit, double *out) {
    static const uint64_t SHIFT[] = {1,      10,      100,      1000,     10000,
                                     100000, 1000000, 10000000, 100000000};
    const char *s = text, *end = text + length;
    int negative = *s == '-';
    s += negative;
    uint64_t whole = 0, first = 0, second = 0;
    if (limit - text < 40) return parse_any_number(text, length, out);
    int before = eight_digits(s, &whole), after = 0, more = 0;
    s += before;
    if (*s == '.') {
        after = eight_digits(++s, &first);
        s += after;
        if (after == 8) more = eight_digits(s, &second);
        s += more;
    }
    /* There are at most 19 digits, which fit into 64 bits. */
    if (s != end || before > (more ? 3 : 7) || !(before + after))
        return parse_any_number(text, length, out);
    double value;
    uint64_t mantissa = (whole * SHIFT[after] + first) * SHIFT[more] + second;
    if (scale_decimal(mantissa, -after - more, &value)) return parse_number_in_python(text, length, out);
    *out = negative ? -value : value;
    return GOOD;
}

static inline int is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* Return whether text is a number by the pattern `_NUMBER` of data/columns.py. */
static int is_number(const char *s, size_t length) {
    const char *end = s + length;
    if (s < end && (*s == '-' || *s == '+')) s++;
    if (end - s == 3 || end - s == 8) {
        const char *infinity = "infinity";
        size_t k = 0;
        while (s + k < end && (s[k] | 0x20) == infinity[k]) k++;
        if (s + k == end) return 1;
    }
    size_t digits = 0;
    for (; s < end && (unsigned char)(*s - '0') < 10; s++) digits++;
    if (s < end && *s == '.')
        for (s++; s < end && (unsigned char)(*s - '0') < 10; s++) digits++;
    if (!digits) return 0;
    if (s < end && (*s | 0x20) == 'e') {
        s++;
        if (s < end && (*s == '-' || *s == '+')) s++;
        if (s == end) return 0;
        while (s < end && (unsigned char)(*s - '0') < 10) s++;
    }
    return s == end;
}

/* -------------------------------------------------------------------------------- lines */

/* Return whether the id in a line of a run seems to hold a blank: in `q1 Q0 new york 1 0.9` the tag
 * is a number and the rank is not. Most tags begin with a letter. */
static inline int is_spaced(const char *const *text, const size_t *length, const char *end) {
    unsigned char first = (unsigned char)*text[5];
    if (first > '9' && (first | 0x20) != 'i') return 0;
    uint64_t rank;
    if (end - text[3] >= 8 && eight_digits(text[3], &rank) == (int)length[3]) return 0;
    return is_number(text[5], length[5]) && !is_number(text[3], length[3]);
}

/* Append the row of a line, whose field k is at text[k]. */
static inline int append_row(Reader *p, const char *const *text, const size_t *length,
                             const char *end) {
    int value_at = p->columns == 6 ? 4 : 3;
    size_t row = p->docs.length;
    int status = number(text[value_at], length[value_at], end, &p->values[row]);
    if (status) return status;
    double value = p->values[row];
    if (p->columns == 6 && is_spaced(text, length, end)) p->has_spaced_id = 1;
    if (!(fabs(value) < 0x1p53)) p->has_unusual_number = 1;
    else if (p->columns == 4 && (double)(int64_t)value != value) p->has_unusual_number = 1;
    int32_t code = query_code(p, text[0], length[0], end);
    if (code < 0) return NO_MEMORY;
    p->codes[row] = code;
    return column_append(&p->docs, text[2], length[2], end) ? NO_MEMORY : GOOD;
}

/* Read the line at *cursor, character by character, and move the cursor past it. */
static int read_line(Reader *p, const char **cursor, const char *end) {
    const char *field[6];
    size_t length[6];
    const char *s = *cursor;
    int count = 0;
    for (;;) {
        while (s < end && is_blank(*s)) s++;
        if (s == end || *s == '\n') break;
        if (count == 0 && *s == '#') {
            const char *stop = memchr(s, '\n', (size_t)(end - s));
            s = stop ? stop : end;
            break;
        }
        /* Also at a control character, which no field may hold. */
        if (count == p->columns) return MALFORMED;
        field[count] = s;
        while (s < end && (unsigned char)*s > ' ') s++;
        length[count] = (size_t)(s - field[count]);
        count++;
    }
    *cursor = s == end ? s : s + 1;
    if (count == 0) return GOOD;
    if (count != p->columns) return MALFORMED;
    return append_row(p, field, length, end);
}

/* Bytes scanned for separators at a time; they stay in the cache until their lines are read. */
#define PIECE 4096

/* Write the positions of blanks and other characters below 0x21 among at most PIECE bytes; return
 * how many there are. */
static size_t find_separators(const char *s, size_t length, uint16_t *at) {
    uint16_t *found = at;
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i blank = _mm_set1_epi8(' ');
    for (; i + 64 <= length; i += 64) {
        uint64_t mask = 0;
        for (int part = 0; part < 4; part++) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(s + i + 16 * part));
            __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, blank), bytes);
            mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(low) << (16 * part);
        }
        for (; mask; mask &= mask - 1) *found++ = (uint16_t)(i + (size_t)__builtin_ctzll(mask));
    }
#elif defined(__GNUC__)
    for (; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, 8);
        /* A byte of 0x21 or more gets its highest bit set, without a carry into the next. */
        uint64_t high = ((word & 0x7F7F7F7F7F7F7F7Fu) + 0x5F5F5F5F5F5F5F5Fu) | word;
        for (uint64_t mask = ~high & 0x8080808080808080u; mask; mask &= mask - 1)
            *found++ = (uint16_t)(i + ((size_t)__builtin_ctzll(mask) >> 3));
    }
#endif
    for (; i < length; i++)
        if ((unsigned char)s[i] <= ' ') *found++ = (uint16_t)i;
    return (size_t)(found - at);
}

/* Read whole lines. If single blanks separate the fields and nothing else surrounds them, the
 * positions of separators give all fields; other lines are read by `read_line`. */
static int read_lines(Reader *p, const char *s, const char *end) {
    uint16_t at[PIECE + 8];
    int columns = p->columns, status = GOOD;
    while (s < end && status == GOOD) {
        const char *piece = s;
        size_t length = (size_t)(end - s) < PIECE ? (size_t)(end - s) : PIECE;
        size_t count = find_separators(s, length, at), next = 0;
        while (next + (size_t)columns <= count && status == GOOD) {
            const char *field[6];
            size_t width[6];
            const char *begin = s;
            size_t line = next;
            int plain = *s != '#';
            for (int k = 0; k < columns; k++) {
                const char *stop = piece + at[next + (size_t)k];
                plain &= stop > begin && (k == columns - 1 || *stop == ' ' || *stop == '\t');
                field[k] = begin;
                width[k] = (size_t)(stop - begin);
                begin = stop + 1;
            }
            next += (size_t)columns;
            if (begin[-1] == '\r' && next < count && piece + at[next] == begin) {
                next++;
                begin++;
            }
            if (plain && begin[-1] == '\n') {
                s = begin;
                status = append_row(p, field, width, end);
            } else {
                status = read_line(p, &s, end);
                for (next = line; next < count && piece + at[next] < s;) next++;
            }
        }
        if (s == piece) status = read_line(p, &s, end); /* longer than a piece, or the last line */
    }
    return status;
}

/* Return whether bytes are valid UTF-8 (no overlong forms, no surrogates, nothing beyond U+10FFFF)
 * without control characters from DEL to U+009F. Control characters below the blank are found while
 * fields are read. */
static int is_plain_utf8(const unsigned char *s, const unsigned char *end) {
    while (s < end) {
        uint64_t word;
        /* DEL plus one sets the highest bit, as all bytes beyond ASCII have it. 64 bytes are tested
         * without a branch, so that compilers vectorize it. */
        while (end - s >= 64) {
            uint64_t words[8], flags = 0;
            memcpy(words, s, 64);
            for (int i = 0; i < 8; i++) flags |= words[i] | (words[i] + 0x0101010101010101u);
            if (flags & 0x8080808080808080u) break;
            s += 64;
        }
        while (end - s >= 8 && (memcpy(&word, s, 8),
                                !((word | (word + 0x0101010101010101u)) & 0x8080808080808080u)))
            s += 8;
        if (s == end) break;
        unsigned char lead = *s++;
        if (lead < 0x7F) continue;
        if (lead == 0x7F || (lead == 0xC2 && s < end && *s < 0xA0)) return 0;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - s < more) return 0;
        unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*s < low || *s > high) return 0;
        for (s++; more > 1; more--, s++)
            if ((*s & 0xC0) != 0x80) return 0;
    }
    return 1;
}

/* ----------------------------------------------------------- pieces, read by several threads */

/* The rows of one piece in the shared columns. */
typedef struct {
    size_t first, lines, rows; /* rows fill the first of the lines reserved */
    int reader;
    char *arena; /* text of its long ids */
    int64_t arena_size;
} Piece;

/* The rows of a file whose pieces, each of whole lines, several readers read at the same time. The
 * rows of a piece are placed behind as many lines as all earlier pieces have, so that nothing is
 * copied after it was read. */
typedef struct {
    PyObject_HEAD
    int columns, reader_count;
    Reader *readers;
    PyThread_type_lock lock; /* guards all that follows */
    Piece *pieces;
    size_t piece_count; /* pieces that have a place: the first ones */
    size_t piece_room, expected;
    size_t taken; /* pieces that a reader took */
    int reading; /* pieces being read now */
    int stopped;
    int has_unusual_number, has_spaced_id; /* those of all readers, after `finish` */
    size_t lines, room;
    View *views;
    int32_t *codes;
    double *values;
} Parser;

/* Release the lock for a moment. */
static void parser_wait(Parser *p) {
    PyThread_release_lock(p->lock);
#ifdef _WIN32
    SwitchToThread();
#else
    sched_yield();
#endif
    PyThread_acquire_lock(p->lock, WAIT_LOCK);
}

static int parser_grow(Parser *p, size_t room) {
    View *views = realloc(p->views, room * sizeof *views);
    if (!views) return NO_MEMORY;
    p->views = in_large_pages(views, room * sizeof *views);
    int32_t *codes = realloc(p->codes, room * sizeof *codes);
    if (!codes) return NO_MEMORY;
    p->codes = in_large_pages(codes, room * sizeof *codes);
    double *values = realloc(p->values, room * sizeof *values);
    if (!values) return NO_MEMORY;
    p->values = in_large_pages(values, room * sizeof *values);
    p->room = room;
    return GOOD;
}

/* Reserve rows for the next piece; the lock is held. */
static int parser_reserve(Parser *p, size_t lines) {
    if (p->piece_count == p->piece_room) {
        size_t count = p->piece_room ? p->piece_room * 2 : p->expected + 1;
        Piece *pieces = realloc(p->pieces, count * sizeof *pieces);
        if (!pieces) return NO_MEMORY;
        p->pieces = pieces;
        p->piece_room = count;
    }
    if (p->lines + lines > p->room) {
        while (p->reading && !p->stopped) parser_wait(p); /* nobody may write while the columns move */
        if (p->stopped) return p->stopped;
        /* Room for as many lines in each piece to come, or twice the present room. */
        size_t done = p->piece_count + 1;
        double more = p->expected > done ? (double)(p->expected - done) / (double)done : 0.0;
        double guess = (double)(p->lines + lines) * (1.02 * more + 1.0);
        if (!more) guess = 2.0 * (double)p->room;
        size_t least = p->lines + lines + 64;
        size_t room = guess > (double)least && guess < 1e12 ? (size_t)guess : least;
        /* Reserved memory costs nothing until it is used; if there is not enough, reserve only what
         * is needed. */
        if (parser_grow(p, room) && parser_grow(p, least)) return NO_MEMORY;
    }
    p->pieces[p->piece_count] = (Piece){.first = p->lines, .lines = lines};
    p->piece_count++;
    p->lines += lines;
    return GOOD;
}

/* Count lines; the last may have no line feed. */
static size_t count_lines(const char *s, size_t size) {
    size_t lines = size && s[size - 1] != '\n', i = 0;
#if defined(__SSE2__)
    const __m128i feed = _mm_set1_epi8('\n'), zero = _mm_setzero_si128();
    while (size - i >= 16) {
        __m128i counts = zero; /* one counter per byte, up to 255 */
        for (int times = 0; times < 255 && size - i >= 16; times++, i += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(s + i));
            counts = _mm_sub_epi8(counts, _mm_cmpeq_epi8(bytes, feed));
        }
        uint64_t sums[2];
        _mm_storeu_si128((__m128i *)sums, _mm_sad_epu8(counts, zero));
        lines += (size_t)(sums[0] + sums[1]);
    }
#endif
    for (; i < size; i++) lines += s[i] == '\n';
    return lines;
}

/* Read piece `number` (the next if negative); it waits until all earlier pieces have a place. */
static int parser_read_piece(Parser *p, Reader *r, long long number, const char *s, size_t size) {
    int status = GOOD;
    size_t lines = count_lines(s, size);
    if (!is_plain_utf8((const unsigned char *)s, (const unsigned char *)s + size)) status = MALFORMED;
    PyThread_acquire_lock(p->lock, WAIT_LOCK);
    if (number < 0) number = (long long)p->piece_count;
    while (!status && !p->stopped && p->piece_count < (size_t)number) parser_wait(p);
    if (p->stopped) status = p->stopped;
    if (!status) status = parser_reserve(p, lines);
    if (status) {
        p->stopped = status;
        PyThread_release_lock(p->lock);
        return status;
    }
    Piece piece = p->pieces[number];
    r->first = (int64_t)piece.first;
    r->docs = (Column){.views = p->views + piece.first, .room = lines};
    r->docs.first_arena = (uint32_t)number;
    r->codes = p->codes + piece.first;
    r->values = p->values + piece.first;
    p->reading++;
    PyThread_release_lock(p->lock);

    status = read_lines(r, s, s + size);
    if (r->docs.arena_count) {
        piece.arena = r->docs.arenas[0];
        piece.arena_size = r->docs.arena_sizes[0];
        void *fitted = realloc(piece.arena, (size_t)piece.arena_size);
        if (fitted) piece.arena = fitted;
    }
    free(r->docs.arenas);
    free(r->docs.arena_sizes);
    piece.rows = r->docs.length;
    piece.reader = (int)(r - p->readers);
    memset(&r->docs, 0, sizeof r->docs);

    PyThread_acquire_lock(p->lock, WAIT_LOCK);
    p->pieces[number] = piece;
    p->reading--;
    if (status) p->stopped = status;
    PyThread_release_lock(p->lock);
    return status;
}

/* feed(text, number, reader) -> False at a malformed line: read one piece. */
static PyObject *parser_feed(PyObject *self, PyObject *args) {
    Parser *p = (Parser *)self;
    PyObject *argument;
    long long number = -1;
    int which = 0;
    if (!PyArg_ParseTuple(args, "O|Li", &argument, &number, &which)) return NULL;
    if (which < 0 || which >= p->reader_count || number >= UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there is no such reader or piece");
        return NULL;
    }
    Reader *r = &p->readers[which];
    if (r->busy || (number >= 0 && (size_t)number < p->piece_count)) {
        PyErr_SetString(PyExc_RuntimeError, "the reader is at work, or the piece was read before");
        return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(argument, &buffer, PyBUF_SIMPLE)) return NULL;
    int status;
    r->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    status = parser_read_piece(p, r, number, buffer.buf, (size_t)buffer.len);
    Py_END_ALLOW_THREADS;
    r->busy = 0;
    PyBuffer_Release(&buffer);
    if (status == NO_MEMORY) return PyErr_NoMemory();
    return PyBool_FromLong(status == GOOD);
}

/* Fill a buffer, whose first byte is byte `at` of the file, from `filled` to at least `wanted`;
 * return how far, which is less only at the end of the file, or -1 if it cannot be read. */
static int64_t fill_buffer(Reader *r, int fd, int64_t at, int64_t filled, int64_t wanted) {
    while (filled < wanted) {
        int64_t room = (int64_t)r->buffer_size - filled;
#ifdef _WIN32
        if (_lseeki64(fd, at + filled, SEEK_SET) < 0) return -1;
        int64_t count = _read(fd, r->buffer + filled, room < INT32_MAX ? (unsigned)room : INT32_MAX);
#else
        int64_t count = pread(fd, r->buffer + filled, (size_t)room, (off_t)(at + filled));
#endif
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -1;
        if (!count) break;
        filled += count;
    }
    return filled;
}

/* Return the position of a newline in [from, to), or -1. */
static int64_t find_newline(const char *s, int64_t from, int64_t to) {
    const char *found = from < to ? memchr(s + from, '\n', (size_t)(to - from)) : NULL;
    return found ? found - s : -1;
}

/* Read the lines that begin in [begin, end) of a file, whole: bytes *first to *stop of the buffer.
 * The first `bom` bytes of the file are not text; a line of more than `longest` bytes is refused.
 * Twin: lines.LinePieces.between. */
static int read_lines_between(Reader *r, int fd, int64_t begin, int64_t end, int64_t bom,
                          int64_t longest, int64_t *first, int64_t *stop) {
    enum { TAIL = 1 << 12 }; /* bytes read past the end, where the last line is likely to end */
    int64_t at = begin ? begin - 1 : 0; /* the byte before tells whether a line begins at `begin` */
    if ((int64_t)r->buffer_size < end - at + TAIL) {
        char *buffer = realloc(r->buffer, (size_t)(end - at + TAIL));
        if (!buffer) return NO_MEMORY;
        r->buffer = buffer;
        r->buffer_size = (size_t)(end - at + TAIL);
    }
    int64_t filled = fill_buffer(r, fd, at, 0, end - at);
    if (filled < 0) return UNREAD;
    *first = *stop = bom < filled ? bom : filled;
    if (!filled) return GOOD; /* the file became shorter */
    if (begin) {
        *first = *stop = find_newline(r->buffer, 0, filled < end - begin ? filled : end - begin) + 1;
        if (!*first) return GOOD;
    }
    int64_t last = find_newline(r->buffer, end - 1 - at, filled);
    /* Start of the line that holds the last byte. */
    int64_t line = end - 1 - at < filled ? end - 1 - at : filled;
    while (last < 0 && line > 0 && r->buffer[line - 1] != '\n') line--;
    while (last < 0) { /* the line continues */
        if (filled == (int64_t)r->buffer_size) {
            char *buffer = realloc(r->buffer, r->buffer_size * 2);
            if (!buffer) return NO_MEMORY;
            r->buffer = buffer;
            r->buffer_size *= 2;
        }
        int64_t before = filled;
        filled = fill_buffer(r, fd, at, filled, filled + 1);
        if (filled < 0) return UNREAD;
        /* Or the file ends. */
        last = filled > before ? find_newline(r->buffer, before, filled) : filled - 1;
        if ((last < 0 ? filled : last) - line > longest) return TOO_LONG;
    }
    if (last + 1 > *first) *stop = last + 1;
    return GOOD;
}

/* fetch(fd, begin, end, bom, step, longest, reader, most) -> bytes read, 0 if none are left; -1 at
 * a malformed line, -2 at one that is too long
 *
 * Read at most `most` pieces of `step` bytes, each of whole lines. Each free reader takes the next
 * piece; none of them holds the interpreter. */
static PyObject *parser_fetch(PyObject *self, PyObject *args) {
    Parser *p = (Parser *)self;
    int fd, which;
    long long begin, end, bom, step, longest, most;
    if (!PyArg_ParseTuple(args, "iLLLLLiL", &fd, &begin, &end, &bom, &step, &longest, &which, &most))
        return NULL;
    if (which < 0 || which >= p->reader_count || begin < 0 || end < begin || bom < 0 || step < 1 ||
        step > INT32_MAX || longest < 1 || (end - begin) / step >= UINT32_MAX - 1) {
        PyErr_SetString(PyExc_ValueError, "there is no such reader or piece");
        return NULL;
    }
    Reader *r = &p->readers[which];
    if (r->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the reader is at work");
        return NULL;
    }
    int status = GOOD, trouble = 0;
    long long done = 0;
    r->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (; most > 0 && status == GOOD; most--) {
        PyThread_acquire_lock(p->lock, WAIT_LOCK);
        long long number = (long long)p->taken, low = begin + number * step;
        if (low < end) p->taken++;
        PyThread_release_lock(p->lock);
        if (low >= end) break;
        long long high = end - low < step ? end : low + step;
        int64_t first, stop;
        status = read_lines_between(r, fd, low, high, bom, longest, &first, &stop);
        trouble = errno;
        if (status) {
            PyThread_acquire_lock(p->lock, WAIT_LOCK);
            if (!p->stopped) p->stopped = MALFORMED; /* no reader need wait for this piece */
            PyThread_release_lock(p->lock);
        } else {
            status = parser_read_piece(p, r, number, r->buffer + first, (size_t)(stop - first));
        }
        done += high - low;
    }
    Py_END_ALLOW_THREADS;
    r->busy = 0;
    if (status == NO_MEMORY) return PyErr_NoMemory();
    if (status == UNREAD) {
        errno = trouble;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromLongLong(status == GOOD ? done : status == TOO_LONG ? -2 : -1);
}

/* stop(): let no reader wait for a piece that will not come. */
static PyObject *parser_stop(PyObject *self, PyObject *unused) {
    Parser *p = (Parser *)self;
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(p->lock, WAIT_LOCK);
    if (!p->stopped) p->stopped = MALFORMED;
    PyThread_release_lock(p->lock);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static void parser_reset(Parser *p) {
    for (int i = 0; i < p->reader_count; i++) {
        Reader *r = &p->readers[i];
        column_free(&r->queries);
        free(r->first_row);
        free(r->slots);
        free(r->buffer);
        *r = (Reader){.columns = p->columns, .last = -1};
    }
    for (size_t i = 0; i < p->piece_count; i++) free(p->pieces[i].arena);
    free(p->pieces);
    free(p->views);
    free(p->codes);
    free(p->values);
    p->pieces = NULL;
    p->views = NULL;
    p->codes = NULL;
    p->values = NULL;
    p->piece_count = p->piece_room = p->lines = p->room = p->taken = 0;
    p->stopped = 0;
}

/* The first row in which one reader saw a query. */
typedef struct {
    int64_t first_row;
    int32_t code;
    int reader;
} QueryMention;

static int compare_mentions(const void *a, const void *b) {
    int64_t x = ((const QueryMention *)a)->first_row, y = ((const QueryMention *)b)->first_row;
    return (x > y) - (x < y);
}

/* Number all queries in the order of their first rows: place[reader][code] becomes the code in
 * `all`. */
static int number_all_queries(Parser *p, Reader *all, int32_t **place) {
    size_t count = 0;
    for (int i = 0; i < p->reader_count; i++) count += p->readers[i].queries.length;
    QueryMention *mentions = malloc((count + 1) * sizeof *mentions);
    if (!mentions) return NO_MEMORY;
    int status = GOOD;
    size_t at = 0;
    for (int i = 0; i < p->reader_count; i++) {
        const Reader *r = &p->readers[i];
        place[i] = malloc((r->queries.length + 1) * sizeof **place);
        if (!place[i]) status = NO_MEMORY;
        for (size_t code = 0; code < r->queries.length; code++)
            mentions[at++] = (QueryMention){r->first_row[code], (int32_t)code, i};
    }
    if (p->reader_count > 1) qsort(mentions, count, sizeof *mentions, compare_mentions);
    for (size_t i = 0; i < count && status == GOOD; i++) {
        const QueryMention *m = &mentions[i];
        Text names = column_text(&p->readers[m->reader].queries);
        const View *v = &names.views[m->code];
        const char *name = text_at(&names, v);
        int32_t code = query_code(all, name, view_length(v), name + view_length(v));
        if (code < 0) status = NO_MEMORY;
        else place[m->reader][m->code] = code;
    }
    free(mentions);
    return status;
}

/* Give all rows the common codes, and close the gaps between pieces. */
static int join_pieces(Parser *p, Reader *all, Column *docs) {
    int32_t **place = calloc((size_t)p->reader_count, sizeof *place);
    int status = place ? number_all_queries(p, all, place) : NO_MEMORY;
    size_t row = 0;
    int arenas = 0;
    for (size_t i = 0; i < p->piece_count && status == GOOD; i++) {
        const Piece *piece = &p->pieces[i];
        const int32_t *codes = place[piece->reader];
        int32_t *own = p->codes + piece->first;
        for (size_t k = 0; k < piece->rows; k++) p->codes[row + k] = codes[own[k]];
        if (row != piece->first && piece->rows) {
            memmove(p->views + row, p->views + piece->first, piece->rows * sizeof *p->views);
            memmove(p->values + row, p->values + piece->first, piece->rows * sizeof *p->values);
        }
        row += piece->rows;
        arenas |= piece->arena != NULL;
    }
    for (int i = 0; place && i < p->reader_count; i++) free(place[i]);
    free(place);
    if (status) return status;
    docs->length = row;
    if (arenas) { /* arenas are numbered by piece */
        docs->arenas = calloc(p->piece_count, sizeof *docs->arenas);
        docs->arena_sizes = calloc(p->piece_count, sizeof *docs->arena_sizes);
        if (!docs->arenas || !docs->arena_sizes) return NO_MEMORY;
        docs->arena_count = p->piece_count;
        for (size_t i = 0; i < p->piece_count; i++) {
            docs->arenas[i] = p->pieces[i].arena ? p->pieces[i].arena : malloc(1);
            p->pieces[i].arena = NULL;
            if (!docs->arenas[i]) return NO_MEMORY;
            docs->arena_sizes[i] = p->pieces[i].arena_size;
        }
    }
    if (row) { /* return memory reserved in excess */
        void *fitted = realloc(p->codes, row * sizeof *p->codes);
        if (fitted) p->codes = fitted;
        fitted = realloc(p->values, row * sizeof *p->values);
        if (fitted) p->values = fitted;
        fitted = realloc(p->views, row * sizeof *p->views);
        if (fitted) p->views = fitted;
    }
    docs->views = p->views;
    docs->room = row;
    p->views = NULL;
    return GOOD;
}

/* finish() -> (queries, codes, documents, values): the columns of all rows read. */
static PyObject *parser_finish(PyObject *self, PyObject *unused) {
    Parser *p = (Parser *)self;
    if (p->reading || p->stopped) {
        PyErr_SetString(PyExc_RuntimeError, "the parser is at work, or gave up");
        return NULL;
    }
    Reader all = {.columns = p->columns, .last = -1};
    Column found = {0};
    int status;
    p->has_unusual_number = p->has_spaced_id = 0;
    for (int i = 0; i < p->reader_count; i++) {
        p->has_unusual_number |= p->readers[i].has_unusual_number;
        p->has_spaced_id |= p->readers[i].has_spaced_id;
    }
    p->reading = 1;
    Py_BEGIN_ALLOW_THREADS;
    status = join_pieces(p, &all, &found);
    Py_END_ALLOW_THREADS;
    p->reading = 0;
    PyObject *out = NULL;
    if (status == GOOD) {
        size_t rows = found.length;
        PyObject *codes = block_new(p->codes, rows * sizeof *p->codes);
        p->codes = NULL;
        PyObject *values = block_new(p->values, rows * sizeof *p->values);
        p->values = NULL;
        PyObject *queries = strings_new(&all.queries, NULL);
        PyObject *docs = strings_new(&found, NULL);
        if (codes && values && queries && docs) out = PyTuple_Pack(4, queries, codes, docs, values);
        Py_XDECREF(codes);
        Py_XDECREF(values);
        Py_XDECREF(queries);
        Py_XDECREF(docs);
    } else {
        PyErr_NoMemory();
    }
    column_free(&all.queries); /* empty unless something failed */
    free(all.first_row);
    free(all.slots);
    column_free(&found);
    parser_reset(p);
    return out;
}

static PyObject *parser_plain(PyObject *self, PyObject *unused) {
    return PyBool_FromLong(!((Parser *)self)->has_unusual_number);
}

static PyObject *parser_spaced(PyObject *self, PyObject *unused) {
    return PyBool_FromLong(((Parser *)self)->has_spaced_id);
}

static PyObject *parser_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    int columns, readers = 1;
    long long pieces = 0;
    if (!PyArg_ParseTuple(args, "i|iL", &columns, &readers, &pieces)) return NULL;
    if (columns != 6 && columns != 4) {
        PyErr_SetString(PyExc_ValueError, "a TREC file has 6 columns (run) or 4 (qrels)");
        return NULL;
    }
    if (readers < 1 || readers > 1024 || pieces < 0 || pieces >= UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "that many readers or pieces there cannot be");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Parser *p = (Parser *)alloc(type, 0);
    if (!p) return NULL;
    p->columns = columns;
    p->expected = (size_t)pieces;
    p->lock = PyThread_allocate_lock();
    p->readers = calloc((size_t)readers, sizeof *p->readers);
    if (!p->lock || !p->readers) {
        Py_DECREF((PyObject *)p);
        return PyErr_NoMemory();
    }
    p->reader_count = readers;
    parser_reset(p);
    return (PyObject *)p;
}

static void parser_dealloc(PyObject *self) {
    Parser *p = (Parser *)self;
    PyTypeObject *type = Py_TYPE(self);
    parser_reset(p);
    free(p->readers);
    if (p->lock) PyThread_free_lock(p->lock);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef parser_methods[] = {
    {"feed", parser_feed, METH_VARARGS,
     "Read a numbered piece of whole lines with one of the readers; False at a malformed line."},
    {"fetch", parser_fetch, METH_VARARGS,
     "Read pieces of a file with one of the readers, as long as there are any."},
    {"stop", parser_stop, METH_NOARGS, "Let no reader wait for pieces that will not come."},
    {"finish", parser_finish, METH_NOARGS,
     "Return the columns read: distinct queries, query of each row, documents, values."},
    {"plain", parser_plain, METH_NOARGS,
     "Return whether all numbers are below 2^53 in size, and grades whole."},
    {"spaced", parser_spaced, METH_NOARGS, "Return whether an id of a run seems to hold a blank."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot parser_slots[] = {
    {Py_tp_new, parser_new},
    {Py_tp_dealloc, parser_dealloc},
    {Py_tp_methods, parser_methods},
    {0, NULL},
};

static PyType_Spec parser_spec = {"rankproof.foundation._native.TrecParser", sizeof(Parser), 0,
                                  Py_TPFLAGS_DEFAULT, parser_slots};
