/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load generator for brokers that speak RocketMQ's protocol: so cheap that the broker
 * is what is measured.  One thread, one epoll, requests made by patching a template.
 *
 *     connections --> each keeps so many requests in flight --> every answer is checked
 *
 * Only an answer with code 0 counts, and a pull only with all the messages that it asked
 * for; anything else is an error, and the first one is shown.  What has no answer is
 * counted by what the broker's queues have more of afterwards.
 *
 * Prints one line of JSON.  Times in it are microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum mode { SEND, BATCH, ONEWAY, PULL, ARRIVAL, BOTH };
enum code { PULL_MESSAGE = 11, PULL_NOT_FOUND = 19, PULL_RETRY = 20,
            GET_MAX_OFFSET = 30, SEND_MESSAGE_V2 = 310, SEND_BATCH = 320 };

/* Ten digits at any time, so that a template's length never changes. */
#define FIRST_OPAQUE 1000000000
#define QUEUES 4
#define MOST_TOPICS 100000
#define LATENCIES (64 * 32)

/* Where a record's body begins, with addresses of four bytes; and how many digits of
 * microseconds a body begins with where its way is timed. */
#define BODY 88
#define STAMP 16

static struct {
    const char *host, *topic, *group;
    int port, connections, inflight, body, batch, topics, count, delay, pid;
    int window; /* how many may be in flight in all, each connection in turn */
    long span;  /* how many messages, the newest, are pulled from */
    double warm, seconds;
    long total;
    bool binary;
    enum mode mode;
} opt = {.host = "127.0.0.1", .topic = "bench", .group = "bench_group", .port = 10911,
         .connections = 4, .inflight = 16, .body = 1024, .batch = 32, .topics = 1, .count = 32,
         .delay = 20, .warm = 1, .seconds = 5, .mode = SEND};

/* A request that was not answered yet; a broker may answer others before it. */
struct pending { double at; unsigned opaque; bool open; };
#define PENDING (1 << 16)

struct connection {
    int fd, inflight;
    char *in, *out;
    size_t inSize, inUsed, outSize, outUsed;
    struct pending *pending; /* by opaque, modulo their number */
    unsigned next;           /* the next opaque, less FIRST_OPAQUE */
    bool writable;
    bool consumes; /* one queue, from an offset on */
    int queue;
    long from;
};

/* A request and the places in it that change. */
struct template {
    char *data;
    size_t size;
    size_t opaque, born, queue, unique, topic;
};

static struct template request;
static struct connection *connections;
static int poller, consumers;
static uint64_t uniques;
static long offsets[QUEUES];       /* how many messages there are to pull */
static long answered, failed, sent, received, underway;
static unsigned long histogram[LATENCIES];
static char firstError[512];
static bool measuring;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(2);
}

static void *grown(void *memory, size_t size)
{
    memory = realloc(memory, size);
    if (!memory)
        die("out of memory");
    return memory;
}

/* --- latencies: 32 steps for each power of two, so a figure is 3 % off at most --- */

static void note(double seconds)
{
    uint64_t us = seconds <= 0 ? 0 : (uint64_t)(seconds * 1e6);
    int index;
    if (us < 32)
        index = us;
    else {
        int power = 63 - __builtin_clzll(us);
        index = (power - 4) * 32 + ((us >> (power - 5)) & 31);
    }
    histogram[index < LATENCIES ? index : LATENCIES - 1]++;
}

static double percentile(double share)
{
    unsigned long all = 0, seen = 0;
    for (int i = 0; i < LATENCIES; i++)
        all += histogram[i];
    if (!all)
        return 0;
    for (int i = 0; i < LATENCIES; i++) {
        seen += histogram[i];
        if (seen >= share * all) {
            if (i < 32)
                return i;
            int power = i / 32 + 4;
            return (double)((32ull + i % 32) << (power - 5));
        }
    }
    return 0;
}

/* --- requests ------------------------------------------------------------------ */

static void put32(char *at, uint32_t value)
{
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t get32(const char *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void putDigits(char *at, long value, int digits)
{
    while (digits--) {
        at[digits] = '0' + value % 10;
        value /= 10;
    }
}

static void putHex(char *at, uint64_t value, int digits)
{
    while (digits--) {
        at[digits] = "0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

struct field { const char *name, *value; };

/* Makes a frame; the header is JSON or RocketMQ's binary form. */
static struct template frame(int code, const struct field *fields, const char *body, size_t size)
{
    char header[4096];
    size_t used = 0;
    struct template made = {0};
    if (opt.binary) {
        static const char head[] = {0, 0, 0 /* JAVA */, 1, (char)0x8f, 0, 0, 0, 0, 0, 0, 0, 0,
                                    0, 0, 0, 0, 0, 0, 0, 0};
        memcpy(header, head, used = sizeof head);
        header[0] = code >> 8;
        header[1] = code;
        for (const struct field *f = fields; f->name; f++) {
            size_t name = strlen(f->name), value = strlen(f->value);
            header[used++] = name >> 8;
            header[used++] = name;
            memcpy(header + used, f->name, name);
            put32(header + used + name, value);
            memcpy(header + used + name + 4, f->value, value);
            used += name + 4 + value;
        }
        put32(header + 17, used - 21);
    } else {
        used = snprintf(header, sizeof header, "{\"code\":%d,\"extFields\":{", code);
        for (const struct field *f = fields; f->name; f++) {
            used += snprintf(header + used, sizeof header - used, "%s\"%s\":\"",
                             f == fields ? "" : ",", f->name);
            for (const char *c = f->value; *c; c++)
                used += (unsigned char)*c < 32
                    ? (size_t)snprintf(header + used, sizeof header - used, "\\u%04x", *c)
                    : (size_t)snprintf(header + used, sizeof header - used, "%c", *c);
            header[used++] = '"';
        }
        used += snprintf(header + used, sizeof header - used,
                         "},\"flag\":%d,\"language\":\"JAVA\",\"opaque\":%d,"
                         "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":399}",
                         opt.mode == ONEWAY ? 2 : 0, FIRST_OPAQUE);
    }
    made.size = 8 + used + size;
    made.data = grown(NULL, made.size);
    put32(made.data, made.size - 4);
    put32(made.data + 4, used | (opt.binary ? 1u << 24 : 0));
    memcpy(made.data + 8, header, used);
    memcpy(made.data + 8 + used, body, size);
    if (opt.binary) {
        made.opaque = 8 + 5;
        if (opt.mode == ONEWAY)
            put32(made.data + 8 + 9, 2);
    } else
        made.opaque = (char *)memmem(made.data, made.size, "\"opaque\":", 9) + 9 - made.data;
    return made;
}

static size_t find(const struct template *in, const char *text)
{
    char *found = memmem(in->data, in->size, text, strlen(text));
    return found ? (size_t)(found - in->data) : 0;
}

/* Marks of the places that change, as long as what comes there. */
#define BORN "1600000000000"
#define UNIQUE "7F000001000118B4AAC2000000000000"
#define TOPIC "TTTTT"

static char *messages(size_t *size)
{
    char properties[64];
    int length = snprintf(properties, sizeof properties, "UNIQ_KEY\x01%s\x02WAIT\x01true", UNIQUE);
    size_t one = 20 + opt.body + 2 + length;
    char *batch = grown(NULL, one * opt.batch);
    for (int i = 0; i < opt.batch; i++) {
        char *at = batch + i * one;
        memset(at, 0, 16);
        put32(at, one);
        put32(at + 16, opt.body);
        memset(at + 20, 'x', opt.body);
        at[20 + opt.body] = length >> 8;
        at[21 + opt.body] = length;
        memcpy(at + 22 + opt.body, properties, length);
    }
    *size = one * opt.batch;
    return batch;
}

/* Digits of an offset vary, so pulls are made one by one. */
static struct template makePull(const char *topic, int queue, long offset, bool hold)
{
    char count[16], id[16], from[24];
    snprintf(count, sizeof count, "%d", opt.count);
    snprintf(id, sizeof id, "%d", queue);
    snprintf(from, sizeof from, "%ld", offset);
    struct field fields[] = {
        {"consumerGroup", opt.group}, {"topic", topic}, {"queueId", id}, {"queueOffset", from},
        {"maxMsgNums", count},
        /* 4: the subscription comes along; 2: the pull may be held. */
        {"sysFlag", hold ? "6" : "4"}, {"commitOffset", "0"}, {"suspendTimeoutMillis", "15000"},
        {"subscription", "*"}, {"subVersion", "0"}, {"expressionType", "TAG"}, {0}};
    return frame(PULL_MESSAGE, fields, "", 0);
}

static struct template nextPull(const struct connection *c, long turn)
{
    if (c->consumes)
        return makePull(opt.topic, c->queue, c->from, true);
    int queue = turn % QUEUES;
    long first = opt.span && opt.span < offsets[queue] ? offsets[queue] - opt.span : 0;
    long room = offsets[queue] - first - opt.count + 1;
    return makePull(opt.topic, queue, first + turn / QUEUES * opt.count % room, false);
}

static void makeSend(void)
{
    char topic[300], properties[128];
    size_t size = opt.body;
    char *body;
    if (opt.topics > 1)
        snprintf(topic, sizeof topic, "%s" TOPIC, opt.topic);
    else
        snprintf(topic, sizeof topic, "%s", opt.topic);
    if (opt.mode == BATCH) {
        body = messages(&size);
        properties[0] = 0;
    } else {
        body = memset(grown(NULL, size), 'x', size);
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01" UNIQUE "\x02WAIT\x01true");
    }
    struct field fields[] = {
        {"a", "bench_producer"}, {"b", topic}, {"c", "TBW102"}, {"d", "4"}, {"e", "Q"},
        {"f", "0"}, {"g", BORN}, {"h", "0"}, {"i", properties}, {"j", "0"}, {"k", "false"},
        {"m", opt.mode == BATCH ? "true" : "false"}, {0}};
    request = frame(opt.mode == BATCH ? SEND_BATCH : SEND_MESSAGE_V2, fields, body, size);
    free(body);
    request.born = find(&request, BORN);
    request.unique = opt.mode == BATCH ? 0 : find(&request, UNIQUE) + 20;
    request.topic = opt.topics > 1 ? find(&request, TOPIC) : 0;
    if (opt.binary)
        request.queue = (char *)memmem(request.data, request.size, "e\0\0\0\1Q", 6) + 5 - request.data;
    else
        request.queue = find(&request, "\"e\":\"Q\"") + 5;
}

static void add(struct connection *c, const char *data, size_t size)
{
    if (c->outUsed + size > c->outSize) {
        c->outSize = (c->outUsed + size) * 2;
        c->out = grown(c->out, c->outSize);
    }
    memcpy(c->out + c->outUsed, data, size);
    c->outUsed += size;
}

static void ask(struct connection *c, double at, long born)
{
    static long turns;
    long turn = turns++;
    int queue = turn % QUEUES;
    struct template asked = request;
    bool pulls = opt.mode == PULL || c->consumes;
    if (pulls)
        asked = nextPull(c, turn);
    else {
        if (opt.mode == BOTH)
            putDigits(asked.data + asked.size - opt.body, (long)(at * 1e6), STAMP);
        if (asked.topic)
            putDigits(asked.data + asked.topic, turn / QUEUES % opt.topics, 5);
        if (asked.unique)
            putHex(asked.data + asked.unique, ++uniques, 12);
        putDigits(asked.data + asked.born, born, 13);
        asked.data[asked.queue] = '0' + queue;
    }
    if (opt.binary)
        put32(asked.data + asked.opaque, FIRST_OPAQUE + c->next);
    else
        putDigits(asked.data + asked.opaque, FIRST_OPAQUE + c->next, 10);
    if (opt.mode != ONEWAY) {
        struct pending *p = &c->pending[c->next % PENDING];
        if (p->open)
            die("an answer is missing since %d requests", PENDING);
        *p = (struct pending){at, c->next, true};
    }
    c->next++;
    c->inflight++;
    underway++;
    sent += !c->consumes;
    add(c, asked.data, asked.size);
    if (pulls)
        free(asked.data);
}

/* --- answers ------------------------------------------------------------------- */

static void fault(const char *what, const char *header, size_t size)
{
    failed++;
    if (!firstError[0])
        snprintf(firstError, sizeof firstError, "%s: %.*s", what, size > 400 ? 400 : (int)size, header);
}

static long number(const char *header, size_t size, const char *name)
{
    char *found = memmem(header, size, name, strlen(name));
    if (!found)
        return -1;
    found += strlen(name);
    while (*found == '"' || *found == ':' || *found == ' ')
        found++;
    return strtol(found, NULL, 10);
}

static long codeOf(const char *header, size_t size, bool binary)
{
    return binary ? (unsigned char)header[0] << 8 | (unsigned char)header[1]
                  : number(header, size, "\"code\"");
}

static long opaqueOf(const char *header, size_t size, bool binary)
{
    return binary ? (long)get32(header + 5) : number(header, size, "\"opaque\"");
}

static int recordsIn(const char *body, size_t size)
{
    int count = 0;
    while (size >= 8) {
        uint32_t length = get32(body);
        if (length < 91 || length > size || get32(body + 4) != 0xdaa320a7)
            return -1;
        body += length;
        size -= length;
        count++;
    }
    return size ? -1 : count;
}

/* How long messages were on their way from this program to itself. */
static void arrived(struct connection *c, const char *header, size_t length, const char *body,
                    size_t size, double at)
{
    int records = recordsIn(body, size);
    if (records < 1) {
        fault("a held pull without a message", header, length);
        return;
    }
    c->from += records;
    if (!measuring)
        return;
    received += records;
    for (size_t position = 0; records--; position += get32(body + position)) {
        char stamp[STAMP + 1] = {0};
        memcpy(stamp, body + position + BODY, STAMP);
        note(at - strtol(stamp, NULL, 10) * 1e-6);
    }
}

/* One whole frame behind its length. */
static void answer(struct connection *c, const char *data, size_t size, double at)
{
    uint32_t mark = get32(data), length = mark & 0xffffff;
    bool binary = mark >> 24;
    const char *header = data + 4, *body = header + length;
    if (length + 4 > size)
        die("a frame with a header longer than itself");
    unsigned opaque = opaqueOf(header, length, binary) - FIRST_OPAQUE;
    struct pending *asked = &c->pending[opaque % PENDING];
    if (!asked->open || asked->opaque != opaque) {
        fault("an answer nobody asked for", header, length);
        return;
    }
    asked->open = false;
    c->inflight--;
    underway--;
    long code = codeOf(header, length, binary);
    if (c->consumes && (code == PULL_NOT_FOUND || code == PULL_RETRY))
        return; /* held for too long; it is asked again */
    if (code != 0)
        fault("refused", header, length);
    else if (c->consumes)
        arrived(c, header, length, body, size - 4 - length, at);
    else if (opt.mode == PULL && recordsIn(body, size - 4 - length) != opt.count)
        fault("a pull without all its messages", header, length);
    else if (measuring) {
        answered++;
        if (opt.mode != BOTH)
            note(at - asked->at);
    }
}

static void receive(struct connection *c, double at)
{
    for (;;) {
        if (c->inSize - c->inUsed < 65536)
            c->in = grown(c->in, c->inSize = c->inSize * 2 + 131072);
        ssize_t got = read(c->fd, c->in + c->inUsed, c->inSize - c->inUsed);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (got <= 0)
            die("the broker closed a connection: %s", got ? strerror(errno) : "end");
        c->inUsed += got;
        if (c->inUsed < c->inSize)
            break;
    }
    size_t position = 0;
    while (c->inUsed - position >= 4) {
        size_t size = get32(c->in + position);
        if (c->inUsed - position < 4 + size)
            break;
        answer(c, c->in + position + 4, size, at);
        position += 4 + size;
    }
    memmove(c->in, c->in + position, c->inUsed - position);
    c->inUsed -= position;
}

static void flush(struct connection *c)
{
    size_t position = 0;
    while (position < c->outUsed) {
        ssize_t wrote = write(c->fd, c->out + position, c->outUsed - position);
        if (wrote < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (wrote < 0)
            die("writing failed: %s", strerror(errno));
        position += wrote;
    }
    memmove(c->out, c->out + position, c->outUsed - position);
    c->outUsed -= position;
    /* Without answers it is room for more that has to be waited for. */
    bool wants = c->outUsed > 0 || opt.mode == ONEWAY;
    if (wants != c->writable) {
        struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
        c->writable = wants;
    }
}

/* --- running ------------------------------------------------------------------- */

static void dial(struct connection *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(opt.port)};
    int one = 1;
    if (!inet_pton(AF_INET, opt.host, &address.sin_addr))
        die("%s is no IPv4 address", opt.host);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        die("%s:%d: %s", opt.host, opt.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->pending = calloc(PENDING, sizeof *c->pending);
    if (!c->pending)
        die("out of memory");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

/* Reads one frame; gives its length without the four bytes of that. */
static size_t awaitFrame(struct connection *c, char *frame, size_t room)
{
    size_t got = 0;
    fcntl(c->fd, F_SETFL, 0);
    while (got < 4 || got < 4 + get32(frame)) {
        ssize_t more = read(c->fd, frame + got, room - got);
        if (more <= 0)
            die("the broker closed a connection");
        got += more;
    }
    return got - 4;
}

static void askOffsets(struct connection *c)
{
    bool binary = opt.binary;
    enum mode mode = opt.mode;
    opt.binary = false;
    opt.mode = PULL; /* not one that has no answer */
    for (int queue = 0; queue < QUEUES; queue++) {
        char id[2] = {'0' + queue, 0};
        struct field fields[] = {{"topic", opt.topic}, {"queueId", id}, {0}};
        struct template asked = frame(GET_MAX_OFFSET, fields, "", 0);
        static char answer[1 << 16];
        if (write(c->fd, asked.data, asked.size) != (ssize_t)asked.size)
            die("writing failed");
        awaitFrame(c, answer, sizeof answer);
        offsets[queue] = number(answer + 8, get32(answer + 4) & 0xffffff, "\"offset\"");
        if (mode == PULL && offsets[queue] < opt.count)
            die("queue %d of %s has %ld messages, a pull wants %d", queue, opt.topic,
                offsets[queue], opt.count);
        free(asked.data);
    }
    opt.binary = binary;
    opt.mode = mode;
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

/* How many messages the queues have, asked on a connection of its own. */
static long stored(void)
{
    static struct connection c;
    long all = 0;
    if (!c.fd)
        dial(&c);
    askOffsets(&c);
    for (int queue = 0; queue < QUEUES; queue++)
        all += offsets[queue] > 0 ? offsets[queue] : 0;
    return all;
}

/* Seconds of CPU that the broker has taken, all its threads. */
static double serverCpu(void)
{
    char path[64], line[1024];
    unsigned long user = 0, kernel = 0;
    if (!opt.pid)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", opt.pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        die("no process %d", opt.pid);
    fclose(file);
    char *behind = strrchr(line, ')');
    sscanf(behind + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel);
    return (double)(user + kernel) / sysconf(_SC_CLK_TCK);
}

static double cpu(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void report(double seconds, double cpuUsed, double serverUsed)
{
    int each = opt.mode == BATCH ? opt.batch : opt.mode == PULL ? opt.count : 1;
    printf("{\"requests\":%ld,\"messages\":%ld,\"errors\":%ld,\"seconds\":%.3f,\"cpu\":%.3f,"
           "\"server\":%.3f,\"p50\":%.0f,\"p99\":%.0f,\"p999\":%.0f,\"error\":\"",
           answered, opt.mode == BOTH ? received : answered * each, failed, seconds, cpuUsed,
           serverUsed, percentile(.5), percentile(.99), percentile(.999));
    for (char *c = firstError; *c; c++)
        if (*c >= 32 && *c < 127 && *c != '"' && *c != '\\')
            putchar(*c);
    puts("\"}");
}

static void fill(struct connection *c, double at, long born)
{
    if (opt.mode == ONEWAY) {
        /* The socket's buffer is all that holds these back. */
        c->inflight = 0;
        while (c->outUsed < 65536 && !(opt.total && sent >= opt.total))
            ask(c, at, born);
    } else if (opt.window) {
        /* Whose turn it is, not whose answer came. */
        static int turn;
        while (underway < opt.window && !(opt.total && sent >= opt.total)) {
            struct connection *next = &connections[turn++ % opt.connections];
            ask(next, at, born);
            if (next != c)
                flush(next);
        }
    } else
        while (c->inflight < (c->consumes ? 1 : opt.inflight) && !(opt.total && sent >= opt.total))
            ask(c, at, born);
    flush(c);
}

static void run(void)
{
    struct epoll_event events[256];
    struct timespec wall;
    double start = now(), measured = start + opt.warm, end = measured + opt.seconds, used = 0;
    double server = 0;
    long before = 0;
    for (int i = 0; i < opt.connections + consumers; i++) {
        clock_gettime(CLOCK_REALTIME, &wall);
        fill(&connections[i], now(), wall.tv_sec * 1000L + wall.tv_nsec / 1000000);
    }
    for (;;) {
        int count = epoll_wait(poller, events, 256, 100);
        double at = now();
        if (!measuring && at >= measured) {
            measuring = true;
            measured = at;
            end = at + opt.seconds;
            used = cpu();
            server = serverCpu();
            if (opt.mode == ONEWAY)
                before = stored();
        }
        if (opt.total ? answered + failed >= opt.total : at >= end)
            break;
        clock_gettime(CLOCK_REALTIME, &wall);
        long born = wall.tv_sec * 1000L + wall.tv_nsec / 1000000;
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                receive(c, at);
            fill(c, at, born);
        }
    }
    double took = now() - measured, usedNow = cpu(), serverNow = serverCpu();
    if (opt.mode == ONEWAY)
        answered = stored() - before;
    report(took, usedNow - used, serverNow - server);
}

/* One connection holds a pull, another sends: how long a message takes from one to the
 * other. */
static void arrivals(void)
{
    static char frame[1 << 20];
    struct connection *puller = &connections[0], *sender = &connections[1];
    long wanted = opt.total ? opt.total : (long)(opt.seconds * 1000 / opt.delay);
    double start = now(), used = cpu(), server = serverCpu();
    askOffsets(puller);
    long at = offsets[0];
    request.data[request.queue] = '0';
    for (long i = 0; i < wanted; i++) {
        struct template pull = makePull(opt.topic, 0, at, true);
        if (write(puller->fd, pull.data, pull.size) != (ssize_t)pull.size)
            die("writing failed");
        free(pull.data);
        usleep(opt.delay * 1000);
        putHex(request.data + request.unique, ++uniques, 12);
        double began = now();
        if (write(sender->fd, request.data, request.size) != (ssize_t)request.size)
            die("writing failed");
        size_t size = awaitFrame(puller, frame, sizeof frame);
        double arrived = now();
        uint32_t mark = get32(frame + 4), header = mark & 0xffffff;
        int records = recordsIn(frame + 8 + header, size - 4 - header);
        if (codeOf(frame + 8, header, mark >> 24) || records < 1)
            fault("a held pull without a message", frame + 8, header);
        else {
            answered++;
            note(arrived - began);
            at += records;
        }
        awaitFrame(sender, frame, sizeof frame);
        mark = get32(frame + 4);
        if (codeOf(frame + 8, mark & 0xffffff, mark >> 24))
            fault("refused", frame + 8, mark & 0xffffff);
    }
    report(now() - start, cpu() - used, serverCpu() - server);
}

static const struct { const char *name; enum mode mode; } MODES[] = {
    {"send", SEND}, {"batch", BATCH}, {"oneway", ONEWAY}, {"pull", PULL}, {"arrival", ARRIVAL},
    {"both", BOTH}};

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"mode", 1, 0, 'm'}, {"connections", 1, 0, 'c'},
        {"inflight", 1, 0, 'f'}, {"body", 1, 0, 'b'}, {"batch", 1, 0, 'n'}, {"topic", 1, 0, 't'},
        {"topics", 1, 0, 'T'}, {"count", 1, 0, 'C'}, {"warm", 1, 0, 'w'}, {"seconds", 1, 0, 's'},
        {"total", 1, 0, 'r'}, {"group", 1, 0, 'g'}, {"delay", 1, 0, 'd'}, {"binary", 0, 0, 'B'},
        {"pid", 1, 0, 'P'}, {"window", 1, 0, 'W'}, {"span", 1, 0, 'S'}, {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'h': opt.host = optarg; break;
        case 'p': opt.port = atoi(optarg); break;
        case 'm': {
            size_t i = 0;
            while (i < sizeof MODES / sizeof *MODES && strcmp(MODES[i].name, optarg))
                i++;
            if (i == sizeof MODES / sizeof *MODES)
                die("no such mode: %s", optarg);
            opt.mode = MODES[i].mode;
            break;
        }
        case 'c': opt.connections = atoi(optarg); break;
        case 'f': opt.inflight = atoi(optarg); break;
        case 'b': opt.body = atoi(optarg); break;
        case 'n': opt.batch = atoi(optarg); break;
        case 't': opt.topic = optarg; break;
        case 'T': opt.topics = atoi(optarg); break;
        case 'C': opt.count = atoi(optarg); break;
        case 'w': opt.warm = atof(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'r': opt.total = atol(optarg); break;
        case 'g': opt.group = optarg; break;
        case 'd': opt.delay = atoi(optarg); break;
        case 'B': opt.binary = true; break;
        case 'P': opt.pid = atoi(optarg); break;
        case 'W': opt.window = atoi(optarg); break;
        case 'S': opt.span = atol(optarg); break;
        default: return 2;
        }
    if (opt.mode == ARRIVAL)
        opt.connections = 2;
    if (opt.connections < 1 || opt.inflight < 1 || opt.topics < 1 || opt.topics > MOST_TOPICS)
        die("no such load");
    if (opt.mode == ONEWAY && opt.topics > 1)
        die("oneway messages are counted in one topic");
    if (opt.mode == BOTH && opt.body < STAMP)
        die("a body of %d bytes has no room for a time", opt.body);
    consumers = opt.mode == BOTH ? QUEUES : 0;
    /* Runs that follow each other do not send the same ids. */
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uniques = ((uint64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000) & 0xffffffffffff;
    poller = epoll_create1(EPOLL_CLOEXEC);
    connections = calloc(opt.connections + consumers, sizeof *connections);
    for (int i = 0; i < opt.connections + consumers; i++)
        dial(&connections[i]);
    makeSend();
    if (opt.mode == ARRIVAL)
        arrivals();
    else {
        if (opt.mode == PULL || opt.mode == BOTH)
            askOffsets(&connections[0]);
        for (int queue = 0; queue < consumers; queue++) {
            struct connection *c = &connections[opt.connections + queue];
            c->consumes = true;
            c->queue = queue;
            c->from = offsets[queue] > 0 ? offsets[queue] : 0;
        }
        run();
    }
    return failed ? 1 : 0;
}
