/* SPDX-License-Identifier: Apache-2.0 */
/*
 * txrocket.bulk in C: what is done to many messages at a time.
 *
 * txrocket/bulk/interface.py says what each function does, and txrocket/bulk/python does the same
 * in Python.  A function here serves the ordinary case.  If an argument does not fit a record,
 * batchRecords and encodeRecords call the function in Python, which raises the error.
 *
 * A caller in Python may be wrong, and a file or a frame may say anything: each function checks
 * types, sizes and sums before it uses them.  make test-sanitized holds it to that.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>
#include <stdint.h>
#include <string.h>

struct span { const char *data; Py_ssize_t size; };

/* --- results, and what is left to Python ----------------------------------------- */

static PyObject *BatchRecords, *EncodedRecords, *ReadRecords, *IndexEntries, *CollectedRecords,
    *DecodedSends;

/* A named tuple of values, whose reference it takes; NULL if there are none. */
static PyObject *named(PyObject *type, PyObject *values)
{
    Py_ssize_t size = values ? PyTuple_GET_SIZE(values) : 0;
    PyTypeObject *named = (PyTypeObject *)type;
    PyObject *result = values ? named->tp_alloc(named, size) : NULL;
    for (Py_ssize_t i = 0; result && i < size; i++)
        PyTuple_SET_ITEM(result, i, Py_NewRef(PyTuple_GET_ITEM(values, i)));
    Py_XDECREF(values);
    return result;
}

/* What the function of that name in Python gives, or raises. */
static PyObject *inPython(const char *name, PyObject *args)
{
    PyObject *module = PyImport_ImportModule("txrocket.bulk.python");
    PyObject *function = module ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *result = function ? PyObject_CallObject(function, args) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(function);
    return result;
}

/* --- numbers in network order -------------------------------------------------- */

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t get64(const uint8_t *at)
{
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    at[0] = value >> 24, at[1] = value >> 16, at[2] = value >> 8, at[3] = value;
    return at + 4;
}

static uint8_t *put64(uint8_t *at, uint64_t value)
{
    return put32(put32(at, value >> 32), value);
}

static uint8_t *putBytes(uint8_t *at, const void *data, size_t size)
{
    /* memcpy may not be given NULL, which an empty buffer can have. */
    if (size)
        memcpy(at, data, size);
    return at + size;
}

/* What follows a separator, or the end if there is none. */
static const char *behind(const char *stop, const char *end)
{
    return stop < end ? stop + 1 : end;
}

/* --- CRC-32, eight bytes at a time --------------------------------------------- */

static uint32_t crcTable[8][256];

static void makeCrcTable(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xEDB88320 : 0);
        crcTable[0][i] = value;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int step = 1; step < 8; step++)
            crcTable[step][i] =
                crcTable[step - 1][i] >> 8 ^ crcTable[0][crcTable[step - 1][i] & 255];
}

/* Sixteen bytes at a time where the processor multiplies without carries, as Intel's "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ" has it: a body of 16 KiB costs 4 us
 * less.  The numbers are powers of x modulo CRC-32's polynomial, bits reversed. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

static int multiplies;

#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static __m128i load(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

/* What is in front, moved by as many bits as the powers say, and added to what is there. */
FOLDING static __m128i fold(__m128i front, __m128i powers, __m128i there)
{
    __m128i low = _mm_clmulepi64_si128(front, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(front, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* Of 64 bytes or more, in sixteens. */
FOLDING static uint32_t foldAll(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i by512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    const __m128i by128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i by64 = _mm_set_epi64x(0, 0x163CD6124);
    const __m128i polynomial = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
    const __m128i halves = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i part[4];
    for (int i = 0; i < 4; i++)
        part[i] = load(data + 16 * i);
    part[0] = _mm_xor_si128(part[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int i = 0; i < 4; i++)
            part[i] = fold(part[i], by512, load(data + 16 * i));
    __m128i sum = part[0];
    for (int i = 1; i < 4; i++)
        sum = fold(sum, by128, part[i]);
    for (; size; data += 16, size -= 16)
        sum = fold(sum, by128, load(data));
    /* From 128 bits to 64, and to 32 by Barrett's reduction. */
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by128, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4),
                        _mm_clmulepi64_si128(_mm_and_si128(sum, halves), by64, 0x00));
    __m128i times = _mm_clmulepi64_si128(_mm_and_si128(sum, halves), polynomial, 0x10);
    times = _mm_clmulepi64_si128(_mm_and_si128(times, halves), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, times), 1);
}
#else
enum { multiplies = 0 };

static uint32_t foldAll(uint32_t crc, const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return crc;
}
#endif

static uint32_t crc32(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    if (multiplies && size >= 64) {
        crc = foldAll(crc, data, size & ~(size_t)15);
        data += size & ~(size_t)15;
        size &= 15;
    }
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                              (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crcTable[7][low & 255] ^ crcTable[6][low >> 8 & 255] ^
              crcTable[5][low >> 16 & 255] ^ crcTable[4][low >> 24] ^ crcTable[3][data[4]] ^
              crcTable[2][data[5]] ^ crcTable[1][data[6]] ^ crcTable[0][data[7]];
    }
    while (size--)
        crc = crc >> 8 ^ crcTable[0][(crc ^ *data++) & 255];
    return ~crc;
}

/* --- batches ------------------------------------------------------------------- */

enum { ITEM = 20, MAGIC = (int)0xDAA320A7, SEPARATOR = 2 };
enum { TOPIC_LIMIT = 127, PROPERTIES_LIMIT = 32767, BATCH_LIMIT = 14000 };

PyDoc_STRVAR(batchRecordsDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *batchRecords(PyObject *module, PyObject *args)
{
    Py_buffer data, topic, properties, bornHost, storeHost;
    int queueId, sysFlag, reconsumeTimes = 0;
    long long queueOffset, physicalOffset, bornTimestamp, storeTimestamp;
    PyObject *records = NULL, *sizes = NULL, *result = NULL;
    int declines = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*iLLiLy*Ly*|i", &data, &topic, &properties, &queueId,
                          &queueOffset, &physicalOffset, &sysFlag, &bornTimestamp, &bornHost,
                          &storeTimestamp, &storeHost, &reconsumeTimes)) {
        /* A number that does not fit its field. */
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear();
        return inPython("batchRecords", args);
    }
    const uint8_t *from = data.buf, *end = from + data.len;
    size_t hosts = bornHost.len + storeHost.len;
    size_t around = 74 + hosts + topic.len, total = 0;
    Py_ssize_t count = 0;
    if ((bornHost.len != 8 && bornHost.len != 20) ||
        (storeHost.len != 8 && storeHost.len != 20) || topic.len > TOPIC_LIMIT + 1)
        goto declined;
    /* All lengths are checked, and counted, before anything is made. */
    for (const uint8_t *at = from; at < end; count++) {
        if (end - at < ITEM + 2)
            goto declined;
        uint32_t size = get32(at), body = get32(at + 16);
        if (size > end - at || size < ITEM + 2 || body > size - ITEM - 2)
            goto declined;
        uint32_t own = at[ITEM + body] << 8 | at[ITEM + body + 1];
        if (ITEM + body + 2 + own != size)
            goto declined;
        size_t both = own + properties.len;
        if (own && properties.len && at[size - 1] != SEPARATOR)
            both++;
        if (both > PROPERTIES_LIMIT || around + body + both > INT32_MAX)
            goto declined;
        total += around + body + both;
        at += size;
    }
    if (!count || count > BATCH_LIMIT || queueOffset > INT64_MAX - count ||
        physicalOffset > INT64_MAX - (int64_t)total)
        goto declined;
    records = PyBytes_FromStringAndSize(NULL, total);
    sizes = PyList_New(count);
    if (!records || !sizes)
        goto done;
    sysFlag &= ~0x30;
    sysFlag |= (bornHost.len == 20 ? 0x10 : 0) | (storeHost.len == 20 ? 0x20 : 0);
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(records);
    Py_ssize_t number = 0;
    for (const uint8_t *at = from; at < end; number++) {
        uint32_t size = get32(at), length = get32(at + 16), own = size - ITEM - length - 2;
        const uint8_t *body = at + ITEM;
        int separated = own && properties.len && at[size - 1] != SEPARATOR;
        size_t both = own + separated + properties.len, all = around + length + both;
        to = put32(to, all);
        to = put32(to, MAGIC);
        to = put32(to, crc32(body, length) & 0x7FFFFFFF);
        to = put32(to, queueId);
        to = putBytes(to, at + 12, 4); /* the flag */
        to = put64(to, queueOffset + number);
        to = put64(to, physicalOffset);
        to = put32(to, sysFlag);
        to = put64(to, bornTimestamp);
        to = putBytes(to, bornHost.buf, bornHost.len);
        to = put64(to, storeTimestamp);
        to = putBytes(to, storeHost.buf, storeHost.len);
        to = put32(to, reconsumeTimes);
        to = put64(to, 0);
        to = put32(to, length);
        to = putBytes(to, body, length);
        to = putBytes(to, topic.buf, topic.len);
        *to++ = both >> 8;
        *to++ = both;
        to = putBytes(to, body + length + 2, own);
        if (separated)
            *to++ = SEPARATOR;
        to = putBytes(to, properties.buf, properties.len);
        PyObject *one = PyLong_FromSize_t(all);
        if (!one)
            goto done;
        PyList_SET_ITEM(sizes, number, one);
        physicalOffset += all;
        at += size;
    }
    result = named(BatchRecords, PyTuple_Pack(2, records, sizes));
    goto done;
declined:
    declines = 1;
done:
    Py_XDECREF(records);
    Py_XDECREF(sizes);
    PyBuffer_Release(&data);
    PyBuffer_Release(&topic);
    PyBuffer_Release(&properties);
    PyBuffer_Release(&bornHost);
    PyBuffer_Release(&storeHost);
    return declines ? inPython("batchRecords", args) : result;
}

PyDoc_STRVAR(suspectDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *suspect(PyObject *module, PyObject *args)
{
    struct span records;
    PyObject *sizes;
    Py_ssize_t end = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#O!", &records.data, &records.size, &PyList_Type, &sizes))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sizes); i++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyList_GET_ITEM(sizes, i));
        if (PyErr_Occurred())
            return NULL;
        if (size > records.size - end || end + size < 1) {
            PyErr_SetString(PyExc_ValueError, "sizes of other records");
            return NULL;
        }
        end += size;
        if (!records.data[end - 1])
            Py_RETURN_TRUE;
    }
    /* Sixteen zeros have one at a place that sixteen divides. */
    for (Py_ssize_t place = 0; place < records.size; place += 16) {
        Py_ssize_t from = place, to = place;
        while (to < records.size && !records.data[to])
            to++;
        while (to > place && from > 0 && !records.data[from - 1])
            from--;
        if (to - from >= 16)
            Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

/* --- Java's String.hashCode ---------------------------------------------------- */

static uint32_t hashText(uint32_t hash, PyObject *text)
{
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 unit = PyUnicode_READ(kind, data, i);
        if (unit > 0xFFFF) {
            /* Java counts the two surrogates. */
            hash = hash * 31 + (0xD800 + ((unit - 0x10000) >> 10));
            unit = 0xDC00 + ((unit - 0x10000) & 0x3FF);
        }
        hash = hash * 31 + unit;
    }
    return hash;
}

/* Of UTF-8; what is none counts as U+FFFD, as everywhere.  False: out of memory. */
static int hashBytes(uint32_t *hash, const char *data, Py_ssize_t size)
{
    uint32_t sum = *hash;
    Py_ssize_t i = 0;
    for (; i < size && !(data[i] & 0x80); i++)
        sum = sum * 31 + (uint8_t)data[i];
    if (i < size) {
        PyObject *rest = PyUnicode_DecodeUTF8(data + i, size - i, "replace");
        if (!rest)
            return 0;
        sum = hashText(sum, rest);
        Py_DECREF(rest);
    }
    *hash = sum;
    return 1;
}

/* The absolute value as Java has it, and 0 for the one that has none. */
static long positive(uint32_t hash)
{
    return hash <= 0x7FFFFFFF ? (long)hash : (long)(-hash & 0x7FFFFFFF);
}

/* --- dispatch ------------------------------------------------------------------ */

/* What properties say that the queues and the index need; the last of a name counts. */
static void readProperties(const char *data, Py_ssize_t size, struct span *tags,
                           struct span *keys, struct span *unique)
{
    const char *end = data + size;
    while (data < end) {
        const char *stop = memchr(data, 2, end - data);
        if (!stop)
            stop = end;
        const char *middle = memchr(data, 1, stop - data);
        if (middle && middle + 1 < stop) {
            struct span *found = NULL;
            size_t name = middle - data;
            if (name == 4 && !memcmp(data, "TAGS", 4))
                found = tags;
            else if (name == 4 && !memcmp(data, "KEYS", 4))
                found = keys;
            else if (name == 8 && !memcmp(data, "UNIQ_KEY", 8))
                found = unique;
            if (found)
                *found = (struct span){middle + 1, stop - middle - 1};
        }
        data = behind(stop, end);
    }
}

/* Bytes that grow. */
struct heap { uint8_t *data; size_t size, room; };

/* Where so many more bytes go; NULL if there is no memory for them. */
static uint8_t *more(struct heap *heap, size_t size)
{
    if (heap->size + size > heap->room) {
        size_t room = (heap->room + size) * 2;
        uint8_t *data = PyMem_Realloc(heap->data, room);
        if (!data)
            return NULL;
        heap->data = data, heap->room = room;
    }
    heap->size += size;
    return heap->data + heap->size - size;
}

static int addPair(struct heap *pairs, uint32_t hash, uint64_t offset)
{
    uint8_t *to = more(pairs, 12);
    if (to)
        put64(put32(to, positive(hash)), offset);
    return to != NULL;
}

static int addKeys(struct heap *pairs, uint32_t begun, const struct span *unique,
                   const struct span *keys, uint64_t offset)
{
    uint32_t hash = begun;
    if (unique->size &&
        (!hashBytes(&hash, unique->data, unique->size) || !addPair(pairs, hash, offset)))
        return 0;
    if (!keys->size)
        return 1;
    for (const char *at = keys->data, *end = at + keys->size; at < end;) {
        const char *stop = memchr(at, ' ', end - at);
        if (!stop)
            stop = end;
        hash = begun;
        if (stop > at && (!hashBytes(&hash, at, stop - at) || !addPair(pairs, hash, offset)))
            return 0;
        at = behind(stop, end);
    }
    return 1;
}

/* A record of the log; what is read of it. */
struct record {
    uint32_t size, crc;
    long queueId;
    long long number, time;
    struct span body, topic, properties, storeHost;
};

/* Read a record of an ordinary message: one that is in its queue. */
static int readRecord(const uint8_t *at, Py_ssize_t left, long long offset, struct record *found)
{
    if (left < 88)
        return 0;
    uint32_t size = get32(at), sysFlag = get32(at + 36);
    /* Halves and rollbacks are not in their queues. */
    if (size > left || size < 91 || get32(at + 4) != (uint32_t)MAGIC || sysFlag & 4 ||
        (long long)get64(at + 28) != offset || offset < 0 || offset > INT64_MAX - size)
        return 0;
    size_t born = sysFlag & 0x10 ? 20 : 8, store = sysFlag & 0x20 ? 20 : 8;
    size_t position = 48 + born + 8 + store + 12;
    if (size < position + 4)
        return 0;
    uint32_t body = get32(at + position);
    if (body > size - position - 4)
        return 0;
    found->storeHost = (struct span){(const char *)at + position - 12 - store, store};
    found->body = (struct span){(const char *)at + position + 4, body};
    position += 4 + body;
    if (size < position + 1 || size < position + 1 + at[position] + 2)
        return 0;
    found->topic = (struct span){(const char *)at + position + 1, at[position]};
    position += 1 + at[position];
    size_t length = at[position] << 8 | at[position + 1];
    if (size != position + 2 + length)
        return 0;
    found->properties = (struct span){(const char *)at + position + 2, length};
    found->size = size;
    found->crc = get32(at + 8);
    found->queueId = (int32_t)get32(at + 12);
    found->number = get64(at + 20);
    found->time = get64(at + 48 + born);
    return 1;
}

static int hasByte(const struct span *text, int byte)
{
    return text->size && memchr(text->data, byte, text->size);
}

/* Whether a topic can be the name of a folder, and is in ASCII. */
static int isName(const struct span *topic)
{
    for (Py_ssize_t i = 0; i < topic->size; i++)
        if (!topic->data[i] || topic->data[i] == '/' || topic->data[i] & 0x80)
            return 0;
    return 1;
}

/* Whether nothing of a record can have been lost: see torn in txrocket.store.log.commitlog, which
   looks closer at the others. */
static int isSound(const struct record *each)
{
    int host = 0;
    for (Py_ssize_t i = 0; i < each->storeHost.size; i++)
        host |= each->storeHost.data[i];
    return host && each->time > 0 && each->number >= 0 && each->queueId >= 0 &&
           0 < each->topic.size && each->topic.size <= TOPIC_LIMIT &&
           isName(&each->topic) &&
           each->properties.size <= PROPERTIES_LIMIT && !hasByte(&each->properties, 0) &&
           (!each->body.size || (crc32((const uint8_t *)each->body.data, each->body.size) &
                                 0x7FFFFFFF) == each->crc);
}

PyDoc_STRVAR(checkRecordsDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *checkRecords(PyObject *module, PyObject *args)
{
    const uint8_t *data;
    Py_ssize_t size, position;
    long long offset, limit;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#nLL", &data, &size, &position, &offset, &limit))
        return NULL;
    if (position < 0 || position > size)
        return PyErr_Format(PyExc_ValueError, "%zd is not in %zd bytes", position, size);
    struct record each, first = {.time = 0};
    while (readRecord(data + position, size - position, offset, &each) && each.size <= limit &&
           (!first.time || each.time == first.time) && isSound(&each)) {
        first = each;
        position += each.size, offset += each.size;
    }
    return PyLong_FromSsize_t(position);
}

/* Topics whose entries have something else than the hash of a tag. */
static int isTimed(const struct span *topic)
{
    return (topic->size == 19 && !memcmp(topic->data, "SCHEDULE_TOPIC_XXXX", 19)) ||
           (topic->size == 13 && !memcmp(topic->data, "rmq_sys_timer", 13));
}

/* Add to a list what was made for it; False: that failed, or it could not be made. */
static int addNew(PyObject *list, PyObject *made)
{
    int failed = !made || PyList_Append(list, made);
    Py_XDECREF(made);
    return !failed;
}

/* The queue that a record goes to. */
struct queue {
    struct span topic;
    long id;
    uint32_t hash;      /* of the topic and '#' */
    PyObject *key;      /* its topic and number */
    PyObject *tail;     /* its entries that are in no file yet */
    long long next;     /* the queue offset of the next one */
    int awaited;
};

static PyObject *tailName, *filedName;

/* Find the queue of a record; False: that failed.  known: by key, those that have something in
   memory; find: for the others; awaited: the keys of those of which somebody wants to hear. */
static int findQueue(struct queue *queue, const struct record *each, PyObject *known,
                     PyObject *find, PyObject *awaited)
{
    int sameTopic = queue->key && each->topic.size == queue->topic.size &&
                    !memcmp(each->topic.data, queue->topic.data, each->topic.size);
    Py_CLEAR(queue->key);
    Py_CLEAR(queue->tail);
    queue->key = Py_BuildValue("s#l", each->topic.data, each->topic.size, each->queueId);
    if (!queue->key)
        return 0;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(known, queue->key));
    if (!found && !PyErr_Occurred())
        found = PyObject_CallOneArg(find, queue->key);
    PyObject *filed = found ? PyObject_GetAttr(found, filedName) : NULL;
    queue->tail = found ? PyObject_GetAttr(found, tailName) : NULL;
    Py_XDECREF(found);
    if (queue->tail && filed && !PyByteArray_Check(queue->tail))
        PyErr_SetString(PyExc_TypeError, "a queue's tail is a bytearray");
    if (!PyErr_Occurred()) {
        long long next = PyLong_AsLongLong(filed), tail = PyByteArray_GET_SIZE(queue->tail) / 20;
        if (next > INT64_MAX - tail)
            PyErr_SetString(PyExc_OverflowError, "a queue's offset does not fit 64 bits");
        else
            queue->next = next + tail;
    }
    Py_XDECREF(filed);
    if (PyErr_Occurred())
        return 0;
    queue->awaited = awaited == Py_None ? 1 : PySequence_Contains(awaited, queue->key);
    if (!sameTopic) {
        queue->hash = 0;
        if (hashBytes(&queue->hash, each->topic.data, each->topic.size))
            queue->hash = queue->hash * 31 + '#';
    }
    queue->topic = each->topic, queue->id = each->queueId;
    return !PyErr_Occurred();
}

/* Add an entry to its queue; False: out of memory. */
static int addEntry(struct queue *queue, long long offset, uint32_t size, uint32_t hash)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(queue->tail);
    if (PyByteArray_Resize(queue->tail, before + 20))
        return 0;
    uint8_t *to = (uint8_t *)PyByteArray_AS_STRING(queue->tail) + before;
    put64(put32(put64(to, offset), size), (int64_t)(int32_t)hash);
    queue->next++;
    return 1;
}

PyDoc_STRVAR(readRecordsDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *readRecords(PyObject *module, PyObject *args)
{
    const uint8_t *data;
    Py_ssize_t size, position = 0, count = 0;
    long long offset, time = 0;
    PyObject *known, *find, *awaited, *told = NULL, *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#nLO!OO", &data, &size, &position, &offset, &PyDict_Type, &known,
                          &find, &awaited))
        return NULL;
    if (position < 0 || position > size)
        return PyErr_Format(PyExc_ValueError, "%zd is not in %zd bytes", position, size);
    struct heap pairs = {0};
    struct queue queue = {0};
    struct record each;
    told = PyList_New(0);
    while (told && readRecord(data + position, size - position, offset, &each) &&
           !isTimed(&each.topic) && (!count || each.time == time)) {
        if ((!queue.key || each.queueId != queue.id || each.topic.size != queue.topic.size ||
             memcmp(each.topic.data, queue.topic.data, each.topic.size)) &&
            !findQueue(&queue, &each, known, find, awaited)) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
                goto done;
            PyErr_Clear();
            break;
        }
        if (each.number != queue.next || each.number == INT64_MAX)
            break;
        struct span tags = {0}, keys = {0}, unique = {0};
        uint32_t hash = 0;
        readProperties(each.properties.data, each.properties.size, &tags, &keys, &unique);
        if (!hashBytes(&hash, tags.data, tags.size) ||
            !addKeys(&pairs, queue.hash, &unique, &keys, offset) ||
            !addEntry(&queue, offset, each.size, hash)) {
            if (!PyErr_Occurred())
                PyErr_NoMemory();
            goto done;
        }
        if (queue.awaited && !addNew(told, Py_BuildValue("LOLL", offset, queue.key, each.number,
                                                         (long long)(int32_t)hash)))
            goto done;
        time = each.time;
        count++, position += each.size, offset += each.size;
    }
    if (told)
        result = named(ReadRecords, Py_BuildValue("nny#LO", position, count,
                                                  pairs.data ? (char *)pairs.data : "",
                                                  (Py_ssize_t)pairs.size, time, told));
done:
    Py_XDECREF(queue.key);
    Py_XDECREF(queue.tail);
    Py_XDECREF(told);
    PyMem_Free(pairs.data);
    return result;
}

/* --- the index ----------------------------------------------------------------- */

PyDoc_STRVAR(indexEntriesDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *indexEntries(PyObject *module, PyObject *args)
{
    struct span pairs;
    PyObject *table, *dirty;
    long long count, slots, seconds, run, first = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#LLLO!O!L", &pairs.data, &pairs.size, &count, &slots, &seconds,
                          &PyByteArray_Type, &table, &PyByteArray_Type, &dirty, &run))
        return NULL;
    if (slots < 1 || slots > UINT32_MAX || run < 1 || PyByteArray_GET_SIZE(table) / 4 < slots ||
        (slots - 1) / run >= PyByteArray_GET_SIZE(dirty)) {
        PyErr_SetString(PyExc_ValueError, "a slot is missing");
        return NULL;
    }
    Py_ssize_t number = pairs.size / 12;
    if (count < 0 || count > INT32_MAX - number || seconds < INT32_MIN || seconds > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "an index entry's number or time does not fit 32 bits");
        return NULL;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, number * 20);
    if (!data)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(data), *kept = (uint8_t *)PyByteArray_AS_STRING(table);
    const uint8_t *from = (const uint8_t *)pairs.data;
    for (Py_ssize_t i = 0; i < number; i++, count++, from += 12) {
        uint32_t slot = get32(from) % (uint32_t)slots;
        long long before = (int32_t)get32(kept + (size_t)slot * 4);
        if (before <= 0 || before >= count) {
            before = 0;
            first++;
        }
        to = putBytes(to, from, 12);
        to = put32(to, seconds);
        to = put32(to, before);
        put32(kept + (size_t)slot * 4, count);
        PyByteArray_AS_STRING(dirty)[slot / run] = 1;
    }
    return named(IndexEntries, Py_BuildValue("NL", data, first));
}

/* --- pulls --------------------------------------------------------------------- */

/* Reading a mapped file raises SIGBUS where the disk fails, or the file has become shorter.
 * A server's own process has guardBus lead such a fault back to the copy of records that met
 * it.  Any other program is left alone: records are then read by pread. */
static __thread sigjmp_buf *copying;
static struct sigaction formerBus;
static volatile sig_atomic_t guarded;

static void onBus(int number, siginfo_t *info, void *context)
{
    /* What another process has sent is no fault of the copy. */
    int sent = info->si_code <= 0;
    (void)context;
    if (copying && !sent)
        siglongjmp(*copying, 1);
    if (sent && formerBus.sa_handler == SIG_IGN)
        return;
    /* A fault comes again as soon as this returns, and meets the former handler. */
    guarded = 0;
    sigaction(SIGBUS, &formerBus, NULL);
    if (sent)
        raise(number);
}

PyDoc_STRVAR(guardBusDoc, "Have collectRecords survive a mapped file that cannot be read: takes over\n"
                          "SIGBUS for the whole process.  For a server's own process only.");

static PyObject *guardBus(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (!guarded) {
        struct sigaction ours = {.sa_sigaction = onBus, .sa_flags = SA_NODEFER | SA_SIGINFO};
        if (sigaction(SIGBUS, &ours, &formerBus))
            return PyErr_SetFromErrno(PyExc_OSError);
        guarded = 1;
    }
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(releaseBusDoc, "Give SIGBUS back to the handler that guardBus found.");

static PyObject *releaseBus(PyObject *module, PyObject *unused)
{
    struct sigaction now;
    (void)module, (void)unused;
    /* A handler that was set since then stays. */
    if (guarded && sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == onBus)
        sigaction(SIGBUS, &formerBus, NULL);
    guarded = 0;
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(isGuardedDoc, "Whether guardBus is in force, so that collectRecords may be given a mapped file.");

static PyObject *isGuarded(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(guarded);
}

/* A part of a file of the log. */
struct stretch { size_t position, size; };

static __attribute__((noinline)) void copyAll(char *to, const char *from,
                                              const struct stretch *each,
                                              const struct stretch *end)
{
    for (; each < end; to += each++->size)
        memcpy(to, from + each->position, each->size);
}

/* False if the disk does not give it. */
static int copyStretches(char *to, const char *from, const struct stretch *first,
                         const struct stretch *end)
{
    sigjmp_buf back;
    if (sigsetjmp(back, 0)) {
        copying = NULL;
        return 0;
    }
    copying = &back;
    copyAll(to, from, first, end);
    copying = NULL;
    return 1;
}

/* The same from a file that is not mapped. */
static int readStretches(char *to, int handle, const struct stretch *each,
                         const struct stretch *end)
{
    for (; each < end; to += each++->size)
        if (pread(handle, to, each->size, each->position) != (ssize_t)each->size)
            return 0;
    return 1;
}

/* What will be copied soon: messages of other queues lie between, so that the processor does
 * not guess where it goes on.  This never faults. */
static void foresee(const char *data, size_t size)
{
    for (size_t at = 0; at < size; at += 64)
        __builtin_prefetch(data + at, 0, 2);
}

enum { SMALLEST = 91 };

/* Whether the parts of a record of SMALLEST bytes or more add up to its size. */
static int partsFit(const uint8_t *record, uint64_t size, const struct span *topic, int checkBody)
{
    uint32_t flags = get32(record + 36);
    uint64_t start = 88 + (flags & 0x10 ? 12 : 0) + (flags & 0x20 ? 12 : 0);
    if (start + 3 > size)
        return 0;
    uint64_t bodySize = get32(record + start - 4), at = start + bodySize;
    if (at + 3 > size)
        return 0;
    uint64_t topicSize = record[at++], end = at + topicSize;
    if (topicSize > TOPIC_LIMIT || end + 2 > size)
        return 0;
    uint64_t properties = (uint64_t)record[end] << 8 | record[end + 1];
    if (properties > PROPERTIES_LIMIT || end + 2 + properties != size)
        return 0;
    if (topic && ((Py_ssize_t)topicSize != topic->size || memcmp(record + at, topic->data, topicSize)))
        return 0;
    return !checkBody || !bodySize ||
           (crc32(record + start, bodySize) & 0x7FFFFFFF) == get32(record + 8);
}

/* The queue that entries are of. */
struct origin { struct span topic; uint32_t queueId; uint64_t first; };

/* Whether bytes are the record that an entry stands for. */
static int fitsEntry(const uint8_t *record, const uint8_t *entry, const struct origin *from,
                     uint32_t index, int64_t checkBelow)
{
    uint64_t offset = get64(entry);
    uint32_t size = get32(entry + 8);
    return get32(record) == size && get32(record + 4) == (uint32_t)MAGIC &&
           get32(record + 12) == from->queueId && get64(record + 20) == from->first + index &&
           get64(record + 28) == offset &&
           partsFit(record, size, &from->topic, (int64_t)offset < checkBelow);
}

PyDoc_STRVAR(collectRecordsDoc,
             "Records that entries of a queue stand for, read from one file of the log, which is\n"
             "mapped, or given by its handle: the records, how many there are, and how many entries\n"
             "were looked at.  None if they are not all in that file, before the end of what is\n"
             "written, and near to it, or if one is not the record of its entry.  Bodies of records\n"
             "before checkBelow are compared with their CRC.");

static PyObject *collectRecords(PyObject *module, PyObject *args)
{
    struct span data;
    struct origin from;
    Py_buffer mapped = {0};
    long long base, written, near, checkBelow, firstEntry;
    Py_ssize_t most, mostBytes, largest, count = 0, size = 0, looked = 0, pieces = 0;
    PyObject *source, *matches, *records = NULL, *result = NULL;
    struct stretch stretches[256];
    uint32_t some[256], *chosen = some;
    int handle = -1, isMapped;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#OLLLnnOy#ILnL", &data.data, &data.size, &source, &base, &written,
                          &near, &most, &mostBytes, &matches, &from.topic.data, &from.topic.size,
                          &from.queueId, &firstEntry, &largest, &checkBelow))
        return NULL;
    from.first = (uint64_t)firstEntry;
    if (!(isMapped = !PyLong_Check(source))) {
        handle = (int)PyLong_AsLong(source);
        if (handle == -1 && PyErr_Occurred())
            return NULL;
    } else if (PyObject_GetBuffer(source, &mapped, PyBUF_SIMPLE))
        return NULL;
    Py_ssize_t left = data.size / 20, room = most < left ? most : left;
    if (room > 256 && !(chosen = PyMem_Malloc(room * sizeof *chosen))) {
        PyErr_NoMemory();
        goto done;
    }
    if (base < 0 || near < 0 || written < 0 || base > INT64_MAX - mapped.len)
        goto declined;
    long long first = written - near > base ? written - near : base;
    long long end = isMapped && base + mapped.len < written ? base + mapped.len : written;
    const uint8_t *at = (const uint8_t *)data.data;
    for (; left; left--, at += 20) {
        int64_t offset = get64(at);
        uint32_t length = get32(at + 8);
        if (offset < first || offset > end || length > end - offset || length < SMALLEST ||
            (Py_ssize_t)length > largest)
            goto declined;
        if (count && (count >= most || size + (Py_ssize_t)length > mostBytes))
            break;
        looked++;
        if (matches != Py_None) {
            PyObject *wanted = PyObject_CallFunction(matches, "L", (long long)get64(at + 12));
            int is = wanted ? PyObject_IsTrue(wanted) : -1;
            Py_XDECREF(wanted);
            if (is < 0)
                goto done;
            if (!is)
                continue;
        }
        size_t position = offset - base;
        if (isMapped)
            foresee((const char *)mapped.buf + position, length);
        if (pieces && stretches[pieces - 1].position + stretches[pieces - 1].size == position)
            stretches[pieces - 1].size += length;
        else {
            if (pieces == 256)
                goto declined;
            stretches[pieces++] = (struct stretch){position, length};
        }
        if (count == room)
            goto declined;
        chosen[count++] = looked - 1, size += length;
    }
    if (!count)
        goto declined;
    if (!(records = PyBytes_FromStringAndSize(NULL, size)))
        goto done;
    char *to = PyBytes_AS_STRING(records);
    if (!(isMapped ? copyStretches(to, mapped.buf, stretches, stretches + pieces)
                   : readStretches(to, handle, stretches, stretches + pieces)))
        goto declined;
    /* The copy is what is looked at: the file may change, or fail, at any time. */
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint8_t *entry = (const uint8_t *)data.data + (size_t)chosen[i] * 20;
        if (!fitsEntry((const uint8_t *)to, entry, &from, chosen[i], checkBelow))
            goto declined;
        to += get32(entry + 8);
    }
    result = named(CollectedRecords, Py_BuildValue("Onn", records, count, looked));
    goto done;
declined:
    /* What went wrong is found out, and told, by others. */
    result = Py_NewRef(Py_None);
done:
    if (chosen != some)
        PyMem_Free(chosen);
    Py_XDECREF(records);
    if (isMapped)
        PyBuffer_Release(&mapped);
    return result;
}

PyDoc_STRVAR(readableRecordsDoc,
             "Where the records that bytes begin with end: at the first byte that does not begin a\n"
             "record whose parts add up to its size, and whose body matches its CRC, if it has one.");

static PyObject *readableRecords(PyObject *module, PyObject *args)
{
    struct span data;
    Py_ssize_t position = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#", &data.data, &data.size))
        return NULL;
    while (data.size - position >= SMALLEST) {
        const uint8_t *record = (const uint8_t *)data.data + position;
        uint32_t size = get32(record);
        if (get32(record + 4) != (uint32_t)MAGIC || size < SMALLEST ||
            size > (size_t)(data.size - position) ||
            !partsFit(record, size, NULL, get32(record + 8) != 0))
            break;
        position += size;
    }
    return PyLong_FromSsize_t(position);
}

/* Sync one file.  0, or the number of an error; opened: whether it is the sync's. */
static int syncPath(const char *path, int *opened)
{
    int handle, failed;
    do
        handle = open(path, O_RDWR | O_CLOEXEC);
    while (handle < 0 && errno == EINTR);
    *opened = handle >= 0;
    if (handle < 0)
        return errno == ENOENT ? 0 : errno;
    do
        failed = fdatasync(handle) ? errno : 0;
    while (failed == EINTR);
    close(handle);
    return failed;
}

PyDoc_STRVAR(syncPathsDoc, "Sync files, one after the other, those that are gone left out; other\n"
                           "threads go on meanwhile.  The number of the error of a sync that failed,\n"
                           "or 0; an OSError is raised if a file cannot be opened.");

static PyObject *syncPaths(PyObject *module, PyObject *paths)
{
    (void)module;
    PyObject *list = PySequence_List(paths), *result = NULL;
    Py_ssize_t count = list ? PyList_GET_SIZE(list) : 0, done = 0;
    PyObject **names = list ? PyMem_Calloc(count + 1, sizeof *names) : NULL;
    int error = 0, opened = 0;
    if (!names) {
        Py_XDECREF(list);
        return list ? PyErr_NoMemory() : NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyUnicode_FSConverter(PyList_GET_ITEM(list, i), &names[i]))
            goto done;
    Py_BEGIN_ALLOW_THREADS;
    while (done < count && !(error = syncPath(PyBytes_AS_STRING(names[done]), &opened)))
        done++;
    Py_END_ALLOW_THREADS;
    if (error && !opened) {
        errno = error;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, PyList_GET_ITEM(list, done));
    } else
        result = PyLong_FromLong(error);
done:
    for (Py_ssize_t i = 0; i < count; i++)
        Py_XDECREF(names[i]);
    PyMem_Free(names);
    Py_DECREF(list);
    return result;
}

/* --- sends --------------------------------------------------------------------- */

/* A reader of JSON as RocketMQ's clients write it, without a blank.  It knows nothing
 * of errors: whatever it does not expect makes it give up. */
struct json { const uint8_t *at, *end; };

static int take(struct json *in, char wanted)
{
    return in->at < in->end && *in->at == wanted && in->at++;
}

/* A string without escapes, in ASCII. */
static int takePlain(struct json *in, struct span *text)
{
    if (!take(in, '"'))
        return 0;
    const uint8_t *start = in->at;
    while (in->at < in->end && *in->at != '"') {
        if (*in->at < 0x20 || *in->at >= 0x80 || *in->at == '\\')
            return 0;
        in->at++;
    }
    *text = (struct span){(const char *)start, in->at - start};
    return take(in, '"');
}

/* A number that fits into so many bits, as Python reads one: no zero in front. */
static int readNumber(const char *at, const char *end, int bits, int64_t *value)
{
    int negative = at < end && *at == '-';
    uint64_t sum = 0, most = (1ull << (bits - 1)) - !negative;
    at += negative;
    if (at == end || end - at > 19 || (*at == '0' && (end - at > 1 || negative)))
        return 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        sum = sum * 10 + (*at - '0');
    }
    if (sum > most)
        return 0;
    *value = negative ? (int64_t)(0 - sum) : (int64_t)sum;
    return 1;
}

static int takeNumber(struct json *in, int64_t *value)
{
    const uint8_t *start = in->at;
    while (in->at < in->end && ((*in->at >= '0' && *in->at <= '9') || *in->at == '-'))
        in->at++;
    return readNumber((const char *)start, (const char *)in->at, 32, value);
}

/* A string with escapes, to UTF-8.  False too if it is longer than there is room for. */
static int takeText(struct json *in, char *to, size_t room, struct span *text)
{
    char *start = to, *limit = to + room;
    int ascii = 1;
    if (!take(in, '"'))
        return 0;
    while (in->at < in->end && *in->at != '"') {
        uint8_t byte = *in->at++;
        if (to == limit || byte < 0x20)
            return 0;
        if (byte == '\\') {
            if (in->at == in->end)
                return 0;
            switch (*in->at++) {
            case '"': byte = '"'; break;
            case '\\': byte = '\\'; break;
            case '/': byte = '/'; break;
            case 'b': byte = '\b'; break;
            case 'f': byte = '\f'; break;
            case 'n': byte = '\n'; break;
            case 'r': byte = '\r'; break;
            case 't': byte = '\t'; break;
            case 'u': {
                unsigned unit = 0;
                if (in->end - in->at < 4)
                    return 0;
                for (int i = 0; i < 4; i++) {
                    int digit = *in->at++, upper = digit & ~0x20;
                    if (digit >= '0' && digit <= '9')
                        unit = unit << 4 | (digit - '0');
                    else if (upper >= 'A' && upper <= 'F')
                        unit = unit << 4 | (upper - 'A' + 10);
                    else
                        return 0;
                }
                if (unit >= 0x80)
                    return 0;
                byte = unit;
                break;
            }
            default: return 0;
            }
        } else if (byte >= 0x80)
            ascii = 0;
        *to++ = byte;
    }
    *text = (struct span){start, to - start};
    if (!ascii) {
        PyObject *checked = PyUnicode_DecodeUTF8(start, to - start, NULL);
        if (!checked) {
            PyErr_Clear();
            return 0;
        }
        Py_DECREF(checked);
    }
    return take(in, '"');
}

static int is(const struct span *text, const char *other)
{
    return (size_t)text->size == strlen(other) && !memcmp(text->data, other, text->size);
}

/* Properties with a meaning for the broker: their messages go the long way. */
static int special(const char *name, size_t size)
{
    static const char *const names[] = {
        "TRAN_MSG", "DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS",
        "__STARTDELIVERTIME", "CLUSTER"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == size && !memcmp(names[i], name, size))
            return 1;
    return 0;
}

/* Properties as the log gets them, without WAIT=true and with the cluster's; NULL if
 * they are not ordinary, without an exception, or out of memory, with one. */
static PyObject *storedProperties(const struct span *text, const struct span *cluster)
{
    char stored[PROPERTIES_LIMIT + 1];
    size_t used = 0;
    const char *at = text->size ? text->data : "", *end = at + text->size;
    while (at < end) {
        const char *stop = memchr(at, 2, end - at);
        if (!stop)
            stop = end;
        size_t size = stop - at;
        const char *middle = memchr(at, 1, size);
        if (memchr(at, 0, size) || (middle && special(at, middle - at)))
            return NULL;
        if (middle && middle - at == 4 && !memcmp(at, "WAIT", 4)) {
            if (size != 9 || memcmp(at, "WAIT\1true", 9))
                return NULL;
        } else {
            if (used + size + 1 > PROPERTIES_LIMIT)
                return NULL;
            memcpy(stored + used, at, size);
            used += size;
            stored[used++] = 2;
        }
        at = behind(stop, end);
    }
    if (used + cluster->size > PROPERTIES_LIMIT)
        return NULL;
    memcpy(stored + used, cluster->data, cluster->size);
    return PyBytes_FromStringAndSize(stored, used + cluster->size);
}

/* What is in every header. */
struct head { int64_t code, opaque, flag, version; };

/* The fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE. */
struct send {
    struct head head;
    int batch;
    int64_t queueId, sysFlag, born, ownFlag, reconsumeTimes, ignored;
    struct span topic, properties;
};

/* One of the fields that are plain text. */
static int setField(struct send *send, int letter, const struct span *text)
{
    const char *end = text->data + text->size;
    switch (letter) {
    case 'b': send->topic = *text; return 1;
    case 'd': case 'l': return readNumber(text->data, end, 32, &send->ignored);
    case 'e': return readNumber(text->data, end, 32, &send->queueId);
    case 'f': return readNumber(text->data, end, 32, &send->sysFlag);
    case 'g': return readNumber(text->data, end, 64, &send->born);
    case 'h': return readNumber(text->data, end, 32, &send->ownFlag);
    case 'j': return readNumber(text->data, end, 32, &send->reconsumeTimes);
    case 'k': return is(text, "true") || is(text, "false");
    case 'm': return is(text, "false") || (send->batch && is(text, "true"));
    }
    return 1;
}

static int takeSend(struct json *in, void *target, char *room)
{
    struct send *send = target;
    unsigned seen = 0;
    struct span name, text;
    if (!take(in, '{'))
        return 0;
    do {
        if (!takePlain(in, &name) || name.size != 1 || !take(in, ':'))
            return 0;
        int letter = name.data[0];
        if (letter < 'a' || letter > 'n' || seen & 1u << (letter - 'a'))
            return 0;
        seen |= 1u << (letter - 'a');
        if (letter == 'i') {
            if (!takeText(in, room, PROPERTIES_LIMIT, &send->properties))
                return 0;
            continue;
        }
        if (!takePlain(in, &text) || !setField(send, letter, &text))
            return 0;
    } while (take(in, ','));
    /* a to h must be there. */
    return take(in, '}') && (seen & 0xFF) == 0xFF;
}

/* A header in JSON.  takeFields: takes the members of extFields. */
static int takeHeader(struct json *in, struct head *head,
                      int (*takeFields)(struct json *, void *, char *), void *target, char *room)
{
    unsigned seen = 0, which;
    struct span name, text;
    if (!take(in, '{'))
        return 0;
    do {
        if (!takePlain(in, &name) || !take(in, ':'))
            return 0;
        if (is(&name, "code") && takeNumber(in, &head->code))
            which = 1;
        else if (is(&name, "extFields") && takeFields(in, target, room))
            which = 2;
        else if (is(&name, "flag") && takeNumber(in, &head->flag))
            which = 4;
        else if (is(&name, "opaque") && takeNumber(in, &head->opaque))
            which = 8;
        else if (is(&name, "version") && takeNumber(in, &head->version))
            which = 16;
        else if (is(&name, "language") && takePlain(in, &text))
            which = 32;
        else if (is(&name, "serializeTypeCurrentRPC") && takePlain(in, &text))
            which = 64;
        else
            return 0;
        if (seen & which)
            return 0;
        seen |= which;
    } while (take(in, ','));
    return take(in, '}') && in->at == in->end && seen & 2;
}

/* Whether it is text in UTF-8, and if need be in ASCII. */
static int isText(const struct span *text, int plain)
{
    for (Py_ssize_t i = 0; i < text->size; i++)
        if (text->data[i] & 0x80) {
            PyObject *checked = plain ? NULL : PyUnicode_DecodeUTF8(text->data, text->size, NULL);
            PyErr_Clear();
            Py_XDECREF(checked);
            return checked != NULL;
        }
    return 1;
}

/* The header in its binary form:
 * code:2 language:1 version:2 opaque:4 flag:4 remark's length:4 fields' length:4
 * fields: name's length:2 name value's length:4 value */
static int readBinary(const uint8_t *at, size_t size, struct send *send)
{
    unsigned seen = 0;
    if (size < 21 || get32(at + 13) || get32(at + 17) != size - 21)
        return 0;
    send->head.code = at[0] << 8 | at[1];
    send->head.opaque = (int32_t)get32(at + 5);
    send->head.flag = (int32_t)get32(at + 9);
    const uint8_t *end = at + size;
    for (at += 21; at < end;) {
        if (end - at < 8 || at[0] || at[1] != 1)
            return 0;
        int letter = at[2];
        struct span text = {(const char *)at + 7, get32(at + 3)};
        /* What is empty is not there, in this form. */
        if (letter < 'a' || letter > 'n' || seen & 1u << (letter - 'a') || !text.size ||
            text.size > end - at - 7 || !isText(&text, letter != 'i'))
            return 0;
        seen |= 1u << (letter - 'a');
        if (letter == 'i') {
            if (text.size > PROPERTIES_LIMIT)
                return 0;
            send->properties = text;
        } else if (!setField(send, letter, &text))
            return 0;
        at += 7 + text.size;
    }
    return (seen & 0xFF) == 0xFF;
}

static int isSend(const uint8_t *header, size_t size, int binary, struct send *send, char *room)
{
    if (binary)
        return readBinary(header, size, send);
    struct json in = {header, header + size};
    /* Which it is stands in front, as a rule. */
    return size >= 12 && !memcmp(header, send->batch ? "{\"code\":320," : "{\"code\":310,", 12) &&
           takeHeader(&in, &send->head, takeSend, send, room);
}

/* The key of a queue of a topic, a reference of its own: the table may change while the caller
 * makes other objects.  NULL: there is no such queue, or an error. */
static PyObject *queueKey(PyObject *known, PyObject *topic, int64_t queueId)
{
    PyObject *keys = PyDict_GetItemWithError(known, topic);
    if (keys && !PyTuple_Check(keys)) {
        PyErr_SetString(PyExc_TypeError, "the queues of a topic are a tuple");
        return NULL;
    }
    if (!keys || queueId < 0 || queueId >= PyTuple_GET_SIZE(keys))
        return NULL;
    return Py_NewRef(PyTuple_GET_ITEM(keys, queueId));
}

/* Whether frames can be looked for between two places. */
static int isPlace(Py_ssize_t start, Py_ssize_t end, Py_ssize_t size)
{
    if (start < 0 || start > end || end > size) {
        PyErr_Format(PyExc_ValueError, "%zd to %zd is not in %zd bytes", start, end, size);
        return 0;
    }
    return 1;
}

/* The code of a command, as its header shows it at a glance; -1: the header must be decoded. */
static long peekCode(const uint8_t *header, size_t size, uint32_t type)
{
    if (type == 1)
        return size >= 2 ? (int16_t)(header[0] << 8 | header[1]) : -1;
    if (type || size < 10 || memcmp(header, "{\"code\":", 8))
        return -1;
    long code = 0;
    const uint8_t *at = header + 8, *end = header + (size < 14 ? size : 14);
    while (at < end && *at >= '0' && *at <= '9')
        code = code * 10 + *at++ - '0';
    return at > header + 8 && at < end && (*at == ',' || *at == '}') ? code : -1;
}

PyDoc_STRVAR(splitFramesDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *splitFrames(PyObject *module, PyObject *args)
{
    PyObject *data;
    Py_ssize_t limit, headerLimit, start = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "Snn", &data, &limit, &headerLimit))
        return NULL;
    const uint8_t *base = (const uint8_t *)PyBytes_AS_STRING(data);
    Py_ssize_t end = PyBytes_GET_SIZE(data), begun = 0;
    PyObject *runs = PyList_New(0);
    long code = 0;
    while (runs && end - start >= 8) {
        uint32_t length = get32(base + start), mark = get32(base + start + 4);
        if (length < 4 || length > INT32_MAX || (Py_ssize_t)length + 4 > limit ||
            (Py_ssize_t)length + 4 > end - start || (Py_ssize_t)(mark & 0xFFFFFF) > headerLimit)
            break;
        size_t size = mark & 0xFFFFFF;
        long found = size > length - 4 ? -1 : peekCode(base + start + 8, size, mark >> 24);
        if (start > begun && found != code) {
            if (!addNew(runs, Py_BuildValue("lOnn", code, data, begun, start)))
                Py_CLEAR(runs);
            begun = start;
        }
        code = found;
        start += 4 + (Py_ssize_t)length;
    }
    if (runs && start > begun && !addNew(runs, Py_BuildValue("lOnn", code, data, begun, start)))
        Py_CLEAR(runs);
    return runs ? Py_BuildValue("Nn", runs, start) : NULL;
}

/* What decodeSends gives for one form of headers. */
struct form { PyObject *sends, *hosts, *owners; };

/* A call: the frames of one peer between two places; see txrocket.remoting.turn.Call. */
struct call { PyObject *host, *data; Py_ssize_t start, end; };

static int readCall(PyObject *object, struct call *call)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) < 5 ||
        !PyBytes_Check(PyTuple_GET_ITEM(object, 1)) || !PyBytes_Check(PyTuple_GET_ITEM(object, 2))) {
        PyErr_Format(PyExc_TypeError, "%R is not a call", object);
        return 0;
    }
    call->host = PyTuple_GET_ITEM(object, 1);
    call->data = PyTuple_GET_ITEM(object, 2);
    call->start = PyLong_AsSsize_t(PyTuple_GET_ITEM(object, 3));
    call->end = PyLong_AsSsize_t(PyTuple_GET_ITEM(object, 4));
    return !PyErr_Occurred() && isPlace(call->start, call->end, PyBytes_GET_SIZE(call->data));
}

/* The message of one frame; NULL: it is not ordinary, or, with an exception, out of memory. */
static PyObject *readFrame(const struct call *call, int batch, PyObject *known,
                           const struct span *cluster, char *room, int *binary, Py_ssize_t *next)
{
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(call->data) + call->start;
    if (call->end - call->start < 8)
        return NULL;
    uint32_t length = get32(at), mark = get32(at + 4);
    struct send send = {.batch = batch};
    size_t size = mark & 0xFFFFFF;
    if (length > (size_t)(call->end - call->start - 4) || size + 4 > length || mark >> 24 > 1)
        return NULL;
    const uint8_t *header = at + 8, *body = header + size;
    *binary = mark >> 24;
    if (!isSend(header, size, *binary, &send, room) || send.head.code != (batch ? 320 : 310) ||
        (send.head.flag != 0 && send.head.flag != 2) || send.sysFlag & 0xC)
        return NULL;
    PyObject *topic = PyBytes_FromStringAndSize(send.topic.data, send.topic.size);
    if (!topic)
        return NULL;
    PyObject *key = queueKey(known, topic, send.queueId);
    Py_DECREF(topic);
    PyObject *properties = key ? storedProperties(&send.properties, cluster) : NULL;
    if (!properties) {
        Py_XDECREF(key);
        return NULL;
    }
    *next = call->start + 4 + (Py_ssize_t)length;
    PyObject *opaque = send.head.flag ? Py_NewRef(Py_None) : PyLong_FromLongLong(send.head.opaque);
    return Py_BuildValue("NNy#NLLLLn", opaque, key, (const char *)body,
                         (Py_ssize_t)(at + 4 + length - body), properties, (long long)send.born,
                         (long long)send.ownFlag, (long long)send.sysFlag,
                         (long long)send.reconsumeTimes, *next);
}

/* The ordinary messages at the front of a call; False: out of memory. */
static int readCallSends(struct call call, Py_ssize_t index, int batch, PyObject *known,
                         const struct span *cluster, char *room, struct form *forms)
{
    Py_ssize_t count = 0, next = 0;
    int binary = 0, form = 0;
    for (PyObject *one; (one = readFrame(&call, batch, known, cluster, room, &binary, &next));) {
        if (count && binary != form) {
            /* The caller gives it again, as the first of its form. */
            Py_DECREF(one);
            break;
        }
        form = binary;
        if (!addNew(forms[form].sends, one) || PyList_Append(forms[form].hosts, call.host))
            return 0;
        count++;
        call.start = next;
    }
    if (PyErr_Occurred())
        return 0;
    return !count || addNew(forms[form].owners, Py_BuildValue("nn", index, count));
}

PyDoc_STRVAR(decodeSendsDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *decodeSends(PyObject *module, PyObject *args)
{
    char room[PROPERTIES_LIMIT + 1];
    PyObject *calls, *known, *result = NULL;
    struct form forms[2];
    struct span cluster;
    int batch = 0, failed = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!y#|p", &PyList_Type, &calls, &PyDict_Type, &known,
                          &cluster.data, &cluster.size, &batch))
        return NULL;
    for (int i = 0; i < 2; i++) {
        forms[i] = (struct form){PyList_New(0), PyList_New(0), PyList_New(0)};
        failed |= !forms[i].sends || !forms[i].hosts || !forms[i].owners;
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(calls); i++) {
        struct call call;
        PyObject *object = Py_NewRef(PyList_GET_ITEM(calls, i));
        failed = !readCall(object, &call) ||
                 !readCallSends(call, i, batch, known, &cluster, room, forms);
        Py_DECREF(object);
    }
    if (!failed)
        result = Py_BuildValue(
            "NN",
            named(DecodedSends, PyTuple_Pack(3, forms[0].sends, forms[0].hosts, forms[0].owners)),
            named(DecodedSends, PyTuple_Pack(3, forms[1].sends, forms[1].hosts, forms[1].owners)));
    for (int i = 0; i < 2; i++) {
        Py_XDECREF(forms[i].sends);
        Py_XDECREF(forms[i].hosts);
        Py_XDECREF(forms[i].owners);
    }
    return result;
}

/* PULL_MESSAGE's fields, in the order of these names; all but the last two must be there. */
enum { GROUP, PULLED, QUEUE, OFFSET, MOST, SYSFLAG, COMMIT, SUSPEND, VERSION, WANTED, KIND, FIELDS };

static const char *const pullNames[FIELDS] = {
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
    "suspendTimeoutMillis", "subVersion", "subscription", "expressionType"};
static const int pullBits[FIELDS] = {0, 0, 32, 64, 32, 32, 64, 64, 64, 0, 0};

struct pull {
    struct head head;
    struct span text[FIELDS];
    int64_t number[FIELDS];
};

static int takePull(struct json *in, void *target, char *room)
{
    struct pull *pull = target;
    unsigned seen = 0;
    struct span name, text;
    (void)room;
    if (!take(in, '{'))
        return 0;
    do {
        int field = 0;
        if (!takePlain(in, &name) || !take(in, ':') || !takePlain(in, &text))
            return 0;
        while (field < FIELDS && !is(&name, pullNames[field]))
            field++;
        if (field == FIELDS)
            continue;
        if (seen & 1u << field ||
            (pullBits[field] && !readNumber(text.data, text.data + text.size, pullBits[field],
                                            &pull->number[field])))
            return 0;
        seen |= 1u << field;
        pull->text[field] = text;
    } while (take(in, ','));
    return take(in, '}') && (seen & ((1u << WANTED) - 1)) == (1u << WANTED) - 1;
}

/* What pulls of one consumer have in common; \2 for what is not there. */
static PyObject *whoPulls(const struct pull *pull)
{
    static const int parts[] = {GROUP, PULLED, SYSFLAG, VERSION, WANTED, KIND};
    size_t size = 0;
    for (int i = 0; i < 6; i++)
        size += 1 + (pull->text[parts[i]].data ? pull->text[parts[i]].size : 1);
    PyObject *who = PyBytes_FromStringAndSize(NULL, size - 1);
    uint8_t *to = who ? (uint8_t *)PyBytes_AS_STRING(who) : NULL;
    for (int i = 0; who && i < 6; i++) {
        const struct span *text = &pull->text[parts[i]];
        if (i)
            *to++ = 1;
        to = text->data ? putBytes(to, text->data, text->size) : putBytes(to, "\2", 1);
    }
    return who;
}

PyDoc_STRVAR(decodePullsDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *decodePulls(PyObject *module, PyObject *args)
{
    struct span data;
    Py_ssize_t start, end;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#nn", &data.data, &data.size, &start, &end) ||
        !isPlace(start, end, data.size))
        return NULL;
    const uint8_t *base = (const uint8_t *)data.data;
    PyObject *pulls = PyList_New(0);
    while (pulls && end - start >= 8) {
        uint32_t length = get32(base + start), size = get32(base + start + 4);
        struct pull pull = {0};
        /* A mark other than that of JSON makes it too large a size. */
        if (length > (size_t)(end - start - 4) || length < 4 || size > length - 4 || size < 11)
            break;
        struct json in = {base + start + 8, base + start + 8 + size};
        if (memcmp(in.at, "{\"code\":11,", 11) ||
            !takeHeader(&in, &pull.head, takePull, &pull, NULL) || pull.head.flag)
            break;
        start += 4 + length;
        PyObject *who = whoPulls(&pull);
        PyObject *one = who ? Py_BuildValue("LNLLLLn", (long long)pull.head.opaque, who,
                                            (long long)pull.number[QUEUE],
                                            (long long)pull.number[OFFSET],
                                            (long long)pull.number[MOST],
                                            (long long)pull.number[COMMIT], start)
                            : NULL;
        if (!one || PyList_Append(pulls, one))
            Py_CLEAR(pulls);
        Py_XDECREF(one);
    }
    return pulls;
}

static int addTotal(PyObject *totals, PyObject *topic, size_t size)
{
    long long count = 0, sum = 0;
    PyObject *known = PyDict_GetItemWithError(totals, topic);
    if (known) {
        count = PyLong_AsLongLong(PyTuple_GET_ITEM(known, 0));
        sum = PyLong_AsLongLong(PyTuple_GET_ITEM(known, 1));
    }
    PyObject *total = Py_BuildValue("LL", count + 1, sum + (long long)size);
    int failed = !total || PyDict_SetItem(totals, topic, total);
    Py_XDECREF(total);
    return !failed;
}

PyDoc_STRVAR(encodeRecordsDoc,
             "Records of messages that were sent: all of them one after the other, each as the store\n"
             "puts it, and by topic how many there are and how long they are.  It ends at the first\n"
             "for which there is no room.  Each has an address of its own that it comes from.");

/* A number of so many bits; False: it is not valid. */
static int isNumber(PyObject *object, int bits, long long *value)
{
    int overflow;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (*value == -1 && PyErr_Occurred())
        return 0;
    if (overflow || (bits == 32 && (*value < INT32_MIN || *value > INT32_MAX))) {
        PyErr_Format(PyExc_OverflowError, "%R does not fit %d bits", object, bits);
        return 0;
    }
    return 1;
}

/* A queue's key: its topic and its number. */
static int isKey(PyObject *key, long long *queueId)
{
    if (!PyTuple_Check(key) || PyTuple_GET_SIZE(key) != 2 ||
        !PyUnicode_Check(PyTuple_GET_ITEM(key, 0))) {
        PyErr_Format(PyExc_TypeError, "%R is not the key of a queue", key);
        return 0;
    }
    return isNumber(PyTuple_GET_ITEM(key, 1), 32, queueId);
}

/* A message that was sent, checked.  The first three are references of its own: a finalizer that
 * runs while records are made may change the lists and the table that they are from. */
struct sent {
    PyObject *send, *host, *field;  /* field: its topic as records have it */
    PyObject *key, *properties;
    struct span body, born;
    long long queueId, bornTime, flag, sysFlag, reconsumeTimes, prepared;
    size_t size;
};

static int isAddress(Py_ssize_t size)
{
    if (size != 8 && size != 20)
        PyErr_SetString(PyExc_ValueError, "an address of an odd length, or none");
    return size == 8 || size == 20;
}

/* Read a message and the address that it comes from; False: one of them is not valid. */
static int readSent(PyObject *send, PyObject *host, PyObject *fields, struct sent *sent)
{
    if (!PyTuple_Check(send) || PyTuple_GET_SIZE(send) < 8 ||
        !PyBytes_Check(PyTuple_GET_ITEM(send, 2)) || !PyBytes_Check(PyTuple_GET_ITEM(send, 3))) {
        PyErr_Format(PyExc_TypeError, "%R is not a message that was sent", send);
        return 0;
    }
    if (PyBytes_GET_SIZE(PyTuple_GET_ITEM(send, 3)) > PROPERTIES_LIMIT) {
        PyErr_SetString(PyExc_ValueError, "too many properties");
        return 0;
    }
    if (!isAddress(PyBytes_Check(host) ? PyBytes_GET_SIZE(host) : 0))
        return 0;
    PyObject *body = PyTuple_GET_ITEM(send, 2);
    sent->key = PyTuple_GET_ITEM(send, 1);
    sent->properties = PyTuple_GET_ITEM(send, 3);
    sent->body = (struct span){PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)};
    sent->born = (struct span){PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host)};
    if (!isKey(sent->key, &sent->queueId) ||
        !isNumber(PyTuple_GET_ITEM(send, 4), 64, &sent->bornTime) ||
        !isNumber(PyTuple_GET_ITEM(send, 5), 32, &sent->flag) ||
        !isNumber(PyTuple_GET_ITEM(send, 6), 32, &sent->sysFlag) ||
        !isNumber(PyTuple_GET_ITEM(send, 7), 32, &sent->reconsumeTimes) ||
        (PyTuple_GET_SIZE(send) > 9 &&
         !isNumber(PyTuple_GET_ITEM(send, 9), 64, &sent->prepared)))
        return 0;
    PyObject *field = PyDict_GetItemWithError(fields, PyTuple_GET_ITEM(sent->key, 0));
    if (!field) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, sent->key);
        return 0;
    }
    if (!PyBytes_Check(field) || PyBytes_GET_SIZE(field) > TOPIC_LIMIT + 1) {
        PyErr_Format(PyExc_TypeError, "%R is not a topic as records have it", field);
        return 0;
    }
    sent->send = Py_NewRef(send);
    sent->host = Py_NewRef(host);
    sent->field = Py_NewRef(field);
    return 1;
}

/* The numbers of the next messages of queues.  They are kept apart until all records are
 * made: a number that was given to no message would leave a gap in its queue. */
struct numbers {
    PyObject *nexts;  /* the store's own, by key */
    PyObject *given;  /* those that have changed, or NULL while there is one at most, ... */
    PyObject *key;    /* ... the last one */
    long long next;
};

/* Note the last one in a table; False: out of memory. */
static int noteNumber(struct numbers *numbers, PyObject *table)
{
    PyObject *next = table ? PyLong_FromLongLong(numbers->next) : NULL;
    int failed = !next || PyDict_SetItem(table, numbers->key, next);
    Py_XDECREF(next);
    return !failed;
}

/* The number of a queue's next message, or -1. */
static long long giveNumber(struct numbers *numbers, PyObject *key)
{
    if (key != numbers->key) {
        if (numbers->key && ((!numbers->given && !(numbers->given = PyDict_New())) ||
                             !noteNumber(numbers, numbers->given)))
            return -1;
        PyObject *next = numbers->given ? PyDict_GetItemWithError(numbers->given, key) : NULL;
        if (!next && !PyErr_Occurred())
            next = PyDict_GetItemWithError(numbers->nexts, key);
        if (PyErr_Occurred())
            return -1;
        numbers->key = key;
        numbers->next = 0;
        if (next && !isNumber(next, 64, &numbers->next))
            return -1;
    }
    if (numbers->next < 0 || numbers->next == INT64_MAX) {
        PyErr_Format(PyExc_OverflowError, "%R has no queue offset left", key);
        return -1;
    }
    return numbers->next++;
}

/* Tell the store of them, all or none: a dict grows once, before it takes what another has. */
static int keepNumbers(struct numbers *numbers)
{
    if (!numbers->key)
        return 1;
    if (!numbers->given)
        return noteNumber(numbers, numbers->nexts);
    return noteNumber(numbers, numbers->given) && !PyDict_Update(numbers->nexts, numbers->given);
}

static uint8_t *putRecord(uint8_t *to, const struct sent *sent, long long number,
                          long long offset, long long timestamp, const struct span *store)
{
    Py_ssize_t properties = PyBytes_GET_SIZE(sent->properties);
    int sysFlag = (int)sent->sysFlag & ~0x30;
    sysFlag |= (sent->born.size == 20 ? 0x10 : 0) | (store->size == 20 ? 0x20 : 0);
    to = put32(to, sent->size);
    to = put32(to, MAGIC);
    to = put32(to, crc32((const uint8_t *)sent->body.data, sent->body.size) & 0x7FFFFFFF);
    to = put32(to, sent->queueId);
    to = put32(to, sent->flag);
    to = put64(to, number);
    to = put64(to, offset);
    to = put32(to, sysFlag);
    to = put64(to, sent->bornTime);
    to = putBytes(to, sent->born.data, sent->born.size);
    to = put64(to, timestamp);
    to = putBytes(to, store->data, store->size);
    to = put32(to, sent->reconsumeTimes);
    to = put64(to, sent->prepared);
    to = put32(to, sent->body.size);
    to = putBytes(to, sent->body.data, sent->body.size);
    to = putBytes(to, PyBytes_AS_STRING(sent->field), PyBytes_GET_SIZE(sent->field));
    *to++ = properties >> 8;
    *to++ = properties;
    return putBytes(to, PyBytes_AS_STRING(sent->properties), properties);
}

/* Read messages up to the first for which there is no room; -1: one is not valid.  No object is
 * made here, so that nothing changes meanwhile. */
static Py_ssize_t readAllSent(PyObject *sends, PyObject *hosts, PyObject *fields, long long room,
                              Py_ssize_t mostBody, size_t around, struct sent *each)
{
    Py_ssize_t count = 0, most = PyList_GET_SIZE(sends);
    for (; count < most; count++, each++) {
        /* Only a topic with a hash function of its own could have changed them. */
        if (count >= PyList_GET_SIZE(sends) || count >= PyList_GET_SIZE(hosts)) {
            PyErr_SetString(PyExc_ValueError, "fewer addresses than messages");
            return -1;
        }
        if (!readSent(PyList_GET_ITEM(sends, count), PyList_GET_ITEM(hosts, count), fields, each))
            return -1;
        each->size = around + each->born.size + each->body.size + PyBytes_GET_SIZE(each->field) +
                     PyBytes_GET_SIZE(each->properties);
        if (each->body.size > mostBody || each->size > INT32_MAX || (long long)each->size > room)
            break;
        room -= each->size;
    }
    return count;
}

/* Make the records of messages, which have so many bytes together. */
static PyObject *makeRecords(const struct sent *each, Py_ssize_t count, size_t total,
                             struct numbers *numbers, long long offset, long long timestamp,
                             const struct span *store)
{
    PyObject *records = PyBytes_FromStringAndSize(NULL, total);
    PyObject *puts = PyList_New(count), *totals = PyDict_New(), *result = NULL;
    if (!records || !puts || !totals)
        goto done;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(records);
    for (Py_ssize_t i = 0; i < count; i++, each++) {
        /* The halves of transactions are in the log, but not in a queue. */
        long long number = each->sysFlag & 4 ? 0 : giveNumber(numbers, each->key);
        if (number < 0)
            goto done;
        to = putRecord(to, each, number, offset, timestamp, store);
        PyObject *put =
            Py_BuildValue("OLLn", each->key, number, offset, (Py_ssize_t)each->size);
        if (!put)
            goto done;
        PyList_SET_ITEM(puts, i, put);
        offset += each->size;
        if (!addTotal(totals, PyTuple_GET_ITEM(each->key, 0), each->size))
            goto done;
    }
    result = named(EncodedRecords, PyTuple_Pack(3, records, puts, totals));
    if (result && !keepNumbers(numbers))
        Py_CLEAR(result);
done:
    Py_XDECREF(records);
    Py_XDECREF(puts);
    Py_XDECREF(totals);
    return result;
}

static PyObject *encodeRecords(PyObject *module, PyObject *args)
{
    PyObject *sends, *fields, *hosts, *result = NULL;
    long long offset, brim, timestamp;
    Py_ssize_t mostBody, count = 0;
    struct span store;
    struct numbers numbers = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!LLnLO!y#", &PyList_Type, &sends, &PyDict_Type, &fields,
                          &PyDict_Type, &numbers.nexts, &offset, &brim, &mostBody, &timestamp,
                          &PyList_Type, &hosts, &store.data, &store.size) ||
        !isAddress(store.size))
        return NULL;
    if (offset < 0) {
        PyErr_SetString(PyExc_ValueError, "an offset below 0");
        return NULL;
    }
    struct sent *all = PyMem_Calloc(PyList_GET_SIZE(sends) + 1, sizeof *all);
    if (!all)
        return PyErr_NoMemory();
    long long room = brim > offset ? brim - offset : 0;
    count = readAllSent(sends, hosts, fields, room, mostBody, 74 + store.size, all);
    if (count >= 0) {
        size_t total = 0;
        for (Py_ssize_t i = 0; i < count; i++)
            total += all[i].size;
        result = makeRecords(all, count, total, &numbers, offset, timestamp, &store);
    }
    for (struct sent *each = all; each->send; each++) {
        Py_DECREF(each->send);
        Py_DECREF(each->host);
        Py_DECREF(each->field);
    }
    PyMem_Free(all);
    Py_XDECREF(numbers.given);
    /* What does not fit a record is told by Python. */
    if (count < 0 &&
        (PyErr_ExceptionMatches(PyExc_OverflowError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear();
        return inPython("encodeRecords", args);
    }
    return result;
}

/* A number in decimal digits: a tenth of what sprintf takes. */
static char *putNumber(char *to, long long value)
{
    char digits[20], *at = digits + sizeof digits;
    unsigned long long left = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do
        *--at = '0' + left % 10;
    while (left /= 10);
    if (value < 0)
        *to++ = '-';
    return (char *)putBytes((uint8_t *)to, at, digits + sizeof digits - at);
}

/* The offset in the id of a message: 16 digits of base 16. */
static char *putOffset(char *to, unsigned long long offset)
{
    for (int digit = 15; digit >= 0; digit--)
        *to++ = "0123456789ABCDEF"[offset >> digit * 4 & 15];
    return to;
}

static char *putText(char *to, const char *text)
{
    return (char *)putBytes((uint8_t *)to, text, strlen(text));
}

static char *putField(char *to, const char *name, long long value)
{
    *to++ = 0;
    *to++ = strlen(name);
    to = putText(to, name);
    char *end = putNumber(to + 4, value);
    put32((uint8_t *)to, end - to - 4);
    return end;
}

/* What an answer says of a message that was put. */
struct answer { long long opaque, offset, queueId, queueOffset; };

/* Read it; False: a put or a send is not valid. */
static int readAnswer(PyObject *put, PyObject *opaque, struct answer *answer)
{
    if (!PyTuple_Check(put) || PyTuple_GET_SIZE(put) < 3) {
        PyErr_Format(PyExc_TypeError, "%R is not a message that was put", put);
        return 0;
    }
    return isNumber(opaque, 32, &answer->opaque) &&
           isKey(PyTuple_GET_ITEM(put, 0), &answer->queueId) &&
           isNumber(PyTuple_GET_ITEM(put, 1), 64, &answer->queueOffset) &&
           isNumber(PyTuple_GET_ITEM(put, 2), 64, &answer->offset);
}

/* The header of an answer, in its binary form; head: the fields up to the offset in the
 * message's id; tail: what stands before the opaque. */
static char *answerBinary(char *to, const struct answer *answer, const struct span *head,
                          const struct span *tail)
{
    to = (char *)putBytes((uint8_t *)to, tail->data, tail->size);
    to = (char *)put32((uint8_t *)to, answer->opaque);
    to = (char *)put32(put32((uint8_t *)to, 1), 0);
    char *fields = to + 4;
    to = (char *)putBytes((uint8_t *)fields, head->data, head->size);
    to = putOffset(to, answer->offset);
    to = putField(to, "queueId", answer->queueId);
    to = putField(to, "queueOffset", answer->queueOffset);
    put32((uint8_t *)fields - 4, to - fields);
    return to;
}

static char *answerJson(char *to, const struct answer *answer, const struct span *head,
                        const struct span *tail)
{
    to = (char *)putBytes((uint8_t *)to, head->data, head->size);
    to = putText(putOffset(to, answer->offset), "\",\"queueId\":\"");
    to = putText(putNumber(to, answer->queueId), "\",\"queueOffset\":\"");
    to = putText(putNumber(to, answer->queueOffset),
                 "\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
    to = putNumber(to, answer->opaque);
    return (char *)putBytes((uint8_t *)to, tail->data, tail->size);
}

PyDoc_STRVAR(encodeSendResponsesDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *encodeSendResponses(PyObject *module, PyObject *args)
{
    PyObject *sends, *puts, *owners;
    struct span head, tail;
    int binary;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!y#y#p", &PyList_Type, &sends, &PyList_Type, &puts,
                          &PyList_Type, &owners, &head.data, &head.size, &tail.data, &tail.size,
                          &binary))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(puts), done = 0;
    /* A header's size has 24 bits. */
    if (count > PyList_GET_SIZE(sends) || head.size > 65535 || tail.size > 65535) {
        PyErr_SetString(PyExc_ValueError, "fewer sends than puts, or too long a template");
        return NULL;
    }
    /* Numbers have 20 digits at most, and what stands between them some 80 characters. */
    size_t most = head.size + tail.size + 200;
    char *room = PyMem_Malloc(most * (count ? count : 1));
    PyObject *answers = room ? PyList_New(0) : PyErr_NoMemory();
    for (Py_ssize_t i = 0; answers && done < count && i < PyList_GET_SIZE(owners); i++) {
        PyObject *owner = PyList_GET_ITEM(owners, i);
        Py_ssize_t share = PyTuple_Check(owner) && PyTuple_GET_SIZE(owner) == 2
                               ? PyLong_AsSsize_t(PyTuple_GET_ITEM(owner, 1))
                               : -1;
        if (share < 1 || PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "%R is not a call and a count", owner);
            goto failed;
        }
        char *to = room;
        /* Nothing that is made below lets other code run, which might change the lists. */
        for (Py_ssize_t stop = share < count - done ? done + share : count; done < stop; done++) {
            PyObject *send = PyList_GET_ITEM(sends, done);
            if (!PyTuple_Check(send) || !PyTuple_GET_SIZE(send)) {
                PyErr_Format(PyExc_TypeError, "%R is not a message that was sent", send);
                goto failed;
            }
            PyObject *opaque = PyTuple_GET_ITEM(send, 0);
            struct answer answer;
            char *start = to;
            if (opaque == Py_None)
                continue;
            if (!readAnswer(PyList_GET_ITEM(puts, done), opaque, &answer))
                goto failed;
            to = (binary ? answerBinary : answerJson)(to + 8, &answer, &head, &tail);
            put32((uint8_t *)start, to - start - 4);
            put32((uint8_t *)start + 4, (binary ? 1u << 24 : 0) | (uint32_t)(to - start - 8));
        }
        if (!addNew(answers, PyBytes_FromStringAndSize(room, to - room)))
            goto failed;
    }
    PyMem_Free(room);
    return answers;
failed:
    PyMem_Free(room);
    Py_XDECREF(answers);
    return NULL;
}

/* How many bytes the values of a row take at most; -1: it is not valid. */
static long long roomOf(PyObject *row, Py_ssize_t values)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != values + 1) {
        PyErr_Format(PyExc_ValueError, "%R is not a row of %zd values and a size", row, values);
        return -1;
    }
    /* An object that is not a number could run code when it is read as one. */
    if (!PyLong_Check(PyTuple_GET_ITEM(row, values))) {
        PyErr_SetString(PyExc_TypeError, "the size of a body is not a number");
        return -1;
    }
    long long room = 0;
    for (Py_ssize_t i = 0; i < values; i++) {
        PyObject *value = PyTuple_GET_ITEM(row, i);
        Py_ssize_t size = 20;
        if (PyUnicode_Check(value)) {
            if (!PyUnicode_AsUTF8AndSize(value, &size))
                return -1;
        } else if (!PyLong_Check(value)) {
            PyErr_Format(PyExc_TypeError, "%R is neither a number nor a text", value);
            return -1;
        }
        room += size;
    }
    return room;
}

/* Write a header: the values of a row between pieces; NULL: a number is too large. */
static char *putHeader(char *to, PyObject *pieces, PyObject *row)
{
    Py_ssize_t values = PyTuple_GET_SIZE(pieces) - 1;
    for (Py_ssize_t i = 0; i <= values; i++) {
        PyObject *piece = PyTuple_GET_ITEM(pieces, i), *value = PyTuple_GET_ITEM(row, i);
        to = (char *)putBytes((uint8_t *)to, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece));
        if (i == values)
            break;
        if (PyUnicode_Check(value)) {
            struct span text;
            text.data = PyUnicode_AsUTF8AndSize(value, &text.size);
            if (!text.data)
                return NULL;
            to = (char *)putBytes((uint8_t *)to, text.data, text.size);
        } else {
            long long number;
            if (!isNumber(value, 64, &number))
                return NULL;
            to = putNumber(to, number);
        }
    }
    return to;
}

PyDoc_STRVAR(encodeHeadsDoc, "See txrocket.bulk.interface.Bulk.");

static PyObject *encodeHeads(PyObject *module, PyObject *args)
{
    PyObject *pieces, *rows;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &pieces, &PyList_Type, &rows))
        return NULL;
    Py_ssize_t values = PyTuple_GET_SIZE(pieces) - 1;
    size_t fixed = 8, size = 0;
    for (Py_ssize_t i = 0; i <= values; i++) {
        if (!PyBytes_Check(PyTuple_GET_ITEM(pieces, i))) {
            PyErr_SetString(PyExc_TypeError, "a piece of a header is not bytes");
            return NULL;
        }
        fixed += PyBytes_GET_SIZE(PyTuple_GET_ITEM(pieces, i));
    }
    if (values < 0) {
        PyErr_SetString(PyExc_ValueError, "a header without pieces");
        return NULL;
    }
    char *room = NULL;
    PyObject *heads = PyList_New(0);
    /* Nothing that is made below lets other code run, which might change the list. */
    for (Py_ssize_t i = 0; heads && i < PyList_GET_SIZE(rows); i++) {
        PyObject *row = PyList_GET_ITEM(rows, i);
        long long need = roomOf(row, values), body;
        if (need < 0 || !isNumber(PyTuple_GET_ITEM(row, values), 32, &body))
            goto failed;
        if (fixed + need > size) {
            size = fixed + need;
            char *larger = PyMem_Realloc(room, size);
            if (!larger) {
                PyErr_NoMemory();
                goto failed;
            }
            room = larger;
        }
        char *end = putHeader(room + 8, pieces, row);
        if (!end)
            goto failed;
        long long header = end - room - 8;
        if (header > 0xFFFFFF || body < 0 || 4 + header + body > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "a header of %lld bytes", header);
            goto failed;
        }
        put32((uint8_t *)room, 4 + header + body);
        put32((uint8_t *)room + 4, header);
        if (!addNew(heads, PyBytes_FromStringAndSize(room, end - room)))
            goto failed;
    }
    PyMem_Free(room);
    return heads;
failed:
    PyMem_Free(room);
    Py_XDECREF(heads);
    return NULL;
}

PyDoc_STRVAR(messageIdsDoc, "The ids of records of these sizes, from an offset on, after a prefix.");

static PyObject *messageIds(PyObject *module, PyObject *args)
{
    struct span prefix;
    unsigned long long offset;
    PyObject *sizes;
    (void)module;
    if (!PyArg_ParseTuple(args, "s#KO!", &prefix.data, &prefix.size, &offset, &PyTuple_Type,
                          &sizes))
        return NULL;
    for (Py_ssize_t i = 0; i < prefix.size; i++)
        if (prefix.data[i] & 0x80) {
            PyErr_SetString(PyExc_ValueError, "a prefix of ids is in ASCII");
            return NULL;
        }
    Py_ssize_t count = PyTuple_GET_SIZE(sizes), each = prefix.size + 17;
    PyObject *ids = PyUnicode_New(count ? each * count - 1 : 0, 127);
    for (Py_ssize_t i = 0; ids && i < count; i++) {
        char *to = (char *)PyUnicode_1BYTE_DATA(ids) + i * each;
        memcpy(to, prefix.data, prefix.size);
        to += prefix.size;
        to = putOffset(to, offset);
        if (i + 1 < count)
            *to = ',';
        unsigned long long size = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(sizes, i));
        if (PyErr_Occurred())
            Py_CLEAR(ids);
        offset += size;
    }
    return ids;
}

static PyMethodDef methods[] = {
    {"batchRecords", batchRecords, METH_VARARGS, batchRecordsDoc},
    {"suspect", suspect, METH_VARARGS, suspectDoc},
    {"checkRecords", checkRecords, METH_VARARGS, checkRecordsDoc},
    {"readRecords", readRecords, METH_VARARGS, readRecordsDoc},
    {"indexEntries", indexEntries, METH_VARARGS, indexEntriesDoc},
    {"guardBus", guardBus, METH_NOARGS, guardBusDoc},
    {"releaseBus", releaseBus, METH_NOARGS, releaseBusDoc},
    {"isGuarded", isGuarded, METH_NOARGS, isGuardedDoc},
    {"collectRecords", collectRecords, METH_VARARGS, collectRecordsDoc},
    {"readableRecords", readableRecords, METH_VARARGS, readableRecordsDoc},
    {"syncPaths", syncPaths, METH_O, syncPathsDoc},
    {"messageIds", messageIds, METH_VARARGS, messageIdsDoc},
    {"splitFrames", splitFrames, METH_VARARGS, splitFramesDoc},
    {"decodeSends", decodeSends, METH_VARARGS, decodeSendsDoc},
    {"decodePulls", decodePulls, METH_VARARGS, decodePullsDoc},
    {"encodeRecords", encodeRecords, METH_VARARGS, encodeRecordsDoc},
    {"encodeHeads", encodeHeads, METH_VARARGS, encodeHeadsDoc},
    {"encodeSendResponses", encodeSendResponses, METH_VARARGS, encodeSendResponsesDoc},
    {0}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "txrocket.bulk._compiled",
                                    "txrocket.bulk in C.", -1, methods,
                                    NULL, NULL, NULL, NULL};

/* Find the type of a result; False: it is not a named tuple. */
static int isNamed(PyObject *interface, const char *name, PyObject **type)
{
    PyObject *found = PyObject_GetAttrString(interface, name);
    if (found && !(PyType_Check(found) &&
                   PyType_IsSubtype((PyTypeObject *)found, &PyTuple_Type))) {
        PyErr_Format(PyExc_TypeError, "%s is not a named tuple", name);
        Py_CLEAR(found);
    }
    Py_XSETREF(*type, found);
    return found != NULL;
}

PyMODINIT_FUNC PyInit__compiled(void)
{
    makeCrcTable();
#if defined(__x86_64__) && defined(__GNUC__)
    multiplies = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    tailName = PyUnicode_InternFromString("tail");
    filedName = PyUnicode_InternFromString("filed");
    if (!tailName || !filedName)
        return NULL;
    PyObject *interface = PyImport_ImportModule("txrocket.bulk.interface");
    int known = interface && isNamed(interface, "BatchRecords", &BatchRecords) &&
                isNamed(interface, "EncodedRecords", &EncodedRecords) &&
                isNamed(interface, "ReadRecords", &ReadRecords) &&
                isNamed(interface, "IndexEntries", &IndexEntries) &&
                isNamed(interface, "CollectedRecords", &CollectedRecords) &&
                isNamed(interface, "DecodedSends", &DecodedSends);
    Py_XDECREF(interface);
    return known ? PyModule_Create(&module) : NULL;
}
